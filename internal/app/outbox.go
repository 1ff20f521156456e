package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// outbox sends mail through the queue: a mail is stored in the transaction of its cause,
// and an unavailable mail server delays it.
type outbox struct {
	queue  *queue.Queue
	sender mail.Sender
	from   func() mail.Address // sender of mails without one
	// brand returns the look of notifications to an address.
	brand func(ctx context.Context, q db.Querier, address string) (mail.Brand, error)
	box   *seal.Box // encrypts waiting mails: sign-in links are as sensitive as passwords
}

// Kinds of mail jobs.
const (
	mailKind        = "mail"
	accountMailKind = "mail/account" // of accounts: sign-in, invitations, passwords
)

const mailPurpose = "mail" // of the encryption

// openMailbox opens the folder of mails that cannot be sent if the base URL is this machine. Its
// page shows them in the browser, since they have sign-in links.
func (a *App) openMailbox() error {
	if a.given.SMTPURL != "" || a.given.EmailDeliveryAPIKey != "" || !a.given.Loopback() {
		return nil
	}
	box, err := mail.OpenMailbox(a.given.mailboxDir(), a.BaseURL, a.log)
	if err != nil {
		return fmt.Errorf("mailbox: %w", err)
	}
	a.mailbox = box
	return nil
}

// openMail returns the sender of mails: the configured mail server or delivery provider, without
// either the mailbox, and without a mailbox one that fails.
func (a *App) openMail(c *Config, providers http.RoundTripper) (mail.TrackedSender, error) {
	switch {
	case c.SMTPURL != "":
		server, err := mail.OpenSMTP(c.SMTPURL)
		if err != nil {
			return nil, fmt.Errorf("smtp-url: %w", err)
		}
		return server, nil
	case c.EmailDeliveryAPIKey != "":
		provider, err := openDelivery(c.APIURLs["email-delivery"], c.EmailDeliveryAPIKey, providers)
		if err != nil {
			return nil, fmt.Errorf("email-delivery-api: %w", err)
		}
		return provider, nil
	case a.mailbox != nil:
		return a.mailbox, nil
	}
	return mail.Unsendable{Reason: "no way to send mail is configured (KICKSTAND_SMTP_URL)"}, nil
}

func openDelivery(address, key string, transport http.RoundTripper) (*mail.HTTPSender, error) {
	u, err := netguard.ParseAPIURL(address, mail.DefaultAPIURL)
	if err != nil {
		return nil, err
	}
	provider, err := mail.OpenAPI(u.String(), key)
	if err != nil {
		return nil, err
	}
	provider.HTTP = transport
	return provider, nil
}

// ownMail returns the sender for connections with their own mail server or delivery
// provider. Organizations choose these, so private addresses are refused; the operator's
// API URL may be private.
func (a *App) ownMail(guard netguard.Guard, public, providers http.RoundTripper) func(*connection.Connection, channel.Credentials) (mail.TrackedSender, error) {
	return func(c *connection.Connection, credentials channel.Credentials) (mail.TrackedSender, error) {
		if rawURL := credentials.Get(email.CredentialServer); rawURL != "" {
			if c.Channel == email.MailboxName {
				return a.Mailboxes.Sender(c)
			}
			server, err := mail.OpenSMTP(rawURL)
			if err != nil {
				return nil, fmt.Errorf("its smtp_url is not usable: %s", strings.TrimPrefix(err.Error(), "mail: "))
			}
			server.Dial = guard.DialContext
			return server, nil
		}
		if !credentials.HasAPI() {
			return nil, nil
		}
		transport := providers
		if credentials.Public() {
			transport = public
		}
		// A malformed URL is refused here, with the reason.
		address := cmp.Or(credentials.Get(email.CredentialAPIURL), credentials.BaseURL())
		provider, err := openDelivery(address, credentials.Get(email.CredentialAPIKey), transport)
		if err != nil {
			return nil, fmt.Errorf("its %s or %s is not usable: %s", email.CredentialAPIKey, email.CredentialAPIURL, strings.TrimPrefix(err.Error(), "mail: "))
		}
		return provider, nil
	}
}

