package inbound_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/storefront"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/inbound"
)

func ofOrg2(n *connection.New) { n.OrganizationID = "org-2" }

// TestNamedConnection: a URL that names a connection reaches that one or none.
func TestNamedConnection(t *testing.T) {
	other := newParcels("crates")
	other.info.Path = "/api/webhooks/crates"
	h := start(t, withParcels(newParcels("parcels"), other), func(h *house) {
		h.secrets = map[string][]string{"parcels": {"the deployment's"}}
	})
	a := h.connect(t, "parcels", "a")
	b := h.connect(t, "parcels", "b", ofOrg2)
	crate := h.connect(t, "crates", "c")
	off := h.connect(t, "parcels", "off")
	if err := h.connections.SetEnabled(t.Context(), "org-1", off.ID, false); err != nil {
		t.Fatal(err)
	}
	at := func(c connection.Connection) string { return parcelPath + "?c=" + c.ID }
	unnamed := parcel{Parts: []parcelItem{{Key: "1", Sender: "ana"}}}
	toTwo := parcel{To: []string{"a", "b"}, Parts: []parcelItem{{Key: "1", Sender: "ana", Address: "a"}, {Key: "2", Sender: "ana", Address: "b"}}}
	guessedElsewhere := parcel{To: []string{"b"}, Parts: []parcelItem{{Key: "1", Sender: "ana", Address: "b", Guessed: true}, {Key: "2", Sender: "ana", Address: "x", Guessed: true}}}
	guessedHere := parcel{To: []string{"b", "a"}, Parts: []parcelItem{{Key: "1", Sender: "ana", Address: "b", Guessed: true}, {Key: "2", Sender: "ana", Address: "a", Guessed: true}}}
	alias := parcel{To: []string{"alias of a", "a"}, Parts: []parcelItem{{Key: "1", Sender: "ana", Address: "alias of a"}}}
	for _, tt := range []struct {
		name   string
		path   string
		body   parcel
		secret string
		want   string
		keys   []string // keys and owners of the events
	}{
		{"names nobody", at(a), unnamed, secretOf("a"), accepted, []string{"1 a connection, secret 1"}},
		{"names it", at(a), to("a", "1", ""), secretOf("a"), accepted, []string{"1 a connection, secret 1"}},
		{"names another's", at(a), to("b", "1", ""), secretOf("a"), ignored, nil},
		{"names one that nobody has", at(a), to("x", "1", ""), secretOf("a"), ignored, nil},
		{"names both", at(a), toTwo, secretOf("a"), accepted, []string{"1 a connection, secret 1"}},
		{"one part under two names", at(a), alias, secretOf("a"), accepted, []string{"1 a connection, secret 1"}},
		{"guesses another's", at(a), guessedElsewhere, secretOf("a"), accepted, []string{"1 a connection, secret 1"}},
		{"guesses both", at(a), guessedHere, secretOf("a"), accepted, []string{"2 a connection, secret 1"}},
		{"another's key", at(a), unnamed, secretOf("b"), denied, nil},
		{"another's key and name", at(a), to("b", "1", ""), secretOf("b"), denied, nil},
		{"its key, another's address in the URL", at(b), to("a", "1", ""), secretOf("a"), denied, nil},
		{"the deployment's key", at(a), unnamed, "the deployment's", accepted, []string{"1 a deployment, secret 1"}},
		{"the deployment's key, names another's", at(a), to("b", "1", ""), "the deployment's", ignored, nil},
		{"disabled", at(off), unnamed, secretOf("off"), denied, nil},
		{"disabled, the deployment's key", at(off), to("off", "1", ""), "the deployment's", denied, nil},
		{"of another channel", at(crate), unnamed, secretOf("c"), denied, nil},
		{"of another channel, the deployment's key", at(crate), unnamed, "the deployment's", denied, nil},
		{"unknown", parcelPath + "?c=x", to("a", "1", ""), secretOf("a"), denied, nil},
		{"no text", parcelPath + "?c=%00%ff", to("a", "1", ""), secretOf("a"), denied, nil},
		{"none named and none claimed", parcelPath, unnamed, secretOf("a"), denied, nil},
		{"empty", parcelPath + "?c=", to("a", "1", ""), secretOf("a"), accepted, []string{"1 a connection, secret 1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status := http.StatusOK
			if tt.want == denied {
				status = http.StatusUnauthorized
			}
			before := h.rows(t)
			h.wantAnswer(t, parcelRequest(tt.path, tt.body.bytes(), tt.secret), status, tt.want)
			if tt.keys == nil {
				h.wantUntouched(t, before)
			}
			var got []string
			for _, e := range h.list(t) {
				whose := map[string]string{a.ID: "a", b.ID: "b", "": "nobody"}[e.ConnectionID]
				got = append(got, e.Key+" "+whose+" "+e.VerifiedBy)
			}
			if !slices.Equal(got, tt.keys) {
				t.Errorf("events %q, want %q", got, tt.keys)
			}
			h.exec(t, "DELETE FROM inbound_events")
			h.exec(t, "DELETE FROM jobs")
		})
	}
}

