package main

import (
	"net/http"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"

	"github.com/oauth2-proxy/mockoidc"
)

// TestProviderSignIn signs a browser in through an identity provider, over HTTP.
func TestProviderSignIn(t *testing.T) {
	idp, err := mockoidc.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { idp.Shutdown() })
	s := start(t, "--data="+t.TempDir(), "--database-url="+dbtest.URL(t),
		"--oidc-issuer="+idp.Issuer(), "--oidc-client-id="+idp.ClientID, "--oidc-client-secret="+idp.ClientSecret)

	c := browser(t)
	get := func(c *http.Client, url string, want int) string {
		t.Helper()
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Fatalf("%s: got status %d, want %d", url, resp.StatusCode, want)
		}
		return resp.Header.Get("Location")
	}
	var out struct{ URL string }
	call(t, c, s.url, "auth.signInWithProvider", map[string]any{"redirectTo": s.url + "/inbox"}, &out)
	callback := get(c, out.URL, http.StatusFound)
	get(browser(t), callback, http.StatusBadRequest) // useless in another browser
	if got := get(c, callback, http.StatusSeeOther); got != s.url+"/inbox" {
		t.Errorf("sent to %q, want the inbox", got)
	}
	var name struct{ Email, Name string }
	call(t, c, s.url, "auth.updateProfile", map[string]any{"name": "Jane"}, &name)
	if want := mockoidc.DefaultUser().Email; name.Email != want || name.Name != "Jane" {
		t.Errorf("signed in as %+v, want %s", name, want)
	}
	get(c, callback, http.StatusBadRequest)
}
