package account_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

const passwordSubject = "Your Kickstand password"

// signsIn reports whether a password works.
func (f *fixture) signsIn(t *testing.T, email, password string) bool {
	t.Helper()
	_, err := f.SignInWithPassword(t.Context(), account.PasswordSignIn{Email: email, Password: password}, client)
	if err != nil && problem.Of(err) != problem.Unauthorized {
		t.Fatal(err)
	}
	return err == nil
}

// weak sets a user's password to "old password", with a hash that is cheap to verify.
func (f *fixture) weak(t *testing.T, userID string) {
	t.Helper()
	f.exec(t, "UPDATE users SET password_hash = $2 WHERE id = $1", userID, "$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0c2FsdA$"+oldSum(t))
}

// reset requests a reset link and returns its token.
func (f *fixture) reset(t *testing.T, email string) string {
	t.Helper()
	if err := f.SendPasswordReset(t.Context(), account.PasswordReset{Email: email}, account.Client{}); err != nil {
		t.Fatal(err)
	}
	return f.mail.token(t)
}

func TestCommonPasswords(t *testing.T) {
	data, err := os.ReadFile("common.txt")
	if err != nil {
		t.Fatal(err)
	}
	list, ok := strings.CutSuffix(string(data), "\n")
	if !ok {
		t.Error("the last line has no end")
	}
	seen := map[string]bool{}
	for line := range strings.SplitSeq(list, "\n") {
		if utf8.RuneCountInString(line) < 8 || strings.ToLower(line) != line || strings.TrimSpace(line) != line || seen[line] {
			t.Errorf("line %q is short, in upper case, in space or twice there", line)
		}
		seen[line] = true
		for _, password := range []string{line, strings.ToUpper(line)} {
			if err := problem.Check(account.FirstPassword{Password: password}); err == nil {
				t.Errorf("%q: got no error", password)
			}
		}
	}
	if len(seen) != 10_000 {
		t.Errorf("got %d passwords, want 10,000", len(seen))
	}
}

// TestAttackGuessFromContext: passwords made of the user's name, address or organization,
// or the service's name, are refused.
func TestAttackGuessFromContext(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	o := f.organization(t, "Pedalwerk & Söhne Inc.")
	ada, _ := f.member(t, o, "lovelace.a@example.com", account.Admin)
	if _, err := f.UpdateProfile(t.Context(), ada.UserID, account.Profile{Name: new("Augusta King")}); err != nil {
		t.Fatal(err)
	}
	link := f.reset(t, "lovelace.a@example.com")
	for _, tt := range []struct {
		password string
		refused  bool
	}{
		{"kickstand", true},
		{"Kickstand1!", true},
		{"KICKSTAND2026", true},
		{"lovelace1815", true},
		{"Lovelace.A", true},
		{"augusta-123", true},
		{"AugustaKing", true},
		{"pedalwerk!!", true},
		{"Pedalwerk2026", true},
		{"söhne2026", true},
		{"123kickstand456", true},
		{"pedalwerk and horses", false},
		{"my kickstand folds up", false},
		{"kickstand 4929 1720 3", false},
		{"correct horse", false},
	} {
		t.Run(tt.password, func(t *testing.T) {
			f.exec(t, "UPDATE users SET password_hash = NULL WHERE id = $1", ada.UserID)
			tries := map[string]error{"set": f.SetPassword(t.Context(), ada, account.FirstPassword{Password: tt.password})}
			if tt.refused { // the link stays usable
				tries["reset"] = f.ResetPassword(t.Context(), link, tt.password)
			}
			for name, err := range tries {
				p, ok := errors.AsType[*problem.Error](err)
				if refused := ok && p.Kind == problem.Invalid && strings.Contains(p.Message, "too easy to guess"); refused != tt.refused || err != nil && !ok {
					t.Errorf("%s: got error %v, want it refused: %t", name, err, tt.refused)
				}
			}
		})
	}
}

