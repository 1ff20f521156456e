package account

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/mileusna/useragent"
)

// SessionsPath is the path of the page of a user's sessions below the base URL.
const SessionsPath = "/settings/sessions"

// Session describes one of a user's sessions.
type Session struct {
	ID        string
	IP        string    // of the sign-in or the last refresh; empty: unknown
	UserAgent string    // as the client sent it
	Device    string    // short name: "Firefox on Linux"; empty if unrecognized
	Current   bool      // the caller's own session
	CreatedAt time.Time // of the sign-in
	UsedAt    time.Time // precise to a minute
}

// Sessions returns by's sessions, last used first.
func (s *Service) Sessions(ctx context.Context, by Identity) ([]Session, error) {
	now := s.db.Now()
	list, err := db.All(ctx, s.db, func(row db.Row) (Session, error) {
		var e Session
		err := row.Scan(&e.ID, &e.IP, &e.UserAgent, db.IntoTime(&e.CreatedAt), db.IntoTime(&e.UsedAt))
		e.Device, e.Current = device(e.UserAgent), e.ID == by.SessionID
		return e, err
	}, "SELECT id, ip, user_agent, created_at, used_at FROM sessions WHERE user_id = $1 AND used_at > $2 AND created_at > $3 ORDER BY used_at DESC, id DESC",
		by.UserID, now.Add(-s.refreshLife).UnixMicro(), now.Add(-s.sessionLife).UnixMicro())
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	return list, nil
}

// Device returns a short name of a user agent and its operating system: "Firefox on
// Linux"; empty if unrecognized.
func Device(userAgent string) string { return device(userAgent) }

func device(userAgent string) string {
	ua := useragent.Parse(userAgent)
	where := ua.Device
	if !isProductName(where) || where == "K" { // Chrome on Android sends it in place of a model
		where = ua.OS
	}
	switch {
	case !isProductName(ua.Name):
		return ""
	case where == ua.Name || !isProductName(where):
		return ua.Name
	}
	return ua.Name + " on " + where
}

// isProductName reports whether s could be the name of a product. Clients may send any
// text, and parsing may yield any part of it.
func isProductName(s string) bool {
	if s == "" || len(s) > 60 || !isLetter(s[0]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isLetter(c) && (c < '0' || c > '9') && !strings.ContainsRune(" -_.+&()", rune(c)) {
			return false
		}
	}
	return true
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// EndSession ends one of a user's sessions and deletes its known browser. A session of
// another user is [problem.NotFound].
func (s *Service) EndSession(ctx context.Context, userID, sessionID string) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		var browser []byte
		err := tx.QueryRow(ctx, "DELETE FROM sessions WHERE id = $1 AND user_id = $2 RETURNING browser", sessionID, userID).Scan(&browser)
		if errors.Is(err, db.ErrNoRows) {
			return problem.New(problem.NotFound, "there is no such session")
		}
		if err != nil {
			return fmt.Errorf("end session: %w", err)
		}
		if err := s.recordUserTx(ctx, tx, AuditSessionsEnded, userID, map[string]any{"session": sessionID}); err != nil {
			return err
		}
		s.sessionsChanged(tx, userID)
		return deleteBrowser(ctx, tx, userID, browser)
	})
}

// EndSessions ends all of a user's sessions but except, or all if except is empty,
// deletes the known browsers of the ended ones, and returns their number.
func (s *Service) EndSessions(ctx context.Context, userID, except string) (int64, error) {
	var n int64
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		var err error
		if n, err = s.endSessions(ctx, tx, userID, except); err != nil || n == 0 {
			return err
		}
		return s.recordUserTx(ctx, tx, AuditSessionsEnded, userID, map[string]any{"sessions": n})
	})
	return n, err
}

// endSessions is [Service.EndSessions] in tx. The known browsers are deleted because
// somebody else may have used them.
func (s *Service) endSessions(ctx context.Context, tx *db.Tx, userID, except string) (int64, error) {
	if err := tx.Queue(ctx, "DELETE FROM pending_sign_ins WHERE user_id = $1", userID); err != nil {
		return 0, fmt.Errorf("end pending sign-ins: %w", err)
	}
	n, err := tx.Exec(ctx, "DELETE FROM sessions WHERE user_id = $1 AND id <> $2", userID, except)
	if err != nil {
		return 0, fmt.Errorf("end sessions: %w", err)
	}
	s.sessionsChanged(tx, userID)
	return n, deleteBrowsers(ctx, tx, userID, except)
}
