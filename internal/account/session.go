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
	// Browser is for the cookie by which the browser is known at later sign-ins, for
	// [BrowserLife]. Empty after a refresh: the one that it has stays.
	Browser string
}

// tokens returns p for the client of a session of a certain age: neither token
// outlives the session.
func (s *Service) tokens(p pair, age time.Duration) Tokens {
	rest := max(s.sessionLife-age, 0)
	return Tokens{
		Access: p.access.encode(), AccessLife: min(s.accessLife, rest),
		Refresh: p.refresh.encode(), RefreshLife: min(s.refreshLife, rest),
	}
}

// Identity is who sent a request.
type Identity struct {
	UserID         string
	OrganizationID string // empty until sign-up is completed
	Role           Role   // empty until sign-up is completed
	SessionID      string
	User           User // the whole record, as it was when the request was authenticated

	SecondFactor bool      // the session has two factors
	ByProvider   bool      // the session holds where only the identity provider is admitted
	ProvenAt     time.Time // when the person last proved their identity: at the sign-in or later
	// NeedsSecondFactor says that the organization requires a second factor and
	// that the session lacks it. Such a session may only add or prove one, or end.
	NeedsSecondFactor bool
}

type identityKey struct{}

// NewContext returns a context that carries id, and its user as the actor of what
// is audited.
func NewContext(ctx context.Context, id Identity) context.Context {
	ctx = audit.WithActor(ctx, audit.Actor{Type: audit.User, ID: id.UserID, Email: id.User.Email})
	return context.WithValue(ctx, identityKey{}, id)
}

// FromContext returns the identity that ctx carries; false when it carries none.
func FromContext(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(identityKey{}).(Identity)
	return id, ok
}

// SignIn is a session that was just opened, or the first of two steps to one.
type SignIn struct {
	User       User
	SessionID  string
	Tokens     Tokens // zero while Pending is set
	Pending    string // the token of a [Pending] sign-in, when a second step is due; else empty
	RedirectTo string // where the browser goes once the session is open
}

// newSession describes a session to open.
type newSession struct {
	id, userID string
	twoFactors bool
	byProvider bool // holds where only the identity provider is admitted
	unproven   bool // opened by a password that is no proof of identity
}

// openSession adds a session and its first tokens. The browser is known from then
// on.
func (s *Service) openSession(ctx context.Context, tx *db.Tx, n newSession, c Client) (Tokens, error) {
	visit, err := s.recordVisitTx(ctx, tx, n.userID, c)
	if err != nil {
		return Tokens{}, err
	}
	provenAt := tx.Now.UnixMicro()
	if n.unproven {
		provenAt = 0
	}
	if _, err := tx.Exec(ctx, `INSERT INTO sessions (id, user_id, ip, user_agent, second_factor, proven_at, created_at, used_at, browser, by_provider)
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

// tokenState is a token with the session and the user that it stands for.
type tokenState struct {
	sessionID  string
	openedAt   time.Time // of the session: when its sign-in was
	usedAt     time.Time // of the session
	provenAt   time.Time // of the session
	twoFactors bool      // the session has two factors
	required   bool      // the organization requires two factors
	byProvider bool      // the session holds where only the identity provider is admitted
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

// findToken is the one statement of an authenticated request.
const findToken = `SELECT t.session_id, t.issued_at, t.consumed_at, t.successor, s.created_at, s.used_at, s.proven_at, s.second_factor,
		coalesce(o.second_factor_required, FALSE), s.by_provider, coalesce(o.provider_only, ''), ` + userColumns + `
	FROM session_tokens t
	JOIN sessions s ON s.id = t.session_id
	JOIN users u ON u.id = s.user_id
	LEFT JOIN organizations o ON o.id = u.organization_id
	WHERE t.digest = $1 AND t.kind = $2`

// scanToken reads the row of [findToken].
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
	now := time.Now()
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

// refresh exchanges a refresh token. It looks before it locks, because of many
// parallel requests only one has anything to write.
func (s *Service) refresh(ctx context.Context, old token, client Client) (Identity, *Tokens, error) {
	h, err := scanToken(s.db.Lookup(ctx, findToken, old.digest(), refreshToken))
	if err != nil {
		return Identity{}, nil, err
	}
	if next, ok := s.replayRefresh(h, old, time.Now()); ok {
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
		audit.Security(ctx, s.log, AuditTokenReused,
			slog.String("user", h.user.ID), slog.String("session", h.sessionID), slog.Time("consumed_at", h.consumed))
		return Identity{}, nil, errNotSignedIn()
	}
	return h.identity(), &fresh, nil
}

// replayRefresh returns what a refresh token was exchanged for a moment ago.
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

// endSession deletes a session, and with it its tokens.
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

// SessionsTopic is the key under which Config.Tell announces that a user's sessions may
// have ended, or grant something else than before.
func SessionsTopic(userID string) string { return "@" + userID }

// sessionsChanged announces, after the commit, that a user's sessions may have ended,
// or grant something else: open streams of that user check their session again.
func (s *Service) sessionsChanged(tx *db.Tx, userID string) {
	s.notifyAfterCommit(tx, SessionsTopic(userID), "session")
}

// CheckSession returns the identity of a session that was authenticated earlier, and
// the time of its absolute end. It neither renews the session nor counts as its use.
// A session that has ended is [problem.Unauthorized].
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
	if now := time.Now(); !now.Before(end) || now.Sub(h.usedAt) >= s.refreshLife {
		return Identity{}, time.Time{}, errNotSignedIn()
	}
	return h.identity(), end, nil
}
