package blob

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"time"
)

// Dir is a store in a folder. The file of key abcd… is ab/cd…; tmp holds files being written.
// All files are readable by the owner only, and symbolic links cannot lead outside the folder.
type Dir struct {
	root *os.Root
}

const (
	tmpDir = "tmp"
	// tmpLife is the age at which a file in tmp counts as left over from a crash.
	tmpLife = 24 * time.Hour
)

// OpenDir returns the store in the folder at path, which is created if missing.
func OpenDir(path string) (*Dir, error) {
	if path == "" {
		return nil, errors.New("blob store: no folder given")
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("blob store: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("blob store: %w", err)
	}
	d := &Dir{root}
	if err := d.prepare(); err != nil {
		root.Close()
		return nil, fmt.Errorf("blob store: %w", err)
	}
	return d, nil
}

// prepare creates all folders, so that Put only needs to make its file's name durable, and
// deletes left-over files.
func (d *Dir) prepare() error {
	names := []string{tmpDir}
	for i := range 256 {
		names = append(names, hex.EncodeToString([]byte{byte(i)}))
	}
	for _, name := range names {
		if err := d.root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := d.sync("."); err != nil {
		return err
	}

	left, err := fs.ReadDir(d.root.FS(), tmpDir)
	if err != nil {
		return err
	}
	for _, entry := range left {
		info, err := entry.Info()
		if err != nil {
			continue // finished by another process meanwhile
		}
		if time.Since(info.ModTime()) > tmpLife {
			if err := d.root.Remove(tmpDir + "/" + entry.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// Put implements [Store].
func (d *Dir) Put(ctx context.Context, r io.Reader) (Ref, error) {
	tmp := tmpDir + "/" + rand.Text()
	f, err := d.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	from := &source{ctx: ctx, r: r}
	if err != nil {
		return Ref{}, fmt.Errorf("store blob: %w", faultOf(from, err))
	}
	ref, err := d.write(f, from)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		// The file may already exist with the same content.
		err = d.root.Rename(tmp, path(ref.Key))
	}
	if err != nil {
		d.root.Remove(tmp) // if that fails too, the next start tries again
		return Ref{}, fmt.Errorf("store blob: %w", faultOf(from, err))
	}
	// Also if the name existed: the process that created it may not have synced it yet.
	if err := d.sync(ref.Key[:2]); err != nil {
		return Ref{}, fmt.Errorf("store blob %s: %w", ref.Key, faultOf(from, err))
	}
	return ref, nil
}

func (d *Dir) write(f *os.File, r io.Reader) (Ref, error) {
	digest := sha256.New()
	size, err := io.Copy(io.MultiWriter(f, digest), r)
	if err != nil {
		return Ref{}, err
	}
	return Ref{Key: hex.EncodeToString(digest.Sum(nil)), Size: size}, f.Sync()
}

// Open implements [Store]. The content is an [io.Seeker].
func (d *Dir) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	if !validKey(key) {
		return nil, ErrNotFound
	}
	f, err := d.root.Open(path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", fault(ctx, err))
	}
	return f, nil
}

// Delete implements [Store].
func (d *Dir) Delete(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete blob: %w", err)
	}
	if !validKey(key) {
		return nil
	}
	err := d.root.Remove(path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = d.sync(key[:2])
	}
	if err != nil {
		return fmt.Errorf("delete blob: %w", fault(ctx, err))
	}
	return nil
}

// Protect removes the permissions of group and others from the store's files and folders, and
// returns the number of repaired ones. It may take a while; the store remains usable.
func (d *Dir) Protect(ctx context.Context) (repaired int, err error) {
	if runtime.GOOS == "windows" { // no such permissions there
		return 0, nil
	}
	err = fs.WalkDir(d.root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || !e.IsDir() && !e.Type().IsRegular() {
			return missingIsFine(err)
		}
		info, err := e.Info()
		if err != nil || info.Mode().Perm()&0o077 == 0 {
			return missingIsFine(err)
		}
		if err := d.root.Chmod(name, info.Mode()&^0o077); err != nil {
			return missingIsFine(err)
		}
		repaired++
		return nil
	})
	if err != nil {
		err = fmt.Errorf("protect blobs: %w", err)
	}
	return repaired, err
}

// missingIsFine ignores the error of a file that another process has just deleted.
func missingIsFine(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Close releases the folder. The store must not be used afterwards; open contents remain
// readable.
func (d *Dir) Close() error { return d.root.Close() }

// path returns the path of a valid key within the root.
func path(key string) string { return key[:2] + "/" + key[2:] }

// sync makes the names in a folder durable. Windows needs no sync.
func (d *Dir) sync(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := d.root.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
