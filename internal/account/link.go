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
// first sign-in creates the user when the link is followed.
//
// The browser that asked proves that it did by the intent, a secret which it
// keeps for [LinkLife]. It sends the one it has, if any, and gets back the one
// to keep, so that a second request does not spoil the first one's link.
func (s *Service) SignInWithEmail(ctx context.Context, in EmailSignIn, intent string) (string, error) {
	var v problem.Validation
	checkEmail(&v, "email", in.Email)
	redirect := s.redirects.check(&v, in.RedirectTo)
	if err := v.Err(); err != nil {
		return "", err
	}
	email := strings.TrimSpace(in.Email)
	key := emailKey(email)
	if err := allow(ctx, s.linkTries, key); err != nil {
		return "", err
	}

	asker := askerOf(intent)
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		t := newToken()
		var to string
		// A user's mail goes to the address on file, not to one that merely
		// compares as equal.
		if err := tx.QueryRow(ctx, "SELECT coalesce((SELECT email FROM users WHERE email_key = $1), $2)", key, email).Scan(&to); err != nil {
			return fmt.Errorf("find user: %w", err)
		}
		if _, err := tx.Exec(ctx, `INSERT INTO login_links (digest, intent, email, email_key, redirect, created_at, owned)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			t.digest(), asker.digest(), to, key, redirect, tx.Now.UnixMicro(), false); err != nil {
			return fmt.Errorf("insert link: %w", err)
		}
		return s.post(ctx, tx, to, s.linkLetter(t))
	})
	if err != nil {
		return "", err
	}
	return asker.encode(), nil
}

// askerOf returns the secret of a browser that asks to sign in: the one that it
// keeps, or its first.
func askerOf(intent string) token {
	if asker, ok := parseToken(intent); ok {
		return asker
	}
	return newToken()
}

// linkLetter says the same to everyone, so that a mail tells no more than the
// answer did.
func (s *Service) linkLetter(t token) mail.Letter {
	return mail.Letter{
		Subject: "Sign in to Kickstand",
		Before:  []string{"Follow this link to sign in to Kickstand."},
		Action:  mail.Action{Label: "Sign in", URL: s.link(CallbackPath, t)},
		After: []string{
			fmt.Sprintf("It works once, for %d minutes, and best in the browser in which you asked for it.", LinkLife/time.Minute),
			"If you did not ask to sign in, ignore this mail: nothing happens unless the link is followed.",
		},
	}
}

// FollowLink opens a session for the holder of a link's token. A link works
// once, with one exception: mail scanners open links before people do, so the
// browser that asked for it, which sends its intent, may still use a link that
// somebody else has opened. That ends the session of the first opening.
//
// A link that does not work is a [problem.Invalid] with a message that says why.
func (s *Service) FollowLink(ctx context.Context, linkToken, intent string, client Client) (SignIn, error) {
	t, ok := parseToken(linkToken)
	if !ok {
		return SignIn{}, errUnknownLink()
	}
	asker, asked := parseToken(intent)
	var in SignIn
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		l, err := lockLink(ctx, tx, t)
		if err != nil {
			return err
		}
		owner := asked && subtle.ConstantTimeCompare(l.intent, asker.digest()) == 1
		switch {
		case tx.Now.Sub(l.createdAt) >= LinkLife:
			return problem.New(problem.Invalid, "This sign-in link is older than %d minutes.", LinkLife/time.Minute)
		case l.used && (l.owned || !owner):
			return problem.New(problem.Invalid, "This sign-in link was used already.")
		case l.used:
			if err := endSession(ctx, tx, l.sessionID); err != nil {
				return err
			}
		}
		u, err := findOrCreate(ctx, tx, l.email, "", "")
		if err != nil {
			return err
		}
		in = SignIn{User: u, RedirectTo: l.redirect}
		if in.SessionID, in.Tokens, err = s.openSession(ctx, tx, u.ID, client); err != nil {
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
}

func lockLink(ctx context.Context, tx *db.Tx, t token) (loginLink, error) {
	var l loginLink
	var usedAt time.Time
	err := tx.QueryRow(ctx, `SELECT intent, email, redirect, created_at, used_at, owned, session_id
		FROM login_links WHERE digest = $1 FOR UPDATE`, t.digest()).
		Scan(&l.intent, &l.email, &l.redirect, db.IntoTime(&l.createdAt), db.IntoTime(&usedAt), &l.owned, db.IntoText(&l.sessionID))
	if errors.Is(err, db.ErrNoRows) {
		return loginLink{}, errUnknownLink()
	}
	if err != nil {
		return loginLink{}, fmt.Errorf("find link: %w", err)
	}
	l.used = !usedAt.IsZero()
	return l, nil
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
