package factor_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/factor"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

func TestSecondStep(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	ada := f.user("ada@example.com", account.Admin)
	other := f.byPassword("ada@example.com")
	id := f.signIn("ada@example.com")
	authenticator, _ := f.addApp(id)
	if _, _, err := f.accounts.Authenticate(t.Context(), other.Tokens.Access, other.Tokens.Refresh, client); problem.Of(err) != problem.Unauthorized {
		t.Errorf("a session of one factor from before: got error %v, want it ended", err)
	}
	f.resetStep(ada.ID)

	in := f.byPassword("ada@example.com")
	if in.Pending == "" || in.Tokens != (account.Tokens{}) {
		t.Fatalf("got sign-in %+v, want one without tokens", in)
	}
	if _, _, err := f.accounts.Authenticate(t.Context(), in.Pending, in.Pending, client); problem.Of(err) != problem.Unauthorized {
		t.Errorf("the token of the second step as a session's: got error %v", err)
	}
	for _, wrong := range []factor.Answer{
		{}, {Code: "000000"}, {Code: "12345"}, {RecoveryCode: "aaaa-aaaa-aaaa-aaaa"}, {Password: password}, {MailedCode: "12345678"},
	} {
		_, err := f.Complete(t.Context(), in.Pending, wrong, client)
		want(t, "a wrong answer", err, problem.Unauthorized, "")
	}
	done, err := f.Complete(t.Context(), in.Pending, factor.Answer{Code: " " + authenticator.code(t, time.Now())[:3] + " " + authenticator.code(t, time.Now())[3:]}, client)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.identity(done); !got.SecondFactor || got.UserID != ada.ID || done.RedirectTo != "/" {
		t.Errorf("got session %+v", got)
	}
	f.resetStep(ada.ID)
	_, err = f.Complete(t.Context(), in.Pending, factor.Answer{Code: authenticator.code(t, time.Now())}, client)
	want(t, "the same sign-in again", err, problem.Unauthorized, "")
}

// TestPendingEndsWithPassword: a changed password ends pending sign-ins by the old one.
func TestPendingEndsWithPassword(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.user("ada@example.com", account.Admin)
	id := f.signIn("ada@example.com")
	authenticator, _ := f.addApp(id)
	in := f.byPassword("ada@example.com")
	if err := f.accounts.ChangePassword(t.Context(), id, account.PasswordChange{CurrentPassword: password, NewPassword: "another horse battery"}); err != nil {
		t.Fatal(err)
	}
	f.resetStep(id.UserID)
	_, err := f.Complete(t.Context(), in.Pending, factor.Answer{Code: authenticator.code(t, time.Now())}, client)
	want(t, "the second step after a change of the password", err, problem.Unauthorized, "")
}

func TestPendingLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		f.user("ada@example.com", account.Admin)
		authenticator, _ := f.addApp(f.signIn("ada@example.com"))
		in := f.byPassword("ada@example.com")
		time.Sleep(account.PendingLife - time.Second)
		if _, err := f.accounts.Pending(t.Context(), in.Pending); err != nil {
			t.Errorf("a second before its end: %v", err)
		}
		time.Sleep(time.Second)
		_, err := f.Complete(t.Context(), in.Pending, factor.Answer{Code: authenticator.code(t, time.Now())}, client)
		want(t, "at its end", err, problem.Unauthorized, "")
	})
}

