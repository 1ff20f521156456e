package ops

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// live is a set of open databases as a [source]. Nobody else writes to them.
type live struct {
	name      string
	databases []Database
}

func (l live) id() string { return l.name }

func (l live) database(name string) (Database, error) {
	i := slices.IndexFunc(l.databases, func(d Database) bool { return d.Name == name })
	if i < 0 {
		return Database{}, fmt.Errorf("there is no database %s to move", name)
	}
	return l.databases[i], nil
}

func (l live) describe(ctx context.Context, name string) (int64, []copiedTable, error) {
	d, err := l.database(name)
	if err != nil {
		return 0, nil, err
	}
	state, err := d.DB.Inspect(ctx)
	if err != nil {
		return 0, nil, err
	}
	tables, err := d.tables(ctx)
	if err != nil {
		return 0, nil, err
	}
	var list []copiedTable
	for _, t := range tables {
		c := copiedTable{Table: t}
		err := d.DB.Read(db.LongRunning(ctx, "move"), func(tx *db.Tx) error {
			return tx.QueryRow(ctx, "SELECT count(*) FROM "+db.Quote(t.Name)).Scan(&c.rows)
		})
		if err != nil {
			return 0, nil, err
		}
		list = append(list, c)
	}
	return state.Version, list, nil
}

func (l live) lines(ctx context.Context, name string, t db.Table, from db.Copied) iter.Seq2[[]byte, error] {
	d, err := l.database(name)
	if err != nil {
		return func(yield func([]byte, error) bool) { yield(nil, err) }
	}
	return snapshotLines(ctx, d.DB, t, from.Last)
}

// snapshotLines is [lines] over a snapshot of the database.
func snapshotLines(ctx context.Context, d *db.DB, t db.Table, after string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		stopped := false
		err := d.Read(db.LongRunning(ctx, "copy"), func(tx *db.Tx) error {
			for line, err := range lines(ctx, tx, t, after) {
				if err != nil {
					return err
				}
				if !yield(line, nil) {
					stopped = true
					return nil
				}
			}
			return nil
		})
		if err != nil && !stopped {
			yield(nil, err)
		}
	}
}

// Move configures [Move.Run].
type Move struct {
	Name     string // of the source, to recognize an interrupted move
	From, To []Database
	Progress Progress
}

// Run copies all rows into empty databases and compares each. After an interruption it continues.
// No server may run on either side.
func (m Move) Run(ctx context.Context) error {
	return load(ctx, live{m.Name, m.From}, m.To, m.Progress, func(context.Context) error { return nil })
}

// CopyFiles copies the files that rows refer to into another store. It returns the number of files,
// and the digests of those that the first store does not have or that are damaged there.
func CopyFiles(ctx context.Context, from []Database, store, to blob.Archive, progress Progress) (copied int64, missing []string, err error) {
	files := fileCopy{from: store, to: to, progress: progress}
	for _, d := range from {
		if err := files.each(ctx, d, d.DB); err != nil {
			return 0, nil, fmt.Errorf("copy the attachments: %w", err)
		}
	}
	return int64(len(files.seen)), files.missing, nil
}
