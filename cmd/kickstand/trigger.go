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
	From    string `placeholder:"ADDRESS" help:"Who writes: a number, a mail address or the channel's id of somebody; for payments the subscription."`
	To      string `placeholder:"ADDRESS" help:"Where to: one of the organization's numbers, mail addresses or ids; for payments the organization's id."`
	Text    string `placeholder:"TEXT" help:"What they write; for payments the plan, pro or business."`
	File    string `placeholder:"FILE" help:"For mail: a message file (.eml) to send as it is; - reads standard input."`
	Sample  bool   `help:"For mail: print the message that is sent without --file, and send nothing."`
	Event   string `placeholder:"KIND" help:"Which kind of event; see above (default: the first)."`
	Count   int    `default:"1" help:"How many to send, each a message of its own."`
}

// trigger is a channel that can be triggered: what its provider would send.
type trigger struct {
	name   string   // the channel's
	alias  string   // another name; empty: none
	secret string   // the flag that has the secret; see [config.secrets]
	events []string // the first is sent unless another is asked for
	file   bool     // a message can be given as a file
	// newSecret makes a secret, where not any text will do.
	newSecret func() (string, error)
	request   func(t *triggerCmd, s triggerRequest) (*http.Request, error)
}

// triggerRequest is what one request is made of.
type triggerRequest struct {
	ctx    context.Context
	base   string // public address of the server
	secret string
	event  string // one of the trigger's
	file   []byte // nil: none was given
}

// post makes the request of a provider, unsigned.
func (s *triggerRequest) post(path, contentType string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(s.ctx, http.MethodPost, s.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	return req, nil
}

// triggers are all channels that can be triggered, in the order in which they are
// shown.
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
		marketplaceTrigger(),
	}
}

func (*triggerCmd) Help() string {
	var b strings.Builder
	b.WriteString(`Sends what the real provider would send, signed with the configured secret
(--sms-secret and so on), to the server at --base-url. With a demo in the working
directory its address and secrets are found by themselves.

  kickstand trigger sms --text "The scooter does not unlock"
  kickstand trigger email
  kickstand trigger email --sample > mail.eml
  kickstand trigger email --file mail.eml --to support@demo.example
  kickstand trigger payments --to ORGANIZATION_ID --event invoice.payment_failed

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
Payments are about one subscription for each organization, unless --from names
another: one that was deleted stays so. "kickstand org list" shows both ids.`)
	return b.String()
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
		return usageError{errors.New("--sample prints the message that is sent without --file; give one of them")}
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

// find returns the channel that is meant.
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

// send makes the requests, and prints what is answered.
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

// noSecret tells how to get a secret that the request can be signed with.
func noSecret(flag string) error {
	return usageError{fmt.Errorf("no secret to sign with: give --%s (the value that the server has), or run in the folder where `kickstand demo` runs", flag)}
}

// read returns the message that was given as a file, if one was.
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
