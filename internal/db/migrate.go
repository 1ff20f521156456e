package db

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/jackc/pgx/v5"
)

//go:embed migrations
var migrations embed.FS

// Schema names a set of migrations: forward-only files "0001_name.sql", applied in order, each
// in one transaction.
type Schema string

// The schemas of the helpdesk's database, and of the fleet's databases, one per environment.
const (
	Helpdesk Schema = "helpdesk"
	Fleet    Schema = "fleet"
)

// ErrNewerSchema is returned for a database without something that this version of the program
// uses: a later version has removed it.
var ErrNewerSchema = errors.New("a newer version of kickstand has removed from the database what this version uses; upgrade the program")

// FencePause is the time between the announcement of a contract and the contract: programs that
// it fences off look every [FenceInterval].
const FencePause = 2 * FenceInterval

// FenceInterval is the interval in which a program calls [DB.CheckFence].
const FenceInterval = 5 * time.Second

// Limits of a migration of a database in use: while it waits for the lock of a table, everybody
// waits behind it.
const (
	migrationLock  = 3 * time.Second
	migrationTries = 200
)

var contractMark = regexp.MustCompile(`(?m)^-- contract: (\d+)$`)

// floor returns the version that a program must know to run beside the migration: 0 for one
// that only expands the schema.
func (m *migration) floor() int64 {
	mark := contractMark.FindStringSubmatch(m.script)
	if mark == nil {
		return 0
	}
	version, _ := strconv.ParseInt(mark[1], 10, 64)
	return version
}

// Applied is one migration that [DB.Migrate] ran.
type Applied struct {
	Version int64  `json:"version"`
	Name    string `json:"name"`
}

type migration struct {
	Applied
	script string
}

