package account_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// sameUser compares users; preferences are slices.
func sameUser(a, b account.User) bool {
	same := string(a.Preferences) == string(b.Preferences) && a.CreatedAt.Equal(b.CreatedAt) && a.UpdatedAt.Equal(b.UpdatedAt)
	for _, u := range []*account.User{&a, &b} {
		u.Preferences, u.CreatedAt, u.UpdatedAt = nil, time.Time{}, time.Time{}
	}
	return same && a.ID == b.ID && a.Email == b.Email && a.Name == b.Name && a.AvatarURL == b.AvatarURL &&
		a.OrganizationID == b.OrganizationID && a.Role == b.Role
}

func TestUpdateProfile(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	o := f.organization(t, "Acme")
	bob, _ := f.member(t, o, "bob@example.com", account.Agent)
	ada, _ := f.member(t, o, "ada@example.com", account.Admin)
	want := ada.User
	for _, tt := range []struct {
		name string
		in   string // raw input
		set  func(u *account.User)
	}{
		{"nothing", `{}`, func(*account.User) {}},
		{"name", `{"name":" Ada Lovelace "}`, func(u *account.User) { u.Name = "Ada Lovelace" }},
		{"picture", `{"avatar_url":"https://example.com/ada.png?s=1#x"}`, func(u *account.User) { u.AvatarURL = "https://example.com/ada.png?s=1#x" }},
		{"preferences", `{"preferences":{"a":{"b":[1,null]}}}`, func(u *account.User) { u.Preferences = json.RawMessage(`{"a":{"b":[1,null]}}`) }},
		{"preferences as a whole", `{"preferences":{"c":1}}`, func(u *account.User) { u.Preferences = json.RawMessage(`{"c":1}`) }},
		{"numbers as given", `{"preferences":{"n":123456789012345678901234567890.10,"e":1e999}}`, func(u *account.User) {
			u.Preferences = json.RawMessage(`{"n":123456789012345678901234567890.10,"e":1e999}`)
		}},
		{"text as given", `{"preferences":{"\u0000":"\ud800 <é>"}}`, func(u *account.User) { u.Preferences = json.RawMessage(`{"\u0000":"\ud800 <é>"}`) }},
		{"all", `{"name":"A","avatar_url":"http://example.com/a","preferences":{}}`, func(u *account.User) {
			u.Name, u.AvatarURL, u.Preferences = "A", "http://example.com/a", json.RawMessage(`{}`)
		}},
		{"null is nothing", `{"name":null,"avatar_url":null}`, func(*account.User) {}},
		{"no picture any more", `{"avatar_url":""}`, func(u *account.User) { u.AvatarURL = "" }},
		{"markup is text", `{"name":"<b>Ada</b> & \"Co\""}`, func(u *account.User) { u.Name = `<b>Ada</b> & "Co"` }},
	} {
		var p account.Profile
		if err := json.Unmarshal([]byte(tt.in), &p); err != nil {
			t.Fatal(err)
		}
		got, err := f.UpdateProfile(t.Context(), ada.UserID, p)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		tt.set(&want)
		want.UpdatedAt = got.UpdatedAt
		if !sameUser(got, want) {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, want)
		}
		if stored, err := f.User(t.Context(), ada.UserID); err != nil || !sameUser(stored, want) {
			t.Errorf("%s: got stored %+v, error %v, want %+v", tt.name, stored, err, want)
		}
	}
	if got, err := f.User(t.Context(), bob.UserID); err != nil || !sameUser(got, bob.User) {
		t.Errorf("got another user %+v, error %v, want %+v", got, err, bob.User)
	}
	_, err := f.UpdateProfile(t.Context(), "nobody", account.Profile{Name: new("Eve")})
	wantKind(t, err, problem.Unauthorized)
}

