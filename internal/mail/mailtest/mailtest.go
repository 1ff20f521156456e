// Package mailtest holds shared parts of mail tests: [Run], the suite for every [mail.Sender],
// and two in-process destinations: [Server], an SMTP server, and [Provider], a delivery
// provider.
package mailtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/mail"
)

// Received is a mail as its recipient sees it. Line ends are LF; trailing ones do not matter,
// because SMTP ends every message with one.
type Received struct {
	EnvelopeFrom string   // bare address, or "<>"
	From         string   // header, bare address
	To           []string // recipients: bare addresses in order
	Subject      string
	Text, HTML   string
	Headers      []mail.Header // of those in Message.Headers
	Attachments  []string      // file names
}

// Fixture is a sender under test and a view of its deliveries.
type Fixture struct {
	Sender   mail.Sender
	Received func(testing.TB) []Received // in order of delivery
	// OwnEnvelope means that the provider chooses the envelope sender.
	OwnEnvelope bool
}

// Run checks that the senders of open satisfy the contract of [mail.Sender]. Each subtest opens
// its own.
func Run(t *testing.T, open func(*testing.T) Fixture) {
	t.Run("delivers", func(t *testing.T) {
		for _, tt := range deliveries {
			t.Run(tt.name, func(t *testing.T) {
				f := open(t)
				if err := f.Sender.Send(t.Context(), tt.message); err != nil {
					t.Fatalf("Send: %v", err)
				}
				got := f.Received(t)
				if len(got) != 1 {
					t.Fatalf("received %d mails, want 1", len(got))
				}
				if f.OwnEnvelope {
					got[0].EnvelopeFrom = tt.want.EnvelopeFrom
				}
				if diff := difference(got[0], tt.want); diff != "" {
					t.Error(diff)
				}
			})
		}
	})

	t.Run("refuses", func(t *testing.T) {
		for _, tt := range refusals {
			t.Run(tt.name, func(t *testing.T) {
				f := open(t)
				m := plain()
				tt.spoil(&m)
				err := f.Sender.Send(t.Context(), m)
				refusal, ok := errors.AsType[*mail.Error](err)
				if !ok {
					t.Fatalf("Send returned %v, want a *mail.Error", err)
				}
				if refusal.Op != mail.OpCompose || refusal.Temporary {
					t.Errorf("refused with op %q, temporary %v; want %q, false", refusal.Op, refusal.Temporary, mail.OpCompose)
				}
				if !strings.Contains(err.Error(), tt.says) {
					t.Errorf("error is %q, want it to say %q", err, tt.says)
				}
				if got := f.Received(t); len(got) != 0 {
					t.Errorf("delivered all the same: %+v", got)
				}
			})
		}
	})

	t.Run("ended context", func(t *testing.T) {
		f := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := f.Sender.Send(ctx, plain())
		if !errors.Is(err, context.Canceled) || !mail.Temporary(err) {
			t.Errorf("Send returned %v, temporary %v; want a temporary context.Canceled", err, mail.Temporary(err))
		}
		if _, ok := errors.AsType[*mail.Error](err); !ok {
			t.Errorf("Send returned a %T, want a *mail.Error", err)
		}
		if got := f.Received(t); len(got) != 0 {
			t.Errorf("delivered all the same: %+v", got)
		}
	})

	t.Run("handing over", func(t *testing.T) {
		f := open(t)
		carrier, ok := f.Sender.(mail.TrackedSender)
		if !ok {
			t.Skip("does not say when it hands over")
		}
		handed := 0
		hand := func() error {
			handed++
			if got := f.Received(t); len(got) != 0 {
				t.Errorf("delivered before it is handed over: %+v", got)
			}
			return nil
		}
		spoiled := plain()
		spoiled.To = nil
		if _, err := carrier.SendTracked(t.Context(), spoiled, hand); err == nil || handed != 0 {
			t.Errorf("SendTracked of an invalid message: %v, handed over %d times; want an error, none", err, handed)
		}
		changed := errors.New("changed my mind")
		_, err := carrier.SendTracked(t.Context(), plain(), func() error { return changed })
		if _, ok := errors.AsType[*mail.Error](err); !ok || !errors.Is(err, changed) {
			t.Errorf("SendTracked with a failing handing returned %v, want a *mail.Error that is %v", err, changed)
		}
		calls := 0
		_, err = carrier.SendTracked(t.Context(), plain(), func() error {
			if calls++; calls > 1 {
				return changed
			}
			return nil
		})
		if e, ok := errors.AsType[*mail.Error](err); !ok || !errors.Is(err, changed) || e.Unclear || calls != 2 {
			t.Errorf("SendTracked with a failing completion returned %v after %d calls, want a clear *mail.Error that is %v after 2", err, calls, changed)
		}
		if _, err := carrier.SendTracked(t.Context(), plain(), hand); err != nil || handed != 2 {
			t.Errorf("SendTracked: %v, handed over %d times; want twice", err, handed)
		}
		if got := f.Received(t); len(got) != 1 {
			t.Errorf("received %d mails, want 1", len(got))
		}
	})

	t.Run("order", func(t *testing.T) {
		f := open(t)
		for i := range 3 {
			m := plain()
			m.Subject = fmt.Sprint("Mail ", i)
			if err := f.Sender.Send(t.Context(), m); err != nil {
				t.Fatalf("Send: %v", err)
			}
		}
		want := []string{"Mail 0", "Mail 1", "Mail 2"}
		if got := subjects(f.Received(t)); !slices.Equal(got, want) {
			t.Errorf("received %q, want %q", got, want)
		}
	})

	t.Run("concurrent use", func(t *testing.T) {
		f := open(t)
		var wg sync.WaitGroup
		var want []string
		for i := range 10 {
			m := plain()
			m.Subject = fmt.Sprint("Mail ", i)
			want = append(want, m.Subject)
			wg.Go(func() {
				if err := f.Sender.Send(t.Context(), m); err != nil {
					t.Errorf("Send: %v", err)
				}
			})
		}
		wg.Wait()
		got := subjects(f.Received(t))
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("received %q, want %q", got, want)
		}
	})
}

