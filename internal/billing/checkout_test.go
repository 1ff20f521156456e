package billing_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// testKey looks like a key of the provider's.
func testKey() string { return strings.Join([]string{"sk", "test", "4eC39HqLyjWDarjtT1zdp7dc"}, "_") }

// provider implements the part of the payment provider's API that we use, with its
// checks.
type provider struct {
	prices   []string
	sessions map[string]url.Values // created, by idempotency key
	requests []*http.Request       // received, with their bodies read
	fail     []func(w http.ResponseWriter)
	url      string // of the pages it makes
	badEmail string
}

func newProvider() *provider {
	return &provider{
		prices: []string{"price_pro", "price_business"}, sessions: make(map[string]url.Values),
		url: "https://checkout.provider.example/c/pay/cs_test_1#fid",
	}
}

func (p *provider) refuse(w http.ResponseWriter, status int, kind, code, param, message string) {
	e := map[string]string{"type": kind, "message": message}
	if code != "" {
		e["code"] = code
	}
	if param != "" {
		e["param"] = param
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": e})
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.requests = append(p.requests, r)
	if len(p.fail) > 0 {
		fail := p.fail[0]
		p.fail = p.fail[1:]
		fail(w)
		return
	}
	form, err := url.ParseQuery(string(body))
	key := r.Header.Get("Idempotency-Key")
	given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case r.Method != http.MethodPost || r.URL.Path != "/v1/checkout/sessions":
		p.refuse(w, 404, "invalid_request_error", "", "", "Unrecognized request URL ("+r.Method+": "+r.URL.Path+").")
	case given != testKey():
		p.refuse(w, 401, "invalid_request_error", "", "", "Invalid API Key provided: "+given)
	case err != nil || r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" || form.Get("mode") != "subscription":
		p.refuse(w, 400, "invalid_request_error", "parameter_missing", "mode", "Missing required param: mode.")
	case !slices.Contains(p.prices, form.Get("line_items[0][price]")):
		p.refuse(w, 400, "invalid_request_error", "resource_missing", "line_items[0][price]", "No such price: '"+form.Get("line_items[0][price]")+"'")
	case form.Get("customer_email") != "" && form.Get("customer_email") == p.badEmail:
		p.refuse(w, 400, "invalid_request_error", "email_invalid", "customer_email", "Invalid email address: "+p.badEmail)
	default:
		if before, ok := p.sessions[key]; ok && before.Encode() != form.Encode() {
			p.refuse(w, 400, "idempotency_error", "", "", "Keys for idempotent requests can only be used with the same parameters")
			return
		}
		p.sessions[key] = form
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"id": "cs_test_1", "object": "checkout.session", "url": p.url, "status": "open"})
	}
}

// inMemory carries requests to h, so that there are no sockets in a bubble.
func inMemory(h http.Handler) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result(), nil
	})
}

var wanted = account.CheckoutRequest{
	OrganizationID: "01976a3e-6b1c-7c2a-9f10-3d2b8a4c5e6f", OrganizationName: "Größe & Co", Plan: account.Pro,
	UserID: "u-1", Email: "robin+pay@größe.example",
}

