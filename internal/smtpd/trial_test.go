package smtpd_test

import (
	"context"
	"strings"
	"testing"
)

// TestTry: a test mail is received as any other and is neither stored nor logged; a refused address
// has its reason.
func TestTry(t *testing.T) {
	r := start(t)
	c := r.own("acme", ours, nil)
	r.connect("bolt", "email-smtp", "pending@bolt.example", false, nil)
	copies, err := r.Try(t.Context(), ours)
	if err != nil || len(copies) != 1 || copies[0].Connection.ID != c.ID || !strings.Contains(string(copies[0].Request.Body), "\r\nSubject: Test\r\n") {
		t.Fatalf("Try() = %+v, %v, want a copy for the connection", copies, err)
	}
	for address, want := range map[string]string{"nobody@acme.example": "550", "pending@bolt.example": "450"} {
		if _, err := r.Try(t.Context(), address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Try(%s) = %v, want %s", address, err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Try(ended, ours); err == nil {
		t.Error("a canceled test has no error")
	}
	if len(r.journal.copies()) != 0 || len(r.journal.refused) != 0 || r.access.Len() != 0 {
		t.Errorf("stored %d, refused %q, logged %q; want nothing", len(r.journal.copies()), r.journal.refused, r.access.String())
	}
}
