package account_test

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestPrune: links of every kind are stored for a day after they stop working, so that
// following one shows the reason, and then all are deleted.
func TestPrune(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	acme := f.organization(t, "Acme")
	by, tokens := f.member(t, acme, "ada@example.com", account.Admin)
	f.exec(t, "DELETE FROM login_links")
	const old, young = 601, 7 // one chunk and more
	for _, tt := range []struct {
		table, statement string
		args             func(i int) []any
		kept             time.Duration
	}{
		{"login_links", `INSERT INTO login_links (digest, intent, email, email_key, redirect, created_at, owned) VALUES ($2, $2, 'a', 'a', '/', $1, FALSE)`, nil, 24*time.Hour + 15*time.Minute},
		{"password_resets", `INSERT INTO password_resets (digest, user_id, created_at) VALUES ($2, $3, $1)`, func(i int) []any {
			return []any{db.Text([]string{by.UserID, ""}[i%2])}
		}, 24*time.Hour + 30*time.Minute},
		{"provider_logins", `INSERT INTO provider_logins (digest, intent, redirect, created_at) VALUES ($2, $2, '/', $1)`, nil, 24*time.Hour + 15*time.Minute},
		{"invitations", `INSERT INTO invitations (digest, created_at, id, organization_id, email, email_key, role, invited_by, inviter_id) VALUES ($2, $1, $3, $4, $3, $3, 'agent', 'Ada', '')`, func(i int) []any {
			return []any{fmt.Sprint(i), acme.ID}
		}, 8 * 24 * time.Hour},
	} {
		if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
			for i := range old + young {
				age := tt.kept + time.Second
				if i >= old {
					age = tt.kept - time.Minute // more than the duration of the test
				}
				digest := sha256.Sum256(fmt.Append(nil, i))
				args := []any{tx.Now.Add(-age).UnixMicro(), digest[:]}
				if tt.args != nil {
					args = append(args, tt.args(i)...)
				}
				if _, err := tx.Exec(t.Context(), tt.statement, args...); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatalf("%s: %v", tt.table, err)
		}
		if err := f.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := f.count(t, "SELECT count(*) FROM "+tt.table); n != young {
			t.Errorf("%s: got %d rows left, want %d", tt.table, n, young)
		}
	}
	for _, tt := range []struct {
		table string
		want  int
	}{
		{"login_links", young}, {"password_resets", young}, {"provider_logins", young}, {"invitations", young},
		{"users", 1}, {"organizations", 1}, {"sessions", 1}, {"session_tokens", 2},
	} {
		if n := f.count(t, "SELECT count(*) FROM "+tt.table); n != tt.want {
			t.Errorf("%s: got %d rows in the end, want %d", tt.table, n, tt.want)
		}
	}
	if !f.works(t, tokens.Access) {
		t.Error("a session ended")
	}
}