func TestProfileInput(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	in := f.signIn(t, "ada@example.com")
	name := func(s string) account.Profile { return account.Profile{Name: &s} }
	picture := func(s string) account.Profile { return account.Profile{AvatarURL: &s} }
	preferences := func(s string) account.Profile { return account.Profile{Preferences: json.RawMessage(s)} }
	// 16 KiB and more bytes.
	large := func(more int) string { return `{"a":"` + strings.Repeat("x", 16<<10-8+more) + `"}` }
	deep := func(n int) string { return `{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}` }
	base := "https://example.com/"

	for _, tt := range []struct {
		name string
		in   account.Profile
		want []string // paths with issues; nil: none
	}{
		{"name of 1", name("A"), nil},
		{"name of 255", name(strings.Repeat("é", 255)), nil},
		{"name of 255 in spaces", name(" \t" + strings.Repeat("é", 255) + "\n"), nil},
		{"empty name", name(""), []string{"name"}},
		{"blank name", name(" \u2028\t"), []string{"name"}},
		{"name of 256", name(strings.Repeat("a", 256)), []string{"name"}},
		{"line feed in name", name("A\nBcc: eve@example.com"), []string{"name"}},
		{"carriage return in name", name("A\rB"), []string{"name"}},
		{"tab in name", name("A\tB"), []string{"name"}},
		{"C1 control in name", name("A\u0085B"), []string{"name"}},
		{"line separator in name", name("A\u2028B"), []string{"name"}},
		{"paragraph separator in name", name("A\u2029B"), []string{"name"}},
		{"NUL in name", name("A\x00B"), []string{"name"}},
		{"name not UTF-8", name("A\xff"), []string{"name"}},

		{"picture of 2048", picture(base + strings.Repeat("a", 2048-len(base))), nil},
		{"picture of 2049", picture(base + strings.Repeat("a", 2049-len(base))), []string{"avatar_url"}},
		{"picture with other letters", picture("https://exämple.com/ü.png"), nil},
		{"picture at a port", picture("http://localhost:3000/a"), nil},
		{"script", picture("javascript:alert(1)"), []string{"avatar_url"}},
		{"script in capitals", picture("JavaScript:alert(1)"), []string{"avatar_url"}},
		{"script that looks like a host", picture("javascript://example.com/%0aalert(1)"), []string{"avatar_url"}},
		{"data", picture("data:image/png;base64,AAAA"), []string{"avatar_url"}},
		{"file", picture("file:///etc/passwd"), []string{"avatar_url"}},
		{"ftp", picture("ftp://example.com/a.png"), []string{"avatar_url"}},
		{"user", picture("https://user@example.com/"), []string{"avatar_url"}},
		{"user and password", picture("https://user:pass@example.com/"), []string{"avatar_url"}},
		{"empty user", picture("https://@example.com/"), []string{"avatar_url"}},
		{"no host", picture("https:///a.png"), []string{"avatar_url"}},
		{"only a port", picture("https://:443/a.png"), []string{"avatar_url"}},
		{"no slashes", picture("https:example.com"), []string{"avatar_url"}},
		{"no scheme", picture("//example.com/a.png"), []string{"avatar_url"}},
		{"path", picture("/a.png"), []string{"avatar_url"}},
		{"backslash", picture(`https:\\example.com`), []string{"avatar_url"}},
		{"space", picture("https://example.com/a b"), []string{"avatar_url"}},
		{"leading space", picture(" https://example.com/"), []string{"avatar_url"}},
		{"line end in URL", picture("https://example.com/\r\n"), []string{"avatar_url"}},
		{"NUL in URL", picture("https://example.com/\x00"), []string{"avatar_url"}},
		{"line separator in URL", picture("https://example.com/\u2028"), []string{"avatar_url"}},
		{"C1 control in URL", picture("https://example.com/\u0085"), []string{"avatar_url"}},
		{"no-break space in URL", picture("https://example.com/\u00a0"), []string{"avatar_url"}},
		{"URL not UTF-8", picture("https://example.com/\xff"), []string{"avatar_url"}},
		{"bad escape", picture("https://example.com/%zz"), []string{"avatar_url"}},

		{"empty preferences", preferences(`{}`), nil},
		{"preferences in space", preferences(" \n{\"a\":1}\t"), nil},
		{"preferences of 16 KiB", preferences(large(0)), nil},
		{"preferences of 16 KiB and 1", preferences(large(1)), []string{"preferences"}},
		{"deep preferences", preferences(deep(8000)), nil},
		{"preferences of null", preferences(`null`), []string{"preferences"}},
		{"preferences of a list", preferences(`[{}]`), []string{"preferences"}},
		{"preferences of text", preferences(`"{}"`), []string{"preferences"}},
		{"preferences of a number", preferences(`1`), []string{"preferences"}},
		{"preferences of nothing", preferences(``), []string{"preferences"}},
		{"preferences of space", preferences(` `), []string{"preferences"}},
		{"two objects", preferences(`{}{}`), []string{"preferences"}},
		{"broken preferences", preferences(`{"a":`), []string{"preferences"}},
		{"NUL in preferences", preferences("{\"a\":\"\x00\"}"), []string{"preferences"}},
		{"preferences not UTF-8", preferences("{\"a\":\"\xff\"}"), []string{"preferences"}},

		{"all wrong", account.Profile{Name: new(""), AvatarURL: new("x"), Preferences: json.RawMessage("1")}, []string{"name", "avatar_url", "preferences"}},
		{"one of three wrong", account.Profile{Name: new("Eve"), AvatarURL: new("x"), Preferences: json.RawMessage("{}")}, []string{"avatar_url"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, err := f.User(t.Context(), in.User.ID)
			if err != nil {
				t.Fatal(err)
			}
			got, err := f.UpdateProfile(t.Context(), in.User.ID, tt.in)
			if tt.want == nil {
				if err != nil {
					t.Error(err)
				} else if stored, err := f.User(t.Context(), in.User.ID); err != nil || !sameUser(stored, got) {
					t.Errorf("got %+v, stored as %+v, error %v", got, stored, err)
				}
				return
			}
			p, ok := errors.AsType[*problem.Error](err)
			if !ok || p.Kind != problem.Invalid {
				t.Fatalf("got error %v, want an invalid input", err)
			}
			var paths []string
			for _, i := range p.Issues {
				paths = append(paths, i.Path)
			}
			if paths = slices.Compact(paths); !slices.Equal(paths, tt.want) {
				t.Errorf("got issues with %q, want %q", paths, tt.want)
			}
			if after, err := f.User(t.Context(), in.User.ID); err != nil || !sameUser(after, before) {
				t.Errorf("got user %+v, error %v, want it unchanged", after, err)
			}
		})
	}
}

func TestProfileTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		in := f.signIn(t, "ada@example.com")
		time.Sleep(time.Hour)
		u, err := f.UpdateProfile(t.Context(), in.User.ID, account.Profile{Name: new("Ada")})
		if err != nil {
			t.Fatal(err)
		}
		if got := u.UpdatedAt.Sub(in.User.UpdatedAt); got != time.Hour {
			t.Errorf("got the time of the last change moved by %v, want 1h", got)
		}
		if !u.CreatedAt.Equal(in.User.CreatedAt) {
			t.Errorf("got created at %v, want %v", u.CreatedAt, in.User.CreatedAt)
		}
	})
}
