// Package outbound sends replies, by mail or by a call of a provider's API,
// depending on the channel.
//
// The desk writes a message into its outbox together with a job, in the lane of its
// conversation, so that a conversation's messages leave one at a time and in order.
// The worker here sends the message as the channel's adapter defines, with the
// connection's credentials, and records the result in the transaction that ends the
// job.
//
// # At most once
//
// A submission is recorded durably before it begins. A process that dies after that,
// or a connection that breaks, leaves a message with an unknown result. The next
// step depends on the provider:
//
//   - A provider with a search is queried for the message, which is sent again
//     only if it is not found. Without a search a receipt may give the result;
//     without a receipt for a while, the message is treated as with a mail
//     server.
//   - A provider that recognizes a repeated message by its id gets it again,
//     within its guaranteed time.
//   - A mail server has no search. The record is made when the server has
//     accepted all recipients and expects the content, so the uncertainty lasts
//     from the first byte of the content to the server's last response. An
//     uncertain message is not sent again but marked as failed, with a note
//     that it may have arrived: a person decides.
//
// So every message ends as sent or visibly failed. An unreachable provider delays
// it, with the reason shown beside it.
//
// # Isolation
//
// Messages of one route use at most perRoute slots of the worker, so a slow
// provider delays its own messages only.
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

// Config has the parts of a [Service]. All are required but OpenMail, PublicHTTP
// and RetryTimeScale.
type Config struct {
	DB          *db.DB
	Blob        blob.Store
	Connections *connection.Service
	Adapters    []channel.Adapter
	Box         *seal.Box // signs ids and headers of our mails
	// Mail sends the mails of connections without a mail server of their own.
	Mail mail.TrackedSender
	// OpenMail returns the mail server of a connection's credentials; nil if they name
	// none. Its error describes the invalid field in plain words.
	OpenMail func(c *connection.Connection, credentials channel.Credentials) (mail.TrackedSender, error)
	HTTP     http.RoundTripper // for the providers' APIs
	// PublicHTTP calls URLs that a tenant has set; it must connect to public addresses
	// only. nil refuses them.
	PublicHTTP http.RoundTripper
	BaseURL    string // public address, without a trailing slash
	// OrganizationName returns the sender's name for a connection without a name.
	OrganizationName func(ctx context.Context, organizationID string) (string, error)
	// Brand returns what follows the HTML of an organization's mails; the zero value is nothing. May be nil.
	Brand          func(ctx context.Context, organizationID string) (mail.Brand, error)
	RetryTimeScale float64 // multiplies every wait; 0 means 1
	// Observe is called after each attempt to send a message, with its outcome: sent, retry,
	// unclear (retry of a message that may have arrived) or failed. nil: no one.
	Observe func(channel, outcome string)
	Logger  *slog.Logger
}

// Service sends messages. It is safe for concurrent use.
type Service struct {
	db               *db.DB
	blob             blob.Store
	connections      *connection.Service
	desk             *desk.Service
	adapters         map[string]channel.Adapter // by name
	box              *seal.Box
	mail             mail.TrackedSender
	openMail         func(c *connection.Connection, credentials channel.Credentials) (mail.TrackedSender, error)
	http             http.RoundTripper
	publicHTTP       http.RoundTripper
	baseURL          string
	organizationName func(ctx context.Context, organizationID string) (string, error)
	brand            func(ctx context.Context, organizationID string) (mail.Brand, error)
	scale            float64
	observe          func(channel, outcome string)
	log              *slog.Logger

	routes routes
}

var _ desk.Dispatcher = (*Service)(nil)

// concurrency bounds the messages of one channel in flight in this process.
const concurrency = 128

// Open returns the service. It admits messages at once, and sends after
// [Service.RegisterWorkers].
func Open(c Config) *Service {
	s := &Service{
		db: c.DB, blob: c.Blob, connections: c.Connections, adapters: make(map[string]channel.Adapter), box: c.Box,
		mail: c.Mail, openMail: c.OpenMail, http: c.HTTP, publicHTTP: c.PublicHTTP, baseURL: strings.TrimRight(c.BaseURL, "/"),
		organizationName: c.OrganizationName, brand: c.Brand, scale: c.RetryTimeScale, observe: c.Observe, log: c.Logger,
	}
	if s.observe == nil {
		s.observe = func(string, string) {}
	}
	if s.openMail == nil {
		s.openMail = func(*connection.Connection, channel.Credentials) (mail.TrackedSender, error) { return nil, nil }
	}
	if s.brand == nil {
		s.brand = func(context.Context, string) (mail.Brand, error) { return mail.Brand{}, nil }
	}
	if s.scale == 0 {
		s.scale = 1
	}
	for _, a := range c.Adapters {
		s.adapters[a.Info().Name] = a
	}
	return s
}

// RegisterWorkers registers one worker per ticket channel, so that channels do not delay each other.
// Call it before the queue starts.
func (s *Service) RegisterWorkers(q *queue.Queue, d *desk.Service) {
	s.desk = d
	seen := make(map[string]bool)
	for _, a := range s.adapters {
		ticketChannel := a.Info().TicketChannel
		if _, sends := a.(channel.Sender); !sends || seen[ticketChannel] {
			continue
		}
		seen[ticketChannel] = true
		for _, kind := range desk.SendKinds(ticketChannel) {
			q.Handle(queue.Worker{
				Kind: kind, Ordered: true, Outgoing: true, Concurrency: concurrency, Run: s.run,
				// Errors of providers are handled in run. These are our own.
				Retry: func(attempt int, _ error) (time.Duration, bool) {
					return queue.Backoff(attempt), attempt < maxInternalFailures
				},
				Discard: s.discard,
			})
		}
	}
}

