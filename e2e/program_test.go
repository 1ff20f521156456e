package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/setting"
)

// program is a running program with its services.
type program struct {
	*app.App
	t    testing.TB
	base string
	*state
}

// state is shared by all parts of a test.
type state struct {
	mu     sync.Mutex
	opened map[string][]*http.Cookie // sessions by user; password attempts are limited
	links  map[string]bool           // mailed links that were opened
	texts  []string                  // messages sent to the SMS provider
}

// with returns the same program for a subtest.
func (p *program) with(t testing.TB) *program {
	part := *p
	part.t = t
	return &part
}

// Secrets of the test channels.
const (
	mailSecret = "secret of the mail converter"
	textSecret = "secret of the text provider"
)

// atLocalhost sets a base URL at which browsers support passkeys.
func atLocalhost(c *app.Config) { c.BaseURL = strings.Replace(c.BaseURL, "127.0.0.1", "localhost", 1) }

// settings are some settings as the command line describes them.
var settings = []setting.Setting{
	{Name: "base-url", Area: "Addresses", Help: "Public address of the server (default: http:// and the listen address).", Value: "http://127.0.0.1:8080", Source: setting.Flag, By: "--base-url"},
	{Name: setting.SMTPURL, Area: "Mail", Help: "Mail server: smtp://user:pass@host:587 or smtps://…", Source: setting.Default},
	{Name: setting.MailFrom, Area: "Mail", Help: "Sender of account mails.", Value: "no-reply@help.example", Source: setting.Default},
	{Name: setting.SignUp, Area: "Sign-in", Help: "Sign-up policy: open, invited (only invited addresses), or domain:example.com,example.org (only these domains).", Source: setting.Default},
	{Name: "sms-secret", Area: "Channels", Help: "Signing secrets of SMS accounts that all organizations share.", Value: "********, ********", Source: setting.Variable, By: "KICKSTAND_SMS_SECRET_FILE"},
	{Name: setting.Retention, Area: "Retention", Help: "How long history is stored.", Value: "events=90d, attempts=30d, inbound=30d, requests=7d, audit=never", Source: setting.Default},
}

// start runs a program until the test ends; change configures it.
func start(t testing.TB, change ...func(*app.Config)) *program {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &state{opened: map[string][]*http.Cookie{}, links: map[string]bool{}}
	provider := httptest.NewServer(http.HandlerFunc(s.sendText))
	t.Cleanup(provider.Close)
	p := &program{t: t, base: "http://" + ln.Addr().String(), state: s}
	c := app.Config{
		BaseURL: p.base, Data: t.TempDir(), DatabaseURL: dbtest.URL(t), MailFrom: "no-reply@help.example",
		AccessLifetime: time.Hour, RefreshLifetime: 24 * time.Hour, RetryTimeScale: 1,
		APIURLs:               map[string]string{"sms": provider.URL},
		Secrets:               map[string][]string{"email-raw": {mailSecret}, "sms": {textSecret}},
		Settings:              settings,
		AllowPrivateReceivers: true, Web: true, Worker: true, StopTimeout: 10 * time.Second,
	}
	for _, fn := range change {
		fn(&c)
	}
	p.base = c.BaseURL
	p.App, err = app.Open(t.Context(), c, slog.New(slog.NewTextHandler(&failures{t}, &slog.HandlerOptions{Level: slog.LevelError})))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- p.Serve(ctx, ln, func() error { close(ready); return nil }) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Serve() = %v", err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	return p
}

// sendText is the SMS provider: it accepts every message.
func (s *state) sendText(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.texts = append(s.texts, r.FormValue("To")+": "+r.FormValue("Body"))
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	json.NewEncoder(w).Encode(map[string]any{"sid": "SM" + rand.Text(), "status": "queued", "body": r.FormValue("Body"), "to": r.FormValue("To"), "from": r.FormValue("From")})
}

// failures is the program's log: an error fails the test.
type failures struct{ t testing.TB }

func (f *failures) Write(line []byte) (int, error) {
	f.t.Errorf("the program's log: %s", bytes.TrimSpace(line))
	return len(line), nil
}

const password = "correct horse battery staple"

// organization creates an organization with the admin Robin Berg,
// admin@SLUG.example.
func (p *program) organization(name string) (account.Organization, account.User) {
	p.t.Helper()
	o, err := p.Accounts.CreateOrganization(p.t.Context(), account.NewOrganization{Name: name, Plan: account.Business})
	if err != nil {
		p.t.Fatal(err)
	}
	return o, p.member(o, "admin", "Robin Berg", account.Admin)
}

