package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/payments"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// paying is a server with paid plans and a new user.
type paying struct {
	*server
	flags  []string // database flags
	person *http.Client
}

func startPaying(t *testing.T, flags ...string) *paying {
	t.Helper()
	p := &paying{flags: []string{"--data=" + t.TempDir(), "--database-url=" + dbtest.URL(t)}, person: browser(t)}
	p.server = start(t, append(p.flags, flags...)...)
	call(t, p.person, p.url, "auth.signInWithEmail", map[string]any{"email": "robin@example.com"}, nil)
	resp, err := p.person.Get(mailedLink(t, p.url, "robin@example.com"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return p
}

// signup is the output of auth.completeSignup.
type signup struct {
	Organization    struct{ ID, Name, Slug string }
	RequiresPayment bool
	CheckoutURL     string `json:"checkoutUrl"`
}

func (p *paying) signUp(t *testing.T, tier string) signup {
	t.Helper()
	var s signup
	call(t, p.person, p.url, "auth.completeSignup", map[string]any{"name": "Robin", "organizationName": "Acme", "planTier": tier}, &s)
	return s
}

// organization returns the output of `kickstand org list`.
func (p *paying) organization(t *testing.T) shownOrganization {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), append([]string{"org", "list", "--json"}, p.flags...), noEnvironment, nil, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	var list []shownOrganization
	if err := json.Unmarshal(out.Bytes(), &list); err != nil || len(list) != 1 {
		t.Fatalf("org list: %v, %s; want one organization", err, out.String())
	}
	return list[0]
}

// becomes waits until the organization satisfies want.
func (p *paying) becomes(t *testing.T, what string, want func(o shownOrganization) bool) shownOrganization {
	t.Helper()
	var o shownOrganization
	for range poll(t, 20*time.Second) {
		if o = p.organization(t); want(o) {
			return o
		}
	}
	t.Fatalf("%s: the organization is %+v", what, o)
	return o
}

// TestPaidPlan goes from sign-up to payment at the built-in checkout, and to the end of
// the subscription, over HTTP.
func TestPaidPlan(t *testing.T) {
	t.Parallel()
	const secret = "the deployment's secret"
	p := startPaying(t, "--payments-secret="+secret)
	s := p.signUp(t, "business")
	if !s.RequiresPayment || !strings.HasPrefix(s.CheckoutURL, p.url+"/dev/checkout/") {
		t.Fatalf("completeSignup answered %+v, want a checkout", s)
	}
	if o := p.organization(t); o.Plan != "free" || o.PendingPlan != "business" {
		t.Errorf("before payment: %+v, want free with business pending", o)
	}
	resp, err := p.person.Get(s.CheckoutURL)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != 200 || !bytes.Contains(page, []byte("Acme")) {
		t.Fatalf("the checkout page: %v, status %d, %s", err, resp.StatusCode, page)
	}
	for range 2 { // paying twice changes nothing
		req, err := http.NewRequest(http.MethodPost, s.CheckoutURL, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", p.url)
		if status, body := send(t, p.person, req); status != http.StatusSeeOther {
			t.Fatalf("paying: status %d, %s", status, body)
		}
	}
	o := p.becomes(t, "paid", func(o shownOrganization) bool { return o.Plan == "business" && o.Status == "active" })
	if o.PendingPlan != "" || o.PastDue || !strings.HasPrefix(o.Subscription, "sub_") {
		t.Errorf("paid: %+v, want nothing pending and a subscription", o)
	}

	trigger := func(event string) {
		t.Helper()
		var out bytes.Buffer
		err := run(t.Context(), []string{
			"trigger", "payments", "--json", "--base-url=" + p.url, "--payments-secret=" + secret,
			"--event=" + event, "--to=" + o.ID, "--from=" + o.Subscription, "--text=business",
		}, noEnvironment, nil, &out, t.Output())
		if err != nil || !strings.Contains(out.String(), `\"accepted\"`) {
			t.Fatalf("trigger %s: %v, %s", event, err, out.String())
		}
	}
	trigger("invoice.payment_failed")

	trigger("customer.subscription.deleted")
	p.becomes(t, "deleted", func(o shownOrganization) bool {
		return o.Plan == "free" && o.PendingPlan == "" && !o.PastDue && o.Status == "canceled"
	})
}

// TestPaidPlanWithoutSecret: without configuration the built-in checkout works, and no
// other client can report a payment.
func TestPaidPlanWithoutSecret(t *testing.T) {
	t.Parallel()
	p := startPaying(t)
	s := p.signUp(t, "pro")
	body := `{"id":"evt_1","object":"event","type":"checkout.session.completed","created":1764000000,"data":{"object":{"id":"cs_1","payment_status":"paid",` +
		`"client_reference_id":"` + s.Organization.ID + `","customer":"cus_1","subscription":"sub_1"}}}`
	for _, secret := range []string{"", "payments secret"} {
		if status, answer := send(t, p.person, paymentRequest(p.url, secret, body)); status != http.StatusUnauthorized {
			t.Errorf("signed with %q: %d %s, want 401", secret, status, answer)
		}
	}
	resp, err := p.person.PostForm(s.CheckoutURL, url.Values{})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	p.becomes(t, "paid", func(o shownOrganization) bool { return o.Plan == "pro" && o.PendingPlan == "" })
}

func paymentRequest(base, secret, body string) *http.Request {
	req, err := http.NewRequest(http.MethodPost, base+"/api/webhooks/payments", strings.NewReader(body))
	if err != nil {
		panic(err) // a constant URL
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Stripe-Signature", payments.Sign([]byte(body), time.Now(), secret))
	return req
}

// TestPaymentsEndpoint covers each response of the endpoint, and a failed payment that is
// mailed to the admin.
func TestPaymentsEndpoint(t *testing.T) {
	t.Parallel()
	p := startPaying(t, "--payments-secret=new secret,old secret")
	s := p.signUp(t, "pro")
	event := func(id, kind string, created int, object string) string {
		b, err := json.Marshal(map[string]any{
			"id": id, "object": "event", "type": kind, "created": created, "data": map[string]any{"object": json.RawMessage(object)},
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	paid := event("evt_1", "checkout.session.completed", 1764000000, `{"id":"cs_1","object":"checkout.session","mode":"subscription","payment_status":"paid",
		"client_reference_id":"`+s.Organization.ID+`","customer":"cus_1","subscription":"sub_1","metadata":{"organization_id":"`+s.Organization.ID+`"}}`)
	failed := event("evt_2", "invoice.payment_failed", 1766600000, `{"id":"in_1","customer":"cus_1","attempt_count":1,"parent":{"subscription_details":{"subscription":"sub_1"}}}`)
	for _, tt := range []struct {
		name   string
		req    *http.Request
		status int
		want   string
	}{
		{"a failure before anything is known", paymentRequest(p.url, "new secret", failed), 200, `{"status":"accepted"}`},
		{"the checkout, with the old secret", paymentRequest(p.url, "old secret", paid), 200, `{"status":"accepted"}`},
		{"once more", paymentRequest(p.url, "new secret", paid), 200, `{"status":"duplicate"}`},
		{"another kind", paymentRequest(p.url, "new secret", event("evt_3", "customer.updated", 1764000000, `{}`)), 200, `{"status":"ignored"}`},
		{"unreadable", paymentRequest(p.url, "new secret", `{"object":"event","type":"invoice.payment_failed"}`), 400, `{"error":"the request is signed but cannot be read: an event needs an id"}`},
		{"another secret", paymentRequest(p.url, "another secret", paid), 401, `{"error":"the request has no valid signature"}`},
		{"too large", paymentRequest(p.url, "new secret", strings.Repeat(" ", 1<<20+1)), 413, `{"error":"the body must not be larger than 1048576 bytes"}`},
	} {
		status, body := send(t, p.person, tt.req)
		if got := strings.TrimSpace(body); status != tt.status || got != tt.want {
			t.Errorf("%s: answered %d %s, want %d %s", tt.name, status, got, tt.status, tt.want)
		}
	}
	p.becomes(t, "paid, then past due", func(o shownOrganization) bool { return o.Plan == "pro" && o.PastDue && o.PendingPlan == "" })
	for range poll(t, 20*time.Second) {
		resp, err := http.Get(p.url + "/dev/mailbox.json")
		if err != nil {
			t.Fatal(err)
		}
		mails, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(mails, []byte("A payment for Acme failed")) {
			return
		}
	}
	t.Error("no mail told the admin of the failed payment")
}

// TestHostedCheckout: with an API key the checkout is the payment provider's.
func TestHostedCheckout(t *testing.T) {
	t.Parallel()
	const page = "http://127.0.0.1/c/pay/cs_1"
	key := strings.Join([]string{"sk", "test", "abc"}, "_")
	asked := make(chan url.Values, 10)
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/checkout/sessions" || r.Header.Get("Authorization") != "Bearer "+key || r.ParseForm() != nil {
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, `{"error":{"type":"invalid_request_error","message":"Invalid API Key provided"}}`)
			return
		}
		asked <- r.PostForm
		io.WriteString(w, `{"id":"cs_1","object":"checkout.session","url":"`+page+`"}`)
	}))
	t.Cleanup(provider.Close)
	p := startPaying(t, "--payments-api-key="+key, "--payments-api-url="+provider.URL, "--payments-price-pro=price_1", "--payments-secret=s")

	resp, err := p.person.Post(p.url+"/api/trpc/auth.completeSignup", "application/json",
		strings.NewReader(`{"json":{"name":"Robin","organizationName":"Acme","planTier":"business"}}`))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusPreconditionFailed || !bytes.Contains(body, []byte("has no price")) {
		t.Errorf("a plan without a price: %v, status %d, %s; want 412 and why", err, resp.StatusCode, body)
	}
	s := p.signUp(t, "pro")
	if s.CheckoutURL != page || !s.RequiresPayment {
		t.Errorf("completeSignup answered %+v, want the provider's page", s)
	}
	form := <-asked
	if form.Get("client_reference_id") != s.Organization.ID || form.Get("line_items[0][price]") != "price_1" || form.Get("success_url") != p.url+"/?checkout=paid" {
		t.Errorf("the provider was asked for %v", form)
	}
	if status, body := send(t, p.person, paymentRequest(p.url, "s", `{"id":"evt_1","object":"event","type":"customer.subscription.updated","created":1764000000,`+
		`"data":{"object":{"id":"sub_1","status":"active","customer":"cus_1","metadata":{"organization_id":"`+s.Organization.ID+`"},"items":{"data":[{"price":{"id":"price_1"}}]}}}}`)); status != 200 {
		t.Fatalf("the subscription was answered %d %s", status, body)
	}
	p.becomes(t, "subscribed", func(o shownOrganization) bool { return o.Plan == "pro" })
	resp, err = p.person.Get(p.url + "/dev/checkout/x")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("the built-in page answers %d beside a provider, want 404", resp.StatusCode)
	}
}

