package account_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// signInFrom is signIn with another client.
func (f *fixture) signInFrom(t *testing.T, email string, c account.Client) account.SignIn {
	t.Helper()
	if _, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: email}, "", account.Client{}); err != nil {
		t.Fatal(err)
	}
	in, err := f.FollowLink(t.Context(), f.mail.token(t), "", c)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

const (
	firefoxOnLinux = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
	safariOnPhone  = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1"
)

func TestSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		start := time.Now().UTC().Truncate(time.Microsecond)
		phone := f.signInFrom(t, "ada@example.com", account.Client{IP: "192.0.2.1", UserAgent: safariOnPhone})
		f.signIn(t, "eve@example.com")
		time.Sleep(time.Hour)
		desk := f.signInFrom(t, "ada@example.com", account.Client{IP: "2001:db8::1", UserAgent: firefoxOnLinux})
		time.Sleep(time.Hour)
		// A refresh counts as a use, from the client's address.
		_, fresh, err := f.Authenticate(t.Context(), "", phone.Tokens.Refresh, account.Client{IP: "192.0.2.99", UserAgent: safariOnPhone})
		if err != nil {
			t.Fatal(err)
		}
		phone.Tokens = *fresh
		want := []account.Session{
			{ID: phone.SessionID, IP: "192.0.2.99", UserAgent: safariOnPhone, Device: "Safari on iPhone", Current: true, CreatedAt: start, UsedAt: start.Add(2 * time.Hour)},
			{ID: desk.SessionID, IP: "2001:db8::1", UserAgent: firefoxOnLinux, Device: "Firefox on Linux", CreatedAt: start.Add(time.Hour), UsedAt: start.Add(time.Hour)},
		}
		list := func(by account.Identity) []account.Session {
			t.Helper()
			got, err := f.Sessions(t.Context(), by)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		here := f.identity(t, phone)
		if got := list(here); !slices.Equal(got, want) {
			t.Errorf("got sessions\n%+v, want\n%+v", got, want)
		}
		// Without a session, none is current.
		want[0].Current = false
		if got := list(account.Identity{UserID: here.UserID}); !slices.Equal(got, want) {
			t.Errorf("got sessions\n%+v, want\n%+v", got, want)
		}
		// The session on the desk ends 30 days after its last use, in the list as for
		// requests.
		time.Sleep(30*24*time.Hour - time.Hour - time.Microsecond)
		if got := list(here); len(got) != 2 {
			t.Errorf("got %d sessions just before one expires, want 2", len(got))
		}
		time.Sleep(time.Microsecond)
		if got := list(here); len(got) != 1 || got[0].ID != phone.SessionID {
			t.Errorf("got sessions %+v after one expired, want that of the phone", got)
		}
		_, _, err = f.Authenticate(t.Context(), "", desk.Tokens.Refresh, client)
		wantKind(t, err, problem.Unauthorized)
		if _, _, err := f.Authenticate(t.Context(), "", phone.Tokens.Refresh, client); err != nil {
			t.Errorf("what is on the list cannot be used: %v", err)
		}
	})
}

func TestDevices(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	for i, tt := range []struct{ agent, want string }{
		{firefoxOnLinux, "Firefox on Linux"},
		{safariOnPhone, "Safari on iPhone"},
		{"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36", "Chrome on Windows"},
		{"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36 Edg/126.0.0.0", "Edge on Windows"},
		{"Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Safari/605.1.15", "Safari on macOS"},
		{"Mozilla/5.0 (iPad; CPU OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/126.0.6478.54 Mobile/15E148 Safari/604.1", "Chrome on iPad"},
		{"Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Mobile Safari/537.36", "Chrome on Android"},
		{"Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Mobile Safari/537.36", "Chrome on Pixel 8"},
		{"Mozilla/5.0 (Linux; Android 14; SM-S921B Build/UP1A) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/25.0 Chrome/121.0.0.0 Mobile Safari/537.36", "Samsung Browser on SM-S921B"},
		{"Mozilla/5.0 (Android 14; Mobile; rv:127.0) Gecko/127.0 Firefox/127.0", "Firefox on Android"},
		{"Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36", "Chrome on ChromeOS"},
		{"curl/8.5.0", "curl"},
		{"Go-http-client/1.1", "Go-http-client"},
		{"python-requests/2.32.3", "python-requests"},
		{"node", "node"},

		{"", ""},
		{" ", ""},
		{"-", ""},
		{"Mozilla/5.0", ""},
		{"<script>alert(1)</script>", ""},
		{"'; DROP TABLE sessions; --", ""},
		{"https://evil.example/", ""},
		{"\u202egnp.exe", ""},
		{"one\u2028two", ""},
		{"a\tb\x01c\x00d", ""},
		{"Firefox\xff/128", "Firefox"},
		{strings.Repeat("A", 1<<16), ""},
		{strings.Repeat("é", 200), ""},
		{"Mozilla/5.0 (" + strings.Repeat("(", 1000), ""},
		{"Mozilla/5.0 (Linux; Android 10; " + strings.Repeat("x", 100) + ") AppleWebKit/537.36 Chrome/126 Mobile Safari/537.36", "Chrome on Android"},
		{"Mozilla/5.0 (Linux; Android 10; <b>) AppleWebKit/537.36 Chrome/126 Mobile Safari/537.36", "Chrome on Android"},
	} {
		in := f.signInFrom(t, fmt.Sprintf("ada%d@example.com", i), account.Client{IP: "192.0.2.1", UserAgent: tt.agent})
		list, err := f.Sessions(t.Context(), f.identity(t, in))
		if err != nil || len(list) != 1 {
			t.Fatalf("%.80q: got %d sessions, error %v, want 1", tt.agent, len(list), err)
		}
		if got := list[0]; got.Device != tt.want || len(got.UserAgent) > 255 {
			t.Errorf("%.80q: got device %q, and %d bytes of user agent, want %q and at most 255", tt.agent, got.Device, len(got.UserAgent), tt.want)
		}
	}
}

