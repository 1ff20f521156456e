package account_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"golang.org/x/sync/errgroup"
)

// weakUsers creates users name0@example.com and so on with "old password" and a cheap
// hash.
func (f *fixture) weakUsers(t *testing.T, name string, n int) {
	t.Helper()
	hash := "$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0c2FsdA$" + oldSum(t)
	err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), `INSERT INTO organizations (id, name, slug, plan, created_at, updated_at)
			VALUES ($1, $1, $1, 'free', 0, 0)`, name); err != nil {
			return err
		}
		for i := range n {
			if _, err := tx.Exec(t.Context(), `INSERT INTO users (id, email, email_key, name, password_hash, preferences, organization_id, role, created_at, updated_at)
				VALUES ($1, $2, $2, $1, $3, '{}', $4, 'agent', 0, 0)`,
				fmt.Sprint(name, i), fmt.Sprintf("%s%d@example.com", name, i), hash, name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// password signs in by password.
func (f *fixture) password(email, password string, c account.Client) (account.SignIn, error) {
	return f.SignInWithPassword(context.Background(), account.PasswordSignIn{Email: email, Password: password}, c)
}

// TestLockoutLeavesKnownBrowserAndOtherMethods: exhausting an address's attempts does not
// lock out its owner.
func TestLockoutLeavesKnownBrowserAndOtherMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newProviderFixture(t, dbtest.NewSQLite(t), ada)
		f.weakUsers(t, "user", 1)
		const victim = "user0@example.com"
		laptop := account.Client{IP: "192.0.2.7"}
		in, err := f.password(victim, "old password", laptop)
		if err != nil {
			t.Fatal(err)
		}
		laptop.Browser = in.Tokens.Browser
		time.Sleep(time.Minute)

		stranger := account.Client{IP: "198.51.100.1"}
		lock := func() {
			t.Helper()
			for range 5 {
				_, err := f.password(victim, "a guess", stranger)
				wantKind(t, err, problem.Unauthorized)
				if _, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: victim}, "", stranger); err != nil {
					t.Fatal(err)
				}
				if err := f.SendPasswordReset(t.Context(), account.PasswordReset{Email: victim}, stranger); err != nil {
					t.Fatal(err)
				}
			}
			_, err := f.password(victim, "old password", stranger)
			wantKind(t, err, problem.RateLimited)
		}
		lock()
		// The known browser has five attempts of its own for each way.
		if _, err := f.password(victim, "old password", laptop); err != nil {
			t.Errorf("the known browser, by password: %v", err)
		}
		for range 4 {
			_, err := f.password(victim, "mistyped", laptop)
			wantKind(t, err, problem.Unauthorized)
		}
		_, err = f.password(victim, "old password", laptop)
		wantKind(t, err, problem.RateLimited)
		if _, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: victim}, "", laptop); err != nil {
			t.Errorf("the known browser, by link: %v", err)
		}
		if err := f.SendPasswordReset(t.Context(), account.PasswordReset{Email: victim}, laptop); err != nil {
			t.Errorf("the known browser, a reset: %v", err)
		}

		// A locked password leaves the other ways open to unknown browsers.
		time.Sleep(time.Minute)
		for range 5 {
			_, err := f.password(victim, "a guess", stranger)
			wantKind(t, err, problem.Unauthorized)
		}
		phone := account.Client{IP: "203.0.113.9"}
		_, err = f.password(victim, "old password", phone)
		wantKind(t, err, problem.RateLimited)
		if _, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: victim}, "", phone); err != nil {
			t.Errorf("another browser, by link: %v", err)
		}
		if _, _, err := f.SignInWithProvider(t.Context(), account.ProviderSignIn{}, "", phone); err != nil {
			t.Errorf("another browser, by provider: %v", err)
		}

		// Neither an invented cookie nor another user's makes a known browser.
		eve := f.in(t, "eve@example.com", "")
		time.Sleep(time.Minute)
		lock()
		for _, cookie := range []string{eve.Tokens.Browser, "x", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"} {
			_, err := f.password(victim, "old password", account.Client{IP: "198.51.100.1", Browser: cookie})
			wantKind(t, err, problem.RateLimited)
		}
	})
}

