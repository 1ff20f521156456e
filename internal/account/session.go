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
	"log/slog"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// refreshGrace is the time for which a used refresh token still returns its successors: a
// browser sends parallel requests with the same token.
const refreshGrace = 10 * time.Second

// Kinds of session token, as stored.
const (
	accessToken  = 0
	refreshToken = 1
)

// token is a secret of 256 random bits.
type token [32]byte

func newToken() token {
	var t token
	rand.Read(t[:]) // never fails: crypto/rand ends the program instead
	return t
}

var tokenEncoding = base64.RawURLEncoding.Strict()

// encode returns the token's text form. There is no String method, so that no log prints
// a token by accident.
func (t token) encode() string { return tokenEncoding.EncodeToString(t[:]) }

// digest returns the stored form of a token.
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
	return t, err == nil && n == len(t) // the decoder skips line ends
}

// pair is a session's access and refresh token.
type pair struct{ access, refresh token }

// mask encrypts p with a pad derived from the refresh token by, which is used for nothing
// else, so that only the holder of that token can read p. Applied twice, it returns p.
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

// Tokens are the secrets of a session that its client stores.
type Tokens struct {
	Access      string
	Refresh     string
	AccessLife  time.Duration
	RefreshLife time.Duration
	// Browser is the cookie value that identifies the browser at later sign-ins, for
	// [BrowserLife]. Empty after a refresh: the stored value stays.
	Browser string
}

// tokens returns p for a client, given the session's age: neither token outlives the
// session.
func (s *Service) tokens(p pair, age time.Duration) Tokens {
	rest := max(s.sessionLife-age, 0)
	return Tokens{
		Access: p.access.encode(), AccessLife: min(s.accessLife, rest),
		Refresh: p.refresh.encode(), RefreshLife: min(s.refreshLife, rest),
	}
}

// Identity is the authenticated user of a request.
type Identity struct {
	UserID         string
	OrganizationID string // empty until sign-up is completed
	Role           Role   // empty until sign-up is completed
	SessionID      string
	User           User // the whole record as of authentication

	SecondFactor bool      // the session has two factors
	ByProvider   bool      // the session satisfies a provider policy
	ProvenAt     time.Time // last proof of identity: the sign-in or later
	// NeedsSecondFactor is set if the organization requires a second factor that the
	// session lacks. Such a session may only add or prove one, or end.
	NeedsSecondFactor bool
}

type identityKey struct{}

// NewContext returns a context with id, and its user as the audit actor.
func NewContext(ctx context.Context, id Identity) context.Context {
	ctx = audit.WithActor(ctx, audit.Actor{Type: audit.User, ID: id.UserID, Email: id.User.Email})
	return context.WithValue(ctx, identityKey{}, id)
}

// FromContext returns the identity of ctx; false if there is none.
func FromContext(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(identityKey{}).(Identity)
	return id, ok
}

// SignIn is a session just opened, or a sign-in that needs a second factor.
type SignIn struct {
	User       User
	SessionID  string
	Tokens     Tokens // zero if Pending is set
	Pending    string // token of a [PendingSignIn] sign-in if a second factor is due; else empty
	RedirectTo string // target once the session is open
}

// newSession describes a session to open.
type newSession struct {
	id, userID string
	twoFactors bool
	byProvider bool // satisfies a provider policy
	unproven   bool // opened by a password that is no proof of identity
}

