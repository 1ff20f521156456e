package app

import (
	"fmt"
	"os"
	"strings"

	"github.com/gofrs/flock"
)

// Lock claims the databases for one server, as long as release has not been called or the
// process lives. On SQLite a second server is refused; PostgreSQL serves several. Commands
// that work beside a server do not call it.
func (c Config) Lock() (release func() error, err error) {
	path, ok := strings.CutPrefix(c.databaseURL(), "sqlite:")
	if !ok {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	// The file stays when the server ends: removing it could take it from the next one.
	// The system ends the lock with the process, however that ends.
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
