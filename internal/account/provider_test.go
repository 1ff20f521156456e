package account_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// provider is an identity provider that returns a fixed identity and records requests.
type provider struct {
	mu        sync.Mutex
	who       account.ProviderIdentity
	turn      func() account.ProviderIdentity // replaces who if set
	err       error                           // returned if set
	asked     []account.ProviderSecrets
	exchanged []exchange
}

type exchange struct {
	code, issuer string
	secrets      account.ProviderSecrets
}

func (p *provider) AuthorizationURL(_ context.Context, s account.ProviderSecrets) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return "", p.err
	}
	p.asked = append(p.asked, s)
	return "https://id.example.com/authorize?" + url.Values{"state": {s.State}, "nonce": {s.Nonce}}.Encode(), nil
}

func (p *provider) Exchange(_ context.Context, code, issuer string, s account.ProviderSecrets) (account.ProviderIdentity, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exchanged = append(p.exchanged, exchange{code, issuer, s})
	who := p.who
	if p.turn != nil {
		who = p.turn()
	}
	if who.Subject == "" { // one subject per address
		who.Issuer, who.Subject = "https://id.example.com", fmt.Sprintf("%q %t", strings.ToLower(strings.TrimSpace(who.Email)), who.EmailVerified)
	}
	return who, p.err
}

func newProviderFixture(t *testing.T, d *db.DB, who account.ProviderIdentity) (*fixture, *provider) {
	t.Helper()
	p := &provider{who: who}
	f := newFixture(t, d, func(c *account.Config) {
		c.Provider = p
		c.RedirectOrigins = append(c.RedirectOrigins, "http://localhost:3000/")
	})
	return f, p
}

// depart starts a sign-in at the provider and returns state and intent.
func (f *fixture) depart(t *testing.T, c account.Client) (state, intent string) {
	t.Helper()
	address, intent, err := f.SignInWithProvider(t.Context(), account.ProviderSignIn{RedirectTo: "/tickets"}, "", c)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("state"), intent
}

func wantInvalid(t *testing.T, err error, message string) {
	t.Helper()
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Kind != problem.Invalid || !strings.Contains(p.Message, message) || len(p.Issues) != 0 {
		t.Errorf("got error %v, want an invalid sign-in, %q", err, message)
	}
}

var ada = account.ProviderIdentity{Email: "Ada@Example.com", EmailVerified: true, Name: " Ada Lovelace ", Picture: "https://id.example.com/ada.png"}

func TestProviderSecrets(t *testing.T) {
	f, p := newProviderFixture(t, dbtest.New(t), ada)
	_, intent, err := f.SignInWithProvider(t.Context(), account.ProviderSignIn{}, "", client)
	if err != nil {
		t.Fatal(err)
	}
	// The same browser again, and one with an unusable intent.
	if _, kept, err := f.SignInWithProvider(t.Context(), account.ProviderSignIn{}, intent, client); err != nil || kept != intent {
		t.Errorf("got another intent, error %v", err)
	}
	for _, bad := range []string{"x", strings.Repeat("!", 43)} {
		if _, kept, err := f.SignInWithProvider(t.Context(), account.ProviderSignIn{}, bad, client); err != nil || kept == bad || kept == intent {
			t.Errorf("intent %q: got %q, error %v", bad, kept, err)
		}
	}
	seen := map[string]bool{intent: true}
	form := regexp.MustCompile(`^[A-Za-z0-9._~-]{43}$`) // RFC 7636, 4.1
	for _, s := range p.asked {
		for _, secret := range []string{s.State, s.Nonce, s.Verifier} {
			if seen[secret] || !form.MatchString(secret) {
				t.Errorf("got secret %q, want one not seen before, of 43 characters of the alphabet of PKCE", secret)
			}
			seen[secret] = true
		}
	}
	if len(p.asked) != 4 {
		t.Errorf("got asked %d times, want 4", len(p.asked))
	}
}

