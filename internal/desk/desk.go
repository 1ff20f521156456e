// Package desk is the helpdesk: customers, tickets, their conversations and
// messages, and the rules that find a message's ticket.
//
// # Records
//
// A ticket belongs to an organization and a customer. It holds conversations, each
// one thread with one customer on one channel, and those hold messages. A customer
// is identified by contact points: e-mail addresses and phone numbers, unique in
// the organization, and ids that are unique on one connection only. Each change is
// one transaction, together with its events.
//
// # Placing a message
//
// On a channel with thread keys (such as phone numbers) the key is the thread: its
// messages join one ticket for ever, or until that has been closed for as long as
// the channel says. A thread may have several keys, of which the first known one
// decides. If a key identifies a person, the person's other contact points become
// keys too, unless they have another owner. Mail follows the contract's four
// rules, see [ThreadingRule]. Two of them guard against strangers: a ticket's number can be
// guessed, so it is accepted from participants only; and a closed ticket is not
// reopened by mail but continued in a new one that links to it, which later mails
// to the closed one join. Each message stores the rule that placed it.
//
// Processing is idempotent: a repeated message changes nothing, from whichever
// source. Reactions, edits and deletions at the provider are stored with their
// message, and are no messages.
//
// # Merging and splitting
//
// A merge moves a ticket's rows to the survivor, so that every lookup of a message
// or a thread ends there. Each conversation, and each note outside one, stores its
// original ticket, its home, to which an unmerge moves it back. A message is
// always in the ticket of its conversation. A split moves messages for good, into
// conversations of the new ticket. Moves happen under the ticket's lock and set
// moved_at: code that found a destination before it locked the ticket looks it up
// again.
//
// # Customers
//
// An address belongs to one customer of the organization, whether received or
// entered: see [Service.CreateCustomerTx]. Deleting a customer removes the personal
// data of the record and frees the addresses; tickets and messages stay until they
// are deleted themselves.
//
// # Events
//
// All events of a change are emitted in one call, with one snapshot of each ticket
// after the change:
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
//	a ticket created here           [customer.created | customer.updated]
//	                                ticket.created [ticket.assigned]
//	                                [conversation.created message.created]
//	a merge or an unmerge           ticket.updated [ticket.status_changed] of it
//	                                ticket.updated of the survivor
//	a split                         ticket.created [ticket.assigned] of the new one
//	                                ticket.updated of the old one
//	a deleted ticket                ticket.deleted
//	a customer created here         customer.created
//	one changed or deleted          customer.updated
//	a merge or an unmerge of one    customer.updated of both
//	                                ticket.updated of each ticket that moves
//	80 % of an SLA target           sla.warning
//	all of it                       sla.breached
//
// An agent's message that starts a ticket (sent with another program) has both
// ticket.created and message.agent_reply. ticket.updated comes once with every
// change of the ticket's own fields and names all of them; each specific event
// follows and names its own field only. Notes, automatic replies within a ticket,
// annotations, delivery receipts and files that follow their message emit nothing.
// A late warning or breach is emitted before the next change of the ticket, with
// the ticket as it was.
//
// # The timeline
//
// Each change with an event of the ticket (ticket.updated, sla.breached) is a row of the
// ticket's timeline, in the same transaction and with the same values: see
// [TicketChange]. Its actor and surface are those of the context; see package audit. Rows
// hold no names of people.
//
// # Lists and searches
//
// Lists go by indexes in the order of ticket numbers, which is that of creation, unless an import
// has brought older tickets: then lists by time go by the times. A
// search matches tickets that have all its words in one message, or in the subject and the
// facts together: tags, the external id, names of files, and the customer's name, addresses and
// phone numbers. Case and accents do not matter; quoted words match in that order; the last word
// may be a prefix; a phone number matches in any form and by its last digits; "#6" is the
// ticket with that number. Words such as status:open or -tag:lock are filters, see package query.
// Indexing is asynchronous and takes less than a second: [Service.Run]
// indexes committed messages in batches, which costs a fraction of indexing each
// in its own transaction. Each transaction records the messages to index, so none
// is missed.
//
// # The inbox
//
// A ticket is unread for a member until they open it, and again after a message of
// its customer or a failed delivery: the ticket stores the time of its last such
// event, which only grows, and each reader's mark is compared with it. A draft is
// stored for its author until it is sent. The next due time of a ticket's SLA
// targets is stored with it, for lists.
//
// # Reports
//
// [Service.Report] counts tickets over time from facts that are packed per 2,048 tickets in the
// background, and from the rows of the tickets that triggers of the database have noted as changed
// since. It is complete up to the snapshot that it reads.
//
// # Imports
//
// [Service.ImportTicketTx] writes a ticket of another helpdesk with its history and its times. It is
// silent: no events, notices, clocks or unread marks. The ids of the source are stored with the
// records, so that nothing is written twice, and [Service.UndoImportTx] knows what to delete.
//
// # Service levels
//
// Each target of an [SLAPolicy] becomes a clock of the ticket: it is stored in the
// ticket's row and changes under the ticket's lock, in the transaction of the
// change that starts, stops or ends it. A running clock has one job in the queue,
// due at its next moment and deleted when it stops. So each warning and breach is
// emitted once, and never after the target was met.
package desk

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/cache"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
	"github.com/kickstand-dev/kickstand/internal/seal"

	"github.com/google/uuid"
)

