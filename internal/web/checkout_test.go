package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// checkoutFixture is the built-in checkout with the events that it posted.
type checkoutFixture struct {
	fixture
	checkout *billing.Checkout
	posted   []string // types of events
	refuse   error    // returned instead of accepting an event
}

func newCheckoutFixture(t *testing.T, change ...func(*billing.CheckoutConfig)) *checkoutFixture {
	t.Helper()
	f := &checkoutFixture{fixture: fixture{t: t, db: dbtest.NewSQLite(t)}}
	var err error
	if f.accounts, err = account.New(account.Config{DB: f.db, BaseURL: baseURL}); err != nil {
		t.Fatal(err)
	}
	c := billing.CheckoutConfig{DB: f.db, Box: seal.New(seal.NewKey()), BaseURL: baseURL}
	for _, fn := range change {
		fn(&c)
	}
	if f.checkout, err = billing.NewCheckout(c); err != nil {
		t.Fatal(err)
	}
	f.Handler = web.New(web.Config{
		Accounts: f.accounts,
		Gate:     &browser.SessionAuth{Accounts: f.accounts, Secure: true},
		Billing: billing.Open(billing.Config{
			DB: f.db, Accounts: f.accounts, Checkout: f.checkout, Mailer: f, MailFrom: mail.Address{Address: "no-reply@example.com"},
			BaseURL: baseURL, Post: f.handleEvent,
		}),
	})
	return f
}

func (f *checkoutFixture) handleEvent(_ context.Context, event []byte) error {
	if f.refuse != nil {
		return f.refuse
	}
	var e struct{ Type string }
	if err := json.Unmarshal(event, &e); err != nil {
		return err
	}
	f.posted = append(f.posted, e.Type)
	return nil
}

// start returns the path of a new checkout.
func (f *checkoutFixture) start(organization string, plan account.Plan) string {
	f.t.Helper()
	to, err := f.checkout.StartCheckout(f.t.Context(), account.CheckoutRequest{
		OrganizationID: "0199c7a0-0000-7000-8000-000000000001", OrganizationName: organization, Plan: plan, Email: "ada@example.com",
	})
	if err != nil {
		f.t.Fatal(err)
	}
	path, ok := strings.CutPrefix(to, baseURL)
	if !ok || !strings.HasPrefix(path, "/dev/checkout/") {
		f.t.Fatalf("got checkout at %q", to)
	}
	return path
}

func TestCheckout(t *testing.T) {
	f := newCheckoutFixture(t)
	for organization, plan := range map[string]account.Plan{
		"Acme": account.Pro, `</dd><script>"'{{.}}` + "\u202e": account.Business, strings.Repeat("W", 255): account.Pro,
	} {
		f.posted = nil
		path := f.start(organization, plan)
		for range 3 {
			for _, method := range []string{"HEAD", "GET"} {
				if w := f.serve(method, path, header("Sec-Purpose", "prefetch")); w.Code != 200 {
					t.Fatalf("%s: got %d: %s", method, w.Code, w.Body)
				}
			}
		}
		if len(f.posted) != 0 {
			t.Errorf("looking at the page posted %v", f.posted)
		}
		page := wantPage(t, f.serve("GET", path))
		page.Want("Pay for Kickstand "+map[account.Plan]string{"pro": "Pro", "business": "Business"}[plan], "no money is charged", organization, "ada@example.com")
		if cancel := page.WithAttr("href", "/?checkout=cancelled"); len(cancel) != 1 || webtest.Text(cancel[0]) != "Cancel" {
			t.Errorf("got no way to cancel in %s", webtest.Text(page.Root))
		}
		if got := webtest.Attr(page.All("form")[0], "action"); got != path {
			t.Errorf("got form to %q, want %q", got, path)
		}
		for range 2 { // a double click
			w := f.submit(page, nil)
			if w.Code != 303 || w.Header().Get("Location") != "/?checkout=paid" || len(w.Result().Cookies()) != 0 {
				t.Fatalf("got %d with header %v: %s", w.Code, w.Header(), w.Body)
			}
		}
		want := []string{"checkout.session.completed", "customer.subscription.created"}
		if len(f.posted) < 4 || !slices.Equal(f.posted[:2], want) {
			t.Errorf("got events %v, want %v to begin with", f.posted, want)
		}
	}
	for path, want := range map[string]string{
		"/?checkout=paid": "Thank you. Your plan changes", "/?checkout=cancelled": "No payment was made",
	} {
		page := wantPage(t, f.serve("GET", path))
		page.Want(want)
		if len(page.WithAttr("role", "status")) != 1 {
			t.Errorf("%s: got no notice", path)
		}
	}
	if page := wantPage(t, f.serve("GET", "/?checkout=%3Cb%3E")); len(page.WithAttr("role", "status")) != 0 {
		t.Error("got a notice of something else")
	}
}