// TestNamedConnectionUnreadable: an unreadable request is stored for the connection in its URL,
// and split for it later.
func TestNamedConnectionUnreadable(t *testing.T) {
	h := start(t, withParcels(newParcels("parcels")))
	a := h.connect(t, "parcels", "a")
	r := parcelRequest(parcelPath+"?c="+a.ID, []byte("{"), secretOf("a"))
	if w := h.do(r); w.Code != 400 {
		t.Errorf("answered %d %s, want 400", w.Code, w.Body)
	}
	list := h.list(t, inbound.Rejected)
	if len(list) != 1 || list[0].ConnectionID != a.ID || list[0].OrganizationID != "org-1" {
		t.Fatalf("rejected events %+v, want one of %s", list, a.ID)
	}
	h.exec(t, "UPDATE inbound_events SET body = $1", to("a", "1", "hello").bytes())
	if _, err := h.Replay(t.Context(), list[0].ID); err != nil {
		t.Fatal(err)
	}
	if list := h.list(t, inbound.Accepted); len(list) != 1 || list[0].ConnectionID != a.ID || list[0].Key != "1" {
		t.Errorf("accepted events %+v, want one of %s", list, a.ID)
	}
}

// TestStyleDowngrade: a connection receives only requests in its own style.
func TestStyleDowngrade(t *testing.T) {
	// The strong style signs the body, the weak one only a token.
	strong, weak := newParcels("parcels-strong"), tokened{newParcels("parcels-weak")}
	strong.only, weak.only = `"strong"`, `"parts"`
	h := start(t, withParcels(strong, weak), func(h *house) {
		h.secrets = map[string][]string{"parcels-weak": {"the deployment's"}}
	})
	c := h.connect(t, "parcels-strong", "a")
	body := to("a", "1", "weak").bytes()
	before := h.rows(t)
	for name, r := range map[string]*http.Request{
		"by its looks":                          tokenRequest(parcelPath, body, "t1", secretOf("a")),
		"by the URL":                            tokenRequest(parcelPath+"?style=weak", body, "t1", secretOf("a")),
		"by the connection":                     tokenRequest(parcelPath+"?c="+c.ID, body, "t1", secretOf("a")),
		"by the URL and the connection":         tokenRequest(parcelPath+"?style=weak&c="+c.ID, body, "t1", secretOf("a")),
		"the deployment's, by the connection":   tokenRequest(parcelPath+"?c="+c.ID, body, "t1", "the deployment's"),
		"the deployment's, by both":             tokenRequest(parcelPath+"?style=weak&c="+c.ID, body, "t1", "the deployment's"),
		"its own signature, of the other style": parcelRequest(parcelPath+"?style=weak", body, secretOf("a")),
	} {
		t.Run(name, func(t *testing.T) {
			h.wantAnswer(t, r, 401, denied)
			h.wantUntouched(t, before)
		})
	}
	// The deployment's key of the weak style reaches no connection.
	sole := "org-1"
	h.fallback.Store(&sole)
	h.wantAnswer(t, tokenRequest(parcelPath, body, "t1", "the deployment's"), 200, ignored)
	if list := h.list(t); len(list) != 1 || list[0].State != inbound.Unrouted || list[0].ConnectionID != "" {
		t.Errorf("events %+v, want one that is unrouted", list)
	}
	// In its own style it is always reached.
	h.wantAnswer(t, parcelRequest(parcelPath+"?c="+c.ID, body, secretOf("a")), 200, accepted)
}

