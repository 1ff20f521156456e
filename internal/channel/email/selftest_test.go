package email_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
)

// TestParseSample: a sample verifies with the key of its own test only, and never with that of the
// connection; a secret that is no public key is reported without repeating it.
func TestParseSample(t *testing.T) {
	key, err := email.NewParseKey()
	if err != nil {
		t.Fatal(err)
	}
	a := email.NewParsed(email.Config{})
	s := channel.Sample{URL: "https://help.example/api/webhooks/inbound-email?c=1", Address: "help@example.com", Secret: key, At: time.Now()}
	req, trial, err := a.SampleByTestKey(s)
	if err != nil {
		t.Fatal(err)
	}
	own := trial.(channel.SecretResolver).SigningSecrets("email-parse", []string{key}, channel.Credentials{})
	if len(own) != 1 || !trial.Verify(req, own[0]) || a.Verify(req, key) {
		t.Errorf("verified by the key of the test: %t, of the connection: %t; want only the first", trial.Verify(req, own[0]), a.Verify(req, key))
	}
	if to, err := trial.Addresses(req); err != nil || len(to) != 1 || to[0] != s.Address {
		t.Errorf("Addresses() = %q, %v", to, err)
	}
	s.Secret = "not a public key"
	if _, _, err := a.SampleByTestKey(s); err == nil || strings.Contains(err.Error(), s.Secret) || !strings.Contains(err.Error(), "P-256") {
		t.Errorf("with another secret: %v, want the reason", err)
	}
}
