package account

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// refreshGrace is how long a used refresh token still yields what it was
// exchanged for: a browser sends parallel requests with the same one.
const refreshGrace = 10 * time.Second

// Kinds of session token, as stored.
const (
	accessToken  = 0
	refreshToken = 1
)

// token is a secret that opens something: 256 random bits.
type token [32]byte

func newToken() token {
	var t token
	rand.Read(t[:]) // never fails: crypto/rand ends the program instead
	return t
}

var tokenEncoding = base64.RawURLEncoding.Strict()

// encode returns the token as it travels. It is no String method, so that no
// log prints it by accident.
func (t token) encode() string { return tokenEncoding.EncodeToString(t[:]) }

// digest is what is stored of a token.
func (t token) digest() []byte {
	sum := sha256.Sum256(t[:])
	return sum[:]
}

func parseToken(s string) (token, bool) {
	var t token
	if len(s) != tokenEncoding.EncodedLen(len(t)) {
		return token{}, false
	}
	n, err := tokenEncoding.Decode(t[:], []byte(s))
	return t, err == nil && n == len(t) // less when there were line ends, which it skips
}

// pair is a session's access and refresh token.
type pair struct{ access, refresh token }

// mask hides p so that only the refresh token that was exchanged for it brings
// it back: each token is combined with a pad that is derived from that one and
// used for nothing else. Applied again it undoes itself.
func (p pair) mask(by token) pair {
	pad := func(label string) []byte {
		m := hmac.New(sha256.New, by[:])
		m.Write([]byte(label))
		return m.Sum(nil)
	}
	var out pair
	subtle.XORBytes(out.access[:], p.access[:], pad("successor access"))
	subtle.XORBytes(out.refresh[:], p.refresh[:], pad("successor refresh"))
	return out
}

// Tokens are what a client keeps of a session.
type Tokens struct {
	Access      string
	Refresh     string
	AccessLife  time.Duration
	RefreshLife time.Duration
}

func (s *Service) tokens(p pair) Tokens {
	return Tokens{
		Access: p.access.encode(), AccessLife: s.accessLife,
		Refresh: p.refresh.encode(), RefreshLife: s.refreshLife,
	}
}

// Identity is who sent a request.
type Identity struct {
	UserID         string
	OrganizationID string // empty until sign-up is completed
	Role           Role   // empty until sign-up is completed
	SessionID      string
	User           User // the whole record, as it was when the request was authenticated
}

type identityKey struct{}

