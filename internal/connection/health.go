package connection

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// Health describes whether a connection works. Zero times are unknown or never.
type Health struct {
	ReceivedAt time.Time // of the last request or message, within the retention of inbound events
	SentAt     time.Time // of the last reply, to within some seconds
	Error      string    // of the last reply that failed or request that could not be processed; empty: none
	ErrorAt    time.Time
	// SecretEndsAt is when the next replaced secret ends. Until then the provider must use the new
	// one.
	SecretEndsAt time.Time
	// ConsentEndsAt is when the consent at the provider ends, if the provider says so. Somebody has
	// to sign in there again before.
	ConsentEndsAt time.Time
	// Unread means that the connection's mailbox cannot be read now, for the reason in Error.
	Unread bool
}

// Failing reports whether the mailbox cannot be read, or the error is newer than the last success.
func (h *Health) Failing() bool {
	return h.Unread || h.Error != "" && h.ErrorAt.After(h.SentAt) && h.ErrorAt.After(h.ReceivedAt)
}

const (
	// healthInterval is the least time between records of the same kind of one connection, by this
	// process: a busy connection costs no statement per message.
	healthInterval = 10 * time.Second
	maxHealthNotes = 10_000
	maxHealthError = 500 // bytes
)

// healthNotes remembers what was recorded lately.
type healthNotes struct {
	mu sync.Mutex
	at map[string]time.Time // by connection and kind
}

// due reports whether a kind of record of a connection is due, and counts it as made.
func (n *healthNotes) due(id, kind string, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := id + " " + kind
	if last, ok := n.at[key]; ok && now.Sub(last) < healthInterval && !now.Before(last) {
		return false
	}
	if n.at == nil || len(n.at) >= maxHealthNotes {
		n.at = make(map[string]time.Time)
	}
	n.at[key] = now
	return true
}

// RecordReceivedTx records that a connection without inbound events has received a message.
func (s *Service) RecordReceivedTx(ctx context.Context, tx *db.Tx, id string) error {
	if !s.health.due(id, "received", tx.Now) {
		return nil
	}
	return tx.Queue(ctx, "UPDATE connections SET received_at = $2 WHERE id = $1", id, tx.Now.UnixMicro())
}

// RecordSend records that a reply has left by a connection or, for a reason that is not empty, has
// failed.
func (s *Service) RecordSend(ctx context.Context, id, reason string) error {
	kind, statement := "sent", "UPDATE connections SET sent_at = $2 WHERE id = $1"
	if reason != "" {
		kind, statement = "failed", "UPDATE connections SET send_error_at = $2, send_error = $3 WHERE id = $1"
	}
	if !s.health.due(id, kind, s.db.Now()) {
		return nil
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		args := []any{id, tx.Now.UnixMicro()}
		if reason != "" {
			args = append(args, strings.ToValidUTF8(reason[:min(len(reason), maxHealthError)], ""))
		}
		_, err := tx.Exec(ctx, statement, args...)
		return err
	})
}

// Health returns the recorded health of a connection, without its inbound events.
func (s *Service) Health(ctx context.Context, q db.Querier, c *Connection) (Health, error) {
	var h Health
	err := q.QueryRow(ctx, "SELECT received_at, sent_at, send_error, send_error_at FROM connections WHERE id = $1", c.ID).
		Scan(db.IntoTime(&h.ReceivedAt), db.IntoTime(&h.SentAt), db.IntoText(&h.Error), db.IntoTime(&h.ErrorAt))
	if err != nil {
		return h, fmt.Errorf("read the health of a connection: %w", err)
	}
	now := s.db.Now().UnixMicro()
	for _, secret := range c.secrets {
		if secret.Until > now && (h.SecretEndsAt.IsZero() || secret.Until < h.SecretEndsAt.UnixMicro()) {
			h.SecretEndsAt = time.UnixMicro(secret.Until).UTC()
		}
	}
	for _, fn := range s.examiners {
		if err := fn(ctx, c, &h); err != nil {
			return h, err
		}
	}
	return h, nil
}

// OnHealth registers fn to add to the health of a connection what else is known. Call OnHealth before
// the service is used.
func (s *Service) OnHealth(fn func(ctx context.Context, c *Connection, h *Health) error) {
	s.examiners = append(s.examiners, fn)
}
