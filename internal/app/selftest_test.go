package app

import (
	"context"
	"crypto/tls"
	"errors"
	"html"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"
	"github.com/emersion/go-imap/v2/imapserver/imapmemserver"
)

// standIns stand in for the providers of all channels.
type standIns struct {
	t      *testing.T
	broken atomic.Bool // they refuse everything
	api    *httptest.Server
	smtp   *mailtest.Server // with TLS, of the mailbox
	plain  *mailtest.Server
	imap   string // URL
}

func openStandIns(t *testing.T) *standIns {
	p := &standIns{
		t: t, smtp: mailtest.NewServer(t, mailtest.ServerConfig{User: "user", Password: "password", ImplicitTLS: true}),
		plain: mailtest.NewServer(t, mailtest.ServerConfig{User: "user", Password: "password"}),
	}
	p.api = httptest.NewServer(p)
	t.Cleanup(p.api.Close)
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	p.smtp.ClientTLS.RootCAs.AddCert(certified.Certificate())
	box := imapmemserver.NewUser("user", "password")
	if err := box.Create("INBOX", nil); err != nil {
		t.Fatal(err)
	}
	server := imapserver.New(&imapserver.Options{
		NewSession: func(*imapserver.Conn) (imapserver.Session, *imapserver.GreetingData, error) {
			return &imapSession{UserSession: imapmemserver.NewUserSession(box), box: box}, nil, nil
		},
		Caps: imap.CapSet{imap.CapIMAP4rev1: {}}, Logger: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo), InsecureAuth: true,
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.imap = "imaps://" + ln.Addr().String()
	go server.Serve(tls.NewListener(ln, &tls.Config{Certificates: certified.TLS.Certificates}))
	t.Cleanup(func() { server.Close() })
	return p
}

// imapSession is a session at the IMAP server.
type imapSession struct {
	*imapmemserver.UserSession
	box *imapmemserver.User
}

// Login implements [imapserver.Session].
func (s *imapSession) Login(name, password string) error { return s.box.Login(name, password) }

// ServeHTTP answers the test calls of the providers' APIs.
func (p *standIns) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.broken.Load() {
		if strings.HasPrefix(r.URL.Path, "/api/auth.test") { // its refusals have status 200
			io.WriteString(w, `{"ok":false,"error":"invalid_auth"}`)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"error":{"message":"refused"}}`)
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
		p.t.Errorf("an unexpected call of %s", r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
	}
	io.WriteString(w, body)
}

// RoundTrip answers for the servers of the notification service.
func (p *standIns) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "sns.us-east-1.amazonaws.com" {
		p.t.Errorf("an unexpected request to %s", r.URL)
	}
	if p.broken.Load() {
		return nil, errors.New("no route to host")
	}
	return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody}, nil
}

// LookupMX returns the MX records of a domain.
func (p *standIns) LookupMX(context.Context, string) ([]*net.MX, error) {
	if p.broken.Load() {
		return []*net.MX{{Host: "mx.elsewhere.example."}}, nil
	}
	return []*net.MX{{Host: "mx.help.example."}}, nil
}

// LookupHost returns the addresses of a host.
func (*standIns) LookupHost(context.Context, string) ([]string, error) {
	return []string{"192.0.2.1"}, nil
}

// channelTest is a connection to test.
type channelTest struct {
	channel, address, secret string
	credentials              map[string]string
	green                    map[string]string // states by row; nil: both directions work
	spoilt                   map[string]string // credentials that the provider refuses; nil: the provider refuses all
	red                      map[string]string // words of the reasons, by row
}

// testButton presses the test button of a connection and returns the texts of the results by row, each
// after its state and a colon.
func (s *strict) testButton(in account.SignIn, id string) map[string]string {
	s.t.Helper()
	code, page := s.serverPage(in, "POST", "/settings/channels/"+id+"/test", nil)
	_, list, ok := strings.Cut(page, `id="results">`)
	list, _, _ = strings.Cut(list, "</dl>")
	if code != http.StatusOK || !ok {
		s.t.Fatalf("the test button is answered %d, %s", code, page)
	}
	results := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?s)<dt>(.*?)</dt><dd>(.*?)</dd>`).FindAllStringSubmatch(list, -1) {
		badge, text, _ := strings.Cut(m[2], "</span>")
		plain := func(s string) string {
			return strings.TrimSpace(html.UnescapeString(regexp.MustCompile(`(?s)<[^>]*>`).ReplaceAllString(s, "")))
		}
		results[m[1]] = plain(badge) + ": " + plain(text)
	}
	return results
}

