package apikey

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/loop"
)

const (
	flushInterval = time.Minute // interval of writing uses and expirations
	chunk         = 500         // rows per transaction, so that other writers need not wait
)

// Run stores the last use of keys and records expirations in the audit log until ctx
// ends; then it stores the rest and returns. Authentication does not depend on it.
// Failures are logged and retried.
func (s *Service) Run(ctx context.Context) {
	loop.Every(ctx, flushInterval, s.log, "record uses and expirations of keys", func(ctx context.Context) error {
		return errors.Join(s.flush(ctx), s.recordExpired(ctx))
	})
	loop.Finish(ctx, s.log, "write last use of keys", s.flush)
}

// recordUse adds a use of a key to the pending ones.
func (s *Service) recordUse(id string, at time.Time, from netip.Addr) {
	ip := ""
	if from.IsValid() {
		ip = from.Unmap().String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.After(s.used[id].at) {
		s.used[id] = use{at, ip}
	}
}

// flush stores pending uses. After a failed write, a key is written again with its next
// use.
func (s *Service) flush(ctx context.Context) error {
	s.mu.Lock()
	used := s.used
	s.used = make(map[string]use, len(used))
	s.mu.Unlock()
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(used)), chunk) {
		err := s.db.Write(ctx, func(tx *db.Tx) error {
			for _, id := range ids { // sorted, so that two nodes do not deadlock
				u := used[id]
				// The version stays: no cached key becomes stale.
				if err := tx.Queue(ctx, `UPDATE api_keys SET last_used_at = $2, last_used_ip = $3
					WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)`,
					id, u.at.Truncate(time.Minute).UnixMicro(), db.Text(u.ip)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("update keys: %w", err)
		}
	}
	return nil
}

// recordExpired records expired keys in the audit log, each once across nodes.
func (s *Service) recordExpired(ctx context.Context) error {
	for {
		var n int
		err := s.db.Write(ctx, func(tx *db.Tx) error {
			// A revoked key does not expire.
			keys, err := db.All(ctx, tx, scan, "SELECT "+columns+` FROM api_keys WHERE expires_at IS NOT NULL AND NOT expiry_noted
				AND expires_at <= $1 AND revoked_at IS NULL AND deleted_at IS NULL ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED`,
				tx.Now.UnixMicro(), chunk)
			if err != nil {
				return err
			}
			n = len(keys)
			for _, k := range keys {
				if err := tx.Queue(ctx, "UPDATE api_keys SET expiry_noted = TRUE WHERE id = $1", k.ID); err != nil {
					return err
				}
				if err := s.audit.RecordTx(ctx, tx, k.entry(KeyExpired, map[string]audit.Change{"status": {From: Active, To: Expired}})); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("expire keys: %w", err)
		}
		if n < chunk {
			return nil
		}
	}
}