// TestNewPasswordRules: the rules are the same wherever a password is set.
func TestNewPasswordRules(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	in := f.signIn(t, "Ada@example.com")
	ada := f.identity(t, in)
	link := f.reset(t, "ada@example.com")
	for _, tt := range []struct {
		name, password string
		want           string // of the only issue; empty: none
	}{
		{"empty", "", "at least 8 characters"},
		{"7 characters", "abcdefg", "at least 8 characters"},
		{"7 characters of two bytes", "ééééééé", "at least 8 characters"},
		{"8 characters of two bytes", "éàéàéàéà", ""},
		{"8 characters of four bytes", strings.Repeat("🦊🐙", 4), ""},
		{"8 spaces", "        ", ""},
		{"1024 bytes", strings.Repeat("é", 512), ""},
		{"1025 bytes", strings.Repeat("é", 512) + "a", "at most 1024 bytes"},
		{"a megabyte", strings.Repeat("a", 1<<20), "at most 1024 bytes"},
		{"not UTF-8", "abcdefgh\xff", "valid UTF-8"},
		{"NUL", "abcdefgh\x00", "NUL"},
		{"the e-mail address", "Ada@example.com", "e-mail address"},
		{"the e-mail address in another case", "aDA@EXAMPLE.com", "e-mail address"},
		{"the e-mail address in spaces", " ada@example.com ", "e-mail address"},
		{"another e-mail address", "eve@example.com", ""},
		{"common", "password1", "common password"},
		{"common in another case", "PassWord1", "common password"},
		{"common and more", "password1 password1", ""},
		{"two lines of common ones", "password1\npassword123", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want == "" {
				if err := problem.Check(account.FirstPassword{Password: tt.password}); err != nil {
					t.Error(err)
				}
				if err := problem.Check(account.PasswordChange{CurrentPassword: "x", NewPassword: tt.password}); err != nil {
					t.Error(err)
				}
				return
			}
			for path, err := range map[string]error{
				"password":    f.SetPassword(t.Context(), ada, account.FirstPassword{Password: tt.password}),
				"newPassword": f.ChangePassword(t.Context(), ada, account.PasswordChange{CurrentPassword: "old password", NewPassword: tt.password}),
				"password ":   f.ResetPassword(t.Context(), link, tt.password),
			} {
				p, ok := errors.AsType[*problem.Error](err)
				if !ok || p.Kind != problem.Invalid || len(p.Issues) != 1 || p.Issues[0].Path != strings.TrimSpace(path) || !strings.Contains(p.Issues[0].Message, tt.want) {
					t.Errorf("%s: got error %v, want one issue that says %q", path, err, tt.want)
				}
				if err != nil && tt.password != "" && len(tt.password) < 1000 && strings.Contains(err.Error(), tt.password) {
					t.Errorf("%s: the error %q quotes the password", path, err)
				}
			}
		})
	}
	if has, err := f.HasPassword(t.Context(), ada.UserID); err != nil || has {
		t.Errorf("got a password %t, error %v, want none", has, err)
	}
	if email, err := f.ResetFor(t.Context(), link); err != nil || email != "Ada@example.com" {
		t.Errorf("got link for %q, error %v, want it usable still", email, err)
	}
	// The maximum length works.
	longest := strings.Repeat("é", 512)
	if err := f.SetPassword(t.Context(), ada, account.FirstPassword{Password: longest}); err != nil {
		t.Fatal(err)
	}
	if !f.signsIn(t, "ada@example.com", longest) {
		t.Error("the password of 1024 bytes is refused")
	}
}

