package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestAttachment follows a file from a mail to an agent's download and to a webhook's
// receiver, which gets a signed link; no other client can open it.
func TestAttachment(t *testing.T) {
	t.Parallel()
	secret := "attachment-" + strings.Repeat("a", 20)
	flags := []string{"--data=" + t.TempDir(), "--database-url=" + dbtest.URL(t), "--allow-private-receivers", "--email-raw-secret=" + secret}
	command := func(args ...string) {
		t.Helper()
		if err := run(t.Context(), append(args, flags...), noEnvironment, nil, io.Discard, t.Output()); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	password := "long-enough-for-this"
	for _, org := range []string{"acme", "other"} {
		command("org", "create", "--name="+org)
		command("user", "create", "--email=admin@"+org+".example", "--password="+password, "--org="+org, "--role=admin")
	}
	command("channel", "connect", "email", "--org=acme", "--address=help@acme.example", "--secret="+secret)
	s := start(t, flags...)
	signIn := func(org string) *http.Client {
		c := browser(t)
		call(t, c, s.url, "auth.signInWithPassword", map[string]any{"email": "admin@" + org + ".example", "password": password}, nil)
		return c
	}
	insider, outsider := signIn("acme"), signIn("other")

	messages := make(chan []byte, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		messages <- body
	}))
	t.Cleanup(receiver.Close)
	call(t, insider, s.url, "webhooks.create", map[string]any{"url": receiver.URL, "events": []string{"message.created"}}, nil)

	raw := strings.ReplaceAll(`From: Ana <ana@client.example>
To: help@acme.example
Subject: A page
Message-ID: <page@client.example>
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=x

--x
Content-Type: text/plain

See the page.
--x
Content-Type: text/html; name="page.html"
Content-Disposition: attachment; filename="page.html"

<script>alert(1)</script>
--x--
`, "\n", "\r\n")
	if status, body := send(t, http.DefaultClient, mailRequest(s.url, secret, "ana@client.example", "help@acme.example", []byte(raw))); status != 200 {
		t.Fatalf("the mail was answered %d %s", status, body)
	}
	var event struct {
		Data struct {
			Message struct {
				Attachments []struct {
					Name, URL string
					Size      int
				}
			}
		}
	}
	select {
	case body := <-messages:
		if err := json.Unmarshal(body, &event); err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("no message was delivered")
	}
	files := event.Data.Message.Attachments
	if len(files) != 1 || files[0].Name != "page.html" {
		t.Fatalf("attachments %+v, want page.html", files)
	}
	page, _, signed := strings.Cut(files[0].URL, "?")
	if !signed {
		t.Errorf("the receiver got %s, which it cannot open", files[0].URL)
	}
	for _, who := range []struct {
		name   string
		client *http.Client
		url    string
		want   int
	}{
		{"a member", insider, page, 200}, {"a member of another organization", outsider, page, 404}, {"a stranger", browser(t), page, 401},
		{"the receiver", browser(t), files[0].URL, 200},
		{"a stranger who changed the link", browser(t), strings.Replace(files[0].URL, "until=", "until=9", 1), 404},
		{"a stranger who made up a link", browser(t), page + "?until=9999999999&sig=00", 404},
	} {
		resp, err := who.client.Get(who.url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != who.want {
			t.Errorf("%s got status %d (%v), want %d", who.name, resp.StatusCode, err, who.want)
		}
		if who.want == 200 {
			if !strings.Contains(string(body), "<script>") {
				t.Errorf("the content is %q", body)
			}
			// Saved, never executed.
			for name, want := range map[string]string{
				"Content-Type": "application/octet-stream", "Content-Disposition": "attachment; filename=page.html",
				"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox",
			} {
				if got := resp.Header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		} else if strings.Contains(string(body), "<script>") {
			t.Errorf("%s got the content", who.name)
		}
	}
	s.stop()
}
