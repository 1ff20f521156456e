package app

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/png"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/setting"
)

// describedSettings are settings as the command line describes them.
func describedSettings() []setting.Setting {
	return []setting.Setting{
		{Name: "base-url", Area: "Addresses", Help: "Public address.", Value: "http://localhost:8080", Source: setting.Variable, By: "KICKSTAND_BASE_URL"},
		{Name: setting.SMTPURL, Area: "Mail", Help: "Mail server.", Source: setting.Default},
		{Name: setting.MailFrom, Area: "Mail", Help: "Sender.", Value: "no-reply@help.example", Source: setting.Default},
		{Name: setting.SignUp, Area: "Sign-in", Help: "Sign-up policy.", Source: setting.Default},
		{Name: setting.Retention, Area: "Retention", Help: "How long history is stored.", Value: "events=90d, attempts=30d, inbound=30d, requests=7d, audit=never", Source: setting.Default},
		{Name: setting.DeliveryKey, Area: "Mail", Help: "The mail delivery provider's API key.", Source: setting.Default},
		{Name: setting.SignInBrand, Area: "Sign-in", Help: "Organization whose brand the pages for signing in have.", Source: setting.Default},
	}
}

// openWithSettings opens a program on a database with operators.
func openWithSettings(t *testing.T, databaseURL, data string, list []setting.Setting, operators ...string) *App {
	t.Helper()
	a, err := Open(t.Context(), Config{
		BaseURL: "http://localhost:8080", Data: data, DatabaseURL: databaseURL, MailFrom: "no-reply@help.example", Retention: DefaultRetention,
		AccessLifetime: time.Hour, RefreshLifetime: time.Hour, RetryTimeScale: 1, FreshProof: -1,
		Web: true, StopTimeout: time.Second, Settings: list, Operators: operators,
	}, slog.New(slog.DiscardHandler))
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

// TestPageSettings: a value of the page applies in every process and after a restart, unless something
// stronger fixes the setting; bad values change nothing.
func TestPageSettings(t *testing.T) {
	at, data := dbtest.URL(t), t.TempDir()
	here, there := openWithSettings(t, at, data, describedSettings()), openWithSettings(t, at, data, describedSettings())
	ctx := t.Context()
	values := map[string]string{setting.SignUp: "domain:example.com", setting.Retention: "events=10d,attempts=never", setting.MailFrom: "Acme <help@acme.example>"}
	if err := here.SaveSettings(ctx, values); err != nil {
		t.Fatal(err)
	}
	if err := there.reloadSettings(ctx); err != nil {
		t.Fatal(err)
	}
	restarted := openWithSettings(t, at, data, describedSettings())
	for name, a := range map[string]*App{"the process": here, "another process": there, "a process started later": restarted} {
		if got := a.Accounts.SignUp().String(); got != "domain:example.com" {
			t.Errorf("%s has sign-up policy %s", name, got)
		}
		if got := a.current.Load().Retention; got.Events != 10*day || got.Attempts != 0 || got.Requests != 7*day {
			t.Errorf("%s has retention %+v", name, got)
		}
		if got := a.mailSwitch.From(); got.Address != "help@acme.example" || got.Name != "Acme" {
			t.Errorf("%s sends from %v", name, got)
		}
	}

	for name, wrong := range map[string]string{
		setting.SignUp: "everybody", setting.Retention: "events=1s", setting.MailFrom: "nobody", setting.SMTPURL: "ftp://mail.example.com", "base-url": "https://evil.example", "secret-key": "x",
	} {
		err := here.SaveSettings(ctx, map[string]string{setting.SignUp: "invited", name: wrong})
		if refused, ok := errors.AsType[*setting.Error](err); !ok || refused.Name != name {
			t.Errorf("%s=%s: got %v", name, wrong, err)
		}
	}
	if got := here.Accounts.SignUp().String(); got != "domain:example.com" {
		t.Errorf("refused values changed the sign-up policy to %s", got)
	}

	for _, source := range []setting.Source{setting.Flag, setting.Variable, setting.File} {
		list := describedSettings()
		list[3].Source, list[3].By, list[3].Value = source, "what fixes it", "open"
		fixed := openWithSettings(t, at, data, list)
		if got := fixed.Accounts.SignUp(); got.String() != "open" {
			t.Errorf("a value of the page overrides a %s: %s", source, got)
		}
		err := fixed.SaveSettings(ctx, map[string]string{setting.SignUp: "invited"})
		if err == nil || !strings.Contains(err.Error(), "fixed by what fixes it") {
			t.Errorf("a value that a %s fixes is saved: %v", source, err)
		}
	}

	if err := here.SaveSettings(ctx, map[string]string{setting.SignUp: "", setting.Retention: ""}); err != nil {
		t.Fatal(err)
	}
	if got := here.Accounts.SignUp(); !got.Open() || here.current.Load().Retention != DefaultRetention {
		t.Errorf("deleted values still apply: %s, %+v", got, here.current.Load().Retention)
	}
}

// TestSettingsReachOtherProcesses: a running process applies a change of another one's page within seconds.
func TestSettingsReachOtherProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		box := seal.New(seal.NewKey())
		a := &App{DB: d, log: quiet, settings: setting.Open(d, box, nil), given: Config{BaseURL: publicURL, MailFrom: "a@example.com", AllowNoMail: true}}
		a.mailSwitch = mail.NewSwitch(mail.Unsendable{}, mail.Address{Address: "a@example.com"})
		a.current.Store(&a.given)
		var err error
		if a.Accounts, err = account.New(account.Config{DB: d, BaseURL: publicURL, SignUp: account.InvitedSignUp}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go a.watchSettings(ctx)
		synctest.Wait()
		page := setting.Open(d, box, nil) // of another process
		if err := page.Save(t.Context(), map[string]string{setting.SignUp: "open", setting.MailFrom: "b@example.com", setting.SMTPURL: "smtp://mail.example.com"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(settingsInterval)
		synctest.Wait()
		if _, ok := mail.Current(a.mailSwitch).(*mail.SMTP); !ok || !a.Accounts.SignUp().Open() || a.mailSwitch.From().Address != "b@example.com" {
			t.Errorf("after %s: sign-up %s, from %v by %T", settingsInterval, a.Accounts.SignUp(), a.mailSwitch.From(), mail.Current(a.mailSwitch))
		}
	})
}

// serverPage posts to or gets a page in a session.
func (s *strict) serverPage(in account.SignIn, method, path string, form url.Values) (status int, body string) {
	s.t.Helper()
	w := s.do(method, path, formType, form.Encode(), map[string]string{browser.AccessCookie: in.Tokens.Access})
	return w.Code, w.Body.String()
}

// TestServerPages: only operators see and change the settings of the deployment, without secrets.
func TestServerPages(t *testing.T) {
	s := &strict{t: t, App: openWithSettings(t, dbtest.URL(t), t.TempDir(), describedSettings(), "Ops <ADA@example.com>")}
	var err error
	if s.org, err = s.Accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme", Default: true}); err != nil {
		t.Fatal(err)
	}
	s.ada, s.ben = s.admin("ada@example.com"), s.admin("ben@example.com")
	ada, ben := s.signIn(s.ada), s.signIn(s.ben)
	for _, path := range []string{"/settings/server", "/settings/server/checks", "/settings/server/mail", "/settings/server/sign-in"} {
		if status, _ := s.serverPage(ben, "GET", path, nil); status != http.StatusNotFound {
			t.Errorf("another admin of the default organization gets %d for %s", status, path)
		}
		if status, body := s.serverPage(ada, "GET", path, nil); status != http.StatusOK {
			t.Errorf("the operator gets %d for %s: %s", status, path, body)
		}
	}
	if status, _ := s.serverPage(ben, "POST", "/settings/server/sign-in", url.Values{setting.SignUp: {"open"}}); status != http.StatusNotFound {
		t.Errorf("another admin posts: %d", status)
	}
	if _, body := s.serverPage(ben, "GET", "/settings", nil); strings.Contains(body, "/settings/server") {
		t.Error("another admin sees the link")
	}
	if status, _ := s.serverPage(ada, "GET", "/settings/server/nowhere", nil); status != http.StatusNotFound {
		t.Errorf("an unknown area: %d", status)
	}
	if _, body := s.serverPage(ada, "GET", "/settings/server/addresses", nil); !strings.Contains(body, "KICKSTAND_BASE_URL") || !strings.Contains(body, "Public address.") {
		t.Errorf("the page lacks the source or the help: %s", body)
	}

	if status, _ := s.serverPage(ada, "POST", "/settings/server/sign-in", url.Values{setting.SignUp: {"domain"}, "domains": {"example.com, example.org"}}); status != http.StatusSeeOther || s.Accounts.SignUp().String() != "domain:example.com,example.org" {
		t.Errorf("got %d, policy %s", status, s.Accounts.SignUp())
	}
	status, body := s.serverPage(ada, "POST", "/settings/server/retention", url.Values{"events": {"90d"}, "attempts": {"1s"}, "inbound": {"never"}, "requests": {"7d"}})
	if status != http.StatusUnprocessableEntity || !strings.Contains(body, "Attempts 1s is not from 1h to 3650d") {
		t.Errorf("a wrong time: got %d %s", status, body)
	}

	relay := mailtest.NewServer(t, mailtest.ServerConfig{User: "desk", Password: "hunter2"})
	form := url.Values{setting.SMTPURL: {relay.URL}, setting.MailFrom: {"help@acme.example"}, "do": {"save"}}
	if status, body := s.serverPage(ada, "POST", "/settings/server/mail", form); status != http.StatusSeeOther {
		t.Fatalf("the mail server is refused: %d %s", status, body)
	}
	got := relay.Deliveries()
	if len(got) != 1 || got[0].From != "help@acme.example" || got[0].To[0] != "ada@example.com" {
		t.Errorf("the test mail: %+v", got)
	}
	form.Set(setting.SMTPURL, strings.Replace(relay.URL, "hunter2", "hunter3", 1))
	if status, body := s.serverPage(ada, "POST", "/settings/server/mail", form); status != http.StatusUnprocessableEntity || !strings.Contains(body, "did not accept the test mail") || strings.Contains(body, "hunter") {
		t.Errorf("a wrong password: got %d %s", status, body)
	}
	if s.current.Load().SMTPURL != relay.URL {
		t.Error("the refused mail server is used")
	}
	if _, body := s.serverPage(ada, "GET", "/settings/server/mail", nil); strings.Contains(body, "hunter") || !strings.Contains(body, "smtp://********@") {
		t.Errorf("the page shows the password: %s", body)
	}
	entries, err := audit.List(t.Context(), []*audit.Log{s.Audit}, "", audit.Query{Action: setting.Changed, Limit: 10})
	if err != nil || len(entries.Entries) != 3 {
		t.Fatalf("got %d entries of the audit log, %v; want 3", len(entries.Entries), err)
	}
	for _, e := range entries.Entries {
		if text := slog.AnyValue(e.Changes).String(); e.Source.Actor.Email != "ada@example.com" || strings.Contains(text, "hunter") {
			t.Errorf("recorded by %s: %s", e.Source.Actor.Email, text)
		}
	}
	if status, _ := s.serverPage(ada, "POST", "/settings/server/mail", url.Values{"delete": {setting.SMTPURL}}); status != http.StatusSeeOther || s.current.Load().SMTPURL != "" {
		t.Errorf("deleting the mail server: got %d", status)
	}
}

