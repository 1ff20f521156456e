package blob_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/blob/blobtest"
)

func openDir(t *testing.T, path string) *blob.Dir {
	t.Helper()
	d, err := blob.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestDir(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store { return openDir(t, t.TempDir()) })
}

// TestDirFault: a missing folder is a failure of the store.
func TestDirFault(t *testing.T) {
	d := openDir(t, t.TempDir())
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	blobtest.WantFault(t, d)
}

// TestDirLayout: the layout must remain compatible with backups and older releases.
func TestDirLayout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "blobs")
	d := openDir(t, path)
	if _, err := d.Put(t.Context(), strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Put(t.Context(), io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errors.New("gone")))); err == nil {
		t.Fatal("a failing reader was stored")
	}
	var files []string
	err := fs.WalkDir(os.DirFS(path), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 && name != "." {
			t.Errorf("%s has mode %04o", name, info.Mode().Perm())
		}
		if !entry.IsDir() {
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = "e3/b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	if len(files) != 1 || files[0] != want {
		t.Errorf("files are %q, want only %q", files, want)
	}
}

func TestDirKeepsContent(t *testing.T) {
	path := t.TempDir()
	ref, err := openDir(t, path).Put(t.Context(), strings.NewReader("content"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := openDir(t, path).Open(t.Context(), ref.Key)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != "content" {
		t.Errorf("read %q, %v after reopening", got, err)
	}
	if _, ok := r.(io.Seeker); !ok {
		t.Error("content in a folder cannot be sought")
	}
}

func TestDirRemovesLeftovers(t *testing.T) {
	path := t.TempDir()
	openDir(t, path)
	old, current := filepath.Join(path, "tmp", "OLD"), filepath.Join(path, "tmp", "CURRENT")
	for _, name := range []string{old, current} {
		if err := os.WriteFile(name, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dayBefore := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(old, dayBefore, dayBefore); err != nil {
		t.Fatal(err)
	}
	openDir(t, path)
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a crash left behind is still there: %v", err)
	}
	if _, err := os.Stat(current); err != nil {
		t.Errorf("what another process is writing was removed: %v", err)
	}
}

func TestDirStaysInside(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	d := openDir(t, path)
	key := strings.Repeat("ab", 32)
	if err := os.Symlink(outside, filepath.Join(path, key[:2], key[2:])); err != nil {
		t.Fatal(err)
	}
	if r, err := d.Open(t.Context(), key); err == nil {
		r.Close()
		t.Error("followed a link out of the folder")
	}
}

func TestDirFailures(t *testing.T) {
	path := t.TempDir()
	d := openDir(t, path)
	if err := os.RemoveAll(filepath.Join(path, "tmp")); err != nil {
		t.Fatal(err)
	}
	if ref, err := d.Put(t.Context(), strings.NewReader("x")); err == nil || ref != (blob.Ref{}) {
		t.Errorf("Put = %+v, %v, want an error", ref, err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := blob.OpenDir(file); err == nil {
		t.Error("opened a file as a folder")
	}
}

func BenchmarkDirPut(b *testing.B) {
	d, err := blob.OpenDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	content := strings.Repeat("x", 50_000)
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		if _, err := d.Put(b.Context(), strings.NewReader(content)); err != nil {
			b.Fatal(err)
		}
	}
}
