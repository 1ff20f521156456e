package account

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/loop"
)

const (
	flushEvery    = time.Minute    // precision of a session's last use
	pruneEvery    = time.Hour      // interval of deletions
	linkRetention = 24 * time.Hour // how long an expired link is still recognized as a former link
	chunk         = 500            // rows per transaction, so that other writers need not wait
)

// Run stores the last use of sessions and deletes expired rows until ctx ends; then it
// stores the rest and returns. Without it sessions work, but only refreshes count as use.
// Failures are logged and retried.
func (s *Service) Run(ctx context.Context) {
	var deleting sync.WaitGroup
	defer deleting.Wait()
	deleting.Go(func() { loop.Every(ctx, pruneEvery, s.log, "delete expired sessions", s.deleteExpired) })
	loop.Every(ctx, flushEvery, s.log, "write last use of sessions", s.flush)
	loop.Finish(ctx, s.log, "write last use of sessions", s.flush)
}

// flush stores the last use of sessions and deletes successors past their grace. A
// session that it fails to write is written after its next use.
func (s *Service) flush(ctx context.Context) error {
	s.mu.Lock()
	used := slices.Sorted(maps.Keys(s.used))
	clear(s.used)
	s.mu.Unlock()
	for ids := range slices.Chunk(used, chunk) {
		err := s.db.Write(ctx, func(tx *db.Tx) error {
			// Locked in order, so that two nodes do not wait for each other.
			_, err := tx.Exec(ctx, `UPDATE sessions SET used_at = $1 WHERE id IN
				(SELECT id FROM sessions WHERE id = ANY($2) AND used_at < $1 ORDER BY id FOR UPDATE)`, tx.Now.UnixMicro(), ids)
			return err
		})
		if err != nil {
			return fmt.Errorf("update sessions: %w", err)
		}
	}
	return s.inChunks(ctx, `UPDATE session_tokens SET successor = NULL WHERE digest IN
		(SELECT digest FROM session_tokens WHERE successor IS NOT NULL AND consumed_at < $1 LIMIT $2)`, refreshGrace)
}

// deleteExpired deletes expired rows.
func (s *Service) deleteExpired(ctx context.Context) error {
	if err := s.inChunks(ctx, `DELETE FROM sessions WHERE used_at < $1 AND id IN
		(SELECT id FROM sessions WHERE used_at < $1 LIMIT $2)`, s.refreshLife); err != nil {
		return err
	}
	if err := s.inChunks(ctx, `DELETE FROM sessions WHERE created_at < $1 AND id IN
		(SELECT id FROM sessions WHERE created_at < $1 LIMIT $2)`, s.sessionLife); err != nil {
		return err
	}
	if err := s.inChunks(ctx, `DELETE FROM session_tokens WHERE digest IN
		(SELECT digest FROM session_tokens WHERE kind = 0 AND issued_at < $1 LIMIT $2)`, s.accessLife); err != nil {
		return err
	}
	// A used refresh token is stored for as long as an idle session lives: an older
	// stolen one has been refused by then.
	if err := s.inChunks(ctx, `DELETE FROM session_tokens WHERE digest IN
		(SELECT digest FROM session_tokens WHERE kind = 1 AND issued_at < $1 AND consumed_at < $1 LIMIT $2)`, s.refreshLife); err != nil {
		return err
	}
	if err := s.inChunks(ctx, `DELETE FROM known_browsers WHERE last_seen_at < $1 AND (user_id, digest) IN
		(SELECT user_id, digest FROM known_browsers WHERE last_seen_at < $1 LIMIT $2)`, BrowserLife); err != nil {
		return err
	}
	for _, links := range []struct {
		statement string
		life      time.Duration
	}{
		{"DELETE FROM login_links WHERE digest IN (SELECT digest FROM login_links WHERE created_at < $1 LIMIT $2)", LinkLife},
		{"DELETE FROM password_resets WHERE digest IN (SELECT digest FROM password_resets WHERE created_at < $1 LIMIT $2)", ResetLife},
		{"DELETE FROM provider_logins WHERE digest IN (SELECT digest FROM provider_logins WHERE created_at < $1 LIMIT $2)", ProviderLife},
		{"DELETE FROM pending_sign_ins WHERE id IN (SELECT id FROM pending_sign_ins WHERE created_at < $1 LIMIT $2)", PendingLife},
		{"DELETE FROM invitations WHERE digest IN (SELECT digest FROM invitations WHERE created_at < $1 LIMIT $2)", InvitationLife},
	} {
		if err := s.inChunks(ctx, links.statement, links.life+linkRetention); err != nil {
			return err
		}
	}
	return nil
}

// inChunks repeats a statement that changes at most $2 of the rows older than $1 until it
// changes none.
func (s *Service) inChunks(ctx context.Context, statement string, age time.Duration) error {
	for {
		var n int64
		err := s.db.Write(ctx, func(tx *db.Tx) error {
			var err error
			n, err = tx.Exec(ctx, statement, tx.Now.Add(-age).UnixMicro(), chunk)
			return err
		})
		if err != nil {
			return fmt.Errorf("%.40s…: %w", statement, err)
		}
		if n < chunk {
			return nil
		}
	}
}