// TestOperators: without named operators, admins of the default organization are operators only if the base
// URL is this machine.
func TestOperators(t *testing.T) {
	for baseURL, want := range map[string]bool{"http://localhost:8080": true, publicURL: false} {
		a := deployment(t, baseURL, quiet)
		first := admin(t, a)
		other, err := a.Accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Other"})
		if err != nil {
			t.Fatal(err)
		}
		if got := a.isOperator(t.Context(), account.Identity{UserID: first.ID, OrganizationID: first.OrganizationID, Role: account.Admin, User: first}); got != want {
			t.Errorf("%s: an admin of the default organization is an operator: %t", baseURL, got)
		}
		if a.isOperator(t.Context(), account.Identity{OrganizationID: first.OrganizationID, Role: account.Agent, User: first}) ||
			a.isOperator(t.Context(), account.Identity{OrganizationID: other.ID, Role: account.Admin}) {
			t.Errorf("%s: an agent or another organization's admin is an operator", baseURL)
		}
	}
}

// TestLastWayToMail: the page refuses to delete the only way of a public server to send mail.
func TestLastWayToMail(t *testing.T) {
	a := deployment(t, publicURL, quiet, func(c *Config) { c.AllowNoMail = false })
	if err := a.SaveSettings(t.Context(), map[string]string{setting.SMTPURL: "smtp://mail.example.com"}); err != nil {
		t.Fatal(err)
	}
	if err := a.SaveSettings(t.Context(), map[string]string{setting.SMTPURL: ""}); err == nil || a.current.Load().SMTPURL == "" {
		t.Errorf("it is deleted: %v", err)
	}
}

