package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// ResetLife is the lifetime of a reset link.
const ResetLife = 30 * time.Minute

// ResetPath is the path of reset links below the base URL.
const ResetPath = "/reset-password"

// FirstPassword is the input of auth.setPassword.
type FirstPassword struct {
	Password string `json:"password"`
}

// Check implements [problem.Checker]. [Service.SetPassword] checks the rules that depend
// on the user.
func (in FirstPassword) Check(v *problem.Validation) {
	checkNewPassword(v, "password", in.Password, passwordOwner{})
}

// PasswordChange is the input of auth.changePassword.
type PasswordChange struct {
	CurrentPassword string `json:"currentPassword"`
	NewPassword     string `json:"newPassword"`
}

// Check implements [problem.Checker]. [Service.ChangePassword] checks the rules that
// depend on the user.
func (in PasswordChange) Check(v *problem.Validation) {
	checkPassword(v, "currentPassword", in.CurrentPassword, 0)
	checkNewPassword(v, "newPassword", in.NewPassword, passwordOwner{})
}

// PasswordReset is the input of auth.sendPasswordReset.
type PasswordReset struct {
	Email string `json:"email"`
}

// Check implements [problem.Checker].
func (in PasswordReset) Check(v *problem.Validation) { checkEmail(v, "email", in.Email) }

// HasPassword reports whether a user has a password.
func (s *Service) HasPassword(ctx context.Context, userID string) (bool, error) {
	stored, _, err := s.storedPassword(ctx, userID)
	return stored != "", err
}

// ProvingPassword reports whether a user has a password, and whether it is a proof of
// identity. A password set in a session without a fresh proof is none; otherwise a stolen
// session could set one to prove itself.
func (s *Service) ProvingPassword(ctx context.Context, userID string) (has, proves bool, err error) {
	stored, owner, err := s.storedPassword(ctx, userID)
	has = stored != ""
	return has, has && !owner.unproven, err
}

// storedPassword returns a user's hash, empty for none, and the context for its rules.
func (s *Service) storedPassword(ctx context.Context, userID string) (hash string, owner passwordOwner, err error) {
	err = s.db.QueryRow(ctx, `SELECT u.password_hash, u.password_unproven, u.email, u.name, coalesce(o.name, '')
		FROM users u LEFT JOIN organizations o ON o.id = u.organization_id WHERE u.id = $1`, userID).
		Scan(db.IntoText(&hash), &owner.unproven, &owner.email, &owner.name, &owner.organization)
	if errors.Is(err, db.ErrNoRows) {
		return "", passwordOwner{}, errNotSignedIn() // deleted concurrently
	}
	if err != nil {
		return "", passwordOwner{}, fmt.Errorf("find password: %w", err)
	}
	return hash, owner, nil
}

// SetPassword sets the first password of a user; a user with a password gets a
// [problem.Precondition]. Without a fresh proof of identity in the session, the password
// signs in but is no proof of identity.
func (s *Service) SetPassword(ctx context.Context, by Identity, in FirstPassword) error {
	userID := by.UserID
	stored, owner, err := s.storedPassword(ctx, userID)
	if err != nil {
		return err
	}
	var v problem.Validation
	checkNewPassword(&v, "password", in.Password, owner)
	if err := v.Err(); err != nil {
		return err
	}
	if stored != "" {
		return errHasPassword()
	}
	hash, err := s.hash(ctx, "user "+userID, in.Password)
	if err != nil {
		return err
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, "UPDATE users SET password_hash = $2, password_unproven = $4, updated_at = $3 WHERE id = $1 AND password_hash IS NULL",
			userID, hash, tx.Now.UnixMicro(), !s.isFresh(by, tx.Now))
		if err != nil {
			return fmt.Errorf("store password: %w", err)
		}
		if n == 0 {
			return errHasPassword()
		}
		if err := s.recordUserTx(ctx, tx, AuditPasswordSet, userID, nil); err != nil {
			return err
		}
		return s.sendMail(ctx, tx, owner.email, passwordChangeMail("A password was set for your account. You can sign in with it from now on."))
	})
}

func errHasPassword() error {
	return problem.New(problem.Precondition, "you have a password already; change it with auth.changePassword")
}

