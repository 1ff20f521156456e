package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/ops"
)

// archiveURL returns the URL of the archive of backups at a folder or URL.
func archiveURL(at string) string {
	if strings.HasPrefix(at, "s3:") || strings.HasPrefix(at, "file:") {
		return at
	}
	return "file:" + at
}

// copyProgress returns a function that reports the progress of rows or files to standard error,
// once a second, with the rate and the time left.
func (e *env) copyProgress() ops.Progress {
	start, last := time.Now(), time.Now()
	var first int64
	begun := false
	return func(what string, done, total int64) {
		if !begun {
			first, begun = done, true
		}
		now := time.Now()
		if now.Sub(last) < time.Second {
			return
		}
		last = now
		line := fmt.Sprintf("%s: %d", what, done)
		if total > 0 {
			line += fmt.Sprintf(" of %d", total)
		}
		if rate := float64(done-first) / now.Sub(start).Seconds(); rate >= 1 {
			line += fmt.Sprintf(", %.0f/s", rate)
			if total > done {
				left := time.Duration(float64(total-done) / rate * float64(time.Second))
				line += ", " + left.Round(time.Second).String() + " left"
			}
		}
		fmt.Fprintln(e.err, line)
	}
}

type backupCmd struct {
	Target  string `arg:"" placeholder:"TARGET" help:"Folder, or s3://BUCKET?endpoint=…&prefix=…, that has all backups."`
	WithKey bool   `help:"Store the secret key in the backup, which then has all that is needed to read stored secrets."`
}

func (*backupCmd) Help() string {
	return `Backs up the databases and attachments from one moment, while servers run:
  kickstand backup ./backups
  kickstand backup 's3://backups?endpoint=s3.example.com'

The credentials for S3 are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. What the
target has from earlier backups is not stored again. A backup without a file in
backups/ was interrupted and does not count; the next continues with what it stored.
Without --with-key, keep a copy of the secret key elsewhere.`
}

// Run makes a backup.
func (c *backupCmd) Run(ctx context.Context, e *env) error {
	set, err := e.settings()
	if err != nil {
		return err
	}
	m, err := app.Backup(ctx, set, app.BackupOptions{Target: archiveURL(c.Target), WithKey: c.WithKey, Version: programVersion().Version, Progress: e.copyProgress()}, e.logger())
	if err != nil {
		return databaseHint(err)
	}
	var rows int64
	for _, d := range m.Databases {
		for _, t := range d.Tables {
			rows += t.Rows
		}
	}
	record := struct {
		ID      string   `json:"id"`
		Rows    int64    `json:"rows"`
		Files   int64    `json:"files"`
		Bytes   int64    `json:"file_bytes"`
		Missing []string `json:"missing_files"`
		KeyIDs  []string `json:"key_ids"`
		HasKey  bool     `json:"has_key"`
	}{m.ID, rows, m.Files.Count, m.Files.Bytes, m.Files.Missing, m.KeyIDs, m.HasKey}
	if err := e.print(record, func(w io.Writer) {
		fmt.Fprintf(w, "Backup %s: %d rows, %d attachments.\n", m.ID, rows, m.Files.Count)
		if !m.HasKey {
			fmt.Fprintf(w, "It does not have the secret key (%s): keep a copy elsewhere.\n", strings.Join(m.KeyIDs, ", "))
		}
	}); err != nil {
		return err
	}
	if n := len(m.Files.Missing); n > 0 {
		return fmt.Errorf("the backup has all else, but %d attachments are missing or damaged in the store, such as %s; `kickstand verify --blobs` lists them", n, m.Files.Missing[0])
	}
	return nil
}

// databaseHint adds to the error for a missing database how to name another.
func databaseHint(err error) error {
	if missing, ok := errors.AsType[*app.NoDatabaseError](err); ok {
		return fmt.Errorf("%w; name another with --data or --database-url (KICKSTAND_DATA, KICKSTAND_DATABASE_URL)", missing)
	}
	return err
}

type restoreCmd struct {
	Source     string `arg:"" placeholder:"SOURCE" help:"Folder or s3 URL with backups."`
	Backup     string `placeholder:"ID" help:"The backup (default: the newest)."`
	List       bool   `help:"Only list the backups."`
	Check      bool   `help:"Only verify the backup: read all its files and compare their digests."`
	WithoutKey bool   `help:"Restore although the backup's secret key is not configured: stored signing secrets and credentials are lost."`
}