func TestSetPassword(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	first, second := f.signIn(t, "Ada@example.com"), f.signIn(t, "ada@example.com")
	eve := f.signIn(t, "eve@example.com")
	sent := len(f.mail.all())
	has := func(id string, want bool) {
		t.Helper()
		if got, err := f.HasPassword(t.Context(), id); err != nil || got != want {
			t.Errorf("got a password %t, error %v, want %t", got, err, want)
		}
	}
	has(first.User.ID, false)
	wantKind(t, f.ChangePassword(t.Context(), f.identity(t, first), account.PasswordChange{CurrentPassword: "", NewPassword: "long enough"}), problem.Precondition)
	if err := f.SetPassword(t.Context(), account.Identity{UserID: first.User.ID}, account.FirstPassword{Password: "long enough"}); err != nil {
		t.Fatal(err)
	}
	has(first.User.ID, true)
	has(eve.User.ID, false)
	wantKind(t, f.SetPassword(t.Context(), account.Identity{UserID: first.User.ID}, account.FirstPassword{Password: "another one"}), problem.Precondition)
	if !f.signsIn(t, "ada@EXAMPLE.com", "long enough") || f.signsIn(t, "ada@example.com", "another one") {
		t.Error("the password in force is not the one that was set first")
	}
	if !f.works(t, first.Tokens.Access) || !f.works(t, second.Tokens.Access) {
		t.Error("a first password ended a session")
	}
	mails := f.mail.all()[sent:]
	if len(mails) != 1 {
		t.Fatalf("got %d mails, want 1", len(mails))
	}
	checkMail(t, mails[0], "Ada@example.com", passwordSubject)
	if strings.Contains(mails[0].Text, "long enough") || strings.Contains(mails[0].HTML, "long enough") {
		t.Error("the mail tells the password")
	}

	wantKind(t, f.SetPassword(t.Context(), account.Identity{UserID: "nobody"}, account.FirstPassword{Password: "long enough"}), problem.Unauthorized)
	_, err := f.HasPassword(t.Context(), "nobody")
	wantKind(t, err, problem.Unauthorized)
	f.mail.err = errors.New("no room")
	if err := f.SetPassword(t.Context(), account.Identity{UserID: eve.User.ID}, account.FirstPassword{Password: "long enough"}); !errors.Is(err, f.mail.err) {
		t.Errorf("got error %v, want that of the mailer", err)
	}
	has(eve.User.ID, false)
}

