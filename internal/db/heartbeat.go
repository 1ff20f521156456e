package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"zombiezen.com/go/sqlite"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// damageTTL is the time for which the database counts as damaged after a statement found
// damage.
const damageTTL = 10 * time.Minute

// fullTTL is the time for which the database counts as full after a statement found no space, if
// nothing can find out more.
const fullTTL = 10 * time.Second

// ProbeWrite writes the single row of the table heartbeat, durably. It fails if the
// database is unusable, if the disk is full, though not for this row, or if a statement of the
// last ten minutes found damage; [FailureReason] describes the error.
func (d *DB) ProbeWrite(ctx context.Context) error {
	full, probed := d.fullAt.Load(), false
	err := d.Write(ctx, func(tx *Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO heartbeat (id, beat_at) VALUES (1, $1)
			ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at`, tx.Now.UnixMicro())
		if err == nil && full != 0 && d.Postgres() {
			probed, err = probeSpace(ctx, tx)
		}
		return err
	})
	if err == nil && full != 0 {
		if !probed && time.Since(time.UnixMicro(full)) < fullTTL {
			return problem.New(problem.Unavailable, "the disk is full").Because(errFull)
		}
		d.fullAt.CompareAndSwap(full, 0)
	}
	if at := d.damagedAt.Load(); err == nil && at != 0 && time.Since(time.UnixMicro(at)) < damageTTL {
		return problem.New(problem.Unavailable, "a table or an index is damaged").Because(errDamaged)
	}
	if err == nil {
		err = d.CheckFence(ctx)
	}
	return err
}

// probeSpace fills about a megabyte of a temporary table on PostgreSQL. It returns false if the user
// may not create one.
func probeSpace(ctx context.Context, tx *Tx) (probed bool, err error) {
	if err := tx.QueryRow(ctx, "SELECT has_database_privilege(current_database(), 'TEMPORARY')").Scan(&probed); err != nil || !probed {
		return false, err
	}
	for _, statement := range []string{
		"CREATE TEMPORARY TABLE IF NOT EXISTS kickstand_space (line TEXT) ON COMMIT DROP",
		"INSERT INTO kickstand_space (line) SELECT repeat(md5(n::text), 60) FROM generate_series(1, 600) AS n",
	} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return false, err
		}
	}
	return true, nil
}

var (
	errDamaged = errors.New("a table or an index was found damaged")
	errFull    = errors.New("a statement found no space on the disk a moment ago")
)

// FailureReason describes in a few words why a database failed, without host or file names.
func FailureReason(err error) string {
	switch {
	case isContext(err), errors.Is(err, errHangs), errors.Is(err, errSlow):
		return "it does not answer in time"
	case errors.Is(err, errDamaged), isCorrupt(err):
		return "a table or an index is damaged"
	case errors.Is(err, errFull), isFull(err):
		return "the disk is full"
	case errors.Is(err, errMoved):
		return "its file was moved, removed or replaced"
	case errors.Is(err, ErrNewerSchema):
		return "a newer version of Kickstand has removed what this version uses"
	case errors.Is(err, errClosed):
		return "it is closed"
	case errors.Is(err, errNotReplicated):
		return "the standby server does not confirm transactions"
	case errors.Is(err, pgconn.ErrReadOnlyConnection):
		return "it can only be read"
	}
	switch sqliteCode(err).ToPrimary() {
	case sqlite.ResultReadOnly, sqlite.ResultPerm, sqlite.ResultCantOpen:
		return "it can only be read"
	case sqlite.ResultBusy, sqlite.ResultLocked:
		return "another program holds its lock"
	case sqlite.ResultIOErr:
		return "the disk fails"
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case e.Code == "25006":
			return "it can only be read"
		case e.Code[:2] == "53":
			return "the server lacks memory or connections"
		case e.Code == "55P03":
			return "a lock is held for too long"
		case e.Code == "57014":
			return "it does not answer in time"
		case e.Code[:2] == "57":
			return "the server is shutting down or starting"
		}
	}
	if isUnavailable(err) || problem.Of(err) == problem.Unavailable {
		return "it cannot be reached or used"
	}
	return "it does not work as it should"
}
