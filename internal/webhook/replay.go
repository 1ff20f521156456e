package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// A replay is a new delivery, with a new id, of an existing event. It is delivered like any
// other: in order, with the webhook's current settings.

// MaxReplay bounds the deliveries of one [Service.Replay].
const MaxReplay = 1000

// replayItem is an event to deliver to a webhook again.
type replayItem struct {
	webhookID string // empty: all subscribed webhooks
	event     event.Event
}

// source returns the source of the event.
func (r *replayItem) source() event.Source { return cmp.Or(r.event.Source, event.Helpdesk) }

// Replay sends the events of deliveries, of any of the organization's webhooks, to the same
// webhooks again: all of them or, with an error, none. It returns the ids of the new deliveries
// in the order of the given ids. They are sent in the order of the original deliveries.
func (s *Service) Replay(ctx context.Context, organizationID string, ids []string) (made []string, err error) {
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		made, err = s.ReplayTx(ctx, tx, organizationID, ids)
		return err
	})
	return made, err
}

// ReplayTx is [Service.Replay] in the caller's transaction.
func (s *Service) ReplayTx(ctx context.Context, tx *db.Tx, organizationID string, ids []string) ([]string, error) {
	return s.ReplayOfTx(ctx, tx, organizationID, "", ids)
}

// ReplayOfTx is [Service.ReplayTx] for deliveries of one webhook; ids of other webhooks are
// NotFound.
func (s *Service) ReplayOfTx(ctx context.Context, tx *db.Tx, organizationID, webhookID string, ids []string) ([]string, error) {
	var v problem.Validation
	if len(ids) == 0 || len(ids) > MaxReplay {
		v.Add("deliveryIds", "must name from 1 to %d deliveries", MaxReplay)
		return nil, v.Err()
	}
	list, err := db.All(ctx, tx, scanDelivery, selectDelivery+` JOIN webhooks w ON w.id = d.webhook_id
		WHERE w.organization_id = $1 AND d.id = ANY($2) ORDER BY d.id`, organizationID, ids)
	if err != nil {
		return nil, fmt.Errorf("find deliveries: %w", err)
	}
	at := make(map[string]int, len(ids)) // index in list by id
	for i, d := range list {
		at[d.ID] = i
	}
	for i, id := range ids {
		place, ok := at[id]
		switch {
		case !ok, webhookID != "" && list[place].WebhookID != webhookID:
			return nil, problem.New(problem.NotFound, "there is no delivery %.40q", id)
		case slices.Index(ids, id) < i:
			v.Add(fmt.Sprintf("deliveryIds.%d", i), "is there twice")
		case list[place].Test:
			v.Add(fmt.Sprintf("deliveryIds.%d", i), "is a test delivery, which cannot be replayed; send another test")
		}
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	repeats := make([]replayItem, len(list))
	for i, d := range list {
		e, err := findEvent(ctx, tx, organizationID, d.EventID)
		if err != nil {
			return nil, err
		}
		repeats[i] = replayItem{d.WebhookID, e}
	}
	made, err := s.replay(ctx, tx, organizationID, repeats)
	if err != nil {
		return nil, fmt.Errorf("replay deliveries: %w", err)
	}
	if len(made) < len(repeats) {
		return nil, errNotFound() // deleted meanwhile
	}
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = made[at[id]]
	}
	return out, nil
}

// ReplayEvent sends an event again: to one webhook, subscribed or not, or with an empty
// webhookID to all subscribed ones. It returns the ids of the new deliveries.
func (s *Service) ReplayEvent(ctx context.Context, organizationID, eventID, webhookID string) (ids []string, err error) {
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		ids, err = s.ReplayEventTx(ctx, tx, organizationID, eventID, webhookID)
		return err
	})
	return ids, err
}

// ReplayEventTx is [Service.ReplayEvent] in the caller's transaction.
func (s *Service) ReplayEventTx(ctx context.Context, tx *db.Tx, organizationID, eventID, webhookID string) ([]string, error) {
	if webhookID != "" {
		if _, err := find(ctx, tx, organizationID, webhookID); err != nil {
			return nil, err
		}
	}
	e, err := findEvent(ctx, tx, organizationID, eventID)
	if err != nil {
		return nil, err
	}
	ids, err := s.replay(ctx, tx, organizationID, []replayItem{{webhookID, e}})
	if err != nil {
		return nil, fmt.Errorf("replay event: %w", err)
	}
	return ids, nil
}

