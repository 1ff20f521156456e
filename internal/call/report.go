package call

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/queue"

	"github.com/google/uuid"
)

// Result is the effect of a call event, for display.
type Result struct {
	CallID string   `json:"call_id"`
	State  string   `json:"state"`            // of the call, after the event
	Merged []string `json:"united,omitempty"` // calls merged into this one
	Ticket string   `json:"ticket_id,omitempty"`
}

// scope returns the scope of a provider's leg ids.
func scope(o channel.Source) string {
	return cmp.Or(o.ConnectionID, o.OrganizationID+"/"+o.TicketChannel)
}

// IngestCallTx applies a call event in the caller's transaction. Events may repeat,
// and arrive in any order.
func (s *Service) IngestCallTx(ctx context.Context, tx *db.Tx, o channel.Source, news *channel.PhoneCall) (any, error) {
	if len(news.IDs) == 0 || o.OrganizationID == "" {
		return nil, fmt.Errorf("call: an event needs an organization and the id of a leg")
	}
	// An event can merge any calls of the connection.
	if err := tx.Lock(ctx, "call/"+scope(o)); err != nil {
		return nil, err
	}
	list, err := db.All(ctx, tx, scan, "SELECT "+columns+` FROM calls
		WHERE id IN (SELECT call_id FROM call_legs WHERE scope = $1 AND leg = ANY($2)) ORDER BY id FOR UPDATE`, scope(o), news.IDs)
	if err != nil {
		return nil, fmt.Errorf("load calls: %w", err)
	}
	c, united, err := s.mergeCalls(ctx, tx, list)
	if err != nil {
		return nil, err
	}
	if c == nil {
		c = &Call{
			ID: uuid.Must(uuid.NewV7()).String(), OrganizationID: o.OrganizationID, ConnectionID: o.ConnectionID,
			channel: o.Channel, ticketChannel: o.TicketChannel, CreatedAt: tx.Now,
		}
	}
	for _, leg := range news.IDs {
		if err := tx.Queue(ctx, "INSERT INTO call_legs (scope, leg, call_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", scope(o), leg, c.ID); err != nil {
			return nil, fmt.Errorf("write leg: %w", err)
		}
	}
	c.applyReport(news, tx.Now)
	if err := s.schedule(ctx, tx, c); err != nil {
		return nil, err
	}
	return Result{CallID: c.ID, State: c.State, Merged: united, Ticket: c.TicketID}, c.save(ctx, tx)
}

// save writes the call.
func (c *Call) save(ctx context.Context, tx *db.Tx) error {
	c.version++
	c.UpdatedAt = tx.Now
	if err := tx.Queue(ctx, `INSERT INTO calls (id, organization_id, connection_id, channel, medium, phone, ticket_id, facts, version, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT (id) DO UPDATE SET phone = excluded.phone, ticket_id = excluded.ticket_id, facts = excluded.facts,
			version = excluded.version, updated_at = excluded.updated_at`,
		c.ID, c.OrganizationID, c.ConnectionID, c.channel, c.ticketChannel, db.Text(c.Contact.Phone), db.Text(c.TicketID), db.JSON(c.Facts),
		c.version, c.CreatedAt.UnixMicro(), c.UpdatedAt.UnixMicro()); err != nil {
		return fmt.Errorf("write call: %w", err)
	}
	return nil
}

// mergeCalls merges the calls of list into one, nil if it is empty: the one with a
// ticket, else the oldest. If several have tickets, the tickets are merged too.
func (s *Service) mergeCalls(ctx context.Context, tx *db.Tx, list []*Call) (*Call, []string, error) {
	if len(list) == 0 {
		return nil, nil, nil
	}
	// Oldest first: ids are in order of time.
	slices.SortStableFunc(list, func(a, b *Call) int {
		return cmp.Or(cmp.Compare(emptyRank(a.TicketID), emptyRank(b.TicketID)), strings.Compare(a.ID, b.ID))
	})
	c := list[0]
	var united []string
	for _, other := range list[1:] {
		c.merge(&other.Facts)
		if other.TicketID != "" && other.TicketID != c.TicketID {
			if err := s.merge(ctx, tx, c.OrganizationID, other.TicketID, c.TicketID); err != nil {
				return nil, nil, fmt.Errorf("merge the tickets of one call: %w", err)
			}
		}
		if err := tx.Queue(ctx, "UPDATE call_legs SET call_id = $1 WHERE call_id = $2", c.ID, other.ID); err != nil {
			return nil, nil, fmt.Errorf("unite legs: %w", err)
		}
		if err := tx.Queue(ctx, "DELETE FROM calls WHERE id = $1", other.ID); err != nil {
			return nil, nil, fmt.Errorf("unite calls: %w", err)
		}
		united = append(united, other.ID)
	}
	return c, united, nil
}

func emptyRank(s string) int {
	if s == "" {
		return 1
	}
	return 0
}

// The states with effects.
const (
	stateMissed        = "missed"
	stateTranscription = "transcription"
)

// stateOrder ranks the contract's states, for events without distinct times.
var stateOrder = map[string]int{
	"calling": 1, "ringing": 2, "connected": 3, "hold": 3, "voicemail": 4, stateMissed: 5, "hangup": 6,
	"voicemail_uploaded": 7, stateTranscription: 8, "recording": 9,
}

// supersedes reports whether to is the later state.
func supersedes(from, to StateChange) bool {
	if !from.At.IsZero() && !to.At.IsZero() && !from.At.Equal(to.At) {
		return to.At.After(from.At)
	}
	if a, b := stateOrder[from.State], stateOrder[to.State]; a != b {
		return b > a
	}
	return to.State > from.State || stateOrder[to.State] == stateOrder["connected"]
}

