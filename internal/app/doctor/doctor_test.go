package doctor

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// want checks the status of a finding and a part of its text or remedy, and that a
// problem has a remedy.
func want(t *testing.T, name string, f Finding, status Status, part string) {
	t.Helper()
	text := f.Found + " | " + f.Remedy
	if f.Status != status || !strings.Contains(text, part) || f.Found == "" || (f.Remedy == "") != (f.Status == OK) || strings.ContainsAny(text, "\n\t") {
		t.Errorf("%s: got %s %q, want %s with %q", name, f.Status, text, status, part)
	}
}

// TestRun: findings are in order, and no check blocks or breaks the others.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		stuck := make(chan struct{})
		findings := Run(t.Context(), []Check{
			{"hangs", func(context.Context) Finding { <-stuck; return ok("never") }},
			{"works", func(context.Context) Finding { return ok("fine") }},
			{"panics", func(context.Context) Finding { panic("oops") }},
			{"slow", func(ctx context.Context) Finding { <-ctx.Done(); return fail("gave up", "Wait.") }},
		})
		close(stuck)
		if took := time.Since(start); took != Timeout {
			t.Errorf("took %s, want %s", took, Timeout)
		}
		for i, name := range []string{"hangs", "works", "panics", "slow"} {
			if findings[i].Check != name {
				t.Errorf("finding %d is of %q, want %q", i, findings[i].Check, name)
			}
		}
		want(t, "hangs", findings[0], Fail, "no answer within 5s")
		want(t, "works", findings[1], OK, "fine")
		want(t, "panics", findings[2], Fail, "oops")
		if findings[3].Status != Fail {
			t.Errorf("slow: got %+v", findings[3])
		}
		if w := Worst(findings); w != Fail {
			t.Errorf("the worst is %s", w)
		}
		if w := Worst(findings[1:2]); w != OK {
			t.Errorf("the worst of what works is %s", w)
		}
	})
}