func TestChangePassword(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	asking, other := f.signIn(t, "Ada@example.com"), f.signIn(t, "ada@example.com")
	eve := f.signIn(t, "eve@example.com")
	f.weak(t, asking.User.ID)
	f.weak(t, eve.User.ID)
	links := []string{f.reset(t, "ada@example.com"), f.reset(t, "ada@example.com")}
	eves := f.reset(t, "eve@example.com")
	ada := f.identity(t, asking)
	sent := len(f.mail.all())
	updated := func() time.Time {
		t.Helper()
		u, err := f.User(t.Context(), ada.UserID)
		if err != nil {
			t.Fatal(err)
		}
		return u.UpdatedAt
	}
	before := updated()

	for _, wrong := range []string{"", "old passwor", "old password ", "Old password", strings.Repeat("x", 1024)} {
		err := f.ChangePassword(t.Context(), ada, account.PasswordChange{CurrentPassword: wrong, NewPassword: "new password"})
		wantKind(t, err, problem.Unauthorized)
		if err.Error() != "unauthorized: the current password is wrong" {
			t.Errorf("got error %q", err)
		}
	}
	for _, bad := range []string{strings.Repeat("x", 1025), "\xff", "\x00"} {
		wantKind(t, f.ChangePassword(t.Context(), ada, account.PasswordChange{CurrentPassword: bad, NewPassword: "new password"}), problem.Invalid)
	}
	if len(f.mail.all()) != sent || !f.works(t, other.Tokens.Access) || !updated().Equal(before) {
		t.Error("a wrong current password changed something")
	}
	if _, err := f.ResetFor(t.Context(), links[0]); err != nil {
		t.Errorf("a wrong current password ended a link: %v", err)
	}

	if err := f.ChangePassword(t.Context(), ada, account.PasswordChange{CurrentPassword: "old password", NewPassword: "new password"}); err != nil {
		t.Fatal(err)
	}
	if !updated().After(before) {
		t.Error("the time of the last change did not move")
	}
	if !f.works(t, asking.Tokens.Access) {
		t.Error("the session that asked ended")
	}
	_, _, err := f.Authenticate(t.Context(), other.Tokens.Access, other.Tokens.Refresh, client)
	wantKind(t, err, problem.Unauthorized)
	if _, fresh, err := f.Authenticate(t.Context(), "", asking.Tokens.Refresh, client); err != nil || fresh == nil {
		t.Errorf("the session that asked cannot be refreshed: %v", err)
	}
	for _, link := range links {
		_, err := f.ResetFor(t.Context(), link)
		wantKind(t, err, problem.Invalid)
		wantKind(t, f.ResetPassword(t.Context(), link, "yet another"), problem.Invalid)
	}
	if f.signsIn(t, "ada@example.com", "old password") || !f.signsIn(t, "ada@example.com", "new password") {
		t.Error("the new password is not in force")
	}
	mails := f.mail.all()[sent:]
	if len(mails) != 1 {
		t.Fatalf("got %d mails, want 1", len(mails))
	}
	checkMail(t, mails[0], "Ada@example.com", passwordSubject)

	if !f.works(t, eve.Tokens.Access) || !f.signsIn(t, "eve@example.com", "old password") {
		t.Error("another user was touched")
	}
	if _, err := f.ResetFor(t.Context(), eves); err != nil {
		t.Errorf("another user's link ended: %v", err)
	}
	gone := ada
	gone.UserID = "nobody"
	wantKind(t, f.ChangePassword(t.Context(), gone, account.PasswordChange{CurrentPassword: "old password", NewPassword: "new password"}), problem.Unauthorized)
}

func TestResetPassword(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	sessions := []account.SignIn{f.signIn(t, "Ada@example.com"), f.signIn(t, "ada@example.com")}
	eve := f.signIn(t, "eve@example.com")
	f.weak(t, sessions[0].User.ID)
	f.weak(t, eve.User.ID)
	older, link, eves := f.reset(t, " ADA@example.com "), f.reset(t, "ada@example.com"), f.reset(t, "eve@example.com")
	mails := f.mail.all()
	checkMail(t, mails[len(mails)-2], "Ada@example.com", "A new password for Kickstand")
	want := "https://help.example.com/reset-password?token=" + link
	if m := mails[len(mails)-2]; !strings.Contains(m.Text, "\n"+want+"\n") || !strings.Contains(m.HTML, `href="`+want+`"`) {
		t.Errorf("got text %q and HTML %q, want the link in both", m.Text, m.HTML)
	}
	for range 2 { // reading does not use it up
		if email, err := f.ResetFor(t.Context(), link); err != nil || email != "Ada@example.com" {
			t.Errorf("got link for %q, error %v", email, err)
		}
	}
	err := f.ResetPassword(t.Context(), link, "short")
	wantKind(t, err, problem.Invalid)
	if p, ok := errors.AsType[*problem.Error](err); !ok || len(p.Issues) != 1 {
		t.Errorf("got error %v, want it with one issue", err)
	}

	if err := f.ResetPassword(t.Context(), link, "new password"); err != nil {
		t.Fatal(err)
	}
	for _, in := range sessions {
		_, _, err := f.Authenticate(t.Context(), in.Tokens.Access, in.Tokens.Refresh, client)
		wantKind(t, err, problem.Unauthorized)
	}
	for _, used := range []string{link, older} {
		err := f.ResetPassword(t.Context(), used, "yet another")
		wantKind(t, err, problem.Invalid)
		if p, ok := errors.AsType[*problem.Error](err); !ok || len(p.Issues) != 0 {
			t.Errorf("got error %v, want it without issues", err)
		}
	}
	if f.signsIn(t, "ada@example.com", "old password") || !f.signsIn(t, "ada@example.com", "new password") {
		t.Error("the new password is not in force")
	}
	sent := f.mail.all()[len(mails):]
	if len(sent) != 1 {
		t.Fatalf("got %d mails, want 1", len(sent))
	}
	checkMail(t, sent[0], "Ada@example.com", passwordSubject)
	if !f.works(t, eve.Tokens.Access) || !f.signsIn(t, "eve@example.com", "old password") {
		t.Error("another user was touched")
	}
	if _, err := f.ResetFor(t.Context(), eves); err != nil {
		t.Errorf("another user's link ended: %v", err)
	}

	// A user without a password gets one.
	f.signIn(t, "bob@example.com")
	if err := f.ResetPassword(t.Context(), f.reset(t, "bob@example.com"), "new password"); err != nil || !f.signsIn(t, "bob@example.com", "new password") {
		t.Errorf("a first password by link: %v", err)
	}
	// If the mail fails, the change fails.
	f.mail.err = errors.New("no room")
	if err := f.ResetPassword(t.Context(), eves, "new password"); !errors.Is(err, f.mail.err) {
		t.Errorf("got error %v, want that of the mailer", err)
	}
	if _, err := f.ResetFor(t.Context(), eves); err != nil || !f.works(t, eve.Tokens.Access) {
		t.Errorf("a reset that failed changed something: %v", err)
	}
	if err := f.SendPasswordReset(t.Context(), account.PasswordReset{Email: "ada@example.com"}, account.Client{}); !errors.Is(err, f.mail.err) {
		t.Errorf("got error %v, want that of the mailer", err)
	}
}

