package webhook_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/webhook"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

func TestCounts(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		r := newRig(t, d, n, nil)
		n.receive("receiver.example.com", func(count int, w http.ResponseWriter, _ *http.Request) {
			switch count {
			case 1:
				w.WriteHeader(http.StatusInternalServerError)
			case 2:
				w.WriteHeader(http.StatusGone)
			}
		})
		w := r.create(webhook.New{})
		r.start()
		// The fake clock starts at midnight.
		start := time.Now()
		time.Sleep(29*time.Minute + 30*time.Second)
		r.emit(1) // tried again in the next half hour, and refused
		time.Sleep(2 * time.Minute)
		r.emit(2, 3, 4)
		time.Sleep(time.Hour)
		if _, err := r.hooks.Test(t.Context(), org, w.ID); err != nil {
			t.Fatal(err)
		}
		r.stop()
		want := []webhook.Count{
			{At: start.UTC(), Retried: 1},
			{At: start.UTC().Add(30 * time.Minute), Failed: 1, Delivered: 3},
			{At: start.UTC().Add(90 * time.Minute), Delivered: 1},
		}
		got, err := r.hooks.Counts(t.Context(), org, start)
		if err != nil || len(got) != 1 || !slices.Equal(got[w.ID], want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		if got, err := r.hooks.Counts(t.Context(), org, start.Add(59*time.Minute)); err != nil || !slices.Equal(got[w.ID], want[1:]) {
			t.Errorf("of the end: got %+v, %v, want %+v", got, err, want[1:])
		}
		if got, err := r.hooks.Counts(t.Context(), otherOrg, start); err != nil || len(got) != 0 {
			t.Errorf("another organization: got %+v, %v", got, err)
		}

		time.Sleep(30*24*time.Hour - time.Hour)
		purge := func() int {
			if _, err := r.hooks.Purge(t.Context(), 30*24*time.Hour); err != nil {
				t.Fatal(err)
			}
			return r.count("SELECT count(*) FROM attempt_counts")
		}
		if n := purge(); n != 1 {
			t.Errorf("after 30 days there are %d counts, want 1", n)
		}
		if err := r.hooks.Delete(t.Context(), org, w.ID); err != nil {
			t.Fatal(err)
		}
		if n := purge(); n != 0 {
			t.Errorf("of a webhook that is gone there are %d counts", n)
		}
	})
}

// TestChanged: Changed is called for every visible change of a webhook, and not after a
// rollback.
func TestChanged(t *testing.T) {
	bubble(t, func(t *testing.T, d *db.DB, n *network) {
		var mu sync.Mutex
		told := make(map[string]int)
		r := newRig(t, d, n, func(c *webhook.Config) {
			c.Changed = func(organizationID, id string) {
				mu.Lock()
				defer mu.Unlock()
				told[organizationID+" "+id]++
			}
		})
		n.receive("receiver.example.com", nil)
		w := r.create(webhook.New{Disabled: true})
		heard := func(what string) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if got := slices.Collect(maps.Keys(told)); len(got) != 1 || got[0] != org+" "+w.ID {
				t.Errorf("%s: got %q", what, got)
			}
			clear(told)
		}
		heard("made")
		r.emit(1, 2)
		heard("events")
		r.update(w.ID, webhook.Change{Enabled: new(true)})
		heard("changed")
		r.start() // from here on a change and its delivery may be reported as one
		time.Sleep(time.Minute)
		heard("delivered")
		if _, err := r.hooks.Replay(t.Context(), org, []string{r.deliveries(w.ID)[0].ID}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		heard("replayed")
		if _, err := r.hooks.Test(t.Context(), org, w.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		heard("tested")
		if _, err := r.hooks.Update(t.Context(), otherOrg, w.ID, webhook.Change{Enabled: new(false)}); problem.Of(err) != problem.NotFound {
			t.Errorf("got %v", err)
		}
		if len(told) != 0 {
			t.Errorf("of what was refused: got %v", told)
		}
		if err := r.hooks.Delete(t.Context(), org, w.ID); err != nil {
			t.Fatal(err)
		}
		heard("deleted")
	})
}

// TestMadeTwice: a webhook with a client-side id is created once.
func TestMadeTwice(t *testing.T) {
	r := newRig(t, dbtest.New(t), newNetwork(t), nil)
	n := webhook.New{ID: "01985ec5-8a60-7000-8000-5a7e1c0d2b3f", URL: "https://receiver.example.com", Events: []string{"*"}, Secret: new(payload.NewSecret())}
	if w := r.create(n); w.ID != n.ID {
		t.Errorf("got id %s", w.ID)
	}
	for _, organization := range []string{org, otherOrg} {
		if _, err := r.hooks.Create(t.Context(), organization, n); problem.Of(err) != problem.Conflict {
			t.Errorf("again: got %v", err)
		}
	}
	for _, id := range []string{"x", strings.ToUpper(n.ID), "{" + n.ID + "}"} {
		n.ID = id
		if _, err := r.hooks.Create(t.Context(), org, n); issues(err) != "id must be a UUID" {
			t.Errorf("id %q: got %v", id, err)
		}
	}
}

// TestReplayParts: a range that is sent in parts is sent as one is, each event
// once, however the parts lie.
func TestReplayParts(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, nil)
	w := r.create(webhook.New{Disabled: true})
	numbers := make([]int, 450)
	for i := range numbers {
		numbers[i] = i + 1
	}
	r.emit(numbers...)
	exec := func(query string, args ...any) {
		t.Helper()
		if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), query, args...)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	first := r.deliveries(w.ID)
	// The newest repeat the oldest: they are in the first part and in the last.
	if _, err := r.hooks.Replay(t.Context(), org, []string{first[449].ID, first[448].ID}); err != nil {
		t.Fatal(err)
	}
	exec("UPDATE deliveries SET state = $1", int64(webhook.DeliveryFailed))
	all := webhook.Range{WebhookID: w.ID, From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour), States: webhook.FailedOnly(true)}
	total, parts, at := 0, 0, all.From
	for next := ""; ; {
		part, err := r.hooks.ReplayPart(t.Context(), org, all, next)
		if err != nil {
			t.Fatal(err)
		}
		if part.At.Before(at) {
			t.Errorf("part %d ends at %v, before the one before it", parts, part.At)
		}
		total, parts, at = total+part.Replayed, parts+1, part.At
		if next = part.Next; next == "" {
			break
		}
	}
	if total != 450 || parts != 3 || !at.Equal(all.To) {
		t.Errorf("got %d deliveries in %d parts up to %v, want 450 in 3 up to %v", total, parts, at, all.To)
	}
	if got := r.count("SELECT count(DISTINCT event_id) FROM deliveries WHERE state = 0"); got != 450 {
		t.Errorf("got %d events, want 450", got)
	}
	if _, err := r.hooks.ReplayPart(t.Context(), otherOrg, all, ""); problem.Of(err) != problem.NotFound {
		t.Errorf("another organization: got %v", err)
	}
}