// TestChannelTests presses the test button of a connection of every channel: it is green in each
// direction while the stand-in of the provider accepts everything, and red with the reason once the
// provider refuses, and once the channel is disabled. No test stores anything.
func TestChannelTests(t *testing.T) {
	t.Parallel()
	p := openStandIns(t)
	urls := map[string]string{}
	for _, name := range []string{"sms", "voice", "chat", "business-messaging", "social-messenger", "storefront", "email-delivery"} {
		urls[name] = p.api.URL
	}
	a := deployment(t, "http://localhost:8080", quiet, func(c *Config) {
		c.APIURLs, c.AllowPrivateReceivers, c.AccessLifetime, c.RefreshLifetime = urls, true, time.Hour, time.Hour
		c.MailReceiver, c.MailRecords = MailReceiver{Listen: "127.0.0.1:0", Hostname: "mx.help.example"}, p
		c.Certificates, c.MailboxTLS = p, p.smtp.ClientTLS
	})
	ln, err := a.listenMail()
	if err != nil {
		t.Fatal(err)
	}
	go a.receiver.Serve(ln)
	t.Cleanup(func() { a.receiver.Stop(context.Background()) })
	s := &strict{t: t, App: a}
	if s.org, err = a.Accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Ours"}); err != nil {
		t.Fatal(err)
	}
	in := s.signIn(s.admin("ada@example.com"))
	parseKey, err := email.NewParseKey()
	if err != nil {
		t.Fatal(err)
	}

	smtp := map[string]string{"smtp_url": p.plain.URL}
	wrongSMTP := map[string]string{"smtp_url": strings.Replace(p.plain.URL, "user:password@", "user:wrong@", 1)}
	box := map[string]string{"imap_url": p.imap, "smtp_url": strings.Replace(p.smtp.URL, "user:password@", "", 1), "username": "user", "password": "password"}
	wrongBox := maps.Clone(box)
	wrongBox["password"] = "wrong"
	receivesOnly := map[string]string{"Receiving": "Works", "Credentials": "Not tested: This channel only receives"}
	login := map[string]string{"Credentials": "535"}
	tests := []channelTest{
		{channel: "sms", address: "+14155550100", credentials: map[string]string{"account_sid": "AC1", "auth_token": "t"}},
		{channel: "voice", address: "+12085550100", credentials: map[string]string{"api_token": "t"}},
		{channel: "chat", address: "T012AB3C4", credentials: map[string]string{"bot_token": "xoxb-1"}},
		{channel: "business-messaging", address: "106540352242922", credentials: map[string]string{"access_token": "EAAG1"}},
		{channel: "social-messenger", address: "107520255634123", credentials: map[string]string{"access_token": "EAAG1"}},
		{channel: "storefront", address: "acme-lamps.myshopify.com", credentials: map[string]string{"access_token": "shpat_1"}},
		{channel: "email-raw", address: "raw@example.com", credentials: smtp, spoilt: wrongSMTP, red: login},
		{channel: "email-form", address: "form@example.com", credentials: smtp, spoilt: wrongSMTP, red: login},
		{channel: "email-json", address: "json@example.com", credentials: smtp, spoilt: wrongSMTP, red: login},
		{channel: "email-parse", address: "parse@example.com", secret: parseKey, credentials: smtp, spoilt: wrongSMTP, red: login,
			green: map[string]string{"Receiving": "Works: A sample request, signed with a key made for tests", "Credentials": "Works"}},
		{channel: "email-delivery", address: "delivery@example.com", secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", credentials: map[string]string{"delivery_api_key": "re_1"}},
		{channel: "email-smtp", address: "direct@example.com", credentials: smtp, spoilt: wrongSMTP,
			green: map[string]string{"Receiving": "Works: A test mail", "MX record": "Works", "Credentials": "Works"},
			red:   map[string]string{"MX record": "no MX record of example.com names mx.help.example", "Credentials": "535"}},
		{channel: "mailbox", address: "box@example.com", credentials: box, spoilt: wrongBox, red: map[string]string{"Receiving": "rejects the login", "Credentials": "535"}},
		{channel: "payments-connect", address: "acct_1032D82eZvKYlo2C", secret: "whsec_of_the_endpoint", green: receivesOnly,
			red: map[string]string{"Receiving": "no valid secret of its provider"}},
		{channel: "marketplace", address: "arn:aws:sns:us-east-1:123456789012:orders", green: receivesOnly,
			red: map[string]string{"Receiving": "cannot fetch the certificates that verify messages, from sns.us-east-1.amazonaws.com: no route to host"}},
		{channel: "api", address: "app", credentials: map[string]string{"webhook_url": p.api.URL + "/app"}, red: map[string]string{"Credentials": "the app answered 401"}},
	}
	var tested, connected []string
	for _, tt := range tests {
		tested = append(tested, tt.channel)
	}
	for _, ad := range connectable(a.adapters) {
		connected = append(connected, ad.Info().Name)
	}
	slices.Sort(tested)
	slices.Sort(connected)
	if !slices.Equal(tested, connected) {
		t.Fatalf("channels with a test: %q, want all that can be connected: %q", tested, connected)
	}
	for _, tt := range tests {
		t.Run(tt.channel, func(t *testing.T) { s.testChannel(t, in, p, tt) })
	}
	for _, table := range []string{"inbound_events", "tickets", "messages"} {
		var n int
		if err := a.DB.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != 0 {
			t.Errorf("%d rows in %s, %v, want none", n, table, err)
		}
	}
}

