package db_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestJobsBeforeOrder: jobs from before their order keep the order of their ids, and jobs that a
// previous version inserts follow them.
func TestJobsBeforeOrder(t *testing.T) {
	onEachEngine(t, func(t *testing.T, rawURL string) {
		scripts, err := db.Helpdesk.Scripts()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(scripts, func(s string) bool { return strings.Contains(s, "jobs_lane") })
		d := dbtest.Open(t, rawURL)
		if _, err := db.MigrateScripts(t.Context(), d, scripts[:i]...); err != nil {
			t.Fatal(err)
		}
		const insert = "INSERT INTO jobs (id, kind, lane, state, payload, run_at, created_at) VALUES "
		write(t, d, insert+"('b', 'k', 'l', 0, '', 0, 0), ('c', 'k', 'l', 1, '', 0, 0), ('a', 'k', 'l', 2, '', 0, 0)")
		if _, err := db.MigrateScripts(t.Context(), d, scripts...); err != nil {
			t.Fatal(err)
		}
		write(t, d, insert+"('0', 'k', 'l', 0, '', 0, 0)")
		write(t, d, insert+"('d', 'k', 'l', 0, '', 0, 0)")
		got := texts(t, d, "SELECT id FROM jobs ORDER BY seq")
		if want := []string{"a", "b", "c", "0", "d"}; !slices.Equal(got, want) {
			t.Errorf("jobs in the order %q, want %q", got, want)
		}
		if n := texts(t, d, "SELECT CAST(count(DISTINCT seq) AS TEXT) FROM jobs WHERE seq > 0"); n[0] != "5" {
			t.Errorf("got %s numbers, want 5", n[0])
		}
	})
}
