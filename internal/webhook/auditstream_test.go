package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// subscribesAudit is a rig with the audit logs of a helpdesk and a fleet.
type subscribesAudit struct {
	*rig
	helpdesk, fleet *audit.Log
	change          func(*webhook.Config)
	changed         chan string // ids of webhooks
}

func newAudited(t *testing.T, n *network) subscribesAudit {
	a := subscribesAudit{changed: make(chan string, 10_000)}
	d := dbtest.New(t)
	a.helpdesk, a.fleet = audittest.Open(d), audittest.Fleet(dbtest.NewFleet(t), true)
	a.change = func(c *webhook.Config) {
		c.Audit, c.AuditLogs, c.RetryTimeScale = a.helpdesk, []*audit.Log{a.helpdesk, a.fleet}, 1e-6
		c.Changed = func(_, id string) { a.changed <- id }
	}
	a.rig = newRig(t, d, n, a.change)
	return a
}

var wantsAudit = []string{string(event.AuditRecorded)}

func (a subscribesAudit) record(l *audit.Log, organizationID, action string) {
	a.t.Helper()
	if err := l.Record(a.t.Context(), audit.Entry{OrganizationID: organizationID, Action: action, Target: audit.Target{Type: "test"}}); err != nil {
		a.t.Fatal(err)
	}
}