// TestHostedCheckout uses a real connection.
func TestHostedCheckout(t *testing.T) {
	p := newProvider()
	server := httptest.NewServer(p)
	defer server.Close()
	f := newFixture(t, dbtest.New(t), func(c *billing.CheckoutConfig) { c.APIKey, c.APIURL = testKey(), server.URL+"/" })
	page, err := f.checkout.StartCheckout(t.Context(), wanted)
	if err != nil || page != p.url {
		t.Fatalf("StartCheckout() = %q, %v; want %q", page, err, p.url)
	}
	if len(p.requests) != 1 || len(p.sessions) != 1 {
		t.Fatalf("%d requests made %d sessions, want one of each", len(p.requests), len(p.sessions))
	}
	for key, form := range p.sessions {
		if len(key) < 20 {
			t.Errorf("the idempotency key %q can be guessed", key)
		}
		want := url.Values{
			"mode": {"subscription"}, "line_items[0][price]": {"price_pro"}, "line_items[0][quantity]": {"1"},
			"client_reference_id": {wanted.OrganizationID}, "customer_email": {wanted.Email},
			"metadata[organization_id]": {wanted.OrganizationID}, "metadata[plan]": {"pro"},
			"subscription_data[metadata][organization_id]": {wanted.OrganizationID}, "subscription_data[metadata][plan]": {"pro"},
			"success_url": {baseURL + "/?checkout=paid"}, "cancel_url": {baseURL + "/?checkout=cancelled"},
		}
		if !maps.EqualFunc(form, want, slices.Equal) {
			t.Errorf("asked for %v, want %v", form, want)
		}
	}
	if f.HasDevCheckout() {
		t.Error("there is a built-in checkout beside the provider's")
	}
	plan, err := db.One(t.Context(), f.db, func(row db.Row) (plan string, err error) {
		err = row.Scan(&plan)
		return plan, err
	}, "SELECT plan FROM billing_wishes WHERE organization_id = $1", wanted.OrganizationID)
	if err != nil || plan != "pro" {
		t.Errorf("the plan that was wanted is kept as %q, %v; want pro", plan, err)
	}
	// Each checkout is a session of its own, even for one organization.
	if _, err := f.checkout.StartCheckout(t.Context(), wanted); err != nil || len(p.sessions) != 2 {
		t.Errorf("a second checkout: %d sessions, %v; want 2", len(p.sessions), err)
	}
}

// TestHostedCheckoutTrouble: transient errors are retried as one request; others
// name the remedy, and never the key.
func TestHostedCheckoutTrouble(t *testing.T) {
	down := func(status int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			newProvider().refuse(w, status, "api_error", "", "", "Try again, "+testKey())
		}
	}
	text := func(status int, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	for _, tt := range []struct {
		name     string
		change   func(p *provider, c *billing.CheckoutConfig)
		plan     account.Plan
		kind     problem.Kind // with says
		says     string       // part of the error; empty: none
		requests int
	}{
		{"busy, then not", func(p *provider, _ *billing.CheckoutConfig) {
			p.fail = []func(http.ResponseWriter){down(503), down(429)}
		}, account.Pro, 0, "", 3},
		{"another request with the key under way", func(p *provider, _ *billing.CheckoutConfig) { p.fail = []func(http.ResponseWriter){down(409)} }, account.Pro, 0, "", 2},
		{"down", func(p *provider, _ *billing.CheckoutConfig) {
			p.fail = []func(http.ResponseWriter){down(500), down(502), down(503), down(504)}
		}, account.Pro, problem.Unavailable, "status 503 (api_error): Try again, ********", 3},
		{"cannot be reached", func(_ *provider, c *billing.CheckoutConfig) {
			c.Transport = transport(func(*http.Request) (*http.Response, error) { return nil, errors.New("no route") })
		}, account.Pro, problem.Unavailable, "no route", 0},
		{"never answers", func(_ *provider, c *billing.CheckoutConfig) {
			c.Transport = transport(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
		}, account.Pro, problem.Unavailable, "deadline", 0},
		{"wrong key", func(_ *provider, c *billing.CheckoutConfig) { c.APIKey += "x" }, account.Pro, problem.Internal,
			"payments-api-key): status 401 (invalid_request_error): Invalid API Key provided: ********", 1},
		{"wrong price", func(p *provider, _ *billing.CheckoutConfig) { p.prices = nil }, account.Pro, problem.Internal,
			"payments-price-pro, payments-price-business): status 400 (invalid_request_error resource_missing) for line_items[0][price]: No such price: 'price_pro'", 1},
		{"no price", func(_ *provider, c *billing.CheckoutConfig) {
			c.Prices = map[account.Plan]string{account.Pro: "price_pro", account.Business: ""}
		}, account.Business, problem.Precondition, "the plan business cannot be paid for here", 0},
		{"an address that the provider does not like", func(p *provider, _ *billing.CheckoutConfig) { p.badEmail = wanted.Email }, account.Pro, 0, "", 2},
		{"a redirect", func(p *provider, _ *billing.CheckoutConfig) {
			p.fail = []func(http.ResponseWriter){func(w http.ResponseWriter) {
				w.Header().Set("Location", "https://elsewhere.example/")
				w.WriteHeader(302)
			}}
		}, account.Pro, problem.Internal, "status 302", 1},
		{"no JSON", func(p *provider, _ *billing.CheckoutConfig) {
			p.fail = []func(http.ResponseWriter){text(200, "<html>")}
		}, account.Pro, problem.Internal, "not JSON", 1},
		{"an endless answer", func(p *provider, _ *billing.CheckoutConfig) {
			p.fail = []func(http.ResponseWriter){text(200, `{"url":"`+strings.Repeat("a", 2<<20))}
		}, account.Pro, problem.Internal, "more than 1048576 bytes", 1},
		{"a page over http", func(p *provider, _ *billing.CheckoutConfig) { p.url = "http://checkout.provider.example/1" }, account.Pro, problem.Internal, "unusable address", 1},
		{"no page", func(p *provider, _ *billing.CheckoutConfig) { p.url = "" }, account.Pro, problem.Internal, "unusable address", 1},
		{"a script", func(p *provider, _ *billing.CheckoutConfig) { p.url = "javascript:alert(1)" }, account.Pro, problem.Internal, "unusable address", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProvider()
				f := newFixture(t, dbtest.NewSQLite(t), func(c *billing.CheckoutConfig) {
					c.APIKey, c.Transport = testKey(), inMemory(p)
					tt.change(p, c)
				})
				c := wanted
				c.Plan = tt.plan
				begun := time.Now()
				page, err := f.checkout.StartCheckout(t.Context(), c)
				if took := time.Since(begun); took > 21*time.Second {
					t.Errorf("somebody waited %v", took)
				}
				if len(p.requests) != tt.requests {
					t.Errorf("%d requests, want %d", len(p.requests), tt.requests)
				}
				if tt.says == "" {
					if err != nil || page != p.url || len(p.sessions) != 1 {
						t.Errorf("StartCheckout() = %q, %v with %d sessions; want one at %q", page, err, len(p.sessions), p.url)
					}
					return
				}
				if err == nil || problem.Of(err) != tt.kind || !strings.Contains(err.Error(), tt.says) {
					t.Fatalf("error %v, want the kind %v with %q", err, tt.kind, tt.says)
				}
				if strings.Contains(err.Error(), testKey()) {
					t.Errorf("the error holds the key: %v", err)
				}
				if n, _ := db.One(t.Context(), f.db, func(row db.Row) (n int, err error) {
					err = row.Scan(&n)
					return n, err
				}, "SELECT count(*) FROM billing_wishes"); n != 0 {
					t.Error("a checkout that failed left a wish")
				}
			})
		})
	}
}