// Directory finds the members of organizations.
type Directory interface {
	// Agent returns a member by id; false if the organization has none.
	Agent(ctx context.Context, q db.Querier, organizationID, userID string) (event.Person, bool, error)
	// AgentByEmail returns a member by e-mail address, compared without case.
	AgentByEmail(ctx context.Context, q db.Querier, organizationID, email string) (event.Person, bool, error)
	// Agents returns all members.
	Agents(ctx context.Context, q db.Querier, organizationID string) ([]event.Person, error)
	// Preferences returns the preferences of members, JSON objects, by id. Users who are no
	// members are left out.
	Preferences(ctx context.Context, q db.Querier, organizationID string, userIDs []string) (map[string]json.RawMessage, error)
}

// Addresses has the channel addresses of organizations.
type Addresses interface {
	// Owns reports whether address, in lower case, is one of the organization's on
	// connections of that ticket channel.
	Owns(ctx context.Context, q db.Querier, organizationID, ticketChannel, address string) (bool, error)
}

// Pusher sends notices to members' browsers.
type Pusher interface {
	// NotifyTx sends a notice after the commit of tx, if it is then unread: see [Service.UnreadNotice].
	NotifyTx(ctx context.Context, tx *db.Tx, organizationID, userID, noticeID string) error
}

// Dispatcher admits outbound messages.
type Dispatcher interface {
	// PrepareSend completes m, which is about to be queued for a connection of the
	// organization: From, for mail MessageID, and the end of the reply window.
	// Otherwise it returns a problem: there is no such connection, it is disabled, or
	// the channel cannot send this message. An empty connectionID selects the
	// organization's only connection of the channel. Admit returns the connection's
	// id.
	PrepareSend(ctx context.Context, q db.Querier, organizationID, connectionID, channel string, m *channel.Outgoing) (string, error)
}

// ConnectionNeeded is the code of a [Dispatcher]'s refusal if several connections
// could send a message.
const ConnectionNeeded = "connection_needed"

// ConnectionUnfit is the code of a [Dispatcher]'s refusal of a connection that the
// organization does not have, or that is of another channel.
const ConnectionUnfit = "connection_unfit"

// Config has the parts of a [Service]. The last ten are optional.
type Config struct {
	DB        *db.DB
	Queue     *queue.Queue
	Events    *event.Log
	Blob      blob.Store
	Directory Directory
	Addresses Addresses
	BaseURL   string // public address, without a trailing slash
	// Dispatcher admits outbound messages; nil refuses them.
	Dispatcher Dispatcher
	// Mailer notifies assignees; nil sends nothing.
	Mailer mail.Enqueuer
	// Pusher pushes notices; nil pushes none.
	Pusher Pusher
	// CopyMAC verifies the value of X-Helpdesk-Message and returns the id of the
	// organization's message that it names; nil verifies none.
	CopyMAC func(organizationID, header string) (messageID string, ok bool)
	// Box signs links to files; nil makes none.
	Box *seal.Box
	// CloseAfter is the time from resolution to closing. 0 means 7 days.
	CloseAfter time.Duration
	// Changed is called after the commit of a change without an event: a note, an
	// annotation, a delivery state. It must not block. May be nil.
	Changed func(organizationID, ticketID string)
	// Noticed is called after the commit of a change of a member's notices. It must not
	// block. May be nil.
	Noticed func(organizationID, userID string)
	Quotas  *quota.Service // nil: no limits
	Audit   *audit.Log     // nil records nothing
	Logger  *slog.Logger   // nil discards
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
	mailer      mail.Enqueuer
	pusher      Pusher
	copyMAC     func(organizationID, header string) (string, bool)
	closeAfter  time.Duration
	onChanged   func(organizationID, ticketID string) // may be nil
	onNoticed   func(organizationID, userID string)   // may be nil
	onMove      []func(ctx context.Context, tx *db.Tx, organizationID, from, to string, homes []string) error
	box         *seal.Box
	quotas      *quota.Service
	audit       *audit.Log
	policies    *cache.Cache[string, *SLAPolicy] // by version
	limits      limits
	log         *slog.Logger
	sanitizer   *safehtml.Sanitizer
	indexNeeded chan struct{} // capacity 1: wakes the indexer
	upgraded    atomic.Bool   // whether programs before upgradedSince are known to be excluded
}