func TestTOTPCodeIsUsedOnce(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	ada := f.user("ada@example.com", account.Admin)
	authenticator, _ := f.addApp(f.signIn("ada@example.com"))
	_, err := f.Complete(t.Context(), f.byPassword("ada@example.com").Pending, factor.Answer{Code: authenticator.code(t, time.Now())}, client)
	want(t, "the code of the set-up", err, problem.Unauthorized, "")

	f.resetStep(ada.ID)
	code := authenticator.code(t, time.Now())
	first, second := f.byPassword("ada@example.com"), f.byPassword("ada@example.com")
	var wins int
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, in := range []account.SignIn{first, second} {
		all.Go(func() {
			if _, err := f.Complete(t.Context(), in.Pending, factor.Answer{Code: code}, client); err == nil {
				mu.Lock()
				wins++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if wins != 1 {
		t.Errorf("one code completed %d sign-ins, want 1", wins)
	}
}

// TestEnrolmentNeedsCode: an authenticator app that does not show the right code is not set
// up, nor one that another session or user has begun to.
func TestEnrolmentNeedsCode(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.user("ada@example.com", account.Admin)
	f.user("bob@example.com", account.Agent)
	id, other, bob := f.signIn("ada@example.com"), f.signIn("ada@example.com"), f.signIn("bob@example.com")
	e, err := f.BeginTOTP(id)
	if err != nil {
		t.Fatal(err)
	}
	authenticator := app{strings.ReplaceAll(e.Secret, " ", "")}
	for name, code := range map[string]string{"an old code": authenticator.code(t, time.Now().Add(-time.Hour)), "no code": "", "a long code": authenticator.code(t, time.Now()) + "0"} {
		_, err := f.EnableTOTP(t.Context(), id, e.Sealed, code)
		want(t, name, err, problem.Unauthorized, "")
	}
	for name, of := range map[string]account.Identity{"another session": other, "another user": bob} {
		_, err := f.EnableTOTP(t.Context(), of, e.Sealed, authenticator.code(t, time.Now()))
		want(t, name, err, problem.Invalid, "")
	}
	if n := f.count("SELECT count(*) FROM totp_secrets"); n != 0 {
		t.Errorf("%d apps are set up", n)
	}
	if _, err := f.EnableTOTP(t.Context(), id, e.Sealed, authenticator.code(t, time.Now())); err != nil {
		t.Errorf("the right code: %v", err)
	}
}

// TestTOTPSkew: the codes before and after the current one are valid, others are not, and
// none up to the last accepted one.
func TestTOTPSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		f.user("ada@example.com", account.Admin)
		id := f.signIn("ada@example.com")
		authenticator, _ := f.addApp(id)
		for _, tt := range []struct {
			off time.Duration
			ok  bool
		}{{-90 * time.Second, false}, {-60 * time.Second, false}, {-30 * time.Second, true}, {0, true}, {30 * time.Second, true}, {60 * time.Second, false}, {-30 * time.Second, true}, {0, true}} {
			time.Sleep(10 * time.Minute) // resets the limits and passes every accepted step
			err := f.Prove(t.Context(), id, factor.Answer{Code: authenticator.code(t, time.Now().Add(tt.off))})
			if (err == nil) != tt.ok {
				t.Errorf("a code %v off: got error %v, want it accepted: %t", tt.off, err, tt.ok)
			}
		}
		time.Sleep(10 * time.Minute)
		if err := f.Prove(t.Context(), id, factor.Answer{Code: authenticator.code(t, time.Now().Add(30*time.Second))}); err != nil {
			t.Fatal(err)
		}
		want(t, "the code before the last accepted", f.Prove(t.Context(), id, factor.Answer{Code: authenticator.code(t, time.Now())}), problem.Unauthorized, "")
	})
}

func TestTOTPGuessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		ada := f.user("ada@example.com", account.Admin)
		id := f.signIn("ada@example.com")
		authenticator, _ := f.addApp(id)
		time.Sleep(2 * time.Hour)
		var in account.SignIn
		guess := func() error {
			// One sign-in each: a new sign-in brings no new attempts.
			in = f.byPassword("ada@example.com")
			_, err := f.Complete(t.Context(), in.Pending, factor.Answer{Code: "000000"}, client)
			return err
		}
		for range 5 {
			want(t, "a guess", guess(), problem.Unauthorized, "")
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		_, err := f.Complete(t.Context(), in.Pending, factor.Answer{Code: authenticator.code(t, time.Now())}, client)
		want(t, "the sixth try within a minute, right as it is", err, problem.RateLimited, "")
		want(t, "a recovery code counts too", f.Prove(t.Context(), id, factor.Answer{RecoveryCode: "aaaa-aaaa-aaaa-aaaa"}), problem.RateLimited, "")

		before := len(f.mails.mails)
		tries := 5
		for range 40 {
			time.Sleep(61 * time.Second)
			if problem.Of(guess()) == problem.Unauthorized {
				tries++
			}
		}
		if tries != 20 {
			t.Errorf("got %d guesses in an hour, want 20", tries)
		}
		if n := len(f.mails.mails) - before; n != 1 || !strings.Contains(f.mails.last(t).Text, "20 codes in one hour were wrong") {
			t.Errorf("got %d mails about it: %s", n, f.mails.last(t).Text)
		}
		time.Sleep(time.Hour)
		in = f.byPassword("ada@example.com")
		if _, err := f.Complete(t.Context(), in.Pending, factor.Answer{Code: authenticator.code(t, time.Now())}, client); err != nil {
			t.Errorf("the right code an hour later: %v", err)
		}
		audittest.Flush(t, f.audit)
		list := audittest.List(t, f.audit, ada.OrganizationID, audit.Query{Action: "second_factor.refused"})
		if len(list) != 1 || list[0].Details["count"] != 20.0 || list[0].Outcome != audit.Refused || list[0].Target.ID != ada.ID {
			t.Errorf("got refusals %+v in the audit log, want one entry of 20", list)
		}
	})
}

