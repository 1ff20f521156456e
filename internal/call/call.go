// Package call keeps telephone calls: what providers tell of them, step by step and
// leg by leg, and what comes of them.
//
// A call is known by the ids of all its legs. Two that turn out to be one become
// one, with whatever had come of them. News may come twice, late or never: a call
// holds what any of its news has said, and its state is that of the newest by the
// provider's clock, so that the order in which news came makes no difference.
//
// What comes of a call is a pure function of what is known of it and of the time
// (see owed): a message that a caller left makes a ticket as soon as it is
// transcribed, or when that has taken too long; what becomes known later goes to the
// same ticket. Each piece is marked in the transaction that places it, so it is
// placed once. The work that does so is a job of the queue, and so is the waiting.
package call

import (
	"context"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// Call is a telephone call.
type Call struct {
	ID             string
	OrganizationID string
	ConnectionID   string // empty: the organization has none for the address
	Legs           []string
	Facts
	TicketID  string // the ticket that came of it; empty: none did
	CreatedAt time.Time
	UpdatedAt time.Time

	channel, medium string
	version         int64 // counts the changes
}

// Facts are what is known of a call. Its JSON is the stored form: members are only
// ever added.
type Facts struct {
	State      string        `json:"state"` // the newest, in the provider's word
	StateAt    time.Time     `json:"state_at,omitzero"`
	Steps      []Step        `json:"steps"` // every state that it was in, in order
	Inbound    bool          `json:"inbound"`
	Contact    Party         `json:"contact,omitzero"` // who is not us
	Target     Party         `json:"target,omitzero"`  // who or what of ours it was for
	StartedAt  time.Time     `json:"started_at,omitzero"`
	AnsweredAt time.Time     `json:"answered_at,omitzero"`
	EndedAt    time.Time     `json:"ended_at,omitzero"`
	Duration   time.Duration `json:"duration,omitzero"`

	// What the caller left.
	LeftAt        time.Time `json:"left_at,omitzero"` // when we first heard that something was
	Transcribed   bool      `json:"transcribed,omitzero"`
	Transcription string    `json:"transcription,omitempty"` // may be empty although Transcribed
	Audio         *File     `json:"audio,omitempty"`

	Missed     bool   `json:"missed,omitzero"`
	Recordings []File `json:"recordings,omitempty"` // of the conversation

	// What was placed in the ticket.
	Placed Pieces `json:"placed,omitzero"`

	// Redacted says that nothing is kept any more of who it was with and what was said.
	Redacted bool `json:"redacted,omitzero"`

	// DueAt is when a job looks at the call again; zero: none does.
	DueAt time.Time `json:"due_at,omitzero"`
}

// Step is a state that a call was in.
type Step struct {
	State string    `json:"state"`
	At    time.Time `json:"at,omitzero"` // by the provider's clock; zero when not known
}

// Party is one end of a call.
type Party struct {
	Name  string `json:"name,omitempty"`
	Phone string `json:"phone,omitempty"` // E.164
	ID    string `json:"id,omitempty"`    // where it is no number
}

// File is a recording at the provider's.
type File struct {
	Name        string `json:"name"`
	ContentType string `json:"content_type"`
	URL         string `json:"url"`
	Placed      bool   `json:"placed,omitzero"` // of [Facts.Recordings]
}

// Pieces are the parts of what a caller left.
type Pieces struct {
	Voicemail bool `json:"voicemail,omitzero"` // the message that tells of it
	Text      bool `json:"text,omitzero"`
	Audio     bool `json:"audio,omitzero"`
	Missed    bool `json:"missed,omitzero"` // the message that nobody answered
}

// Placer takes the messages that come of calls; package inbound.
type Placer interface {
	// Place writes m, in tx, and returns the ticket where it is. The files that m
	// promises follow.
	Place(ctx context.Context, tx *db.Tx, o channel.Source, m *channel.Message) (ticketID string, err error)
}

// Config is what a [Service] needs. All is required.
type Config struct {
	DB    *db.DB
	Queue *queue.Queue
	// Settings returns a connection's, nil if it is gone.
	Settings func(ctx context.Context, connectionID string) (map[string]string, error)
	// Merge merges a ticket into another, in tx.
	Merge func(ctx context.Context, tx *db.Tx, organizationID, ticketID, into string) error
}

// Service keeps calls. It is safe for concurrent use.
type Service struct {
	db       *db.DB
	queue    *queue.Queue
	settings func(ctx context.Context, connectionID string) (map[string]string, error)
	merge    func(ctx context.Context, tx *db.Tx, organizationID, ticketID, into string) error
	placer   Placer
}

// Open returns the service. Nothing comes of calls before [Service.Work].
func Open(c Config) *Service {
	return &Service{db: c.DB, queue: c.Queue, settings: c.Settings, merge: c.Merge}
}

// jobKind is what the queue calls looking at a call; the lane is the call's id.
const jobKind = "call"

// Work registers, before the queue is started, the work that places what comes of
// calls.
func (s *Service) Work(p Placer) {
	s.placer = p
	s.queue.Handle(queue.Worker{
		Kind: jobKind, Run: s.placeNext,
		Retry: retry,
	})
}

// retry never gives up what a customer said.
func retry(attempt int, _ error) (time.Duration, bool) {
	return min(time.Second<<min(attempt-1, 10), 10*time.Minute), true
}

const columns = `id, organization_id, connection_id, channel, medium, ticket_id, facts, version, created_at, updated_at`

func scan(row db.Row) (*Call, error) {
	var c Call
	err := row.Scan(&c.ID, &c.OrganizationID, &c.ConnectionID, &c.channel, &c.medium, db.IntoText(&c.TicketID),
		db.IntoJSON(&c.Facts), &c.version, db.IntoTime(&c.CreatedAt), db.IntoTime(&c.UpdatedAt))
	return &c, err
}

// fillLegs loads the ids that calls are known by.
func fillLegs(ctx context.Context, q db.Querier, calls ...*Call) error {
	at := make(map[string]*Call)
	var ids []string
	for _, c := range calls {
		at[c.ID] = c
		ids = append(ids, c.ID)
	}
	if len(ids) == 0 {
		return nil
	}
	type leg struct{ id, call string }
	legs, err := db.All(ctx, q, func(row db.Row) (l leg, err error) {
		err = row.Scan(&l.id, &l.call)
		return l, err
	}, "SELECT leg, call_id FROM call_legs WHERE call_id = ANY($1) ORDER BY leg", ids)
	if err != nil {
		return fmt.Errorf("load legs: %w", err)
	}
	for _, l := range legs {
		at[l.call].Legs = append(at[l.call].Legs, l.id)
	}
	return nil
}

// Find returns a call. Another organization's is a NotFound problem.
func (s *Service) Find(ctx context.Context, q db.Querier, organizationID, id string) (*Call, error) {
	list, err := db.All(ctx, q, scan, "SELECT "+columns+" FROM calls WHERE organization_id = $1 AND id = $2", organizationID, id)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, problem.New(problem.NotFound, "there is no such call")
	}
	return list[0], fillLegs(ctx, q, list...)
}

