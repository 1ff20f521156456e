package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// Config configures a [Log]. DB, Box and Ledger are required.
type Config struct {
	DB     *db.DB
	Box    *seal.Box
	Ledger string // name of the database; part of every hash: never change it
	// Service and Environment of entries that name none.
	Service, Environment string
	// Required is a query of the ids, in a column id, of the organizations that must have
	// a chain because their creation was recorded. Empty: none.
	Required string
	// Recorded is called after a commit with entries of an organization; nil: no call. It
	// must return quickly.
	Recorded func(organizationID string)
	Logger   *slog.Logger // nil: no log
}

// Log is the audit log of one database. A nil Log records nothing. It is safe for
// concurrent use.
type Log struct {
	c      Config
	signer *seal.Signer
	log    *slog.Logger

	mu      sync.Mutex
	started map[string]bool // chains with a committed head

	refused refusals
}

// Open returns the log of a database.
func Open(c Config) *Log {
	l := &Log{c: c, signer: c.Box.Signer("audit log"), log: c.Logger, started: make(map[string]bool)}
	l.refused = refusals{kinds: make(map[refusalKey]*refusal), wake: make(chan struct{}, 1)}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	return l
}

// Ledger returns the name of the database.
func (l *Log) Ledger() string { return l.c.Ledger }

// ChainStarted is recorded in the deployment's chain for every chain of an organization.
const ChainStarted Action = "audit.chain_started"

// Exported is recorded for an export of entries; Verified and Broken for a verification
// of an organization's chains by a user.
const (
	Exported Action = "audit.exported"
	Verified Action = "audit.verified"
	Broken   Action = "audit.verification_failed"
)

// RecordTx records e in the caller's transaction, with the source of ctx. It appends e to
// its chain just before the commit.
func (l *Log) RecordTx(ctx context.Context, tx *db.Tx, e Entry) error {
	if l == nil {
		return nil
	}
	e.Source = SourceOf(ctx)
	r, err := l.row(e, tx.Now)
	if err != nil {
		return fmt.Errorf("write to the audit log: %w", err)
	}
	tx.BeforeCommit(lockOrder(e.OrganizationID), func() error {
		if err := l.chain(ctx, tx, r); err != nil {
			return fmt.Errorf("write to the audit log: %w", err)
		}
		return nil
	})
	if l.c.Recorded != nil {
		tx.AfterCommit(func() { l.c.Recorded(e.OrganizationID) })
	}
	if e.OrganizationID == "" {
		return nil
	}
	started, err := l.hasStarted(ctx, tx, e.OrganizationID)
	if err != nil {
		return fmt.Errorf("write to the audit log: %w", err)
	}
	if !started {
		tx.BeforeCommit(lockOrder(""), func() error {
			if err := l.start(ctx, tx, e.OrganizationID); err != nil {
				return fmt.Errorf("start an audit chain: %w", err)
			}
			return nil
		})
	}
	return nil
}

// lockOrder returns a chain's key in the lock order of a transaction: the deployment's chain
// is first.
func lockOrder(organizationID string) string { return "audit/" + organizationID }

// Record is [Log.RecordTx] in a transaction of its own, for an action without other
// writes.
func (l *Log) Record(ctx context.Context, e Entry) error {
	if l == nil {
		return nil
	}
	return l.c.DB.Write(ctx, func(tx *db.Tx) error { return l.RecordTx(ctx, tx, e) })
}

// RecordChangeTx is [Log.RecordTx] with the [Diff] of two versions of a record as
// changes. It records nothing if they are equal.
func (l *Log) RecordChangeTx(ctx context.Context, tx *db.Tx, e Entry, before, after any) error {
	if l == nil {
		return nil
	}
	var err error
	if e.Changes, err = Diff(before, after); err != nil || len(e.Changes) == 0 {
		return err
	}
	return l.RecordTx(ctx, tx, e)
}

// hasStarted reports whether an organization's chain has a head.
func (l *Log) hasStarted(ctx context.Context, tx *db.Tx, organizationID string) (bool, error) {
	l.mu.Lock()
	started := l.started[organizationID]
	l.mu.Unlock()
	if started {
		return true, nil
	}
	err := tx.QueryRow(ctx, "SELECT TRUE FROM audit_heads WHERE organization_id = $1", organizationID).Scan(&started)
	if errors.Is(err, db.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// This transaction may have created the head, so it is certain only after the commit.
	tx.AfterCommit(func() {
		l.mu.Lock()
		l.started[organizationID] = true
		l.mu.Unlock()
	})
	return true, nil
}

// Limits of external text, in bytes.
const (
	maxUserAgent = 500
	maxRequestID = 64
	maxText      = 500
)

// row returns the stored form of an entry without id and chain position.
func (l *Log) row(e Entry, at time.Time) (*row, error) {
	changes, err := object(e.Changes)
	if err != nil {
		return nil, err
	}
	details, err := object(e.Details)
	if err != nil {
		return nil, err
	}
	r := &row{
		organizationID: e.OrganizationID, at: at.UnixMicro(), action: e.Action, outcome: string(e.Outcome),
		service: cmp.Or(e.Service, l.c.Service), environment: cmp.Or(e.Environment, l.c.Environment), surface: e.Source.Surface,
		actorType: string(cmp.Or(e.Source.Actor.Type, Anonymous)), actorID: clean(e.Source.Actor.ID, maxText),
		actorEmail: clean(e.Source.Actor.Email, maxText),
		targetType: e.Target.Type, targetID: clean(e.Target.ID, maxText), targetName: clean(e.Target.Name, maxText),
		partialKey: e.Target.PartialKey, address: e.Source.IP(),
		userAgent: clean(e.Source.UserAgent, maxUserAgent), requestID: clean(e.Source.RequestID, maxRequestID),
		changes: changes, details: details,
	}
	return r, nil
}

// object returns the JSON of a map, {} for nil.
func object[M ~map[string]V, V any](m M) (string, error) {
	if m == nil {
		return "{}", nil
	}
	text, err := json.Marshal(m)
	return string(text), err
}
