package ops

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// formatVersion is the version of the manifest's form. Older programs refuse newer forms.
const formatVersion = 1

// Manifest describes a backup. It is stored last: without it there is no backup.
type Manifest struct {
	Format    int              `json:"format"`
	ID        string           `json:"id"`         // sorts by time
	CreatedAt time.Time        `json:"created_at"` // by the database's clock
	Version   string           `json:"version"`    // of the program
	KeyIDs    []string         `json:"key_ids"`    // of the secret keys, newest first
	HasKey    bool             `json:"has_key"`    // the keys are stored beside the manifest
	Databases []BackupDatabase `json:"databases"`
	Files     BackupFiles      `json:"files"`
}

// BackupDatabase is a database in a backup.
type BackupDatabase struct {
	Name    string        `json:"name"`
	Schema  db.Schema     `json:"schema"`
	Version int64         `json:"schema_version"`
	Engine  string        `json:"engine"`
	TakenAt time.Time     `json:"taken_at"` // of its snapshot
	Tables  []BackupTable `json:"tables"`
}

// BackupTable is a table in a backup. Its rows are in the parts, in the order of the key.
type BackupTable struct {
	db.Table
	Rows   int64  `json:"rows"`
	Digest string `json:"digest"` // SHA-256 of all lines
	Parts  []Part `json:"parts"`
}

// Part is a file of the archive with lines, compressed by zstd.
type Part struct {
	Key   string `json:"key"`
	Size  int64  `json:"size"`
	Lines int64  `json:"lines"`
}

// BackupFiles are the attachments in a backup. Each is a file of the archive under its own digest.
type BackupFiles struct {
	Count   int64    `json:"count"`
	Bytes   int64    `json:"bytes"`
	Missing []string `json:"missing"` // that rows refer to and the store did not have
	Parts   []Part   `json:"parts"`   // a line per file: its digest and size
}

// keySuffix and manifestSuffix end the names of the files of a backup.
const (
	manifestSuffix = ".json"
	keySuffix      = ".key"
)

// Backup configures [Backup.Run].
type Backup struct {
	Databases []Database // the first is the helpdesk's
	Files     blob.Archive
	Target    blob.Archive
	Version   string
	KeyIDs    []string
	Key       []byte // the text of the secret keys to store; empty: none
	Progress  Progress
}

