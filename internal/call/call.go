// Package call stores telephone calls as reported by providers, state by state and
// leg by leg, and places their messages in tickets.
//
// A call is identified by the ids of all its legs. Two calls that turn out to be
// the same are merged, with their tickets. Events may repeat, come late or not at
// all: a call has the facts of all its events, and its state is the newest by the
// provider's clock, so the order of arrival makes no difference.
//
// The messages of a call are a pure function of its facts and the time (see
// nextMessage): a voicemail makes a ticket as soon as it is transcribed, or after
// TranscriptionWait; later parts join the same ticket. Each part is marked in the
// transaction that places it, so it is placed once. Placing and waiting are jobs of
// the queue.
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
	TicketID  string // the ticket of the call; empty: none
	CreatedAt time.Time
	UpdatedAt time.Time

	channel, ticketChannel string
	version                int64 // number of changes
}

// Facts are the known properties of a call. Their JSON is the stored form: fields
// are only ever added.
type Facts struct {
	State      string        `json:"state"` // the newest, in the provider's terms
	StateAt    time.Time     `json:"state_at,omitzero"`
	Steps      []StateChange `json:"steps"` // all states, in order
	Inbound    bool          `json:"inbound"`
	Contact    Party         `json:"contact,omitzero"` // the external party
	Target     Party         `json:"target,omitzero"`  // the organization's party
	StartedAt  time.Time     `json:"started_at,omitzero"`
	AnsweredAt time.Time     `json:"answered_at,omitzero"`
	EndedAt    time.Time     `json:"ended_at,omitzero"`
	Duration   time.Duration `json:"duration,omitzero"`

	// The caller's voicemail.
	LeftAt        time.Time `json:"left_at,omitzero"` // when it was first reported
	Transcribed   bool      `json:"transcribed,omitzero"`
	Transcription string    `json:"transcription,omitempty"` // may be empty although Transcribed
	Audio         *File     `json:"audio,omitempty"`

	Missed     bool   `json:"missed,omitzero"`
	Recordings []File `json:"recordings,omitempty"` // of the conversation

	// The parts that are in the ticket.
	Placed MessageParts `json:"placed,omitzero"`

	// Redacted reports that the parties and contents were removed for good.
	Redacted bool `json:"redacted,omitzero"`

	// DueAt is the time of the call's next job; zero: none.
	DueAt time.Time `json:"due_at,omitzero"`
}

// StateChange is a state of a call with its time.
type StateChange struct {
	State string    `json:"state"`
	At    time.Time `json:"at,omitzero"` // by the provider's clock; zero if unknown
}

// Party is one end of a call.
type Party struct {
	Name  string `json:"name,omitempty"`
	Phone string `json:"phone,omitempty"` // E.164
	ID    string `json:"id,omitempty"`    // if there is no number
}

// File is a recording at the provider.
type File struct {
	Name        string `json:"name"`
	ContentType string `json:"content_type"`
	URL         string `json:"url"`
	Placed      bool   `json:"placed,omitzero"` // of [Facts.Recordings]
}

// MessageParts are the parts of a call that become messages.
type MessageParts struct {
	Voicemail bool `json:"voicemail,omitzero"` // the message about the voicemail
	Text      bool `json:"text,omitzero"`
	Audio     bool `json:"audio,omitzero"`
	Missed    bool `json:"missed,omitzero"` // the message about the missed call
}

// Placer places the messages of calls in tickets; implemented by package inbound.
type Placer interface {
	// IngestMessageTx writes m in tx and returns its ticket. Files that m refers to are fetched
	// later.
	IngestMessageTx(ctx context.Context, tx *db.Tx, o channel.Source, m *channel.Message) (ticketID string, err error)
}

// Config has the parts of a [Service]. All are required.
type Config struct {
	DB    *db.DB
	Queue *queue.Queue
	// Settings returns the settings of a connection, nil if it is deleted.
	Settings func(ctx context.Context, connectionID string) (map[string]string, error)
	// Merge merges a ticket into another, in tx.
	Merge func(ctx context.Context, tx *db.Tx, organizationID, ticketID, into string) error
}

// Service stores calls and places their messages. It is safe for concurrent use.
type Service struct {
	db       *db.DB
	queue    *queue.Queue
	settings func(ctx context.Context, connectionID string) (map[string]string, error)
	merge    func(ctx context.Context, tx *db.Tx, organizationID, ticketID, into string) error
	placer   Placer
}

// Open returns the service. It places no messages before [Service.RegisterWorkers].
func Open(c Config) *Service {
	return &Service{db: c.DB, queue: c.Queue, settings: c.Settings, merge: c.Merge}
}

// jobKind is the queue's kind of jobs that place a call's messages; the lane is the
// call's id.
const jobKind = "call"

// RegisterWorkers registers the worker that places messages. Call it before the queue starts.
func (s *Service) RegisterWorkers(p Placer) {
	s.placer = p
	s.queue.Handle(queue.Worker{
		Kind: jobKind, Run: s.placeNext,
		Retry: retry,
	})
}

// retry never gives up, since a customer's message is at stake.
func retry(attempt int, _ error) (time.Duration, bool) {
	return min(time.Second<<min(attempt-1, 10), 10*time.Minute), true
}

const columns = `id, organization_id, connection_id, channel, medium, ticket_id, facts, version, created_at, updated_at`

func scan(row db.Row) (*Call, error) {
	var c Call
	err := row.Scan(&c.ID, &c.OrganizationID, &c.ConnectionID, &c.channel, &c.ticketChannel, db.IntoText(&c.TicketID),
		db.IntoJSON(&c.Facts), &c.version, db.IntoTime(&c.CreatedAt), db.IntoTime(&c.UpdatedAt))
	return &c, err
}

// fillLegs loads the legs of calls.
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

// Find returns a call. Error: NotFound, also for another organization's.
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

// Filter selects calls. Empty fields do not restrict.
type Filter struct {
	TicketID string
	Phone    string // E.164
}

// maxList bounds [Service.List].
const maxList = 1000

// List returns an organization's calls, newest first.
func (s *Service) List(ctx context.Context, q db.Querier, organizationID string, f Filter) ([]*Call, error) {
	list, err := db.All(ctx, q, scan, "SELECT "+columns+` FROM calls WHERE organization_id = $1
		AND ($2 = '' OR ticket_id = $2) AND ($3 = '' OR phone = $3) ORDER BY id DESC LIMIT $4`, organizationID, f.TicketID, f.Phone, maxList)
	if err != nil {
		return nil, err
	}
	return list, fillLegs(ctx, q, list...)
}

// RedactTx removes, in the caller's transaction, the parties and contents of the
// calls of tickets and numbers. The calls stay, and later events add nothing.
func (s *Service) RedactTx(ctx context.Context, tx *db.Tx, organizationID string, ticketIDs, phones []string) error {
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
	// No further messages.
	f.Placed, f.DueAt = MessageParts{Voicemail: true, Text: true, Audio: true, Missed: true}, time.Time{}
}
