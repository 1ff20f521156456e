package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// deployment opens the program with a base URL and further configuration.
func deployment(t *testing.T, baseURL string, log *slog.Logger, change ...func(*Config)) *App {
	t.Helper()
	c := Config{
		BaseURL: baseURL, Data: t.TempDir(), DatabaseURL: dbtest.URL(t), MailFrom: "no-reply@help.example", AllowNoMail: true,
		RetryTimeScale: 1, Web: true, Worker: true, StopTimeout: 10 * time.Second,
	}
	for _, f := range change {
		f(&c)
	}
	a, err := Open(t.Context(), c, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := a.openHandler(); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestTemplatesParse: all templates parse, including those of pages that no test renders.
func TestTemplatesParse(t *testing.T) { openStrict(t).site.ParseTemplates() }

// request sends a request for a host to the program.
func (a *App) request(method, host, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Host = host
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	return w
}

const publicURL = "https://help.example.com"

var quiet = slog.New(slog.DiscardHandler)

func TestCheckServe(t *testing.T) {
	for _, tt := range []struct {
		config Config
		fails  bool
	}{
		{Config{BaseURL: "http://localhost:8080"}, false},
		{Config{BaseURL: publicURL}, true},
		{Config{BaseURL: "http://192.168.1.7:8080"}, true},
		{Config{BaseURL: publicURL, SMTPURL: "smtp://mail.example.com"}, false},
		{Config{BaseURL: publicURL, EmailDeliveryAPIKey: "k"}, false},
		{Config{BaseURL: publicURL, AllowNoMail: true}, false},
	} {
		err := tt.config.CheckServe()
		if (err != nil) != tt.fails {
			t.Errorf("%+v: %v", tt.config, err)
		}
		for _, setting := range []string{"KICKSTAND_SMTP_URL", "KICKSTAND_EMAIL_DELIVERY_API_KEY", "KICKSTAND_MAIL_FROM", "KICKSTAND_ALLOW_NO_MAIL"} {
			if err != nil && !strings.Contains(err.Error(), setting) {
				t.Errorf("%q does not name %s", err, setting)
			}
		}
	}
}

// TestNoDevPagesInProduction: at a public base URL there is neither the mailbox nor the
// built-in checkout, no paid plan, and mails that cannot be sent are not stored.
func TestNoDevPagesInProduction(t *testing.T) {
	open := deployment(t, "http://localhost:8080", quiet)
	closed := deployment(t, publicURL, quiet)
	page, err := open.Billing.StartForOrganization(t.Context(), admin(t, open), account.Pro)
	if err != nil || !strings.Contains(page, billing.DevCheckoutPath) {
		t.Fatalf("got checkout %q, %v", page, err)
	}
	checkout := strings.TrimPrefix(page, "http://localhost:8080")
	for _, path := range []string{"/dev/mailbox", "/dev/mailbox.json", checkout} {
		if w := open.request("GET", "localhost", path); w.Code != http.StatusOK {
			t.Errorf("%s on this machine: got %d", path, w.Code)
		}
	}
	for _, path := range []string{
		"/dev", "/dev/", "/dev/mailbox", "/dev/mailbox/", "/dev/mailbox.json", "/dev/mailbox/0190c0de-0000-7000-8000-00000000000a", checkout, "/dev/checkout/x",
		"//dev/mailbox", "/%64ev/mailbox", "/x/../dev/mailbox",
	} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			w := closed.request(method, "help.example.com", path)
			if w.Code != http.StatusNotFound && (w.Code < 300 || w.Code > 399 || strings.Contains(w.Body.String(), "mails")) {
				t.Errorf("%s %s: got %d, want 404", method, path, w.Code)
			}
			if to := w.Header().Get("Location"); to != "" && closed.request("GET", "help.example.com", to).Code != http.StatusNotFound {
				t.Errorf("%s %s leads to %s", method, path, to)
			}
		}
	}
	if w := closed.request("GET", "help.example.com", "/"); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "/dev/") {
		t.Errorf("the start page: got %d %s", w.Code, w.Body)
	}

	_, err = closed.Billing.StartForOrganization(t.Context(), admin(t, closed), account.Pro)
	if p, ok := errors.AsType[*problem.Error](err); !ok || p.Kind != problem.Precondition || !strings.Contains(p.Message, "KICKSTAND_PAYMENTS_API_KEY") {
		t.Errorf("got %v for a checkout, want a precondition with the remedy", err)
	}
	if closed.Billing.CanBuy(account.Pro) || closed.Billing.HasDevCheckout() {
		t.Error("plans are sold without a payment provider")
	}
	if err := closed.Billing.Pay(t.Context(), strings.TrimPrefix(checkout, billing.DevCheckoutPath)); problem.Of(err) != problem.NotFound {
		t.Errorf("paying at the built-in checkout: %v", err)
	}
	if secrets := channelSecrets(closed.config, closed.box)["payments"]; len(secrets) != 0 {
		t.Errorf("got %d secrets of payments, want none", len(secrets))
	}

	carrier, err := closed.openMail(&closed.config, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = carrier.Send(t.Context(), mail.Message{Text: "https://help.example.com/api/auth/callback?token=x"})
	if _, again := mail.Retry(1, err); err == nil || again || !strings.Contains(err.Error(), "KICKSTAND_SMTP_URL") {
		t.Errorf("got %v, again %t, want a failure for good", err, again)
	}
	if closed.mailbox != nil {
		t.Error("there is a mailbox")
	}
}