// TestDeliveryKeyOnPage: the key of the delivery provider is saved only if the provider accepts it, applies at once, and is
// not shown again.
func TestDeliveryKeyOnPage(t *testing.T) {
	var keys []string
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		keys = append(keys, key)
		if key != "re_good" {
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, `{"message":"API key is invalid"}`)
			return
		}
		io.WriteString(w, `{"id":"1"}`)
	}))
	defer provider.Close()
	s := &strict{t: t, App: openWithSettings(t, dbtest.URL(t), t.TempDir(), describedSettings(), "ada@example.com")}
	var err error
	if s.org, err = s.Accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme", Default: true}); err != nil {
		t.Fatal(err)
	}
	s.ada = s.admin("ada@example.com")
	ada := s.signIn(s.ada)
	const page = "/settings/server/mail"

	s.given.APIURLs = map[string]string{"email-delivery": provider.URL}
	form := url.Values{setting.DeliveryKey: {"re_good"}, setting.MailFrom: {"help@acme.example"}, "do": {"save"}}
	if status, body := s.serverPage(ada, "POST", page, form); status != http.StatusUnprocessableEntity || !strings.Contains(body, "email-delivery-api-url") || len(keys) > 0 {
		t.Errorf("with an address of the deployment: got %d, %d calls, %s", status, len(keys), body)
	}
	s.given.APIURLs = nil
	s.providers = redirected{provider.URL}
	form.Set(setting.DeliveryKey, "re bad")
	if status, body := s.serverPage(ada, "POST", page, form); status != http.StatusUnprocessableEntity || !strings.Contains(body, "Mail delivery provider has no keys with such characters") || strings.Contains(body, "re bad") {
		t.Errorf("a malformed key: got %d %s", status, body)
	}
	form.Set(setting.DeliveryKey, "re_wrong")
	if status, body := s.serverPage(ada, "POST", page, form); status != http.StatusUnprocessableEntity || !strings.Contains(body, "Mail delivery provider did not accept the test mail") || strings.Contains(body, "re_wrong") {
		t.Errorf("a wrong key: got %d %s", status, body)
	}
	form.Set(setting.DeliveryKey, "re_good")
	if status, body := s.serverPage(ada, "POST", page, form); status != http.StatusSeeOther {
		t.Fatalf("a good key: got %d %s", status, body)
	}
	if _, ok := mail.Current(s.mailSwitch).(*mail.HTTPSender); !ok || s.current.Load().EmailDeliveryAPIKey != "re_good" {
		t.Errorf("mails are sent by %T", mail.Current(s.mailSwitch))
	}
	if _, body := s.serverPage(ada, "GET", page, nil); strings.Contains(body, "re_good") || !strings.Contains(body, "********") {
		t.Errorf("the page shows the key, or no mask: %s", body)
	}
	// The mail server has precedence, and a new key is tested nevertheless.
	relay := mailtest.NewServer(t, mailtest.ServerConfig{})
	form.Set(setting.SMTPURL, relay.URL)
	form.Set(setting.DeliveryKey, "re_wrong")
	if status, body := s.serverPage(ada, "POST", page, form); status != http.StatusUnprocessableEntity || !strings.Contains(body, "Mail delivery provider did not accept the test mail") {
		t.Errorf("a wrong key beside a mail server: got %d %s", status, body)
	}
	entries, err := audit.List(t.Context(), []*audit.Log{s.Audit}, "", audit.Query{Action: setting.Changed, Limit: 10})
	if err != nil || strings.Contains(slog.AnyValue(entries.Entries).String(), "re_good") {
		t.Errorf("recorded %v, %v", entries.Entries, err)
	}
}

