package email

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

func received() time.Time { return time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC) }

func testParser() *Parser {
	return NewParser(Config{TrustedAuthServers: []string{"mx.acme.example"}, OwnDomains: []string{"acme.example"}})
}

// read parses a mail with the line ends of this file.
func read(t *testing.T, raw string, env Envelope) *channel.Message {
	t.Helper()
	env.Received = received()
	if env.Recipient == "" {
		env.Recipient = "support@acme.example"
	}
	m, err := testParser().ParseRaw([]byte(raw), env)
	if err != nil {
		t.Fatalf("ParseRaw(%.60q): %v", raw, err)
	}
	return m
}

const passes = "Authentication-Results: mx.acme.example; dkim=pass header.d=dialpad.com; dmarc=pass header.from=dialpad.com\n"

func TestClassify(t *testing.T) {
	const null, known = "<>", "ana@client.example"
	for _, tt := range []struct {
		name      string
		envelope  string // "" without envelope
		header    string
		class     channel.Class
		rule      string
		generated bool
		noAnswer  bool
	}{
		{"ordinary", known, "From: ana@client.example\nSubject: Lamp\n", "inbound", "no other rule", false, false},

		{"auto-replied", known, "From: ana@client.example\nAuto-Submitted: auto-replied\n", "auto_reply", "auto-submitted: auto-replied", false, true},
		{"auto-replied with parameters", known, "From: ana@client.example\nAuto-Submitted: auto-replied; owner-email=\"x@y\"\n", "auto_reply", "auto-submitted: auto-replied", false, true},
		{"auto-generated", known, "From: ana@client.example\nAuto-Submitted: auto-generated (failure)\n", "auto_reply", "auto-submitted: auto-generated", true, true},
		{"auto-notified", known, "From: ana@client.example\nAuto-Submitted: Auto-Notified; x=y\n", "auto_reply", "auto-submitted: auto-notified", true, true},
		{"not auto-submitted", known, "From: ana@client.example\nAuto-Submitted: no\n", "inbound", "no other rule", false, false},
		{"x-autoreply", known, "From: ana@client.example\nX-Autoreply: yes\n", "auto_reply", "x-autoreply", false, true},
		{"x-autoreply no", known, "From: ana@client.example\nX-Autoreply: no\n", "inbound", "no other rule", false, false},
		{"x-autorespond", known, "From: ana@client.example\nX-Autorespond: Lamp\n", "auto_reply", "x-autorespond", false, true},
		{"x-autoresponse false", known, "From: ana@client.example\nX-Autoresponse: False\n", "inbound", "no other rule", false, false},
		{"x-auto-reply-from", known, "From: ana@client.example\nX-Auto-Reply-From: a@b\n", "auto_reply", "x-auto-reply-from", false, true},
		{"precedence auto_reply", known, "From: ana@client.example\nPrecedence: auto_reply\n", "auto_reply", "precedence: auto_reply", false, true},
		{"x-precedence auto_reply", known, "From: ana@client.example\nX-Precedence: auto_reply\n", "auto_reply", "x-precedence: auto_reply", false, true},
		{"autoresponder", known, "From: ana@client.example\nDelivered-To: Autoresponder\n", "auto_reply", "delivered-to: autoresponder", false, true},
		{"inbox rules loop", known, "From: ana@client.example\nX-MS-Exchange-Inbox-Rules-Loop: a@b\n", "auto_reply", "x-ms-exchange-inbox-rules-loop", false, true},
		{"null sender, alone", null, "From: ana@client.example\nSubject: Lamp\n", "auto_reply", "empty return-path", true, true},
		{"null sender, in answer", null, "From: ana@client.example\nIn-Reply-To: <a@b>\n", "auto_reply", "empty return-path", false, true},
		{"null return-path", "", "Return-Path: <>\nFrom: ana@client.example\n", "auto_reply", "empty return-path", true, true},
		{"return-path that is no address is not null", "", "Return-Path: <someone>\nFrom: ana@client.example\n", "inbound", "no other rule", false, false},
		{"subject, in answer", known, "From: ana@client.example\nSubject: Automatic reply: Lamp\nIn-Reply-To: <a@b>\n", "auto_reply", "subject: automatic reply", false, true},
		{"subject, in answer by its tag", known, "From: ana@client.example\nSubject: Abwesenheitsnotiz: [Ticket #3] Lampe\n", "auto_reply", "subject: abwesenheitsnotiz", false, true},
		{"subject in French", known, "From: ana@client.example\nSubject: =?utf-8?q?R=C3=A9ponse_automatique_:_Lampe?=\nReferences: <a@b>\n", "auto_reply", "subject: réponse automatique", false, true},
		{"subject, to nobody's mail", known, "From: ana@client.example\nSubject: Out of office chair broken\n", "inbound", "no other rule", false, false},

		{"suppress is no evidence", known, "From: ana@client.example\nX-Auto-Response-Suppress: DR, OOF\n", "inbound", "no other rule", false, true},
		{"suppress of receipts only", known, "From: ana@client.example\nX-Auto-Response-Suppress: DR, RN\n", "inbound", "no other rule", false, false},
		{"list is no evidence", known, "From: ana@client.example\nList-Id: <x.acme.example>\n", "inbound", "no other rule", false, true},
		{"bulk is no evidence", known, "From: ana@client.example\nPrecedence: bulk\n", "inbound", "no other rule", false, true},
		{"no-reply", known, "From: No-Reply@client.example\n", "inbound", "no other rule", false, true},
		{"our own header", known, "From: ana@client.example\nX-Helpdesk-Message: 1.2\n", "inbound", "no other rule", false, true},
		{"a loop", known, "From: ana@client.example\n" + strings.Repeat("Received: from a by b\n", 51), "inbound", "no other rule", false, true},

		{"null sender and daemon", null, "From: MAILER-DAEMON@mail.example\nSubject: hello\n", "bounce", "empty return-path, from mailer-daemon", false, true},
		{"daemon with a return path", known, "From: postmaster@mail.example\nSubject: hello\n", "inbound", "no other rule", false, true},
		{"failed recipients", null, "From: root@mail.example\nX-Failed-Recipients: ana@client.example\n", "bounce", "x-failed-recipients", false, true},
		{"undeliverable from the postmaster", known, "From: postmaster@mail.example\nSubject: Undeliverable: Lamp\n", "bounce", "undeliverable subject, from postmaster", false, true},
		{"undeliverable in a customer's words", known, "From: ana@client.example\nSubject: Undelivered parcel\n", "inbound", "no other rule", false, false},
		{"a bounce passed on", known, "From: ana@client.example\nSubject: Fwd: Undelivered Mail Returned to Sender\n", "inbound", "no other rule", false, false},
		{"report without parts", null, "From: MAILER-DAEMON@mail.example\nContent-Type: multipart/report; report-type=delivery-status\n", "bounce", "multipart/report; report-type=delivery-status", false, true},
		{"a bounce before an automatic answer", null, "From: MAILER-DAEMON@mail.example\nAuto-Submitted: auto-replied\n", "bounce", "empty return-path, from mailer-daemon", false, true},

		{"voicemail", known, passes + "From: Dialpad <noreply@dialpad.com>\nSubject: New voicemail from (415) 555-2671\n", "dialpad_voicemail", "voicemail: subject, from dialpad.com", false, true},
		{"voicemail before an automatic answer", known, passes + "From: noreply@dialpad.com\nSubject: Voicemail\nAuto-Submitted: auto-generated\n", "dialpad_voicemail", "voicemail: subject, from dialpad.com", false, true},
		{"voicemail by its audio", known, passes + "From: noreply@dialpad.com\nSubject: New message\nContent-Type: audio/mpeg\n", "dialpad_voicemail", "voicemail: audio, from dialpad.com", false, true},
		{"voicemail that nobody vouches for", known, "From: noreply@dialpad.com\nSubject: New voicemail\n", "inbound", "no other rule", false, true},
		{"voicemail vouched for by a stranger", known, "Authentication-Results: mx.evil.example; dkim=pass header.d=dialpad.com\nFrom: noreply@dialpad.com\nSubject: New voicemail\n", "inbound", "no other rule", false, true},
		{"another mail of the voice provider", known, passes + "From: billing@dialpad.com\nSubject: Your invoice\n", "inbound", "no other rule", false, false},
	} {
		env := Envelope{From: tt.envelope, HasFrom: tt.envelope != ""}
		d := read(t, tt.header+"\nHello\n", env).Mail
		if d.Class != tt.class || d.Rule != tt.rule || d.Generated != tt.generated || d.NoAutoAnswer != tt.noAnswer {
			t.Errorf("%s: got %s, rule %q, generated %t, no answer %t; want %s, rule %q, generated %t, no answer %t", tt.name,
				d.Class, d.Rule, d.Generated, d.NoAutoAnswer, tt.class, tt.rule, tt.generated, tt.noAnswer)
		}
	}
}

