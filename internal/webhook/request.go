package webhook

import (
	"context"
	"errors"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// sent is the stored part of a request. The rest follows from the delivery, the event and the
// webhook's version.
type sent struct {
	version    int64 // of the webhook; 0 if nothing was sent, or from before requests were stored
	sum        int64 // checksum of the body
	signatures []byte
}

// version holds the settings of a webhook that shape requests.
type version struct {
	url  string
	form payload.Form
}

// rebuild fills in the requests of a delivery's attempts from sents. stored is the stored body
// of a test delivery.
func (s *Service) rebuild(ctx context.Context, q db.Querier, d *Delivery, attempts []Attempt, sents []sent, stored []byte) error {
	versions := make(map[int64]version)
	rows, err := db.All(ctx, q, func(row db.Row) (number int64, err error) {
		var v version
		err = row.Scan(&number, &v.url, &v.form)
		versions[number] = v
		return number, err
	}, "SELECT version, url, payload_form FROM webhook_versions WHERE webhook_id = $1", d.WebhookID)
	if err != nil {
		return fmt.Errorf("load versions of webhook: %w", err)
	}
	if len(rows) == 0 {
		return nil // deleted meanwhile
	}
	bodies := make(map[payload.Form][]byte)
	if stored == nil {
		e, err := event.Find(ctx, q, d.EventID)
		if err != nil && !errors.Is(err, db.ErrNoRows) {
			return fmt.Errorf("load event: %w", err)
		}
		if err == nil {
			for _, f := range []payload.Form{payload.Flat, payload.Nested} {
				if bodies[f], err = payload.Render(f, &e); err != nil {
					return err
				}
			}
		}
	}
	for i := range attempts {
		a, sent := &attempts[i], sents[i]
		v, ok := versions[sent.version]
		if !ok {
			continue
		}
		body := stored
		if body == nil {
			body = bodies[v.form]
		}
		h := payload.Header(string(d.Event), d.ID, d.EventID, d.Test)
		if len(sent.signatures) > 0 {
			payload.AddSignatures(h, v.form, a.At, sent.signatures)
		}
		if r, err := payload.NewRequest(v.url, h, sent.sum, body); err == nil { // else a version without attempts
			a.Request = r
		}
	}
	return nil
}
