package desk_test

import (
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
)

// wantInvariants checks the rules of stored tickets, except that organizations exist: they are
// made up here.
func (f *fixture) wantInvariants(t *testing.T) {
	t.Helper()
	for _, rule := range desk.Invariants(f.db.Postgres(), time.Time{}) {
		if rule.Name == "tickets belong to organizations" {
			continue
		}
		broken, err := db.All(t.Context(), f.db, func(row db.Row) (id string, err error) {
			err = row.Scan(db.IntoText(&id))
			return id, err
		}, rule.Broken, rule.Args...)
		if err != nil || len(broken) > 0 {
			t.Errorf("%s: not %q, %v", rule.Name, broken, err)
		}
	}
}