// member creates a member with the address LOCAL@SLUG.example.
func (p *program) member(o account.Organization, local, name string, role account.Role) account.User {
	p.t.Helper()
	u, err := p.Accounts.CreateUser(p.t.Context(), account.NewUser{
		Email: local + "@" + o.Slug + ".example", Name: name, Password: password, Organization: o.Slug, Role: role,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return u
}

// invite invites an agent.
func (p *program) invite(by account.User, to string) {
	p.t.Helper()
	id := account.Identity{UserID: by.ID, OrganizationID: by.OrganizationID, Role: account.Admin, User: by}
	if _, err := p.Accounts.Invite(p.t.Context(), id, account.NewInvitation{Email: to, Role: account.Agent}); err != nil {
		p.t.Fatal(err)
	}
}

// signIn sets the cookies of a user's session, which is created once.
func (p *program) signIn(v *visitor, u account.User) {
	v.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.session(u) {
		v.cookie(c.Name, c.Value)
	}
}

func (p *program) session(u account.User) []*http.Cookie {
	p.t.Helper()
	if cookies, ok := p.opened[u.ID]; ok {
		return cookies
	}
	in, err := p.Accounts.SignInWithPassword(p.t.Context(), account.PasswordSignIn{Email: u.Email, Password: password},
		account.Client{IP: "127.0.0.1", UserAgent: "Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0"})
	if err != nil {
		p.t.Fatal(err)
	}
	gate := browser.SessionAuth{Accounts: p.Accounts}
	p.opened[u.ID] = gate.SetSession(in.Tokens)
	return p.opened[u.ID]
}

// as opens a browser as a signed-in user.
func (p *program) as(t testing.TB, u account.User) *visitor {
	t.Helper()
	v := p.visit(t)
	p.signIn(v, u)
	return v
}

// mail is a mail of the mailbox.
type mail struct {
	ID   string
	To   []string
	Text string
}

// mailbox returns all mails, newest first.
func (p *program) mailbox() []mail {
	p.t.Helper()
	var mails []mail
	status, body := p.call("GET", "/dev/mailbox.json", nil, nil)
	if err := json.Unmarshal(body, &mails); status != http.StatusOK || err != nil {
		p.t.Fatalf("the mailbox answered %d, %v", status, err)
	}
	return mails
}

// mailed waits for a mail to an address with a link that starts with path, and returns
// both. It returns each link once.
func (p *program) mailed(to, path string) (m mail, link string) {
	p.t.Helper()
	pattern := regexp.MustCompile(regexp.QuoteMeta(p.base+path) + `\S*`)
	p.until("a mail to "+to, func() bool {
		for _, m = range p.mailbox() {
			if link = pattern.FindString(m.Text); len(m.To) == 1 && m.To[0] == to && link != "" && p.unread(link) {
				return true
			}
		}
		return false
	})
	return m, link
}

// unread reports whether a link is returned for the first time.
func (s *state) unread(link string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.links[link]
	s.links[link] = true
	return !seen
}

// number returns the number of the organization's ticket with a subject, or 0.
func (p *program) number(organizationID, subject string) (number int64) {
	p.t.Helper()
	err := p.Desk.EachTicket(p.t.Context(), organizationID, desk.TicketQuery{}, func(t *desk.Ticket) error {
		if t.Subject == subject {
			number = t.Number
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return number
}

// tickets returns the number of an organization's tickets.
func (p *program) tickets(organizationID string) (n int) {
	p.t.Helper()
	if err := p.Desk.EachTicket(p.t.Context(), organizationID, desk.TicketQuery{}, func(*desk.Ticket) error { n++; return nil }); err != nil {
		p.t.Fatal(err)
	}
	return n
}

// call sends a request to the program.
func (p *program) call(method, path string, header http.Header, body []byte) (int, []byte) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), waitTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, p.base+path, bytes.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	maps.Copy(req.Header, header)
	resp, answer, err := do(http.DefaultClient, req)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// do sends a request and reads the response.
func do(c *http.Client, req *http.Request) (*http.Response, []byte, error) {
	resp, err := c.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, body, err
}

// until waits until done returns true.
func (p *program) until(what string, done func() bool) {
	p.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(waitTimeout)
	for !done() {
		select {
		case <-tick.C:
		case <-end:
			p.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// withAndWithoutScripts runs work in a browser with JavaScript and in one without, each
// with a program of its own.
func withAndWithoutScripts(t *testing.T, work func(t *testing.T, p *program, v *visitor, scripts bool)) {
	for name, scripts := range map[string]bool{"scripts": true, "no scripts": false} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			p := start(t)
			v := p.visit(t)
			if !scripts {
				v.withoutScripts()
			}
			work(t, p, v, scripts)
		})
	}
}