func (s *strict) testChannel(t *testing.T, in account.SignIn, p *standIns, tt channelTest) {
	if tt.green == nil {
		tt.green = map[string]string{"Receiving": "Works", "Credentials": "Works"}
	}
	if tt.red == nil {
		tt.red = map[string]string{"Credentials": ""}
	}
	p.broken.Store(false)
	n := connection.New{OrganizationID: s.org.ID, Channel: tt.channel, Address: tt.address, Credentials: tt.credentials, ByOperator: true}
	if tt.secret != "" {
		n.Secrets = []string{tt.secret}
	}
	c, _, err := s.Connections.Connect(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	got := s.testButton(in, c.ID)
	for row, want := range tt.green {
		if !strings.HasPrefix(got[row], want) {
			t.Errorf("%s is %q, want %q", row, got[row], want)
		}
	}
	if len(got) != len(tt.green) {
		t.Errorf("the results are %q, want %q", got, slices.Sorted(maps.Keys(tt.green)))
	}

	p.broken.Store(true)
	if tt.spoilt != nil {
		s.withCredentials(t, c, tt.spoilt)
	}
	if tt.channel == "payments-connect" { // a secret that is not the provider's
		if _, err := s.Connections.Rotate(t.Context(), s.org.ID, c.ID, "", 0); err != nil {
			t.Fatal(err)
		}
	}
	got = s.testButton(in, c.ID)
	for row, want := range tt.red {
		state, reason, _ := strings.Cut(got[row], ": ")
		if state != "Fails" && state != "Elsewhere" || reason == "" || !strings.Contains(strings.ToLower(reason), strings.ToLower(want)) {
			t.Errorf("refused: %s is %q, want the reason %q", row, got[row], want)
		}
		for name, value := range tt.credentials {
			if len(value) > 3 && name != "username" && name != "password" && strings.Contains(reason, value) {
				t.Errorf("the reason %q has the credential %s", reason, name)
			}
		}
	}

	if err := s.Connections.SetEnabled(t.Context(), s.org.ID, c.ID, false); err != nil {
		t.Fatal(err)
	}
	if got := s.testButton(in, c.ID); !strings.HasPrefix(got["Receiving"], "Fails: The channel is disabled, so") {
		t.Errorf("disabled: %q, want the reason", got["Receiving"])
	}
}

// withCredentials changes the credentials of a connection.
func (a *App) withCredentials(t *testing.T, c connection.Connection, credentials map[string]string) {
	t.Helper()
	err := a.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := a.Connections.UpdateTx(t.Context(), tx, c.OrganizationID, c.ID, connection.Change{Credentials: credentials})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestUnprovenChannels: a channel whose provider signs for everybody, and mail that this server
// receives itself, arrive only once the address is proven, and the test says so.
func TestUnprovenChannels(t *testing.T) {
	t.Parallel()
	a := deployment(t, "http://localhost:8080", quiet)
	o := signUp(t, a, "Ours")
	c, _, err := a.Connections.Connect(t.Context(), connection.New{OrganizationID: o.ID, Channel: "marketplace", Address: "arn:aws:sns:us-east-1:123456789012:orders"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Inbound.SelfTest(t.Context(), &c); err == nil || !strings.Contains(err.Error(), "not proven") {
		t.Errorf("SelfTest() = %v, want the reason", err)
	}
	if c, _, err = a.Connections.Connect(t.Context(), connection.New{OrganizationID: o.ID, Channel: "email-smtp", Address: "help@example.com"}); err != nil {
		t.Fatal(err)
	}
	if err := a.testMail(t.Context(), &c); err == nil || !strings.Contains(err.Error(), "KICKSTAND_SMTP_LISTEN") {
		t.Errorf("without a receiver: %v, want the reason", err)
	}
	if err := a.Inbound.TestDelivery(&c, nil); err == nil || !strings.Contains(err.Error(), "not proven") {
		t.Errorf("TestDelivery() = %v, want the reason", err)
	}
}