// TestServes: a channel that serves connections of another tries only the secrets meant for it.
func TestServes(t *testing.T) {
	reports := keyed{newParcels("reports")}
	reports.info.Path, reports.info.Aliases = "/api/webhooks/reports", []string{"/api/webhooks/old-reports"}
	reports.info.Serves = []string{"parcels"}
	h := start(t, withParcels(newParcels("parcels"), reports))
	with := func(credentials map[string]string) func(*connection.New) {
		return func(n *connection.New) { n.Credentials = credentials }
	}
	a := h.connect(t, "parcels", "a", with(map[string]string{"reports_key": "for reports", "key": "for nothing"}))
	h.connect(t, "parcels", "b")
	own := h.connect(t, "reports", "own", with(map[string]string{"key": "newer", "old_key": "older"}))
	for _, tt := range []struct {
		name, path, address, secret string
		connection                  string // of the event; empty if refused
		by                          string
	}{
		{"for the other channel", "/api/webhooks/reports", "a", "for reports", a.ID, "connection, secret 1"},
		{"at the other path", "/api/webhooks/old-reports", "a", "for reports", a.ID, "connection, secret 1"},
		{"named", "/api/webhooks/reports?c=" + a.ID, "a", "for reports", a.ID, "connection, secret 1"},
		{"its own", "/api/webhooks/reports", "own", "newer", own.ID, "connection, secret 2"},
		{"its own, the older key", "/api/webhooks/reports", "own", "older", own.ID, "connection, secret 1"},
		{"the signing secret of the other", "/api/webhooks/reports", "a", secretOf("a"), "", ""},
		{"a key for its own only", "/api/webhooks/reports", "a", "for nothing", "", ""},
		{"no key", "/api/webhooks/reports", "b", "for reports", "", ""},
		{"the empty key", "/api/webhooks/reports", "b", "", "", ""},
		{"the other channel's own path", parcelPath, "a", "for reports", "", ""},
		{"not served the other way", parcelPath, "own", "newer", "", ""},
		{"not served the other way, named", parcelPath + "?c=" + own.ID, "own", "newer", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, want := 200, accepted
			if tt.connection == "" {
				status, want = 401, denied
			}
			h.wantAnswer(t, parcelRequest(tt.path, to(tt.address, tt.name, "").bytes(), tt.secret), status, want)
			list := h.list(t)
			if tt.connection == "" {
				if len(list) != 0 {
					t.Errorf("events %+v, want none", list)
				}
				return
			}
			if len(list) != 1 || list[0].ConnectionID != tt.connection || list[0].VerifiedBy != tt.by {
				t.Errorf("events %+v, want one of %s by %s", list, tt.connection, tt.by)
			}
			h.exec(t, "DELETE FROM inbound_events")
		})
	}
}

