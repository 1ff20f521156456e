package storefront_test

import (
	"errors"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/channeltest"
	"github.com/kickstand-dev/kickstand/internal/channel/storefront"
)

func sign(r *channel.Request, secret string, _ time.Time) {
	r.Header.Set(storefront.SignatureHeader, storefront.Sign(r.Body, secret))
}

func TestConformance(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{Adapter: storefront.New(storefront.Config{}), Dir: "testdata", Sign: sign})
}

func TestPrivacyConformance(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{Adapter: storefront.NewPrivacy(), Dir: "testdata/privacy", Sign: sign})
}

const secret = "shpss_secret"

// request returns a signed fixture with other headers.
func request(t *testing.T, file string, headers ...string) *channel.Request {
	t.Helper()
	r := channeltest.Load(t, "testdata/"+file+".txtar")
	for i := 0; i < len(headers); i += 2 {
		for _, family := range []string{"X-Store-", "X-Shopify-", "Shopify-"} {
			r.Header.Del(family + headers[i])
		}
		if headers[i+1] != "" {
			r.Header.Set("X-Store-"+headers[i], headers[i+1])
		}
	}
	sign(r, secret, time.Time{})
	return r
}

// TestHeaders checks the three families of names with a signature by openssl:
//
//	printf '{"id":1}' | openssl dgst -sha256 -hmac shpss_secret -binary | base64
func TestHeaders(t *testing.T) {
	const good = "xocA3LkeJ/RvNrkxep1EUtFHuj7rIoIqZYaLU26LyPQ="
	for _, tt := range []struct {
		name string
		set  []string
		want bool
	}{
		{"neutral", []string{"x-store-hmac-sha256", good}, true},
		{"the vendor's", []string{"X-Shopify-Hmac-Sha256", good}, true},
		{"the vendor's newer", []string{"shopify-hmac-sha256", good}, true},
		{"the neutral one is empty", []string{"X-Store-Hmac-Sha256", "", "X-Shopify-Hmac-Sha256", good}, true},
		{"no second try after a wrong one", []string{"X-Store-Hmac-Sha256", storefront.Sign([]byte("x"), secret), "X-Shopify-Hmac-Sha256", good}, false},
		{"another header", []string{"X-Hmac-Sha256", good}, false},
		{"hex", []string{"X-Store-Hmac-Sha256", strings.Repeat("ab", 32)}, false},
		{"of another length", []string{"X-Store-Hmac-Sha256", good[:20]}, false},
	} {
		r := &channel.Request{Header: http.Header{}, Body: []byte(`{"id":1}`)}
		for i := 0; i < len(tt.set); i += 2 {
			r.Header.Set(tt.set[i], tt.set[i+1])
		}
		if got := storefront.New(storefront.Config{}).Verify(r, secret); got != tt.want {
			t.Errorf("%s: Verify() = %t, want %t", tt.name, got, tt.want)
		}
	}
}