func (*restoreCmd) Help() string {
	return `Restores a backup into an empty data folder or database, on either engine:
  kickstand restore ./backups --data ./restored
  kickstand restore ./backups --database-url postgres://… --data ./restored

Every row and file is verified. A backup of an older version is migrated. After an
interruption, run the command again. Outgoing mail, messages and webhooks are held
until kickstand release, since the backup does not know what was sent after it.`
}

// Run restores a backup.
func (c *restoreCmd) Run(ctx context.Context, e *env) error {
	set, err := e.settings()
	if err != nil {
		return err
	}
	source, err := blob.OpenExistingArchive(archiveURL(c.Source), set.BlobAccess)
	if err != nil {
		return err
	}
	if c.List {
		ids, err := ops.Backups(ctx, source)
		if err != nil {
			return err
		}
		return e.print(append([]string{}, ids...), func(w io.Writer) {
			for _, id := range ids {
				fmt.Fprintln(w, id)
			}
		})
	}
	m, err := ops.OpenManifest(ctx, source, c.Backup)
	if err != nil {
		return err
	}
	if c.Check {
		return e.checkBackup(ctx, source, m)
	}
	if err := app.Restore(ctx, set, app.RestoreOptions{Archive: source, Manifest: m, WithoutKey: c.WithoutKey, Progress: e.copyProgress()}, e.logger()); err != nil {
		return err
	}
	record := struct {
		ID        string    `json:"id"`
		CreatedAt time.Time `json:"created_at"`
		Held      bool      `json:"held"`
	}{m.ID, m.CreatedAt, true}
	return e.print(record, func(w io.Writer) {
		fmt.Fprintf(w, "Restored the backup %s of %s, verified row by row.\n\n", m.ID, m.CreatedAt.Format(time.RFC3339))
		fmt.Fprintln(w, "Next:")
		fmt.Fprintln(w, "  kickstand verify --blobs    checks the records")
		fmt.Fprintln(w, "  kickstand serve             starts the server; outgoing mail, messages and webhooks are held")
		fmt.Fprintln(w, "  kickstand release           lists what waits, and sends or discards it")
		fmt.Fprintln(w, "Sessions and API keys are those of the backup's time: revoke again what was revoked since.")
	})
}

func (e *env) checkBackup(ctx context.Context, source blob.Archive, m ops.Manifest) error {
	checks := []ops.Check{}
	broken := 0
	err := ops.VerifyBackup(ctx, source, m, func(check ops.Check) error {
		checks = append(checks, check)
		if !check.OK() {
			broken++
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := e.print(checks, func(w io.Writer) { printChecks(w, checks) }); err != nil {
		return err
	}
	if broken > 0 {
		return fmt.Errorf("the backup %s is damaged", m.ID)
	}
	return nil
}

type moveCmd struct {
	To    string `required:"" placeholder:"URL" help:"The database to move to: postgres://… or sqlite:PATH; it must be empty."`
	Blobs string `placeholder:"URL" help:"Also copy the attachments to this store: file:PATH or s3://… (default: they stay)."`
}

func (*moveCmd) Help() string {
	return `Copies the databases to another database, such as from SQLite to PostgreSQL, and
compares every row:
  kickstand move --to postgres://kickstand@db.example.com/kickstand

Stop all servers first. After an interruption, run the command again: it continues.
The old database does not change; servers use the new one by KICKSTAND_DATABASE_URL.
Searches find tickets again once a worker has indexed them.`
}

// Run moves the databases.
func (c *moveCmd) Run(ctx context.Context, e *env) error {
	set, err := e.settings()
	if err != nil {
		return err
	}
	m, err := app.Move(ctx, set, app.MoveOptions{To: c.To, Blobs: c.Blobs, Progress: e.copyProgress()}, e.logger())
	if err != nil {
		return databaseHint(err)
	}
	return e.print(m, func(w io.Writer) {
		fmt.Fprintf(w, "Moved %s to %s, verified row by row.\n\nNext:\n  set KICKSTAND_DATABASE_URL to the new database, and start the server\n", m.From, m.To)
		if c.Blobs != "" {
			fmt.Fprintf(w, "  set KICKSTAND_BLOB_URL to the new store; it has %d attachments\n", m.Files)
		}
		fmt.Fprintln(w, "  kickstand verify --blobs    checks the records there")
		fmt.Fprintln(w, "Do not start a server on the old database again: it would send what the new one sends.")
	})
}