// TestRetriesAreOneRequest: the provider sees the same key each time.
func TestRetriesAreOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider()
		lost := 2
		f := newFixture(t, dbtest.NewSQLite(t), func(c *billing.CheckoutConfig) {
			c.APIKey = testKey()
			c.Transport = transport(func(r *http.Request) (*http.Response, error) {
				resp, err := inMemory(p).RoundTrip(r)
				if lost > 0 { // processed, but the response is lost
					lost--
					return nil, io.ErrUnexpectedEOF
				}
				return resp, err
			})
		})
		if _, err := f.checkout.StartCheckout(t.Context(), wanted); err != nil {
			t.Fatal(err)
		}
		if len(p.requests) != 3 || len(p.sessions) != 1 {
			t.Errorf("%d requests made %d sessions, want three and one", len(p.requests), len(p.sessions))
		}
	})
}

func TestNewCheckout(t *testing.T) {
	for _, tt := range []struct {
		api  string
		want string // of the error
	}{
		{"", ""},
		{"https://payments.example/base/", ""},
		{"http://127.0.0.1:12111", ""},
		{"http://[::1]:12111", ""},
		{"http://localhost:12111", ""},
		{"http://payments.example", "must be https"},
		{"http://127.0.0.1.example", "must be https"},
		{"payments.example", "not an address"},
		{"ftp://payments.example", "not an address"},
		{"https://user@payments.example", "set the key separately"},
		{"https://payments.example?", "not an address"},
		{"https://:443", "not an address"},
		{"https://payments.example/?a=1", "not an address"},
		{"https://", "not an address"},
		{"://", "not an address"},
	} {
		_, err := billing.NewCheckout(billing.CheckoutConfig{APIURL: tt.api})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: error %v, want one with %q", tt.api, err, tt.want)
		}
	}
	_, err := billing.NewCheckout(billing.CheckoutConfig{Prices: map[account.Plan]string{account.Pro: "price_1", account.Business: "price_1"}})
	if err == nil || !strings.Contains(err.Error(), "business and pro have the same price") {
		t.Errorf("one price for two plans: error %v", err)
	}
}