func TestRecoveryCodeOnce(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.user("ada@example.com", account.Admin)
	id := f.signIn("ada@example.com")
	_, codes := f.addApp(id)
	if len(codes) != 10 || len(codes[0]) != 19 {
		t.Fatalf("got recovery codes %q", codes)
	}
	in := f.byPassword("ada@example.com")
	if _, err := f.Complete(t.Context(), in.Pending, factor.Answer{RecoveryCode: strings.ToUpper(strings.ReplaceAll(codes[3], "-", " "))}, client); err != nil {
		t.Fatal(err)
	}
	if got := f.mails.last(t); !strings.Contains(got.Text, "A recovery code of your account was used. 9 are left.") {
		t.Errorf("got mail %s", got.Text)
	}
	_, err := f.Complete(t.Context(), f.byPassword("ada@example.com").Pending, factor.Answer{RecoveryCode: codes[3]}, client)
	want(t, "the same code again", err, problem.Unauthorized, "")

	next, err := f.NewRecoveryCodes(t.Context(), f.with2(id))
	if err != nil || len(next) != 10 {
		t.Fatalf("got %d new codes, error %v", len(next), err)
	}
	_, err = f.Complete(t.Context(), f.byPassword("ada@example.com").Pending, factor.Answer{RecoveryCode: codes[4]}, client)
	want(t, "a code of the set before", err, problem.Unauthorized, "")
	if n := f.count("SELECT count(*) FROM recovery_codes WHERE used_at IS NULL"); n != 10 {
		t.Errorf("got %d codes, want 10", n)
	}
}

// with2 returns a session's identity after its user has added a factor.
func (f *fixture) with2(id account.Identity) account.Identity {
	id.SecondFactor = true
	return id
}

// TestAttackRecoveryCodeRace: three concurrent sign-ins find one recovery code unused.
// One succeeds.
func TestAttackRecoveryCodeRace(t *testing.T) {
	race := func(t *testing.T, d *db.DB, allWait func(tx *db.Tx)) {
		f := newFixture(t, d)
		ada := f.user("ada@example.com", account.Admin)
		_, codes := f.addApp(f.signIn("ada@example.com"))
		ins := []account.SignIn{f.byPassword("ada@example.com"), f.byPassword("ada@example.com"), f.byPassword("ada@example.com")}
		var wins atomic.Int64
		var all sync.WaitGroup
		if err := d.Write(t.Context(), func(tx *db.Tx) error {
			if _, err := tx.Exec(t.Context(), "UPDATE recovery_codes SET created_at = created_at WHERE user_id = $1", ada.ID); err != nil { // locks the rows
				return err
			}
			for _, in := range ins {
				all.Go(func() {
					if _, err := f.Complete(t.Context(), in.Pending, factor.Answer{RecoveryCode: codes[0]}, client); err == nil {
						wins.Add(1)
					} else {
						want(t, "a code that was used a moment ago", err, problem.Unauthorized, "")
					}
				})
			}
			allWait(tx)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if wins.Load() != 1 {
			t.Errorf("one code completed %d sign-ins, want 1", wins.Load())
		}
		if n := f.count("SELECT count(*) FROM recovery_codes WHERE used_at IS NOT NULL"); n != 1 {
			t.Errorf("%d codes are used up, want 1", n)
		}
	}
	t.Run("SQLite", func(t *testing.T) {
		address := dbtest.SQLiteURL(t)
		synctest.Test(t, func(t *testing.T) {
			race(t, dbtest.Open(t, address), func(*db.Tx) { synctest.Wait() }) // this test holds the write lock
		})
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		d := dbtest.New(t)
		if !d.Postgres() {
			t.Skip("on SQLite")
		}
		race(t, d, func(*db.Tx) {
			for waiting := 0; waiting < 3; { // counted outside of the transaction, whose snapshot is fixed
				if err := d.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting); err != nil {
					t.Error(err)
					return
				}
			}
		})
	})
}

// TestLinkOpenedByAScanner: the second opening of a link, by the requesting browser,
// deletes the pending sign-in of the first.
func TestLinkOpenedByAScanner(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	ada := f.user("ada@example.com", account.Admin)
	authenticator, _ := f.addApp(f.signIn("ada@example.com"))
	f.resetStep(ada.ID)
	intent, err := f.accounts.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "ada@example.com"}, "", account.Client{})
	if err != nil {
		t.Fatal(err)
	}
	token := tokenIn(t, f.mails.last(t).Text)
	first, err := f.accounts.FollowLink(t.Context(), token, "", client)
	if err != nil {
		t.Fatal(err)
	}
	second, err := f.accounts.FollowLink(t.Context(), token, intent, client)
	if err != nil {
		t.Fatal(err)
	}
	if first.Pending == "" || second.Pending == "" {
		t.Fatal("a link of a user with an authenticator app opened a session")
	}
	_, err = f.Complete(t.Context(), first.Pending, factor.Answer{Code: authenticator.code(t, time.Now())}, client)
	want(t, "the second step of the first opening", err, problem.Unauthorized, "")
	if _, err := f.Complete(t.Context(), second.Pending, factor.Answer{Code: authenticator.code(t, time.Now())}, client); err != nil {
		t.Errorf("the second step of the second opening: %v", err)
	}
}

func tokenIn(t *testing.T, text string) string {
	t.Helper()
	_, after, ok := strings.Cut(text, "?token=")
	if !ok {
		t.Fatalf("no link in %s", text)
	}
	return strings.Fields(after)[0]
}
