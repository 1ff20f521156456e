//go:build unix

package app

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
)

// logged collects log output.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// permissions returns all paths below a folder, and as "mode path" those that other users
// can access.
func permissions(t *testing.T, folder string) (open, all []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		all = append(all, name)
		if want := fs.FileMode(0o600); info.Mode().Perm() != want && !(e.IsDir() && info.Mode().Perm() == 0o700) {
			open = append(open, fmt.Sprintf("%04o %s", info.Mode().Perm(), name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return open, all
}

// TestUmaskCannotOpenFiles: with any umask, and after any change of permissions, all
// stored files are private.
func TestUmaskCannotOpenFiles(t *testing.T) {
	for _, umask := range []int{0, 0o002, 0o022} {
		t.Run(fmt.Sprintf("%04o", umask), func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			old := syscall.Umask(umask)
			defer syscall.Umask(old)
			c := Config{BaseURL: "http://127.0.0.1:1", Data: data, MailFrom: "no-reply@help.example", Web: true, Worker: true, RetryTimeScale: 1}
			use := func() string {
				log := new(logged)
				a, err := Open(t.Context(), c, log.logger())
				if err != nil {
					t.Fatal(err)
				}
				defer a.Close()
				if _, err := a.blobs.Put(t.Context(), strings.NewReader("an attachment")); err != nil {
					t.Fatal(err)
				}
				for _, d := range []*db.DB{a.DB, a.Fleet.DB, a.Sandbox.DB} {
					if err := d.Ping(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if err := a.mailbox.Send(t.Context(), mail.Message{
					From: mail.Address{Address: "a@help.example"}, To: []mail.Address{{Address: "b@help.example"}}, Subject: "s", Text: "t",
				}); err != nil {
					t.Fatal(err)
				}
				a.protectAttachments(t.Context())
				open, all := permissions(t, data)
				if len(open) != 0 {
					t.Errorf("others can reach %q", open)
				}
				for _, want := range []string{
					"kickstand.db", "kickstand.db-wal", "kickstand.db-shm", "fleet-live.db", "fleet-live.db-wal", "fleet-test.db-shm", "secret.key",
					"attachments/4c", "mailbox",
				} {
					if !slices.Contains(all, want) {
						t.Errorf("%s is not among %q", want, all)
					}
				}
				return log.String()
			}
			if text := use(); strings.Contains(text, "repaired") {
				t.Errorf("repaired what was just made:\n%s", text)
			}

			_, all := permissions(t, data)
			for _, name := range all {
				mode := fs.FileMode(0o666)
				if info, err := os.Stat(filepath.Join(data, name)); err != nil {
					t.Fatal(err)
				} else if info.IsDir() {
					mode = 0o777
				}
				if err := os.Chmod(filepath.Join(data, name), mode); err != nil {
					t.Fatal(err)
				}
			}
			text := use()
			for _, path := range []string{data, data + "/kickstand.db", data + "/fleet-live.db", data + "/fleet-test.db", data + "/secret.key", data + "/mailbox"} {
				if !strings.Contains(text, "path="+path+" was=0") {
					t.Errorf("nothing says that %s was repaired:\n%s", path, text)
				}
			}
			// The store's folder, 256 and tmp in it; the file was stored again.
			if want := "level=WARN msg=\"repaired the permissions of attachments that other users could access\" files=258\n"; !strings.Contains(text, want) {
				t.Errorf("got log\n%s\nwant %s", text, want)
			}
		})
	}
}
