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

// LinkLife is how long a sign-in link can be followed, and how long the browser
// that asked for it keeps its intent.
const LinkLife = 15 * time.Minute

// CallbackPath is where sign-in links lead, below the base URL.
const CallbackPath = "/api/auth/callback"

// EmailSignIn is the input of auth.signInWithEmail.
type EmailSignIn struct {
	Email      string `json:"email"`
	RedirectTo string `json:"redirectTo,omitempty"` // where the link leads in the end; empty means home
}

// SignInWithEmail mails a sign-in link, to known and unknown addresses alike: a
// first sign-in creates the user when the link is followed. An unknown address
// that the sign-up policy does not admit gets a mail that says so. Only the mail
// differs: neither the answer nor its time shows which addresses have accounts.
//
// The browser that asked proves that it did by the intent, a secret which it
// keeps for [LinkLife]. It sends the one it has, if any, and gets back the one
// to keep, so that a second request does not spoil the first one's link.
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
		// The same statements for everybody, so that the time shows nothing. A
		// token that is not mailed opens nothing.
		if _, err := tx.Exec(ctx, `INSERT INTO login_links (digest, intent, email, email_key, redirect, created_at, owned)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			t.digest(), asker.digest(), to.address, key, redirect, tx.Now.UnixMicro(), false); err != nil {
			return fmt.Errorf("insert link: %w", err)
		}
		letter := s.linkMail(t)
		switch {
		case to.providerOnly:
			letter = s.providerMail(letter.Subject)
		case !to.admitted:
			_ = s.refuseSignUp(ctx) // the answer is the same for everybody
			letter = s.noAccountMail()
		}
		return s.sendMail(ctx, tx, to.address, letter)
	})
	if err != nil {
		return "", err
	}
	return asker.encode(), nil
}

// recipient is the owner of an address who asks for a sign-in link.
type recipient struct {
	address      string // where mail to them goes
	admitted     bool   // they have an account or may create one
	providerOnly bool   // they sign in by the identity provider only
}

func (s *Service) recipient(ctx context.Context, tx *db.Tx, key, email string) (recipient, error) {
	var r recipient
	var known, invited bool
	var policy ProviderPolicy
	// A user's mail goes to the address on file, not to one that merely compares
	// as equal.
	err := tx.QueryRow(ctx, `SELECT coalesce((SELECT email FROM users WHERE email_key = $1), $2),
			EXISTS (SELECT 1 FROM users WHERE email_key = $1),
			EXISTS (SELECT 1 FROM invitations WHERE email_key = $1 AND created_at > $3),
			coalesce((SELECT o.provider_only FROM users u JOIN organizations o ON o.id = u.organization_id WHERE u.email_key = $1), '')`,
		key, email, tx.Now.Add(-InvitationLife).UnixMicro()).Scan(&r.address, &known, &invited, (*string)(&policy))
	if err != nil {
		return recipient{}, fmt.Errorf("find user: %w", err)
	}
	r.admitted, r.providerOnly = known || s.signUp.admits(key, invited), policy.covers(key)
	return r, nil
}

// browserSecret returns the secret of a browser that asks to sign in: the one that it
// keeps, or its first.
func browserSecret(intent string) token {
	if asker, ok := parseToken(intent); ok {
		return asker
	}
	return newToken()
}

// linkMail says the same to everyone, so that a mail tells no more than the
// answer did.
func (s *Service) linkMail(t token) mail.Notification {
	return mail.Notification{
		Subject: "Sign in to Kickstand",
		Before:  []string{"Follow this link to sign in to Kickstand."},
		Action:  mail.Action{Label: "Sign in", URL: s.tokenURL(CallbackPath, t)},
		After: []string{
			fmt.Sprintf("It works once, for %d minutes, and best in the browser in which you asked for it.", LinkLife/time.Minute),
			"If you did not ask to sign in, ignore this mail: nothing happens unless the link is followed.",
		},
	}
}

// noAccountMail answers an address that has no account and cannot get one by
// itself.
func (s *Service) noAccountMail() mail.Notification {
	return mail.Notification{
		Subject: "Sign in to Kickstand",
		Before: []string{
			"Somebody, probably you, asked for a sign-in link for Kickstand. There is no account with this e-mail address, and it cannot sign up by itself.",
			invitationHint + " If you have an invitation, open the link in it.",
		},
		Action: mail.Action{Label: "Go to Kickstand", URL: s.redirects.base + "/"},
		After:  []string{"If you did not ask for it, ignore this mail."},
	}
}

// FollowLink opens a session for the holder of a link's token. A link works
// once, with one exception: mail scanners open links before people do, so the
// browser that asked for it, which sends its intent, may still use a link that
// somebody else has opened. That ends the session of the first opening.
//
// A link that does not work is a [problem.Invalid] with a message that says why. A
// newcomer whom the sign-up policy does not admit is a [problem.Forbidden].
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
			if _, err := tx.Exec(ctx, "DELETE FROM pending_sign_ins WHERE id = $1", l.sessionID); err != nil {
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
		if _, err := tx.Exec(ctx, "UPDATE login_links SET used_at = $2, session_id = $3, owned = $4 WHERE digest = $1",
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
	return problem.New(problem.Invalid, "This sign-in link is not one of ours, or it is long expired.")
}

type loginLink struct {
	intent    []byte
	email     string
	redirect  string
	createdAt time.Time
	used      bool
	owned     bool
	sessionID string
	operator  bool // made it
}

// findLink reads the link of a token, and locks it with lock " FOR UPDATE".
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

// requestedBy reports whether the browser with an intent asked for the link.
func (l *loginLink) requestedBy(intent string) bool {
	asker, ok := parseToken(intent)
	return ok && subtle.ConstantTimeCompare(l.intent, asker.digest()) == 1
}

// usable returns nil if the link still works, for the browser that asked for it
// or for another one.
func (l *loginLink) usable(now time.Time, owner bool) error {
	switch {
	case now.Sub(l.createdAt) >= LinkLife:
		return problem.New(problem.Invalid, "This sign-in link is older than %d minutes.", LinkLife/time.Minute)
	case l.used && (l.owned || !owner):
		return problem.New(problem.Invalid, "This sign-in link was used already.")
	}
	return nil
}

// SignInLink is a sign-in link before it is used.
type SignInLink struct {
	Email       string // of the account
	SameBrowser bool   // by the browser that looks at it
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
	return SignInLink{Email: l.email, SameBrowser: asked}, l.usable(time.Now(), asked)
}

// findOrCreate returns the user with an e-mail address whose owner has just
// proved to be there. What else is known of them is for a new user.
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
