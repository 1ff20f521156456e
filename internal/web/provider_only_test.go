package web_test

import (
	"net/url"
	"strings"
	"testing"
)

// TestAttackPagesAroundTheProvider checks that each sign-in page refuses the user with
// the next step, and sets no cookie.
func TestAttackPagesAroundTheProvider(t *testing.T) {
	f := newFixture(t)
	_, link := f.requestReset("ada@example.com")
	signIn, intent := f.requestLink("")
	f.exec("UPDATE organizations SET provider_only = 'all'")
	door := f.post("/sign-in", url.Values{"email": {"ada@example.com"}, "password": {oldPassword}})
	page := wantPage(t, door)
	if door.Code != 403 || len(door.Result().Cookies()) != 0 || !strings.Contains(page.Alert(), "sign-in with its identity provider") || len(page.WithAttr("action", "/sign-in/provider")) != 1 {
		t.Errorf("by password: got %d with cookies %v, alert %q", door.Code, door.Result().Cookies(), page.Alert())
	}
	byLink := f.serve("GET", signIn, cookie("svc-login-intent", intent))
	wantPage(t, byLink).Want("identity provider only")
	byReset := f.submit(wantPage(t, f.serve("GET", link)), map[string]string{"password": newPassword, "repeat": newPassword})
	wantPage(t, byReset).Want("identity provider only")
	if byLink.Code != 403 || byReset.Code != 403 || len(byLink.Result().Cookies()) != 0 {
		t.Errorf("got %d by link, %d by reset, cookies %v", byLink.Code, byReset.Code, byLink.Result().Cookies())
	}
	if f.opens("ada@example.com", newPassword) {
		t.Error("the password was changed")
	}
}
