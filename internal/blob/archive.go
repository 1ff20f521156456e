package blob

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
)

// Archive is a store for backups: besides files by digest it holds small files by name. Both
// stores are archives.
type Archive interface {
	Store

	// Size returns the size in bytes of the content stored under key, or ErrNotFound. It does
	// not read the content.
	Size(ctx context.Context, key string) (int64, error)

	// PutNamed stores a small file under a name of letters, digits, dots and hyphens. It is
	// complete and durable once PutNamed returns, and replaces an earlier one.
	PutNamed(ctx context.Context, name string, content []byte) error

	// OpenNamed returns a named file, or ErrNotFound.
	OpenNamed(ctx context.Context, name string) ([]byte, error)

	// Names returns the names of all named files, sorted.
	Names(ctx context.Context) ([]string, error)
}

var (
	_ Archive = (*Dir)(nil)
	_ Archive = (*S3)(nil)
)

// OpenArchive is [Open] for an archive.
func OpenArchive(rawURL string, aws Credentials) (Archive, error) {
	s, err := Open(rawURL, aws)
	if err != nil {
		return nil, err
	}
	return s.(Archive), nil
}

// OpenExistingArchive is [OpenArchive], but a missing folder is an error, [fs.ErrNotExist].
func OpenExistingArchive(rawURL string, aws Credentials) (Archive, error) {
	path, isFolder, err := folderOf(rawURL)
	if err != nil {
		return nil, err
	}
	if isFolder {
		if _, err := os.Stat(path); err != nil {
			return nil, err
		}
	}
	return OpenArchive(rawURL, aws)
}

// namedDir is the folder, or the end of the prefix, of named files.
const namedDir = "backups"

// maxNamed bounds named files.
const maxNamed = 256 << 20

func checkName(name string) error {
	if name == "" || strings.HasPrefix(name, ".") ||
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-") != "" {
		return fmt.Errorf("%q cannot be the name of a file", name)
	}
	return nil
}

// Size implements [Archive].
func (d *Dir) Size(ctx context.Context, key string) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if !validKey(key) {
		return 0, ErrNotFound
	}
	info, err := d.root.Stat(path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, ErrNotFound
	}
	if err != nil {
		return 0, fmt.Errorf("look for blob: %w", fault(ctx, err))
	}
	return info.Size(), nil
}

// PutNamed implements [Archive].
func (d *Dir) PutNamed(ctx context.Context, name string, content []byte) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := d.root.Mkdir(namedDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("store %s: %w", name, fault(ctx, err))
	}
	tmp := tmpDir + "/" + rand.Text()
	f, err := d.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("store %s: %w", name, fault(ctx, err))
	}
	_, err = d.write(f, bytes.NewReader(content))
	err = errors.Join(err, f.Close(), ctx.Err())
	if err == nil {
		err = d.root.Rename(tmp, namedDir+"/"+name)
	}
	if err != nil {
		d.root.Remove(tmp)
		return fmt.Errorf("store %s: %w", name, fault(ctx, err))
	}
	if err := errors.Join(d.sync(namedDir), d.sync(".")); err != nil {
		return fmt.Errorf("store %s: %w", name, fault(ctx, err))
	}
	return nil
}

// OpenNamed implements [Archive].
func (d *Dir) OpenNamed(ctx context.Context, name string) ([]byte, error) {
	if err := errors.Join(ctx.Err(), checkName(name)); err != nil {
		return nil, err
	}
	f, err := d.root.Open(namedDir + "/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, fault(ctx, err))
	}
	defer f.Close()
	return readNamed(ctx, name, f)
}

// Names implements [Archive].
func (d *Dir) Names(ctx context.Context) ([]string, error) {
	entries, err := fs.ReadDir(d.root.FS(), namedDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the archive: %w", fault(ctx, err))
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names, nil
}

func readNamed(ctx context.Context, name string, r io.Reader) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, maxNamed+1))
	if err == nil && len(content) > maxNamed {
		return nil, fmt.Errorf("%s is too large to be read", name)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, fault(ctx, err))
	}
	return content, nil
}

// Size implements [Archive].
func (s *S3) Size(ctx context.Context, key string) (int64, error) {
	if !validKey(key) {
		return 0, ErrNotFound
	}
	info, err := s.client.StatObject(ctx, s.bucket, s.prefix+key, minio.StatObjectOptions{})
	if err != nil {
		if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
			return 0, ErrNotFound
		}
		return 0, fmt.Errorf("look for blob: %w", fault(ctx, err))
	}
	return info.Size, nil
}

// PutNamed implements [Archive].
func (s *S3) PutNamed(ctx context.Context, name string, content []byte) error {
	if err := checkName(name); err != nil {
		return err
	}
	digest := sha256.Sum256(content)
	_, err := s.client.PutObject(ctx, s.bucket, s.prefix+namedDir+"/"+name, bytes.NewReader(content), int64(len(content)), "", hex.EncodeToString(digest[:]), minio.PutObjectOptions{
		ContentType: "application/octet-stream", DisableContentSha256: true,
	})
	if err != nil {
		return fmt.Errorf("store %s: %w", name, fault(ctx, err))
	}
	return nil
}

// OpenNamed implements [Archive].
func (s *S3) OpenNamed(ctx context.Context, name string) ([]byte, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	content, _, _, err := s.client.GetObject(ctx, s.bucket, s.prefix+namedDir+"/"+name, minio.GetObjectOptions{})
	if err != nil {
		if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
			return nil, ErrNotFound
		}
		return nil, fmt.Errorf("read %s: %w", name, fault(ctx, err))
	}
	defer content.Close()
	return readNamed(ctx, name, content)
}

// Names implements [Archive].
func (s *S3) Names(ctx context.Context) ([]string, error) {
	var names []string
	prefix := s.prefix + namedDir + "/"
	for object := range s.client.Client.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: prefix}) {
		if object.Err != nil {
			return nil, fmt.Errorf("list the archive: %w", fault(ctx, object.Err))
		}
		names = append(names, strings.TrimPrefix(object.Key, prefix))
	}
	slices.Sort(names)
	return names, nil
}