func plain() mail.Message {
	return mail.Message{
		From:    mail.Address{Name: "Kickstand", Address: "desk@rentals.example"},
		To:      []mail.Address{{Address: "rider@example.com"}},
		Subject: "Your bike",
		Text:    "It is ready.\n",
	}
}

var deliveries = []struct {
	name    string
	message mail.Message
	want    Received
}{
	{
		name:    "text",
		message: plain(),
		want: Received{
			EnvelopeFrom: "desk@rentals.example", From: "desk@rentals.example", To: []string{"rider@example.com"},
			Subject: "Your bike", Text: "It is ready.\n",
		},
	},
	{
		name: "text and html",
		message: mail.Message{
			From:    mail.Address{Address: "desk@rentals.example"},
			To:      []mail.Address{{Name: "Rider", Address: "rider@example.com"}},
			Subject: "Your bike", Text: "It is ready.", HTML: "<p>It is <b>ready</b>.</p>",
		},
		want: Received{
			EnvelopeFrom: "desk@rentals.example", From: "desk@rentals.example", To: []string{"rider@example.com"},
			Subject: "Your bike", Text: "It is ready.", HTML: "<p>It is <b>ready</b>.</p>",
		},
	},
	{
		name: "other alphabets",
		message: mail.Message{
			From:    mail.Address{Name: "Fahrräder Møller", Address: "desk@rentals.example"},
			To:      []mail.Address{{Name: "李小龍", Address: "rider@example.com"}},
			Subject: "Ihr Fahrrad ist für Sie bereit und wartet schon sehr lange auf Sie — 自転車 🚲",
			Text:    "Grüße\n自転車 🚲\n", HTML: "<p>Grüße</p>",
			Attachments: []mail.Attachment{{Name: "Quittung für März.pdf", ContentType: "application/pdf", Content: []byte("%PDF-1.7")}},
		},
		want: Received{
			EnvelopeFrom: "desk@rentals.example", From: "desk@rentals.example", To: []string{"rider@example.com"},
			Subject: "Ihr Fahrrad ist für Sie bereit und wartet schon sehr lange auf Sie — 自転車 🚲",
			Text:    "Grüße\n自転車 🚲\n", HTML: "<p>Grüße</p>",
			Attachments: []string{"Quittung für März.pdf"},
		},
	},
	{
		name: "several recipients, no bounces, own headers",
		message: mail.Message{
			From:         mail.Address{Address: "desk@rentals.example"},
			To:           []mail.Address{{Address: "a@example.com"}, {Address: "b@example.com"}},
			Cc:           []mail.Address{{Address: "c@example.com"}},
			ReplyTo:      mail.Address{Address: "replies@rentals.example"},
			EnvelopeFrom: "<>",
			Subject:      "Re: Bike [Ticket #7]",
			Text:         "We have your request.",
			Headers: []mail.Header{
				{Name: "References", Value: strings.Repeat("<0123456789abcdef@mail.example.com> ", 19) + "<last@mail.example.com>"},
				{Name: "Auto-Submitted", Value: "auto-replied"},
				{Name: "X-Note", Value: "für Sie"},
			},
		},
		want: Received{
			EnvelopeFrom: "<>", From: "desk@rentals.example", To: []string{"a@example.com", "b@example.com", "c@example.com"},
			Subject: "Re: Bike [Ticket #7]", Text: "We have your request.",
			Headers: []mail.Header{
				{Name: "References", Value: strings.Repeat("<0123456789abcdef@mail.example.com> ", 19) + "<last@mail.example.com>"},
				{Name: "Auto-Submitted", Value: "auto-replied"},
				{Name: "X-Note", Value: "für Sie"},
			},
		},
	},
	{
		name: "bounce address",
		message: mail.Message{
			From:         mail.Address{Address: "desk@rentals.example"},
			To:           []mail.Address{{Address: "rider@example.com"}},
			EnvelopeFrom: "bounce+rider=example.com@rentals.example",
			Subject:      "Hello", Text: "Hello",
		},
		want: Received{
			EnvelopeFrom: "bounce+rider=example.com@rentals.example", From: "desk@rentals.example", To: []string{"rider@example.com"},
			Subject: "Hello", Text: "Hello",
		},
	},
	{
		name: "awkward text",
		message: mail.Message{
			From:    mail.Address{Address: "desk@rentals.example"},
			To:      []mail.Address{{Address: "rider@example.com"}},
			Subject: "Hello",
			Text:    ".\n..\nFrom me\ntrailing \n=20 " + strings.Repeat("long", 600) + "\n\n.\n",
		},
		want: Received{
			EnvelopeFrom: "desk@rentals.example", From: "desk@rentals.example", To: []string{"rider@example.com"},
			Subject: "Hello",
			Text:    ".\n..\nFrom me\ntrailing \n=20 " + strings.Repeat("long", 600) + "\n\n.\n",
		},
	},
	{
		name: "awkward subject",
		message: mail.Message{
			From:    mail.Address{Address: "desk@rentals.example"},
			To:      []mail.Address{{Address: "rider@example.com"}},
			Subject: "  two  spaces, =?utf-8?q?not_encoded?= and " + strings.Repeat("long", 400) + " ",
			Text:    "Hello",
		},
		want: Received{
			EnvelopeFrom: "desk@rentals.example", From: "desk@rentals.example", To: []string{"rider@example.com"},
			Subject: "  two  spaces, =?utf-8?q?not_encoded?= and " + strings.Repeat("long", 400) + " ",
			Text:    "Hello",
		},
	},
}

