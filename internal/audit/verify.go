package audit

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// Head is the end of a chain at some time. Stored outside of the database, it shows later
// that no entry up to it has changed, even if an attacker has the deployment's secret key
// or the database was restored.
type Head struct {
	Ledger         string `json:"ledger"`
	OrganizationID string `json:"organization_id"` // empty: the deployment
	Sequence       int64  `json:"sequence"`
	Hash           string `json:"hash"` // hexadecimal
}

// Report is the result of [Log.Verify] for one chain.
type Report struct {
	Head
	OK bool `json:"ok"`
	// Partial means verified up to Sequence, where another verification can continue.
	Partial bool `json:"partial,omitempty"`
	// Empty means OK because the chains show that no entry was ever recorded.
	Empty bool `json:"empty,omitempty"`
	// BeforeChain is the number of entries older than the chain; its first entry covers
	// them.
	BeforeChain int64 `json:"before_chain"`
	// FirstBad is the sequence of the first missing, altered or unverifiable entry; 0 if
	// OK, or if it is older than the chain.
	FirstBad int64  `json:"first_bad,omitempty"`
	Problem  string `json:"problem,omitempty"` // why not OK, as a sentence
}

// Verification selects the entries to verify.
type Verification struct {
	// OrganizationID selects one chain and, unless From or Limit is set, the
	// deployment's, which shows whether the chain was removed; nil: all.
	OrganizationID *string
	// Known are earlier heads, of any ledger.
	Known []Head
	// From is the head at which an earlier verification of the chain ended; zero: the
	// start. The caller vouches for it.
	From Head
	// Limit is the approximate number of entries to verify; 0: all. Reports of chains not
	// verified to their end are Partial.
	Limit int64
	// Progress is called from time to time with the number of verified entries of a
	// chain; nil: no call.
	Progress func(organizationID string, done, total int64)
}

// Verify verifies the chains of a log and calls fn with a report for each: the
// deployment's first, then organizations by id. Entries may be added meanwhile, and
// memory use does not depend on the length of chains. An error means that the
// verification failed to run, or is fn's.
func (l *Log) Verify(ctx context.Context, v Verification, fn func(Report) error) error {
	first := ""
	if v.OrganizationID != nil && (v.Limit > 0 || v.From.Sequence > 0) {
		first = *v.OrganizationID
	}
	if err := l.verifyFirst(ctx, first, &v, fn); err != nil {
		return err
	}
	if v.OrganizationID != nil {
		if *v.OrganizationID == first {
			return nil
		}
		return l.verifyNext(ctx, *v.OrganizationID, &v, fn)
	}
	for id := ""; ; {
		next, err := l.nextChain(ctx, id, v.Known)
		if err != nil || next == "" {
			return err
		}
		if next <= id {
			return fn(Report{
				Head:    Head{Ledger: l.c.Ledger, OrganizationID: next},
				Problem: "rows of the organization are not stored as text, so that comparisons pass over them",
			})
		}
		id = next
		if err := l.verifyNext(ctx, id, &v, fn); err != nil {
			return err
		}
	}
}

// verifyFirst verifies the first chain; its report includes [CheckTampering] with the whole
// log.
func (l *Log) verifyFirst(ctx context.Context, id string, v *Verification, fn func(Report) error) error {
	interference, err := CheckTampering(ctx, l.c.DB)
	if err != nil {
		return err
	}
	r, err := l.verifyChain(ctx, id, v)
	if interference == "" {
		if err != nil {
			return err
		}
		return fn(r)
	}
	if r.Problem != "" {
		interference += "; " + r.Problem
	}
	r.Ledger, r.OrganizationID = l.c.Ledger, id
	r.OK, r.Empty, r.Partial, r.Problem = false, false, false, interference
	return errors.Join(fn(r), err)
}

func (l *Log) verifyNext(ctx context.Context, id string, v *Verification, fn func(Report) error) error {
	r, err := l.verifyChain(ctx, id, v)
	if err != nil {
		return err
	}
	return fn(r)
}