// openSession stores a session and its first tokens, and makes the browser known.
func (s *Service) openSession(ctx context.Context, tx *db.Tx, n newSession, c Client) (Tokens, error) {
	visit, err := s.recordVisitTx(ctx, tx, n.userID, c)
	if err != nil {
		return Tokens{}, err
	}
	provenAt := tx.Now.UnixMicro()
	if n.unproven {
		provenAt = 0
	}
	if err := tx.Queue(ctx, `INSERT INTO sessions (id, user_id, ip, user_agent, second_factor, proven_at, created_at, used_at, browser, by_provider)
		VALUES ($1, $2, $3, $4, $5, $9, $6, $6, $7, $8)`,
		n.id, n.userID, c.IP, shortAgent(c.UserAgent), n.twoFactors, tx.Now.UnixMicro(), visit.digest, n.byProvider, provenAt); err != nil {
		return Tokens{}, fmt.Errorf("insert session: %w", err)
	}
	p, err := issue(ctx, tx, n.id)
	if err != nil {
		return Tokens{}, err
	}
	t := s.tokens(p, 0)
	t.Browser = visit.cookie
	return t, s.notifyNewBrowserTx(ctx, tx, n.userID, visit, c)
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

// shortAgent returns a user agent that is safe to store, shortened.
func shortAgent(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", "")
	return strings.ToValidUTF8(s[:min(len(s), 255)], "")
}

// Authenticate returns the identity for a request's tokens; either may be empty. A
// current access token suffices; otherwise the refresh token is exchanged, and fresh is
// the new pair to send with the response.
//
// Without a valid token the error is a [problem.Unauthorized]. A refresh token used again
// after [refreshGrace] was stolen, by one of its two users: it ends the session.
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

// tokenState is a token's row with its session and user.
type tokenState struct {
	sessionID  string
	openedAt   time.Time // time of the session's sign-in
	usedAt     time.Time // of the session
	provenAt   time.Time // of the session
	twoFactors bool      // the session has two factors
	required   bool      // the organization requires two factors
	byProvider bool      // the session satisfies a provider policy
	policy     ProviderPolicy
	user       User
	issuedAt   time.Time
	consumed   time.Time
	successor  []byte
}

func (h *tokenState) identity() Identity {
	return Identity{
		UserID: h.user.ID, OrganizationID: h.user.OrganizationID, Role: h.user.Role,
		SessionID: h.sessionID, User: h.user,
		SecondFactor: h.twoFactors, ByProvider: h.byProvider, ProvenAt: h.provenAt, NeedsSecondFactor: h.required && !h.twoFactors,
	}
}

// findToken is the only statement of an authenticated request.
const findToken = `SELECT t.session_id, t.issued_at, t.consumed_at, t.successor, s.created_at, s.used_at, s.proven_at, s.second_factor,
		coalesce(o.second_factor_required, FALSE), s.by_provider, coalesce(o.provider_only, ''), ` + userColumns + `
	FROM session_tokens t
	JOIN sessions s ON s.id = t.session_id
	JOIN users u ON u.id = s.user_id
	LEFT JOIN organizations o ON o.id = u.organization_id
	WHERE t.digest = $1 AND t.kind = $2`

// scanToken scans a row of [findToken].
func scanToken(row db.Row) (tokenState, error) {
	var h tokenState
	err := row.Scan(append([]any{&h.sessionID, db.IntoTime(&h.issuedAt), db.IntoTime(&h.consumed), &h.successor, db.IntoTime(&h.openedAt), db.IntoTime(&h.usedAt),
		db.IntoTime(&h.provenAt), &h.twoFactors, &h.required, &h.byProvider, (*string)(&h.policy)}, userFields(&h.user)...)...)
	if errors.Is(err, db.ErrNoRows) {
		return tokenState{}, errNotSignedIn()
	}
	if err != nil {
		return tokenState{}, fmt.Errorf("find session: %w", err)
	}
	if !h.byProvider && h.policy != ProviderOptional && h.policy.covers(emailKey(h.user.Email)) {
		return tokenState{}, errNotSignedIn()
	}
	return h, nil
}

func (s *Service) identify(ctx context.Context, access token) (Identity, error) {
	h, err := scanToken(s.db.Lookup(ctx, findToken, access.digest(), accessToken))
	if err != nil {
		return Identity{}, err
	}
	now := s.db.Now()
	if now.Sub(h.issuedAt) >= s.accessLife || now.Sub(h.openedAt) >= s.sessionLife {
		return Identity{}, errNotSignedIn()
	}
	if now.Sub(h.usedAt) >= flushEvery {
		s.mu.Lock()
		s.used[h.sessionID] = struct{}{}
		s.mu.Unlock()
	}
	return h.identity(), nil
}

// refresh exchanges a refresh token. It reads before it locks: of many parallel requests
// only one has to write.
func (s *Service) refresh(ctx context.Context, old token, client Client) (Identity, *Tokens, error) {
	h, err := scanToken(s.db.Lookup(ctx, findToken, old.digest(), refreshToken))
	if err != nil {
		return Identity{}, nil, err
	}
	if next, ok := s.replayRefresh(h, old, s.db.Now()); ok {
		return h.identity(), &next, nil
	}
	var fresh Tokens
	var reused bool
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		reused = false
		// Every change of a session locks its row first, so that it does not end between
		// read and exchange.
		err := lockSession(ctx, tx, h.sessionID)
		if err != nil {
			return err
		}
		if h, err = scanToken(tx.QueryRow(ctx, findToken, old.digest(), refreshToken)); err != nil {
			return err
		}
		var ok bool
		if fresh, ok = s.replayRefresh(h, old, tx.Now); ok {
			return nil
		}
		if tx.Now.Sub(h.usedAt) >= s.refreshLife || tx.Now.Sub(h.openedAt) >= s.sessionLife {
			return errNotSignedIn()
		}
		if !h.consumed.IsZero() {
			reused = true
			if err := s.recordUserTx(ctx, tx, AuditTokenReused, h.user.ID, map[string]any{"session": h.sessionID}); err != nil {
				return err
			}
			return s.endSession(ctx, tx, h.sessionID)
		}
		p, err := issue(ctx, tx, h.sessionID)
		if err != nil {
			return err
		}
		fresh = s.tokens(p, tx.Now.Sub(h.openedAt))
		hidden := p.mask(old)
		if err := tx.Queue(ctx, "UPDATE session_tokens SET consumed_at = $2, successor = $3 WHERE digest = $1",
			old.digest(), tx.Now.UnixMicro(), append(hidden.access[:], hidden.refresh[:]...)); err != nil {
			return fmt.Errorf("consume refresh token: %w", err)
		}
		if err := tx.Queue(ctx, "UPDATE sessions SET used_at = $2, ip = $3, user_agent = $4 WHERE id = $1",
			h.sessionID, tx.Now.UnixMicro(), client.IP, shortAgent(client.UserAgent)); err != nil {
			return fmt.Errorf("update session: %w", err)
		}
		return nil
	})
	if err != nil {
		return Identity{}, nil, err
	}
	if reused {
		audit.LogSecurityEvent(ctx, s.log, AuditTokenReused,
			slog.String("user", h.user.ID), slog.String("session", h.sessionID), slog.Time("consumed_at", h.consumed))
		return Identity{}, nil, errNotSignedIn()
	}
	return h.identity(), &fresh, nil
}

