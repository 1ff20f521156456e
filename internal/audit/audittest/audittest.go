// Package audittest opens audit logs for tests.
package audittest

import (
	"context"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// key signs all logs of the process, so that several logs on one database agree.
var key = seal.NewKey()

// Open returns the log of a helpdesk database.
func Open(d *db.DB) *audit.Log { return open(d, "helpdesk", "helpdesk", "live") }

// Fleet returns the log of a fleet database, live or sandbox.
func Fleet(d *db.DB, live bool) *audit.Log {
	if live {
		return open(d, "fleet_live", "fleet", "live")
	}
	return open(d, "fleet_sandbox", "fleet", "test")
}

func open(d *db.DB, ledger, service, environment string) *audit.Log {
	return audit.Open(audit.Config{DB: d, Box: seal.New(key), Ledger: ledger, Service: service, Environment: environment})
}

// List returns an organization's entries that match q, newest first.
func List(t testing.TB, l *audit.Log, organizationID string, q audit.Query) []audit.Entry {
	t.Helper()
	q.Limit = audit.MaxPage
	page, err := audit.List(t.Context(), []*audit.Log{l}, organizationID, q)
	if err != nil {
		t.Fatal(err)
	}
	return page.Entries
}

// Flush writes the collected refusals, as at the end of the process.
func Flush(t testing.TB, l *audit.Log) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	l.Run(ctx)
}