func TestEndSessions(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	var ada [4]account.SignIn
	for i := range ada {
		ada[i] = f.signIn(t, "ada@example.com")
	}
	eve := f.signIn(t, "eve@example.com")
	id := eve.User.ID
	alive := func(want string) {
		t.Helper()
		var got strings.Builder
		for _, in := range append(ada[:], eve) {
			if f.works(t, in.Tokens.Access) {
				got.WriteString("y")
			} else {
				got.WriteString("n")
				_, _, err := f.Authenticate(t.Context(), in.Tokens.Access, in.Tokens.Refresh, client)
				wantKind(t, err, problem.Unauthorized)
			}
		}
		if got.String() != want {
			t.Fatalf("got sessions alive %s, want %s", got.String(), want)
		}
	}
	end := func(userID, except string, want int64) {
		t.Helper()
		if n, err := f.EndSessions(t.Context(), userID, except); err != nil || n != want {
			t.Errorf("got %d sessions ended, error %v, want %d", n, err, want)
		}
	}
	for _, other := range []string{ada[0].SessionID, "nothing", "", eve.SessionID + "x"} {
		wantKind(t, f.EndSession(t.Context(), id, other), problem.NotFound)
	}
	alive("yyyyy")
	if err := f.EndSession(t.Context(), ada[0].User.ID, ada[1].SessionID); err != nil {
		t.Fatal(err)
	}
	alive("ynyyy")
	wantKind(t, f.EndSession(t.Context(), ada[0].User.ID, ada[1].SessionID), problem.NotFound)
	end(id, ada[0].SessionID, 1) // except is another user's session: all of hers end
	alive("ynyyn")
	end(ada[0].User.ID, ada[2].SessionID, 2)
	alive("nnynn")
	end(ada[0].User.ID, ada[2].SessionID, 0)
	alive("nnynn")
	end(ada[0].User.ID, "", 1)
	alive("nnnnn")
	if n := f.count(t, "SELECT count(*) FROM session_tokens"); n != 0 {
		t.Errorf("got %d tokens of sessions that ended, want 0", n)
	}
}

// TestEndSessionsRace: ending all sessions concurrently with other endings and refreshes
// does not fail.
func TestEndSessionsRace(t *testing.T) {
	f := newFixture(t, patientDB(t))
	for round := range 4 {
		var ins [5]account.SignIn
		for i := range ins {
			ins[i] = f.signIn(t, fmt.Sprintf("ada%d@example.com", round))
		}
		var wg sync.WaitGroup
		for _, in := range ins {
			wg.Go(func() {
				if _, err := f.EndSessions(t.Context(), in.User.ID, ""); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				if _, _, err := f.Authenticate(t.Context(), "", in.Tokens.Refresh, client); err != nil && problem.Of(err) != problem.Unauthorized {
					t.Error(err)
				}
			})
			wg.Go(func() {
				if err := f.EndSession(t.Context(), in.User.ID, in.SessionID); err != nil && problem.Of(err) != problem.NotFound {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := f.count(t, "SELECT count(*) FROM sessions"); n != 0 {
			t.Fatalf("got %d sessions left, want 0", n)
		}
	}
}