func TestCaller(t *testing.T) {
	for _, tt := range []struct{ subject, body, want string }{
		{"New voicemail from (415) 555-2671", "Call back at +44 20 7946 0958", "+14155552671"},
		{"New voicemail", "From: +44 20 7946 0958\nDuration 0:32", "+442079460958"},
		{"New voicemail", "Duration 0:32, on 2026-11-20", ""},
	} {
		m := read(t, passes+"From: noreply@dialpad.com\nSubject: "+tt.subject+"\n\n"+tt.body+"\n", Envelope{})
		if m.Mail.Caller != tt.want {
			t.Errorf("caller of %q, %q = %q, want %q", tt.subject, tt.body, m.Mail.Caller, tt.want)
		}
	}
}

func TestAuthentication(t *testing.T) {
	for _, tt := range []struct {
		name               string
		header             string
		env                Envelope
		passed, unverified bool
	}{
		{"nothing", "From: ana@client.example\n", Envelope{}, false, false},
		{"dkim", "Authentication-Results: mx.acme.example; dkim=pass header.d=client.example\nFrom: ana@client.example\n", Envelope{}, true, false},
		{"dkim of a subdomain", "Authentication-Results: MX.ACME.EXAMPLE 1; dkim=pass (2048-bit key) header.i=@mail.client.example\nFrom: ana@client.example\n", Envelope{}, true, false},
		{"dkim of another", "Authentication-Results: mx.acme.example; dkim=pass header.d=evil.example\nFrom: ana@client.example\n", Envelope{}, false, false},
		{"dkim of a neighbour under a public suffix", "Authentication-Results: mx.acme.example; dkim=pass header.d=evil.co.uk\nFrom: ana@client.co.uk\n", Envelope{}, false, false},
		{"second signature", "Authentication-Results: mx.acme.example; dkim=fail header.d=list.example; dkim=pass header.d=client.example\nFrom: ana@client.example\n", Envelope{}, true, false},
		{"spf", "Authentication-Results: mx.acme.example; spf=pass smtp.mailfrom=bounce@client.example\nFrom: ana@client.example\n", Envelope{}, true, false},
		{"spf of another", "Authentication-Results: mx.acme.example; spf=pass smtp.mailfrom=evil.example\nFrom: ana@client.example\n", Envelope{}, false, false},
		{"dmarc fails", "Authentication-Results: mx.acme.example; dmarc=fail header.from=client.example\nFrom: ana@client.example\n", Envelope{}, false, true},
		{"dmarc fails by a stranger's word", "Authentication-Results: mx.evil.example; dmarc=fail header.from=client.example\nFrom: ana@client.example\n", Envelope{}, false, false},
		{"the topmost counts", "Authentication-Results: mx.acme.example; dkim=fail header.d=client.example\nAuthentication-Results: mx.acme.example; dkim=pass header.d=client.example\nFrom: ana@client.example\n", Envelope{}, false, false},
		{"one header for each check", "Authentication-Results: mx.acme.example; dmarc=none header.from=client.example\nAuthentication-Results: mx.acme.example; dkim=pass header.d=client.example\nFrom: ana@client.example\n", Envelope{}, true, false},
		{"result in a comment", "Authentication-Results: mx.acme.example; spf=fail (sender x; dkim=pass header.d=client.example) smtp.mailfrom=evil.example\nFrom: ana@client.example\n", Envelope{}, false, false},
		{"result in a quoted address", "Authentication-Results: mx.acme.example; spf=fail smtp.mailfrom=\"x; dkim=pass header.d=client.example\"@evil.example\nFrom: ana@client.example\n", Envelope{}, false, false},
		{"comment that never ends", "Authentication-Results: mx.acme.example; dkim=pass header.d=client.example (x\nFrom: ana@client.example\n", Envelope{}, false, false},
		{"two authors", "Authentication-Results: mx.acme.example; dkim=pass header.d=client.example\nFrom: ana@client.example, bob@evil.example\n", Envelope{}, false, false},
		{"the converter's spf", "From: ana@client.example\n", Envelope{SPF: "pass", SPFDomain: "client.example"}, true, false},
		{"the converter's spf for another", "From: ana@client.example\n", Envelope{SPF: "pass", SPFDomain: "evil.example"}, false, false},
		{"the converter's spf fails", "From: ana@client.example\n", Envelope{SPF: "softfail", SPFDomain: "client.example"}, false, false},
	} {
		d := read(t, tt.header+"\nHi\n", tt.env).Mail
		if d.Proof.Proven() != tt.passed || d.Proof.Failed() != tt.unverified {
			t.Errorf("%s: got %+v; want proven %t, failed %t", tt.name, d.Proof, tt.passed, tt.unverified)
		}
	}
}

