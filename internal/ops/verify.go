package ops

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// Database is one of the program's databases.
type Database struct {
	Name       string
	Schema     db.Schema
	DB         *db.DB
	Invariants []db.Invariant
	Files      []db.FileColumn
	// Derived are tables that are not copied: AfterCopy fills them, or lets them be filled.
	Derived []string
	// AfterCopy runs in the transaction at the end of a copy into the database; nil: nothing.
	AfterCopy func(ctx context.Context, tx *db.Tx) error
}

// Check is the result of one check.
type Check struct {
	Database string   `json:"database"`
	Name     string   `json:"name"`
	Records  int64    `json:"records"`            // that were checked
	Broken   int64    `json:"broken"`             // that break the rule
	Examples []string `json:"examples,omitempty"` // some of these
}

// OK reports whether all records keep the rule.
func (c Check) OK() bool { return c.Broken == 0 }

// maxExamples bounds the examples of a check.
const maxExamples = 5

func (c *Check) add(example string) {
	if c.Broken++; len(c.Examples) < maxExamples {
		c.Examples = append(c.Examples, example)
	}
}

// Verify checks the invariants of a database, each by one statement over a snapshot of its own,
// and calls fn with each result. Other processes may write meanwhile.
func (d Database) Verify(ctx context.Context, fn func(Check) error) error {
	ctx = db.LongRunning(ctx, "verification")
	damage := Check{Database: d.Name, Name: "storage is undamaged"}
	found, err := d.DB.Damage(ctx)
	if err != nil {
		return fmt.Errorf("verify %s: %w", d.Name, err)
	}
	for _, text := range found {
		damage.add(text)
	}
	if err := fn(damage); err != nil {
		return err
	}
	for _, rule := range d.Invariants {
		c := Check{Database: d.Name, Name: rule.Name}
		err := d.DB.Read(ctx, func(tx *db.Tx) error {
			c = Check{Database: d.Name, Name: rule.Name}
			if err := tx.QueryRow(ctx, "SELECT count(*) FROM "+rule.Table).Scan(&c.Records); err != nil {
				return err
			}
			rows, err := tx.Query(ctx, rule.Broken, rule.Args...)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var id string
				if err := rows.Scan(db.IntoText(&id)); err != nil {
					return err
				}
				c.add(id)
			}
			return rows.Err()
		})
		if err != nil {
			return fmt.Errorf("verify that %s: %w", rule.Name, err)
		}
		if err := fn(c); err != nil {
			return err
		}
	}
	return nil
}

// file is a file that a row refers to.
type file struct {
	column db.FileColumn
	key    string
	size   int64 // -1: not stored
}

// fileRows is the number of files that a statement lists.
const fileRows = 1000

// eachFile calls fn with each file that rows refer to. Equal files come once per column.
func (d Database) eachFile(ctx context.Context, q db.Querier, fn func(file) error) error {
	for _, c := range d.Files {
		size := "-1"
		if c.Size != "" {
			size = "coalesce(max(" + c.Size + "), -1)"
		}
		query := fmt.Sprintf("SELECT %s, %s FROM %s WHERE %[1]s > $1 GROUP BY %[1]s ORDER BY %[1]s LIMIT %[4]d", c.Key, size, c.Table, fileRows)
		for last, n := "", fileRows; n == fileRows; {
			list, err := db.All(ctx, q, func(row db.Row) (file, error) {
				f := file{column: c}
				err := row.Scan(&f.key, &f.size)
				return f, err
			}, query, last)
			if err != nil {
				return err
			}
			for _, f := range list {
				if err := fn(f); err != nil {
					return err
				}
				last = f.key
			}
			n = len(list)
		}
	}
	return nil
}

// concurrentFiles is the number of files that are checked or copied at once.
const concurrentFiles = 8

// VerifyFiles checks that the store has each file that rows refer to, in its size, and with
// content that each has its digest.
func (d Database) VerifyFiles(ctx context.Context, store blob.Archive, content bool) (Check, error) {
	c := Check{Database: d.Name, Name: "files are stored in their size"}
	if content {
		c.Name = "files are stored with their content"
	}
	var mu sync.Mutex
	err := parallel(ctx, func(ctx context.Context, add func(func(context.Context) error) error) error {
		return d.eachFile(ctx, d.DB, func(f file) error {
			c.Records++
			return add(func(ctx context.Context) error {
				problem, err := checkFile(ctx, store, f.key, f.size, content)
				if err != nil || problem == "" {
					return err
				}
				if referred, err := d.refers(ctx, f); err != nil || !referred {
					return err // deleted meanwhile
				}
				mu.Lock()
				defer mu.Unlock()
				c.add(f.key + " of " + f.column.Table + ": " + problem)
				return nil
			})
		})
	})
	if err != nil {
		return c, fmt.Errorf("verify the files of %s: %w", d.Name, err)
	}
	return c, nil
}

func (d Database) refers(ctx context.Context, f file) (is bool, err error) {
	err = d.DB.QueryRow(ctx, fmt.Sprintf("SELECT EXISTS (SELECT 1 FROM %s WHERE %s = $1)", f.column.Table, f.column.Key), f.key).Scan(&is)
	return is, err
}

// checkFile describes what is wrong with a stored file; nothing for a good one. size -1 is
// unknown.
func checkFile(ctx context.Context, store blob.Archive, key string, size int64, content bool) (problem string, err error) {
	var got int64
	if !content {
		got, err = store.Size(ctx, key)
	} else {
		var sum string
		if sum, got, err = digest(ctx, store, key); err == nil && sum != key {
			return "its content is not that of its digest", nil
		}
	}
	switch {
	case errors.Is(err, blob.ErrNotFound):
		return "it is missing", nil
	case err != nil:
		return "", err
	case size >= 0 && got != size:
		return fmt.Sprintf("it has %d bytes, not %d", got, size), nil
	}
	return "", nil
}

// digest reads a stored file.
func digest(ctx context.Context, store blob.Store, key string) (sum string, size int64, err error) {
	r, err := store.Open(ctx, key)
	if err != nil {
		return "", 0, err
	}
	defer r.Close()
	h := sha256.New()
	if size, err = io.Copy(h, r); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

// parallel calls fn, which adds functions to run at the same time, few at once. It returns the
// first error, after which no more run.
func parallel(ctx context.Context, fn func(ctx context.Context, add func(func(context.Context) error) error) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	slots := make(chan struct{}, concurrentFiles)
	err := fn(ctx, func(work func(context.Context) error) error {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		running.Go(func() {
			defer func() { <-slots }()
			if err := work(ctx); err != nil {
				cancel(err)
			}
		})
		return nil
	})
	running.Wait()
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}