func TestUnknownReset(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	in := f.signIn(t, "ada@example.com")
	signInLink := f.mail.token(t)
	sent := len(f.mail.all())
	if err := f.SendPasswordReset(t.Context(), account.PasswordReset{Email: " Nobody@example.com "}, account.Client{}); err != nil {
		t.Fatal(err)
	}
	mails := f.mail.all()[sent:]
	if len(mails) != 1 {
		t.Fatalf("got %d mails, want 1", len(mails))
	}
	checkMail(t, mails[0], "Nobody@example.com", "A new password for Kickstand")
	if strings.Contains(mails[0].Text+mails[0].HTML, "token=") || !strings.Contains(mails[0].Text, "no account") {
		t.Errorf("got mail %q, want it to say that there is no account, without a link to choose a password", mails[0].Text)
	}
	// A guess of the token that was never mailed.
	decoy := make([]byte, 32)
	digest := sha256.Sum256(decoy)
	f.exec(t, "UPDATE password_resets SET digest = $1", digest[:])
	if n := f.count(t, "SELECT count(*) FROM password_resets WHERE user_id IS NULL AND digest = $1", digest[:]); n != 1 {
		t.Fatalf("got %d rows of nobody, want 1", n)
	}
	f.signIn(t, "nobody@example.com") // the address has an account now
	for _, token := range []string{
		base64.RawURLEncoding.EncodeToString(decoy), "", "x", strings.Repeat("A", 42) + "B", strings.Repeat("A", 44), strings.Repeat("=", 43),
		strings.Repeat("\xff", 43), in.Tokens.Access, in.Tokens.Refresh, signInLink,
	} {
		_, err := f.ResetFor(t.Context(), token)
		wantKind(t, err, problem.Invalid)
		wantKind(t, f.ResetPassword(t.Context(), token, "new password"), problem.Invalid)
	}
	if n := f.count(t, "SELECT count(*) FROM users WHERE password_hash IS NOT NULL"); n != 0 {
		t.Errorf("got %d users with a password, want 0", n)
	}
	for _, email := range []string{"", "nobody", "a@b.example\r\nBcc: eve@example.com", "Eve <eve@example.com>", strings.Repeat("a", 250) + "@example.com", "\xff@example.com"} {
		wantKind(t, f.SendPasswordReset(t.Context(), account.PasswordReset{Email: email}, account.Client{}), problem.Invalid)
	}
}