func TestProviderSignIn(t *testing.T) {
	f, p := newProviderFixture(t, dbtest.New(t), ada)
	sent := len(f.mail.all())
	state, intent := f.depart(t, client)
	in, err := f.FinishProvider(t.Context(), account.ProviderAnswer{State: state, Code: "the code", Issuer: "https://id.example.com"}, intent, client)
	if err != nil {
		t.Fatal(err)
	}
	if want := []exchange{{"the code", "https://id.example.com", p.asked[0]}}; !slices.Equal(p.exchanged, want) {
		t.Errorf("got exchanges %+v, want %+v", p.exchanged, want)
	}
	u := in.User
	if u.Email != "Ada@Example.com" || u.Name != "Ada Lovelace" || u.AvatarURL != "https://id.example.com/ada.png" || u.OrganizationID != "" || in.RedirectTo != "/tickets" {
		t.Errorf("got sign-in %+v, want a new user with name and picture", in)
	}
	if id := f.identity(t, in); !sameUser(id.User, u) || id.SessionID != in.SessionID {
		t.Errorf("got identity %+v", id)
	}
	if has, err := f.HasPassword(t.Context(), u.ID); err != nil || has {
		t.Errorf("got a password %t, error %v, want none", has, err)
	}
	if n := len(f.mail.all()) - sent; n != 0 {
		t.Errorf("got %d mails, want 0", n)
	}

	// Again, with changed claims.
	p.who = account.ProviderIdentity{Email: " aDA@example.COM ", EmailVerified: true, Name: "Countess", Picture: "https://id.example.com/new.png"}
	state, intent = f.depart(t, client)
	again, err := f.FinishProvider(t.Context(), account.ProviderAnswer{State: state, Code: "c"}, intent, client)
	if err != nil || !sameUser(again.User, u) {
		t.Errorf("got user %+v, error %v, want %+v", again.User, err, u)
	}
	if n := f.count(t, "SELECT count(*) FROM provider_logins"); n != 0 {
		t.Errorf("got %d sign-ins under way, want 0", n)
	}

	// A user from another way to sign in retains their name.
	bob := f.signIn(t, "bob@example.com")
	f.exec(t, "UPDATE users SET name = 'Bob B.' WHERE id = $1", bob.User.ID)
	p.who = account.ProviderIdentity{Email: "BOB@example.com", EmailVerified: true, Name: "Robert", Picture: "https://id.example.com/bob.png"}
	state, intent = f.depart(t, client)
	linked, err := f.FinishProvider(t.Context(), account.ProviderAnswer{State: state, Code: "c"}, intent, client)
	if err != nil || linked.User.ID != bob.User.ID || linked.User.Name != "Bob B." || linked.User.AvatarURL != "" || linked.User.Email != "bob@example.com" {
		t.Errorf("got user %+v, error %v, want Bob as he was", linked.User, err)
	}
}

