package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/chat"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/marketplace"
	"github.com/kickstand-dev/kickstand/internal/channel/meta"
	"github.com/kickstand-dev/kickstand/internal/channel/payments"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/channel/storefront"
	"github.com/kickstand-dev/kickstand/internal/channel/voice"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/google/uuid"
)

// TextAccount is the operator's account at the SMS provider, which sends the codes that
// prove an organization's numbers.
type TextAccount struct {
	SID   string // empty: no codes
	Token string
	From  string // sender number
}

// openProofs configures the proofs of connections' addresses.
func (a *App) openProofs(secrets map[string][]string, outbox *outbox, providers http.RoundTripper) error {
	allowed, err := connection.ParseAllowed(a.config.AllowedAddresses, connectable(a.adapters))
	if err != nil {
		return fmt.Errorf("allowed-addresses: %w", err)
	}
	a.Connections.UseProofs(connection.Proofs{
		Mailer: outbox, Text: a.smsSender(providers), LookupTXT: a.config.lookupTXT(), HTTP: providers,
		Allowed: allowed, Slug: a.Accounts.Slug, Shared: sharedChannels(a.adapters, secrets),
		MailStays: a.mailbox != nil, BaseURL: a.BaseURL, Logger: a.log,
	})
	a.Connections.OnChange(func(_ context.Context, tx *db.Tx, c *connection.Connection, _ bool) error {
		tx.AfterCommit(func() { a.live.PublishCoalesced(c.OrganizationID, "channel:"+c.ID) })
		return nil
	})
	return nil
}

// lookupTXT returns the DNS resolver.
func (c *Config) lookupTXT() mailauth.Lookup {
	if c.LookupTXT != nil {
		return c.LookupTXT
	}
	return mailauth.SystemLookup
}

// CheckAllowed checks entries of allowed-addresses.
func CheckAllowed(entries []string) error {
	_, err := parseAllowed(entries)
	return err
}

func parseAllowed(entries []string) ([]connection.Allowed, error) {
	// The forms of addresses do not depend on the adapters' configuration.
	return connection.ParseAllowed(entries, connectable([]channel.Adapter{
		sms.New(sms.Config{}), voice.New(voice.Config{}), email.NewRaw(email.Config{}), meta.NewBusiness(meta.Config{}),
		meta.NewMessenger(meta.Config{}), chat.New(chat.Config{}), marketplace.New(nil), payments.NewConnect(), storefront.New(storefront.Config{}),
	}))
}

// sharedChannels returns the channels with a deployment-wide secret, which vouches for
// their connections.
func sharedChannels(adapters []channel.Adapter, secrets map[string][]string) map[string]bool {
	shared := make(map[string]bool)
	for _, ad := range adapters {
		info := ad.Info()
		if len(secrets[info.Name]) == 0 {
			continue
		}
		shared[info.Name] = true
		for _, name := range info.Serves {
			shared[name] = true
		}
	}
	return shared
}

const (
	smsTimeout     = 20 * time.Second
	maxSMSResponse = 1 << 20 // bytes
)

// smsSender returns a function that sends SMS by the operator's account; nil without one.
func (a *App) smsSender(providers http.RoundTripper) func(ctx context.Context, number, text string) error {
	account := a.config.TextAccount
	if account.SID == "" {
		return nil
	}
	var adapter *sms.Adapter
	for _, ad := range a.adapters {
		if found, ok := ad.(*sms.Adapter); ok {
			adapter = found
		}
	}
	credentials := channel.DeploymentCredentials(adapter.API(), adapter.API().URL, map[string]string{
		sms.CredentialAccount: account.SID, sms.CredentialToken: account.Token,
	})
	return func(ctx context.Context, number, text string) error {
		ctx, cancel := context.WithTimeout(ctx, smsTimeout)
		defer cancel()
		m := &channel.Outgoing{ID: uuid.NewString(), From: account.From, To: channel.Party{Phone: number}, Text: text, Now: a.DB.Now()}
		call := adapter.SendCall(m, credentials)
		req, err := call.HTTPRequest(ctx)
		if err != nil {
			return err
		}
		resp, err := providers.RoundTrip(req)
		if err != nil {
			return errors.New("the SMS provider cannot be reached")
		}
		defer resp.Body.Close()
		answer := channel.Response{Status: resp.StatusCode, Header: resp.Header}
		if answer.Body, err = io.ReadAll(io.LimitReader(resp.Body, maxSMSResponse)); err != nil {
			return errors.New("the SMS provider's answer broke off")
		}
		switch v := adapter.ReadSendResponse(m, answer); {
		case v.Verdict == channel.VerdictSent:
			return nil
		case v.Unreachable, v.OptedOut: // about the number, without the provider's text
			return problem.New(problem.Precondition, "%s", v.Reason)
		default: // the provider's text may name the operator's account
			return fmt.Errorf("the SMS provider: %s", v.Reason)
		}
	}
}