func TestDevCheckout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		page, err := f.checkout.StartCheckout(t.Context(), wanted)
		if err != nil {
			t.Fatal(err)
		}
		token, ok := strings.CutPrefix(page, "https://help.example/dev/checkout/")
		if !ok || strings.Trim(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" || !f.HasDevCheckout() {
			t.Fatalf("the page is %q, want one of ours", page)
		}
		got, err := f.DevCheckout(token)
		want := billing.DevCheckout{
			OrganizationID: wanted.OrganizationID, OrganizationName: wanted.OrganizationName, Plan: account.Pro, Email: wanted.Email,
			ExpiresAt: time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second),
		}
		if err != nil || got != want {
			t.Errorf("DevCheckout() = %+v, %v; want %+v", got, err, want)
		}
		flipped := []byte(token)
		flipped[40] ^= 1
		hosted := newFixture(t, dbtest.NewSQLite(t), func(c *billing.CheckoutConfig) { c.APIKey = testKey() })
		foreign := newFixture(t, dbtest.NewSQLite(t))
		for _, bad := range []string{"", "x", "\x00", token[1:], token[:len(token)-1], string(flipped), token + "AAAA", "%2e%2e"} {
			if _, err := f.DevCheckout(bad); problem.Of(err) != problem.NotFound {
				t.Errorf("DevCheckout(%.20q): %v, want not found", bad, err)
			}
			if err := f.Pay(t.Context(), bad); problem.Of(err) != problem.NotFound {
				t.Errorf("Pay(%.20q): %v, want not found", bad, err)
			}
		}
		for name, other := range map[string]*fixture{"with a provider": hosted, "with another key": foreign} {
			if _, err := other.DevCheckout(token); problem.Of(err) != problem.NotFound {
				t.Errorf("DevCheckout() %s: %v, want not found", name, err)
			}
			if err := other.Pay(t.Context(), token); problem.Of(err) != problem.NotFound || len(other.posted) != 0 {
				t.Errorf("Pay() %s: %v and %d posts, want not found", name, err, len(other.posted))
			}
		}
		time.Sleep(24 * time.Hour)
		if _, err := f.DevCheckout(token); problem.Of(err) != problem.NotFound {
			t.Errorf("DevCheckout() a day later: %v, want not found", err)
		}
		if len(f.posted) != 0 {
			t.Errorf("%d events were posted, want none", len(f.posted))
		}
	})
}

// TestPay: the built-in checkout posts the events of a provider, identical each
// time.
func TestPay(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	o := f.organization(t, "Acme", account.Free)
	page, err := f.StartForOrganization(t.Context(), f.user(t, o, account.Admin), account.Business)
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimPrefix(page, baseURL+billing.DevCheckoutPath)
	for range 2 {
		if err := f.Pay(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.posted) != 6 {
		t.Fatalf("%d events were posted, want three and three", len(f.posted))
	}
	ids := make([]string, 6)
	for i, event := range f.posted {
		var e struct{ ID string }
		if err := json.Unmarshal(event, &e); err != nil {
			t.Fatal(err)
		}
		ids[i] = e.ID
		if bytes.Contains(event, []byte(token[:20])) {
			t.Errorf("the event %s holds the token", event)
		}
	}
	if !slices.Equal(ids[:3], ids[3:]) || ids[0] == ids[1] || ids[1] == ids[2] {
		t.Errorf("the events have the ids %q, want three and the same again", ids)
	}
	f.postErr = errors.New("no ink")
	if err := f.Pay(t.Context(), token); err == nil || !strings.Contains(err.Error(), "no ink") {
		t.Errorf("Pay() = %v, want why posting failed", err)
	}
}
