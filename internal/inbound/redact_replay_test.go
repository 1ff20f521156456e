package inbound_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/shop"
)

// TestRedactedEvent: a redacted event remains without content. It cannot be replayed, and a
// repeated delivery is still a duplicate.
func TestRedactedEvent(t *testing.T) {
	h := start(t)
	h.connect(t, "sms", ours)
	large := text("SM1", theirs, strings.Repeat("the kaleidoscope ", 3000))
	h.wantAnswer(t, smsRequest(large, secretOf(ours)), 200, twiml)
	h.wantAnswer(t, smsRequest(text("SM2", theirs, "hello"), secretOf(ours)), 200, twiml)
	h.wantAnswer(t, smsRequest(text("SM3", "+14155550112", "somebody else"), secretOf(ours)), 200, twiml)
	// A lost file, as after restoring only the database, does not stop redaction.
	if err := filepath.WalkDir(h.blobs, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			err = os.Remove(path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	person := &shop.Person{OrganizationID: "org-1", Contacts: []string{theirs}}
	for range 2 {
		if err := h.RedactPerson(t.Context(), person); err != nil {
			t.Fatal(err)
		}
	}
	list := h.list(t)
	if len(list) != 3 {
		t.Fatalf("%d events, want all to be there", len(list))
	}
	for _, e := range list[1:] {
		if e.State != inbound.Processed || e.Sender != "" || e.Key != "" || e.Size != 0 || string(e.Result) != `{"outcome":"forgotten"}` {
			t.Errorf("event %+v with %s, want nothing but that it was forgotten", e, e.Result)
		}
		if _, err := h.Replay(t.Context(), e.ID); problem.Of(err) != problem.Precondition {
			t.Errorf("Replay() of a forgotten event: %v, want a precondition", err)
		}
	}
	if e := list[0]; e.Sender != "+14155550112" || e.State != inbound.Accepted {
		t.Errorf("somebody else's event is %+v, want it as it was", e)
	}
	h.wantAnswer(t, smsRequest(large, secretOf(ours)), 200, twiml)
	if n := h.count(t, "SELECT count(*) FROM inbound_events"); n != 3 {
		t.Errorf("%d events after one came once more, want 3", n)
	}
	if n := h.count(t, "SELECT count(*) FROM jobs"); n != 1 {
		t.Errorf("%d jobs, want that of somebody else's event", n)
	}
}

// TestRedactWaits: a pending event of another sender that mentions the person is processed
// first.
func TestRedactWaits(t *testing.T) {
	synctest.Test(t, testRedactWaits)
}

func testRedactWaits(t *testing.T) {
	h := startSQLite(t)
	h.connect(t, "sms", ours)
	h.wantAnswer(t, smsRequest(text("SM1", "+14155550112", "my friend is +14155550111, ask her"), secretOf(ours)), 200, twiml)
	h.wantAnswer(t, smsRequest(text("SM2", "+14155550112", "order 1001 please"), secretOf(ours)), 200, twiml)
	person := &shop.Person{OrganizationID: "org-1", Contacts: []string{theirs, "1001"}} // an order number is not unique across shops
	if err := h.RedactPerson(t.Context(), person); err == nil {
		t.Error("RedactPerson() is done while an event waits that mentions the person")
	}
	if n := h.count(t, "SELECT count(*) FROM inbound_events WHERE state = 'accepted' AND sender = '+14155550112'"); n != 2 {
		t.Fatalf("%d events wait, want both of somebody else", n)
	}
	h.run(t)
	h.settled(t)
	if err := h.RedactPerson(t.Context(), person); err != nil {
		t.Errorf("RedactPerson() when everything is processed: %v", err)
	}
	list := h.list(t)
	if list[1].Sender != "" || list[0].Sender != "+14155550112" {
		t.Errorf("senders %q and %q; want what mentions the person forgotten, and the other as it was", list[1].Sender, list[0].Sender)
	}
	h.wantTickets(t, "org-1", []string{"my friend is +14155550111, ask her", "order 1001 please"})
}