// TestRelabelled sends valid bodies under other headers: these are unsigned, and any shop with
// the same app has such bodies.
func TestRelabelled(t *testing.T) {
	main, privacy := channel.Adapter(storefront.New(storefront.Config{})), channel.Adapter(storefront.NewPrivacy())
	for _, tt := range []struct {
		name    string
		adapter channel.Adapter
		file    string
		headers []string
		want    bool
	}{
		{"as it was", main, "order-create", nil, true},
		{"an order of another shop", main, "order-create", []string{"Shop-Domain", "victim.myshopify.com"}, false},
		{"an order whose shop is written otherwise", main, "order-create", []string{"Shop-Domain", "ACME-Lamps.MyShopify.com"}, true},
		{"an order without its page names no shop", main, "order-unapproved", []string{"Shop-Domain", "victim.myshopify.com"}, true},
		{"an order as created once more", main, "order-create", []string{"Topic", "orders/updated"}, true},
		{"an order as a customer", main, "order-create", []string{"Topic", "customers/update"}, false},
		{"an order as the end of the app", main, "order-create", []string{"Topic", "app/uninstalled"}, false},
		{"a guest's order as a customer", main, "guest", []string{"Topic", "customers/create"}, false},
		{"a customer as an order", main, "customer-create", []string{"Topic", "orders/create"}, false},
		{"a customer as the end of the app", main, "customer-create", []string{"Topic", "app/uninstalled"}, false},
		{"a product as a customer", main, "other-topic", []string{"Topic", "customers/update"}, false},
		{"the end of the app", main, "uninstalled", nil, true},
		{"the end of another shop's app", main, "uninstalled", []string{"Shop-Domain", "victim.myshopify.com"}, false},
		{"the law's request as an order", main, "privacy-topic", []string{"Topic", "orders/create"}, false},
		{"the law's request as the end of the app", main, "privacy-topic", []string{"Topic", "app/uninstalled"}, false},

		{"a request to see", privacy, "privacy/data-request", nil, true},
		{"a request to see, as one to forget", privacy, "privacy/data-request", []string{"Topic", "customers/redact"}, false},
		{"a request to see, as one to forget a shop", privacy, "privacy/data-request", []string{"Topic", "shop/redact"}, false},
		{"a request to see, of another shop", privacy, "privacy/data-request", []string{"Shop-Domain", "victim.myshopify.com"}, false},
		{"a request to forget", privacy, "privacy/customer-redact", nil, true},
		{"a request to forget, as one to forget a shop", privacy, "privacy/customer-redact", []string{"Topic", "shop/redact"}, false},
		{"a request to forget, as one to see", privacy, "privacy/customer-redact", []string{"Topic", "customers/data_request"}, false},
		{"a request to forget, of another shop", privacy, "privacy/customer-redact", []string{"Shop-Domain", "victim.myshopify.com"}, false},
		{"a request to forget a shop", privacy, "privacy/shop-redact", nil, true},
		{"a request to forget another shop", privacy, "privacy/shop-redact", []string{"Shop-Domain", "victim.myshopify.com"}, false},
		{"a request to forget a shop, as one to forget a customer", privacy, "privacy/shop-redact", []string{"Topic", "customers/redact"}, false},
		{"a customer as a request to forget", privacy, "customer-create", []string{"Topic", "customers/redact"}, false},
		{"an order as a request to forget a shop", privacy, "order-create", []string{"Topic", "shop/redact"}, false},
		{"a guest's order as a request to forget", privacy, "guest", []string{"Topic", "customers/redact"}, false},
	} {
		if got := tt.adapter.Verify(request(t, tt.file, tt.headers...), secret); got != tt.want {
			t.Errorf("%s: Verify() = %t, want %t", tt.name, got, tt.want)
		}
	}
}

// TestKeys checks which deliveries are the same event.
func TestKeys(t *testing.T) {
	key := func(a channel.Adapter, file string, headers ...string) string {
		t.Helper()
		parts, err := a.Split(request(t, file, headers...))
		if err != nil || len(parts) != 1 || parts[0].Key == "" {
			t.Fatalf("Split(%s, %q) = %+v, %v, want one part with a key", file, headers, parts, err)
		}
		return parts[0].Key
	}
	a, p := storefront.New(storefront.Config{}), storefront.NewPrivacy()
	same := func(what, x, y string, want bool) {
		t.Helper()
		if (x == y) != want {
			t.Errorf("%s: keys %q and %q, want the same: %t", what, x, y, want)
		}
	}
	same("one change by two subscriptions",
		key(a, "order-create", "Webhook-Id", "w1", "Event-Id", "e1"), key(a, "order-create", "Webhook-Id", "w2", "Event-Id", "e1"), true)
	same("one change with two topics",
		key(a, "order-create", "Event-Id", "e1"), key(a, "order-create", "Event-Id", "e1", "Topic", "orders/updated"), false)
	same("two changes",
		key(a, "order-create", "Event-Id", "e1"), key(a, "order-create", "Event-Id", "e2"), false)
	same("one delivery that is repeated",
		key(a, "order-create", "Webhook-Id", "w1", "Event-Id", ""), key(a, "order-create", "Webhook-Id", "w1", "Event-Id", ""), true)
	same("two deliveries",
		key(a, "order-create", "Webhook-Id", "w1", "Event-Id", ""), key(a, "order-create", "Webhook-Id", "w2", "Event-Id", ""), false)
	same("the ids of a delivery and of an event",
		key(a, "order-create", "Webhook-Id", "x", "Event-Id", ""), key(a, "order-create", "Webhook-Id", "", "Event-Id", "x"), false)
	same("neither id, the same body",
		key(a, "order-create", "Webhook-Id", "", "Event-Id", ""), key(a, "order-create", "Webhook-Id", "", "Event-Id", ""), true)
	same("neither id, another body",
		key(a, "order-create", "Webhook-Id", "", "Event-Id", ""), key(a, "order-updated", "Webhook-Id", "", "Event-Id", ""), false)
	same("one request of the law, delivered twice",
		key(p, "privacy/data-request", "Webhook-Id", "w1"), key(p, "privacy/data-request", "Webhook-Id", "w2"), true)
	same("a shop that was erased, and is again",
		key(p, "privacy/shop-redact", "Webhook-Id", "w1"), key(p, "privacy/shop-redact", "Webhook-Id", "w2"), false)
}