// TestProviderAnswers covers unexpected callbacks.
func TestProviderAnswers(t *testing.T) {
	f, p := newProviderFixture(t, dbtest.New(t), ada)
	finish := func(state, intent string) error {
		_, err := f.FinishProvider(t.Context(), account.ProviderAnswer{State: state, Code: "c"}, intent, client)
		return err
	}
	const foreign = "not started in this browser"
	n := 0
	depart := func() (state, intent string) {
		n++
		return f.depart(t, account.Client{IP: "192.0.2." + string(rune('0'+n%10)) + string(rune('0'+n/10))})
	}

	state, intent := depart()
	otherState, otherIntent := depart()
	for _, tt := range []struct{ state, intent string }{
		{state, ""}, {state, otherIntent}, {otherState, intent}, {"", intent}, {"x", intent}, {state + "A", intent}, {state[:42], intent},
		{strings.Repeat("A", 43), intent}, {intent, intent}, {p.asked[0].Nonce, intent}, {p.asked[0].Verifier, intent}, {state, state}, {state, "x"},
	} {
		wantInvalid(t, finish(tt.state, tt.intent), foreign)
	}
	if len(p.exchanged) != 0 {
		t.Error("a foreign answer reached the provider")
	}
	// None of them ends the sign-in of the requesting browser; its callback works once.
	if err := finish(state, intent); err != nil {
		t.Error(err)
	}
	wantInvalid(t, finish(state, intent), foreign)
	if err := finish(otherState, otherIntent); err != nil {
		t.Error(err)
	}

	// A refusal by the provider ends the sign-in, too.
	asked := len(p.exchanged)
	for _, tt := range []struct{ code, want string }{
		{"access_denied", "cancelled"},
		{"server_error", "refused the sign-in"},
		{"<script>\r\n\x00\xff", "refused the sign-in"},
	} {
		state, intent := depart()
		// From another browser it does not.
		_, err := f.FinishProvider(t.Context(), account.ProviderAnswer{State: state, Error: tt.code}, "", client)
		wantInvalid(t, err, foreign)
		_, err = f.FinishProvider(t.Context(), account.ProviderAnswer{State: state, Error: tt.code, Code: "c"}, intent, client)
		wantInvalid(t, err, tt.want)
		if e, ok := errors.AsType[*problem.Error](err); ok && strings.Contains(e.Message, "script") {
			t.Errorf("the message %q quotes the provider", e.Message)
		}
		wantInvalid(t, finish(state, intent), foreign)
	}
	if len(p.exchanged) != asked {
		t.Error("a code was exchanged beside an error")
	}

	for _, tt := range []struct {
		name string
		who  account.ProviderIdentity
		want string
	}{
		{"unverified", account.ProviderIdentity{Email: "ada@example.com"}, "has not verified"},
		{"unverified newcomer", account.ProviderIdentity{Email: "new@example.com"}, "has not verified"},
		{"no e-mail", account.ProviderIdentity{EmailVerified: true}, "valid e-mail"},
		{"no address", account.ProviderIdentity{Email: "ada", EmailVerified: true}, "valid e-mail"},
		{"two addresses", account.ProviderIdentity{Email: "ada@example.com, eve@example.com", EmailVerified: true}, "valid e-mail"},
		{"with a name", account.ProviderIdentity{Email: "Ada <ada@example.com>", EmailVerified: true}, "valid e-mail"},
		{"header", account.ProviderIdentity{Email: "ada@example.com\r\nBcc: eve@example.com", EmailVerified: true}, "valid e-mail"},
		{"Kelvin sign", account.ProviderIdentity{Email: "\u212aarl@example.com", EmailVerified: true}, "valid e-mail"},
		{"not UTF-8", account.ProviderIdentity{Email: "a\xff@example.com", EmailVerified: true}, "valid e-mail"},
	} {
		users, sessions := f.count(t, "SELECT count(*) FROM users"), f.count(t, "SELECT count(*) FROM sessions")
		p.who = tt.who
		state, intent := depart()
		wantInvalid(t, finish(state, intent), tt.want)
		wantInvalid(t, finish(state, intent), foreign)
		if u, s := f.count(t, "SELECT count(*) FROM users"), f.count(t, "SELECT count(*) FROM sessions"); u != users || s != sessions {
			t.Errorf("%s: got %d users and %d sessions, want %d and %d as before", tt.name, u, s, users, sessions)
		}
	}

	// Other claims are used if they are valid.
	for _, tt := range []struct{ email, name, picture string }{
		{"n1@example.com", "A\r\nB", "javascript:alert(1)"},
		{"n2@example.com", strings.Repeat("a", 256), "https://user@example.com/"},
		{"n3@example.com", "\xff", "https://example.com/\xff"},
		{"n4@example.com", " ", "/a.png"},
		{"n5@example.com", "A\u2028B", "data:image/png,"},
	} {
		p.who = account.ProviderIdentity{Email: tt.email, EmailVerified: true, Name: tt.name, Picture: tt.picture}
		state, intent := depart()
		in, err := f.FinishProvider(t.Context(), account.ProviderAnswer{State: state, Code: "c"}, intent, client)
		if err != nil || in.User.Email != tt.email || in.User.Name != "" || in.User.AvatarURL != "" {
			t.Errorf("%s: got user %+v, error %v, want one without name and picture", tt.email, in.User, err)
		}
	}

	// After an outage of the provider the sign-in starts over.
	p.err = problem.New(problem.Unavailable, "the identity provider does not answer")
	_, _, err := f.SignInWithProvider(t.Context(), account.ProviderSignIn{}, "", account.Client{IP: "192.0.2.250"})
	wantKind(t, err, problem.Unavailable)
	if n := f.count(t, "SELECT count(*) FROM provider_logins"); n != 0 {
		t.Errorf("got %d sign-ins under way, want 0", n)
	}
	p.err = nil
	state, intent = depart()
	p.err = problem.New(problem.Unavailable, "the identity provider does not answer")
	wantKind(t, finish(state, intent), problem.Unavailable)
	p.err = nil
	wantInvalid(t, finish(state, intent), foreign)
}

func TestProviderRace(t *testing.T) {
	f, _ := newProviderFixture(t, patientDB(t), ada)
	for round := range 5 {
		state, intent := f.depart(t, client)
		var passed atomic.Int32
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				_, err := f.FinishProvider(t.Context(), account.ProviderAnswer{State: state, Code: "c"}, intent, client)
				if err == nil {
					passed.Add(1)
				} else if problem.Of(err) != problem.Invalid {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := f.count(t, "SELECT count(*) FROM sessions"); passed.Load() != 1 || n != round+1 {
			t.Fatalf("round %d: got %d sign-ins, %d sessions so far, want 1 a round", round, passed.Load(), n)
		}
	}
}

func TestProviderLife(t *testing.T) {
	for _, tt := range []struct {
		after time.Duration
		want  string // in the refusal; empty: none
	}{
		{15*time.Minute - time.Second, ""},
		{15 * time.Minute, "longer than 15 minutes"},
		{24 * time.Hour, "longer than 15 minutes"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, p := newProviderFixture(t, dbtest.NewSQLite(t), ada)
			state, intent := f.depart(t, client)
			time.Sleep(tt.after)
			_, err := f.FinishProvider(t.Context(), account.ProviderAnswer{State: state, Code: "c"}, intent, client)
			if tt.want == "" {
				if err != nil {
					t.Errorf("after %v: %v", tt.after, err)
				}
				return
			}
			wantInvalid(t, err, tt.want)
			if len(p.exchanged) != 0 {
				t.Errorf("after %v: the code was exchanged", tt.after)
			}
			_, err = f.FinishProvider(t.Context(), account.ProviderAnswer{State: state, Code: "c"}, intent, client)
			wantInvalid(t, err, "completed already")
		})
	}
}

func TestProviderLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newProviderFixture(t, dbtest.NewSQLite(t), ada)
		try := func(ip string) error {
			_, _, err := f.SignInWithProvider(context.Background(), account.ProviderSignIn{}, "", account.Client{IP: ip})
			return err
		}
		// Invalid input is not counted.
		_, _, err := f.SignInWithProvider(t.Context(), account.ProviderSignIn{RedirectTo: "//evil.example"}, "", account.Client{IP: "192.0.2.1"})
		wantKind(t, err, problem.Invalid)
		for range 5 {
			if err := try("192.0.2.1"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(17500 * time.Millisecond)
		err = try("192.0.2.1")
		p, ok := errors.AsType[*problem.Error](err)
		if !ok || p.Kind != problem.RateLimited || p.RetryAfter != 42500*time.Millisecond ||
			p.Message != "too many sign-in attempts, try again in 43 seconds" {
			t.Errorf("got error %v the sixth time", err)
		}
		if err := try("192.0.2.2"); err != nil {
			t.Errorf("another address: %v", err)
		}
		f.signIn(t, "ada@example.com") // another way to sign in
		time.Sleep(42500 * time.Millisecond)
		if err := try("192.0.2.1"); err != nil {
			t.Error(err)
		}
	})
}

func TestNoProvider(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	_, _, err := f.SignInWithProvider(t.Context(), account.ProviderSignIn{}, "", client)
	wantKind(t, err, problem.Precondition)
	_, err = f.FinishProvider(t.Context(), account.ProviderAnswer{State: strings.Repeat("A", 43), Code: "c"}, strings.Repeat("A", 43), client)
	wantKind(t, err, problem.Precondition)
}

// TestSignInRedirects: every way to sign in checks redirect targets, and redirects to
// allowed ones.
func TestSignInRedirects(t *testing.T) {
	f, _ := newProviderFixture(t, dbtest.New(t), ada)
	for i, tt := range account.RedirectTargets {
		who := account.Client{IP: fmt.Sprintf("2001:db8:0:%x::1", i)}
		email := "ada" + string(rune('a'+i/26)) + string(rune('a'+i%26)) + "@example.com"
		links, logins := f.count(t, "SELECT count(*) FROM login_links"), f.count(t, "SELECT count(*) FROM provider_logins")

		address, intent, err := f.SignInWithProvider(t.Context(), account.ProviderSignIn{RedirectTo: tt.Target}, "", who)
		linkIntent, linkErr := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: email, RedirectTo: tt.Target}, "", account.Client{})
		if !tt.OK {
			for _, err := range []error{err, linkErr} {
				p, ok := errors.AsType[*problem.Error](err)
				if !ok || p.Kind != problem.Invalid || len(p.Issues) != 1 || p.Issues[0].Path != "redirectTo" {
					t.Errorf("%s: %q: got error %v, want an issue with redirectTo", tt.Name, tt.Target, err)
				}
			}
			if a, b := f.count(t, "SELECT count(*) FROM login_links"), f.count(t, "SELECT count(*) FROM provider_logins"); a != links || b != logins {
				t.Errorf("%s: %q: a refused sign-in was stored", tt.Name, tt.Target)
			}
			continue
		}
		if err != nil || linkErr != nil {
			t.Errorf("%s: %q: got errors %v and %v", tt.Name, tt.Target, err, linkErr)
			continue
		}
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		in, err := f.FinishProvider(t.Context(), account.ProviderAnswer{State: u.Query().Get("state"), Code: "c"}, intent, client)
		if err != nil || in.RedirectTo != tt.Target {
			t.Errorf("%s: got redirect %q by the provider, error %v, want %q", tt.Name, in.RedirectTo, err, tt.Target)
		}
		in, err = f.FollowLink(t.Context(), f.mail.token(t), linkIntent, client)
		if err != nil || in.RedirectTo != tt.Target {
			t.Errorf("%s: got redirect %q by link, error %v, want %q", tt.Name, in.RedirectTo, err, tt.Target)
		}
	}
}
