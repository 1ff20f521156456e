// Package outbound is where replies leave: by mail, or by a call of a provider's
// API, whichever their channel knows.
//
// The desk writes a message into its outbox together with a job, in the lane of
// its conversation, so that a conversation's messages leave one at a time and in
// order. The worker here asks the channel's adapter how the message is sent, does
// so with the connection's credentials, and records what became of it, in one
// transaction with the end of the job.
//
// # Never twice
//
// Before a message is handed over, that is recorded durably. A process that dies
// after that, or a connection that breaks, leaves a message that may have been
// taken. What comes next depends on the far side:
//
//   - A provider is asked whether it has the message, and it is sent again only if
//     not. Of one that cannot be asked a receipt may say so; without one for a while,
//     it is as with a mail server.
//   - A provider that recognises a message by its id is simply handed it again, as
//     long as it certainly does.
//   - A mail server cannot be asked. The record is made when it has agreed to
//     everything and asks for the content, so the doubt begins with the first byte
//     of that and ends with the server's last word. What is in doubt is not sent
//     again but marked failed, saying that it may have arrived: a person decides.
//
// So every message ends as sent or visibly failed. A far side that cannot be
// reached delays it, with the reason shown beside it.
//
// # Nobody waits for others
//
// Messages to one far side take up at most perRoute places of the worker, so one
// that hangs holds up its own messages only.
package outbound

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/seal"

	"golang.org/x/net/idna"
)

// Config is what a [Service] needs. All is required but OpenMail and RetryTimeScale.
type Config struct {
	DB          *db.DB
	Blob        blob.Store
	Connections *connection.Service
	Adapters    []channel.Adapter
	Box         *seal.Box // marks our mails
	// Mail takes the mails of connections that have nothing of their own for that.
	Mail mail.TrackedSender
	// OpenMail returns what takes the mails of a connection, by its credentials; nil
	// where they name nothing. Its error says in plain words what is wrong with which
	// of them.
	OpenMail func(credentials channel.Credentials) (mail.TrackedSender, error)
	HTTP     http.RoundTripper // to the providers' APIs
	// PublicHTTP makes the calls to addresses that a tenant chose; it must connect to
	// public addresses only. nil refuses them.
	PublicHTTP http.RoundTripper
	BaseURL    string // public address, without a trailing slash
	// OrganizationName is what the mails of a connection without a name are
	// from.
	OrganizationName func(ctx context.Context, organizationID string) (string, error)
	RetryTimeScale   float64 // multiplies every wait; 0 means 1
	Logger           *slog.Logger
}

// Service sends. It is safe for concurrent use.
type Service struct {
	db               *db.DB
	blob             blob.Store
	connections      *connection.Service
	desk             *desk.Service
	adapters         map[string]channel.Adapter // by name
	box              *seal.Box
	mail             mail.TrackedSender
	openMail         func(credentials channel.Credentials) (mail.TrackedSender, error)
	http             http.RoundTripper
	publicHTTP       http.RoundTripper
	baseURL          string
	organizationName func(ctx context.Context, organizationID string) (string, error)
	scale            float64
	log              *slog.Logger

	routes routes
}

var _ desk.Dispatcher = (*Service)(nil)

// concurrency is how many messages of one channel are under way at once in this
// process.
const concurrency = 128

// Open returns the service. It admits messages, and sends once [Service.Work]
// was called.
func Open(c Config) *Service {
	s := &Service{
		db: c.DB, blob: c.Blob, connections: c.Connections, adapters: make(map[string]channel.Adapter), box: c.Box,
		mail: c.Mail, openMail: c.OpenMail, http: c.HTTP, publicHTTP: c.PublicHTTP, baseURL: strings.TrimRight(c.BaseURL, "/"),
		organizationName: c.OrganizationName, scale: c.RetryTimeScale, log: c.Logger,
	}
	if s.openMail == nil {
		s.openMail = func(channel.Credentials) (mail.TrackedSender, error) { return nil, nil }
	}
	if s.scale == 0 {
		s.scale = 1
	}
	for _, a := range c.Adapters {
		s.adapters[a.Info().Name] = a
	}
	return s
}

