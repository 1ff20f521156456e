package settings_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// subscription is the form of a browser that subscribes.
func subscription(t *testing.T, endpoint string) url.Values {
	t.Helper()
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return url.Values{
		"endpoint": {endpoint}, "p256dh": {base64.RawURLEncoding.EncodeToString(key.PublicKey().Bytes())}, "auth": {base64.RawURLEncoding.EncodeToString(make([]byte, 16))},
	}
}

func TestBrowsersOfNotices(t *testing.T) {
	const path = "/settings/preferences"
	h := newHarness(t)
	key, err := h.push.PublicKey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	here, there := h.SignIn(h.Agent), h.SignIn(h.Agent)
	admin, stranger := h.SignIn(h.Admin), h.SignIn(h.NewUser(h.NewOrganization("Other"), "eve@other.example", "Eve", account.Admin))
	section := func(b *webtest.Browser) (string, bool) {
		s := b.Page(path).WithAttr("id", "push")[0]
		if webtest.Attr(s, "data-key") != key {
			t.Errorf("the page has the key %q", webtest.Attr(s, "data-key"))
		}
		return webtest.Text(s), webtest.Attr(s, "data-here") == "yes"
	}
	if text, on := section(here); on || strings.Contains(text, "Remove") {
		t.Errorf("without browsers: %q", text)
	}
	form := subscription(t, "https://push.example/a-secret")
	if _, notice := here.Follow(here.Post(path+"/browsers", form)); notice != "This browser shows your notices." {
		t.Errorf("got notice %q", notice)
	}
	text, on := section(here)
	if !on || !strings.Contains(text, "Unknown browser This browser") || strings.Contains(here.Get(path).Body.String(), "a-secret") {
		t.Errorf("here: %q", text)
	}
	if text, on := section(there); on || !strings.Contains(text, "Unknown browser since") {
		t.Errorf("in another browser: %q", text)
	}
	for _, b := range []*webtest.Browser{admin, stranger} {
		if text, _ := section(b); strings.Contains(text, "Unknown browser") {
			t.Errorf("another user sees %q", text)
		}
	}
	for what, form := range map[string]url.Values{
		"a private address": subscription(t, "https://10.0.0.1/"), "no https": subscription(t, "http://push.example/"), "no keys": {"endpoint": {"https://push.example/"}},
	} {
		if w := there.Post(path+"/browsers", form); w.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s was answered %d", what, w.Code)
		}
	}
	list, err := h.push.Subscriptions(t.Context(), h.DB, h.Organization.ID, h.Agent.ID)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d browsers, %v", len(list), err)
	}
	remove := fmt.Sprintf("%s/browsers/%s/remove", path, list[0].ID)
	for _, b := range []*webtest.Browser{admin, stranger} {
		b.WantRefused(b.Post(remove, nil), http.StatusNotFound)
	}
	// The session that it belongs to ends.
	there.Post("/settings/sessions", nil)
	if text, _ := section(there); strings.Contains(text, "Unknown browser") {
		t.Errorf("after the sign-out of the other session: %q", text)
	}
	there.Follow(there.Post(path+"/browsers", form))
	if list, err = h.push.Subscriptions(t.Context(), h.DB, h.Organization.ID, h.Agent.ID); err != nil || len(list) != 1 {
		t.Fatalf("%d browsers, %v", len(list), err)
	}
	if _, notice := there.Follow(there.Post(fmt.Sprintf("%s/browsers/%s/remove", path, list[0].ID), nil)); notice != "Browser removed." {
		t.Errorf("got notice %q", notice)
	}
	if text, on := section(there); on || strings.Contains(text, "Unknown browser") {
		t.Errorf("after it was removed: %q", text)
	}
}