// replayRefresh returns the successors of a refresh token that was exchanged within
// [refreshGrace].
func (s *Service) replayRefresh(h tokenState, old token, now time.Time) (Tokens, bool) {
	if h.consumed.IsZero() || now.Sub(h.consumed) > refreshGrace || len(h.successor) != 2*len(token{}) ||
		now.Sub(h.openedAt) >= s.sessionLife {
		return Tokens{}, false
	}
	var hidden pair
	copy(hidden.access[:], h.successor)
	copy(hidden.refresh[:], h.successor[len(hidden.access):])
	return s.tokens(hidden.mask(old), now.Sub(h.openedAt)), true
}

// lockSession locks a session's row until tx ends; it fails if the session has ended.
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

// SignOut ends a session; its tokens are refused from then on. A session that has ended
// is no error.
func (s *Service) SignOut(ctx context.Context, sessionID string) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		var userID string
		err := tx.QueryRow(ctx, "SELECT user_id FROM sessions WHERE id = $1", sessionID).Scan(&userID)
		if errors.Is(err, db.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("find session: %w", err)
		}
		if err := s.recordUserTx(ctx, tx, AuditSignedOut, userID, map[string]any{"session": sessionID}); err != nil {
			return err
		}
		return s.endSession(ctx, tx, sessionID)
	})
}

// endSession deletes a session with its tokens.
func (s *Service) endSession(ctx context.Context, tx *db.Tx, id string) error {
	var userID string
	err := tx.QueryRow(ctx, "DELETE FROM sessions WHERE id = $1 RETURNING user_id", id).Scan(&userID)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	s.sessionsChanged(tx, userID)
	return nil
}

// SessionsTopic is the key of [Config.Notify] for changes of a user's sessions: ended, or
// with other rights.
func SessionsTopic(userID string) string { return "@" + userID }

// sessionsChanged notifies the open streams of a user, after the commit, to check their
// session again.
func (s *Service) sessionsChanged(tx *db.Tx, userID string) {
	s.notifyAfterCommit(tx, SessionsTopic(userID), "session")
}

// CheckSession returns the identity of a session authenticated earlier, and the time of
// its absolute end. It neither renews the session nor counts as use. A session that has
// ended is [problem.Unauthorized].
func (s *Service) CheckSession(ctx context.Context, sessionID string) (id Identity, end time.Time, err error) {
	h, err := scanToken(s.db.Lookup(ctx, `SELECT s.id, s.used_at, CAST(NULL AS BIGINT), NULL, s.created_at, s.used_at, s.proven_at, s.second_factor,
			coalesce(o.second_factor_required, FALSE), s.by_provider, coalesce(o.provider_only, ''), `+userColumns+`
		FROM sessions s
		JOIN users u ON u.id = s.user_id
		LEFT JOIN organizations o ON o.id = u.organization_id
		WHERE s.id = $1`, sessionID))
	if err != nil {
		return Identity{}, time.Time{}, err
	}
	end = h.openedAt.Add(s.sessionLife)
	if now := s.db.Now(); !now.Before(end) || now.Sub(h.usedAt) >= s.refreshLife {
		return Identity{}, time.Time{}, errNotSignedIn()
	}
	return h.identity(), end, nil
}
