package webhook_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// TestDiscardWaiting: deliveries from before a time are dropped with their jobs, at webhooks in any
// state. Later ones are delivered, and dropped ones can be replayed.
func TestDiscardWaiting(t *testing.T) {
	n := newNetwork(t)
	r := newRig(t, dbtest.New(t), n, nil)
	rc := n.receive("receiver.example.com", nil)
	enabled, disabled := r.create(webhook.New{}), r.create(webhook.New{})
	r.update(disabled.ID, webhook.Change{Enabled: new(false)})
	r.emit(1, 2, 3)
	limit := r.db.Now().Add(time.Hour)
	r.emit(4)
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE deliveries SET created_at = $1 WHERE event_id = (SELECT max(id) FROM events)", limit.UnixMicro())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	waiting, err := r.hooks.Waiting(t.Context())
	if err != nil || len(waiting) != 2 || waiting[0].WebhookID != enabled.ID || waiting[0].Count != 4 || waiting[0].OrganizationID != org || waiting[1].State != webhook.Disabled || waiting[1].Count != 4 {
		t.Fatalf("waiting: got %+v, %v, want four for each of two", waiting, err)
	}
	if got, err := r.hooks.DiscardWaiting(t.Context(), limit); err != nil || got != 6 {
		t.Errorf("discarded %d, %v, want 6", got, err)
	}
	for _, id := range []string{enabled.ID, disabled.ID} {
		if w := r.find(id); w.QueuedEvents != 1 || w.DroppedEvents != 3 {
			t.Errorf("got %d queued and %d dropped events, want 1 and 3", w.QueuedEvents, w.DroppedEvents)
		}
	}
	if jobs := r.count("SELECT count(*) FROM jobs"); jobs != 2 {
		t.Errorf("%d jobs, want 2", jobs)
	}
	if got, err := r.hooks.DiscardWaiting(t.Context(), limit); err != nil || got != 0 {
		t.Errorf("discarded %d more, %v", got, err)
	}
	r.start()
	rc.wait(t, 1)
	if got, err := r.hooks.ReplayRange(t.Context(), org, webhook.Range{
		WebhookID: enabled.ID, From: limit.Add(-24 * time.Hour), To: limit, States: []webhook.DeliveryState{webhook.Dropped},
	}); err != nil || got != 3 {
		t.Fatalf("replayed %d, %v, want 3", got, err)
	}
	rc.wait(t, 3)
	if got := rc.numbers(); !slices.Equal(slices.Sorted(slices.Values(got)), []int{1, 2, 3, 4}) || got[0] != 4 {
		t.Errorf("received %v, want the later one, then the replays", got)
	}
}
