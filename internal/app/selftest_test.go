package app

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"
	"github.com/kickstand-dev/kickstand/internal/outbound"
)

// TestChannelTests tests a connection of each channel against a stand-in of its provider: with valid
// credentials, with refused ones, and disabled. No test stores anything.
func TestChannelTests(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			if strings.HasPrefix(r.URL.Path, "/api/auth.test") { // its refusals have status 200
				w.Write([]byte(`{"ok":false,"error":"invalid_auth"}`))
				return
			}
			w.WriteHeader(http.StatusUnauthorized)
			w.Write([]byte(`{"error":{"message":"refused"}}`))
			return
		}
		body := map[string]string{
			"/2010-04-01/Accounts/AC1.json": `{"sid":"AC1","status":"active"}`,
			"/api/v2/company":               `{"id":1}`,
			"/api/auth.test":                `{"ok":true,"team_id":"T012AB3C4","bot_id":"B1"}`,
			"/domains":                      `{"data":[]}`,
			"/app":                          `{}`,
		}[r.URL.Path]
		switch {
		case strings.Contains(r.URL.Path, "/106540352242922"):
			body = `{"id":"106540352242922","display_phone_number":"+1 415 555 0100"}`
		case strings.HasSuffix(r.URL.Path, "/me"):
			body = `{"id":"107520255634123","category":"Shop"}`
		case strings.HasSuffix(r.URL.Path, "/graphql.json"):
			body = `{"data":{"shop":{"myshopifyDomain":"acme-lamps.myshopify.com"}}}`
		}
		if body == "" {
			t.Errorf("an unexpected call of %s", r.URL.Path)
			w.WriteHeader(http.StatusNotFound)
		}
		w.Write([]byte(body))
	}))
	t.Cleanup(far.Close)
	server := mailtest.NewServer(t, mailtest.ServerConfig{User: "user", Password: "password"})
	urls := map[string]string{}
	for _, name := range []string{"sms", "voice", "chat", "business-messaging", "social-messenger", "storefront", "email-delivery"} {
		urls[name] = far.URL
	}
	a := deployment(t, "http://localhost:8080", quiet, func(c *Config) { c.APIURLs, c.AllowPrivateReceivers = urls, true })
	o := signUp(t, a, "Ours")
	parseKey, err := email.NewParseKey()
	if err != nil {
		t.Fatal(err)
	}
	smtp := map[string]string{"smtp_url": server.URL}
	for _, tt := range []struct {
		channel, address, secret string
		credentials              map[string]string
		unsampled                bool // only the provider can sign
		noCredentials            bool
	}{
		{channel: "sms", address: "+14155550100", credentials: map[string]string{"account_sid": "AC1", "auth_token": "t"}},
		{channel: "voice", address: "+12085550100", credentials: map[string]string{"api_token": "t"}},
		{channel: "chat", address: "T012AB3C4", credentials: map[string]string{"bot_token": "xoxb-1"}},
		{channel: "business-messaging", address: "106540352242922", credentials: map[string]string{"access_token": "EAAG1"}},
		{channel: "social-messenger", address: "107520255634123", credentials: map[string]string{"access_token": "EAAG1"}},
		{channel: "storefront", address: "acme-lamps.myshopify.com", credentials: map[string]string{"access_token": "shpat_1"}},
		{channel: "email-raw", address: "raw@example.com", credentials: smtp},
		{channel: "email-form", address: "form@example.com", credentials: smtp},
		{channel: "email-json", address: "json@example.com", credentials: smtp},
		{channel: "email-parse", address: "parse@example.com", secret: parseKey, credentials: smtp, unsampled: true},
		{channel: "email-delivery", address: "delivery@example.com", secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", credentials: map[string]string{"delivery_api_key": "re_1"}},
		{channel: "payments-connect", address: "acct_1032D82eZvKYlo2C", noCredentials: true},
		{channel: "marketplace", address: "arn:aws:sns:us-east-1:123456789012:orders", noCredentials: true, unsampled: true},
		{channel: "api", address: "app", credentials: map[string]string{"webhook_url": far.URL + "/app"}},
	} {
		t.Run(tt.channel, func(t *testing.T) {
			broken.Store(false)
			n := connection.New{OrganizationID: o.ID, Channel: tt.channel, Address: tt.address, Credentials: tt.credentials, ByOperator: true}
			if tt.secret != "" {
				n.Secrets = []string{tt.secret}
			}
			c, _, err := a.Connections.Connect(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			want := error(nil)
			if tt.unsampled {
				want = inbound.ErrUnsampled
			}
			if err := a.Inbound.SelfTest(t.Context(), &c); !errors.Is(err, want) || err != nil && want == nil {
				t.Errorf("receiving: %v, want %v", err, want)
			}
			want = nil
			if tt.noCredentials {
				want = outbound.ErrNoCredentials
			}
			if err := a.sender.TestCredentials(t.Context(), &c); !errors.Is(err, want) || err != nil && want == nil {
				t.Errorf("credentials: %v, want %v", err, want)
			}

			broken.Store(true)
			if !tt.noCredentials {
				refused := c
				if tt.credentials["smtp_url"] != "" {
					refused = a.withCredentials(t, c, map[string]string{"smtp_url": strings.Replace(server.URL, "user:password@", "user:wrong@", 1)})
				}
				err := a.sender.TestCredentials(t.Context(), &refused)
				if err == nil || errors.Is(err, outbound.ErrNoCredentials) {
					t.Errorf("refused credentials: %v, want a reason", err)
				} else {
					t.Logf("the reason: %v", err)
					for name, value := range tt.credentials {
						if len(value) > 3 && name != "smtp_url" && name != "webhook_url" && strings.Contains(err.Error(), value) {
							t.Errorf("the reason %q has the credential %s", err, name)
						}
					}
				}
			}
			if err := a.Connections.SetEnabled(t.Context(), o.ID, c.ID, false); err != nil {
				t.Fatal(err)
			}
			if c, err = a.Connections.FindOf(t.Context(), a.DB, o.ID, c.ID); err != nil {
				t.Fatal(err)
			}
			if err := a.Inbound.SelfTest(t.Context(), &c); err == nil || !strings.Contains(err.Error(), "disabled") {
				t.Errorf("disabled: %v, want the reason", err)
			}
		})
	}
	for _, table := range []string{"inbound_events", "tickets", "messages"} {
		var n int
		if err := a.DB.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != 0 {
			t.Errorf("%d rows in %s, %v, want none", n, table, err)
		}
	}
}

// withCredentials changes the credentials of a connection.
func (a *App) withCredentials(t *testing.T, c connection.Connection, credentials map[string]string) connection.Connection {
	t.Helper()
	err := a.DB.Write(t.Context(), func(tx *db.Tx) (err error) {
		c, err = a.Connections.UpdateTx(t.Context(), tx, c.OrganizationID, c.ID, connection.Change{Credentials: credentials})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestUnprovenMarketplace: a channel whose provider signs for everybody receives only once it is
// proven, and its test says so.
func TestUnprovenMarketplace(t *testing.T) {
	t.Parallel()
	a := deployment(t, "http://localhost:8080", quiet)
	o := signUp(t, a, "Ours")
	c, _, err := a.Connections.Connect(t.Context(), connection.New{OrganizationID: o.ID, Channel: "marketplace", Address: "arn:aws:sns:us-east-1:123456789012:orders"})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Inbound.SelfTest(t.Context(), &c); err == nil || !strings.Contains(err.Error(), "not proven") {
		t.Errorf("SelfTest() = %v, want the reason", err)
	}
}
