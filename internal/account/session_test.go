package account_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/argon2"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// oldSum is the hash of "old password" with weaker parameters.
func oldSum(t *testing.T) string {
	t.Helper()
	sum := argon2.IDKey([]byte("old password"), []byte("saltsaltsaltsalt"), 1, 64, 1, 32)
	return base64.RawStdEncoding.EncodeToString(sum)
}

func TestRateLimits(t *testing.T) {
	for _, tt := range []struct {
		name string
		try  func(f *fixture, email string) error
		want problem.Kind // of the attempts within the limit
	}{
		{"link", func(f *fixture, email string) error {
			_, err := f.SignInWithEmail(context.Background(), account.EmailSignIn{Email: email}, "", account.Client{})
			return err
		}, problem.Internal},
		{"password", func(f *fixture, email string) error {
			_, err := f.SignInWithPassword(context.Background(), account.PasswordSignIn{Email: email, Password: "a guess"}, client)
			return err
		}, problem.Unauthorized},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, dbtest.NewSQLite(t))
				pass := func(email string) {
					t.Helper()
					if err := tt.try(f, email); err != nil && problem.Of(err) != tt.want {
						t.Fatal(err)
					}
				}
				for _, email := range []string{"a@example.com", "A@example.com", " a@EXAMPLE.com ", "a@example.com", "a@example.com"} {
					pass(email)
				}
				time.Sleep(17500 * time.Millisecond)
				err := tt.try(f, "A@example.com")
				p, ok := errors.AsType[*problem.Error](err)
				if !ok || p.Kind != problem.RateLimited {
					t.Fatalf("got error %v the sixth time", err)
				}
				if p.Message != "too many sign-in attempts, try again in 43 seconds" || p.RetryAfter != 42500*time.Millisecond {
					t.Errorf("got message %q, wait %v", p.Message, p.RetryAfter)
				}
				pass("b@example.com")
				time.Sleep(p.RetryAfter)
				pass("a@example.com")
			})
		})
	}
}

func TestLinkLife(t *testing.T) {
	for _, tt := range []struct {
		after time.Duration
		want  string // in the refusal; empty: none
	}{
		{15*time.Minute - time.Second, ""},
		{15 * time.Minute, "older than 15 minutes"},
		{23 * time.Hour, "older than 15 minutes"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, dbtest.NewSQLite(t))
			intent, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "ada@example.com"}, "", account.Client{})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(tt.after)
			_, err = f.FollowLink(t.Context(), f.mail.token(t), intent, client)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("after %v: got error %v, want %q", tt.after, err, tt.want)
			}
		})
	}
}

func TestLifetimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		first := f.signIn(t, "ada@example.com").Tokens
		if first.AccessLife != time.Hour || first.RefreshLife != 30*24*time.Hour {
			t.Errorf("got lives %v and %v", first.AccessLife, first.RefreshLife)
		}
		time.Sleep(time.Hour - time.Second)
		if !f.works(t, first.Access) {
			t.Error("an access token did not last an hour")
		}
		time.Sleep(time.Second)
		if f.works(t, first.Access) {
			t.Error("an access token lasted longer than an hour")
		}
		// Access and refresh tokens are not interchangeable.
		for _, wrong := range [][2]string{{first.Refresh, first.Access}, {"", ""}, {"", "x"}, {first.Refresh, ""}} {
			_, _, err := f.Authenticate(t.Context(), wrong[0], wrong[1], client)
			wantKind(t, err, problem.Unauthorized)
		}
		_, second, err := f.Authenticate(t.Context(), first.Access, first.Refresh, client)
		if err != nil || second == nil {
			t.Fatalf("got no fresh tokens, error %v", err)
		}
		// A missing token is like an expired one; the 30 days count from the last use.
		time.Sleep(30*24*time.Hour - time.Second)
		_, third, err := f.Authenticate(t.Context(), "", second.Refresh, client)
		if err != nil || third == nil {
			t.Fatalf("got no fresh tokens, error %v", err)
		}
		time.Sleep(30 * 24 * time.Hour)
		_, _, err = f.Authenticate(t.Context(), third.Access, third.Refresh, client)
		wantKind(t, err, problem.Unauthorized)
	})
}

func TestConfiguredLifetimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t), func(c *account.Config) {
			c.AccessLife, c.RefreshLife = time.Minute, time.Hour
		})
		tokens := f.signIn(t, "ada@example.com").Tokens
		time.Sleep(time.Minute)
		_, fresh, err := f.Authenticate(t.Context(), tokens.Access, tokens.Refresh, client)
		if err != nil || fresh == nil {
			t.Fatalf("got no fresh tokens, error %v", err)
		}
		if fresh.AccessLife != time.Minute || fresh.RefreshLife != time.Hour {
			t.Errorf("got lives %v and %v", fresh.AccessLife, fresh.RefreshLife)
		}
		time.Sleep(time.Hour)
		_, _, err = f.Authenticate(t.Context(), "", fresh.Refresh, client)
		wantKind(t, err, problem.Unauthorized)
	})
}

func TestReuse(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after time.Duration
		same  bool // the second use returns the same successor; otherwise it ends the session
	}{
		{"at once", 0, true},
		{"10 seconds later", 10 * time.Second, true},
		{"later", 10*time.Second + time.Microsecond, false},
		{"much later", 29 * 24 * time.Hour, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, dbtest.NewSQLite(t))
				first := f.signIn(t, "ada@example.com").Tokens
				bystander := f.signIn(t, "ada@example.com").Tokens
				_, next, err := f.Authenticate(t.Context(), "", first.Refresh, client)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(tt.after)
				_, again, err := f.Authenticate(t.Context(), "", first.Refresh, client)
				if tt.same {
					if err != nil || *again != *next {
						t.Errorf("got other tokens, error %v", err)
					}
					if !f.works(t, next.Access) {
						t.Error("the session ended")
					}
					return
				}
				wantKind(t, err, problem.Unauthorized)
				for _, stolen := range []*account.Tokens{next, &first} {
					_, _, err = f.Authenticate(t.Context(), stolen.Access, stolen.Refresh, client)
					wantKind(t, err, problem.Unauthorized)
				}
				if _, _, err := f.Authenticate(t.Context(), "", bystander.Refresh, client); err != nil {
					t.Errorf("another session ended too: %v", err)
				}
			})
		})
	}
}

// TestParallelRefresh: of many concurrent requests of a returning browser one exchanges
// the token, and all succeed.
func TestParallelRefresh(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	in := f.signIn(t, "ada@example.com")
	expired(t, f)

	const requests = 200
	got := make([]*account.Tokens, requests)
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			id, fresh, err := f.Authenticate(t.Context(), in.Tokens.Access, in.Tokens.Refresh, client)
			if err != nil || fresh == nil || id.SessionID != in.SessionID || id.UserID != in.User.ID {
				t.Errorf("got identity %+v, tokens %v, error %v", id, fresh != nil, err)
				return
			}
			got[i] = fresh
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for _, tokens := range got {
		if *tokens != *got[0] {
			t.Fatal("got different successors")
		}
	}
	if !f.works(t, got[0].Access) {
		t.Error("the successor does not work")
	}
	if s, n := f.count(t, "SELECT count(*) FROM sessions"), f.count(t, "SELECT count(*) FROM session_tokens"); s != 1 || n != 4 {
		t.Errorf("got %d sessions with %d tokens, want 1 with 4", s, n)
	}
}

