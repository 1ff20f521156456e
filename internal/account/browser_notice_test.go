package account_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

const browserSubject = "New sign-in to your Kickstand account"

// notices returns the mails about new browsers.
func (f *fixture) notices() []mail.Message {
	var list []mail.Message
	for _, m := range f.mail.all() {
		if m.Subject == browserSubject {
			list = append(list, m)
		}
	}
	return list
}

func withNotices(c *account.Config) { c.BrowserNotices = true }

// TestAttackUnnoticedSignIn: a sign-in from elsewhere, with a stolen password or mailbox,
// is reported to the owner.
func TestAttackUnnoticedSignIn(t *testing.T) {
	f := newFixture(t, dbtest.New(t), withNotices)
	const phone = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.0 Mobile/15E148 Safari/604.1"
	home := f.in(t, "Ada@example.com", "")
	if n := len(f.notices()); n != 0 {
		t.Fatalf("got %d notices of the first sign-in ever, want none", n)
	}
	f.in(t, "ada@example.com", home.Tokens.Browser)
	if n := len(f.notices()); n != 0 {
		t.Fatalf("got %d notices of a known browser, want none", n)
	}
	if err := f.SetPassword(t.Context(), account.Identity{UserID: home.User.ID}, account.FirstPassword{Password: "correct horse"}); err != nil {
		t.Fatal(err)
	}
	before := time.Now().UTC()
	stolen, err := f.SignInWithPassword(t.Context(), account.PasswordSignIn{Email: "ada@example.com", Password: "correct horse"},
		account.Client{IP: "203.0.113.9", UserAgent: phone})
	if err != nil {
		t.Fatal(err)
	}
	list := f.notices()
	if len(list) != 1 {
		t.Fatalf("got %d notices of a new browser, want 1", len(list))
	}
	checkMail(t, list[0], "Ada@example.com", browserSubject)
	for _, want := range []string{"Safari on iPhone, from 203.0.113.9, on " + before.Format("2 January 2006 at "), "https://help.example.com/settings/sessions"} {
		if !strings.Contains(list[0].Text, want) {
			t.Errorf("got mail %q, want %q in it", list[0].Text, want)
		}
	}
	// One per browser.
	f.signInFrom(t, "ada@example.com", account.Client{IP: "203.0.113.10", UserAgent: phone, Browser: stolen.Tokens.Browser})
	if n := len(f.notices()); n != 1 {
		t.Errorf("got %d notices after a second sign-in there, want 1", n)
	}
	// A reset makes all browsers unknown. The next sign-in is still reported.
	if err := f.ResetPassword(t.Context(), f.reset(t, "ada@example.com"), "another horse"); err != nil {
		t.Fatal(err)
	}
	f.in(t, "ada@example.com", "")
	if n := len(f.notices()); n != 2 {
		t.Errorf("got %d notices after a reset, want 2", n)
	}
}

// TestNewBrowserNoticeIsText: the notice does not quote the user agent.
func TestNewBrowserNoticeIsText(t *testing.T) {
	f := newFixture(t, dbtest.New(t), withNotices)
	f.in(t, "ada@example.com", "")
	f.signInFrom(t, "ada@example.com", account.Client{UserAgent: "Visit http://evil.example now <b>"})
	list := f.notices()
	if len(list) != 1 || strings.Contains(list[0].Text+list[0].HTML, "evil") || !strings.Contains(list[0].Text, "an unknown browser or program, from an unknown address") {
		t.Errorf("got notices %+v", list)
	}
}

// TestNewBrowserNoticesAreBounded: a program without cookies does not fill a mailbox.
func TestNewBrowserNoticesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t), withNotices)
		for range 12 {
			f.in(t, "ada@example.com", "")
			time.Sleep(15 * time.Second) // within the limit of links
		}
		if n := len(f.notices()); n != 4 { // the first sign-in sends none
			t.Errorf("got %d notices within an hour, want 4", n)
		}
		time.Sleep(time.Hour)
		f.in(t, "ada@example.com", "")
		if n := len(f.notices()); n != 5 {
			t.Errorf("got %d notices an hour later, want 5", n)
		}
	})
}

// TestAttackSessionKeptAlive: a stolen session in daily use ends nevertheless.
func TestAttackSessionKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t), func(c *account.Config) { c.SessionLife = 60 * 24 * time.Hour })
		in := f.signIn(t, "ada@example.com")
		if in.Tokens.RefreshLife != 30*24*time.Hour || in.Tokens.AccessLife != time.Hour {
			t.Errorf("got lives %v and %v", in.Tokens.AccessLife, in.Tokens.RefreshLife)
		}
		tokens := in.Tokens
		for day := 1; day < 60; day++ {
			time.Sleep(24 * time.Hour)
			_, fresh, err := f.Authenticate(t.Context(), "", tokens.Refresh, client)
			if err != nil {
				t.Fatalf("day %d: %v", day, err)
			}
			tokens = *fresh
			if want := min(30, time.Duration(60-day)) * 24 * time.Hour; tokens.RefreshLife != want {
				t.Errorf("day %d: got refresh life %v, want %v", day, tokens.RefreshLife, want)
			}
		}
		time.Sleep(24*time.Hour - 10*time.Minute)
		_, fresh, err := f.Authenticate(t.Context(), "", tokens.Refresh, client)
		if err != nil {
			t.Fatal(err)
		}
		if fresh.AccessLife != 10*time.Minute || fresh.RefreshLife != 10*time.Minute {
			t.Errorf("got lives %v and %v ten minutes before the end", fresh.AccessLife, fresh.RefreshLife)
		}
		time.Sleep(10 * time.Minute)
		for name, pair := range map[string][2]string{"access": {fresh.Access, ""}, "refresh": {"", fresh.Refresh}, "both": {fresh.Access, fresh.Refresh}, "used": {"", tokens.Refresh}} {
			_, _, err := f.Authenticate(t.Context(), pair[0], pair[1], client)
			if problem.Of(err) != problem.Unauthorized {
				t.Errorf("%s token: got error %v after the session's end, want it refused", name, err)
			}
		}
		time.Sleep(time.Microsecond)
		if err := f.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		again := f.identity(t, f.signIn(t, "ada@example.com"))
		if list, err := f.Sessions(t.Context(), again); err != nil || len(list) != 1 || f.count(t, "SELECT count(*) FROM sessions") != 1 {
			t.Errorf("got sessions %+v, error %v, want the new one only", list, err)
		}
	})
}
