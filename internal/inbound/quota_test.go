package inbound_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/quota/quotatest"
	"github.com/kickstand-dev/kickstand/internal/shop"
)

// TestQuotasRefuseNoSender: requests of an organization without any quota left are accepted and
// become tickets. Their large bodies are counted from the time when they have an organization until
// they are deleted.
func TestQuotasRefuseNoSender(t *testing.T) {
	h := start(t, func(h *house) {
		h.limits = quota.Limits{quota.Messages: 0, quota.Storage: 0}
		h.secrets = map[string][]string{"email-raw": {"the deployment's"}}
	})
	want := func(what string, bytes int) {
		t.Helper()
		if got := quotatest.Storage(t, h.db, "org-1"); got != int64(bytes) {
			t.Errorf("%s: counted %d bytes, want %d", what, got, bytes)
		}
		quotatest.WantSums(t, h.db, desk.CountedFiles, inbound.CountedFiles)
	}
	h.connect(t, "sms", ours)
	h.connect(t, "email-raw", "help@acme.example")
	mail := func(id, to string) string {
		return mailText(id, "ana@client.example", to, strings.Repeat("a long mail\r\n", 5000))
	}
	first, second := mail("m1@client.example", "help@acme.example"), mail("m2@client.example", "lost@acme.example")
	for range 2 {
		h.do(mailRequest(first, "the deployment's", "help@acme.example"))
		want("a large body", len(first))
	}
	h.wantAnswer(t, smsRequest(text("SM1", theirs, "small"), secretOf(ours)), 200, twiml)
	want("a small body", len(first))
	h.wantAnswer(t, mailRequest(second, "the deployment's", "lost@acme.example"), 200, `{"status":"ignored"}`+"\n")
	want("a body without an organization", len(first))
	lost := h.list(t, inbound.Unrouted)
	if len(lost) != 1 {
		t.Fatalf("%d unrouted events, want 1", len(lost))
	}
	if _, err := h.RouteTo(t.Context(), lost[0].ID, "org-1"); err != nil {
		t.Fatal(err)
	}
	want("routed", len(first)+len(second))
	h.until(t, event.MessageCreated, 3)
	if n := quotatest.Messages(t, h.db, "org-1"); n != 3 {
		t.Errorf("counted %d messages, want 3", n)
	}

	// Uncounted, as from before the limit.
	h.exec(t, "UPDATE inbound_events SET counted = FALSE")
	h.exec(t, "UPDATE quotas SET storage = 0")
	want("before the limit", 0)
	for range 2 {
		if err := h.CountBodies(t.Context(), "org-1"); err != nil {
			t.Fatal(err)
		}
	}
	want("counted later", len(first)+len(second))
	if err := h.RedactPerson(t.Context(), &shop.Person{OrganizationID: "org-1", Contacts: []string{"ana@client.example"}}); err != nil {
		t.Fatal(err)
	}
	want("redacted", 0)
	third := mail("m3@client.example", "help@acme.example")
	h.do(mailRequest(third, "the deployment's", "help@acme.example"))
	want("one more", len(third))
	h.exec(t, "UPDATE inbound_events SET state = 'processed'")
	if _, err := h.Purge(t.Context(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	want("purged", 0)
}