func TestSettings(t *testing.T) {
	public := Settings{BaseURL: "https://help.example.com", Addresses: []string{"https://help.example.com"}, SignUp: account.InvitedSignUp, RetryTimeScale: 1, MailFrom: "help@example.com", CanMail: true}
	local := Settings{Loopback: true, BaseURL: "http://127.0.0.1:8080", Listen: "127.0.0.1:8080", RetryTimeScale: 1, MailFrom: "no-reply@localhost"}
	with := func(s Settings, change func(*Settings)) Settings { change(&s); return s }
	for _, tt := range []struct {
		name   string
		check  func(Settings) Finding
		s      Settings
		status Status
		part   string
	}{
		{"public", BaseURL, public, OK, "https://help.example.com"},
		{"this machine", BaseURL, local, OK, "this machine"},
		{"this machine, IPv6", BaseURL, with(local, func(s *Settings) { s.Listen = "[::1]:8080" }), OK, "this machine"},
		{"listens to everybody", BaseURL, with(local, func(s *Settings) { s.Listen = "0.0.0.0:8080" }), Warn, "KICKSTAND_BASE_URL"},
		{"listens to everybody", BaseURL, with(local, func(s *Settings) { s.Listen = ":8080" }), Warn, "KICKSTAND_BASE_URL"},
		{"http", BaseURL, with(public, func(s *Settings) { s.Addresses = []string{"https://help.example.com", "http://api.example.com"} }), Fail, "http://api.example.com is not https"},
		{"http inside", BaseURL, with(public, func(s *Settings) { s.Addresses = []string{"http://192.168.1.7:8080"} }), Warn, "is not https"},
		{"http inside", BaseURL, with(public, func(s *Settings) { s.Addresses = []string{"http://help.internal"} }), Warn, "is not https"},
		{"http at a public number", BaseURL, with(public, func(s *Settings) { s.Addresses = []string{"http://203.0.113.7"} }), Fail, "is not https"},
		{"sender", MailSender, public, OK, "help@example.com"},
		{"sender of this machine", MailSender, with(public, func(s *Settings) { s.MailFrom = "no-reply@localhost" }), Fail, "KICKSTAND_MAIL_FROM"},
		{"sender in development", MailSender, local, OK, "no-reply@localhost"},
		{"invited", SignUp, public, OK, "invited"},
		{"open", SignUp, with(public, func(s *Settings) { s.SignUp = account.OpenSignUp }), Warn, "KICKSTAND_SIGN_UP"},
		{"open in development", SignUp, local, OK, "open"},
		{"no proxy", Proxies, public, Warn, "KICKSTAND_TRUSTED_PROXIES"},
		{"no proxy in development", Proxies, local, OK, "none"},
		{"a proxy", Proxies, with(public, func(s *Settings) { s.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} }), OK, "10.0.0.0/8"},
		{"any proxy", Proxies, with(public, func(s *Settings) {
			s.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::/0")}
		}), Fail, "::/0 trusts everybody"},
		{"links by TLS", Links, public, OK, "by TLS"},
		{"an open link", Links, with(public, func(s *Settings) { s.OpenLinks = []string{"Redis at cache:6379 is reached without TLS"} }), Warn, "cache:6379"},
		{"public receivers", Receivers, public, OK, "https only"},
		{"private receivers", Receivers, with(public, func(s *Settings) { s.AllowPrivateReceivers = true }), Fail, "KICKSTAND_ALLOW_PRIVATE_RECEIVERS"},
		{"private receivers in development", Receivers, with(local, func(s *Settings) { s.AllowPrivateReceivers = true }), OK, "development"},
		{"fast retries", Receivers, with(public, func(s *Settings) { s.RetryTimeScale = 0.01 }), Warn, "KICKSTAND_RETRY_TIME_SCALE"},
		{"no test key", TestKeys, public, OK, "none"},
		{"test key", TestKeys, with(public, func(s *Settings) { s.MarketplaceTestKey = true }), Fail, "KICKSTAND_MARKETPLACE_TEST_KEY"},
		{"test key in development", TestKeys, with(local, func(s *Settings) { s.MarketplaceTestKey = true }), OK, "development"},
		{"no channel", ChannelSecrets, public, OK, "no channel has a secret"},
		{"channels", ChannelSecrets, with(public, func(s *Settings) { s.DeploymentSecrets = []string{"email-raw", "sms"} }), OK, "email-raw, sms"},
		{"no payments", Payments, public, OK, "KICKSTAND_PAYMENTS_API_KEY"},
		{"built-in checkout", Payments, local, OK, "no money"},
		{"payments unseen", Payments, with(public, func(s *Settings) { s.PaymentsKey, s.PaymentsPrice = true, true }), Fail, "KICKSTAND_PAYMENTS_SECRET"},
		{"payments of nothing", Payments, with(public, func(s *Settings) { s.PaymentsKey, s.PaymentsSecret = true, true }), Fail, "KICKSTAND_PAYMENTS_PRICE_PRO"},
		{"payments", Payments, with(public, func(s *Settings) { s.PaymentsKey, s.PaymentsSecret, s.PaymentsPrice = true, true, true }), OK, "payment provider"},
		{"no mail", func(s Settings) Finding { return NoMailServer(s, false) }, public, Fail, "KICKSTAND_SMTP_URL"},
		{"mail by API", func(s Settings) Finding { return NoMailServer(s, true) }, public, OK, "was not tried"},
		{"no mail in development", func(s Settings) Finding { return NoMailServer(s, false) }, local, OK, "/dev/mailbox"},
		{"key", func(s Settings) Finding { return SecretKey(s, Key{Path: "/keys/k", Mode: 0o600}) }, public, OK, "/keys/k"},
		{"key with data", func(s Settings) Finding { return SecretKey(s, Key{Path: "/data/k", Mode: 0o600, WithData: true}) }, public, Warn, "KICKSTAND_SECRET_KEY_FILE"},
		{"key with data in development", func(s Settings) Finding { return SecretKey(s, Key{Path: "/data/k", Mode: 0o600, WithData: true}) }, local, OK, "/data/k"},
		{"key for all", func(s Settings) Finding { return SecretKey(s, Key{Path: "/keys/k", Mode: 0o640}) }, public, Fail, "mode 0640"},
		{"no key", func(s Settings) Finding { return SecretKey(s, Key{Path: "/keys/k", Missing: true}) }, public, Warn, "does not exist yet"},
		{"key that is none", func(s Settings) Finding { return SecretKey(s, Key{Unreadable: errors.New("not a key")}) }, public, Fail, "not a key"},
	} {
		want(t, tt.name, tt.check(tt.s), tt.status, tt.part)
	}
	want(t, "permissions", Permissions([]string{"/data/kickstand.db"}, nil), Fail, "/data/kickstand.db")
	want(t, "permissions", Permissions(nil, nil), OK, "for its user alone")
	want(t, "organizations", Organizations(0, false, nil), Warn, "kickstand org create")
	want(t, "organizations", Organizations(0, false, fs.ErrNotExist), Warn, "no database of this version yet")
	want(t, "organizations", Organizations(2, true, nil), OK, "2")
	want(t, "organizations", Organizations(2, false, nil), Warn, "kickstand org default")
	want(t, "organizations", Organizations(0, false, errors.New("lost")), Fail, "lost")
	want(t, "addresses", Addresses(public, Proofs{}, nil), OK, "0 connected")
	want(t, "addresses", Addresses(public, Proofs{}, fs.ErrNotExist), OK, "no database of this version yet")
	want(t, "addresses", Addresses(public, Proofs{}, errors.New("lost")), Fail, "lost")
	want(t, "addresses", Addresses(public, Proofs{Proven: 2, Pending: 1}, nil), OK, "2 proven, 1 pending")
	want(t, "addresses", Addresses(public, Proofs{Proven: 2, Pending: 1, BeforeProofs: 1}, nil), Warn, "1 of 3 connections")
	want(t, "addresses", Addresses(local, Proofs{Proven: 2, BeforeProofs: 2}, nil), OK, "2 connected")
	want(t, "addresses", Addresses(local, Proofs{UnknownSlugs: []string{"acme", "bolt"}}, nil), Warn, "acme, bolt")
	want(t, "configuration", Configuration(errors.New("wrong\nSet this.\nSet that.")), Fail, "wrong | Set this. Set that.")
	want(t, "configuration", Configuration(nil), OK, "complete")
}

