package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/blob"
)

// All files of the program are accessible to its user only: folders 0700, files 0600,
// independent of the umask. Permissions of files from earlier versions, or changed since,
// are repaired at start.

// sqlitePaths returns the database files; none on PostgreSQL.
func (c *Config) sqlitePaths() []string {
	var paths []string
	for _, d := range databases {
		at, _ := d.at(c)
		if path, ok := strings.CutPrefix(at, "sqlite:"); ok && path != "" {
			paths = append(paths, path)
		}
	}
	return paths
}

// keyPath returns the path of the generated secret key.
func (c *Config) keyPath() string { return filepath.Join(c.Data, "secret.key") }

// mailboxDir returns the folder of mails that cannot be sent.
func (c *Config) mailboxDir() string { return filepath.Join(c.Data, "mailbox") }

// blobURL returns the URL of the attachment store.
func (c *Config) blobURL() string {
	if c.BlobURL != "" {
		return c.BlobURL
	}
	return "file:" + filepath.Join(c.Data, "attachments")
}

// privatePaths returns the existing folders and files that must be private, except
// attachments.
func (c *Config) privatePaths() ([]string, error) {
	wanted := []string{c.Data}
	for _, path := range c.sqlitePaths() {
		wanted = append(wanted, path, path+"-wal", path+"-shm", path+"-journal")
	}
	if c.SecretKey == "" {
		wanted = append(wanted, c.keyPath())
	}
	var list []string
	for _, path := range wanted {
		_, err := os.Stat(path)
		switch {
		case err == nil:
			list = append(list, path)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	err := filepath.WalkDir(c.mailboxDir(), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // deleted concurrently, or no mailbox
			return nil
		}
		if err == nil && (e.IsDir() || e.Type().IsRegular()) {
			list = append(list, path)
		}
		return err
	})
	return list, err
}

// isExposed reports whether users other than its owner can access a file, and its mode.
// Windows has no such bits.
func isExposed(path string) (mode fs.FileMode, open bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	return info.Mode(), info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows", nil
}

// protectFiles creates the data folder and the database files with private permissions,
// and repairs others. Permissions that cannot be changed, such as those of some mounted
// volumes, are logged.
func (c *Config) protectFiles(ctx context.Context, log *slog.Logger) error {
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	for _, path := range c.sqlitePaths() {
		// SQLite creates its other files with the permissions of this one. A missing
		// folder is SQLite's error to report.
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil {
			f.Close()
		}
	}
	paths, err := c.privatePaths()
	if err != nil {
		return fmt.Errorf("file permissions: %w", err)
	}
	for _, path := range paths {
		mode, open, err := isExposed(path)
		if err != nil {
			return fmt.Errorf("file permissions: %w", err)
		}
		if !open {
			continue
		}
		if err := os.Chmod(path, mode&^0o077); err != nil {
			log.WarnContext(ctx, "other users can access a file, and its permissions cannot be changed", "path", path, "mode", octal(mode), "error", err)
			continue
		}
		log.WarnContext(ctx, "repaired the permissions of a file that other users could access", "path", path, "was", octal(mode), "is", octal(mode&^0o077))
	}
	return nil
}

func octal(mode fs.FileMode) string { return fmt.Sprintf("%04o", mode.Perm()) }

// protectAttachments repairs the permissions of stored attachments, of which there may be
// very many.
func (a *App) protectAttachments(ctx context.Context) {
	d, ok := a.files.(*blob.Dir)
	if !ok {
		return
	}
	repaired, err := d.Protect(ctx)
	if repaired > 0 {
		a.log.WarnContext(ctx, "repaired the permissions of attachments that other users could access", "files", repaired)
	}
	if err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "other users may access attachments, and their permissions cannot be changed", "error", err)
	}
}
