// Package desk is the helpdesk itself: customers, tickets, the conversations
// inside them, and the way a message finds its place.
//
// # Records
//
// A ticket belongs to an organization and a customer. It holds conversations,
// each one thread with one customer on one channel, and those hold messages. A
// customer is known by contact points: mail addresses and telephone numbers,
// which are theirs in the whole organization, and ids that mean something on one
// connection only. Everything is written in one transaction per change, together
// with its events.
//
// # Placing a message
//
// Where a channel has a thread key (a telephone number), the key is the thread:
// its messages are in one ticket for ever, whatever became of that ticket, or until
// it was closed for as long as the channel says. A thread may have several keys,
// and the first that is known decides. Where a key is a person, what else they are
// known by becomes a key too; what is somebody else's already stays theirs. Mail
// follows the contract's four rules, see [Rule]. Two of them guard against
// strangers: a ticket's number can be guessed, so it counts only from somebody
// who takes part in the ticket; and a closed ticket is not reopened by mail, but
// continued in a new one that points at it, which later mails to the closed one
// join. Each message keeps the rule that placed it.
//
// The same message a second time changes nothing, whichever way it came. What
// happens to a message afterwards where it was written (a reaction, an edit) is
// noted with it, and is no message.
//
// # Merging and splitting
//
// A merged ticket's rows are moved to the survivor, so whatever finds a message or
// a thread finds it there. Each conversation, and each note beside them, remembers
// the ticket that it came from: its home, which is what undoing the merge moves
// back. A message is always where its conversation is. Splitting moves messages
// for good, into conversations of the new ticket. What is moved out of, or into, a
// ticket is moved under its lock, and noted in it (moved_at): whoever found a
// place before locking its ticket looks again.
//
// # Customers
//
// An address belongs to one customer of the organization, whether it was written
// from or entered: see [Service.CreateCustomer]. Deleting a customer takes what is
// personal from the record and the addresses from the organization; tickets and
// what was said in them stay until they are deleted themselves.
//
// # Events
//
// All events of a change are emitted in one call, with one snapshot of each ticket
// as it is after the change:
//
//	a message that starts a ticket  [customer.created] ticket.created
//	                                conversation.created message.created
//	a customer's further message    [customer.created | customer.updated]
//	                                conversation.created message.created
//	                                message.customer_reply
//	  that reopens the ticket       … ticket.updated ticket.status_changed
//	an agent's public message       conversation.created message.created
//	                                message.agent_reply
//	a change of a ticket's fields   ticket.updated [ticket.status_changed]
//	                                [ticket.assigned] [ticket.priority_changed]
//	a ticket made here              [customer.created | customer.updated]
//	                                ticket.created [ticket.assigned]
//	                                [conversation.created message.created]
//	one merged, or taken out again  ticket.updated [ticket.status_changed] of it
//	                                ticket.updated of the survivor
//	messages split off              ticket.created [ticket.assigned] of the new one
//	                                ticket.updated of the old one
//	a deleted ticket                ticket.deleted
//	a customer made here            customer.created
//	one changed, or deleted         customer.updated
//	80 % of a promised time         sla.warning
//	all of it                       sla.breached
//
// An agent's message that starts a ticket (sent elsewhere, seen by us) has both
// ticket.created and message.agent_reply. ticket.updated comes once with every
// change of the ticket's own fields and names all of them; each specific event
// follows and names its own field only. Notes, automatic replies within a ticket,
// annotations, delivery receipts and files that follow their message emit nothing. A warning or breach whose timer is late is
// told of before what changes the ticket next, with the ticket as it was.
//
// # Lists and searches
//
// Lists are found by indexes in the order of numbers, which is that of creation.
// Searches look for all of some words in the subject, or in one message, of a
// ticket: in any case, with or without accents, between quotes in that order; the
// last may be the beginning of a word. What is written is found within a second:
// [Service.Run] indexes it once it is durable, many messages at a time, because
// that costs a fraction of indexing each with what else is written for it. What
// is to be indexed is noted in the transaction that calls for it, so nothing is
// passed over.
//
// # The inbox
//
// A ticket is unread for a member until they read it, and again when its customer
// says more, or something happens to an answer: that is a time in the ticket, which
// only grows, and one for each who has read it. A draft is kept for its writer until
// what it became is sent. When the next promise of a ticket falls due is kept with
// its clocks, for lists to go by.
//
// # Service levels
//
// What an [SLAPolicy] promises becomes a clock of each ticket: it is stored in the
// ticket's row and changes under the ticket's lock, in the transaction of the
// change that starts, stops or ends it. A running clock has one job in the queue,
// due at its next moment and deleted with its reason. So each moment is told of
// once, and never of a promise that was kept.
package desk

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
	"github.com/kickstand-dev/kickstand/internal/seal"

	"github.com/google/uuid"
)

