package app

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/importer"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/mailbox"
	"github.com/kickstand-dev/kickstand/internal/ops"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/shop"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// helpdeskFiles returns the columns of the helpdesk that refer to stored files.
func helpdeskFiles() []db.FileColumn {
	var list []db.FileColumn
	for _, of := range [][]db.FileColumn{desk.FileColumns, inbound.FileColumns, shop.FileColumns, importer.FileColumns} {
		list = append(list, of...)
	}
	return list
}

// opsDatabases describes the open databases for package ops, with the rules of their records.
func (a *App) opsDatabases() []ops.Database {
	list := copiedDatabases([3]*db.DB{a.DB, a.Fleet.DB, a.Sandbox.DB})
	since := time.Time{}
	if kept := a.current.Load().Retention.Events; kept > 0 {
		since = a.DB.Now().Add(-kept).Add(2 * time.Hour) // retention runs every hour
	}
	list[0].Invariants = desk.Invariants(a.DB.Postgres(), since)
	for _, more := range [][]db.Invariant{inbound.Invariants(), queue.Invariants(), webhook.Invariants(), mailbox.Invariants(), quota.Invariants(countedFiles...)} {
		list[0].Invariants = append(list[0].Invariants, more...)
	}
	list[1].Invariants, list[2].Invariants = fleet.Invariants(), fleet.Invariants()
	return list
}

// copiedDatabases describes databases for backups and copies.
func copiedDatabases(open [3]*db.DB) []ops.Database {
	helpdesk := ops.Database{Files: helpdeskFiles(), Derived: slices.Concat(desk.DerivedTables, queue.DerivedTables)}
	helpdesk.AfterCopy = func(ctx context.Context, tx *db.Tx) error {
		if err := queue.RenumberTx(ctx, tx, open[0].Postgres()); err != nil {
			return err
		}
		return desk.ReindexTx(ctx, tx)
	}
	list := []ops.Database{helpdesk, {}, {}}
	for i := range list {
		list[i].Name, list[i].Schema, list[i].DB = databases[i].name, databases[i].schema, open[i]
	}
	return list
}

// Verify checks what must hold of all stored records, and calls fn with each result. With
// content it also reads every file.
func (a *App) Verify(ctx context.Context, content bool, fn func(ops.Check) error) error {
	store := a.files.(blob.Archive)
	logs := a.AuditLogs()
	for i, d := range a.opsDatabases() {
		if err := d.Verify(ctx, fn); err != nil {
			return err
		}
		chains := ops.Check{Database: d.Name, Name: "audit chains are complete"}
		err := logs[i].Verify(ctx, audit.Verification{}, func(r audit.Report) error {
			chains.Records += r.Sequence + r.BeforeChain
			if !r.OK {
				chains.Broken++
				chains.Examples = append(chains.Examples, fmt.Sprintf("organization %s, entry %s: %s", r.OrganizationID, strconv.FormatInt(r.FirstBad, 10), r.Problem))
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := fn(chains); err != nil {
			return err
		}
		if len(d.Files) == 0 {
			continue
		}
		files, err := d.VerifyFiles(ctx, store, content)
		if err != nil {
			return err
		}
		if err := fn(files); err != nil {
			return err
		}
	}
	return nil
}
