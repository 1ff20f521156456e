package audit

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// Record is the exported form of an entry: a line of NDJSON, and the data of webhooks.
// Hashes are hexadecimal.
type Record struct {
	ID             string            `json:"id"`
	OrganizationID string            `json:"organization_id"`
	Ledger         string            `json:"ledger,omitempty"` // of the chain; set only if the reader cannot know it
	At             time.Time         `json:"at"`
	Service        string            `json:"service"`
	Environment    string            `json:"environment"`
	Sequence       int64             `json:"sequence"`
	Action         string            `json:"action"`
	Outcome        string            `json:"outcome,omitempty"`
	Actor          Actor             `json:"actor"`
	Target         Target            `json:"target"`
	IP             string            `json:"ip,omitempty"`
	UserAgent      string            `json:"user_agent,omitempty"`
	RequestID      string            `json:"request_id,omitempty"`
	Surface        string            `json:"surface,omitempty"`
	Changes        map[string]Change `json:"changes"`
	Details        map[string]any    `json:"details"`
	KeyID          string            `json:"key_id,omitempty"`
	Previous       string            `json:"previous,omitempty"`
	Hash           string            `json:"hash,omitempty"`
}

// Record returns the exported form of e.
func (e *Entry) Record() Record {
	s := e.Source
	return Record{
		ID: e.ID, OrganizationID: e.OrganizationID, At: e.At, Service: e.Service, Environment: e.Environment, Sequence: e.Sequence,
		Action: e.Action, Outcome: string(e.Outcome), Actor: s.Actor, Target: e.Target, IP: s.IP(), UserAgent: s.UserAgent,
		RequestID: s.RequestID, Surface: s.Surface, Changes: e.Changes, Details: e.Details, KeyID: e.KeyID,
		Previous: hex.EncodeToString(e.Previous), Hash: hex.EncodeToString(e.Hash),
	}
}

// After returns up to limit entries of a chain after a sequence, in chain order.
// Committed entries have no gaps, so a reader that continues from its last sequence
// misses none.
func (l *Log) After(ctx context.Context, organizationID string, sequence int64, limit int) ([]Entry, error) {
	list, err := db.All(ctx, l.c.DB, scanEntry, "SELECT "+columns+` FROM audit_entries
		WHERE organization_id = $1 AND sequence > $2 ORDER BY sequence LIMIT $3`, organizationID, sequence, limit)
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	return list, nil
}

// SequenceBefore returns the sequence of the last entry of a chain that was recorded
// before at; the last of all if none is later.
func (l *Log) SequenceBefore(ctx context.Context, organizationID string, at time.Time) (int64, error) {
	var sequence int64
	err := l.c.DB.QueryRow(ctx, `SELECT coalesce(
		(SELECT min(sequence) - 1 FROM audit_entries WHERE organization_id = $1 AND sequence > 0 AND at >= $2),
		(SELECT max(sequence) FROM audit_entries WHERE organization_id = $1), 0)`, organizationID, at.UnixMicro()).Scan(&sequence)
	if err != nil {
		return 0, fmt.Errorf("read the audit log: %w", err)
	}
	return max(sequence, 0), nil
}

// OwnerOf returns the organization and the type of the record with an id; empty strings if
// there is none. query selects both for the id $1.
func OwnerOf(ctx context.Context, q db.Querier, query, id string) (organizationID, kind string, err error) {
	err = q.QueryRow(ctx, query, id).Scan(db.IntoText(&organizationID), &kind)
	if errors.Is(err, db.ErrNoRows) {
		return "", "", nil
	}
	return organizationID, kind, err
}
