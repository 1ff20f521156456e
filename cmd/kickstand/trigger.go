package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/mail"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/payments"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
)

type triggerCmd struct {
	Channel string `arg:"" placeholder:"CHANNEL" help:"sms, email (also email-raw), or payments."`
	From    string `placeholder:"ADDRESS" help:"Who writes: a number or a mail address; for payments the subscription."`
	To      string `placeholder:"ADDRESS" help:"Where to: one of the organization's numbers or addresses; for payments its id."`
	Text    string `placeholder:"TEXT" help:"What they write; for payments the plan, pro or business."`
	File    string `placeholder:"FILE" help:"For email: a message file (.eml) to send as it is; - reads standard input."`
	Event   string `placeholder:"KIND" help:"Which kind of event: message; for sms also media, stop, delivered, failed; for payments checkout.session.completed (default: the first)."`
	Count   int    `default:"1" help:"How many to send, each a message of its own."`
}

func (*triggerCmd) Help() string {
	return `Sends what the real provider would send, signed with the configured secret
(--sms-secret, --email-raw-secret, --payments-secret), to the server at
--base-url. With a demo in the working directory its address and secrets are
found by themselves.

  kickstand trigger sms --text "The scooter does not unlock"
  kickstand trigger email --file message.eml --to support@demo.example
  kickstand trigger payments --to ORGANIZATION_ID --event invoice.payment_failed

Payments have the events checkout.session.completed, customer.subscription.created,
customer.subscription.updated, customer.subscription.deleted,
invoice.payment_succeeded and invoice.payment_failed. They are about one
subscription for each organization, unless --from names another: one that was
deleted stays so. "kickstand org list" shows both ids.`
}

// outcome is what the server answered.
type outcome struct {
	Status int    `json:"status"`
	Body   string `json:"body"`
}

// Run sends the requests one after the other.
func (t *triggerCmd) Run(ctx context.Context, e *env) error {
	if t.Count < 1 {
		return usageError{errors.New("--count must be at least 1")}
	}
	set, err := e.settings()
	if err != nil {
		return err
	}
	var request func() (*http.Request, error)
	switch t.Channel {
	case "sms":
		request, err = t.sms(ctx, set.BaseURL, e.SMSSecret)
	case "email", "email-raw":
		request, err = t.email(ctx, set.BaseURL, e.EmailRawSecret, e.in)
	case "payments":
		request, err = t.payments(ctx, set.BaseURL, e.PaymentsSecret)
	default:
		return usageError{fmt.Errorf("there is no channel %q to trigger; one of sms, email, payments", t.Channel)}
	}
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: 30 * time.Second}
	outcomes := []outcome{}
	refused := 0
	for range t.Count {
		req, err := request()
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("%w\nis the server running? `kickstand demo` or `kickstand serve` starts one", err)
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		resp.Body.Close()
		if err != nil {
			return err
		}
		if resp.StatusCode >= 300 {
			refused++
		}
		outcomes = append(outcomes, outcome{resp.StatusCode, string(body)})
	}
	if err := e.print(outcomes, func(w io.Writer) {
		for _, o := range outcomes {
			fmt.Fprintf(w, "%d %s\n", o.Status, strings.TrimSpace(o.Body))
		}
	}); err != nil {
		return err
	}
	if refused > 0 {
		return fmt.Errorf("%d of %d requests were refused", refused, t.Count)
	}
	return nil
}

// noSecret tells how to get a secret that the request can be signed with.
func noSecret(flag string) error {
	return usageError{fmt.Errorf("no secret to sign with: give --%s (the value that the server has), or run in the folder where `kickstand demo` runs", flag)}
}

func (t *triggerCmd) sms(ctx context.Context, base string, secrets []string) (func() (*http.Request, error), error) {
	if len(secrets) == 0 {
		return nil, noSecret("sms-secret")
	}
	if t.File != "" {
		return nil, usageError{errors.New("--file is for email")}
	}
	return func() (*http.Request, error) {
		sid := "SM" + randomHex(16)
		form := url.Values{
			"MessageSid": {sid}, "SmsSid": {sid}, "AccountSid": {"AC" + strings.Repeat("0", 32)},
			"From": {orElse(t.From, demoCaller)}, "To": {orElse(t.To, demoNumber)},
		}
		switch t.Event {
		case "", "message", "media", "stop":
			form.Set("Body", orElse(t.Text, "Hello, the scooter at the station does not unlock."))
			form.Set("NumSegments", "1")
			form.Set("NumMedia", "0")
			if t.Event == "stop" {
				form.Set("Body", orElse(t.Text, "STOP"))
				form.Set("OptOutType", "STOP")
			}
			if t.Event == "media" {
				form.Set("NumMedia", "1")
				form.Set("MediaUrl0", "https://api.twilio.com/2010-04-01/Accounts/"+form.Get("AccountSid")+"/Messages/"+sid+"/Media/ME"+randomHex(16))
				form.Set("MediaContentType0", "image/jpeg")
			}
		case "delivered", "failed":
			form.Set("MessageStatus", t.Event)
			form.Set("SmsStatus", t.Event)
			if t.Event == "failed" {
				form.Set("ErrorCode", "30003")
			}
		default:
			return nil, usageError{fmt.Errorf("sms has no event %q; one of message, media, stop, delivered, failed", t.Event)}
		}
		target := base + "/api/webhooks/sms"
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(form.Encode()))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("X-Sms-Signature", sms.Sign(target, form, secrets[0]))
		return req, nil
	}, nil
}

