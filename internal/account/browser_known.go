package account

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// BrowserLife is the time for which a browser stays known after the last sign-in in it:
// the longest cookie lifetime that browsers accept.
const BrowserLife = 400 * 24 * time.Hour

const (
	maxKnownBrowsers = 50 // per user; beyond, the least recently used is deleted
	maxBrowserTokens = 8  // per browser: one for each user who signs in there
)

// KnownBrowser is a browser in which a user has signed in.
type KnownBrowser struct {
	UserAgent string
	Device    string // short name of UserAgent; empty if unrecognized
	FirstSeen time.Time
	LastSeen  time.Time // time of the last sign-in
}

// KnownBrowsers returns the browsers in which a user has signed in during the last
// [BrowserLife], latest sign-in first.
func (s *Service) KnownBrowsers(ctx context.Context, userID string) ([]KnownBrowser, error) {
	list, err := db.All(ctx, s.db, func(row db.Row) (KnownBrowser, error) {
		var b KnownBrowser
		err := row.Scan(&b.UserAgent, db.IntoTime(&b.FirstSeen), db.IntoTime(&b.LastSeen))
		b.Device = device(b.UserAgent)
		return b, err
	}, `SELECT user_agent, first_seen_at, last_seen_at FROM known_browsers
		WHERE user_id = $1 AND last_seen_at > $2 ORDER BY last_seen_at DESC, digest`, userID, s.db.Now().Add(-BrowserLife).UnixMicro())
	if err != nil {
		return nil, fmt.Errorf("list known browsers: %w", err)
	}
	return list, nil
}

// browserTokens is the value of the browser cookie: one token per user signed in there
// before, newest first, joined by ".". A token is created at a sign-in and sent to that
// browser only, so a planted cookie never becomes a known browser.
type browserTokens []token

// parseBrowser returns the tokens of a cookie. It skips malformed ones.
func parseBrowser(cookie string) browserTokens {
	var list browserTokens
	for part := range strings.SplitSeq(cookie, ".") {
		t, ok := parseToken(part)
		if !ok {
			continue
		}
		if list = append(list, t); len(list) == maxBrowserTokens {
			break
		}
	}
	return list
}

// encode returns the cookie's value.
func (list browserTokens) encode() string {
	parts := make([]string, len(list))
	for i, t := range list {
		parts[i] = t.encode()
	}
	return strings.Join(parts, ".")
}

// with returns list with t as the newest.
func (list browserTokens) with(t token) browserTokens {
	list = append(browserTokens{t}, list...)
	return list[:min(len(list), maxBrowserTokens)]
}

// digests returns the arguments of [browserDigests].
func (list browserTokens) digests() []any {
	out := make([]any, maxBrowserTokens)
	for i := range out {
		out[i] = []byte{}
		if i < len(list) {
			out[i] = list[i].digest()
		}
	}
	return out
}

// browserDigests matches a digest with the tokens of a cookie: parameters 3 to 10.
const browserDigests = "IN ($3, $4, $5, $6, $7, $8, $9, $10)"

// browserRecognition is the result of [Service.recognize]. The zero value is an unknown
// browser.
type browserRecognition struct {
	digest []byte
	age    time.Duration // since its first sign-in
}

// recognize looks up the browser that sent cookie among the known browsers of the user
// with e-mail key key, or of any user if key is empty. Without a cookie it runs no query;
// with one, the query is the same for addresses with and without an account.
func (s *Service) recognize(ctx context.Context, key, cookie string) (browserRecognition, error) {
	list := parseBrowser(cookie)
	if len(list) == 0 {
		return browserRecognition{}, nil
	}
	var k browserRecognition
	var since time.Time
	now := s.db.Now()
	err := s.db.QueryRow(ctx, `SELECT b.digest, b.first_seen_at FROM known_browsers b JOIN users u ON u.id = b.user_id
		WHERE ($1 = '' OR u.email_key = $1) AND b.last_seen_at > $2 AND b.digest `+browserDigests+`
		ORDER BY b.first_seen_at LIMIT 1`,
		append([]any{key, now.Add(-BrowserLife).UnixMicro()}, list.digests()...)...).Scan(&k.digest, db.IntoTime(&since))
	if errors.Is(err, db.ErrNoRows) {
		return browserRecognition{}, nil
	}
	if err != nil {
		return browserRecognition{}, fmt.Errorf("find a known browser: %w", err)
	}
	k.age = now.Sub(since)
	return k, nil
}