// expired makes all access tokens expire.
func expired(t *testing.T, f *fixture) {
	t.Helper()
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE session_tokens SET issued_at = issued_at - $1 WHERE kind = 0", time.Hour.Microseconds())
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestStolenToken covers both engines without waiting: the first use was long ago.
func TestStolenToken(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	in := f.signIn(t, "ada@example.com")
	_, next, err := f.Authenticate(t.Context(), "", in.Tokens.Refresh, client)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE session_tokens SET consumed_at = consumed_at - $1", time.Minute.Microseconds())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	_, _, err = f.Authenticate(t.Context(), "", in.Tokens.Refresh, client)
	wantKind(t, err, problem.Unauthorized)
	if f.works(t, next.Access) {
		t.Error("the session goes on")
	}
	if n := f.count(t, "SELECT count(*) FROM session_tokens"); n != 0 {
		t.Errorf("got %d tokens left, want 0", n)
	}
}

// TestRevocation: a session ended on one node is refused by the next request on the
// other.
func TestRevocation(t *testing.T) {
	address := dbtest.URL(t)
	here := newFixture(t, dbtest.Open(t, address))
	there := newFixture(t, dbtest.Open(t, address))
	for i := range 20 {
		in := here.signIn(t, fmt.Sprintf("ada%d@example.com", i))
		if !there.works(t, in.Tokens.Access) {
			t.Fatal("a session is not known on the other node")
		}
		if err := here.SignOut(t.Context(), in.SessionID); err != nil {
			t.Fatal(err)
		}
		for _, f := range []*fixture{there, here} {
			_, _, err := f.Authenticate(t.Context(), in.Tokens.Access, in.Tokens.Refresh, client)
			wantKind(t, err, problem.Unauthorized)
		}
		if err := there.SignOut(t.Context(), in.SessionID); err != nil {
			t.Errorf("signing out twice: %v", err)
		}
	}
}

// TestRefreshAgainstSignOut: in either order nothing of the session remains, and no other
// error occurs.
func TestRefreshAgainstSignOut(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	for i := range 20 {
		in := f.signIn(t, fmt.Sprintf("ada%d@example.com", i))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if _, _, err := f.Authenticate(t.Context(), "", in.Tokens.Refresh, client); err != nil && problem.Of(err) != problem.Unauthorized {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			if err := f.SignOut(t.Context(), in.SessionID); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
	}
	if s, n := f.count(t, "SELECT count(*) FROM sessions"), f.count(t, "SELECT count(*) FROM session_tokens"); s != 0 || n != 0 {
		t.Errorf("got %d sessions with %d tokens, want none", s, n)
	}
}

// TestLastUse: the last use is stored once a minute, not per request.
func TestLastUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		in := f.signIn(t, "ada@example.com")
		start := time.Now()
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { f.Run(ctx) })

		used := func() time.Duration {
			t.Helper()
			var at time.Time
			if err := f.db.QueryRow(t.Context(), "SELECT used_at FROM sessions").Scan(db.IntoTime(&at)); err != nil {
				t.Fatal(err)
			}
			return at.Sub(start)
		}
		use := func() {
			t.Helper()
			if !f.works(t, in.Tokens.Access) {
				t.Fatal("the session ended")
			}
		}
		time.Sleep(30 * time.Second)
		use() // too soon to count
		time.Sleep(45 * time.Second)
		if got := used(); got != 0 {
			t.Errorf("got last use after %v, want it unwritten", got)
		}
		use() // at 1:15
		use()
		if got := used(); got != 0 {
			t.Errorf("got last use after %v, want it unwritten until the minute is over", got)
		}
		time.Sleep(46 * time.Second) // the flush is at 2:00
		if got := used(); got != 2*time.Minute {
			t.Errorf("got last use after %v, want 2m", got)
		}
		time.Sleep(70 * time.Second)
		use() // at 3:11; the next flush would be at 4:00
		stop()
		wg.Wait()
		if got := used(); got != 3*time.Minute+11*time.Second {
			t.Errorf("got last use after %v, want it written at the end", got)
		}
	})
}

