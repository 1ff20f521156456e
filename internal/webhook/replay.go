package webhook

import (
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
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// A replay is a new delivery, with an id of its own, of an event that keeps its
// id. It is delivered like any other: in its turn, with the webhook as it is.

// MaxReplay is how many deliveries one [Service.Replay] takes.
const MaxReplay = 1000

// replayItem is an event to be delivered to a webhook once more.
type replayItem struct {
	webhookID string // empty: to all that subscribe to it
	event     event.Event
}

// Replay sends the events of deliveries to their webhooks again, which may be
// any of the organization's: all of them or, with an error, none. It returns
// the ids of the new deliveries in the order of those given; they go out in the
// order in which the old ones were made.
func (s *Service) Replay(ctx context.Context, organizationID string, ids []string) (made []string, err error) {
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		made, err = s.ReplayIn(ctx, tx, organizationID, ids)
		return err
	})
	return made, err
}

// ReplayIn is [Service.Replay] in the caller's transaction.
func (s *Service) ReplayIn(ctx context.Context, tx *db.Tx, organizationID string, ids []string) ([]string, error) {
	return s.ReplayOfIn(ctx, tx, organizationID, "", ids)
}

// ReplayOfIn is [Service.ReplayIn] for deliveries of one webhook; those of others
// are NotFound.
func (s *Service) ReplayOfIn(ctx context.Context, tx *db.Tx, organizationID, webhookID string, ids []string) ([]string, error) {
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
	at := make(map[string]int, len(ids)) // by id, in list
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

// ReplayEvent sends an event again: to one webhook, whether or not it subscribes
// to it, or with an empty webhookID to all that do. It returns the ids of the
// new deliveries.
func (s *Service) ReplayEvent(ctx context.Context, organizationID, eventID, webhookID string) (ids []string, err error) {
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		ids, err = s.ReplayEventIn(ctx, tx, organizationID, eventID, webhookID)
		return err
	})
	return ids, err
}

// ReplayEventIn is [Service.ReplayEvent] in the caller's transaction.
func (s *Service) ReplayEventIn(ctx context.Context, tx *db.Tx, organizationID, eventID, webhookID string) ([]string, error) {
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

// replay writes deliveries and returns their ids.
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
			if sub.id == r.webhookID || r.webhookID == "" && matches(sub.events, r.event.Name) {
				d := newDelivery{sub, &r.event, queue.NewID()}
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

// Range says which deliveries of a webhook [Service.ReplayRange] sends again.
type Range struct {
	WebhookID string
	From, To  time.Time       // made from From on, and before To
	States    []DeliveryState // only those in these, from Delivered on; empty: in all of these
	Event     event.Name      // only of this event; empty: of all
	DryRun    bool            // only count what would be sent
}

// FailedOnly returns the states for a [Range] of those that failed or were dropped, or,
// with false, of all.
func FailedOnly(only bool) []DeliveryState {
	if only {
		return []DeliveryState{Undelivered, Dropped}
	}
	return nil
}

// has reports whether deliveries in a state are of the range.
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

// replayPage is how many deliveries [Service.ReplayRange] looks at in one step.
const replayPage = 200

// ReplayRange sends again what a webhook's deliveries in a range were about,
// each event once, oldest first; tests apart, and those that still wait to be sent
// at all. It returns how many it sent, or would have sent. A range that is cut short by an error was
// sent in part.
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

// Part is what one [Service.ReplayPart] did.
type Part struct {
	Replayed int
	Next     string    // where the next part begins; empty when that was all
	At       time.Time // everything before is done
}

// ReplayPart is [Service.ReplayRange] for who wants to tell how far it is: it looks
// at the next few hundred deliveries only. The first part begins at "", each other
// at the Next of the one before it.
func (s *Service) ReplayPart(ctx context.Context, organizationID string, r Range, next string) (Part, error) {
	if err := s.checkRange(ctx, organizationID, r); err != nil {
		return Part{}, err
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
			v.Add(fmt.Sprintf("states.%d", i), "must be delivered, failed or dropped: others are sent anyway")
		}
	}
	checkEvent(&v, r.Event)
	if err := v.Err(); err != nil {
		return err
	}
	_, err := s.Find(ctx, organizationID, r.WebhookID)
	return err
}

// replayPart goes on at next: after which delivery, and which is the last. What is
// replayed makes deliveries too; they come after the last.
func (s *Service) replayPart(ctx context.Context, organizationID string, r Range, next string) (Part, error) {
	start := idAt(r.From.Add(-clockSlack))
	after, end, ok := strings.Cut(next, "/")
	if !ok || len(after) > 36 || len(end) > 36 {
		after = start
		if err := s.db.QueryRow(ctx, "SELECT coalesce(max(id), '') FROM deliveries WHERE webhook_id = $1", r.WebhookID).Scan(&end); err != nil {
			return Part{}, err
		}
	}
	page, err := s.rangePage(ctx, r, after, end)
	if err != nil {
		return Part{}, err
	}
	wanted := slices.DeleteFunc(slices.Clone(page), func(c candidate) bool {
		return c.test || !r.has(c.state) || r.Event != "" && c.event != r.Event || c.created.Before(r.From) || !c.created.Before(r.To)
	})
	sent, err := s.replayed(ctx, r, start, after, wanted)
	if err != nil {
		return Part{}, err
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
			return Part{}, err
		}
		sent[c.eventID] = true
		repeats = append(repeats, replayItem{r.WebhookID, e})
	}
	if len(repeats) > 0 && !r.DryRun {
		if err := s.db.Write(ctx, func(tx *db.Tx) error {
			_, err := s.replay(ctx, tx, organizationID, repeats)
			return err
		}); err != nil {
			return Part{}, err
		}
	}
	part := Part{Replayed: len(repeats), At: r.To}
	if len(page) == replayPage {
		last := page[len(page)-1]
		part.Next, part.At = last.id+"/"+end, last.created
	}
	return part, nil
}

// replayed returns which of the events that candidates are about parts before this
// one have sent: those that have an earlier delivery of the range.
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

// rangePage returns the next deliveries of a range after an id, and up to the
// one called end, oldest first.
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

// sqlLostRange is a range of those that failed or were dropped.
var sqlLostRange = "SELECT * FROM (" + sqlRange(condition(Undelivered)) + ") AS failed UNION ALL SELECT * FROM (" +
	sqlRange(condition(Dropped)) + ") AS dropped ORDER BY id LIMIT $5"

func sqlRange(where string) string {
	return selectCandidate + " WHERE webhook_id = $1 AND " + where + " AND id > $2 AND id <= $3 AND id < $4 ORDER BY id LIMIT $5"
}
