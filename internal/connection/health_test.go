package connection_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestHealth records what a connection does, at most once in ten seconds per kind.
func TestHealth(t *testing.T) {
	dbtest.OnlySQLite(t) // in virtual time
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.New(t)
		s := open(d, newBox(t))
		c := connect(t, s, connection.New{OrganizationID: "o1", Channel: "sms", Address: "+14155550100"})
		health := func() connection.Health {
			t.Helper()
			h, err := s.Health(t.Context(), d, &c)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		send := func(reason string) {
			t.Helper()
			if err := s.RecordSend(t.Context(), c.ID, reason); err != nil {
				t.Fatal(err)
			}
		}
		if h := health(); h != (connection.Health{}) || h.Failing() {
			t.Errorf("at first: %+v", h)
		}
		send("")
		first := health().SentAt
		time.Sleep(5 * time.Second)
		send("")
		if got := health().SentAt; first.IsZero() || !got.Equal(first) {
			t.Errorf("five seconds later: %v, want %v still", got, first)
		}
		send("the provider rejected the key (401)")
		if h := health(); !h.Failing() || h.Error != "the provider rejected the key (401)" {
			t.Errorf("after a failure: %+v", h)
		}
		time.Sleep(6 * time.Second)
		send("")
		if h := health(); !h.SentAt.After(first) || h.Failing() {
			t.Errorf("after a success: %+v", h)
		}
		if err := d.Write(t.Context(), func(tx *db.Tx) error { return s.RecordReceivedTx(t.Context(), tx, c.ID) }); err != nil {
			t.Fatal(err)
		}
		if health().ReceivedAt.IsZero() {
			t.Error("nothing is received")
		}
		if _, err := s.Rotate(t.Context(), "o1", c.ID, "a new secret of the provider", time.Hour); err != nil {
			t.Fatal(err)
		}
		now, err := s.FindOf(t.Context(), d, "o1", c.ID)
		if err != nil {
			t.Fatal(err)
		}
		c = now
		if in := health().SecretEndsAt.Sub(d.Now()).Round(time.Minute); in != time.Hour {
			t.Errorf("the replaced secret ends in %v, want an hour", in)
		}
	})
}