func TestNormalizeAddress(t *testing.T) {
	for raw, want := range map[string]string{
		"acme-lamps.myshopify.com":                "acme-lamps.myshopify.com",
		" HTTPS://ACME-Lamps.MyShopify.com/admin": "acme-lamps.myshopify.com",
		"7-up.myshopify.com":                      "7-up.myshopify.com",
		"acme-lamps.example":                      "",
		"-acme.myshopify.com":                     "",
		"a.b.myshopify.com":                       "",
		"evil.example/.myshopify.com":             "",
		"evil.example?.myshopify.com":             "",
		"evil.example#.myshopify.com":             "",
		"user@acme.myshopify.com":                 "",
		"acme.myshopify.com:8080":                 "",
		"acme.myshopify.com.evil.example":         "",
		"acme_lamps.myshopify.com":                "",
		".myshopify.com":                          "",
		"":                                        "",
	} {
		got, err := storefront.New(storefront.Config{}).NormalizeAddress(raw)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("FormAddress(%q) = %q, %v, want %q", raw, got, err, want)
		}
	}
}

func TestPrivacySigningSecrets(t *testing.T) {
	secrets := []string{"new", "old"}
	for _, tt := range []struct {
		name        string
		credentials map[string]string
		want        []string
	}{
		{"no secret of its own", map[string]string{"access_token": "t"}, secrets},
		{"one", map[string]string{"api_secret": "api"}, []string{"api"}},
		{"two, while one replaces the other", map[string]string{"api_secret": "api2, api1,"}, []string{"api2", "api1"}},
		{"none", nil, secrets},
	} {
		if got := storefront.NewPrivacy().SigningSecrets("storefront", secrets, channel.ConnectionCredentials(storefront.New(storefront.Config{}).API(), tt.credentials)); !slices.Equal(got, tt.want) {
			t.Errorf("%s: Keys() = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestContentType(t *testing.T) {
	r := request(t, "order-create")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if _, err := storefront.New(storefront.Config{}).Addresses(r); !errors.Is(err, channel.ErrContentType) {
		t.Errorf("Addresses() of a form: %v, want %v", err, channel.ErrContentType)
	}
}

// FuzzEvent: any request is at most refused, and the results can be stored.
func FuzzEvent(f *testing.F) {
	for _, pattern := range []string{"testdata/*.txtar", "testdata/privacy/*.txtar"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("no fixtures: %v", err)
		}
		for _, file := range files {
			r := channeltest.Load(f, file)
			topic := r.First("X-Store-Topic", "X-Shopify-Topic", "Shopify-Topic")
			f.Add(topic, r.First("X-Store-Shop-Domain", "X-Shopify-Shop-Domain", "Shopify-Shop-Domain"), string(r.Body))
		}
	}
	f.Fuzz(func(t *testing.T, topic, shop, body string) {
		r := &channel.Request{Header: http.Header{}, Body: []byte(body), Received: channeltest.Received()}
		r.Header.Set(storefront.TopicHeader, topic)
		r.Header.Set(storefront.ShopHeader, shop)
		r.Header.Set(storefront.SignatureHeader, storefront.Sign(r.Body, secret))
		for _, a := range []channel.Adapter{storefront.New(storefront.Config{}), storefront.NewPrivacy()} {
			addresses, _ := a.Addresses(r)
			ok := a.Verify(r, secret)
			parts, err := a.Split(r)
			if err != nil {
				if !errors.Is(err, channel.ErrUnreadable) {
					t.Errorf("Split() error = %v, want ErrUnreadable", err)
				}
				continue
			}
			if len(parts) != 1 {
				t.Fatalf("Split() = %d parts, want 1", len(parts))
			}
			p := parts[0]
			if len(p.Kind) > 255 || len(p.Key) > 255 || len(p.Sender) > 255 || len(p.Address) > 255 {
				t.Errorf("a part does not fit an index: %+v", p)
			}
			if p.Skip {
				continue
			}
			if ok && len(addresses) > 0 && p.Address != addresses[0] {
				t.Errorf("a verified request for %s has a part for %s", addresses, p.Address)
			}
			e, err := a.Parse(r, p)
			if err != nil {
				t.Fatalf("a body that was split cannot be parsed: %v", err)
			}
			storable(t, reflect.ValueOf(e))
		}
	})
}

func storable(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			storable(t, v.Elem())
		}
	case reflect.Struct:
		if _, ok := v.Interface().(time.Time); ok {
			return
		}
		for _, field := range v.Fields() {
			storable(t, field)
		}
	case reflect.Slice:
		for i := range v.Len() {
			storable(t, v.Index(i))
		}
	case reflect.String:
		if err := channeltest.Storable(v.String()); err != nil {
			t.Errorf("%v: %q", err, v.String())
		}
	}
}