// TestKnownBrowserKeepsTheLimit: a browser that becomes known within a minute has five
// attempts in it, too.
func TestKnownBrowserKeepsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		f.weakUsers(t, "user", 1)
		var passed []time.Duration
		c := account.Client{IP: "192.0.2.7"}
		start := time.Now()
		for range 300 { // five minutes, one attempt each second
			in, err := f.password("user0@example.com", "old password", c)
			if err == nil {
				passed = append(passed, time.Since(start))
				c.Browser = in.Tokens.Browser
			} else {
				wantKind(t, err, problem.RateLimited)
			}
			time.Sleep(time.Second)
		}
		for i := 5; i < len(passed); i++ {
			if passed[i]-passed[i-5] < time.Minute {
				t.Errorf("six attempts passed from %v to %v", passed[i-5], passed[i])
			}
		}
		if len(passed) != 25 {
			t.Errorf("%d attempts passed in five minutes, want 25", len(passed))
		}
	})
}

// TestPlusAddressesAreOneMailbox: all spellings of a mailbox share one limit of mails.
func TestPlusAddressesAreOneMailbox(t *testing.T) {
	for _, tt := range []struct {
		name string
		mail func(f *fixture, email string) error
	}{
		{"link", func(f *fixture, email string) error {
			_, err := f.SignInWithEmail(context.Background(), account.EmailSignIn{Email: email}, "", client)
			return err
		}},
		{"reset", func(f *fixture, email string) error {
			return f.SendPasswordReset(context.Background(), account.PasswordReset{Email: email}, client)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, dbtest.NewSQLite(t))
				for i := range 20 {
					err := tt.mail(f, fmt.Sprintf("victim+%d@example.com", i))
					if (i < 5) != (err == nil) {
						t.Errorf("mail %d: got error %v", i, err)
					}
				}
				if n := len(f.mail.all()); n != 5 {
					t.Errorf("got %d mails to one mailbox, want 5", n)
				}
				for _, email := range []string{"other@example.com", "victim@example.net", "+0@example.com", "a.b@example.com", "ab@example.com"} {
					if err := tt.mail(f, email); err != nil {
						t.Errorf("%s: %v", email, err)
					}
				}
				for i, email := range []string{"ab@gmail.com", "a.b@gmail.com", "A.B+x@googlemail.com", "ab+y@GMAIL.com", "a.b@googlemail.com", "a.b@gmail.com"} {
					if err := tt.mail(f, email); (i < 5) != (err == nil) {
						t.Errorf("%s: got error %v", email, err)
					}
				}
			})
		})
	}
	t.Run("invitation", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, dbtest.NewSQLite(t))
			admin, _ := f.member(t, f.organization(t, "Acme"), "ada@example.com", account.Admin)
			for i := range 7 {
				_, err := f.Invite(t.Context(), admin, account.NewInvitation{Email: fmt.Sprintf("victim+%d@example.com", i), Role: account.Agent})
				if (i < 5) != (err == nil) {
					t.Errorf("invitation %d: got error %v", i, err)
				}
			}
		})
	})
}

// TestIPv6SlashSixtyFourIsOneAddress: a /64 has the limit of one address, independent of
// neighbours and spellings.
func TestIPv6SlashSixtyFourIsOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newProviderFixture(t, dbtest.NewSQLite(t), ada)
		by := func(ip string) error {
			_, _, err := f.SignInWithProvider(t.Context(), account.ProviderSignIn{}, "", account.Client{IP: ip})
			return err
		}
		for i := range 5 {
			if err := by(fmt.Sprintf("2001:db8:1:2:%x::%x", i*4097, i)); err != nil {
				t.Fatal(err)
			}
		}
		for _, ip := range []string{"2001:db8:1:2::99", "2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:0DB8:1:2::1"} {
			wantKind(t, by(ip), problem.RateLimited)
		}
		for _, ip := range []string{"2001:db8:1:3::99", "2001:db8:1:1:ffff::", "192.0.2.1", "192.0.2.2"} {
			if err := by(ip); err != nil {
				t.Errorf("%s: %v", ip, err)
			}
		}
		for range 4 {
			if err := by("192.0.2.1"); err != nil {
				t.Fatal(err)
			}
		}
		wantKind(t, by("::ffff:192.0.2.1"), problem.RateLimited)
	})
}