// TestForeignRecipient: a request signed by one tenant's key never reaches another, with any
// recipients.
func TestForeignRecipient(t *testing.T) {
	h := start(t, withParcels(newParcels("parcels")))
	a := h.connect(t, "parcels", "a")
	h.connect(t, "parcels", "b", ofOrg2)
	item := func(key, address string) parcelItem { return parcelItem{Key: key, Sender: "ana", Address: address} }
	for _, tt := range []struct {
		name string
		body parcel
		want string
		keys []string
	}{
		{"to another", to("b", "1", ""), denied, nil},
		{"to both, a part for each", parcel{To: []string{"a", "b"}, Parts: []parcelItem{item("1", "a"), item("2", "b")}}, accepted, []string{"1"}},
		{"claims itself, parts for the other", parcel{To: []string{"a", "b"}, Parts: []parcelItem{item("1", "b"), item("2", "x")}}, ignored, nil},
		{"claims itself only, parts for the other", parcel{To: []string{"a"}, Parts: []parcelItem{item("1", "b"), item("2", "x")}}, ignored, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status := 200
			if tt.want == denied {
				status = 401
			}
			h.wantAnswer(t, parcelRequest(parcelPath, tt.body.bytes(), secretOf("a")), status, tt.want)
			var keys []string
			for _, e := range h.list(t) {
				if e.ConnectionID != a.ID || e.OrganizationID != "org-1" {
					t.Errorf("event %+v, want none but of %s", e, a.ID)
				}
				keys = append(keys, e.Key)
			}
			if !slices.Equal(keys, tt.keys) {
				t.Errorf("events %q, want %q", keys, tt.keys)
			}
			h.exec(t, "DELETE FROM inbound_events")
			h.exec(t, "DELETE FROM jobs")
		})
	}
}