// Work registers the workers, one for each kind of channel that can send, so that
// trouble with one holds up no other. It must be called before the queue starts.
func (s *Service) Work(q *queue.Queue, d *desk.Service) {
	s.desk = d
	seen := make(map[string]bool)
	for _, a := range s.adapters {
		medium := a.Info().Medium
		if _, sends := a.(channel.Sender); !sends || seen[medium] {
			continue
		}
		seen[medium] = true
		q.Handle(queue.Worker{
			Kind: desk.SendKind(medium), Ordered: true, Concurrency: concurrency, Run: s.run,
			// What goes wrong at the far side, run deals with. This is ours.
			Retry: func(attempt int, _ error) (time.Duration, bool) {
				return queue.Backoff(attempt), attempt < maxInternalFailures
			},
			Discard: s.discard,
		})
	}
}

// maxInternalFailures is how often something of ours may go wrong before a message fails:
// about two days.
const maxInternalFailures = 300

// Admit implements [desk.Dispatcher].
func (s *Service) Admit(ctx context.Context, q db.Querier, organizationID, connectionID, medium string, m *channel.Outgoing) (string, error) {
	c, err := s.connections.FindForSending(ctx, q, organizationID, connectionID, medium)
	several, ambiguous := errors.AsType[*connection.Ambiguous](err)
	switch {
	case ambiguous:
		return "", &problem.Error{Kind: problem.Precondition, Code: desk.ConnectionNeeded, Message: several.Error(), Cause: err}
	case errors.Is(err, db.ErrNoRows) && connectionID != "":
		return "", problem.New(problem.Precondition, "the connection of this conversation was removed")
	case errors.Is(err, db.ErrNoRows):
		return "", problem.New(problem.Precondition, "there is no connection of the channel %s to send by: connect the address that customers know", medium)
	case err != nil:
		return "", fmt.Errorf("find connection: %w", err)
	case !c.Enabled:
		return "", problem.New(problem.Precondition, "the connection of %s is switched off", c.Address)
	}
	sender := s.sender(&c, medium)
	if sender == nil {
		return "", problem.New(problem.Precondition, "messages cannot be sent on the channel %s", medium)
	}
	m.From = c.Address
	if err := s.connections.SendRefusal(&c); err != nil {
		return c.ID, err
	}
	if _, ok := sender.(channel.MailComposer); ok {
		m.MessageID = s.messageID(m)
	}
	credentials := c.Credentials()
	if w, ok := sender.(channel.WindowedSender); ok && !m.LastInboundAt.IsZero() {
		m.WindowEndsAt = m.LastInboundAt.Add(w.Window(m, credentials))
	}
	return c.ID, sender.Check(m, credentials)
}

// sender is the adapter of a connection, if it can send what a ticket calls medium.
func (s *Service) sender(c *connection.Connection, medium string) channel.Sender {
	a, ok := s.adapters[c.Channel]
	if !ok || a.Info().Medium != medium {
		return nil
	}
	sender, _ := a.(channel.Sender)
	return sender
}

const (
	messageIDPurpose = "message id"
	copyPurpose      = "message copy"
	copySize         = 16 // bytes of the MAC in X-Helpdesk-Message
)

// messageID is the Message-ID of a mail of ours. Nobody can guess it, so that who
// names it has got the mail, or an answer to it.
func (s *Service) messageID(m *channel.Outgoing) string {
	_, domain, _ := strings.Cut(m.From, "@")
	domain, err := idna.Lookup.ToASCII(domain)
	if err != nil || domain == "" {
		domain = "kickstand.invalid"
	}
	return fmt.Sprintf("t.%s.%s.%s@%s", m.TicketID, m.ID, hex.EncodeToString(s.box.MAC(messageIDPurpose, m.TicketID, m.ID)[:5]), domain)
}

// copyHeader is the value of X-Helpdesk-Message.
func (s *Service) copyHeader(organizationID, messageID string) string {
	return messageID + "." + hex.EncodeToString(s.box.MAC(copyPurpose, organizationID, messageID)[:copySize])
}

// VerifyCopyHeader returns which message of the organization's a value of X-Helpdesk-Message
// names; false when we did not write it. It is what [desk.Config.CopyMAC] wants.
func (s *Service) VerifyCopyHeader(organizationID, header string) (messageID string, ok bool) {
	messageID, text, _ := strings.Cut(strings.TrimSpace(header), ".")
	if len(text) != hex.EncodedLen(copySize) {
		return "", false
	}
	mac, err := hex.DecodeString(text)
	if err != nil || !s.box.VerifyMAC(copyPurpose, mac, copySize, organizationID, messageID) {
		return "", false
	}
	return messageID, true
}
