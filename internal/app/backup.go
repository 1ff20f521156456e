package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/ops"
	"github.com/kickstand-dev/kickstand/internal/outbound"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// BackupOptions configures [Backup].
type BackupOptions struct {
	Target   string // URL of the archive, as for [blob.OpenArchive]
	WithKey  bool   // the backup has the secret keys too
	Version  string // of the program
	Progress ops.Progress
}

// Backup backs up the databases and attachments of c, while servers may run. It does not migrate
// the databases.
func Backup(ctx context.Context, c Config, o BackupOptions, log *slog.Logger) (m ops.Manifest, err error) {
	if err := c.requireDatabase(ctx); err != nil {
		return m, err
	}
	keys, err := c.existingKeys()
	if err != nil {
		return m, err
	}
	opened, err := openForCopy(ctx, c, log)
	if err != nil {
		return m, err
	}
	defer closeAll(opened)
	store, done, err := openArchive(c.blobURL(), c.BlobAccess)
	if err != nil {
		return m, fmt.Errorf("attachments: %w", err)
	}
	defer done()
	target, done, err := openArchive(o.Target, c.BlobAccess)
	if err != nil {
		return m, err
	}
	defer done()
	b := ops.Backup{Databases: copiedDatabases(opened), Files: store, Target: target, Version: o.Version, KeyIDs: keyIDs(keys), Progress: o.Progress}
	if o.WithKey {
		for _, k := range keys {
			b.Key = append(b.Key, k.Encode()+"\n"...)
		}
	}
	return b.Run(ctx)
}

// requireDatabase returns an error if there is no complete database.
func (c Config) requireDatabase(ctx context.Context) error {
	at, o := databases[0].at(&c)
	exists, err := db.Exists(ctx, at, o)
	if err == nil && !exists {
		err = &NoDatabaseError{databaseName(at)}
	}
	if err != nil {
		return err
	}
	d, err := db.Open(ctx, at, o)
	if err != nil {
		return err
	}
	defer d.Close()
	copying, err := d.Copying(ctx)
	if err == nil && copying {
		err = db.ErrUnfinishedCopy
	}
	return err
}

// existingKeys returns the secret keys; none if none is configured or stored.
func (c Config) existingKeys() ([]seal.Key, error) {
	if _, err := os.Stat(c.keyPath()); c.SecretKey == "" && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return c.secretKeys()
}

func keyIDs(keys []seal.Key) []string {
	ids := make([]string, len(keys))
	for i, k := range keys {
		ids[i] = k.ID()
	}
	return ids
}

// RestoreOptions configures [Restore].
type RestoreOptions struct {
	Archive  blob.Archive
	Manifest ops.Manifest
	// WithoutKey restores although no key of the backup is configured.
	WithoutKey bool
	Progress   ops.Progress
}

// Restore restores a backup into the databases and the store of c, which must be empty. Outgoing
// mail, messages and webhooks are held until they are released.
func Restore(ctx context.Context, c Config, o RestoreOptions, log *slog.Logger) error {
	release, err := c.Lock()
	if err != nil {
		return err
	}
	defer release()
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	if err := c.restoreKey(ctx, o); err != nil {
		return err
	}
	opened, err := openForCopy(ctx, c, log)
	if err != nil {
		return err
	}
	defer closeAll(opened)
	store, done, err := openArchive(c.blobURL(), c.BlobAccess)
	if err != nil {
		return fmt.Errorf("attachments: %w", err)
	}
	defer done()
	into := copiedDatabases(opened)
	reason := "restored from the backup of " + o.Manifest.CreatedAt.UTC().Format("2006-01-02 15:04:05 UTC")
	reindex := into[0].AfterCopy
	into[0].AfterCopy = func(ctx context.Context, tx *db.Tx) error {
		if err := reindex(ctx, tx); err != nil {
			return err
		}
		if err := c.recordTx(ctx, tx, opened[0], audit.Entry{
			Action: auditRestored, Target: audit.Target{Type: "backup", ID: o.Manifest.ID}, Details: map[string]any{"version": o.Manifest.Version},
		}); err != nil {
			return err
		}
		return outbound.HoldAfterRestoreTx(ctx, tx, reason)
	}
	return ops.Restore{Archive: o.Archive, Manifest: o.Manifest, Databases: into, Files: store, Progress: o.Progress}.Run(ctx)
}

// restoreKey writes the key of a backup that has it, or checks that the configured keys are the
// backup's.
func (c Config) restoreKey(ctx context.Context, o RestoreOptions) error {
	keys, err := c.existingKeys()
	if err != nil {
		return err
	}
	if len(keys) == 0 && o.Manifest.HasKey {
		text, err := ops.OpenKey(ctx, o.Archive, o.Manifest)
		if err != nil {
			return fmt.Errorf("read the secret key of the backup: %w", err)
		}
		if err := os.WriteFile(c.keyPath(), text, 0o600); err != nil {
			return fmt.Errorf("write the secret key: %w", err)
		}
		if keys, err = c.existingKeys(); err != nil {
			return err
		}
	}
	has := keyIDs(keys)
	var lacking []string
	for _, id := range o.Manifest.KeyIDs {
		if !slices.Contains(has, id) {
			lacking = append(lacking, id)
		}
	}
	if len(lacking) == 0 || o.WithoutKey {
		return nil
	}
	return fmt.Errorf("the secret key %s, which encrypts the backup's stored secrets, is not configured: write it to %s (mode 0600) or set KICKSTAND_SECRET_KEY; --without-key restores anyway, and the stored signing secrets and credentials are lost",
		strings.Join(lacking, ", "), c.keyPath())
}