// ChangePassword replaces a user's password and ends all of their sessions except by's. A
// wrong current password is [problem.Unauthorized]; a user without one gets a
// [problem.Precondition]. The new password is a proof of identity if the current one is,
// or if the session has a fresh proof.
func (s *Service) ChangePassword(ctx context.Context, by Identity, in PasswordChange) error {
	stored, owner, err := s.storedPassword(ctx, by.UserID)
	if err != nil {
		return err
	}
	var v problem.Validation
	checkPassword(&v, "currentPassword", in.CurrentPassword, 0)
	checkNewPassword(&v, "newPassword", in.NewPassword, owner)
	if err := v.Err(); err != nil {
		return err
	}
	if stored == "" {
		return problem.New(problem.Precondition, "you have no password yet; set one with auth.setPassword")
	}
	// A stolen session must not find out the password by trying.
	if err := allowFew(ctx, s.changeAttempts, by.UserID, "too many attempts to change the password"); err != nil {
		return err
	}
	party := "user " + by.UserID
	ok, err := s.verify(ctx, party, stored, in.CurrentPassword)
	if err != nil {
		return err
	}
	if !ok {
		s.audit.Refuse(ctx, audit.Entry{OrganizationID: by.OrganizationID, Action: AuditPasswordRefused, Target: userTarget(by.User)})
		return errWrongCurrent()
	}
	hash, err := s.hash(ctx, party, in.NewPassword)
	if err != nil {
		return err
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		// Only if the password is still the verified one.
		n, err := tx.Exec(ctx, "UPDATE users SET password_hash = $3, password_unproven = $5, updated_at = $4 WHERE id = $1 AND password_hash = $2",
			by.UserID, stored, hash, tx.Now.UnixMicro(), owner.unproven && !s.isFresh(by, tx.Now))
		if err != nil {
			return fmt.Errorf("store password: %w", err)
		}
		if n == 0 {
			return errWrongCurrent()
		}
		if err := deleteLinks(ctx, tx, by.UserID, owner.email); err != nil {
			return err
		}
		if _, err := s.endSessions(ctx, tx, by.UserID, by.SessionID); err != nil {
			return err
		}
		if err := s.recordUserTx(ctx, tx, AuditPasswordChanged, by.UserID, nil); err != nil {
			return err
		}
		return s.sendMail(ctx, tx, owner.email, passwordChangeMail("Your password was changed, and all other sessions were signed out."))
	})
}

// isFresh reports whether a session's last proof of identity is recent enough for a new
// password to rest on it.
func (s *Service) isFresh(by Identity, now time.Time) bool {
	return s.freshProof == 0 || now.Sub(by.ProvenAt) < s.freshProof
}

func errWrongCurrent() error {
	return problem.New(problem.Unauthorized, "the current password is wrong")
}

// passwordChangeMail informs the owner of an account of a change.
func passwordChangeMail(what string) mail.Notification {
	return mail.Notification{
		Subject: "Your Kickstand password",
		Before:  []string{what},
		After:   []string{"If this was not you, ask for a new password at once where you sign in: that ends every session."},
	}
}

// SendPasswordReset mails a reset link. An address without an account gets a mail that
// says so; the result is the same.
func (s *Service) SendPasswordReset(ctx context.Context, in PasswordReset, client Client) error {
	if err := problem.Check(in); err != nil {
		return err
	}
	key := emailKey(in.Email)
	browser, err := s.recognize(ctx, key, client.Browser)
	if err != nil {
		return err
	}
	if err := s.resetAttempts.allow(ctx, mailbox(in.Email), browser, client); err != nil {
		return err
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		var id, to string
		var policy ProviderPolicy
		if err := tx.QueryRow(ctx, `SELECT coalesce(max(u.id), ''), coalesce(max(u.email), $2), coalesce(max(o.provider_only), '')
			FROM users u LEFT JOIN organizations o ON o.id = u.organization_id WHERE u.email_key = $1`,
			key, strings.TrimSpace(in.Email)).Scan(&id, &to, (*string)(&policy)); err != nil {
			return fmt.Errorf("find user: %w", err)
		}
		// The same statements for both cases, so that the time reveals nothing.
		t := newToken()
		if err := tx.Queue(ctx, "INSERT INTO password_resets (digest, user_id, created_at) VALUES ($1, $2, $3)",
			t.digest(), db.Text(id), tx.Now.UnixMicro()); err != nil {
			return fmt.Errorf("insert reset: %w", err)
		}
		letter := s.resetMail(t, id != "")
		if policy.covers(key) {
			letter = s.providerMail(letter.Subject)
		}
		return s.sendMail(ctx, tx, to, letter)
	})
}

func (s *Service) resetMail(t token, known bool) mail.Notification {
	l := mail.Notification{
		Subject: "A new password for Kickstand",
		Before:  []string{"Follow this link to choose a new password for Kickstand."},
		Action:  mail.Action{Label: "Choose a new password", URL: s.tokenURL(ResetPath, t)},
		After: []string{
			fmt.Sprintf("It works once, for %d minutes. Choosing a new password signs you out everywhere.", ResetLife/time.Minute),
			"If you did not request it, ignore this mail: your password stays as it is.",
		},
	}
	if !known {
		l.Before = []string{
			"Somebody, probably you, requested a new password for Kickstand. There is no account with this e-mail address.",
			"You may have signed up with another address. To start with this one, ask for a sign-in link where you sign in.",
		}
		if !s.SignUp().Open() {
			l.Before[1] = "You may have signed up with another address. " + invitationHint
		}
		l.Action = mail.Action{Label: "Go to Kickstand", URL: s.redirects.base + "/"}
		l.After = []string{"If you did not request it, ignore this mail."}
	}
	return l
}

