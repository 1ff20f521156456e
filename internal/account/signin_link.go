package account

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// LinkLife is the lifetime of a sign-in link and of the intent in the browser that
// requested it.
const LinkLife = 15 * time.Minute

// CallbackPath is the path of sign-in links below the base URL.
const CallbackPath = "/api/auth/callback"

// EmailSignIn is the input of auth.signInWithEmail.
type EmailSignIn struct {
	Email      string `json:"email"`
	RedirectTo string `json:"redirectTo,omitempty"` // target after the sign-in; empty means home
}

// SignInWithEmail mails a sign-in link to known and unknown addresses alike: a first
// sign-in creates the user when the link is followed. An unknown address that the sign-up
// policy refuses gets a mail that says so. Neither result nor time shows which addresses
// have accounts.
//
// The intent, a secret that the browser stores for [LinkLife], identifies the browser
// that requested the link. The caller passes the browser's current intent, if any, and
// stores the returned one; a second request thereby leaves the first link valid.
func (s *Service) SignInWithEmail(ctx context.Context, in EmailSignIn, intent string, client Client) (string, error) {
	var v problem.Validation
	checkEmail(&v, "email", in.Email)
	redirect := s.redirects.check(&v, in.RedirectTo)
	if err := v.Err(); err != nil {
		return "", err
	}
	email := strings.TrimSpace(in.Email)
	key := emailKey(email)
	browser, err := s.recognize(ctx, key, client.Browser)
	if err != nil {
		return "", err
	}
	if err := s.linkAttempts.allow(ctx, mailbox(email), browser, client); err != nil {
		s.recordRefusal(ctx, key, ByLink, err)
		return "", err
	}

	asker := browserSecret(intent)
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		t := newToken()
		to, err := s.recipient(ctx, tx, key, email)
		if err != nil {
			return err
		}
		// The same statements for all addresses, so that the time reveals nothing. A
		// token that is not mailed opens nothing.
		if err := tx.Queue(ctx, `INSERT INTO login_links (digest, intent, email, email_key, redirect, created_at, owned)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			t.digest(), asker.digest(), to.address, key, redirect, tx.Now.UnixMicro(), false); err != nil {
			return fmt.Errorf("insert link: %w", err)
		}
		letter := s.linkMail(t)
		switch {
		case to.providerOnly:
			letter = s.providerMail(letter.Subject)
		case !to.admitted:
			_ = s.refuseSignUp(ctx) // the result is the same for all addresses
			letter = s.noAccountMail()
		}
		return s.sendMail(ctx, tx, to.address, letter)
	})
	if err != nil {
		return "", err
	}
	return asker.encode(), nil
}

// recipient is the addressee of a sign-in link.
type recipient struct {
	address      string // address to mail to
	admitted     bool   // has an account or may create one
	providerOnly bool   // must sign in by the identity provider
}

func (s *Service) recipient(ctx context.Context, tx *db.Tx, key, email string) (recipient, error) {
	var r recipient
	var known, invited bool
	var policy ProviderPolicy
	// The mail goes to the user's stored address, not to one that merely compares as
	// equal.
	err := tx.QueryRow(ctx, `SELECT coalesce((SELECT email FROM users WHERE email_key = $1), $2),
			EXISTS (SELECT 1 FROM users WHERE email_key = $1),
			EXISTS (SELECT 1 FROM invitations WHERE email_key = $1 AND created_at > $3),
			coalesce((SELECT o.provider_only FROM users u JOIN organizations o ON o.id = u.organization_id WHERE u.email_key = $1), '')`,
		key, email, tx.Now.Add(-InvitationLife).UnixMicro()).Scan(&r.address, &known, &invited, (*string)(&policy))
	if err != nil {
		return recipient{}, fmt.Errorf("find user: %w", err)
	}
	r.admitted, r.providerOnly = known || s.SignUp().admits(key, invited), policy.covers(key)
	return r, nil
}

// browserSecret returns the secret of an intent, or a new one.
func browserSecret(intent string) token {
	if asker, ok := parseToken(intent); ok {
		return asker
	}
	return newToken()
}

// linkMail is the same for all recipients, so that it reveals no more than the response.
func (s *Service) linkMail(t token) mail.Notification {
	return mail.Notification{
		Subject: "Sign in to Kickstand",
		Before:  []string{"Follow this link to sign in to Kickstand."},
		Action:  mail.Action{Label: "Sign in", URL: s.tokenURL(CallbackPath, t)},
		After: []string{
			fmt.Sprintf("It works once, for %d minutes, and best in the browser that requested it.", LinkLife/time.Minute),
			"If you did not request it, ignore this mail: nothing happens unless the link is followed.",
		},
	}
}

// noAccountMail informs an address without an account that sign-up is refused.
func (s *Service) noAccountMail() mail.Notification {
	return mail.Notification{
		Subject: "Sign in to Kickstand",
		Before: []string{
			"Somebody, probably you, requested a sign-in link for Kickstand. There is no account with this e-mail address, and it cannot sign up by itself.",
			invitationHint + " If you have an invitation, open the link in it.",
		},
		Action: mail.Action{Label: "Go to Kickstand", URL: s.redirects.base + "/"},
		After:  []string{"If you did not request it, ignore this mail."},
	}
}

// FollowLink opens a session for the holder of a link's token. A link works once, with
// one exception: mail scanners open links before people do, so the browser that requested
// the link, identified by its intent, may still use it after another client. That ends
// the session of the other client.
//
// An unusable link is a [problem.Invalid] with the reason. A new user refused by the
// sign-up policy is a [problem.Forbidden].
func (s *Service) FollowLink(ctx context.Context, linkToken, intent string, client Client) (SignIn, error) {
	t, ok := parseToken(linkToken)
	if !ok {
		return SignIn{}, errUnknownLink()
	}
	var in SignIn
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		l, err := findLink(ctx, tx, t, " FOR UPDATE")
		if err != nil {
			return err
		}
		owner := l.requestedBy(intent)
		if err := l.usable(tx.Now, owner); err != nil {
			return err
		}
		if l.used {
			if err := s.endSession(ctx, tx, l.sessionID); err != nil {
				return err
			}
			if err := tx.Queue(ctx, "DELETE FROM pending_sign_ins WHERE id = $1", l.sessionID); err != nil {
				return fmt.Errorf("end pending sign-in: %w", err)
			}
		}
		u, err := s.provenUser(ctx, tx, l.email, "", "")
		if err != nil {
			return err
		}
		in = SignIn{User: u, RedirectTo: l.redirect}
		way := ByLink
		if l.operator {
			way = ByOperator
		}
		if err := s.completeSignIn(ctx, tx, &in, way, client); err != nil {
			return err
		}
		if err := tx.Queue(ctx, "UPDATE login_links SET used_at = $2, session_id = $3, owned = $4 WHERE digest = $1",
			t.digest(), tx.Now.UnixMicro(), in.SessionID, owner); err != nil {
			return fmt.Errorf("use link: %w", err)
		}
		return nil
	})
	if err != nil {
		return SignIn{}, err
	}
	return in, nil
}

func errUnknownLink() error {
	return problem.New(problem.Invalid, "This sign-in link is unknown or has expired.")
}

type loginLink struct {
	intent    []byte
	email     string
	redirect  string
	createdAt time.Time
	used      bool
	owned     bool
	sessionID string
	operator  bool // created by the operator
}

// findLink returns the link of a token; lock is empty or " FOR UPDATE".
func findLink(ctx context.Context, q db.Querier, t token, lock string) (loginLink, error) {
	var l loginLink
	var usedAt time.Time
	err := q.QueryRow(ctx, `SELECT intent, email, redirect, created_at, used_at, owned, session_id, by_operator
		FROM login_links WHERE digest = $1`+lock, t.digest()).
		Scan(&l.intent, &l.email, &l.redirect, db.IntoTime(&l.createdAt), db.IntoTime(&usedAt), &l.owned, db.IntoText(&l.sessionID), &l.operator)
	if errors.Is(err, db.ErrNoRows) {
		return loginLink{}, errUnknownLink()
	}
	if err != nil {
		return loginLink{}, fmt.Errorf("find link: %w", err)
	}
	l.used = !usedAt.IsZero()
	return l, nil
}

// requestedBy reports whether the browser with an intent requested the link.
func (l *loginLink) requestedBy(intent string) bool {
	asker, ok := parseToken(intent)
	return ok && subtle.ConstantTimeCompare(l.intent, asker.digest()) == 1
}

// usable returns nil if the link still works for its requester (owner) or another client.
func (l *loginLink) usable(now time.Time, owner bool) error {
	switch {
	case now.Sub(l.createdAt) >= LinkLife:
		return problem.New(problem.Invalid, "This sign-in link is older than %d minutes.", LinkLife/time.Minute)
	case l.used && (l.owned || !owner):
		return problem.New(problem.Invalid, "This sign-in link was used already.")
	}
	return nil
}

// SignInLink is an unused sign-in link.
type SignInLink struct {
	Email       string // address of the account
	SameBrowser bool   // requested by the browser that views it
}

// SignInLink returns the link of a token without using it up. Errors are those of
// [Service.FollowLink].
func (s *Service) SignInLink(ctx context.Context, linkToken, intent string) (SignInLink, error) {
	t, ok := parseToken(linkToken)
	if !ok {
		return SignInLink{}, errUnknownLink()
	}
	l, err := findLink(ctx, s.db, t, "")
	if err != nil {
		return SignInLink{}, err
	}
	asked := l.requestedBy(intent)
	return SignInLink{Email: l.email, SameBrowser: asked}, l.usable(s.db.Now(), asked)
}

// findOrCreate returns the user with a proven e-mail address; name and avatar are for a
// new user.
func findOrCreate(ctx context.Context, tx *db.Tx, email, name, avatarURL string) (User, error) {
	_, err := insertUser(ctx, tx, User{
		ID: newID(), Email: email, Name: name, AvatarURL: avatarURL, Preferences: json.RawMessage("{}"), CreatedAt: tx.Now, UpdatedAt: tx.Now,
	}, "")
	if err != nil {
		return User{}, err
	}
	u, err := db.One(ctx, tx, scanUser, "SELECT "+userColumns+" FROM users u WHERE u.email_key = $1", emailKey(email))
	if err != nil {
		return User{}, fmt.Errorf("find user: %w", err)
	}
	return u, nil
}
