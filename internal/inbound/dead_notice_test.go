package inbound_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// boss is the admin of each organization.
type boss struct{}

func (boss) AdminAddresses(_ context.Context, _ db.Querier, organizationID string) ([]mail.Address, error) {
	return []mail.Address{{Address: "admin@" + organizationID + ".example"}}, nil
}

// unlucky makes every text fail while broken is set.
func unlucky(broken *bool) func(*house) {
	return func(h *house) {
		with(&loose{parse: func(channel.Part) error {
			if *broken {
				return errors.New("not understood")
			}
			return nil
		}})(h)
		h.operator = mail.Address{Address: "ops@help.example"}
	}
}

// TestAdminsAreMailedOfDeadEvents: at once for the first, then hourly for later ones, and the
// operator for all.
func TestAdminsAreMailedOfDeadEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := true
		h := startSQLite(t, unlucky(&broken))
		h.connect(t, "sms", ours)
		h.connect(t, "sms", "+14155550102", func(n *connection.New) { n.OrganizationID = "org-2" })
		h.run(t)
		dies := func(n int) {
			t.Helper()
			for i := range n {
				id := fmt.Sprintf("SM%d-%d", n, i)
				h.wantAnswer(t, smsRequest(text(id, theirs+fmt.Sprint(n, i), "hello"), secretOf(ours)), 200, twiml)
			}
			h.settled(t)
		}
		wantMails := func(when string, admin, operator int, last string) {
			t.Helper()
			got := map[string]int{}
			text := ""
			for _, m := range h.mailed.all() {
				got[m.To[0].Address]++
				text = m.Text
			}
			if got["admin@org-1.example"] != admin || got["ops@help.example"] != operator || !strings.Contains(text, last) {
				t.Errorf("%s: mailed %v, the last %q; want %d to the admin, %d to the operator, and %q", when, got, text, admin, operator, last)
			}
		}
		hour := func() {
			t.Helper()
			time.Sleep(time.Hour)
			if err := h.NotifyDead(t.Context()); err != nil {
				t.Error(err)
			}
		}
		dies(1)
		wantMails("after the first", 1, 1, "sms: 1 event.")
		dies(3)
		wantMails("within the hour", 1, 1, "sms: 1 event.")
		hour()
		wantMails("after an hour", 2, 2, "sms: 3 events.")
		hour()
		wantMails("without news", 2, 2, "sms: 3 events.")
		form := text("SMx", theirs, "hello")
		form.Set("To", "+14155550102")
		h.wantAnswer(t, smsRequest(form, secretOf("+14155550102")), 200, twiml)
		h.settled(t)
		wantMails("after another organization's", 2, 3, "sms: 1 event.")
		if last := h.mailed.all()[4:]; len(last) != 2 || last[1].To[0].Address != "admin@org-2.example" {
			t.Errorf("mailed %+v, want the operator and the other organization's admin", last)
		}
		if n, err := h.DeadCount(t.Context(), "org-1"); n != 4 || err != nil {
			t.Errorf("DeadCount() = %d, %v; want 4", n, err)
		}
	})
}

// TestReplayAll: events are selected by state and time and replayed once each, oldest first.
func TestReplayAll(t *testing.T) {
	broken := true
	h := start(t, unlucky(&broken))
	h.connect(t, "sms", ours)
	var ids []string
	for i := range 3 {
		h.wantAnswer(t, smsRequest(text(fmt.Sprint("SM", i), theirs, fmt.Sprint(i)), secretOf(ours)), 200, twiml)
		ids = append(ids, h.list(t, inbound.Accepted)[0].ID)
	}
	h.exec(t, "UPDATE inbound_events SET state = 'dead'")
	h.exec(t, "DELETE FROM jobs")
	h.exec(t, "UPDATE inbound_events SET received_at = received_at - 3600000000 WHERE id = $1", ids[0])
	replay := func(f inbound.Filter, dry bool) (got []string) {
		t.Helper()
		if err := h.ReplayAll(t.Context(), f, dry, func(e *inbound.StoredEvent, err error) error {
			got = append(got, e.ID)
			return err
		}); err != nil {
			t.Error(err)
		}
		return got
	}
	now := time.Now()
	dead := inbound.Filter{States: []inbound.State{inbound.Dead}}
	since, until := dead, dead
	since.From, until.To = now.Add(-time.Minute), now.Add(-time.Minute)
	for name, test := range map[string]struct {
		f    inbound.Filter
		want []string
	}{
		"all":      {dead, ids},
		"since":    {since, ids[1:]},
		"until":    {until, ids[:1]},
		"rejected": {inbound.Filter{States: []inbound.State{inbound.Rejected}}, nil},
	} {
		if got := replay(test.f, true); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
	if n := h.count(t, "SELECT count(*) FROM jobs"); n != 0 {
		t.Errorf("a dry run made %d jobs", n)
	}
	broken = false
	if got := replay(since, false); !slices.Equal(got, ids[1:]) {
		t.Errorf("replayed %v, want %v", got, ids[1:])
	}
	if n := h.count(t, "SELECT count(*) FROM jobs"); n != 2 || len(h.list(t, inbound.Dead)) != 1 {
		t.Errorf("%d jobs and %d dead events, want 2 and 1", n, len(h.list(t, inbound.Dead)))
	}
}

// TestReplayAllPages: more events than one page are all replayed, once each, oldest first.
func TestReplayAllPages(t *testing.T) {
	h := start(t)
	h.connect(t, "sms", ours)
	const many = 205 // more than one page
	for i := range many {
		h.wantAnswer(t, smsRequest(text(fmt.Sprint("SM", i), theirs, "hello"), secretOf(ours)), 200, twiml)
	}
	var got []string
	if err := h.ReplayAll(t.Context(), inbound.Filter{}, true, func(e *inbound.StoredEvent, err error) error {
		got = append(got, e.ID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if distinct := slices.Compact(slices.Clone(got)); len(got) != many || len(distinct) != many || !slices.IsSorted(got) {
		t.Errorf("%d events, %d of them distinct, want %d in order", len(got), len(distinct), many)
	}
}

// TestReplayAllDuringOutage: a storage failure ends a replay, since all other events would fail
// alike.
func TestReplayAllDuringOutage(t *testing.T) {
	var store brokenStore
	h := start(t, func(h *house) { h.store = func(s blob.Store) blob.Store { store.Store = s; return &store } })
	h.connect(t, "email-raw", "help@acme.example")
	long := strings.Repeat("a line of a very long mail\r\n", 20_000) // is stored as a file
	for i := range 2 {
		mail := mailText(fmt.Sprintf("m%d@client.example", i), "ana@client.example", "help@acme.example", long)
		h.wantAnswer(t, mailRequest(mail, secretOf("help@acme.example"), "help@acme.example"), 200, `{"status":"accepted"}`+"\n")
	}
	h.exec(t, "UPDATE inbound_events SET state = 'dead'")
	store.broken.Store(true)
	err := h.ReplayAll(t.Context(), inbound.Filter{}, false, func(e *inbound.StoredEvent, err error) error {
		t.Errorf("event %s: %v", e.ID, err)
		return nil
	})
	if problem.Of(err) != problem.Unavailable {
		t.Errorf("ReplayAll() = %v, want unavailable", err)
	}
}