// redirected sends all requests to one address.
type redirected struct{ to string }

func (r redirected) RoundTrip(req *http.Request) (*http.Response, error) {
	u, err := url.Parse(r.to)
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.URL.Scheme, req.URL.Host = u.Scheme, u.Host
	return http.DefaultTransport.RoundTrip(req)
}

// TestFixedMailServerRefuses: the page names the setting of the deployment that refuses the test mail of another setting.
func TestFixedMailServerRefuses(t *testing.T) {
	relay := mailtest.NewServer(t, mailtest.ServerConfig{Refuse: func(command string) *smtp.SMTPError {
		if strings.HasPrefix(command, "MAIL help@") {
			return &smtp.SMTPError{Code: 550, Message: "not your domain"}
		}
		return nil
	}})
	list := describedSettings()
	list[1].Source, list[1].By, list[1].Value = setting.Variable, "KICKSTAND_SMTP_URL", relay.URL
	s := &strict{t: t, App: openWithSettings(t, dbtest.URL(t), t.TempDir(), list, "ada@example.com")}
	s.given.SMTPURL = relay.URL
	var err error
	if s.org, err = s.Accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme", Default: true}); err != nil {
		t.Fatal(err)
	}
	s.ada = s.admin("ada@example.com")
	form := url.Values{setting.MailFrom: {"help@acme.example"}, "do": {"save"}}
	status, body := s.serverPage(s.signIn(s.ada), "POST", "/settings/server/mail", form)
	if status != http.StatusUnprocessableEntity || !strings.Contains(body, "The value of smtp-url did not accept the test mail") {
		t.Errorf("got %d %s", status, body)
	}
}

