package inbound_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/mailauth/mailauthtest"
)

// withDNS sets the DNS lookup of proofs.
func withDNS(lookup mailauth.Lookup) func(*house) {
	return func(h *house) { h.txt = mailauth.NewResolver(lookup).TXT }
}

func signedMail(t *testing.T, domain, body string) string {
	t.Helper()
	return mailauthtest.Sign(t, mailText(body+"@"+domain, "ana@"+domain, "help@acme.example", body), mailauthtest.Signature{Domain: domain})
}

// proofs returns the verdicts and reasons of all messages of org-1, by text.
func (h *house) proofs(t *testing.T) map[string]string {
	t.Helper()
	list := make(map[string]string)
	for _, e := range h.list(t, inbound.Processed) {
		messages, err := h.desk.Messages(t.Context(), h.db, "org-1", result(t, e).TicketID)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			a := m.Authentication()
			if a == nil {
				t.Fatalf("no verdict: %+v", m)
			}
			list[strings.TrimSpace(m.Text)] = string(a.Verdict) + ": " + a.Reason
		}
	}
	return list
}

// TestSignedMailIsProven: the worker uses DNS, the request path does not.
func TestSignedMailIsProven(t *testing.T) {
	z := mailauthtest.Zone{}
	z.Publish("client.example")
	var mu sync.Mutex
	var asked []string
	h := start(t, withDNS(func(ctx context.Context, name string) ([]string, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, name)
		return z.Lookup(ctx, name)
	}))
	h.connect(t, "email-raw", "help@acme.example")
	large := mailauthtest.Sign(t, mailText("large@client.example", "ana@client.example", "help@acme.example", "large"+strings.Repeat("\r\nfiller", 30_000)), mailauthtest.Signature{Domain: "client.example"})
	for _, raw := range []string{signedMail(t, "client.example", "small"), large, mailText("bare@client.example", "ana@client.example", "help@acme.example", "bare")} {
		h.wantAnswer(t, mailRequest(raw, secretOf("help@acme.example"), "help@acme.example"), 200, accepted)
	}
	if asked != nil {
		t.Errorf("the request path asked for %v", asked)
	}
	h.until(t, "message.created", 3)
	got := h.proofs(t)
	for text, verdict := range got {
		want := "proven: DKIM signature of client.example matches the From address"
		if text == "bare" {
			want = "unproven: there is no DKIM signature of client.example, and no trusted server reports SPF"
		}
		if verdict != want {
			t.Errorf("%.10s: %s", text, verdict)
		}
	}
	slices.Sort(asked)
	if len(got) != 3 || !slices.Equal(slices.Compact(asked), []string{"s1._domainkey.client.example"}) {
		t.Errorf("%d messages, asked for %v", len(got), asked)
	}
}

// TestHangingDNS: a mail with a hanging lookup is retried once and then processed unproven;
// other mail, large mail too, does not wait.
func TestHangingDNS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := mailauthtest.Zone{}
		z.Publish("client.example")
		h := startSQLite(t, withDNS(func(ctx context.Context, name string) ([]string, error) {
			if strings.Contains(name, "slow") {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return z.Lookup(ctx, name)
		}))
		h.connect(t, "email-raw", "help@acme.example")
		post := func(raw string) {
			h.wantAnswer(t, mailRequest(raw, secretOf("help@acme.example"), "help@acme.example"), 200, accepted)
		}
		h.run(t)
		began := time.Now()
		// Two of these exceed the parsing memory.
		post(mailauthtest.Sign(t, mailText("1@slow.example", "eve@slow.example", "help@acme.example", "slow"+endlessText(30<<20)), mailauthtest.Signature{Domain: "slow.example"}))
		synctest.Wait() // it hangs
		post(signedMail(t, "client.example", "quick"))
		post(mailauthtest.Sign(t, mailText("l@client.example", "bob@client.example", "help@acme.example", "quick and large"+endlessText(12<<20)), mailauthtest.Signature{Domain: "client.example"}))
		for len(h.list(t, inbound.Processed)) < 2 {
			if synctest.Wait(); time.Since(began) > 3*time.Second {
				t.Fatalf("%d events processed after %s\n%s", len(h.list(t, inbound.Processed)), time.Since(began), h.logged())
			}
			time.Sleep(100 * time.Millisecond)
		}
		h.settled(t)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("took %s", took)
		}
		got := h.proofs(t)
		for text, verdict := range got {
			want := "proven: DKIM signature of client.example matches the From address"
			if strings.HasPrefix(text, "slow") {
				want = "unproven: DNS did not answer in time for the key of the DKIM signature of slow.example"
			}
			if verdict != want {
				t.Errorf("%.20s: %s", text, verdict)
			}
		}
		if len(got) != 3 {
			t.Errorf("%d messages", len(got))
		}
	})
}

// endlessText returns size bytes of lines.
func endlessText(size int) string { return strings.Repeat("\r\n"+strings.Repeat("x", 62), size/64) }

// TestBrokenDNS: the retry repairs one failed lookup.
func TestBrokenDNS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := mailauthtest.Zone{}
		z.Publish("client.example")
		failures := 1
		h := startSQLite(t, withDNS(func(ctx context.Context, name string) ([]string, error) {
			if failures--; failures >= 0 {
				return nil, errors.New("server misbehaving")
			}
			return z.Lookup(ctx, name)
		}))
		h.connect(t, "email-raw", "help@acme.example")
		h.wantAnswer(t, mailRequest(signedMail(t, "client.example", "one"), secretOf("help@acme.example"), "help@acme.example"), 200, accepted)
		h.run(t)
		h.settled(t)
		if got := h.proofs(t)["one"]; got != "proven: DKIM signature of client.example matches the From address" {
			t.Errorf("got %s", got)
		}
	})
}

// TestMailboxNamesServers: the verdicts of the servers in a mailbox's settings count, and only for this
// mailbox.
func TestMailboxNamesServers(t *testing.T) {
	h := start(t, withDNS(mailauthtest.Zone{}.Lookup), func(h *house) { h.adapters = append(h.adapters, email.NewMailbox(email.Config{})) })
	box := func(address, servers string) connection.Connection {
		return h.connect(t, email.MailboxName, address, func(n *connection.New) {
			n.Secrets, n.Credentials = nil, map[string]string{email.CredentialIMAP: "imaps://mail.example", email.CredentialPassword: "secret"}
			n.Settings = map[string]string{email.SettingTrusted: servers}
		})
	}
	for _, c := range []connection.Connection{box("help@acme.example", "mx.acme.example"), box("sales@acme.example", "")} {
		var requests []*channel.Request
		for _, raw := range []string{
			mailText("1@client.example", "ana@client.example", c.Address, "bare "+c.Address), signedMail(t, "client.example", "signed "+c.Address),
		} {
			r := collected("Authentication-Results: mx.acme.example; dkim=pass header.d=client.example\r\n" + raw)
			r.Header.Set("X-Envelope-To", c.Address)
			requests = append(requests, r)
		}
		if err := h.Collect(t.Context(), &c, requests, func(context.Context, *db.Tx) ([]bool, error) { return []bool{true, true}, nil }); err != nil {
			t.Fatal(err)
		}
	}
	h.until(t, "message.created", 4)
	got := h.proofs(t)
	for text, verdict := range got {
		if proven := strings.HasPrefix(verdict, "proven: "); proven != strings.HasSuffix(text, "help@acme.example") {
			t.Errorf("%s: %s", text, verdict)
		}
	}
	if len(got) != 4 {
		t.Errorf("got %v", got)
	}
}