// TestSameSecond: records have times in seconds, and often several changes within one. The
// trigger header orders them; creation is always the oldest.
func TestSameSecond(t *testing.T) {
	type event struct{ topic, updated, triggered string }
	for _, tt := range []struct {
		name         string
		older, newer event
	}{
		{
			"a change, and its making triggered by a clock ahead",
			event{storefront.OrdersCreate, "2026-11-20T10:00:01Z", "2026-11-20T10:00:01.9Z"}, event{storefront.OrdersUpdated, "2026-11-20T10:00:01Z", "2026-11-20T10:00:01.8Z"},
		},
		{
			"two changes",
			event{storefront.CustomersUpdate, "2026-11-20T10:00:01Z", "2026-11-20T10:00:02.1Z"}, event{storefront.CustomersUpdate, "2026-11-20T10:00:01Z", "2026-11-20T10:00:02.2Z"},
		},
		{
			"no header",
			event{storefront.CustomersCreate, "2026-11-20T10:00:01Z", ""}, event{storefront.CustomersUpdate, "2026-11-20T10:00:01Z", ""},
		},
		{
			"told late, and the next second",
			event{storefront.OrdersUpdated, "2026-11-20T10:00:01Z", "2026-11-20T14:00:00Z"}, event{storefront.OrdersCreate, "2026-11-20T10:00:02Z", ""},
		},
		{
			"triggered before, and times that tell enough",
			event{storefront.OrdersUpdated, "2026-11-20T10:00:01.5Z", "2026-11-20T10:00:09Z"}, event{storefront.OrdersUpdated, "2026-11-20T10:00:01.6Z", "2026-11-20T10:00:00Z"},
		},
	} {
		var at [2]time.Time
		for i, e := range []event{tt.older, tt.newer} {
			r := &channel.Request{Header: http.Header{}, Body: []byte(`{"id":1,"updated_at":"` + e.updated + `"}`)}
			r.Header.Set(storefront.TopicHeader, e.topic)
			r.Header.Set(storefront.ShopHeader, "acme-lamps.myshopify.com")
			r.Header.Set("X-Shopify-Triggered-At", e.triggered)
			parsed, err := storefront.New(storefront.Config{}).Parse(r, channel.Part{})
			if err != nil {
				t.Fatal(err)
			}
			at[i] = parsed.Record.UpdatedAt
		}
		if !at[0].Before(at[1]) {
			t.Errorf("%s: %v is not before %v", tt.name, at[0], at[1])
		}
	}
}
