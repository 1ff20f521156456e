package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// outbox sends mail through the queue: a mail exists exactly when the change
// that caused it does, and a mail server that is down delays it.
type outbox struct {
	queue  *queue.Queue
	sender mail.Sender
	from   mail.Address // of mails that name no sender
	box    *seal.Box    // seals what waits: sign-in links are as good as passwords
}

const mailKind = "mail"

// openMail returns where mail goes: to the configured server, or to the delivery
// provider, or else into a folder that is shown in the browser.
func (a *App) openMail(providers http.RoundTripper) (mail.Carrier, error) {
	switch {
	case a.config.SMTPURL != "":
		server, err := mail.OpenSMTP(a.config.SMTPURL)
		if err != nil {
			return nil, fmt.Errorf("smtp-url: %w", err)
		}
		return server, nil
	case a.config.EmailDeliveryAPIKey != "":
		provider, err := openDelivery(a.config.APIURLs["email-delivery"], a.config.EmailDeliveryAPIKey, providers)
		if err != nil {
			return nil, fmt.Errorf("email-delivery-api: %w", err)
		}
		return provider, nil
	}
	box, err := mail.OpenMailbox(filepath.Join(a.config.Data, "mailbox"), a.BaseURL, a.log)
	if err != nil {
		return nil, fmt.Errorf("mailbox: %w", err)
	}
	a.mailbox = box
	return box, nil
}

func openDelivery(address, key string, transport http.RoundTripper) (*mail.API, error) {
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

// ownMail returns what takes the mails of connections that have a mail server or a
// delivery provider of their own. An organization names these, so they must not be
// in our network; only the operator's address of the provider may be anywhere.
func (a *App) ownMail(guard netguard.Guard, providers http.RoundTripper) func(map[string]string) (mail.Carrier, error) {
	public := netguard.NewTransport(guard)
	return func(credentials map[string]string) (mail.Carrier, error) {
		if rawURL := credentials["smtp_url"]; rawURL != "" {
			server, err := mail.OpenSMTP(rawURL)
			if err != nil {
				return nil, fmt.Errorf("its smtp_url is not usable: %s", strings.TrimPrefix(err.Error(), "mail: "))
			}
			server.Dial = guard.DialContext
			return server, nil
		}
		key := credentials[email.CredentialAPIKey]
		if key == "" {
			return nil, nil
		}
		address, transport := a.config.APIURLs["email-delivery"], providers
		if own := credentials[email.CredentialAPIURL]; own != "" {
			address, transport = own, public
		}
		provider, err := openDelivery(address, key, transport)
		if err != nil {
			return nil, fmt.Errorf("its %s or %s is not usable: %s", email.CredentialAPIKey, email.CredentialAPIURL, strings.TrimPrefix(err.Error(), "mail: "))
		}
		return provider, nil
	}
}

// deliveryCredentials are what connections that have no key of their own ask the
// delivery provider with.
func deliveryCredentials(c Config) map[string]string {
	if c.EmailDeliveryAPIKey == "" {
		return nil
	}
	return map[string]string{email.CredentialAPIKey: c.EmailDeliveryAPIKey}
}

func (a *App) openOutbox(server mail.Sender, from mail.Address, box *seal.Box) *outbox {
	o := &outbox{queue: a.queue, sender: server, from: from, box: box}
	a.queue.Handle(queue.Worker{Kind: mailKind, Concurrency: 8, Run: o.send, Retry: mail.Retry})
	return o
}

// EnqueueMail has m sent once tx is committed.
func (o *outbox) EnqueueMail(ctx context.Context, tx *db.Tx, m mail.Message) error {
	if len(m.To) == 0 {
		return fmt.Errorf("mail %q has no recipient", m.Subject)
	}
	if m.From == (mail.Address{}) {
		m.From = o.from
	}
	if m.MessageID == "" {
		// Fixed now, so that a mail sent twice is seen to be one.
		m.MessageID = queue.NewID() + "@kickstand"
	}
	payload, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("enqueue mail: %w", err)
	}
	id := queue.NewID()
	return o.queue.Enqueue(ctx, tx, queue.New{
		ID: id, Kind: mailKind, Lane: m.To[0].Address, Payload: o.box.Seal(mailKind, payload, id),
	})
}

func (o *outbox) send(ctx context.Context, j *queue.Job) error {
	payload, err := o.box.Open(mailKind, j.Payload, j.ID)
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