// maxInternalFailures bounds our own failures before a message fails: about two
// days.
const maxInternalFailures = 300

// PrepareSend implements [desk.Dispatcher].
func (s *Service) PrepareSend(ctx context.Context, q db.Querier, organizationID, connectionID, ticketChannel string, m *channel.Outgoing) (string, error) {
	c, err := s.connections.FindForSending(ctx, q, organizationID, connectionID, ticketChannel)
	several, ambiguous := errors.AsType[*connection.Ambiguous](err)
	switch {
	case ambiguous:
		return "", &problem.Error{Kind: problem.Precondition, Code: desk.ConnectionNeeded, Message: several.Error(), Cause: err}
	case errors.Is(err, db.ErrNoRows) && connectionID != "":
		return "", unfit("the connection of this conversation was removed")
	case errors.Is(err, db.ErrNoRows):
		return "", problem.New(problem.Precondition, "there is no connection for the channel %s: connect the address that customers know", ticketChannel)
	case err != nil:
		return "", fmt.Errorf("find connection: %w", err)
	case !c.Enabled:
		return "", problem.New(problem.Precondition, "the connection of %s is switched off", c.Address)
	}
	if a, ok := s.adapters[c.Channel]; ok && a.Info().TicketChannel != ticketChannel {
		return "", unfit("the connection of " + c.Address + " is not of the channel " + ticketChannel)
	}
	sender := s.sender(&c, ticketChannel)
	if sender == nil {
		return "", problem.New(problem.Precondition, "messages cannot be sent on the channel %s", ticketChannel)
	}
	m.From, m.Signature, m.Now = c.Address, c.Settings[signatureSetting], s.db.Now()
	if err := s.connections.SendRefusal(&c); err != nil {
		return c.ID, err
	}
	if _, ok := sender.(channel.MailComposer); ok {
		m.MessageID = s.messageID(m)
	}
	if l, ok := sender.(channel.LimitedSender); ok {
		m.Limits = l.Limits()
	}
	credentials := c.Credentials()
	if w, ok := sender.(channel.WindowedSender); ok && !m.LastInboundAt.IsZero() {
		m.WindowEndsAt = m.LastInboundAt.Add(w.Window(m, credentials))
	}
	return c.ID, sender.Check(m, credentials)
}

// SendTrouble returns what an admin has to do so that a connection can send replies; empty: nothing.
// The proof of its address is not part of that.
func (s *Service) SendTrouble(c *connection.Connection) string {
	a, ok := s.adapters[c.Channel]
	if !ok {
		return ""
	}
	sender := s.sender(c, a.Info().TicketChannel)
	if sender == nil {
		return "Replies cannot be sent on this channel, which only receives. Connect an e-mail channel to answer customers who have an address."
	}
	m := channel.Outgoing{
		From: c.Address, To: channel.Party{Email: "x@example.com", Phone: "+14155550100", ID: "14155550100"}, Text: "x",
		ThreadKey: "C1:1700000000.000100", Now: s.db.Now(), LastInboundAt: s.db.Now(),
	}
	p, refused := errors.AsType[*problem.Error](sender.Check(&m, c.Credentials()))
	if !refused || p.Kind != problem.Precondition {
		return ""
	}
	return "Replies cannot be sent: " + p.Message + ". Enter the missing credentials below."
}

// signatureSetting is the setting of mail connections with the signature of replies.
const signatureSetting = "signature"

// unfit refuses a connection that was named.
func unfit(reason string) error {
	return &problem.Error{Kind: problem.Precondition, Code: desk.ConnectionUnfit, Message: reason}
}

// sender returns the adapter of a connection if it can send on the ticket channel.
func (s *Service) sender(c *connection.Connection, ticketChannel string) channel.Sender {
	a, ok := s.adapters[c.Channel]
	if !ok || a.Info().TicketChannel != ticketChannel {
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

// messageID returns the Message-ID of an outbound mail. It is unguessable, so a
// mail that names it comes from a recipient of the mail or of a reply.
func (s *Service) messageID(m *channel.Outgoing) string {
	_, domain, _ := strings.Cut(m.From, "@")
	domain, err := idna.Lookup.ToASCII(domain)
	if err != nil || domain == "" {
		domain = "kickstand.invalid"
	}
	return fmt.Sprintf("t.%s.%s.%s@%s", m.TicketID, m.ID, hex.EncodeToString(s.box.MAC(messageIDPurpose, m.TicketID, m.ID)[:5]), domain)
}

// copyHeader returns the value of X-Helpdesk-Message.
func (s *Service) copyHeader(organizationID, messageID string) string {
	return messageID + "." + hex.EncodeToString(s.box.MAC(copyPurpose, organizationID, messageID)[:copySize])
}

// VerifyCopyHeader returns the message named by a value of X-Helpdesk-Message;
// false unless we signed it. It serves as [desk.Config.CopyMAC].
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