func (s Schema) load() ([]migration, error) {
	dir := path.Join("migrations", string(s))
	entries, err := fs.ReadDir(migrations, dir)
	if err != nil {
		return nil, fmt.Errorf("schema %q: %w", s, err)
	}
	var out []migration
	for _, e := range entries {
		number, name, ok := strings.Cut(strings.TrimSuffix(e.Name(), ".sql"), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil || (len(out) > 0 && version <= out[len(out)-1].Version) {
			return nil, fmt.Errorf("schema %q: misnamed migration %q", s, e.Name())
		}
		text, err := fs.ReadFile(migrations, path.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		out = append(out, migration{Applied{version, name}, string(text)})
	}
	return out, nil
}

// Migrate applies the missing migrations under a lock, so that several starting processes apply
// each once. It returns the applied ones. Programs of the previous version go on working: a
// migration expands the schema, or is a contract that announces itself to those that it fences
// off ([DB.CheckFence]), and runs after they have ended. [ErrNewerSchema] means that nothing was
// changed.
func (d *DB) Migrate(ctx context.Context, s Schema) ([]Applied, error) {
	list, err := s.load()
	if err != nil {
		return nil, err
	}
	if copying, err := d.Copying(ctx); err != nil || copying {
		return nil, cmp.Or(err, ErrUnfinishedCopy)
	}
	return d.migrate(ctx, list)
}

func (d *DB) migrate(ctx context.Context, list []migration) ([]Applied, error) {
	ctx = LongRunning(ctx, "migration")
	if len(list) > 0 {
		d.newest.Store(list[len(list)-1].Version)
	}
	var done []Applied
	announced := int64(0) // by this process, which has waited since
	for tries := 1; ; tries++ {
		var step migrationStep
		err := d.Write(ctx, func(tx *Tx) error {
			var err error
			step, err = tx.migrateNext(ctx, list, announced)
			return err
		})
		switch {
		case err != nil && isLockTimeout(err) && tries < migrationTries:
			d.log.WarnContext(ctx, "a migration waits for a table that is in use", "tries", tries)
			err = loop.Pause(ctx, time.Second)
		case err == nil && step.announced > 0:
			announced = step.announced
			d.log.WarnContext(ctx, "older versions of the program must end now", "pause", FencePause.String())
			err = loop.Pause(ctx, FencePause)
		case err == nil && step.ran != nil:
			tries = 0
			if done = append(done, step.ran.Applied); step.ran.Version == list[0].Version {
				announced = math.MaxInt64 // nobody runs on a new database
			}
		case err == nil:
			return done, nil
		}
		if err != nil {
			return done, err
		}
	}
}

// migrationStep is the result of [Tx.migrateNext]; the zero value means that nothing is missing.
type migrationStep struct {
	ran       *migration
	announced int64 // the floor of the next migration, which fences older programs off; 0: none
}

// migrateNext applies or announces the first missing migration. announced is the floor that this
// process has announced before: it waits itself, also if another process was first.
func (tx *Tx) migrateNext(ctx context.Context, list []migration, announced int64) (step migrationStep, err error) {
	if err := tx.Lock(ctx, "migrate"); err != nil {
		return step, err
	}
	if err := tx.createNamespace(ctx); err != nil {
		return step, err
	}
	for _, table := range []string{
		"schema_migrations (version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)",
		// The version that a program must know to run on the database: at most one row.
		"schema_floor (id BIGINT PRIMARY KEY, version BIGINT NOT NULL)",
		// When it was raised, 0 for the first program's: at most one row.
		"schema_floor_raised (id BIGINT PRIMARY KEY, at BIGINT NOT NULL)",
	} {
		if _, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+table); err != nil {
			return step, err
		}
	}
	var version, floor int64
	if err := tx.QueryRow(ctx, "SELECT coalesce((SELECT max(version) FROM schema_migrations), 0), coalesce((SELECT max(version) FROM schema_floor), 0)").Scan(&version, &floor); err != nil {
		return step, err
	}
	if len(list) > 0 && floor > list[len(list)-1].Version {
		return step, ErrNewerSchema
	}
	i := slices.IndexFunc(list, func(m migration) bool { return m.Version > version })
	if i < 0 {
		return step, nil
	}
	m := &list[i]
	next, raised := m.floor(), tx.Now.UnixMicro()
	if version == 0 { // no older program has ever run
		next, raised = list[len(list)-1].Version, 0
	}
	if next > floor {
		if err := tx.raiseFloor(ctx, next, raised); err != nil {
			return step, err
		}
	}
	if m.floor() > announced && version > 0 && tx.engine == postgresEngine { // others may be running
		return migrationStep{announced: m.floor()}, nil
	}
	if tx.engine == postgresEngine {
		if _, err := tx.Exec(ctx, "SELECT set_config('lock_timeout', $1, true)", fmt.Sprint(migrationLock.Milliseconds())); err != nil {
			return step, err
		}
	}
	if err := tx.script(ctx, tx.engine.rewriteDDL(m.script)); err != nil {
		return step, fmt.Errorf("migration %04d_%s: %w", m.Version, m.Name, err)
	}
	_, err = tx.Exec(ctx, "INSERT INTO schema_migrations (version, name, applied_at) VALUES ($1, $2, $3)",
		m.Version, m.Name, tx.Now.UnixMicro())
	return migrationStep{ran: m}, err
}

func (tx *Tx) raiseFloor(ctx context.Context, version, at int64) error {
	if _, err := tx.Exec(ctx, `INSERT INTO schema_floor (id, version) VALUES (1, $1)
		ON CONFLICT (id) DO UPDATE SET version = excluded.version`, version); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO schema_floor_raised (id, at) VALUES (1, $1)
		ON CONFLICT (id) DO UPDATE SET at = excluded.at`, at)
	return err
}

// FinishUpgrade fences off all programs that do not know the newest migration of a migrated database:
// those that run end within [FencePause], and others do not start.
func (d *DB) FinishUpgrade(ctx context.Context, s Schema) error {
	newest, err := s.Newest()
	if err != nil {
		return err
	}
	return d.Write(ctx, func(tx *Tx) error {
		if err := tx.Lock(ctx, "migrate"); err != nil {
			return err
		}
		var floor int64
		if err := tx.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM schema_floor").Scan(&floor); err != nil || floor >= newest {
			return err
		}
		return tx.raiseFloor(ctx, newest, tx.Now.UnixMicro())
	})
}

// createNamespace creates the schema of PostgreSQL that has the tables.
func (tx *Tx) createNamespace(ctx context.Context) error {
	if tx.namespace == "" {
		return nil
	}
	_, err := tx.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{tx.namespace}.Sanitize())
	return err
}

// CheckFence returns [ErrNewerSchema] if a later version of the program has announced a contract
// that this version, as of [DB.Migrate], cannot run with. From then on every call fails.
func (d *DB) CheckFence(ctx context.Context) error {
	if d.fenced.Load() {
		return ErrNewerSchema
	}
	newest := d.newest.Load()
	if newest == 0 {
		return nil
	}
	var floor int64
	if err := d.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM schema_floor").Scan(&floor); err != nil {
		return fmt.Errorf("read the oldest version that may run: %w", err)
	}
	if floor > newest {
		d.fenced.Store(true)
		return ErrNewerSchema
	}
	return nil
}

// fence returns an error if the program must not touch the database any more.
func (d *DB) fence() error {
	if d.fenced.Load() {
		return problem.New(problem.Unavailable, "this server is too old for its database; try another one").Because(ErrNewerSchema)
	}
	return nil
}

// script runs several statements at once, unprepared.
func (tx *Tx) script(ctx context.Context, text string) error {
	var err error
	if c, ok := tx.session.(*postgresConn); ok {
		_, err = c.exec(ctx, text, []any{pgx.QueryExecModeSimpleProtocol})
	} else {
		err = tx.session.(*writer).conn.script(text)
	}
	return tx.note(err)
}

// Digest identifies the text of a schema's migrations.
func (s Schema) Digest() (string, error) {
	list, err := s.load()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, m := range list {
		fmt.Fprintf(h, "%d %s %d\n%s", m.Version, m.Name, len(m.script), m.script)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