// Run makes a backup while servers may run. All databases are read in snapshots that begin
// together. Files are copied before, so that the snapshots are short, and again after for those
// added meanwhile. What the target has from earlier backups is not stored again.
func (b Backup) Run(ctx context.Context) (Manifest, error) {
	m := Manifest{Format: formatVersion, Version: b.Version, KeyIDs: b.KeyIDs, HasKey: len(b.Key) > 0}
	files := fileCopy{from: b.Files, to: b.Target, progress: b.Progress}
	b.Databases = slices.Clone(b.Databases)
	for i := range b.Databases {
		d := &b.Databases[i]
		if err := d.dropMissingFiles(ctx); err != nil {
			return m, err
		}
		if err := files.each(ctx, *d, d.DB); err != nil {
			return m, fmt.Errorf("back up the attachments: %w", err)
		}
	}
	files.missing, files.seen = nil, map[string]int64{}
	err := snapshots(db.LongRunning(ctx, "backup"), b.Databases, nil, func(open []*db.Tx) error {
		m.CreatedAt = open[0].Now
		m.ID = m.CreatedAt.UTC().Format("2006-01-02T15-04-05.000000Z")
		for i, d := range b.Databases {
			if err := b.database(ctx, d, open[i], &m); err != nil {
				return fmt.Errorf("back up the database %s: %w", d.Name, err)
			}
			if err := files.each(ctx, d, open[i]); err != nil {
				return fmt.Errorf("back up the attachments: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return m, err
	}
	if m.Files, err = files.manifest(ctx); err != nil {
		return m, err
	}
	if m.HasKey {
		if err := b.Target.PutNamed(ctx, m.ID+keySuffix, b.Key); err != nil {
			return m, err
		}
	}
	text, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return m, err
	}
	return m, b.Target.PutNamed(ctx, m.ID+manifestSuffix, append(text, '\n'))
}

// snapshots opens a snapshot of each database and calls fn with all.
func snapshots(ctx context.Context, rest []Database, open []*db.Tx, fn func([]*db.Tx) error) error {
	if len(rest) == 0 {
		return fn(open)
	}
	return rest[0].DB.Read(ctx, func(tx *db.Tx) error {
		var n int64 // the first statement fixes the snapshot
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM schema_migrations").Scan(&n); err != nil {
			return err
		}
		return snapshots(ctx, rest[1:], append(open, tx), fn)
	})
}

// database writes the parts of a database and adds it to the manifest.
func (b Backup) database(ctx context.Context, d Database, tx *db.Tx, m *Manifest) error {
	state, err := d.DB.Inspect(ctx)
	if err != nil {
		return err
	}
	described := BackupDatabase{Name: d.Name, Schema: d.Schema, Engine: state.Engine, TakenAt: tx.Now, Version: state.Version}
	tables, err := d.tables(ctx)
	if err != nil {
		return err
	}
	for i, t := range tables {
		b.Progress("reading "+d.Name+" "+t.Name, int64(i), int64(len(tables)))
		stored := BackupTable{Table: t}
		w := partWriter{target: b.Target}
		whole := sha256.New()
		for line, err := range lines(ctx, tx, t, "") {
			if err != nil {
				return err
			}
			whole.Write(line)
			whole.Write([]byte{'\n'})
			if err := w.add(ctx, line); err != nil {
				return err
			}
			stored.Rows++
		}
		if stored.Parts, err = w.end(ctx); err != nil {
			return err
		}
		stored.Digest = hex.EncodeToString(whole.Sum(nil))
		described.Tables = append(described.Tables, stored)
	}
	m.Databases = append(m.Databases, described)
	return nil
}

// tables returns the tables of a database that are copied.
func (d Database) tables(ctx context.Context) ([]db.Table, error) {
	list, err := d.DB.Tables(ctx)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(t db.Table) bool { return slices.Contains(d.Derived, t.Name) })
	for _, t := range list {
		if len(t.Key) == 0 {
			return nil, fmt.Errorf("the table %s has no primary key, by which it could be copied in order", t.Name)
		}
	}
	return list, nil
}

// dropMissingFiles removes the columns that an older schema does not have.
func (d *Database) dropMissingFiles(ctx context.Context) error {
	tables, err := d.DB.Tables(ctx)
	if err != nil {
		return err
	}
	d.Files = slices.DeleteFunc(slices.Clone(d.Files), func(f db.FileColumn) bool {
		return !slices.ContainsFunc(tables, func(t db.Table) bool {
			return t.Name == f.Table && slices.ContainsFunc(t.Columns, func(c db.Column) bool { return c.Name == f.Key })
		})
	})
	return nil
}

// Bounds of a part. It ends after a line whose digest says so, one of cutEvery, so that rows that
// are added or deleted change only the part around them, and the others of an earlier backup
// still serve.
const (
	cutEvery = 8192
	maxPart  = 32 << 20
)

// partWriter divides lines into parts.
type partWriter struct {
	target  blob.Archive
	content bytes.Buffer
	lines   int64
	parts   []Part
}

func (w *partWriter) add(ctx context.Context, line []byte) error {
	w.content.Write(line)
	w.content.WriteByte('\n')
	w.lines++
	h := fnv.New64a()
	h.Write(line)
	if h.Sum64()>>16%cutEvery != 0 && w.content.Len() < maxPart {
		return nil
	}
	return w.flush(ctx)
}

func (w *partWriter) end(ctx context.Context) ([]Part, error) {
	if w.lines == 0 {
		return w.parts, nil
	}
	err := w.flush(ctx)
	return w.parts, err
}

func (w *partWriter) flush(ctx context.Context) error {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	packed := enc.EncodeAll(w.content.Bytes(), nil)
	sum := sha256.Sum256(packed)
	p := Part{hex.EncodeToString(sum[:]), int64(len(packed)), w.lines}
	if size, err := w.target.Size(ctx, p.Key); err != nil && !errors.Is(err, blob.ErrNotFound) {
		return err
	} else if err != nil || size != p.Size {
		if _, err := w.target.Put(ctx, bytes.NewReader(packed)); err != nil {
			return err
		}
	}
	w.parts = append(w.parts, p)
	w.content.Reset()
	w.lines = 0
	return nil
}

// fileCopy copies the files that rows refer to from one store to another.
type fileCopy struct {
	from, to blob.Archive
	progress Progress

	mu      sync.Mutex
	seen    map[string]int64 // sizes by digest
	missing []string
}

func (c *fileCopy) each(ctx context.Context, d Database, q db.Querier) error {
	if len(d.Files) == 0 {
		return nil
	}
	return parallel(ctx, func(ctx context.Context, add func(func(context.Context) error) error) error {
		return d.eachFile(ctx, q, func(f file) error {
			return add(func(ctx context.Context) error { return c.one(ctx, f.key, f.size) })
		})
	})
}

// one copies a file unless the target has it.
func (c *fileCopy) one(ctx context.Context, key string, size int64) error {
	had, err := c.to.Size(ctx, key)
	if err == nil && (size < 0 || size == had) {
		c.note(key, had)
		return nil
	}
	if err != nil && !errors.Is(err, blob.ErrNotFound) {
		return err
	}
	r, err := c.from.Open(ctx, key)
	if errors.Is(err, blob.ErrNotFound) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.missing = append(c.missing, key)
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	ref, err := c.to.Put(ctx, r)
	if err != nil {
		return err
	}
	if ref.Key != key { // it is damaged
		c.mu.Lock()
		defer c.mu.Unlock()
		c.missing = append(c.missing, key)
		return c.to.Delete(ctx, ref.Key)
	}
	c.note(key, ref.Size)
	return nil
}

func (c *fileCopy) note(key string, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]int64{}
	}
	c.seen[key] = size
	if n := len(c.seen); n%100 == 0 {
		c.progress("copying attachments", int64(n), 0)
	}
}

