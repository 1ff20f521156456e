package account_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// in signs in by link in a browser with a cookie; the result has its new one.
func (f *fixture) in(t *testing.T, email, cookie string) account.SignIn {
	t.Helper()
	return f.signInFrom(t, email, account.Client{IP: "192.0.2.7", UserAgent: firefoxOnLinux, Browser: cookie})
}

func (f *fixture) browsers(t *testing.T, userID string) []account.KnownBrowser {
	t.Helper()
	list, err := f.KnownBrowsers(t.Context(), userID)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestKnownBrowsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		start := time.Now().UTC().Truncate(time.Microsecond)
		first := f.in(t, "ada@example.com", "")
		ada := first.User.ID
		time.Sleep(time.Hour)
		again := f.in(t, "ada@example.com", first.Tokens.Browser)
		if again.Tokens.Browser != first.Tokens.Browser {
			t.Error("a known browser got another cookie")
		}
		want := account.KnownBrowser{UserAgent: firefoxOnLinux, Device: "Firefox on Linux", FirstSeen: start, LastSeen: start.Add(time.Hour)}
		if got := f.browsers(t, ada); len(got) != 1 || got[0] != want {
			t.Errorf("got browsers %+v, want only %+v", got, want)
		}

		// Another user of the same browser has a token of their own.
		eve := f.in(t, "eve@example.com", again.Tokens.Browser)
		if !strings.HasSuffix(eve.Tokens.Browser, "."+first.Tokens.Browser) {
			t.Error("a second user's sign-in took the first one's token")
		}
		if both := f.in(t, "ada@example.com", eve.Tokens.Browser); both.Tokens.Browser != eve.Tokens.Browser {
			t.Error("the first user is not known there any more")
		}

		// A cookie that was not issued to the user does not become known.
		planted := f.in(t, "ada@example.com", strings.Split(eve.Tokens.Browser, ".")[0])
		if got := f.browsers(t, ada); len(got) != 2 || planted.Tokens.Browser == eve.Tokens.Browser {
			t.Errorf("got %d browsers after one with a planted cookie, want 2", len(got))
		}

		// Neither a refresh nor a sign-out changes the cookie.
		if _, fresh, err := f.Authenticate(t.Context(), "", first.Tokens.Refresh, client); err != nil || fresh.Browser != "" {
			t.Errorf("got %+v, %v from a refresh", fresh, err)
		}
		if err := f.SignOut(t.Context(), planted.SessionID); err != nil {
			t.Fatal(err)
		}
		if got := f.browsers(t, ada); len(got) != 2 {
			t.Errorf("got %d browsers after a sign-out, want 2", len(got))
		}

		time.Sleep(account.BrowserLife + time.Microsecond)
		if err := f.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := f.count(t, "SELECT count(*) FROM known_browsers"); n != 0 {
			t.Errorf("%d browsers are known after their time, want none", n)
		}
		if late := f.in(t, "ada@example.com", first.Tokens.Browser); late.Tokens.Browser == first.Tokens.Browser {
			t.Error("a browser is known after its time")
		}
	})
}

// TestKnownBrowserEndsWithItsSession: ending a session elsewhere makes its browser
// unknown, and a changed password makes all other browsers unknown.
func TestKnownBrowserEndsWithItsSession(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	laptop := f.in(t, "ada@example.com", "")
	ada := laptop.User.ID
	stolen := f.in(t, "ada@example.com", "")
	older := f.in(t, "ada@example.com", laptop.Tokens.Browser)
	if err := f.EndSession(t.Context(), ada, stolen.SessionID); err != nil {
		t.Fatal(err)
	}
	if again := f.in(t, "ada@example.com", stolen.Tokens.Browser); again.Tokens.Browser == stolen.Tokens.Browser {
		t.Error("the browser of an ended session is still known")
	}
	// Two sessions in one browser: it stays known through the other one.
	if err := f.EndSession(t.Context(), ada, older.SessionID); err != nil {
		t.Fatal(err)
	}
	if n := f.count(t, "SELECT count(*) FROM known_browsers"); n != 2 {
		t.Errorf("%d browsers are known, want 2", n)
	}
	if _, err := f.EndSessions(t.Context(), ada, laptop.SessionID); err != nil {
		t.Fatal(err)
	}
	if n := f.count(t, "SELECT count(*) FROM known_browsers"); n != 1 {
		t.Errorf("%d browsers are known after all other sessions ended, want 1", n)
	}
	if again := f.in(t, "eve@example.com", laptop.Tokens.Browser); f.count(t, "SELECT count(*) FROM known_browsers") != 2 || again.Tokens.Browser == laptop.Tokens.Browser {
		t.Error("a browser that one user is known in was taken for another's")
	}
	if _, err := f.EndSessions(t.Context(), ada, ""); err != nil {
		t.Fatal(err)
	}
	if got := f.browsers(t, ada); len(got) != 0 {
		t.Errorf("got browsers %+v after all sessions ended, want none", got)
	}
}

func TestKnownBrowsersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		first := f.in(t, "ada@example.com", "")
		time.Sleep(time.Hour)
		cookie := ""
		for i := range 60 {
			time.Sleep(time.Hour)
			f.in(t, "ada@example.com", "")
			cookie = f.in(t, fmt.Sprintf("user%d@example.com", i), cookie).Tokens.Browser
		}
		if got := f.browsers(t, first.User.ID); len(got) != 50 {
			t.Errorf("got %d browsers, want 50", len(got))
		}
		if again := f.in(t, "ada@example.com", first.Tokens.Browser); again.Tokens.Browser == first.Tokens.Browser {
			t.Error("the browser that was used longest ago is still known")
		}
		if got := strings.Count(cookie, ".") + 1; got != 8 {
			t.Errorf("a browser of 60 people keeps %d tokens, want 8", got)
		}
		// At most eight tokens of a cookie are read.
		f.in(t, "ada@example.com", strings.Repeat("x.", 10_000)+cookie)
	})
}