func TestCheckoutFailures(t *testing.T) {
	f := newCheckoutFixture(t)
	path := f.start("Acme", account.Pro)
	page := wantPage(t, f.serve("GET", path))

	// After an outage the page works again.
	f.refuse = problem.New(problem.Unavailable, "no room").Because(errors.New("a secret"))
	w := f.submit(page, nil)
	if w.Code != 503 || w.Header().Get("Location") != "" || strings.Contains(w.Body.String(), "a secret") {
		t.Errorf("got %d with page %s", w.Code, w.Body)
	}
	failed := wantPage(t, w)
	failed.Want("The payment could not be recorded", "You won’t be charged twice")
	if len(failed.WithAttr("href", path)) != 1 {
		t.Errorf("no way back in %s", webtest.Text(failed.Root))
	}
	f.refuse = errors.New("a secret")
	w = f.submit(page, nil)
	if w.Code != 500 || strings.Contains(w.Body.String(), "a secret") {
		t.Errorf("got %d with page %s", w.Code, w.Body)
	}
	wantPage(t, w).Want("Something went wrong", "the id")
	f.refuse = nil
	if w := f.submit(page, nil); w.Code != 303 {
		t.Errorf("got %d once it works again", w.Code)
	}

	if w := f.serve("PUT", path); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("PUT: got %d with Allow %q", w.Code, w.Header().Get("Allow"))
	}
	r := httptest.NewRequest("POST", path, strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	if w := f.send(r); w.Code != 415 {
		t.Errorf("JSON: got %d, want 415", w.Code)
	}
}

// wantNoCheckout asserts status 404 for GET and POST, and no event.
func (f *checkoutFixture) wantNoCheckout(t *testing.T, path string) {
	t.Helper()
	f.posted = nil
	for _, w := range []*httptest.ResponseRecorder{f.serve("GET", path), f.post(path, nil)} {
		if w.Code != 404 || w.Header().Get("Location") != "" {
			t.Errorf("%s: got %d, want 404", path, w.Code)
		}
		wantPage(t, w)
	}
	if len(f.posted) != 0 {
		t.Errorf("%s: got events %v", path, f.posted)
	}
}

func TestNoSuchCheckout(t *testing.T) {
	f, other := newCheckoutFixture(t), newCheckoutFixture(t)
	path := f.start("Acme", account.Pro)
	f.wantNoCheckout(t, other.start("Acme", account.Pro))
	f.wantNoCheckout(t, path+"A")
	f.wantNoCheckout(t, path[:len(path)-1])
	f.wantNoCheckout(t, "/dev/checkout/x%22%3E%3Cscript%3E%0d%0a")
	f.wantNoCheckout(t, "/dev/checkout/"+strings.Repeat("A", 9000))
	wantPage(t, f.serve("GET", "/dev/checkout/x")).Want("Checkout not found", "Choose the plan again")

	// With a payment provider the page does not exist.
	f = newCheckoutFixture(t, func(c *billing.CheckoutConfig) { c.APIKey = "key" })
	f.wantNoCheckout(t, path)
	if w := f.serve("GET", path); strings.Contains(w.Body.String(), "checkout") {
		t.Errorf("got page %s", w.Body)
	}
}

func TestCheckoutTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCheckoutFixture(t)
		path := f.start("Acme", account.Pro)
		time.Sleep(24*time.Hour - time.Minute)
		if w := f.serve("GET", path); w.Code != http.StatusOK {
			t.Errorf("got %d a minute before the end", w.Code)
		}
		time.Sleep(time.Minute)
		f.wantNoCheckout(t, path)
	})
}
