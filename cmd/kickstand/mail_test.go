package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"
)

// TestMailStyles receives mail in every style and sends a reply by the delivery provider,
// which reports its state and receives mail itself.
func TestMailStyles(t *testing.T) {
	t.Parallel()
	provider := mailtest.NewProvider(t, nil)
	mux := http.NewServeMux()
	mux.Handle("/emails", provider)
	api := httptest.NewServer(mux)
	t.Cleanup(api.Close)
	mux.HandleFunc("GET /emails/receiving/{id}", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+provider.Key {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"id":%q,"to":["form@demo.example"],"raw":{"download_url":%q}}`, r.PathValue("id"), api.URL+"/raw/"+r.PathValue("id"))
	})
	mux.HandleFunc("GET /raw/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "Message-ID: <%s@client.example>\r\nFrom: ana@client.example\r\nTo: form@demo.example\r\nSubject: Helmet\r\n\r\nRawhelmet\r\n", path.Base(r.URL.Path))
	})
	key, err := email.NewParseKey()
	if err != nil {
		t.Fatal(err)
	}
	r := &metaRig{flags: []string{
		"--data=" + t.TempDir(), "--database-url=" + dbtest.URL(t), "--email-delivery-api-url=" + api.URL, "--email-delivery-api-key=" + provider.Key,
		"--email-form-secret=form", "--email-parse-public-key=" + key, "--email-json-token=json", "--email-raw-secret=raw", "--email-delivery-secret=delivery",
	}}
	command(t, nil, append([]string{"org", "create", "--name=Acme", "--plan=business", "--fleet-rate-limit=1000000"}, r.flags...)...)
	command(t, nil, append([]string{"channel", "connect", "email-form", "--org=acme", "--address=" + demoFormBox}, r.flags...)...)
	var made struct{ Key string }
	command(t, &made, append([]string{"key", "create", "--org=acme", "--service=helpdesk", "--environment=live", "--name=Test", "--level=admin"}, r.flags...)...)
	r.key = made.Key
	r.server = start(t, r.flags...)
	trigger := func(channel string, args ...string) {
		t.Helper()
		command(t, nil, append(append([]string{"trigger", channel, "--base-url=" + r.url}, r.flags...), args...)...)
	}

	for channel, events := range map[string][]string{
		"email-form": {"message", "mime"}, "email-parse": {"message", "raw"}, "email-json": {"message"}, "email-raw": {"message"},
	} {
		for _, event := range events {
			word := fmt.Sprintf("word%s%s", channel[len("email-"):], event)
			trigger(channel, "--event="+event, "--text="+word)
			if _, list := r.ticket(t, "email&q="+word, some); list[0].Text != word {
				t.Errorf("%s by %s says %q, want %q", event, channel, list[0].Text, word)
			}
		}
	}

	id, _ := r.ticket(t, "email&q=wordformmessage", some)
	if status, body := r.api(t, http.MethodPost, "/tickets/"+id+"/messages", map[string]any{"kind": "reply", "text": "We are coming."}, nil); status != http.StatusCreated {
		t.Fatalf("the reply was answered %d %s", status, body)
	}
	_, list := r.ticket(t, "email&q=wordformmessage", inState("We are coming.", "sent"))
	reply := list[len(list)-1]
	if sent := provider.Deliveries(); len(sent) != 1 || sent[0].Tags["message"] != reply.ID || sent[0].To[0] != "Ana Client <ana@client.example>" {
		t.Errorf("sent %+v, want the reply to Ana", sent)
	}
	for _, step := range []struct{ event, want string }{{"email.delivered", "delivered"}, {"email.opened", "read"}, {"email.sent", "read"}} {
		trigger("email-delivery", "--event="+step.event, "--from="+demoFormBox, "--text="+reply.ID)
		r.ticket(t, "email&q=wordformmessage", inState("We are coming.", step.want))
	}
	trigger("email-delivery", "--event=email.received", "--to="+demoFormBox)
	if _, list := r.ticket(t, "email&q=Rawhelmet", some); list[0].Text != "Rawhelmet" {
		t.Errorf("the mail that the provider received says %q", list[0].Text)
	}
	if err := run(t.Context(), []string{"trigger", "email-parse", "--base-url=" + r.url, "--email-parse-public-key=public"}, noEnvironment, nil, io.Discard, t.Output()); err == nil {
		t.Error("something was signed without a private key")
	}
	r.stop()
}