// browserVisit is a sign-in in a browser.
type browserVisit struct {
	digest []byte // of its token, as in known_browsers
	cookie string // new value of the browser's cookie
	isNew  bool   // no sign-in of the user there during the last BrowserLife
}

// recordVisitTx records a sign-in of a user in the client's browser. The user's row must
// exist.
func (s *Service) recordVisitTx(ctx context.Context, tx *db.Tx, userID string, c Client) (browserVisit, error) {
	list := parseBrowser(c.Browser)
	agent := shortAgent(c.UserAgent)
	var v browserVisit
	if len(list) > 0 {
		err := tx.QueryRow(ctx, "SELECT digest FROM known_browsers WHERE user_id = $1 AND last_seen_at > $2 AND digest "+browserDigests+
			" ORDER BY first_seen_at LIMIT 1", append([]any{userID, tx.Now.Add(-BrowserLife).UnixMicro()}, list.digests()...)...).Scan(&v.digest)
		if err != nil && !errors.Is(err, db.ErrNoRows) {
			return browserVisit{}, fmt.Errorf("find the known browser: %w", err)
		}
	}
	if v.digest != nil {
		n, err := tx.Exec(ctx, "UPDATE known_browsers SET last_seen_at = $3, user_agent = $4 WHERE user_id = $1 AND digest = $2",
			userID, v.digest, tx.Now.UnixMicro(), agent)
		if err != nil {
			return browserVisit{}, fmt.Errorf("update known browser: %w", err)
		}
		if n == 1 {
			v.cookie = list.encode()
			return v, nil
		} // deleted concurrently
	}
	t := newToken()
	v = browserVisit{digest: t.digest(), cookie: list.with(t).encode(), isNew: true}
	var others int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM known_browsers WHERE user_id = $1", userID).Scan(&others); err != nil {
		return browserVisit{}, fmt.Errorf("count known browsers: %w", err)
	}
	if others >= maxKnownBrowsers {
		if err := tx.Queue(ctx, `DELETE FROM known_browsers WHERE user_id = $1 AND digest IN
			(SELECT digest FROM known_browsers WHERE user_id = $1 ORDER BY last_seen_at DESC, digest LIMIT $3 OFFSET $2)`,
			userID, maxKnownBrowsers-1, chunk); err != nil {
			return browserVisit{}, fmt.Errorf("delete known browsers: %w", err)
		}
	}
	if err := tx.Queue(ctx, `INSERT INTO known_browsers (user_id, digest, user_agent, first_seen_at, last_seen_at)
		VALUES ($1, $2, $3, $4, $4)`, userID, v.digest, agent, tx.Now.UnixMicro()); err != nil {
		return browserVisit{}, fmt.Errorf("insert known browser: %w", err)
	}
	return v, nil
}

// deleteBrowsers deletes the known browsers of a user except the browser of the session
// except; all if except is empty.
func deleteBrowsers(ctx context.Context, tx *db.Tx, userID, except string) error {
	if err := tx.Queue(ctx, `DELETE FROM known_browsers WHERE user_id = $1
		AND digest NOT IN (SELECT browser FROM sessions WHERE id = $2 AND browser IS NOT NULL)`, userID, except); err != nil {
		return fmt.Errorf("delete known browsers: %w", err)
	}
	return nil
}

// deleteBrowser deletes a known browser of a user, unless another of their sessions uses
// it.
func deleteBrowser(ctx context.Context, tx *db.Tx, userID string, digest []byte) error {
	if len(digest) == 0 {
		return nil
	}
	if err := tx.Queue(ctx, `DELETE FROM known_browsers WHERE user_id = $1 AND digest = $2
		AND NOT EXISTS (SELECT 1 FROM sessions WHERE user_id = $1 AND browser = $2)`, userID, digest); err != nil {
		return fmt.Errorf("delete known browser: %w", err)
	}
	return nil
}
