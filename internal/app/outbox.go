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
// provider. Without either it goes into a folder that is shown in the browser, but
// only where the base URL is this machine: such mails hold sign-in links. Elsewhere
// every mail fails.
func (a *App) openMail(providers http.RoundTripper) (mail.TrackedSender, error) {
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
	if !a.config.Loopback() {
		return mail.Unsendable{Reason: "no way to send mail is configured (KICKSTAND_SMTP_URL)"}, nil
	}
	box, err := mail.OpenMailbox(a.config.mailboxDir(), a.BaseURL, a.log)
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
func (a *App) ownMail(guard netguard.Guard, public, providers http.RoundTripper) func(channel.Credentials) (mail.TrackedSender, error) {
	return func(credentials channel.Credentials) (mail.TrackedSender, error) {
		if rawURL := credentials.Get(email.CredentialServer); rawURL != "" {
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
		// An address that is malformed is refused here, with the reason.
		address := cmp.Or(credentials.Get(email.CredentialAPIURL), credentials.BaseURL())
		provider, err := openDelivery(address, credentials.Get(email.CredentialAPIKey), transport)
		if err != nil {
			return nil, fmt.Errorf("its %s or %s is not usable: %s", email.CredentialAPIKey, email.CredentialAPIURL, strings.TrimPrefix(err.Error(), "mail: "))
		}
		return provider, nil
	}
}

// openLetters returns what the mail channels are made with. Where the deployment has a
// key of the delivery provider, the configured address of the API belongs to that key,
// and connections with keys of their own call the provider at its usual address, or
// where they say.
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

// deploymentCredentials are the operator's own for providers' APIs, by channel.
func deploymentCredentials(c Config, letters email.Config) map[string]channel.Credentials {
	if c.EmailDeliveryAPIKey == "" {
		return nil
	}
	delivery := email.NewDelivery(letters)
	return map[string]channel.Credentials{
		delivery.Info().Name: channel.DeploymentCredentials(delivery.API(), letters.DeploymentAPIURL, map[string]string{email.CredentialAPIKey: c.EmailDeliveryAPIKey}),
	}
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