// upgradedSince is the migration that programs must know beside merged customers, files of macros and
// uploaded imports: older ones would erase a survivor without those merged into it, and delete content
// that only such a file or upload uses.
const upgradedSince = 74

// CheckUpgraded returns a Conflict while a program that does not know merges of customers, files of
// macros and uploads of imports may be running on the database. SQLite has one server.
func (s *Service) CheckUpgraded(ctx context.Context, q db.Querier) error {
	if s.upgraded.Load() || !s.db.Postgres() {
		return nil
	}
	yes, err := s.db.Excludes(ctx, q, upgradedSince)
	if err != nil {
		return err
	}
	if !yes {
		return problem.New(problem.Conflict, "available when all servers run the new version and the operator has run `kickstand migrate --finish`")
	}
	s.upgraded.Store(true)
	return nil
}

// Open returns the service and registers its workers with the queue.
func Open(c Config) *Service {
	s := &Service{
		db: c.DB, queue: c.Queue, events: c.Events, blob: c.Blob,
		directory: c.Directory, addresses: c.Addresses,
		baseURL: strings.TrimRight(c.BaseURL, "/"), copyMAC: c.CopyMAC, closeAfter: c.CloseAfter,
		indexNeeded: make(chan struct{}, 1), policies: cache.New[string, *SLAPolicy](maxPolicies, 0),
		sanitizer: safehtml.NewSanitizer(), dispatcher: c.Dispatcher, mailer: c.Mailer, pusher: c.Pusher, box: c.Box, onChanged: c.Changed, onNoticed: c.Noticed, quotas: c.Quotas, audit: c.Audit,
	}
	s.limits = defaultLimits
	if s.log = c.Logger; s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.closeAfter == 0 {
		s.closeAfter = 7 * 24 * time.Hour
	}
	c.Events.BeforeCommit(s.enqueueChangedFacts)
	c.Queue.Handle(queue.Worker{Kind: blobDeletionKind, Concurrency: 1, Run: s.runBlobDeletion})
	c.Queue.Handle(queue.Worker{Kind: closeKind, Concurrency: 4, Run: s.runCloseJob})
	c.Queue.Handle(queue.Worker{Kind: noticeKind, Outgoing: true, Concurrency: 4, Run: s.runNoticeMail})
	c.Queue.Handle(queue.Worker{Kind: snoozeKind, Concurrency: 4, Run: s.runSnoozeJob})
	c.Queue.Handle(queue.Worker{
		Kind: sendKind, Outgoing: true, Concurrency: 16, Run: s.runSend,
		// Without its job the reply would wait for ever.
		Retry: func(attempt int, _ error) (time.Duration, bool) { return queue.Backoff(attempt), true },
	})
	c.Queue.Handle(queue.Worker{
		Kind: slaKind, Run: s.runSLAJob,
		// No other job restarts the clock.
		Retry: func(attempt int, _ error) (time.Duration, bool) { return queue.Backoff(attempt), true },
	})
	return s
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// clean removes bytes that an engine cannot store: NUL and invalid UTF-8.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}

// line returns text as one line of at most max characters.
func line(text string, max int) string {
	text = strings.Join(strings.Fields(clean(text[:min(len(text), 16*max)])), " ")
	if r := []rune(text); len(r) > max {
		return strings.TrimRight(string(r[:max-1]), " ") + "…"
	}
	return text
}