// nextChain returns the next organization after id that has entries or a head, is in
// known, or must have a chain; empty at the end. An id that does not sort after id is not
// stored as text.
func (l *Log) nextChain(ctx context.Context, id string, known []Head) (next string, err error) {
	err = l.c.DB.QueryRow(ctx, `SELECT coalesce(min(id), '') FROM (
		SELECT min(organization_id) AS id FROM audit_entries WHERE organization_id > $1
		UNION ALL SELECT min(organization_id) FROM audit_heads WHERE organization_id > $1
		UNION ALL SELECT min(id) FROM (`+l.required()+`) AS required WHERE id > $1
		UNION ALL SELECT min(target_id) FROM audit_entries WHERE organization_id = '' AND action = $2 AND target_id > $1 AND target_id <> $3) AS ids`,
		id, ChainStarted, deployment).Scan(&next)
	if err != nil {
		return "", fmt.Errorf("find audit chains: %w", err)
	}
	if next != "" && next <= id {
		return next, nil
	}
	for _, h := range known {
		if h.Ledger == l.c.Ledger && h.OrganizationID > id && (next == "" || h.OrganizationID < next) {
			next = h.OrganizationID
		}
	}
	return next, nil
}

// required returns the query of [Config.Required], or one without rows.
func (l *Log) required() string {
	return cmp.Or(l.c.Required, "SELECT organization_id AS id FROM audit_heads WHERE 1 = 0")
}

// errBad ends the verification of a chain; the report has the reason.
var errBad = errors.New("the chain is broken")

// verifier verifies one chain.
type verifier struct {
	log    *Log
	v      *Verification
	known  map[int64]string // hash by sequence
	last   int64            // the highest in known
	report Report
	hash   []byte // of the previous entry
}

func (l *Log) verifyChain(ctx context.Context, organizationID string, v *Verification) (Report, error) {
	c := &verifier{log: l, v: v, known: make(map[int64]string), report: Report{Head: Head{Ledger: l.c.Ledger, OrganizationID: organizationID}}}
	for _, h := range v.Known {
		if h.Ledger == l.c.Ledger && h.OrganizationID == organizationID {
			c.known[h.Sequence] = h.Hash
			c.last = max(c.last, h.Sequence)
		}
	}
	if v.From.Sequence > 0 {
		hash, err := hex.DecodeString(v.From.Hash)
		if err != nil {
			return Report{}, fmt.Errorf("verify the audit log: the hash to go on from: %w", err)
		}
		c.report.Sequence, c.hash = v.From.Sequence, hash
	}
	err := c.run(ctx)
	switch {
	case err == nil:
		c.report.OK = !c.report.Partial
	case !errors.Is(err, errBad):
		return Report{}, fmt.Errorf("verify the audit log: %w", err)
	}
	c.report.Hash = hex.EncodeToString(c.hash)
	return c.report, nil
}

// fail records a problem at a sequence and ends the verification.
func (c *verifier) fail(sequence int64, format string, args ...any) error {
	c.report.FirstBad, c.report.Problem = sequence, fmt.Sprintf(format, args...)
	return errBad
}