// TestAnswers: the public URL leads to this server, or the finding names the other one.
func TestAnswers(t *testing.T) {
	mode := ""
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case mode == "down":
			w.WriteHeader(http.StatusBadGateway)
		case mode == "elsewhere":
			w.Write([]byte("Welcome to nginx!"))
		case r.URL.Path == "/healthz":
			w.Write([]byte("ok\n"))
		case mode == "host":
			w.WriteHeader(http.StatusMisdirectedRequest)
		}
	}))
	defer srv.Close()
	s := Settings{BaseURL: srv.URL, Addresses: []string{srv.URL}}
	want(t, "ours", Answers(t.Context(), s, srv.Client()), OK, "leads to this server")
	want(t, "untrusted", Answers(t.Context(), s, Client()), Fail, "Install a certificate")
	for m, part := range map[string]string{"elsewhere": "leads elsewhere", "host": "replaces the Host header"} {
		mode = m
		want(t, m, Answers(t.Context(), s, srv.Client()), Fail, part)
	}
	mode = "down"
	want(t, "down", Answers(t.Context(), s, srv.Client()), Warn, "does not run")
	srv.Close()
	want(t, "nothing there", Answers(t.Context(), s, srv.Client()), Warn, "does not answer")
	want(t, "this machine", Answers(t.Context(), Settings{Loopback: true}, Client()), OK, "not needed")
}

func TestResolves(t *testing.T) {
	want(t, "number", Resolves(t.Context(), Settings{Addresses: []string{"https://203.0.113.7"}}), OK, "203.0.113.7")
	want(t, "no name", Resolves(t.Context(), Settings{Addresses: []string{"https://kickstand.invalid"}}), Fail, "kickstand.invalid does not resolve")
}

func TestStored(t *testing.T) {
	d := dbtest.New(t)
	of := func(d *db.DB, err error) Database {
		return Database{"helpdesk", db.Helpdesk, func(context.Context) (*db.DB, func(), error) { return d, func() {}, err }}
	}
	want(t, "migrated", DatabaseHealth(t.Context(), of(d, nil)), OK, ", schema ")
	want(t, "missing", DatabaseHealth(t.Context(), of(nil, fs.ErrNotExist)), Warn, "does not exist yet")
	want(t, "lost", DatabaseHealth(t.Context(), of(nil, errors.New("connection refused"))), Fail, "connection refused")
	change := func(statement string, args ...any) {
		t.Helper()
		if err := d.Write(t.Context(), func(tx *db.Tx) error { _, err := tx.Exec(t.Context(), statement, args...); return err }); err != nil {
			t.Fatal(err)
		}
	}
	change("ALTER TABLE audit_heads RENAME TO hidden")
	change("CREATE VIEW audit_heads AS SELECT * FROM hidden")
	want(t, "a view in place of the audit log", DatabaseHealth(t.Context(), of(d, nil)), Fail, `the view "audit_heads"`)
	change("INSERT INTO schema_migrations (version, name, applied_at) VALUES (9999, 'later', 0)")
	want(t, "newer", DatabaseHealth(t.Context(), of(d, nil)), Warn, "upgrade this program")
	change("INSERT INTO schema_floor (id, version) VALUES (2, 9999)")
	want(t, "contracted", DatabaseHealth(t.Context(), of(d, nil)), Fail, "Upgrade this program")
	change("DELETE FROM schema_floor WHERE version = 9999")
	change("DELETE FROM schema_migrations WHERE version > 1")
	want(t, "older", DatabaseHealth(t.Context(), of(d, nil)), Warn, "kickstand migrate")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, "closed", DatabaseHealth(t.Context(), of(d, nil)), Fail, "cannot be written")
}