// Filter chooses calls. Empty members do not restrict.
type Filter struct {
	TicketID string
	Phone    string // E.164
}

// maxList bounds what [Service.List] returns.
const maxList = 1000

// List returns an organization's calls, the newest first.
func (s *Service) List(ctx context.Context, q db.Querier, organizationID string, f Filter) ([]*Call, error) {
	list, err := db.All(ctx, q, scan, "SELECT "+columns+` FROM calls WHERE organization_id = $1
		AND ($2 = '' OR ticket_id = $2) AND ($3 = '' OR phone = $3) ORDER BY id DESC LIMIT $4`, organizationID, f.TicketID, f.Phone, maxList)
	if err != nil {
		return nil, err
	}
	return list, fillLegs(ctx, q, list...)
}

// Redact forgets, in the caller's transaction, who the calls of some tickets and
// numbers were with and what was said: the calls stay, as having been, and what is
// told of them later changes nothing of that.
func (s *Service) Redact(ctx context.Context, tx *db.Tx, organizationID string, ticketIDs, phones []string) error {
	list, err := db.All(ctx, tx, scan, "SELECT "+columns+` FROM calls WHERE organization_id = $1
		AND (ticket_id = ANY($2) OR phone = ANY($3)) ORDER BY id FOR UPDATE`, organizationID, ticketIDs, phones)
	if err != nil {
		return fmt.Errorf("load calls: %w", err)
	}
	for _, c := range list {
		c.redact()
		if err := c.save(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

func (f *Facts) redact() {
	f.Redacted = true
	f.Contact, f.Transcription, f.Audio, f.Recordings = Party{}, "", nil, nil
	// Nothing comes of it any more.
	f.Placed, f.DueAt = Pieces{Voicemail: true, Text: true, Audio: true, Missed: true}, time.Time{}
}