func (a subscribesAudit) stream() {
	a.t.Helper()
	if err := a.hooks.StreamAudit(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
}

// got returns the actions of the entries that a webhook has deliveries of, by ledger,
// in the order of the deliveries.
func (a subscribesAudit) got(id string) map[string][]string {
	a.t.Helper()
	list := a.deliveries(id)
	slices.SortFunc(list, func(x, y webhook.Delivery) int { return cmpText(x.ID, y.ID) })
	out := map[string][]string{}
	for _, d := range list {
		body, err := a.hooks.Body(a.t.Context(), org, d.ID)
		if err != nil {
			a.t.Fatal(err)
		}
		var b struct {
			Event string
			Data  struct{ Entry audit.Record }
		}
		if err := json.Unmarshal(body, &b); err != nil || b.Event != "audit.recorded" || len(b.Data.Entry.Hash) != 64 {
			a.t.Fatalf("body %s: %v", body, err)
		}
		out[b.Data.Entry.Ledger] = append(out[b.Data.Entry.Ledger], b.Data.Entry.Action)
	}
	return out
}

func cmpText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// TestAuditStreamByName: audit entries go to webhooks that subscribe by name, never to "*",
// other subscriptions or other organizations.
func TestAuditStreamByName(t *testing.T) {
	a := newAudited(t, newNetwork(t))
	a.record(a.helpdesk, org, "test.before")
	all := a.create(webhook.New{Events: []string{"*"}})
	every := make([]string, len(event.Names))
	for i, name := range event.Names {
		every[i] = string(name)
	}
	named := a.create(webhook.New{Events: every})
	siem := a.create(webhook.New{Events: wantsAudit, MayAudit: true})
	if !siem.Ordered {
		t.Error("it is not ordered")
	}
	for i := range 3 {
		a.record(a.helpdesk, org, fmt.Sprint("test.helpdesk_", i))
		a.record(a.fleet, org, fmt.Sprint("test.fleet_", i))
		a.record(a.helpdesk, otherOrg, "test.foreign")
	}
	for range 2 { // the second time there is nothing left
		a.stream()
	}
	for _, w := range []webhook.Webhook{all, named} {
		if n := len(a.deliveries(w.ID)); n != 0 {
			t.Errorf("%v got %d deliveries", w.Events, n)
		}
	}
	want := map[string][]string{
		"helpdesk":   {"webhook.created", "test.helpdesk_0", "test.helpdesk_1", "test.helpdesk_2"},
		"fleet_live": {"test.fleet_0", "test.fleet_1", "test.fleet_2"},
	}
	if got := a.got(siem.ID); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if list, _, err := event.List(t.Context(), a.db, org, event.Query{}); err != nil || len(list) != 0 {
		t.Errorf("the list of events shows %+v, %v", list, err)
	}
}

// TestAuditStreamNeedsLeave: subscribing to the audit log, or changing its destination,
// requires permission to read it.
func TestAuditStreamNeedsLeave(t *testing.T) {
	a := newAudited(t, newNetwork(t))
	_, err := a.hooks.Create(t.Context(), org, webhook.New{URL: "https://a.example.com/", Events: wantsAudit})
	if problem.Of(err) != problem.Forbidden {
		t.Errorf("create: %v", err)
	}
	plain := a.create(webhook.New{Events: []string{"*"}})
	siem := a.create(webhook.New{Events: wantsAudit, MayAudit: true})
	for name, try := range map[string]func() error{
		"subscribe": func() error {
			_, err := a.hooks.Update(t.Context(), org, plain.ID, webhook.Change{Events: &wantsAudit})
			return err
		},
		"redirect": func() error {
			_, err := a.hooks.Update(t.Context(), org, siem.ID, webhook.Change{URL: new("https://b.example.com/")})
			return err
		},
		"replace the secret": func() error {
			_, err := a.hooks.Update(t.Context(), org, siem.ID, webhook.Change{Secret: new("a planted secret of 26 chars")})
			return err
		},
		"switch off": func() error {
			_, err := a.hooks.Update(t.Context(), org, siem.ID, webhook.Change{Enabled: new(false)})
			return err
		},
	} {
		if err := try(); problem.Of(err) != problem.Forbidden {
			t.Errorf("%s: %v", name, err)
		}
	}
	if w := a.update(siem.ID, webhook.Change{Ordered: new(false), MayAudit: true}); !w.Ordered {
		t.Error("it is no longer ordered")
	}
}

// TestAuditStreamLosesNothing: entries recorded while a webhook is disabled are sent once it is
// enabled, however many; several processes deliver each entry once; entries recorded without a
// subscription are not sent.
func TestAuditStreamLosesNothing(t *testing.T) {
	n := newNetwork(t)
	a := newAudited(t, n)
	siem := a.create(webhook.New{Events: wantsAudit, MayAudit: true})
	a.stream()
	a.update(siem.ID, webhook.Change{Enabled: new(false), MayAudit: true})
	want := []string{"webhook.created", "webhook.updated"}
	for i := range 250 {
		action := fmt.Sprint("test.number_", i)
		a.record(a.helpdesk, org, action)
		want = append(want, action)
	}
	a.stream()
	if got := len(a.deliveries(siem.ID)); got != 1 {
		t.Errorf("%d deliveries of a webhook that is switched off, want 1", got)
	}
	a.update(siem.ID, webhook.Change{Enabled: new(true), MayAudit: true})
	want = append(want, "webhook.updated")
	other := subscribesAudit{rig: newRig(t, a.db, n, a.change), helpdesk: a.helpdesk, fleet: a.fleet}
	var both sync.WaitGroup
	for _, of := range []subscribesAudit{a, other, a, other} {
		both.Go(func() {
			if err := of.hooks.StreamAudit(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	a.stream() // work that each left to the other
	if got := a.got(siem.ID)["helpdesk"]; !slices.Equal(got, want) {
		t.Errorf("got %d entries, want %d: %v", len(got), len(want), got)
	}
	a.update(siem.ID, webhook.Change{Events: &[]string{"*"}, MayAudit: true})
	a.record(a.helpdesk, org, "test.meanwhile")
	a.update(siem.ID, webhook.Change{Events: &wantsAudit, MayAudit: true})
	a.stream()
	if got := a.got(siem.ID)["helpdesk"]; slices.Contains(got, "test.meanwhile") || len(got) != len(want)+1 {
		t.Errorf("after subscribing again: %d entries, want %d", len(got), len(want)+1)
	}
}

// TestAuditStreamEnds: a failing receiver causes one entry, not a flood of entries about
// deliveries of entries.
func TestAuditStreamEnds(t *testing.T) {
	n := newNetwork(t)
	a := newAudited(t, n)
	n.receive("receiver.example.com", func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	good := n.receive("good.example.com", nil)
	bad := a.create(webhook.New{Events: wantsAudit, MayAudit: true})
	siem := a.create(webhook.New{URL: "https://good.example.com/", Events: wantsAudit, MayAudit: true})
	a.start()
	a.stream()
	for a.find(bad.ID).State != webhook.Failed {
		select {
		case <-a.changed:
		case <-t.Context().Done():
			t.Fatal("it does not fail")
		}
	}
	for range 5 {
		a.stream()
	}
	want := map[string][]string{"helpdesk": {"webhook.created", "webhook.failed"}}
	if got := a.got(siem.ID); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := len(a.deliveries(bad.ID)); got != 2 { // created before it failed
		t.Errorf("%d deliveries of the failed webhook, want 2", got)
	}
	good.wait(t, 2)
}

// TestAuditSample: a test delivery to a webhook of the audit log is a sample entry.
func TestAuditSample(t *testing.T) {
	a := newAudited(t, newNetwork(t))
	siem := a.create(webhook.New{Events: wantsAudit, MayAudit: true})
	result, err := a.hooks.Test(t.Context(), org, siem.ID)
	if err != nil {
		t.Fatal(err)
	}
	body, err := a.hooks.Body(t.Context(), org, result.DeliveryID)
	if err != nil {
		t.Fatal(err)
	}
	var b struct {
		Event string
		Data  struct {
			Test   bool
			Ticket any
			Entry  audit.Record
		}
	}
	if err := json.Unmarshal(body, &b); err != nil || b.Event != "audit.recorded" || !b.Data.Test || b.Data.Ticket != nil || b.Data.Entry.Action != "webhook.tested" {
		t.Errorf("body %s: %v", body, err)
	}
}
