package account

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// BrowserLife is how long a browser is known after the last sign-in there: the
// longest life that browsers give a cookie.
const BrowserLife = 400 * 24 * time.Hour

const (
	maxKnownBrowsers = 50 // per user; the one unused for longest is dropped
	maxBrowserTokens = 8  // per browser: one for each user who signs in there
)

// KnownBrowser is a browser in which a user has signed in before.
type KnownBrowser struct {
	UserAgent string
	Device    string // the same in a few words; empty when it says nothing
	FirstSeen time.Time
	LastSeen  time.Time // of a sign-in
}

// KnownBrowsers returns the browsers in which a user has signed in during the
// last [BrowserLife], the one of the last sign-in first.
func (s *Service) KnownBrowsers(ctx context.Context, userID string) ([]KnownBrowser, error) {
	list, err := db.All(ctx, s.db, func(row db.Row) (KnownBrowser, error) {
		var b KnownBrowser
		err := row.Scan(&b.UserAgent, db.IntoTime(&b.FirstSeen), db.IntoTime(&b.LastSeen))
		b.Device = device(b.UserAgent)
		return b, err
	}, `SELECT user_agent, first_seen_at, last_seen_at FROM known_browsers
		WHERE user_id = $1 AND last_seen_at > $2 ORDER BY last_seen_at DESC, digest`, userID, time.Now().Add(-BrowserLife).UnixMicro())
	if err != nil {
		return nil, fmt.Errorf("list known browsers: %w", err)
	}
	return list, nil
}

// browserTokens is the value of a browser's cookie: a token for each user who has
// signed in there, the newest first, joined with ".". Each token is made by a
// sign-in and handed to that browser only, so a cookie planted from elsewhere
// never becomes a known one.
type browserTokens []token

// parseBrowser returns the tokens of a cookie. What is malformed is left out.
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

// encode returns the cookie.
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

// digests are arguments for [browserDigests].
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

// browserDigests compares a digest with those of a cookie: parameters 3 to 10.
const browserDigests = "IN ($3, $4, $5, $6, $7, $8, $9, $10)"

// browserRecognition is how a browser is known to a user. The zero value is unknown.
type browserRecognition struct {
	digest []byte
	since  time.Time
}

// recognize returns how the browser that sends cookie is known to the user with
// an e-mail address; with an empty key, to any user. It reads nothing where there
// is no cookie, and the same for addresses with and without an account.
func (s *Service) recognize(ctx context.Context, key, cookie string) (browserRecognition, error) {
	list := parseBrowser(cookie)
	if len(list) == 0 {
		return browserRecognition{}, nil
	}
	var k browserRecognition
	err := s.db.QueryRow(ctx, `SELECT b.digest, b.first_seen_at FROM known_browsers b JOIN users u ON u.id = b.user_id
		WHERE ($1 = '' OR u.email_key = $1) AND b.last_seen_at > $2 AND b.digest `+browserDigests+`
		ORDER BY b.first_seen_at LIMIT 1`,
		append([]any{key, time.Now().Add(-BrowserLife).UnixMicro()}, list.digests()...)...).Scan(&k.digest, db.IntoTime(&k.since))
	if errors.Is(err, db.ErrNoRows) {
		return browserRecognition{}, nil
	}
	if err != nil {
		return browserRecognition{}, fmt.Errorf("look for a known browser: %w", err)
	}
	return k, nil
}

// browserVisit is a sign-in in a browser.
type browserVisit struct {
	digest []byte // of its token, as in known_browsers
	cookie string // which it keeps from now on
	isNew  bool   // the user has not signed in there during the last BrowserLife
}

// recordVisitTx records that a user signs in with a client. The user's row exists.
func (s *Service) recordVisitTx(ctx context.Context, tx *db.Tx, userID string, c Client) (browserVisit, error) {
	list := parseBrowser(c.Browser)
	agent := shortAgent(c.UserAgent)
	var v browserVisit
	if len(list) > 0 {
		err := tx.QueryRow(ctx, "SELECT digest FROM known_browsers WHERE user_id = $1 AND last_seen_at > $2 AND digest "+browserDigests+
			" ORDER BY first_seen_at LIMIT 1", append([]any{userID, tx.Now.Add(-BrowserLife).UnixMicro()}, list.digests()...)...).Scan(&v.digest)
		if err != nil && !errors.Is(err, db.ErrNoRows) {
			return browserVisit{}, fmt.Errorf("look for the known browser: %w", err)
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
		} // dropped a moment ago
	}
	t := newToken()
	v = browserVisit{digest: t.digest(), cookie: list.with(t).encode(), isNew: true}
	var others int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM known_browsers WHERE user_id = $1", userID).Scan(&others); err != nil {
		return browserVisit{}, fmt.Errorf("count known browsers: %w", err)
	}
	if others >= maxKnownBrowsers {
		if _, err := tx.Exec(ctx, `DELETE FROM known_browsers WHERE user_id = $1 AND digest IN
			(SELECT digest FROM known_browsers WHERE user_id = $1 ORDER BY last_seen_at DESC, digest LIMIT $3 OFFSET $2)`,
			userID, maxKnownBrowsers-1, chunk); err != nil {
			return browserVisit{}, fmt.Errorf("drop known browsers: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, `INSERT INTO known_browsers (user_id, digest, user_agent, first_seen_at, last_seen_at)
		VALUES ($1, $2, $3, $4, $4)`, userID, v.digest, agent, tx.Now.UnixMicro()); err != nil {
		return browserVisit{}, fmt.Errorf("insert known browser: %w", err)
	}
	return v, nil
}

// deleteBrowsers makes all browsers of a user unknown but the one of a session that
// goes on; all, when except is empty.
func deleteBrowsers(ctx context.Context, tx *db.Tx, userID, except string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM known_browsers WHERE user_id = $1
		AND digest NOT IN (SELECT browser FROM sessions WHERE id = $2 AND browser IS NOT NULL)`, userID, except); err != nil {
		return fmt.Errorf("drop known browsers: %w", err)
	}
	return nil
}

// deleteBrowser makes one browser of a user unknown, unless another session goes on
// there.
func deleteBrowser(ctx context.Context, tx *db.Tx, userID string, digest []byte) error {
	if len(digest) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, `DELETE FROM known_browsers WHERE user_id = $1 AND digest = $2
		AND NOT EXISTS (SELECT 1 FROM sessions WHERE user_id = $1 AND browser = $2)`, userID, digest); err != nil {
		return fmt.Errorf("drop known browser: %w", err)
	}
	return nil
}
