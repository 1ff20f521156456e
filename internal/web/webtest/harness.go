package webtest

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/account/factor"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/payments"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/live"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// BaseURL is the base URL of a [Harness].
const BaseURL = "https://help.example.com"

// Harness is a site with an organization, an admin and an agent; their names contain
// HTML. Register sections on Site.
type Harness struct {
	Site         *web.Site
	DB           *db.DB
	Accounts     *account.Service
	Factors      *factor.Service
	Live         *live.Hub
	Billing      *billing.Service // with the built-in checkout
	Audit        *audit.Log       // of DB
	Log          *slog.Logger
	Organization account.Organization
	Admin, Agent account.User
	Mails        []mail.Message

	t testing.TB
}

func (h *Harness) EnqueueMailTx(_ context.Context, tx *db.Tx, m mail.Message) error {
	tx.AfterCommit(func() { h.Mails = append(h.Mails, m) })
	return nil
}

// pay handles the payment provider's event as its endpoint does.
func (h *Harness) pay(ctx context.Context, event []byte) error {
	e, err := payments.New().Parse(&channel.Request{Body: event}, channel.Part{})
	if err != nil {
		return err
	}
	return h.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := h.Billing.IngestPaymentTx(ctx, tx, e.Payment)
		return err
	})
}

const password = "correct horse"

// NewHarness returns a harness on a database of its own; change configures its accounts.
func NewHarness(t testing.TB, change ...func(*account.Config)) *Harness {
	t.Helper()
	h := &Harness{t: t, DB: dbtest.New(t), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	h.Live, h.Audit = live.Open(h.DB), audittest.Open(h.DB)
	checkout, err := billing.NewCheckout(billing.CheckoutConfig{DB: h.DB, Box: seal.New(seal.NewKey()), BaseURL: BaseURL})
	if err != nil {
		t.Fatal(err)
	}
	c := account.Config{DB: h.DB, HashMemory: 8, Mailer: h, BaseURL: BaseURL, Checkout: checkout, Notify: h.Live.Publish, Audit: h.Audit, Logger: h.Log}
	for _, f := range change {
		f(&c)
	}
	if h.Accounts, err = account.New(c); err != nil {
		t.Fatal(err)
	}
	if h.Factors, err = factor.Open(factor.Config{DB: h.DB, Accounts: h.Accounts, Box: seal.New(seal.NewKey()), BaseURL: BaseURL, Logger: h.Log}); err != nil {
		t.Fatal(err)
	}
	h.Billing = billing.Open(billing.Config{
		DB: h.DB, Accounts: h.Accounts, Checkout: checkout, Mailer: h, MailFrom: mail.Address{Address: "no-reply@example.com"},
		BaseURL: BaseURL, Post: h.pay, Audit: h.Audit, Logger: h.Log,
	})
	h.Organization = h.NewOrganization(`Lime & <b>"Sons"</b>`)
	h.Admin = h.NewUser(h.Organization, "ada@example.com", "Ada <script>alert(1)</script>", account.Admin)
	h.Agent = h.NewUser(h.Organization, "ben@example.com", "Ben", account.Agent)
	h.Site = web.New(web.Config{Accounts: h.Accounts, Gate: &browser.SessionAuth{Accounts: h.Accounts}, Factors: h.Factors, Billing: h.Billing, Live: h.Live, Mailbox: "/dev/mailbox", Logger: h.Log})
	return h
}

// NewOrganization creates another organization.
func (h *Harness) NewOrganization(name string) account.Organization {
	h.t.Helper()
	o, err := h.Accounts.CreateOrganization(h.t.Context(), account.NewOrganization{Name: name})
	if err != nil {
		h.t.Fatal(err)
	}
	return o
}

// NewUser creates a member of an organization.
func (h *Harness) NewUser(o account.Organization, email, name string, role account.Role) account.User {
	h.t.Helper()
	u, err := h.Accounts.CreateUser(h.t.Context(), account.NewUser{Email: email, Name: name, Password: password, Organization: o.Slug, Role: role})
	if err != nil {
		h.t.Fatal(err)
	}
	h.Prefer(u, `{"undo_send_seconds":0}`) // replies leave at once
	return u
}

// Prefer sets a user's preferences.
func (h *Harness) Prefer(u account.User, preferences string) {
	h.t.Helper()
	if err := h.DB.Write(h.t.Context(), func(tx *db.Tx) error {
		return tx.Queue(h.t.Context(), "UPDATE users SET preferences = $2 WHERE id = $1", u.ID, preferences)
	}); err != nil {
		h.t.Fatal(err)
	}
}

// Browser is a signed-in browser with a cookie jar.
type Browser struct {
	h       *Harness
	cookies map[string]*http.Cookie
}

// SignIn returns a browser with a session of u, or without a session for the zero user.
func (h *Harness) SignIn(u account.User) *Browser {
	h.t.Helper()
	if u.ID == "" {
		return h.SignInWith(account.Tokens{})
	}
	in, err := h.Accounts.SignInWithPassword(h.t.Context(), account.PasswordSignIn{Email: u.Email, Password: password},
		account.Client{IP: "192.0.2.1", UserAgent: "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"})
	if err != nil {
		h.t.Fatal(err)
	}
	return h.SignInWith(in.Tokens)
}

// SignInWith returns a browser with the session of t.
func (h *Harness) SignInWith(t account.Tokens) *Browser {
	b := &Browser{h: h, cookies: make(map[string]*http.Cookie)}
	if t.Access != "" {
		for _, c := range (&browser.SessionAuth{}).SetSession(t) {
			b.cookies[c.Name] = c
		}
	}
	return b
}

// Do sends a request with the browser's cookies and stores those of the response.
func (b *Browser) Do(r *http.Request) *httptest.ResponseRecorder {
	for _, c := range b.cookies {
		r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
	}
	w := httptest.NewRecorder()
	b.h.Site.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		} else {
			b.cookies[c.Name] = c
		}
	}
	return w
}