func TestAttachments(t *testing.T) {
	dir, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	of := func(err error) func() (blob.Store, func(), error) {
		return func() (blob.Store, func(), error) { return dir, func() {}, err }
	}
	want(t, "works", Attachments(t.Context(), "the folder x", of(nil)), OK, "written, read and deleted")
	want(t, "missing", Attachments(t.Context(), "the folder x", of(fs.ErrNotExist)), Warn, "does not exist yet")
	want(t, "refused", Attachments(t.Context(), "the folder x", of(errors.New("denied"))), Fail, "denied")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	want(t, "cannot be written", Attachments(ctx, "the folder x", of(nil)), Fail, "cannot be written")
}

func TestMailServer(t *testing.T) {
	const password = "hunter2"
	for name, tt := range map[string]struct {
		config mailtest.ServerConfig
		trust  bool
		status Status
		part   string
	}{
		"plain":          {mailtest.ServerConfig{User: "u", Password: password}, true, OK, "without TLS, on this machine"},
		"TLS":            {mailtest.ServerConfig{User: "u", Password: password, StartTLS: true}, true, OK, "with TLS"},
		"no trust":       {mailtest.ServerConfig{User: "u", Password: password, StartTLS: true}, false, Fail, "start TLS"},
		"wrong password": {mailtest.ServerConfig{User: "u", Password: password + "x"}, true, Fail, "log in"},
	} {
		far := mailtest.NewServer(t, tt.config)
		server, err := mail.OpenSMTP(strings.Replace(far.URL, password+"x", password, 1))
		if err != nil {
			t.Fatal(err)
		}
		if tt.trust {
			server.TLS = far.ClientTLS
		}
		f := MailServer(t.Context(), server)
		want(t, name, f, tt.status, tt.part)
		if strings.Contains(f.Found+f.Remedy, password) {
			t.Errorf("%s shows the password: %+v", name, f)
		}
		if len(far.Deliveries()) != 0 {
			t.Errorf("%s: a mail was sent", name)
		}
	}
}

// TestClock: a clock difference is detected in both directions.
func TestClock(t *testing.T) {
	for _, tt := range []struct {
		skew   time.Duration
		status Status
	}{{0, OK}, {-10 * time.Second, Warn}, {10 * time.Second, Warn}, {-time.Hour, Fail}, {time.Hour, Fail}} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(tt.skew).UTC().Format(http.TimeFormat))
		}))
		part := "the public address differs by "
		want(t, tt.skew.String(), Clock(t.Context(), Settings{BaseURL: srv.URL}, srv.Client(), nil), tt.status, part)
		srv.Close()
	}
	want(t, "this machine", Clock(t.Context(), Settings{Loopback: true}, Client(), nil), OK, "nothing to compare with")
}

func TestShared(t *testing.T) {
	want(t, "counts", Shared(t.Context(), "Redis at r", func(context.Context) error { return nil }), OK, "Redis at r counts")
	want(t, "lost", Shared(t.Context(), "Redis at r", func(context.Context) error { return errors.New("refused") }), Fail, "refused")
}

func TestMachine(t *testing.T) {
	if f := Disk(t.TempDir() + "/not/yet"); f.Found == "" {
		t.Errorf("got %+v", f)
	}
	if f := Descriptors(); f.Found == "" {
		t.Errorf("got %+v", f)
	}
}

// TestConnections: doctor warns if the processes' connections do not fit the server.
func TestConnections(t *testing.T) {
	d := dbtest.New(t)
	of := Database{Name: "helpdesk", Schema: db.Helpdesk, Open: func(context.Context) (*db.DB, func(), error) { return d, func() {}, nil }}
	if !d.Postgres() {
		want(t, "SQLite", Connections(t.Context(), of, 30), OK, "none")
		return
	}
	c, err := d.Connections(t.Context())
	if err != nil || c.Limit < 1 || c.Ours < 1 {
		t.Fatalf("got %+v, %v, want at least this one", c, err)
	}
	want(t, "some", Connections(t.Context(), of, 1), OK, "each process opens up to 1")
	want(t, "too many", Connections(t.Context(), of, c.Limit+1), Warn, "KICKSTAND_DATABASE_CONNECTIONS")
}

// TestOutgoing: doctor warns while a restore holds outgoing work.
func TestOutgoing(t *testing.T) {
	d := dbtest.New(t)
	of := Database{Name: "helpdesk", Schema: db.Helpdesk, Open: func(context.Context) (*db.DB, func(), error) { return d, func() {}, nil }}
	want(t, "not held", Outgoing(t.Context(), of), OK, "it is sent")
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		return queue.HoldOutgoingTx(t.Context(), tx, queue.Hold{Reason: "restored from a backup", Restored: true})
	}); err != nil {
		t.Fatal(err)
	}
	want(t, "held", Outgoing(t.Context(), of), Warn, "restored from a backup")
	want(t, "held", Outgoing(t.Context(), of), Warn, "kickstand release")
}
