package app

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"
	"github.com/kickstand-dev/kickstand/internal/shop"
)

// client is a client of a server under its public host.
type client struct {
	t    *testing.T
	http *http.Client
}

func newClient(t *testing.T, address string) *client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &client{t, &http.Client{
		Jar: jar,
		Transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// do returns the status of a response.
func (c *client) do(method, path, contentType, body string, headers ...string) int {
	c.t.Helper()
	req, err := http.NewRequest(method, "http://help.example.com"+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func (c *client) rpc(procedure, input string) int {
	return c.do("POST", "/api/trpc/"+procedure, "application/json", `{"json":`+input+`}`)
}

// mailedToken waits for the n-th mail and returns its link's token.
func mailedToken(t *testing.T, server *mailtest.Server, n int) string {
	t.Helper()
	text := waitForMail(t, server, n)
	found := regexp.MustCompile(`token=([A-Za-z0-9_-]+)`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("mail %d has no link: %q", n, text)
	}
	return found[1]
}

// TestNoTokenInLogs: at a public base URL no secret is logged at any level, in requests
// and in failures.
func TestNoTokenInLogs(t *testing.T) {
	const password, inboundToken, wrongToken, smtpPassword = "planted-Passw0rd-of-ada", "planted-inbound-token", "planted-wrong-token", "planted-smtp-password"
	log := new(logged)
	server := mailtest.NewServer(t, mailtest.ServerConfig{User: "u", Password: smtpPassword})
	a := deployment(t, publicURL, log.logger(), func(c *Config) {
		c.SMTPURL, c.AllowNoMail = server.URL, false
		c.AccessLifetime, c.RefreshLifetime = time.Hour, time.Hour
		c.Secrets = map[string][]string{"email-json": {inboundToken}, "sms": {inboundToken}}
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- a.Serve(ctx, ln, func() error { close(ready); return nil }) }()
	<-ready
	ada := admin(t, a)
	planted := []string{password, inboundToken, wrongToken, smtpPassword}

	c := newClient(t, ln.Addr().String())
	if got := c.rpc("auth.signInWithEmail", `{"email":"ada@example.com"}`); got != 200 {
		t.Fatalf("ask for a link: %d", got)
	}
	link := mailedToken(t, server, 1)
	c.do("GET", account.CallbackPath+"?token="+link+"x", "", "")
	if got := c.do("GET", account.CallbackPath+"?token="+link, "", ""); got != 303 {
		t.Errorf("follow the link: %d", got)
	}
	c.do("GET", account.CallbackPath+"?token="+link, "", "")
	if got := c.rpc("auth.sendPasswordReset", `{"email":"ada@example.com"}`); got != 200 {
		t.Fatalf("ask for a reset: %d", got)
	}
	reset := mailedToken(t, server, 2)
	c.do("GET", account.ResetPath+"?token="+reset, "", "")
	c.do("POST", account.ResetPath, "application/x-www-form-urlencoded", url.Values{"token": {reset}, "password": {password}}.Encode())
	c.rpc("auth.signIn", `{"email":"ada@example.com","password":"`+password+`"}`)
	c.rpc("auth.signInWithPassword", `{"email":"ada@example.com","password":"`+password+`x"}`)
	_, err = a.Accounts.Invite(t.Context(), account.Identity{UserID: ada.ID, OrganizationID: ada.OrganizationID, Role: account.Admin, User: ada},
		account.NewInvitation{Email: "bob@example.com", Role: account.Agent})
	if err != nil {
		t.Fatal(err)
	}
	// The mail about the changed password has no link.
	invitation := ""
	for n := 3; invitation == ""; n++ {
		mailed := waitForMail(t, server, n)
		if found := regexp.MustCompile(`/invitation\?token=([A-Za-z0-9_-]+)`).FindStringSubmatch(mailed); found != nil {
			invitation = found[1]
		}
	}
	c.do("GET", account.InvitationPath+"?token="+invitation, "", "")
	_, key, err := a.Keys.Create(t.Context(), apikey.New{
		OrganizationID: ada.OrganizationID, Service: apikey.Helpdesk, Environment: apikey.Live, Name: "Key", Permissions: apikey.Permissions{Level: apikey.Admin},
	})
	if err != nil {
		t.Fatal(err)
	}
	planted = append(planted, link, reset, invitation, key.Reveal())

	cookies := c.http.Jar.Cookies(&url.URL{Scheme: "https", Host: "help.example.com", Path: "/"})
	if len(cookies) < 2 {
		t.Fatalf("got cookies %v, want those of a session", cookies)
	}
	for _, cookie := range cookies {
		planted = append(planted, cookie.Value)
	}
	everything := func() {
		for _, path := range []string{
			"/api/webhooks/inbound-email?token=" + inboundToken, "/api/webhooks/inbound-email?token=" + wrongToken, "/api/webhooks/sms?token=" + inboundToken,
			"/dev/checkout/" + link, shop.ExportPath + link, "/nothing/" + link, "/attachments/" + link, account.CallbackPath + "?token=" + link,
			account.ResetPath + "?token=" + reset, account.InvitationPath + "?token=" + invitation, "/sign-in?next=/x?token=" + link, "/?;" + link,
			account.ProviderCallbackPath + "?code=" + link + "&state=" + reset, "/inbox", "/sign-in/" + link, "/api/trpc/" + link, "/api/v1/" + link,
		} {
			for _, method := range []string{"GET", "POST"} {
				c.do(method, path, "application/json", `{"a":"`+wrongToken+`"}`, "Cookie",
					browser.AccessCookie+"="+link+"; "+browser.RefreshCookie+"="+reset+"; "+browser.IntentCookie+"="+invitation)
			}
		}
		c.do("GET", "/api/v1/tickets", "", "", "Authorization", "Bearer "+key.Reveal())
		c.do("GET", "/api/v1/tickets", "", "", "Authorization", "Bearer "+key.Reveal()+"x")
		c.do("GET", "/v1/vehicles", "", "", "Authorization", "Bearer "+key.Reveal())
		c.rpc("auth.signInWithEmail", `{"email":"ada@example.com","redirectTo":"https://evil.test/?token=`+link+`"}`)
		c.rpc("auth.signInWithPassword", `{"email":"ada@example.com","password":"`+password+`"}`)
	}
	everything()
	if err := a.DB.Close(); err != nil { // from now on every request fails and is logged
		t.Fatal(err)
	}
	everything()
	stop()
	<-ended

	text := log.String()
	for _, wanted := range []string{"msg=serving", "level=DEBUG", "page unavailable"} {
		if !strings.Contains(text, wanted) {
			t.Errorf("nothing logged %q: the test proves little", wanted)
		}
	}
	for _, secret := range planted {
		if secret == "" {
			t.Fatal("nothing was planted")
		}
		for line := range strings.Lines(text) {
			if strings.Contains(line, secret) {
				t.Errorf("logged %q: %s", secret, line)
			}
		}
	}
}

// waitForMail waits for the n-th mail and returns its text.
func waitForMail(t *testing.T, server *mailtest.Server, n int) string {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(30 * time.Second); ; {
		if list := server.Received(t); len(list) >= n {
			return list[n-1].Text
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("mail %d did not arrive", n)
		}
	}
}