// NewContext returns a context that carries id.
func NewContext(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// FromContext returns the identity that ctx carries; false when it carries none.
func FromContext(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(identityKey{}).(Identity)
	return id, ok
}

// SignIn is a session that was just opened.
type SignIn struct {
	User       User
	SessionID  string
	Tokens     Tokens
	RedirectTo string // where the browser goes now
}

// openSession adds a session and its first tokens.
func (s *Service) openSession(ctx context.Context, tx *db.Tx, userID string, c Client) (string, Tokens, error) {
	id := newID()
	if _, err := tx.Exec(ctx, `INSERT INTO sessions (id, user_id, ip, user_agent, created_at, used_at)
		VALUES ($1, $2, $3, $4, $5, $5)`, id, userID, c.IP, shortAgent(c.UserAgent), tx.Now.UnixMicro()); err != nil {
		return "", Tokens{}, fmt.Errorf("insert session: %w", err)
	}
	p, err := issue(ctx, tx, id)
	return id, s.tokens(p), err
}

// issue adds a pair of tokens to a session.
func issue(ctx context.Context, tx *db.Tx, sessionID string) (pair, error) {
	p := pair{newToken(), newToken()}
	_, err := tx.Exec(ctx, `INSERT INTO session_tokens (digest, session_id, kind, issued_at)
		VALUES ($1, $3, $4, $6), ($2, $3, $5, $6)`,
		p.access.digest(), p.refresh.digest(), sessionID, accessToken, refreshToken, tx.Now.UnixMicro())
	if err != nil {
		return pair{}, fmt.Errorf("insert tokens: %w", err)
	}
	return p, nil
}

// shortAgent bounds what a client says of itself to something storable.
func shortAgent(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", "")
	return strings.ToValidUTF8(s[:min(len(s), 255)], "")
}

// Authenticate finds out who holds the tokens of a request. A current access
// token is enough; otherwise a refresh token is exchanged, and fresh is the new
// pair to hand out with the answer. Either may be empty.
//
// Without a valid one the error is a [problem.Unauthorized]. A refresh token
// that is used again after [refreshGrace] has been stolen, from or by whoever
// used it first: it ends the session.
func (s *Service) Authenticate(ctx context.Context, access, refresh string, client Client) (id Identity, fresh *Tokens, err error) {
	if t, ok := parseToken(access); ok {
		id, err := s.identify(ctx, t)
		if err == nil || problem.Of(err) != problem.Unauthorized {
			return id, nil, err
		}
	}
	if t, ok := parseToken(refresh); ok {
		return s.refresh(ctx, t, client)
	}
	return Identity{}, nil, errNotSignedIn()
}

func errNotSignedIn() error {
	return problem.New(problem.Unauthorized, "you are not signed in")
}

// held is a token with the session and the user that it stands for.
type held struct {
	sessionID string
	usedAt    time.Time // of the session
	user      User
	issuedAt  time.Time
	consumed  time.Time
	successor []byte
}

func (h *held) identity() Identity {
	return Identity{
		UserID: h.user.ID, OrganizationID: h.user.OrganizationID, Role: h.user.Role,
		SessionID: h.sessionID, User: h.user,
	}
}

// findToken is the one statement of an authenticated request.
const findToken = `SELECT t.session_id, t.issued_at, t.consumed_at, t.successor, s.used_at, ` + userColumns + `
	FROM session_tokens t
	JOIN sessions s ON s.id = t.session_id
	JOIN users u ON u.id = s.user_id
	WHERE t.digest = $1 AND t.kind = $2`

// found reads the row of [findToken].
func found(row db.Row) (held, error) {
	var h held
	err := row.Scan(append([]any{&h.sessionID, db.IntoTime(&h.issuedAt), db.IntoTime(&h.consumed), &h.successor, db.IntoTime(&h.usedAt)},
		userFields(&h.user)...)...)
	if errors.Is(err, db.ErrNoRows) {
		return held{}, errNotSignedIn()
	}
	if err != nil {
		return held{}, fmt.Errorf("find session: %w", err)
	}
	return h, nil
}

func (s *Service) identify(ctx context.Context, access token) (Identity, error) {
	h, err := found(s.db.Lookup(ctx, findToken, access.digest(), accessToken))
	if err != nil {
		return Identity{}, err
	}
	now := time.Now()
	if now.Sub(h.issuedAt) >= s.accessLife {
		return Identity{}, errNotSignedIn()
	}
	if now.Sub(h.usedAt) >= flushEvery {
		s.mu.Lock()
		s.used[h.sessionID] = struct{}{}
		s.mu.Unlock()
	}
	return h.identity(), nil
}

// refresh exchanges a refresh token. It looks before it locks, because of many
// parallel requests only one has anything to write.
func (s *Service) refresh(ctx context.Context, old token, client Client) (Identity, *Tokens, error) {
	h, err := found(s.db.Lookup(ctx, findToken, old.digest(), refreshToken))
	if err != nil {
		return Identity{}, nil, err
	}
	if next, ok := s.again(h, old, time.Now()); ok {
		return h.identity(), &next, nil
	}
	var fresh Tokens
	var reused bool
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		reused = false
		// Whatever changes a session locks its row first, so that one does
		// not end between the look and the exchange.
		err := lockSession(ctx, tx, h.sessionID)
		if err != nil {
			return err
		}
		if h, err = found(tx.QueryRow(ctx, findToken, old.digest(), refreshToken)); err != nil {
			return err
		}
		var ok bool
		if fresh, ok = s.again(h, old, tx.Now); ok {
			return nil
		}
		if tx.Now.Sub(h.usedAt) >= s.refreshLife {
			return errNotSignedIn()
		}
		if !h.consumed.IsZero() {
			reused = true
			return endSession(ctx, tx, h.sessionID)
		}
		p, err := issue(ctx, tx, h.sessionID)
		if err != nil {
			return err
		}
		fresh = s.tokens(p)
		hidden := p.mask(old)
		if _, err := tx.Exec(ctx, "UPDATE session_tokens SET consumed_at = $2, successor = $3 WHERE digest = $1",
			old.digest(), tx.Now.UnixMicro(), append(hidden.access[:], hidden.refresh[:]...)); err != nil {
			return fmt.Errorf("consume refresh token: %w", err)
		}
		if _, err := tx.Exec(ctx, "UPDATE sessions SET used_at = $2, ip = $3, user_agent = $4 WHERE id = $1",
			h.sessionID, tx.Now.UnixMicro(), client.IP, shortAgent(client.UserAgent)); err != nil {
			return fmt.Errorf("update session: %w", err)
		}
		return nil
	})
	if err != nil {
		return Identity{}, nil, err
	}
	if reused {
		s.log.WarnContext(ctx, "refresh token used twice: session ended",
			"session", h.sessionID, "user", h.user.ID, "ip", client.IP, "consumed_at", h.consumed)
		return Identity{}, nil, errNotSignedIn()
	}
	return h.identity(), &fresh, nil
}

// again returns what a refresh token was exchanged for a moment ago.
func (s *Service) again(h held, old token, now time.Time) (Tokens, bool) {
	if h.consumed.IsZero() || now.Sub(h.consumed) > refreshGrace || len(h.successor) != 2*len(token{}) {
		return Tokens{}, false
	}
	var hidden pair
	copy(hidden.access[:], h.successor)
	copy(hidden.refresh[:], h.successor[len(hidden.access):])
	return s.tokens(hidden.mask(old)), true
}

// lockSession makes the session last until tx ends.
func lockSession(ctx context.Context, tx *db.Tx, id string) error {
	err := tx.QueryRow(ctx, "SELECT id FROM sessions WHERE id = $1 FOR UPDATE", id).Scan(&id)
	if errors.Is(err, db.ErrNoRows) {
		return errNotSignedIn()
	}
	if err != nil {
		return fmt.Errorf("lock session: %w", err)
	}
	return nil
}

// SignOut ends a session. Its tokens are refused from then on. One that has
// ended already is fine.
func (s *Service) SignOut(ctx context.Context, sessionID string) error {
	return s.db.Write(ctx, func(tx *db.Tx) error { return endSession(ctx, tx, sessionID) })
}

// endSession deletes a session, and with it its tokens.
func endSession(ctx context.Context, tx *db.Tx, id string) error {
	if _, err := tx.Exec(ctx, "DELETE FROM sessions WHERE id = $1", id); err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	return nil
}