// admin creates an organization and returns its admin.
func admin(t *testing.T, a *App) account.User {
	t.Helper()
	o, err := a.Accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme"})
	if err != nil {
		t.Fatal(err)
	}
	u, err := a.Accounts.CreateUser(t.Context(), account.NewUser{Email: "ada@example.com", Organization: o.Slug, Role: account.Admin})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestForeignHostRefused: a request for an unknown host is refused before any handler
// runs, except health checks.
func TestForeignHostRefused(t *testing.T) {
	apis := func(c *Config) {
		c.FleetBaseURL, c.SandboxBaseURL = "https://api.example.com/v1", "https://sandbox.example.com/v1"
		c.ExtraHosts = []string{"kickstand.internal", "10.1.2.3"}
	}
	for _, tt := range []struct {
		baseURL         string
		change          func(*Config)
		ours, elsewhere []string
	}{
		{publicURL, apis,
			[]string{
				"help.example.com", "help.example.com:443", "help.example.com:8080", "HELP.Example.com", "help.example.com.", "api.example.com",
				"sandbox.example.com", "kickstand.internal:8080", "10.1.2.3", "10.1.2.3:8080", "[::ffff:10.1.2.3]:8080",
			},
			[]string{
				"", "evil.test", "help.example.com.evil.test", "evilhelp.example.com", "example.com", "localhost", "127.0.0.1:8080", "[::1]", "10.1.2.4",
				"help.example.com:80@evil.test", "help.example.com:evil", "help.example.com,evil.test", "evil.test/help.example.com", "help.example.com ",
				"help.example.com..", "help.example.com:443:443", "[help.example.com", "hélp.example.com",
			}},
		{"https://münchen.example", func(*Config) {}, []string{"münchen.example", "xn--mnchen-3ya.example", "XN--MNCHEN-3YA.example:443"}, []string{"munchen.example"}},
		{"http://127.0.0.1:8080", func(c *Config) { c.ExtraHosts = []string{"my_app"} },
			[]string{"127.0.0.1:8080", "localhost:9999", "localhost", "[::1]:8080", "127.9.9.9", "kickstand.localhost:8080", "my_app:8080"},
			[]string{"evil.test", "evil.test:8080", "127.0.0.1.evil.test", "localhost.evil.test", "0.0.0.0:8080", "192.168.1.7:8080", "127.0.0.1:8080.evil.test"}},
	} {
		a := deployment(t, tt.baseURL, quiet, tt.change)
		for _, host := range tt.ours {
			if w := a.request("GET", host, "/sign-in"); w.Code != http.StatusOK {
				t.Errorf("%s, host %q: got %d, want 200", tt.baseURL, host, w.Code)
			}
		}
		for _, host := range tt.elsewhere {
			for _, path := range []string{"/sign-in", "/", "/api/trpc/auth.getUser", "/api/v1/tickets", "/v1/vehicles", "/gbfs/v3/manifest.json", "/api/webhooks/sms", "/live", "/nothing"} {
				w := a.request("GET", host, path)
				if w.Code != http.StatusMisdirectedRequest || !strings.Contains(w.Body.String(), "extra-hosts") || len(w.Result().Cookies()) != 0 {
					t.Errorf("%s, host %q, %s: got %d %s, want 421", tt.baseURL, host, path, w.Code, w.Body)
				}
			}
			for _, path := range healthPaths {
				if w := a.request("GET", host, path); w.Code != http.StatusOK {
					t.Errorf("%s, host %q, %s: got %d, want 200", tt.baseURL, host, path, w.Code)
				}
			}
		}
	}

	for _, extra := range []string{"", "https://a.example", "a.example:80", "a b", "a.example/x", "*.example.com", "*"} {
		c := Config{BaseURL: publicURL, ExtraHosts: []string{extra}}
		if err := c.CheckHosts(); err == nil || !strings.HasPrefix(err.Error(), "extra-hosts: ") {
			t.Errorf("extra host %q: got %v, want a refusal", extra, err)
		}
	}
}

// TestForeignHostRefusedByServer: the same over a connection, with the raw Host header.
func TestForeignHostRefusedByServer(t *testing.T) {
	r := serveApp(t)
	for host, want := range map[string]string{"evil.test": "421", "localhost": "200"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET /sign-in HTTP/1.1\r\nHost: "+host+"\r\nX-Forwarded-Host: localhost\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+want) {
			t.Errorf("host %s: got %.40q, %v, want %s", host, answer, err, want)
		}
		conn.Close()
	}
}

// TestStrictTransportSecurity: only if the base URL is https and not this machine.
func TestStrictTransportSecurity(t *testing.T) {
	for baseURL, want := range map[string][]string{
		publicURL:                 {"max-age=31536000"},
		"http://help.example.com": nil,
		"https://localhost:8443":  nil,
	} {
		a := deployment(t, baseURL, quiet)
		for _, path := range []string{"/", "/sign-in", "/nothing", "/api/trpc/auth.getUser", "/api/v1/tickets", "/v1/vehicles", "/healthz", "/static/x"} {
			host := strings.SplitN(baseURL, "/", 3)[2]
			if got := a.request("GET", host, path).Result().Header.Values("Strict-Transport-Security"); !slices.Equal(got, want) {
				t.Errorf("%s%s: got %q, want %q", baseURL, path, got, want)
			}
		}
	}
}

// TestCheckoutByPost: an event of the built-in checkout reaches its endpoint under any
// base URL.
func TestCheckoutByPost(t *testing.T) {
	for _, baseURL := range []string{"http://localhost:8080", publicURL} {
		a := deployment(t, baseURL, quiet, func(c *Config) { c.Secrets = map[string][]string{"payments": {"s"}} })
		err := a.paymentPoster([]string{"s"})(context.Background(), []byte(`{"id":"evt_1","type":"nothing","created":1,"data":{"object":{}}}`))
		if err != nil {
			t.Errorf("%s: %v", baseURL, err)
		}
	}
}