// Directory knows the organization's people.
type Directory interface {
	// Agent finds a member by id; false when the organization has none.
	Agent(ctx context.Context, q db.Querier, organizationID, userID string) (event.Person, bool, error)
	// AgentByEmail finds a member by mail address, compared without case.
	AgentByEmail(ctx context.Context, q db.Querier, organizationID, email string) (event.Person, bool, error)
}

// Addresses knows the organization's own channel addresses.
type Addresses interface {
	// Owns reports whether address, in lower case, is one of them on channels
	// of that medium.
	Owns(ctx context.Context, q db.Querier, organizationID, medium, address string) (bool, error)
}

// Dispatcher knows how messages leave.
type Dispatcher interface {
	// Admit completes m, which is about to wait for its turn to leave by a
	// connection of the organization, with what it is sent with: From, of mail
	// MessageID, and OpenUntil. Or it refuses m with a problem: there is no such
	// connection, it is off, its channel cannot send, or never this. An empty
	// connectionID asks for the organization's only one of that channel; it
	// returns which it is.
	Admit(ctx context.Context, q db.Querier, organizationID, connectionID, channel string, m *channel.Outgoing) (string, error)
}

// ConnectionNeeded is the code of a [Dispatcher]'s refusal of a message that could
// leave by several connections.
const ConnectionNeeded = "connection_needed"

// Config is what a [Service] needs. All is required but the last seven.
type Config struct {
	DB        *db.DB
	Queue     *queue.Queue
	Events    *event.Log
	Blob      blob.Store
	Directory Directory
	Addresses Addresses
	BaseURL   string // public address, without a trailing slash
	// Dispatcher lets messages leave. nil refuses those that would have to.
	Dispatcher Dispatcher
	// Mailer tells assignees what they should know of their tickets. nil tells nobody.
	Mailer Mailer
	// CopyMAC checks the value of X-Helpdesk-Message and returns the id of the
	// organization's message that it names. nil believes none.
	CopyMAC func(organizationID, header string) (messageID string, ok bool)
	// Box signs links to files. nil: there are none.
	Box *seal.Box
	// CloseAfter is how long a ticket stays resolved before it is closed.
	// 0 means 7 days.
	CloseAfter time.Duration
	// Changed is told, after the commit, of tickets in which something changed that
	// no event tells of: a note, an annotation, how far a message got. It must be
	// quick. nil hears nothing.
	Changed func(organizationID, ticketID string)
	Audit   *audit.Log   // nil records nothing
	Logger  *slog.Logger // nil discards
}

// Service is the helpdesk. It is safe for concurrent use.
type Service struct {
	db          *db.DB
	queue       *queue.Queue
	events      *event.Log
	blob        blob.Store
	directory   Directory
	addresses   Addresses
	baseURL     string
	dispatcher  Dispatcher
	mailer      Mailer
	copyMAC     func(organizationID, header string) (string, bool)
	closeAfter  time.Duration
	onChanged   func(organizationID, ticketID string) // nil: nobody listens
	box         *seal.Box
	audit       *audit.Log
	policies    policies
	budget      budget
	log         *slog.Logger
	sanitizer   *safehtml.Sanitizer
	indexNeeded chan struct{} // capacity 1: something was written that is to be indexed
}

// Open returns the service and registers its workers with the queue.
func Open(c Config) *Service {
	s := &Service{
		db: c.DB, queue: c.Queue, events: c.Events, blob: c.Blob,
		directory: c.Directory, addresses: c.Addresses,
		baseURL: strings.TrimRight(c.BaseURL, "/"), copyMAC: c.CopyMAC, closeAfter: c.CloseAfter,
		indexNeeded: make(chan struct{}, 1),
		sanitizer:   safehtml.NewSanitizer(), dispatcher: c.Dispatcher, mailer: c.Mailer, box: c.Box, onChanged: c.Changed, audit: c.Audit,
	}
	s.budget = defaultBudget(s.db.Postgres())
	if s.log = c.Logger; s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.closeAfter == 0 {
		s.closeAfter = 7 * 24 * time.Hour
	}
	c.Queue.Handle(queue.Worker{Kind: blobDeletionKind, Concurrency: 1, Run: s.runBlobDeletion})
	c.Queue.Handle(queue.Worker{Kind: closeKind, Concurrency: 4, Run: s.runCloseJob})
	c.Queue.Handle(queue.Worker{
		Kind: slaKind, Run: s.runSLAJob,
		// Nothing else would ever start the clock again.
		Retry: func(attempt int, _ error) (time.Duration, bool) { return queue.Backoff(attempt), true },
	})
	return s
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// clean removes what neither engine could store: NUL and invalid UTF-8.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}

// line makes text fit one line of at most max characters.
func line(text string, max int) string {
	text = strings.Join(strings.Fields(clean(text[:min(len(text), 16*max)])), " ")
	if r := []rune(text); len(r) > max {
		return strings.TrimRight(string(r[:max-1]), " ") + "…"
	}
	return text
}
