package ops

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// archived is a backup as a [source].
type archived struct {
	archive blob.Archive
	Manifest
}

func (a archived) id() string { return "the backup " + a.ID }

func (a archived) database(name string) (BackupDatabase, error) {
	i := slices.IndexFunc(a.Databases, func(d BackupDatabase) bool { return d.Name == name })
	if i < 0 {
		return BackupDatabase{}, fmt.Errorf("the backup has no database %s", name)
	}
	return a.Databases[i], nil
}

func (a archived) describe(_ context.Context, name string) (int64, []copiedTable, error) {
	d, err := a.database(name)
	if err != nil {
		return 0, nil, err
	}
	var tables []copiedTable
	for _, t := range d.Tables {
		tables = append(tables, copiedTable{t.Table, t.Rows})
	}
	return d.Version, tables, nil
}

func (a archived) lines(ctx context.Context, name string, t db.Table, from db.Copied) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		d, err := a.database(name)
		if err != nil {
			yield(nil, err)
			return
		}
		i := slices.IndexFunc(d.Tables, func(has BackupTable) bool { return has.Name == t.Name })
		for line, err := range readParts(ctx, a.archive, d.Tables[i].Parts, from.Rows) {
			if !yield(line, err) || err != nil {
				return
			}
		}
	}
}

// readParts yields the lines of parts, without the first ones.
func readParts(ctx context.Context, archive blob.Store, parts []Part, skip int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, p := range parts {
			if skip >= p.Lines {
				skip -= p.Lines
				continue
			}
			content, err := p.read(ctx, archive)
			if err != nil {
				yield(nil, err)
				return
			}
			for line := range bytes.Lines(content) {
				if skip > 0 {
					skip--
					continue
				}
				if !yield(bytes.TrimSuffix(line, []byte("\n")), nil) {
					return
				}
			}
		}
	}
}

// maxUnpacked bounds the content of a part: one line may be longer than a part.
const maxUnpacked = 1 << 30

// read returns the content of a part, verified.
func (p Part) read(ctx context.Context, archive blob.Store) ([]byte, error) {
	r, err := archive.Open(ctx, p.Key)
	if errors.Is(err, blob.ErrNotFound) {
		return nil, fmt.Errorf("the backup is damaged: its file %s is missing", p.Key)
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	packed, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(packed); hex.EncodeToString(sum[:]) != p.Key {
		return nil, fmt.Errorf("the backup is damaged: its file %s has another content", p.Key)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUnpacked))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	content, err := dec.DecodeAll(packed, nil)
	if err == nil && int64(bytes.Count(content, []byte("\n"))) != p.Lines {
		err = fmt.Errorf("it does not have %d lines", p.Lines)
	}
	if err != nil {
		return nil, fmt.Errorf("the backup is damaged: its file %s: %w", p.Key, err)
	}
	return content, nil
}

// files yields the digests and sizes of the attachments of a backup.
func (a archived) files(ctx context.Context) iter.Seq2[file, error] {
	return func(yield func(file, error) bool) {
		for line, err := range readParts(ctx, a.archive, a.Files.Parts, 0) {
			f := file{}
			if err == nil {
				err = json.Unmarshal(line, &[]any{&f.key, &f.size})
			}
			if !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// Restore configures [Restore.Run].
type Restore struct {
	Archive   blob.Archive
	Manifest  Manifest
	Databases []Database // empty, in the order of the backup's
	Files     blob.Archive
	Progress  Progress
}

// Run restores a backup into empty databases, verifies every row and file, and makes the
// databases usable at the end. After an interruption it continues.
func (r Restore) Run(ctx context.Context) error {
	from := archived{r.Archive, r.Manifest}
	if err := from.complete(ctx); err != nil {
		return err
	}
	return load(ctx, from, r.Databases, r.Progress, func(ctx context.Context) error {
		files := fileCopy{from: r.Archive, to: r.Files, progress: r.Progress}
		err := parallel(ctx, func(ctx context.Context, add func(func(context.Context) error) error) error {
			for f, err := range from.files(ctx) {
				if err != nil {
					return err
				}
				if err := add(func(ctx context.Context) error { return files.one(ctx, f.key, f.size) }); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil && len(files.missing) > 0 {
			err = fmt.Errorf("the backup is damaged: %d attachments are missing or altered, such as %s", len(files.missing), files.missing[0])
		}
		return err
	})
}

// complete checks that the archive has all files of the backup in their size.
func (a archived) complete(ctx context.Context) error {
	return parallel(ctx, func(ctx context.Context, add func(func(context.Context) error) error) error {
		check := func(key string, size int64) error {
			return add(func(ctx context.Context) error {
				problem, err := checkFile(ctx, a.archive, key, size, false)
				if err == nil && problem != "" {
					err = fmt.Errorf("the backup is damaged: its file %s: %s", key, problem)
				}
				return err
			})
		}
		for _, d := range a.Databases {
			for _, t := range d.Tables {
				for _, p := range t.Parts {
					if err := check(p.Key, p.Size); err != nil {
						return err
					}
				}
			}
		}
		for f, err := range a.files(ctx) {
			if err != nil {
				return err
			}
			if err := check(f.key, f.size); err != nil {
				return err
			}
		}
		return nil
	})
}

// VerifyBackup reads all files of a backup and compares them with their digests and the
// manifest's numbers.
func VerifyBackup(ctx context.Context, archive blob.Archive, m Manifest, fn func(Check) error) error {
	a := archived{archive, m}
	for _, d := range m.Databases {
		c := Check{Database: d.Name, Name: "rows are in the backup"}
		for _, t := range d.Tables {
			n, sum, err := sumLines(a.lines(ctx, d.Name, t.Table, db.Copied{}))
			c.Records += n
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				c.add(t.Name + ": " + err.Error())
			case n != t.Rows || sum != t.Digest:
				c.add(fmt.Sprintf("%s: the rows are not those of the manifest", t.Name))
			}
		}
		if err := fn(c); err != nil {
			return err
		}
	}
	c := Check{Database: "attachments", Name: "files are in the backup"}
	for f, err := range a.files(ctx) {
		if err != nil {
			c.add(err.Error())
			break
		}
		c.Records++
		problem, err := checkFile(ctx, archive, f.key, f.size, true)
		if err != nil {
			return err
		}
		if problem != "" {
			c.add(f.key + ": " + problem)
		}
	}
	return fn(c)
}