func TestCustomer(t *testing.T) {
	for _, tt := range []struct{ name, header, want, sender string }{
		{"sender", "From: Ana <ana@client.example>\n", "ana@client.example", "ana@client.example"},
		{"reply-to", "From: form@shop.example\nReply-To: ana@client.example\n", "ana@client.example", "form@shop.example"},
		{"reply-to of ours", "From: ana@client.example\nReply-To: sales@acme.example\n", "ana@client.example", "ana@client.example"},
		{"reply-to below our domain", "From: ana@client.example\nReply-To: x@help.acme.example\n", "ana@client.example", "ana@client.example"},
		{"reply-to is the recipient", "From: ana@client.example\nReply-To: Support+x@acme.example\n", "ana@client.example", "ana@client.example"},
		{"two in reply-to", "From: ana@client.example\nReply-To: a@b.example, c@d.example\n", "ana@client.example", "ana@client.example"},
		{"two headers of reply-to", "From: ana@client.example\nReply-To: a@b.example\nReply-To: c@d.example\n", "ana@client.example", "ana@client.example"},
		{"broken reply-to", "From: ana@client.example\nReply-To: <>\n", "ana@client.example", "ana@client.example"},
		{"two authors", "From: ana@client.example, bob@client.example\n", "ana@client.example", "ana@client.example"},
		{"no from", "Sender: bob@client.example\nSubject: x\n", "bob@client.example", "bob@client.example"},
		{"empty from", "From:\nSubject: x\n", "envelope@client.example", "envelope@client.example"},
		{"from without brackets around a name", "From: Ana Lind ana@client.example\n", "ana@client.example", "ana@client.example"},
		{"from with stray characters", "From: \"Ana, Lind\" <<ana@client.example>>\n", "ana@client.example", "ana@client.example"},
		{"encoded name", "From: =?iso-8859-1?q?J=F6rg?= <ana@client.example>\n", "ana@client.example", "ana@client.example"},
	} {
		m := read(t, tt.header+"\nHi\n", Envelope{From: "envelope@client.example", HasFrom: true})
		if m.From.Email != tt.want || m.Mail.Sender.Email != tt.sender {
			t.Errorf("%s: from %q, sender %q; want %q, %q", tt.name, m.From.Email, m.Mail.Sender.Email, tt.want, tt.sender)
		}
	}
}