func (t *triggerCmd) email(ctx context.Context, base string, secrets []string, stdin io.Reader) (func() (*http.Request, error), error) {
	if len(secrets) == 0 {
		return nil, noSecret("email-raw-secret")
	}
	if t.Event != "" && t.Event != "message" {
		return nil, usageError{fmt.Errorf("email has no event %q; --file sends any mail, bounces and replies too", t.Event)}
	}
	var given []byte
	if t.File != "" {
		var err error
		if t.File == "-" {
			given, err = io.ReadAll(stdin)
		} else {
			given, err = os.ReadFile(t.File)
		}
		if err != nil {
			return nil, err
		}
	}
	return func() (*http.Request, error) {
		raw := given
		from, to := orElse(t.From, senderOf(raw), "ana@client.example"), orElse(t.To, "support@demo.example")
		if raw == nil {
			raw = t.compose(from, to)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/api/webhooks/inbound-email?style=raw", bytes.NewReader(raw))
		if err != nil {
			return nil, err
		}
		signature, timestamp := email.SignRaw(raw, time.Now(), secrets[0])
		req.Header.Set("Content-Type", "message/rfc822")
		req.Header.Set("X-Envelope-From", from)
		req.Header.Set("X-Envelope-To", to)
		req.Header.Set("X-Webhook-Timestamp", timestamp)
		req.Header.Set("X-Webhook-Signature", signature)
		return req, nil
	}, nil
}

func (t *triggerCmd) payments(ctx context.Context, base string, secrets []string) (func() (*http.Request, error), error) {
	if len(secrets) == 0 {
		return nil, noSecret("payments-secret")
	}
	if t.File != "" {
		return nil, usageError{errors.New("--file is for email")}
	}
	if t.To == "" {
		return nil, usageError{fmt.Errorf("--to must be an organization's id: `kickstand org list` shows it, of a demo with --config=%s/kickstand.toml", demoFolder)}
	}
	kind := channel.PaymentKind(orElse(t.Event, string(channel.CheckoutCompleted)))
	switch kind {
	case channel.CheckoutCompleted, channel.SubscriptionCreated, channel.SubscriptionUpdated, channel.SubscriptionDeleted,
		channel.InvoicePaid, channel.InvoiceFailed:
	default:
		return nil, usageError{fmt.Errorf("payments has no event %q; `kickstand trigger --help` lists them", t.Event)}
	}
	plan, ok := account.ParsePlan(orElse(t.Text, string(account.Pro)))
	if !ok || plan == account.Free {
		return nil, usageError{fmt.Errorf("--text must be the plan that is paid for, pro or business, not %q", t.Text)}
	}
	sum := sha256.Sum256([]byte(t.To))
	return func() (*http.Request, error) {
		body := billing.Sample{
			Kind: kind, Created: time.Now(), Name: hex.EncodeToString(sum[:10]), EventID: "evt_" + randomHex(12),
			SubscriptionID: t.From, OrganizationID: t.To, Plan: plan, Email: "ana@client.example",
		}.JSON()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+payments.New().Info().Path, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/json; charset=utf-8")
		req.Header.Set(payments.SignatureHeader, payments.Sign(body, time.Now(), secrets[0]))
		return req, nil
	}, nil
}

// compose writes a plain message.
func (t *triggerCmd) compose(from, to string) []byte {
	var b bytes.Buffer
	header := func(name, value string) { fmt.Fprintf(&b, "%s: %s\r\n", name, value) }
	header("From", (&mail.Address{Name: "Ana Client", Address: from}).String())
	header("To", (&mail.Address{Address: to}).String())
	header("Subject", "The scooter does not unlock")
	header("Date", time.Now().Format(time.RFC1123Z))
	header("Message-ID", "<"+randomHex(12)+"@client.example>")
	header("MIME-Version", "1.0")
	header("Content-Type", "text/plain; charset=utf-8")
	b.WriteString("\r\n" + orElse(t.Text, "Hello,\r\nthe scooter at the station does not unlock.\r\n\r\nAna") + "\r\n")
	return b.Bytes()
}

// senderOf is the address in a message's From header, if it has a usable one.
func senderOf(raw []byte) string {
	m, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return ""
	}
	a, err := mail.ParseAddress(m.Header.Get("From"))
	if err != nil {
		return ""
	}
	return a.Address
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func orElse(candidates ...string) string {
	for _, c := range candidates {
		if c != "" {
			return c
		}
	}
	return ""
}
