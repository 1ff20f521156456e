package connection_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestByID: a process sees its own changes at once, other processes' soon.
func TestByID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, box := dbtest.NewSQLite(t), newBox(t)
		here, there := open(d, box), open(d, box)
		want := func(s *connection.Service, id string, enabled, found bool) {
			t.Helper()
			c, err := s.ByID(t.Context(), id)
			if err != nil || (c != nil) != found || c != nil && (c.ID != id || c.Enabled != enabled) {
				t.Errorf("ByID() = %+v, %v, want it found %t, enabled %t", c, err, found, enabled)
			}
		}
		want(here, "x", false, false)
		c := connect(t, here, connection.New{OrganizationID: "org-1", Channel: "sms", Address: "+14155550100"})
		want(here, c.ID, true, true)
		want(there, c.ID, true, true)
		if err := here.SetEnabled(t.Context(), "org-1", c.ID, false); err != nil {
			t.Fatal(err)
		}
		want(here, c.ID, false, true)
		want(there, c.ID, true, true)
		time.Sleep(connection.CacheTTL)
		want(there, c.ID, false, true)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		want(there, c.ID, false, true)
		time.Sleep(connection.CacheTTL)
		if _, err := there.ByID(t.Context(), c.ID); err == nil {
			t.Error("ByID() without a database succeeds")
		}
	})
}

func TestHolds(t *testing.T) {
	s := open(dbtest.New(t), newBox(t))
	holder := func(channel, address, value string) connection.Connection {
		return connect(t, s, connection.New{OrganizationID: "org-1", Channel: channel, Address: address, Credentials: map[string]string{"verify_token": value, "other": "another"}})
	}
	holder("sms", "+14155550100", "first")
	c := holder("sms", "+14155550101", "second")
	holder("sms", "+14155550102", "")
	holder("email-raw", "help@acme.example", "mail")
	want := func(channels []string, value string, want bool) {
		t.Helper()
		if got, err := s.HasCredential(t.Context(), channels, "verify_token", value); got != want || err != nil {
			t.Errorf("Holds(%v, %q) = %t, %v, want %t", channels, value, got, err, want)
		}
	}
	sms := []string{"sms"}
	want(sms, "first", true)
	want(sms, "second", true)
	want(sms, "First", false)
	want(sms, "", false)
	want(sms, "mail", false)
	want(sms, "another", false)
	want([]string{"sms", "email-raw"}, "mail", true)
	want([]string{"email-raw", "sms"}, "first", true)
	want(nil, "first", false)
	if err := s.SetEnabled(t.Context(), "org-1", c.ID, false); err != nil {
		t.Fatal(err)
	}
	want(sms, "second", false)
	holder("sms", "+14155550103", "third")
	want(sms, "third", true)
}