// maxSteps bounds the stored states; a call that is put on hold again and again has
// more.
const maxSteps = 200

// addState adds a state of the call.
func (f *Facts) addState(to StateChange) {
	if f.State == "" || supersedes(StateChange{f.State, f.StateAt}, to) {
		f.State, f.StateAt = to.State, to.At
	}
	same := func(s StateChange) bool { return s.State == to.State && s.At.Equal(to.At) }
	if len(f.Steps) >= maxSteps || slices.ContainsFunc(f.Steps, same) {
		return
	}
	f.Steps = append(f.Steps, to)
	slices.SortStableFunc(f.Steps, func(a, b StateChange) int {
		if a.At.IsZero() || b.At.IsZero() || a.At.Equal(b.At) {
			return cmp.Compare(stateOrder[a.State], stateOrder[b.State])
		}
		return a.At.Compare(b.At)
	})
}

// applyReport adds the facts of an event.
func (c *Call) applyReport(news *channel.PhoneCall, now time.Time) {
	f := Facts{
		Inbound:   news.Inbound,
		Contact:   Party{news.Contact.Name, news.Contact.Phone, news.Contact.ID},
		Target:    Party{news.Target.Name, news.Target.Phone, news.Target.ID},
		StartedAt: micro(news.StartedAt), AnsweredAt: micro(news.AnsweredAt), EndedAt: micro(news.EndedAt),
		Duration:      news.Duration,
		Transcription: news.Transcription,
		Transcribed:   news.State == stateTranscription || news.Transcription != "",
		Missed:        news.State == stateMissed && news.Inbound,
	}
	if news.Voicemail || f.Transcribed {
		f.LeftAt = now.UTC()
	}
	// A file announced early may be available only with a later event.
	if len(news.Audio) > 0 {
		f.Audio = new(fileOf(news.Audio[0]))
	}
	for _, a := range news.Recordings {
		f.Recordings = append(f.Recordings, fileOf(a))
	}
	f.addState(StateChange{news.State, micro(news.At)})
	c.merge(&f)
}

func micro(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Microsecond)
}

func fileOf(a channel.Attachment) File {
	return File{Name: a.Name, ContentType: a.ContentType, URL: a.URL}
}

// maxRecordings bounds the recordings of one call.
const maxRecordings = 50

// merge adds the facts of an event, or of another call that is the same. The result
// does not depend on the order, except that names and numbers are kept from the
// first. DueAt stays: another call's jobs do not run for this one.
func (f *Facts) merge(o *Facts) {
	for _, s := range o.Steps {
		f.addState(s)
	}
	f.Inbound = f.Inbound || o.Inbound
	f.Contact.merge(o.Contact)
	f.Target.merge(o.Target)
	f.StartedAt = earlier(f.StartedAt, o.StartedAt)
	f.AnsweredAt = earlier(f.AnsweredAt, o.AnsweredAt)
	if o.EndedAt.After(f.EndedAt) {
		f.EndedAt = o.EndedAt
	}
	f.Duration = max(f.Duration, o.Duration)
	f.LeftAt = earlier(f.LeftAt, o.LeftAt)
	f.Transcribed = f.Transcribed || o.Transcribed
	if f.Transcription == "" {
		f.Transcription = o.Transcription
	}
	if o.Audio != nil && (f.Audio == nil || !f.Placed.Audio) {
		f.Audio = o.Audio // a later URL is valid for longer
	}
	f.Missed = f.Missed || o.Missed
	for _, r := range o.Recordings {
		i := slices.IndexFunc(f.Recordings, func(have File) bool { return sameFile(have.URL, r.URL) })
		switch {
		case i >= 0:
			f.Recordings[i].Placed = f.Recordings[i].Placed || r.Placed
		case len(f.Recordings) < maxRecordings:
			f.Recordings = append(f.Recordings, r)
		}
	}
	f.Placed.Voicemail = f.Placed.Voicemail || o.Placed.Voicemail
	f.Placed.Text = f.Placed.Text || o.Placed.Text
	f.Placed.Audio = f.Placed.Audio || o.Placed.Audio
	f.Placed.Missed = f.Placed.Missed || o.Placed.Missed
	if f.Redacted || o.Redacted {
		f.redact()
	}
}

// merge fills empty fields from another report of the same party.
func (p *Party) merge(o Party) {
	if p.Phone != "" && o.Phone != "" && p.Phone != o.Phone {
		return // of another leg
	}
	p.Name, p.Phone, p.ID = cmp.Or(p.Name, o.Name), cmp.Or(p.Phone, o.Phone), cmp.Or(p.ID, o.ID)
}

// earlier returns the earlier of two times, ignoring zero times.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// sameFile reports whether two URLs address one file: their signatures differ each
// time.
func sameFile(a, b string) bool {
	x, errX := url.Parse(a)
	y, errY := url.Parse(b)
	return a == b || errX == nil && errY == nil && x.Host == y.Host && x.Path == y.Path && x.Path != "" && x.Path != "/"
}

// schedule enqueues the job for the call's next message, if it has one.
func (s *Service) schedule(ctx context.Context, tx *db.Tx, c *Call) error {
	at := c.dueAt(tx.Now)
	if at.IsZero() || at.Equal(c.DueAt) && at.After(tx.Now) {
		return nil
	}
	c.DueAt = at
	return s.queue.EnqueueTx(ctx, tx, queue.New{Kind: jobKind, Lane: c.ID, Tenant: c.OrganizationID, RunAt: at})
}