// TestBrandedPagesAndMails: mails to members and pages of their links have the look of their organization, the pages for
// signing in that of the operator's choice.
func TestBrandedPagesAndMails(t *testing.T) {
	s := &strict{t: t, App: openWithSettings(t, dbtest.URL(t), t.TempDir(), describedSettings(), "ada@example.com")}
	var err error
	if s.org, err = s.Accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme", Default: true}); err != nil {
		t.Fatal(err)
	}
	s.ada = s.admin("ada@example.com")
	ada := s.signIn(s.ada)
	picture := image.NewGray(image.Rect(0, 0, 100, 50)) // black
	var file bytes.Buffer
	if err := png.Encode(&file, picture); err != nil {
		t.Fatal(err)
	}
	o, err := s.Accounts.SetBranding(t.Context(), s.org.ID, account.Branding{Accent: "#5b21b6", File: file.Bytes()})
	if err != nil {
		t.Fatal(err)
	}
	logo := o.Logo.Path()
	if _, body := s.serverPage(ada, "GET", "/forgot-password", nil); strings.Contains(body, logo) || !strings.Contains(body, ">Kickstand</a>") {
		t.Errorf("without the operator's choice: %s", body)
	}
	if status, body := s.serverPage(ada, "POST", "/settings/server/sign-in", url.Values{setting.SignUp: {"open"}, setting.SignInBrand: {"nobody"}}); status != http.StatusUnprocessableEntity || !strings.Contains(body, "is not the short name of an organization") {
		t.Errorf("an unknown organization: got %d %s", status, body)
	}
	if status, body := s.serverPage(ada, "POST", "/settings/server/sign-in", url.Values{setting.SignUp: {"open"}, setting.SignInBrand: {o.Slug}}); status != http.StatusSeeOther {
		t.Fatalf("got %d %s", status, body)
	}
	if _, body := s.serverPage(ada, "GET", "/forgot-password", nil); !strings.Contains(body, `<img src="`+logo+`" alt="Acme" width="50" height="25">`) || !strings.Contains(body, "– Acme</title>") {
		t.Errorf("with the operator's choice: %s", body)
	}

	if b, err := s.mailBrand(t.Context(), s.DB, "stranger@example.com"); err != nil || b.Logo != s.BaseURL+logo || b.Accent != "#5b21b6" {
		t.Errorf("a stranger, with the operator's choice: got %+v, %v", b, err)
	}
	if err := s.SaveSettings(t.Context(), map[string]string{setting.SignInBrand: ""}); err != nil {
		t.Fatal(err)
	}
	if b, err := s.mailBrand(t.Context(), s.DB, "stranger@example.com"); err != nil || b != (mail.Brand{}) {
		t.Errorf("a stranger: got %+v, %v", b, err)
	}
	if b, err := s.mailBrand(t.Context(), s.DB, "ADA@example.com"); err != nil || b.Name != "Acme" || b.Width != 50 {
		t.Errorf("a member: got %+v, %v", b, err)
	}
}