// replay creates deliveries and returns their ids.
func (s *Service) replay(ctx context.Context, tx *db.Tx, organizationID string, repeats []replayItem) ([]string, error) {
	subs, err := db.All(ctx, tx, scanSubscription, selectSubscription+" WHERE organization_id = $1 ORDER BY id", organizationID)
	if err != nil {
		return nil, err
	}
	var all []newDelivery
	var ids []string
	for i := range repeats {
		r := &repeats[i]
		for _, sub := range subs {
			if sub.id == r.webhookID && sub.source() == r.source() || r.webhookID == "" && matches(sub.events, r.event.Source, r.event.Name) {
				d := newDelivery{sub, &r.event, tx.NewID()}
				all, ids = append(all, d), append(ids, d.id)
			}
		}
	}
	if len(all) > 0 {
		target := audit.Target{Type: "webhook", ID: repeats[0].webhookID}
		if err := s.audit.RecordTx(ctx, tx, audit.Entry{
			OrganizationID: organizationID, Action: AuditReplayed, Target: target, Details: map[string]any{"deliveries": len(all)},
		}); err != nil {
			return nil, err
		}
	}
	return ids, s.enqueue(ctx, tx, all)
}

// Range selects the deliveries of a webhook for [Service.ReplayRange].
type Range struct {
	WebhookID string
	From, To  time.Time       // creation time from From, before To
	States    []DeliveryState // only these states, from Delivered on; empty: all
	Event     event.Name      // only this event; empty: all
	DryRun    bool            // only count
}

// FailedOnly returns the states of failed and dropped deliveries for a [Range], or nil for all
// if only is false.
func FailedOnly(only bool) []DeliveryState {
	if only {
		return []DeliveryState{DeliveryFailed, Dropped}
	}
	return nil
}

// has reports whether the range includes a state.
func (r *Range) has(state DeliveryState) bool {
	return state >= Delivered && (len(r.States) == 0 || slices.Contains(r.States, state))
}

// states returns the states of the range.
func (r *Range) states() []int64 {
	var list []int64
	for s := Delivered; s <= Dropped; s++ {
		if r.has(s) {
			list = append(list, int64(s))
		}
	}
	return list
}

// replayPage bounds the deliveries read by [Service.ReplayRange] in one step.
const replayPage = 200

// ReplayRange sends the events of a webhook's deliveries in a range again, each event once,
// oldest first; it skips test deliveries and waiting ones. It returns the number of sent
// events, or with DryRun of events to send. After an error, part of the range has been sent.
func (s *Service) ReplayRange(ctx context.Context, organizationID string, r Range) (int, error) {
	if err := s.checkRange(ctx, organizationID, r); err != nil {
		return 0, err
	}
	total := 0
	for next := ""; ; {
		part, err := s.replayPart(ctx, organizationID, r, next)
		total += part.Replayed
		if err != nil {
			return total, fmt.Errorf("replay deliveries: %w", err)
		}
		if next = part.Next; next == "" {
			return total, nil
		}
	}
}

// ReplayProgress is the result of one [Service.ReplayPart].
type ReplayProgress struct {
	Replayed int
	Next     string    // start of the next part; empty after the last
	At       time.Time // creation time up to which the range is done
}

// ReplayPart is one step of [Service.ReplayRange], for callers that show progress: it reads the
// next few hundred deliveries. The first part starts at "", each later one at Next of the part
// before.
func (s *Service) ReplayPart(ctx context.Context, organizationID string, r Range, next string) (ReplayProgress, error) {
	if err := s.checkRange(ctx, organizationID, r); err != nil {
		return ReplayProgress{}, err
	}
	part, err := s.replayPart(ctx, organizationID, r, next)
	if err != nil {
		return part, fmt.Errorf("replay deliveries: %w", err)
	}
	return part, nil
}

func (s *Service) checkRange(ctx context.Context, organizationID string, r Range) error {
	var v problem.Validation
	if !r.From.Before(r.To) {
		v.Add("to", "must be after from")
	}
	for i, state := range r.States {
		if state < Delivered || state > Dropped {
			v.Add(fmt.Sprintf("states.%d", i), "must be delivered, failed or dropped: waiting deliveries are sent anyway")
		}
	}
	checkEvent(&v, r.Event)
	if err := v.Err(); err != nil {
		return err
	}
	_, err := s.Find(ctx, organizationID, r.WebhookID)
	return err
}