// TestRelabelledShop: a body that the shared app's key signed for one shop does not count for
// another, with any unsigned headers.
func TestRelabelledShop(t *testing.T) {
	k := new(recorder)
	h := start(t, func(h *house) {
		h.adapters, h.shops = []channel.Adapter{storefront.New(storefront.Config{})}, k
		h.secrets = map[string][]string{"storefront": {"the app's"}}
	})
	theirs := h.connect(t, "storefront", "evil.myshopify.com", ofOrg2)
	victim := h.connect(t, "storefront", "acme-lamps.myshopify.com")
	request := func(query, domain, orderAt, secret string) *http.Request {
		body := []byte(`{"id":7,"name":"#1001","updated_at":"2026-11-20T10:00:01Z","order_status_url":"https://` + orderAt + `/1"}`)
		r := httptest.NewRequest("POST", "/api/webhooks/storefront"+query, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Shopify-Topic", "orders/create")
		r.Header.Set("X-Shopify-Shop-Domain", domain)
		r.Header.Set("X-Shopify-Webhook-Id", domain+orderAt)
		r.Header.Set(storefront.SignatureHeader, storefront.Sign(body, secret))
		return r
	}
	before := h.rows(t)
	for _, r := range []*http.Request{
		request("", victim.Address, theirs.Address, "the app's"),
		request("?c="+victim.ID, victim.Address, theirs.Address, "the app's"),
		request("", victim.Address, victim.Address, secretOf(theirs.Address)),
		request("?c="+victim.ID, victim.Address, victim.Address, secretOf(theirs.Address)),
	} {
		h.wantAnswer(t, r, 401, denied)
	}
	// A URL with another tenant's connection reaches none.
	h.wantAnswer(t, request("?c="+victim.ID, theirs.Address, theirs.Address, "the app's"), 200, ignored)
	h.wantAnswer(t, request("?c="+theirs.ID, victim.Address, victim.Address, "the app's"), 200, ignored)
	h.wantUntouched(t, before)
	h.wantAnswer(t, request("", victim.Address, victim.Address, "the app's"), 200, accepted)
	h.wantAnswer(t, request("?c="+theirs.ID, theirs.Address, theirs.Address, "the app's"), 200, accepted)
	if list := h.list(t); len(list) != 2 || list[1].ConnectionID != victim.ID || list[0].ConnectionID != theirs.ID {
		t.Errorf("events %+v, want one of each shop", list)
	}
}

// TestRelabelledCustomer: a body that does not name its shop would verify for every shop of the
// app. If organizations share the app, it therefore counts only at the URL of the connection,
// which only the platform knows.
func TestRelabelledCustomer(t *testing.T) {
	k := new(recorder)
	h := start(t, func(h *house) {
		h.adapters, h.shops = []channel.Adapter{storefront.New(storefront.Config{})}, k
		h.secrets = map[string][]string{"storefront": {"the app's"}}
	})
	victim := h.connect(t, "storefront", "acme-lamps.myshopify.com")
	delivery := 0
	request := func(query, topic, body, secret string) *http.Request {
		delivery++
		r := httptest.NewRequest("POST", "/api/webhooks/storefront"+query, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Shopify-Topic", topic)
		r.Header.Set("X-Shopify-Shop-Domain", victim.Address)
		r.Header.Set("X-Shopify-Webhook-Id", strconv.Itoa(delivery))
		r.Header.Set(storefront.SignatureHeader, storefront.Sign([]byte(body), secret))
		return r
	}
	const (
		customer = `{"id":7,"first_name":"Ana","email":"ana@client.example","updated_at":"2026-11-20T10:00:01Z"}`
		order    = `{"id":7,"name":"#1001","updated_at":"2026-11-20T10:00:01Z","order_status_url":"https://lamps.example/1"}`
	)
	before := h.rows(t)
	h.wantAnswer(t, request("", "customers/update", customer, "the app's"), 401, denied)
	h.wantAnswer(t, request("", "orders/create", order, "the app's"), 401, denied)
	h.wantUntouched(t, before)
	// At the configured URL, and with a key of this shop alone.
	h.wantAnswer(t, request("?c="+victim.ID, "customers/update", customer, "the app's"), 200, accepted)
	h.wantAnswer(t, request("?c="+victim.ID, "orders/create", order, "the app's"), 200, accepted)
	h.wantAnswer(t, request("", "customers/update", customer, secretOf(victim.Address)), 200, accepted)
	// The default organization shares the app with no other until another connects a shop.
	h.fallback.Store(new("org-1"))
	h.wantAnswer(t, request("", "customers/update", customer, "the app's"), 200, accepted)
	other := h.connect(t, "storefront", "other.myshopify.com", ofOrg2)
	h.wantAnswer(t, request("", "customers/update", customer, "the app's"), 401, denied)
	if err := h.connections.SetEnabled(t.Context(), other.OrganizationID, other.ID, false); err != nil {
		t.Fatal(err)
	}
	h.wantAnswer(t, request("", "customers/update", customer, "the app's"), 200, accepted)
	// Nor does the app's key verify for shops of any other organization.
	h.fallback.Store(new("org-2"))
	h.wantAnswer(t, request("", "customers/update", customer, "the app's"), 401, denied)
}

// TestStrangersShopForcesNoNamedURL: requests for the default organization's shop without a
// connection id keep working if a stranger connects a shop, or proves one with their own app.
// They stop only if the deployment's app serves another organization.
func TestStrangersShopForcesNoNamedURL(t *testing.T) {
	h := start(t, func(h *house) {
		h.adapters, h.shops = []channel.Adapter{storefront.New(storefront.Config{})}, new(recorder)
		h.secrets = map[string][]string{"storefront": {"the app's"}}
	})
	ours := h.connect(t, "storefront", "acme-lamps.myshopify.com")
	h.fallback.Store(new("org-1"))
	h.connections.UseProofs(connection.Proofs{HTTP: transport(func(r *http.Request) (*http.Response, error) {
		return respond(200, strings.NewReader(`{"data":{"shop":{"myshopifyDomain":"`+r.URL.Hostname()+`"}}}`)), nil
	})})
	delivery := 0
	request := func(query, shop, secret string) *http.Request {
		delivery++
		body := `{"id":7,"first_name":"Ana","email":"ana@client.example","updated_at":"2026-11-20T10:00:01Z"}`
		r := httptest.NewRequest("POST", "/api/webhooks/storefront"+query, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Shopify-Topic", "customers/update")
		r.Header.Set("X-Shopify-Shop-Domain", shop)
		r.Header.Set("X-Shopify-Webhook-Id", strconv.Itoa(delivery))
		r.Header.Set(storefront.SignatureHeader, storefront.Sign([]byte(body), secret))
		return r
	}
	h.wantAnswer(t, request("", ours.Address, "the app's"), 200, accepted)
	claim := h.connect(t, "storefront", ours.Address, claimed("org-2"))
	strangers := h.connect(t, "storefront", "stranger.myshopify.com", claimed("org-2"), func(n *connection.New) {
		n.Credentials = map[string]string{"access_token": "of an app of theirs"}
	})
	h.wantAnswer(t, request("", ours.Address, "the app's"), 200, accepted)
	if _, err := h.connections.Prove(t.Context(), "org-2", strangers.ID, channel.ProveByProvider); err != nil {
		t.Fatal(err)
	}
	h.wantProof(t, strangers, "proven provider")
	h.wantProof(t, claim, "pending")
	h.wantAnswer(t, request("?c="+strangers.ID, strangers.Address, "secret of org-2 at "+strangers.Address), 200, accepted)
	h.wantAnswer(t, request("", ours.Address, "the app's"), 200, accepted)
	h.wantAnswer(t, request("?c="+claim.ID, ours.Address, "the app's"), 401, denied)
	h.wantAnswer(t, request("", ours.Address, "the app's"), 200, accepted)

	h.wantAnswer(t, request("?c="+strangers.ID, strangers.Address, "the app's"), 200, accepted)
	h.wantAnswer(t, request("", ours.Address, "the app's"), 401, denied)
	h.wantAnswer(t, request("?c="+ours.ID, ours.Address, "the app's"), 200, accepted)
}

// TestMailStyleDowngrade: a mailbox with signed mail does not accept the token style, not even
// with its signing secret as token.
func TestMailStyleDowngrade(t *testing.T) {
	h := start(t, func(h *house) {
		h.adapters = []channel.Adapter{email.NewForm(email.Config{}), email.NewParsed(email.Config{}), email.NewJSON(email.Config{}), email.NewRaw(email.Config{})}
		h.secrets = map[string][]string{"email-json": {"the deployment's"}}
	})
	const support = "support@acme.example"
	c := h.connect(t, "email-form", support)
	request := func(query, token string) *http.Request {
		r := httptest.NewRequest("POST", mailPath+query, strings.NewReader(`{"From":"ana@client.example","To":"`+support+`","OriginalRecipient":"`+support+
			`","Subject":"Help","MessageID":"g1","TextBody":"hello","HtmlBody":"","MailboxHash":"","Headers":[]}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(email.TokenHeader, token)
		return r
	}
	before := h.rows(t)
	for _, query := range []string{"", "?style=json", "?c=" + c.ID, "?style=json&c=" + c.ID, "?style=form&c=" + c.ID, "?style=raw"} {
		if w := h.do(request(query, secretOf(support))); w.Code != 401 && w.Code != 415 {
			t.Errorf("%q: answered %d %s, want a refusal", query, w.Code, w.Body)
		}
	}
	for _, query := range []string{"?c=" + c.ID, "?style=json&c=" + c.ID} {
		if w := h.do(request(query, "the deployment's")); w.Code != 401 && w.Code != 415 {
			t.Errorf("%q, the deployment's token: answered %d %s, want a refusal", query, w.Code, w.Body)
		}
	}
	h.wantUntouched(t, before)
	sole := "org-1"
	h.fallback.Store(&sole)
	h.wantAnswer(t, request("", "the deployment's"), 200, ignored)
	if list := h.list(t); len(list) != 1 || list[0].State != inbound.Unrouted {
		t.Errorf("events %+v, want one that is nobody's", list)
	}
}
