package app

import (
	"fmt"
	"os"
	"strings"

	"github.com/gofrs/flock"
)

// Lock locks the databases for one server until release or the end of the process. On
// SQLite a second server is refused; PostgreSQL serves several. Commands that run next to
// a server do not call it.
func (c Config) Lock() (release func() error, err error) {
	path, ok := strings.CutPrefix(c.databaseURL(), "sqlite:")
	if !ok {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	// The file stays after the server's end: removing it could remove the next server's.
	// The operating system releases the lock with the process, even after a crash.
	l := flock.New(path+".lock", flock.SetPermissions(0o600))
	got, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the database: %w", err)
	}
	if !got {
		return nil, fmt.Errorf("another server runs on the database %s: stop it first, or run several servers on PostgreSQL", path)
	}
	return l.Unlock, nil
}