// TestWrongSignInsOfOneNetwork: of any number of wrong sign-ins from one network, 20 at a
// time and for any addresses, 100 are answered.
func TestWrongSignInsOfOneNetwork(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.weakUsers(t, "user", 60)
	var wrong, refused atomic.Int64
	var wg errgroup.Group
	wg.SetLimit(20)
	for i := range 60 {
		for k := range 3 {
			wg.Go(func() error {
				_, err := f.password(fmt.Sprintf("user%d@example.com", i), "a guess", account.Client{IP: fmt.Sprintf("2001:db8::%x:%x", i, k)})
				switch problem.Of(err) {
				case problem.Unauthorized:
					wrong.Add(1)
				case problem.RateLimited:
					refused.Add(1)
				default:
					t.Error(err)
				}
				return nil
			})
		}
	}
	_ = wg.Wait()
	if wrong.Load() != 100 || refused.Load() != 80 {
		t.Errorf("%d were answered and %d refused, want 100 and 80", wrong.Load(), refused.Load())
	}
	// Even the correct password is refused from there; from elsewhere it works.
	_, err := f.password("user7@example.com", "old password", account.Client{IP: "2001:db8::1"})
	wantKind(t, err, problem.RateLimited)
	if _, err := f.password("user7@example.com", "old password", account.Client{IP: "2001:db8:0:1::1"}); err != nil {
		t.Errorf("from another network: %v", err)
	}
}

// TestMailsForOneNetwork: the number of mails that one network can request is limited.
func TestMailsForOneNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		for i := range 120 {
			_, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: fmt.Sprintf("user%d@example.com", i)}, "", client)
			reset := f.SendPasswordReset(t.Context(), account.PasswordReset{Email: fmt.Sprintf("user%d@example.com", i)}, client)
			if (i < 100) != (err == nil) || (i < 100) != (reset == nil) {
				t.Fatalf("mails %d: got errors %v and %v", i, err, reset)
			}
		}
		if _, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "user0@example.com"}, "", account.Client{IP: "203.0.113.1"}); err != nil {
			t.Errorf("from elsewhere: %v", err)
		}
	})
}

// TestHashingIsFair: a correct sign-in waits for at most one of the wrong ones that
// another address has queued, and the queue is bounded.
func TestHashingIsFair(t *testing.T) {
	for _, tt := range []struct {
		name, password string
	}{
		{"wrong ones", "a guess"},
		// Without failures only the turns between networks help.
		{"right ones", "old password"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, dbtest.NewSQLite(t), func(c *account.Config) { c.Hashers = 1 })
				f.weakUsers(t, "slow", 8)
				f.weakUsers(t, "user", 1)
				if tt.password == "a guess" {
					// A hash of these users takes as long as dozens of sign-ins.
					f.exec(t, "UPDATE users SET password_hash = replace(password_hash, 'm=64,t=1', 'm=32768,t=2') WHERE organization_id = 'slow'")
				}
				release := f.OccupyHasher()
				var answered atomic.Int64
				var wg sync.WaitGroup
				for i := range 8 {
					wg.Go(func() {
						_, err := f.password(fmt.Sprintf("slow%d@example.com", i), tt.password, account.Client{IP: "198.51.100.1"})
						if tt.password == "a guess" {
							wantKind(t, err, problem.Unauthorized)
						} else if err != nil {
							t.Error(err)
						}
						answered.Add(1)
					})
					synctest.Wait() // fixes the order
				}
				var before int64
				wg.Go(func() {
					if _, err := f.password("user0@example.com", "old password", account.Client{IP: "192.0.2.1"}); err != nil {
						t.Error(err)
					}
					before = answered.Load()
				})
				synctest.Wait()
				release()
				wg.Wait()
				if before > 3 {
					t.Errorf("the right sign-in waited for %d of the 8 before it", before)
				}
			})
		})
	}
}

// TestTooManyWaitingSignIns: beyond the limit, sign-ins of an address are refused instead
// of waiting.
func TestTooManyWaitingSignIns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t), func(c *account.Config) { c.Hashers = 1 })
		f.weakUsers(t, "user", 1001)
		release := f.OccupyHasher()
		var wg sync.WaitGroup
		var wrong atomic.Int64
		for i := range 1000 {
			wg.Go(func() {
				if _, err := f.password(fmt.Sprintf("user%d@example.com", i), "a guess", client); problem.Of(err) == problem.Unauthorized {
					wrong.Add(1)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		_, err := f.password("user1000@example.com", "a guess", client)
		p, ok := errors.AsType[*problem.Error](err)
		if !ok || p.Kind != problem.RateLimited || p.RetryAfter != 5*time.Second || time.Since(start) != 0 {
			t.Errorf("got %v with 1,000 of an address waiting, want a refusal at once", err)
		}
		release()
		wg.Wait()
		// Two before the network is a suspect, one then, and 20 that may wait as a
		// suspect; more if one of these ends before the next starts.
		if n := wrong.Load(); n < 23 || n > 100 {
			t.Errorf("%d wrong sign-ins of a network were answered, want 23 to 100", n)
		}
	})
}