// replayPart continues at next, which names the delivery to start after and the last one of the
// range. Replays create deliveries too; they come after the last.
func (s *Service) replayPart(ctx context.Context, organizationID string, r Range, next string) (ReplayProgress, error) {
	start := idAt(r.From.Add(-clockSlack))
	after, end, ok := strings.Cut(next, "/")
	if !ok || len(after) > 36 || len(end) > 36 {
		after = start
		if err := s.db.QueryRow(ctx, "SELECT coalesce(max(id), '') FROM deliveries WHERE webhook_id = $1", r.WebhookID).Scan(&end); err != nil {
			return ReplayProgress{}, err
		}
	}
	page, err := s.rangePage(ctx, r, after, end)
	if err != nil {
		return ReplayProgress{}, err
	}
	wanted := slices.DeleteFunc(slices.Clone(page), func(c candidate) bool {
		return c.test || !r.has(c.state) || r.Event != "" && c.event != r.Event || c.created.Before(r.From) || !c.created.Before(r.To)
	})
	sent, err := s.replayed(ctx, r, start, after, wanted)
	if err != nil {
		return ReplayProgress{}, err
	}
	var repeats []replayItem
	for _, c := range wanted {
		if sent[c.eventID] {
			continue
		}
		e, err := event.Find(ctx, s.db, c.eventID)
		if errors.Is(err, db.ErrNoRows) {
			continue
		}
		if err != nil {
			return ReplayProgress{}, err
		}
		sent[c.eventID] = true
		repeats = append(repeats, replayItem{r.WebhookID, e})
	}
	if len(repeats) > 0 && !r.DryRun {
		if err := s.db.Write(ctx, func(tx *db.Tx) error {
			_, err := s.replay(ctx, tx, organizationID, repeats)
			return err
		}); err != nil {
			return ReplayProgress{}, err
		}
	}
	part := ReplayProgress{Replayed: len(repeats), At: r.To}
	if len(page) == replayPage {
		last := page[len(page)-1]
		part.Next, part.At = last.id+"/"+end, last.created
	}
	return part, nil
}

// replayed returns the events of candidates that earlier parts have sent: events with an
// earlier delivery in the range.
func (s *Service) replayed(ctx context.Context, r Range, start, after string, wanted []candidate) (map[string]bool, error) {
	sent := make(map[string]bool)
	if after == start || len(wanted) == 0 {
		return sent, nil
	}
	events := make([]string, len(wanted))
	for i, c := range wanted {
		events[i] = c.eventID
	}
	return sent, s.read(ctx, func(tx *db.Tx) error {
		list, err := db.All(ctx, tx, scanText, `SELECT DISTINCT event_id FROM deliveries WHERE event_id = ANY($1) AND id > $2 AND id <= $3
			AND webhook_id = $4 AND state = ANY($5) AND is_test = 0 AND created_at >= $6 AND created_at < $7`,
			events, start, after, r.WebhookID, r.states(), r.From.UnixMicro(), r.To.UnixMicro())
		for _, id := range list {
			sent[id] = true
		}
		return err
	})
}

// rangePage returns the next deliveries of a range after an id, up to the id end, oldest first.
func (s *Service) rangePage(ctx context.Context, r Range, after, end string) ([]candidate, error) {
	query := sqlRange("TRUE")
	if !r.has(Delivered) {
		query = sqlLostRange
	}
	var page []candidate
	err := s.read(ctx, func(tx *db.Tx) (err error) {
		page, err = db.All(ctx, tx, scanCandidate, query, r.WebhookID, after, end, idAt(r.To.Add(clockSlack)), replayPage)
		return err
	})
	return page, err
}

// sqlLostRange selects failed and dropped deliveries of a range.
var sqlLostRange = "SELECT * FROM (" + sqlRange(condition(DeliveryFailed)) + ") AS failed UNION ALL SELECT * FROM (" +
	sqlRange(condition(Dropped)) + ") AS dropped ORDER BY id LIMIT $5"

func sqlRange(where string) string {
	return selectCandidate + " WHERE webhook_id = $1 AND " + where + " AND id > $2 AND id <= $3 AND id < $4 ORDER BY id LIMIT $5"
}
