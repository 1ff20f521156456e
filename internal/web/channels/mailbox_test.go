package channels_test

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// TestConnectMailbox: a mailbox whose servers cannot be reached is not stored; what was typed
// stays, except for the password, and the error says what to do.
func TestConnectMailbox(t *testing.T) {
	h := newHarness(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := ln.Addr().String()
	ln.Close()
	d := h.admin.WantRefused(h.admin.Post("/settings/connect/mailbox", url.Values{
		"address": {"help@acme.example"}, "credentials.imap_url": {"imaps://" + closed}, "credentials.password": {"hush hush"}, "settings.folders": {"Support"},
	}), http.StatusUnprocessableEntity)
	d.Want("cannot be reached", "Check its name and its port")
	for field, want := range map[string]string{"address": "help@acme.example", "credentials.imap_url": "imaps://" + closed, "credentials.password": "", "settings.folders": "Support"} {
		if got := webtest.Attr(d.Field(field), "value"); got != want {
			t.Errorf("%s has the value %q, want %q", field, got, want)
		}
	}
	if list, err := h.connections.List(t.Context(), h.Organization.ID); err != nil || len(list) != 0 {
		t.Errorf("%d connections are stored, %v", len(list), err)
	}
	d = h.admin.WantRefused(h.admin.Post("/settings/connect/mailbox", url.Values{"address": {"help@gmail.com"}, "settings.import_days": {"many"}, "credentials.password": {"x"}}), http.StatusUnprocessableEntity)
	if got := webtest.Attr(d.Field("credentials.imap_url"), "value"); got != "imaps://imap.gmail.com" {
		t.Errorf("the IMAP server of gmail.com is %q", got)
	}
	if len(d.DescribedBy("settings.import_days")) == 0 {
		t.Error("nothing is said of the days")
	}
}

// TestMailboxPage: the page of a mailbox shows its state, no endpoint and no password, and its
// settings can be changed without typing the password again.
func TestMailboxPage(t *testing.T) {
	h := newHarness(t)
	c, _, err := h.connections.Connect(t.Context(), connection.New{
		OrganizationID: h.Organization.ID, Channel: email.MailboxName, Address: "help@acme.example",
		Credentials: map[string]string{email.CredentialIMAP: "imaps://mail.acme.example", email.CredentialPassword: "hush hush"},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := "/settings/channels/" + c.ID
	d := h.admin.Page(path)
	d.Want("Mailbox", "Waiting", "not yet", "none yet")
	if text := webtest.Text(d.Root); strings.Contains(text, "hush") || strings.Contains(text, "Endpoint") || strings.Contains(text, "Sign in at") {
		t.Errorf("the page is %s", text)
	}
	if _, notice := h.admin.Follow(h.admin.Post(path, url.Values{"settings.folders": {"INBOX, Sales"}})); notice != "Saved." {
		t.Errorf("got notice %q", notice)
	}
	if now := h.only(); now.Settings[email.SettingFolders] != "INBOX, Sales" || now.CredentialValues()[email.CredentialPassword] != "hush hush" {
		t.Errorf("got %v", now.Settings)
	}
	d = h.admin.WantRefused(h.admin.Post(path, url.Values{"settings.import_days": {"-1"}}), http.StatusUnprocessableEntity)
	if len(d.DescribedBy("settings.import_days")) == 0 {
		t.Error("nothing is said of the days")
	}
	h.admin.WantRefused(h.admin.Get(path+"/consent"), http.StatusUnprocessableEntity)

	// Another server gets no password that was not entered for it.
	for name, server := range map[string]string{"imap_url": "imaps://mail.evil.example", "smtp_url": "smtps://mail.evil.example"} {
		d = h.admin.WantRefused(h.admin.Post(path, values("credentials."+name, server)), http.StatusUnprocessableEntity)
		if len(d.DescribedBy("credentials.password")) == 0 {
			t.Errorf("%s: nothing is said of the password", name)
		}
	}
	form := values("credentials.smtp_url", "smtps://mail.acme.example")
	form.Set("credentials.password", "hush hush")
	if _, notice := h.admin.Follow(h.admin.Post(path, form)); notice != "Saved." {
		t.Errorf("with the password: got notice %q", notice)
	}
}

func values(name, value string) url.Values { return url.Values{name: {value}} }