// ResetFor returns the e-mail address of a reset token's user, without using the token
// up. An unusable link is a [problem.Invalid] with the reason.
func (s *Service) ResetFor(ctx context.Context, resetToken string) (email string, err error) {
	r, err := s.resetFor(ctx, resetToken)
	return r.email, err
}

func (s *Service) resetFor(ctx context.Context, resetToken string) (reset, error) {
	r, err := findReset(ctx, s.db, resetToken)
	if err != nil {
		return reset{}, err
	}
	if err := r.usable(s.db.Now()); err != nil {
		return reset{}, err
	}
	return r, nil
}

// ResetPassword sets the password of a reset token's user and ends all of their sessions.
// An unusable link is a [problem.Invalid] without issues; a refused password has issues
// and leaves the link usable.
func (s *Service) ResetPassword(ctx context.Context, resetToken, password string) error {
	owner, err := s.resetFor(ctx, resetToken)
	if err != nil {
		return err
	}
	var v problem.Validation
	checkNewPassword(&v, "password", password, owner.passwordOwner)
	if err := v.Err(); err != nil {
		return err
	}
	hash, err := s.hash(ctx, "user "+owner.userID, password)
	if err != nil {
		return err
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		r, err := findReset(ctx, tx, resetToken)
		if err != nil {
			return err
		}
		// Every change of a password locks its user first and then deletes all links; a
		// concurrent one may just have done so.
		if _, err := lockUser(ctx, tx, r.userID); err != nil {
			return err
		}
		if r, err = findReset(ctx, tx, resetToken); err != nil {
			return err
		}
		if err := r.usable(tx.Now); err != nil {
			return err
		}
		if rule, err := s.providerRule(ctx, tx, r.userID); err != nil || rule.required {
			return cmp.Or(err, errProviderRequired())
		}
		if err := tx.Queue(ctx, "UPDATE users SET password_hash = $2, password_unproven = FALSE, updated_at = $3 WHERE id = $1",
			r.userID, hash, tx.Now.UnixMicro()); err != nil {
			return fmt.Errorf("store password: %w", err)
		}
		if err := deleteLinks(ctx, tx, r.userID, r.email); err != nil {
			return err
		}
		if _, err := s.endSessions(ctx, tx, r.userID, ""); err != nil {
			return err
		}
		if err := s.recordUserTx(ctx, tx, AuditPasswordReset, r.userID, nil); err != nil {
			return err
		}
		return s.sendMail(ctx, tx, r.email, passwordChangeMail("Your password was changed, and all sessions were signed out."))
	})
}

// deleteLinks deletes a user's reset and sign-in links: a new password closes every
// earlier way in.
func deleteLinks(ctx context.Context, tx *db.Tx, userID, email string) error {
	if err := tx.Queue(ctx, "UPDATE password_resets SET used_at = $2 WHERE user_id = $1 AND used_at IS NULL", userID, tx.Now.UnixMicro()); err != nil {
		return fmt.Errorf("delete resets: %w", err)
	}
	if err := tx.Queue(ctx, "UPDATE login_links SET used_at = $3, owned = $4 WHERE created_at > $2 AND email_key = $1",
		emailKey(email), tx.Now.Add(-LinkLife).UnixMicro(), tx.Now.UnixMicro(), true); err != nil {
		return fmt.Errorf("delete sign-in links: %w", err)
	}
	return nil
}

type reset struct {
	passwordOwner
	userID            string
	createdAt, usedAt time.Time
}

// findReset returns the reset of a link's token.
func findReset(ctx context.Context, q db.Querier, resetToken string) (reset, error) {
	t, ok := parseToken(resetToken)
	if !ok {
		return reset{}, errUnknownReset()
	}
	var r reset
	err := q.QueryRow(ctx, `SELECT r.user_id, u.email, u.name, coalesce(o.name, ''), r.created_at, r.used_at
		FROM password_resets r JOIN users u ON u.id = r.user_id LEFT JOIN organizations o ON o.id = u.organization_id
		WHERE r.digest = $1`, t.digest()).
		Scan(&r.userID, &r.email, &r.name, &r.organization, db.IntoTime(&r.createdAt), db.IntoTime(&r.usedAt))
	if errors.Is(err, db.ErrNoRows) {
		return reset{}, errUnknownReset()
	}
	if err != nil {
		return reset{}, fmt.Errorf("find reset: %w", err)
	}
	return r, nil
}

func errUnknownReset() error {
	return problem.New(problem.Invalid, "This link is unknown or has expired.")
}

func (r *reset) usable(now time.Time) error {
	switch {
	case !r.usedAt.IsZero():
		return problem.New(problem.Invalid, "This link was used already, or the password has been changed since.")
	case now.Sub(r.createdAt) >= ResetLife:
		return problem.New(problem.Invalid, "This link is older than %d minutes.", ResetLife/time.Minute)
	}
	return nil
}