func TestResetLife(t *testing.T) {
	for _, tt := range []struct {
		after time.Duration
		want  string // in the refusal; empty: none
	}{
		{30*time.Minute - time.Second, ""},
		{30 * time.Minute, "older than 30 minutes"},
		{23 * time.Hour, "older than 30 minutes"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, dbtest.NewSQLite(t))
			f.signIn(t, "ada@example.com")
			link := f.reset(t, "ada@example.com")
			time.Sleep(tt.after)
			_, looked := f.ResetFor(t.Context(), link)
			for _, err := range []error{looked, f.ResetPassword(t.Context(), link, "new password")} {
				if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("after %v: got error %v, want %q", tt.after, err, tt.want)
				}
			}
		})
	}
}

func TestSetPasswordRace(t *testing.T) {
	f := newFixture(t, patientDB(t))
	in := f.signIn(t, "ada@example.com")
	sent := len(f.mail.all())
	var wg sync.WaitGroup
	var winner atomic.Pointer[string]
	for i := range 20 {
		wg.Go(func() {
			password := fmt.Sprintf("new password %d", i)
			err := f.SetPassword(t.Context(), account.Identity{UserID: in.User.ID}, account.FirstPassword{Password: password})
			switch {
			case err == nil && winner.Swap(&password) != nil:
				t.Error("two won")
			case err != nil && problem.Of(err) != problem.Precondition:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if winner.Load() == nil || !f.signsIn(t, "ada@example.com", *winner.Load()) {
		t.Error("the password in force is not the one that won")
	}
	if n := len(f.mail.all()) - sent; n != 1 {
		t.Errorf("got %d mails, want 1", n)
	}
}

func TestChangePasswordRace(t *testing.T) {
	f := newFixture(t, patientDB(t))
	var sessions [8]account.Identity
	for i := range sessions {
		if i == 4 { // the limit per minute
			f.Service = newFixture(t, f.db, func(c *account.Config) { c.Mailer = f.mail }).Service
		}
		sessions[i] = f.identity(t, f.signIn(t, "ada@example.com"))
	}
	f.weak(t, sessions[0].UserID)
	sent := len(f.mail.all())
	var wg sync.WaitGroup
	var winner atomic.Int32
	winner.Store(-1)
	for i, by := range sessions {
		wg.Go(func() {
			err := f.ChangePassword(t.Context(), by, account.PasswordChange{CurrentPassword: "old password", NewPassword: fmt.Sprintf("new password %d", i)})
			switch {
			case err == nil && winner.Swap(int32(i)) != -1:
				t.Error("two won")
			case err != nil && problem.Of(err) != problem.Unauthorized:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	i := winner.Load()
	if i == -1 || !f.signsIn(t, "ada@example.com", fmt.Sprintf("new password %d", i)) {
		t.Fatalf("the password in force is not that of %d, which won", i)
	}
	if n := f.count(t, "SELECT count(*) FROM sessions WHERE id = $1", sessions[i].SessionID); n != 1 {
		t.Error("the session that won ended")
	}
	if n := f.count(t, "SELECT count(*) FROM sessions"); n != 2 { // this one and the new sign-in
		t.Errorf("got %d sessions, want 2", n)
	}
	if n := len(f.mail.all()) - sent; n != 1 {
		t.Errorf("got %d mails, want 1", n)
	}
}

// TestResetAgainstChange: of two concurrent resets and a change exactly one succeeds, and
// the stored password is its.
func TestResetAgainstChange(t *testing.T) {
	f := newFixture(t, patientDB(t))
	wins := map[string]int{}
	for round := range 5 {
		email := fmt.Sprintf("ada%d@example.com", round)
		in := f.signIn(t, email)
		f.weak(t, in.User.ID)
		by := f.identity(t, in)
		links := []string{f.reset(t, email), f.reset(t, email)}
		var mu sync.Mutex
		var won []string
		done := func(password string, err error) {
			if err != nil && problem.Of(err) != problem.Invalid && problem.Of(err) != problem.Unauthorized {
				t.Error(err)
			}
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				won = append(won, password)
			}
		}
		var wg sync.WaitGroup
		for i, link := range links {
			wg.Go(func() {
				password := fmt.Sprintf("by link %d", i)
				done(password, f.ResetPassword(t.Context(), link, password))
			})
		}
		wg.Go(func() {
			done("by change", f.ChangePassword(t.Context(), by, account.PasswordChange{CurrentPassword: "old password", NewPassword: "by change"}))
		})
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("round %d: got %q, want one of them", round, won)
		}
		wins[won[0]]++
		if got := f.works(t, in.Tokens.Access); got != (won[0] == "by change") {
			t.Errorf("round %d: %s: got session alive %t", round, won[0], got)
		}
		if !f.signsIn(t, email, won[0]) {
			t.Errorf("round %d: the password in force is not %q", round, won[0])
		}
		if n := f.count(t, "SELECT count(*) FROM password_resets WHERE used_at IS NULL"); n != 0 {
			t.Errorf("round %d: got %d usable links, want 0", round, n)
		}
	}
	t.Log(wins)
}

// TestSignInAgainstReset: no session outlives the password that opened it.
func TestSignInAgainstReset(t *testing.T) {
	f := newFixture(t, patientDB(t))
	for round := range 3 {
		email := fmt.Sprintf("ada%d@example.com", round)
		in := f.signIn(t, email)
		f.weak(t, in.User.ID)
		link := f.reset(t, email)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := f.SignInWithPassword(t.Context(), account.PasswordSignIn{Email: email, Password: "old password"}, client)
				if err != nil && problem.Of(err) != problem.Unauthorized {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			if err := f.ResetPassword(t.Context(), link, "new password"); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if n := f.count(t, "SELECT count(*) FROM sessions"); n != 0 {
			t.Fatalf("round %d: got %d sessions opened with a password that is no more, want 0", round, n)
		}
	}
}

func TestChangeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		here, there, eve := f.signIn(t, "ada@example.com"), f.signIn(t, "ada@example.com"), f.signIn(t, "eve@example.com")
		f.weak(t, here.User.ID)
		f.weak(t, eve.User.ID)
		try := func(in account.SignIn, current string) error {
			return f.ChangePassword(context.Background(), f.identity(t, in), account.PasswordChange{CurrentPassword: current, NewPassword: "new password"})
		}
		// Invalid input is not counted.
		wantKind(t, f.ChangePassword(t.Context(), f.identity(t, here), account.PasswordChange{NewPassword: "short"}), problem.Invalid)
		for i := range 10 {
			wantKind(t, try([]account.SignIn{here, there}[i%2], "a guess"), problem.Unauthorized)
		}
		time.Sleep(17500 * time.Millisecond)
		for _, in := range []account.SignIn{here, there} { // even the correct one
			err := try(in, "old password")
			p, ok := errors.AsType[*problem.Error](err)
			if !ok || p.Kind != problem.RateLimited {
				t.Fatalf("got error %v the eleventh time", err)
			}
			if p.Message != "too many attempts to change the password, try again in 43 seconds" || p.RetryAfter != 42500*time.Millisecond {
				t.Errorf("got message %q, wait %v", p.Message, p.RetryAfter)
			}
		}
		if err := try(eve, "old password"); err != nil {
			t.Errorf("another user: %v", err)
		}
		time.Sleep(42500*time.Millisecond - time.Microsecond)
		wantKind(t, try(here, "old password"), problem.RateLimited)
		time.Sleep(time.Microsecond)
		if err := try(here, "old password"); err != nil {
			t.Error(err)
		}
	})
}