// Get requests a page.
func (b *Browser) Get(path string) *httptest.ResponseRecorder {
	return b.Do(httptest.NewRequest(http.MethodGet, path, nil))
}

// Post sends a form.
func (b *Browser) Post(path string, form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, io.NopCloser(strings.NewReader(form.Encode())))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.Do(r)
}

// PostFiles sends a form with files.
func (b *Browser) PostFiles(path string, form url.Values, files ...web.File) *httptest.ResponseRecorder {
	b.h.t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for name, values := range form {
		for _, v := range values {
			if err := w.WriteField(name, v); err != nil {
				b.h.t.Fatal(err)
			}
		}
	}
	for _, f := range files {
		part, err := w.CreatePart(map[string][]string{
			"Content-Disposition": {mime.FormatMediaType("form-data", map[string]string{"name": "files", "filename": f.Name})},
			"Content-Type":        {f.ContentType},
		})
		if err == nil {
			_, err = part.Write(f.Data)
		}
		if err != nil {
			b.h.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.h.t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, path, &body)
	r.Header.Set("Content-Type", w.FormDataContentType())
	return b.Do(r)
}

// Page requests a page and asserts status 200 and the rules of all pages.
func (b *Browser) Page(path string) Document {
	b.h.t.Helper()
	w := b.Get(path)
	if w.Code != http.StatusOK {
		b.h.t.Fatalf("GET %s: got %d to %q: %s", path, w.Code, w.Header().Get("Location"), w.Body)
	}
	return b.check(w)
}

// WantRefused asserts that w is a page with this status, and parses it.
func (b *Browser) WantRefused(w *httptest.ResponseRecorder, status int) Document {
	b.h.t.Helper()
	if w.Code != status {
		b.h.t.Fatalf("got %d to %q, want %d: %s", w.Code, w.Header().Get("Location"), status, w.Body)
	}
	return b.check(w)
}

// Follow asserts that w redirects after a form, and returns the next page and its notice.
func (b *Browser) Follow(w *httptest.ResponseRecorder) (d Document, notice string) {
	b.h.t.Helper()
	if w.Code != http.StatusSeeOther {
		b.h.t.Fatalf("got %d, want 303: %s", w.Code, w.Body)
	}
	d = b.Page(w.Header().Get("Location"))
	for _, n := range d.WithAttr("id", "toasts") {
		notice = Text(n)
	}
	return d, notice
}

func (b *Browser) check(w *httptest.ResponseRecorder) Document {
	b.h.t.Helper()
	// Pages with a secret and sign-in pages must not be compressed: their length would
	// leak information.
	cache := "no-store"
	if bytes.Contains(w.Body.Bytes(), []byte(`class="secret"`)) || bytes.Contains(w.Body.Bytes(), []byte(`<body class="out"`)) {
		cache = "no-store, no-transform"
	}
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": "nosniff", "Cache-Control": cache,
	} {
		if got := w.Header().Get(name); got != want {
			b.h.t.Errorf("got %s %q, want %q", name, got, want)
		}
	}
	policy := w.Header().Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") {
		b.h.t.Errorf("got policy %q", policy)
	}
	return Parse(b.h.t, w.Body.String())
}