// openForCopy opens the databases without migrating them.
func openForCopy(ctx context.Context, c Config, log *slog.Logger) (opened [3]*db.DB, err error) {
	if err := c.protectFiles(ctx, log); err != nil {
		return opened, err
	}
	for i, of := range databases {
		at, o := of.at(&c)
		o.Logger = log
		if opened[i], err = db.Open(ctx, at, o); err != nil {
			closeAll(opened)
			return opened, err
		}
	}
	return opened, nil
}

func closeAll(opened [3]*db.DB) {
	for _, d := range opened {
		if d != nil {
			d.Close()
		}
	}
}

// openArchive opens a store for backups or attachments.
func openArchive(rawURL string, aws blob.Credentials) (blob.Archive, func(), error) {
	store, err := blob.OpenArchive(rawURL, aws)
	if err != nil {
		return nil, nil, err
	}
	return store, func() {
		if c, ok := store.(interface{ Close() error }); ok {
			c.Close()
		}
	}, nil
}

// MoveOptions configures [Move].
type MoveOptions struct {
	To       string // URL of the helpdesk's database
	Blobs    string // URL of another store of attachments; empty: they stay
	Progress ops.Progress
}

// Moved is the result of [Move].
type Moved struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Files int64  `json:"files"` // attachments that the other store has
}

// Move copies the databases of c to others, on either engine, and compares each row. No server may
// run. c's databases do not change.
func Move(ctx context.Context, c Config, o MoveOptions, log *slog.Logger) (m Moved, err error) {
	m = Moved{From: databaseName(c.databaseURL()), To: databaseName(o.To)}
	if m.From == m.To {
		return m, fmt.Errorf("%s is the database that is to be moved", m.To)
	}
	if err := c.requireDatabase(ctx); err != nil {
		return m, err
	}
	target := c
	target.DatabaseURL, target.DatabaseDirectURL = o.To, ""
	for _, c := range []Config{c, target} {
		release, err := c.Lock()
		if err != nil {
			return m, err
		}
		defer release()
	}
	c.DatabaseURL = withApplicationName(c.databaseURL())
	from, _, err := openDatabases(ctx, c, log)
	if err != nil {
		return m, err
	}
	defer closeAll(from)
	if err := refuseServers(ctx, from[0]); err != nil {
		return m, err
	}
	into, err := openForCopy(ctx, target, log)
	if err != nil {
		return m, err
	}
	defer closeAll(into)
	move := ops.Move{Name: "the database " + m.From, From: copiedDatabases(from), To: copiedDatabases(into), Progress: o.Progress}
	reindex := move.To[0].AfterCopy
	move.To[0].AfterCopy = func(ctx context.Context, tx *db.Tx) error {
		if err := reindex(ctx, tx); err != nil {
			return err
		}
		return c.recordTx(ctx, tx, into[0], audit.Entry{
			Action: auditMoved, Target: audit.Target{Type: "database", ID: databases[0].name, Name: m.To}, Details: map[string]any{"from": m.From},
		})
	}
	if o.Blobs != "" {
		if m.Files, err = c.moveFiles(ctx, o, move.From); err != nil {
			return m, err
		}
	}
	last := len(move.To) - 1
	move.To[last].AfterCopy = func(ctx context.Context, _ *db.Tx) error { return refuseServers(ctx, from[0]) }
	return m, move.Run(ctx)
}

// Actions in the deployment's chain of the helpdesk.
const (
	auditRestored audit.Action = "deployment.restored"
	auditMoved    audit.Action = "deployment.moved"
)

// recordTx adds an entry to the deployment's chain of the helpdesk's database d, which no server
// uses. Without a secret key there is no entry, since nothing could sign it.
func (c Config) recordTx(ctx context.Context, tx *db.Tx, d *db.DB, e audit.Entry) error {
	keys, err := c.existingKeys()
	if err != nil || len(keys) == 0 {
		return err
	}
	log := audit.Open(audit.Config{
		DB: d, Box: seal.New(keys[0], keys[1:]...), Ledger: databases[0].name,
		Service: string(apikey.Helpdesk), Environment: string(apikey.Live),
	})
	return log.RecordTx(ctx, tx, e)
}

// moveFiles copies the attachments to another store.
func (c Config) moveFiles(ctx context.Context, o MoveOptions, from []ops.Database) (copied int64, err error) {
	store, done, err := openArchive(c.blobURL(), c.BlobAccess)
	if err != nil {
		return 0, fmt.Errorf("attachments: %w", err)
	}
	defer done()
	to, done, err := openArchive(o.Blobs, c.BlobAccess)
	if err != nil {
		return 0, fmt.Errorf("--blobs: %w", err)
	}
	defer done()
	copied, missing, err := ops.CopyFiles(ctx, from, store, to, o.Progress)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("%d attachments are missing or damaged, such as %s; `kickstand verify --blobs` lists them", len(missing), missing[0])
	}
	return copied, err
}

// withApplicationName returns a PostgreSQL URL that names this process to the server.
func withApplicationName(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return rawURL
	}
	q := u.Query()
	q.Set("application_name", "kickstand move "+rand.Text()[:8])
	u.RawQuery = q.Encode()
	return u.String()
}

// refuseServers returns an error if other processes use a PostgreSQL database.
func refuseServers(ctx context.Context, d *db.DB) error {
	others, err := d.OtherSessions(ctx)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		return fmt.Errorf("servers must not run during a move, and the database has other sessions: %s; stop them and run the move again", strings.Join(others, ", "))
	}
	return nil
}