// TestUpkeep: expired rows are deleted, others are not.
func TestUpkeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t), func(c *account.Config) { c.RefreshLife = 48 * time.Hour })
		f.signIn(t, "idle@example.com")
		tokens := f.signIn(t, "busy@example.com").Tokens
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { f.Run(ctx) })
		for quarter := range 16 { // quarters of a day
			_, fresh, err := f.Authenticate(t.Context(), tokens.Access, tokens.Refresh, client)
			if err != nil {
				t.Fatalf("quarter %d: %v", quarter, err)
			}
			if fresh != nil {
				tokens = *fresh
			}
			time.Sleep(6 * time.Hour)
			if n := f.count(t, "SELECT count(*) FROM session_tokens WHERE successor IS NOT NULL"); n != 0 {
				t.Fatalf("quarter %d: got %d successors kept after their grace, want 0", quarter, n)
			}
		}
		stop()
		wg.Wait()
		for query, want := range map[string]int{
			"SELECT count(*) FROM sessions":                                                  1,
			"SELECT count(*) FROM session_tokens WHERE kind = 0":                             0,
			"SELECT count(*) FROM session_tokens WHERE kind = 1 AND consumed_at IS NULL":     1,
			"SELECT count(*) FROM session_tokens WHERE kind = 1 AND consumed_at IS NOT NULL": 8,
			"SELECT count(*) FROM login_links":                                               0,
		} {
			if got := f.count(t, query); got != want {
				t.Errorf("%s: got %d, want %d", query, got, want)
			}
		}
		if _, _, err := f.Authenticate(t.Context(), "", tokens.Refresh, client); err != nil {
			t.Error(err)
		}
	})
}

// TestUpkeepStatements runs the statements on both engines.
func TestUpkeepStatements(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	in := f.signIn(t, "ada@example.com")
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE sessions SET used_at = used_at - $1", time.Hour.Microseconds())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	if !f.works(t, in.Tokens.Access) {
		t.Fatal("the session ended")
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	f.Run(ctx)
	var at time.Time
	if err := f.db.QueryRow(t.Context(), "SELECT used_at FROM sessions").Scan(db.IntoTime(&at)); err != nil {
		t.Fatal(err)
	}
	if at.Before(before.Truncate(time.Microsecond)) {
		t.Errorf("got last use %v, want it after %v", at, before)
	}
}