var refusals = []struct {
	name  string
	spoil func(*mail.Message)
	says  string
}{
	{"no sender", func(m *mail.Message) { m.From = mail.Address{} }, `from: address "" is not of the form user@host`},
	{"no recipient", func(m *mail.Message) { m.To = nil }, "no recipient"},
	{"recipient without host", func(m *mail.Message) { m.To[0].Address = "rider" }, `to: address "rider" is not of the form user@host`},
	{"two addresses in one", func(m *mail.Message) { m.To[0].Address = "a@example.com,b@example.com" }, "to: address"},
	{"address closes its bracket", func(m *mail.Message) { m.To[0].Address = "a@example.com> NOTIFY=NEVER <b@example.com" }, "to: address"},
	{"address with space", func(m *mail.Message) { m.To[0].Address = "a@example.com SIZE=1" }, "to: address"},
	{"line break in recipient", func(m *mail.Message) { m.To[0].Address = "a@example.com\r\nRCPT TO:<b@example.com>" }, "contains a line break"},
	{"NUL in recipient", func(m *mail.Message) { m.To[0].Address = "a\x00@example.com" }, "contains a NUL"},
	{"line break in name", func(m *mail.Message) { m.To[0].Name = "A\nBcc: b@example.com" }, "contains a line break"},
	{"line break in Cc name", func(m *mail.Message) {
		m.Cc = []mail.Address{{Name: "A\rB", Address: "c@example.com"}}
	}, "contains a line break"},
	{"line break in sender name", func(m *mail.Message) { m.From.Name = "A\r\n\r\nbody" }, "contains a line break"},
	{"line break in reply-to", func(m *mail.Message) {
		m.ReplyTo = mail.Address{Name: "A\nB", Address: "c@example.com"}
	}, "reply-to: name"},
	{"line break in envelope sender", func(m *mail.Message) { m.EnvelopeFrom = "a@example.com\r\nDATA" }, "envelope sender: address"},
	{"LF in subject", func(m *mail.Message) { m.Subject = "Hello\nBcc: b@example.com" }, "subject: contains a line break"},
	{"CR in subject", func(m *mail.Message) { m.Subject = "Hello\rBcc: b@example.com" }, "subject: contains a line break"},
	{"NUL in subject", func(m *mail.Message) { m.Subject = "Hello\x00" }, "subject: contains a NUL"},
	{"line break in header value", header("X-Note", "a\r\nBcc: b@example.com"), `header "X-Note": contains a line break`},
	{"folded header value", header("X-Note", "a\r\n b"), `header "X-Note": contains a line break`},
	{"NUL in header value", header("X-Note", "a\x00b"), `header "X-Note": contains a NUL`},
	{"line break in header name", header("X-Note\r\nBcc", "b@example.com"), "name must be 1 to 70 letters"},
	{"colon in header name", header("X-Note:", "a"), "name must be 1 to 70 letters"},
	{"header name that is not ASCII", header("X-Nöte", "a"), "name must be 1 to 70 letters"},
	{"empty header name", header("", "a"), "name must be 1 to 70 letters"},
	{"empty header value", header("X-Note", " "), "is empty"},
	{"second Subject", header("subject", "a"), "is reserved"},
	{"Bcc", header("Bcc", "b@example.com"), "is reserved"},
	{"Content-Type", header("CONTENT-TYPE", "text/html"), "is reserved"},
	{"word longer than a line", header("X-Note", strings.Repeat("a", 1000)), "has a word of 1000 bytes"},
	{"line break in message id", func(m *mail.Message) { m.MessageID = "<a@b>\r\nBcc: <c@d>" }, "message id"},
	{"message id without right side", func(m *mail.Message) { m.MessageID = "<a>" }, "message id"},
	{"two message ids", func(m *mail.Message) { m.MessageID = "<a@b> <c@d>" }, "message id"},
	{"line break in attachment name", func(m *mail.Message) {
		m.Attachments = []mail.Attachment{{Name: "a\r\nX: y"}}
	}, "attachment 1: name"},
	{"line break in attachment type", func(m *mail.Message) {
		m.Attachments = []mail.Attachment{{Name: "a", ContentType: "text/plain\r\nX: y"}}
	}, "attachment 1: content type"},
	{"too many recipients", func(m *mail.Message) {
		for i := range 101 {
			m.To = append(m.To, mail.Address{Address: fmt.Sprintf("a%d@example.com", i)})
		}
	}, "more than 100 recipients"},
	{"too large", func(m *mail.Message) {
		m.Attachments = []mail.Attachment{{Name: "a", Content: make([]byte, 20<<20)}}
	}, "over the limit of 26214400"},
}

func header(name, value string) func(*mail.Message) {
	return func(m *mail.Message) { m.Headers = []mail.Header{{Name: name, Value: value}} }
}

func subjects(list []Received) []string {
	var s []string
	for _, r := range list {
		s = append(s, r.Subject)
	}
	return s
}

func difference(got, want Received) string {
	for _, body := range []*string{&got.Text, &got.HTML, &want.Text, &want.HTML} {
		*body = strings.TrimRight(*body, "\n")
	}
	if g, w := fmt.Sprintf("%+q", got), fmt.Sprintf("%+q", want); g != w {
		return "received\n" + g + "\nwant\n" + w
	}
	return ""
}