func TestThreading(t *testing.T) {
	for _, tt := range []struct {
		name, header string
		want         channel.Mail
	}{
		{"ids", "Message-ID: <a@b>\nIn-Reply-To: <c@d> <e@f>\nReferences: <r@s>\n <c@d>\n", channel.Mail{MessageID: "a@b", InReplyTo: []string{"c@d", "e@f"}, References: []string{"r@s", "c@d"}}},
		{"prose around an id", "In-Reply-To: Your message of Friday <c@d>\n", channel.Mail{InReplyTo: []string{"c@d"}}},
		{"bare ids", "Message-ID: a@b\nReferences: c@d e@f\n", channel.Mail{MessageID: "a@b", References: []string{"c@d", "e@f"}}},
		{"joined ids", "References: <c@d><e@f>\n", channel.Mail{References: []string{"c@d", "e@f"}}},
		{"two message ids", "Message-ID: <a@b>\nMessage-ID: <c@d>\n", channel.Mail{MessageID: "a@b"}},
		{"unusable message id", "Message-ID: <>\nMessage-ID: <c@d>\n", channel.Mail{MessageID: "c@d"}},
		{"repeated references", "References: <c@d> <c@d>\n", channel.Mail{References: []string{"c@d"}}},
		{"tag", "Subject: Lamp [Ticket #1042]\n", channel.Mail{TicketTag: 1042}},
		{"tag after prefixes", "Subject: AW: SV: Re: [ticket #7] Lamp\n", channel.Mail{TicketTag: 7}},
		{"last tag", "Subject: [Ticket #1] and [Ticket #22]\n", channel.Mail{TicketTag: 22}},
		{"encoded tag", "Subject: =?utf-8?b?W1RpY2tldCAjOV0gw6Q=?=\n", channel.Mail{TicketTag: 9}},
		{"tag of no number", "Subject: [Ticket #x] [Ticket #99999999999999999999]\n", channel.Mail{}},
	} {
		d := read(t, "From: ana@client.example\n"+tt.header+"\nHi\n", Envelope{}).Mail
		got := channel.Mail{MessageID: d.MessageID, InReplyTo: d.InReplyTo, References: d.References, TicketTag: d.TicketTag}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestManyReferences(t *testing.T) {
	var b strings.Builder
	for i := range 500 {
		b.WriteString(" <" + strings.Repeat("x", i%7) + "." + string(rune('a'+i%26)) + "." + time.Duration(i).String() + "@d>\n")
	}
	d := read(t, "From: ana@client.example\nReferences:"+b.String()+"\nHi\n", Envelope{}).Mail
	if got := len(d.References); got != 100 {
		t.Fatalf("%d references, want 100", got)
	}
	if first, last := d.References[0], d.References[99]; first != ".a.0s@d" || last != "xx.f.499ns@d" {
		t.Errorf("references from %q to %q, want the first and the last of all", first, last)
	}
}