// TestNothingSecretIsStored searches database and log for every secret that was issued,
// in every encoding.
func TestNothingSecretIsStored(t *testing.T) {
	var logged bytes.Buffer
	p := &provider{who: account.ProviderIdentity{Email: "ada@example.com", EmailVerified: true}}
	f := newFixture(t, dbtest.New(t), func(c *account.Config) {
		c.Provider = p
		c.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	in := f.signIn(t, "ada@example.com")
	_, next, err := f.Authenticate(t.Context(), "", in.Tokens.Refresh, client)
	if err != nil {
		t.Fatal(err)
	}
	intent, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "ada@example.com"}, "", account.Client{})
	if err != nil {
		t.Fatal(err)
	}
	link := f.mail.token(t)
	const password = "correct horse battery"
	if err := f.SetPassword(t.Context(), account.Identity{UserID: in.User.ID}, account.FirstPassword{Password: password}); err != nil {
		t.Fatal(err)
	}
	reset := f.reset(t, "ada@example.com")
	o := f.organization(t, "Acme")
	f.exec(t, "UPDATE users SET organization_id = $2, role = 'admin' WHERE id = $1", in.User.ID, o.ID)
	_, invitation := f.invite(t, account.Identity{UserID: in.User.ID, OrganizationID: o.ID, User: in.User}, "bob@example.com", account.Agent)
	state, providerIntent := f.depart(t, client)
	used, usedIntent := f.depart(t, client)
	answer := account.ProviderAnswer{State: used, Code: "the very code", Error: "server_error"}
	if _, err := f.FinishProvider(t.Context(), answer, usedIntent, client); err == nil {
		t.Error("got no error from a sign-in that the provider refused")
	}
	// The log reports a stolen token without its value.
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE session_tokens SET consumed_at = consumed_at - $1", time.Minute.Microseconds())
		return err
	}); err != nil {
		t.Fatal(err)
	}

	var stored bytes.Buffer
	for _, table := range []string{
		"users", "organizations", "sessions", "session_tokens", "login_links", "password_resets", "provider_logins", "invitations",
	} {
		rows, err := f.db.Query(t.Context(), "SELECT * FROM "+table)
		if err != nil {
			t.Fatal(err)
		}
		columns := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ; rows.Next(); n++ {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(any)
			}
			if err := rows.Scan(values...); err != nil {
				t.Fatal(err)
			}
			for _, v := range values {
				switch v := (*v.(*any)).(type) {
				case []byte:
					stored.Write(v)
				default:
					fmt.Fprint(&stored, v)
				}
			}
		}
		if err := rows.Err(); err != nil || n == 0 {
			t.Fatalf("got %d rows of %s, error %v, want some", n, table, err)
		}
	}
	_, _, err = f.Authenticate(t.Context(), "", in.Tokens.Refresh, client)
	wantKind(t, err, problem.Unauthorized)
	if !strings.Contains(logged.String(), "event=session.token_reused") {
		t.Errorf("got log %q, want the token that was used twice in it", logged.String())
	}
	if !bytes.Contains(stored.Bytes(), []byte(in.User.ID)) || !bytes.Contains(stored.Bytes(), []byte("$argon2id$")) {
		t.Error("what is stored was not looked through")
	}
	stored.Write(logged.Bytes())

	secrets := map[string]string{
		"access": in.Tokens.Access, "refresh": in.Tokens.Refresh, "next access": next.Access, "next refresh": next.Refresh,
		"intent": intent, "link": link, "reset": reset, "invitation": invitation,
		"state": state, "used state": used, "provider intent": providerIntent, "used intent": usedIntent,
	}
	for i, s := range p.asked {
		secrets[fmt.Sprint("nonce ", i)], secrets[fmt.Sprint("verifier ", i)] = s.Nonce, s.Verifier
	}
	for name, secret := range secrets {
		raw, err := base64.RawURLEncoding.DecodeString(secret)
		if err != nil || len(raw) != 32 {
			t.Fatalf("%s token: got %d bytes, error %v, want 32", name, len(raw), err)
		}
		for spelling, form := range map[string]string{
			"bytes": string(raw), "base64url": secret, "base64": base64.StdEncoding.EncodeToString(raw), "hex": hex.EncodeToString(raw),
		} {
			if bytes.Contains(stored.Bytes(), []byte(form)) {
				t.Errorf("the %s token is stored or logged as %s", name, spelling)
			}
		}
	}
	for _, secret := range []string{password, answer.Code} {
		if bytes.Contains(stored.Bytes(), []byte(secret)) {
			t.Errorf("%q is stored or logged", secret)
		}
	}
}

// TestHasherTurn: the wait for a slot ends with the request.
func TestHasherTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t), func(c *account.Config) { c.Hashers = 1 })
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		release := f.OccupyHasher()
		_, err := f.SignInWithPassword(ctx, account.PasswordSignIn{Email: "ada@example.com", Password: "a guess"}, client)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want the deadline's", err)
		}
		release()
		_, err = f.SignInWithPassword(t.Context(), account.PasswordSignIn{Email: "ada@example.com", Password: "a guess"}, client)
		wantKind(t, err, problem.Unauthorized)
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	d := dbtest.New(b)
	box := new(outbox)
	s, err := account.New(account.Config{DB: d, Mailer: box, BaseURL: "https://help.example.com"})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.CreateOrganization(b.Context(), account.NewOrganization{Name: "Acme"}); err != nil {
		b.Fatal(err)
	}
	if _, err := s.CreateUser(b.Context(), account.NewUser{Email: "ada@example.com", Password: "long enough", Organization: "acme", Role: account.Admin}); err != nil {
		b.Fatal(err)
	}
	in, err := s.SignInWithPassword(b.Context(), account.PasswordSignIn{Email: "ada@example.com", Password: "long enough"}, client)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := s.Authenticate(b.Context(), in.Tokens.Access, in.Tokens.Refresh, client); err != nil {
			b.Fatal(err)
		}
	}
}
