package db_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestConnectionsBeforeProofs: connections from before the proofs stay connected and are
// marked.
func TestConnectionsBeforeProofs(t *testing.T) {
	onEachEngine(t, func(t *testing.T, rawURL string) {
		scripts, err := db.Helpdesk.Scripts()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(scripts, func(s string) bool { return strings.Contains(s, "connections_proven") })
		d := dbtest.Open(t, rawURL)
		if _, err := db.MigrateScripts(t.Context(), d, scripts[:i]...); err != nil {
			t.Fatal(err)
		}
		write(t, d, `INSERT INTO connections (id, organization_id, channel, medium, address, name, secrets, credentials, settings, enabled, created_at, updated_at, notice)
			VALUES ('c1', 'org-1', 'sms', 'sms', '+14155550100', 'Main', 'sealed', 'sealed', '{}', TRUE, 5, 7, 'odd')`)
		if _, err := db.MigrateScripts(t.Context(), d, scripts...); err != nil {
			t.Fatal(err)
		}
		got := texts(t, d, `SELECT id || ' ' || organization_id || ' ' || address || ' ' || name || ' ' || notice || ' ' || proof || ' ' || proof_method || ' ' || CAST(proven_at AS TEXT) FROM connections`)
		if want := []string{"c1 org-1 +14155550100 Main odd proven before_proofs 5"}; !slices.Equal(got, want) {
			t.Errorf("connections %q, want %q", got, want)
		}
	})
}
