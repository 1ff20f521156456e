package inbound_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/inbound"
)

// collected returns the request of a mail that a reader has collected.
func collected(raw string) *channel.Request {
	return &channel.Request{
		Method: http.MethodPost, URL: "imap://mail.example/INBOX;UIDVALIDITY=1/;UID=1", Body: []byte(raw), Received: time.Now(),
		Header: http.Header{"Content-Type": {"message/rfc822"}, "X-Envelope-To": {"help@acme.example"}},
	}
}

// TestCollect: collected mails are stored in one transaction with their record and become
// tickets. What is not wanted is not stored, nor its body, and what cannot be read is rejected.
func TestCollect(t *testing.T) {
	h := start(t, func(h *house) { h.adapters = append(h.adapters, email.NewMailbox(email.Config{})) })
	c := h.connect(t, email.MailboxName, "help@acme.example", func(n *connection.New) {
		n.Secrets, n.Credentials = nil, map[string]string{email.CredentialIMAP: "imaps://mail.example", email.CredentialPassword: "secret"}
	})
	long := strings.Repeat("The lock does not open. ", 5000) // its body is a file
	requests := []*channel.Request{
		collected(mailText("1@client.example", "ana@client.example", "help@acme.example", long)),
		collected(mailText("2@client.example", "bo@client.example", "help@acme.example", long+"known")),
		collected(""),
	}
	broken := errors.New("the lease is lost")
	err := h.Collect(t.Context(), &c, requests, func(context.Context, *db.Tx) ([]bool, error) { return nil, broken })
	if !errors.Is(err, broken) || h.count(t, "SELECT count(*) FROM inbound_events") != 0 {
		t.Errorf("a failed record: got %v and %d events", err, h.count(t, "SELECT count(*) FROM inbound_events"))
	}
	err = h.Collect(t.Context(), &c, requests, func(context.Context, *db.Tx) ([]bool, error) { return []bool{true, false, true}, nil })
	if err != nil {
		t.Fatal(err)
	}
	h.until(t, event.TicketCreated, 1)
	states := make(map[inbound.State]int)
	list, err := h.List(t.Context(), inbound.Filter{OrganizationID: "org-1", Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		states[e.State]++
		if e.VerifiedBy != "login" || e.ConnectionID != c.ID {
			t.Errorf("got %+v", e)
		}
	}
	if len(list) != 2 || states[inbound.Rejected] != 1 {
		t.Errorf("the events are %v", states)
	}
}

// TestMailboxHasNoEndpoint: nobody can post a mail for a mailbox.
func TestMailboxHasNoEndpoint(t *testing.T) {
	h := start(t, func(h *house) { h.adapters = append(h.adapters, email.NewMailbox(email.Config{})) })
	c := h.connect(t, email.MailboxName, "help@acme.example", func(n *connection.New) {
		n.Secrets, n.Credentials = nil, map[string]string{email.CredentialIMAP: "imaps://mail.example", email.CredentialPassword: "secret"}
	})
	for _, query := range []string{"", "?c=" + c.ID, "?style=mailbox", "?style=mailbox&c=" + c.ID} {
		r := mailRequest(mailText("1@client.example", "ana@client.example", "help@acme.example", "Hello"), "", "help@acme.example")
		r.URL.RawQuery = strings.TrimPrefix(query, "?")
		r.RequestURI = mailPath + query
		w := httptest.NewRecorder()
		h.mux.ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized && w.Code != http.StatusBadRequest && w.Code != http.StatusUnsupportedMediaType {
			t.Errorf("%q is answered %d %s", query, w.Code, w.Body)
		}
	}
	if n := h.count(t, "SELECT count(*) FROM inbound_events"); n != 0 {
		t.Errorf("%d events are stored", n)
	}
}