// TestLeftCheckout: after an abandoned checkout the user sees the state of the plan and
// can start another one.
func TestLeftCheckout(t *testing.T) {
	t.Parallel()
	p := startPaying(t)
	left := p.signUp(t, "pro")
	get := func() string {
		t.Helper()
		resp, err := p.person.Get(p.url + "/api/trpc/billing.get")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	const before = `{"result":{"data":{"json":{"planTier":"free","pendingPlanTier":"pro","pastDue":false,"status":null,"currentPeriodEnd":null,"cancelAtPeriodEnd":false}}}}`
	if got := get(); got != before {
		t.Errorf("before payment:\n got %s\nwant %s", got, before)
	}
	var again struct {
		CheckoutURL string `json:"checkoutUrl"`
	}
	call(t, p.person, p.url, "billing.startCheckout", map[string]any{"planTier": "business"}, &again)
	if again.CheckoutURL == left.CheckoutURL || !strings.HasPrefix(again.CheckoutURL, p.url+"/dev/checkout/") {
		t.Fatalf("got %q, want another checkout", again.CheckoutURL)
	}
	resp, err := p.person.PostForm(again.CheckoutURL, url.Values{})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	p.becomes(t, "paid", func(o shownOrganization) bool { return o.Plan == "business" && o.Status == "active" })
	if got := get(); !strings.HasPrefix(got, `{"result":{"data":{"json":{"planTier":"business","pendingPlanTier":null,"pastDue":false,"status":"active","currentPeriodEnd":"20`) {
		t.Errorf("after payment: got %s", got)
	}
	for tier, want := range map[string]int{"gold": 400, "free": 400, "pro": 409, "business": 409} {
		resp, err := p.person.Post(p.url+"/api/trpc/billing.startCheckout", "application/json", strings.NewReader(`{"json":{"planTier":"`+tier+`"}}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("a checkout for %s: got status %d, want %d", tier, resp.StatusCode, want)
		}
	}
}
