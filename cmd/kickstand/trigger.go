package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

type triggerCmd struct {
	Channel string `arg:"" placeholder:"CHANNEL" help:"One of the channels above."`
	From    string `placeholder:"ADDRESS" help:"Sender: a number, a mail address or the channel's id of a person; for payments the subscription."`
	Name    string `placeholder:"NAME" help:"Sender's name on business messaging and api (default: Ana Client)."`
	To      string `placeholder:"ADDRESS" help:"Recipient: one of the organization's numbers, mail addresses or ids; for payments the organization's id; for api the conversation."`
	Text    string `placeholder:"TEXT" help:"Text of the message; for payments the plan, pro or business."`
	File    string `placeholder:"FILE" help:"For mail: a message file (.eml) to send unchanged; - reads standard input."`
	Sample  bool   `help:"For mail: print the default message instead of sending it."`
	Event   string `placeholder:"KIND" help:"Event; see above (default: the channel's first)."`
	Count   int    `default:"1" help:"Number of requests, each a separate message."`

	APIChannel string `name:"api-channel" placeholder:"ID" help:"For api: id of the channel; \"kickstand channel list\" shows it."`
	APISecret  string `name:"api-secret" secret:"true" placeholder:"SECRET" help:"For api: secret of the channel, shown when it was connected."`
}

// trigger builds the requests of a channel's provider.
type trigger struct {
	name   string   // channel
	alias  string   // alternative name; empty: none
	secret string   // flag of the deployment's secret, see [config.secrets]; empty: there is none
	events []string // the first is the default
	file   bool     // accepts a message as a file
	// newSecret generates a secret, if it must have a form.
	newSecret func() (string, error)
	request   func(t *triggerCmd, s triggerRequest) (*http.Request, error)
}

// triggerRequest has the values for a request.
type triggerRequest struct {
	ctx    context.Context
	base   string // public base URL of the server
	secret string
	event  string // one of the trigger's events
	file   []byte // nil: none
}

// post returns an unsigned request of the provider.
func (s *triggerRequest) post(path, contentType string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(s.ctx, http.MethodPost, s.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	return req, nil
}

// triggers returns the triggers in display order.
func triggers() []trigger {
	return []trigger{
		smsTrigger(),
		voiceTrigger(),
		emailFormTrigger(),
		emailParseTrigger(),
		emailJSONTrigger(),
		emailRawTrigger(),
		emailDeliveryTrigger(),
		businessTrigger(),
		messengerTrigger(),
		storefrontTrigger(),
		storefrontPrivacyTrigger(),
		paymentsTrigger(),
		connectTrigger(),
		chatTrigger(),
		apiTrigger(),
		marketplaceTrigger(),
	}
}

func (*triggerCmd) Help() string {
	var b strings.Builder
	b.WriteString(`Sends a provider's request, signed with the configured secret (--sms-secret and
so on), to the server at --base-url. With a demo in the working directory it uses
the demo's address and secrets.

  kickstand trigger sms --text "The scooter does not unlock"
  kickstand trigger email
  kickstand trigger email --sample > mail.eml
  kickstand trigger email --file mail.eml --to support@demo.example
  kickstand trigger payments --to ORGANIZATION_ID --event invoice.payment_failed
  kickstand trigger api --api-channel ID --api-secret SECRET --from USER --to CONVERSATION

Channels and their events:

`)
	for _, c := range triggers() {
		name := c.name
		if c.alias != "" {
			name += ", " + c.alias
		}
		fmt.Fprintf(&b, "  %s\n    ", name)
		column := 0
		for i, event := range c.events {
			if i > 0 && column+len(event) > 76 {
				b.WriteString(",\n    ")
				column = 0
			} else if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(event)
			column += len(event) + 2
		}
		b.WriteByte('\n')
	}
	b.WriteString(`
Payments are about one subscription per organization, unless --from names
another: a deleted subscription stays deleted. "kickstand org list" shows both ids.`)
	return b.String()
}

// outcome is the server's response.
type outcome struct {
	Status int    `json:"status"`
	Body   string `json:"body"`
}

// Run sends the requests in sequence.
func (t *triggerCmd) Run(ctx context.Context, e *env) error {
	if t.Count < 1 {
		return usageError{errors.New("--count must be at least 1")}
	}
	set, err := e.settings()
	if err != nil {
		return err
	}
	c, err := t.find()
	if err != nil {
		return err
	}
	s := triggerRequest{ctx: ctx, base: set.BaseURL, event: firstNonEmpty(t.Event, c.events[0])}
	if !slices.Contains(c.events, s.event) {
		return usageError{fmt.Errorf("%s has no event %q; one of %s", c.name, s.event, strings.Join(c.events, ", "))}
	}
	switch {
	case (t.File != "" || t.Sample) && !c.file:
		return usageError{errors.New("--file and --sample are for mail")}
	case t.File != "" && t.Sample:
		return usageError{errors.New("--sample prints the default message and excludes --file")}
	case t.Sample:
		_, _, raw := t.message(s)
		_, err := e.out.Write(raw)
		return err
	}
	if c.secret != "" {
		secrets := set.Secrets[c.name]
		if len(secrets) == 0 {
			return noSecret(c.secret)
		}
		s.secret = secrets[0]
	}
	if s.file, err = t.read(e.in); err != nil {
		return err
	}
	return t.send(e, c, s)
}

// find returns the trigger of the channel argument.
func (t *triggerCmd) find() (trigger, error) {
	t.Channel = channel.AdapterName(t.Channel)
	var names []string
	for _, c := range triggers() {
		if t.Channel == c.name || c.alias != "" && t.Channel == c.alias {
			return c, nil
		}
		names = append(names, c.name)
	}
	return trigger{}, usageError{fmt.Errorf("there is no channel %q to trigger; one of %s", t.Channel, strings.Join(names, ", "))}
}

// send sends the requests and prints the responses.
func (t *triggerCmd) send(e *env, c trigger, s triggerRequest) error {
	client := &http.Client{Timeout: 30 * time.Second}
	outcomes := []outcome{}
	refused := 0
	for range t.Count {
		req, err := c.request(t, s)
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

// noSecret returns an error with the way to set the signing secret.
func noSecret(flag string) error {
	return usageError{fmt.Errorf("no secret to sign with: give --%s (the server's value), or run in the folder of `kickstand demo`", flag)}
}

// read returns the message of --file, if given.
func (t *triggerCmd) read(stdin io.Reader) ([]byte, error) {
	switch t.File {
	case "":
		return nil, nil
	case "-":
		return io.ReadAll(stdin)
	}
	return os.ReadFile(t.File)
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func firstNonEmpty(candidates ...string) string {
	for _, c := range candidates {
		if c != "" {
			return c
		}
	}
	return ""
}
