package webhook

import (
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// TestRedactEvents: RedactEvents removes stored answers and cached bodies; the rest of a delivery
// stays.
func TestRedactEvents(t *testing.T) {
	d := dbtest.New(t)
	s := Open(Config{DB: d, Queue: queue.Open(d, queue.Config{}), Events: new(event.Log), Box: seal.New(seal.NewKey()), Admins: nobody{}, Mailer: nobody{}})
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		for _, id := range []string{"one", "two"} {
			for _, insert := range []string{
				"INSERT INTO deliveries (webhook_id, id, event_id, event, state, created_at, response, error) VALUES ('w', $1, $1, 'x', 2, 1, 'hello', 'e')",
				"INSERT INTO delivery_attempts (webhook_id, delivery_id, attempt, attempted_at, latency, response) VALUES ('w', $1, 1, 1, 1, 'hello')",
			} {
				if _, err := tx.Exec(t.Context(), insert, id); err != nil {
					return err
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	key := bodyKey{"one", payload.Flat}
	s.bodies.GetOrPut(key, []byte("body"))
	if err := d.Write(t.Context(), func(tx *db.Tx) error { return s.RedactEventsTx(t.Context(), tx, []string{"one", "none"}) }); err != nil {
		t.Fatal(err)
	}
	if got, ok := s.bodies.Get(key); ok {
		t.Errorf("got %q in memory", got)
	}
	for _, query := range []string{
		"SELECT id FROM deliveries WHERE response IS NOT NULL AND error = 'e'", "SELECT delivery_id FROM delivery_attempts WHERE response IS NOT NULL",
	} {
		got, err := db.All(t.Context(), d, scanText, query)
		if err != nil || len(got) != 1 || got[0] != "two" {
			t.Errorf("%s: got %q, %v, want two", query, got, err)
		}
	}
}