// run verifies the entries in steps, each in a transaction of its own, so that other
// writers need not wait long.
func (c *verifier) run(ctx context.Context) error {
	start := c.report.Sequence
	for done := false; !done; {
		if c.v.Limit > 0 && c.report.Sequence-start >= c.v.Limit {
			c.report.Partial = true
			return nil
		}
		err := c.log.c.DB.Read(ctx, func(tx *db.Tx) (err error) {
			done, err = c.step(ctx, tx)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// step verifies the next entries and, after the last, the head.
func (c *verifier) step(ctx context.Context, tx *db.Tx) (done bool, err error) {
	id := c.report.OrganizationID
	h, err := db.One(ctx, tx, scanHead, selectHead, id)
	if errors.Is(err, db.ErrNoRows) {
		h, err = nil, nil
	}
	if err != nil {
		return false, err
	}
	if c.report.Sequence == 0 {
		if c.hash, c.report.BeforeChain, err = genesis(ctx, tx, id); err != nil {
			return false, err
		}
	}
	start := c.report.Sequence
	list, err := db.All(ctx, tx, scanRow, "SELECT "+columns+` FROM audit_entries
		WHERE organization_id = $1 AND sequence > $2 ORDER BY sequence LIMIT $3`, id, start, verifyBatch)
	if err != nil {
		return false, err
	}
	for _, r := range list {
		if err := c.entry(r); err != nil {
			return false, err
		}
	}
	if err := c.types(ctx, tx, start); err != nil {
		return false, err
	}
	if c.v.Progress != nil && h != nil {
		c.v.Progress(id, c.report.Sequence, h.sequence)
	}
	if len(list) == verifyBatch {
		return false, nil
	}
	if err := c.head(h); err != nil {
		return false, err
	}
	return true, c.start(ctx, tx)
}

// types verifies the column types of the entries from after up to the current one, and in
// the first step of the entries older than the chain. PostgreSQL enforces them itself.
func (c *verifier) types(ctx context.Context, tx *db.Tx, after int64) error {
	if c.log.c.DB.Postgres() {
		return nil
	}
	if after == 0 {
		after = math.MinInt64
	}
	var first sql.NullInt64
	if err := tx.QueryRow(ctx, mistyped, c.report.OrganizationID, after, c.report.Sequence).Scan(&first); err != nil || !first.Valid {
		return err
	}
	return c.fail(max(first.Int64, 0), "entry %d has a column of another type, so that comparisons pass over it", first.Int64)
}

// entry verifies that r is the next entry.
func (c *verifier) entry(r *row) error {
	next := c.report.Sequence + 1
	switch {
	case r.sequence != next:
		return c.fail(next, "entry %d is missing; the next one is %d", next, r.sequence)
	case !bytes.Equal(r.previous, c.hash) && next == 1:
		return c.fail(0, "an entry from before the chain was altered, added or removed, or entry 1 was altered")
	}
	switch err := c.log.signer.Verify(r.keyID, r.hash, r.canonical(c.log.c.Ledger)...); {
	case errors.Is(err, seal.ErrUnknownKey):
		return c.fail(next, "entry %d was signed under secret key %q, which is not configured: put the old key back behind the present one", next, r.keyID)
	case err != nil:
		return c.fail(next, "entry %d was altered, or belongs elsewhere", next)
	case !bytes.Equal(r.previous, c.hash):
		return c.fail(next, "entry %d does not follow entry %d as it is", next, next-1)
	}
	c.report.Sequence, c.hash = next, r.hash
	if hash, ok := c.known[next]; ok && hash != hex.EncodeToString(r.hash) {
		return c.fail(next, "entry %d is not the one that was known before", next)
	}
	return nil
}

// head verifies the end of the chain.
func (c *verifier) head(h *head) error {
	last := c.report.Sequence
	switch {
	case h == nil && last > 0:
		return c.fail(last+1, "the head of the chain is missing: entries after %d may be, too", last)
	case h == nil:
		if c.last > 0 {
			return c.fail(1, "the chain is missing: it had %d entries", c.last)
		}
		return nil
	}
	switch err := c.log.signer.Verify(h.keyID, h.mac, h.canonical(c.log.c.Ledger)...); {
	case errors.Is(err, seal.ErrUnknownKey):
		return c.fail(last+1, "the head of the chain was signed under secret key %q, which is not configured: put the old key back behind the present one", h.keyID)
	case err != nil:
		return c.fail(last+1, "the head of the chain was altered: entries after %d may be missing", last)
	case h.sequence != last:
		return c.fail(min(h.sequence, last)+1, "the chain has %d entries and should have %d", last, h.sequence)
	case !bytes.Equal(h.hash, c.hash):
		return c.fail(last, "entry %d is not the one that was written last", last)
	case c.last > last:
		return c.fail(last+1, "the chain ends at entry %d and had %d before", last, c.last)
	}
	return nil
}

// start verifies that the deployment's chain has one record of this chain's start: none
// means a foreign chain, several mean that the head was lost.
func (c *verifier) start(ctx context.Context, tx *db.Tx) error {
	starts, err := db.All(ctx, tx, scanRow, "SELECT "+columns+` FROM audit_entries
		WHERE organization_id = '' AND target_id = $1 AND action = $2 AND sequence > 0 ORDER BY sequence LIMIT 2`,
		cmp.Or(c.report.OrganizationID, deployment), ChainStarted)
	if err != nil {
		return err
	}
	switch last := c.report.Sequence; {
	case len(starts) == 0 && last == 0:
		return c.neverStarted(ctx, tx)
	case len(starts) == 0:
		return c.fail(1, "the deployment's chain has no record that the chain was started")
	case last == 0:
		return c.fail(1, "the chain is missing: it was started")
	case len(starts) > 1:
		at, err := starts[1].entry()
		if err != nil {
			return err
		}
		after, _ := at.Details["after"].(float64)
		return c.fail(int64(after)+1, "the head of the chain was lost, and created again after entry %d: entries in between may be missing", int64(after))
	}
	return nil
}

// neverStarted verifies a chain that has never started.
func (c *verifier) neverStarted(ctx context.Context, tx *db.Tx) error {
	var required bool
	err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM ("+c.log.required()+") AS required WHERE id = $1)", c.report.OrganizationID).Scan(&required)
	if err != nil {
		return err
	}
	if required {
		return c.fail(1, "the chain is missing: the creation of the organization was recorded in it")
	}
	c.report.Empty = c.report.BeforeChain == 0
	return nil
}