// openLetters returns the configuration of the mail channels. If the deployment has a key
// of the delivery provider, the configured API URL belongs to that key; connections with
// their own keys call the provider's public URL, or their own.
func openLetters(c Config) (email.Config, error) {
	api, err := netguard.ParseAPIURL(c.APIURLs["email-delivery"], mail.DefaultAPIURL)
	if err != nil {
		return email.Config{}, fmt.Errorf("email-delivery-api-url: %w", err)
	}
	letters := email.Config{TrustedAuthServers: c.TrustedAuthServers, DeliveryAPIURL: api.String(), DeploymentAPIURL: api.String()}
	if c.EmailDeliveryAPIKey != "" {
		letters.DeliveryAPIURL = mail.DefaultAPIURL
	}
	return letters, nil
}

// deploymentCredentials returns the operator's credentials for providers' APIs, by
// channel.
func deploymentCredentials(c Config, letters email.Config) map[string]channel.Credentials {
	if c.EmailDeliveryAPIKey == "" {
		return nil
	}
	delivery := email.NewDelivery(letters)
	return map[string]channel.Credentials{
		delivery.Info().Name: channel.DeploymentCredentials(delivery.API(), letters.DeploymentAPIURL, map[string]string{email.CredentialAPIKey: c.EmailDeliveryAPIKey}),
	}
}

func (a *App) openOutbox(server *mail.Switch, box *seal.Box) *outbox {
	o := &outbox{queue: a.queue, sender: server, from: server.From, brand: a.mailBrand, box: box}
	a.queue.Handle(queue.Worker{Kind: mailKind, Outgoing: true, Concurrency: 8, Run: o.send, Retry: mail.Retry})
	a.queue.Handle(queue.Worker{Kind: accountMailKind, Concurrency: 8, Run: o.send, Retry: mail.Retry})
	return o
}

// EnqueueMailTx enqueues m in tx.
func (o *outbox) EnqueueMailTx(ctx context.Context, tx *db.Tx, m mail.Message) error {
	return o.enqueue(ctx, tx, mailKind, m)
}

// accountOutbox sends the mails of accounts, also during a [queue.Hold]: they have links for
// somebody who waits to sign in, among them the operator.
type accountOutbox struct{ *outbox }

// EnqueueMailTx enqueues m in tx.
func (o accountOutbox) EnqueueMailTx(ctx context.Context, tx *db.Tx, m mail.Message) error {
	return o.enqueue(ctx, tx, accountMailKind, m)
}

func (o *outbox) enqueue(ctx context.Context, tx *db.Tx, kind string, m mail.Message) error {
	if len(m.To) == 0 {
		return fmt.Errorf("mail %q has no recipient", m.Subject)
	}
	if m.From == (mail.Address{}) {
		m.From = o.from()
	}
	if m.Notification != nil {
		brand, err := o.brand(ctx, tx, m.To[0].Address)
		if err != nil {
			return fmt.Errorf("brand of the mail: %w", err)
		}
		if err := m.SetBrand(brand); err != nil {
			return err
		}
	}
	if m.MessageID == "" {
		// Fixed now, so that a mail sent twice is recognizable.
		m.MessageID = queue.NewID() + "@kickstand"
	}
	payload, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("enqueue mail: %w", err)
	}
	id := queue.NewID()
	return o.queue.EnqueueTx(ctx, tx, queue.New{
		ID: id, Kind: kind, Lane: m.To[0].Address, Payload: o.box.Seal(mailPurpose, payload, id),
	})
}

func (o *outbox) send(ctx context.Context, j *queue.Job) error {
	payload, err := o.box.Open(mailPurpose, j.Payload, j.ID)
	if err != nil {
		return fmt.Errorf("stored mail: %w", err)
	}
	var m mail.Message
	if err := json.Unmarshal(payload, &m); err != nil {
		return fmt.Errorf("stored mail: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return o.sender.Send(ctx, m)
}
