package channels_test

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// challengeMailer records challenges.
type challengeMailer struct{ mails []mail.Message }

func (p *challengeMailer) EnqueueMailTx(_ context.Context, tx *db.Tx, m mail.Message) error {
	tx.AfterCommit(func() { p.mails = append(p.mails, m) })
	return nil
}

// TestProof checks that a channel's page shows the missing uses, the methods of proof and
// their errors.
func TestProof(t *testing.T) {
	h, p := newHarness(t), new(challengeMailer)
	var records []string
	h.connections.UseProofs(connection.Proofs{
		Mailer: p, BaseURL: webtest.BaseURL, Shared: map[string]bool{"email-raw": true},
		LookupTXT: func(context.Context, string) ([]string, error) { return records, nil },
	})
	d, notice := h.admin.Follow(h.admin.Post("/settings/connect/email-form", url.Values{"address": {"help@acme.example"}, "secrets.0": {"signing key"}}))
	if !strings.Contains(notice, "Now prove that the address is yours") {
		t.Errorf("got notice %q", notice)
	}
	c := h.only()
	path := "/settings/channels/" + c.ID
	d.Want("Ownership", "Pending: proof required", "nothing is sent in its name by this server's accounts", "By mail", "By DNS",
		"_kickstand-challenge.acme.example", "kickstand-proof-", "kickstand channel prove "+c.ID, webtest.BaseURL+"/api/webhooks/inbound-email?c="+c.ID)
	h.admin.Page("/settings/channels").Want("Pending: proof required")

	d, notice = h.admin.Follow(h.admin.Post(path+"/proof", url.Values{"way": {"mail"}}))
	if notice != "Challenge sent to help@acme.example." || len(p.mails) != 1 {
		t.Fatalf("got notice %q and %d mails", notice, len(p.mails))
	}
	d.Want("5 attempts left", "Send another challenge")
	for _, m := range p.mails {
		if strings.Contains(webtest.Text(d.Root), regexp.MustCompile(`kickstand-proof-\w+`).FindString(m.Subject)) {
			t.Error("the page shows the token of the mail")
		}
	}
	for _, tt := range []struct{ name, value, want string }{
		{"way", "mail", "There were too many attempts to prove this address; try again later."},
		{"way", "dns", "DNS has no TXT record _kickstand-challenge.acme.example"},
		{"way", "text", "This address cannot be proven by"},
		{"way", "", "cannot be proven by"},
		{"code", "no", "The code is wrong; you have 4 attempts left."},
		{"code", "", "The code is wrong; you have 3 attempts left."},
	} {
		d := h.admin.WantRefused(h.admin.Post(path+"/proof", url.Values{tt.name: {tt.value}}), http.StatusUnprocessableEntity)
		d.Want(tt.want)
	}
	code := regexp.MustCompile(`\d{4} \d{4}`).FindString(p.mails[0].Text)
	d, notice = h.admin.Follow(h.admin.Post(path+"/proof", url.Values{"code": {code}}))
	if notice != "help@acme.example is proven to be yours." {
		t.Errorf("got notice %q", notice)
	}
	d.Want("Proven by a message to the address.")
	if strings.Contains(webtest.Text(d.Root), "By DNS") || strings.Contains(webtest.Text(d.Root), "?c=") {
		t.Error("the page still leads to a proof")
	}

	own := url.Values{"address": {"+14155550100"}, "secrets.0": {"an auth token"}}
	if _, notice := h.admin.Follow(h.admin.Post("/settings/connect/sms", own)); notice != "SMS is connected. Now have the provider post here." {
		t.Errorf("one with a secret of its own: got notice %q", notice)
	}
}