// manifest writes the list of files.
func (c *fileCopy) manifest(ctx context.Context) (BackupFiles, error) {
	f := BackupFiles{Count: int64(len(c.seen)), Missing: slices.Compact(slices.Sorted(slices.Values(c.missing)))}
	w := partWriter{target: c.to}
	keys := make([]string, 0, len(c.seen))
	for key := range c.seen {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		f.Bytes += c.seen[key]
		if err := w.add(ctx, fmt.Appendf(nil, `["%s",%d]`, key, c.seen[key])); err != nil {
			return f, err
		}
	}
	var err error
	f.Parts, err = w.end(ctx)
	return f, err
}

// Backups returns the ids of the backups in an archive, oldest first.
func Backups(ctx context.Context, archive blob.Archive) ([]string, error) {
	names, err := archive.Names(ctx)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, manifestSuffix); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// OpenManifest returns the manifest of a backup; an empty id means the newest.
func OpenManifest(ctx context.Context, archive blob.Archive, id string) (m Manifest, err error) {
	if id == "" {
		ids, err := Backups(ctx, archive)
		if err != nil {
			return m, err
		}
		if len(ids) == 0 {
			return m, errors.New("there is no finished backup; an unfinished one has no manifest in backups/")
		}
		id = ids[len(ids)-1]
	}
	text, err := archive.OpenNamed(ctx, id+manifestSuffix)
	if errors.Is(err, blob.ErrNotFound) {
		return m, fmt.Errorf("there is no backup %s", id)
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("the manifest of the backup %s is damaged: %w", id, err)
	}
	if m.Format > formatVersion {
		return m, fmt.Errorf("the backup %s is of a newer version of kickstand (%s); upgrade the program", id, m.Version)
	}
	return m, nil
}

// OpenKey returns the text of the secret keys stored with a backup.
func OpenKey(ctx context.Context, archive blob.Archive, m Manifest) ([]byte, error) {
	return archive.OpenNamed(ctx, m.ID+keySuffix)
}
