package storefront_test

import (
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/storefront"
)

// TestProofCall: only the shop's own API names the shop of a token.
func TestProofCall(t *testing.T) {
	const shop = "acme-lamps.myshopify.com"
	a := storefront.New(storefront.Config{})
	credentials := channel.ConnectionCredentials(a.ProofAPI(shop), map[string]string{"access_token": "shpat_ours"})
	call, err := a.ProofCall(shop, credentials, nil)
	if err != nil || call.Method != "POST" || call.URL != "https://acme-lamps.myshopify.com/admin/api/2026-10/graphql.json" ||
		call.Header.Get("X-Shopify-Access-Token") != "shpat_ours" || string(call.Body) != `{"query":"{ shop { myshopifyDomain } }"}` {
		t.Fatalf("the question is %+v, %v", call, err)
	}
	if call, err := a.ProofCall(shop, channel.ConnectionCredentials(a.ProofAPI(shop), nil), nil); call != nil || err == nil ||
		err.Error() != "the proof needs the credential access_token, which the connection does not have" {
		t.Errorf("without a token: %v, %v", call, err)
	}
	operators := storefront.New(storefront.Config{APIURL: "http://127.0.0.1:9/{shop}"})
	if got := operators.ProofAPI(shop).URL; got != "http://127.0.0.1:9/acme-lamps.myshopify.com" {
		t.Errorf("where the operator says: %s", got)
	}
	const foreign = "the credential access_token does not belong to this shop"
	for _, tt := range []struct {
		name   string
		status int
		body   string
		want   string // the error; empty if proven
	}{
		{"the shop", 200, `{"data":{"shop":{"myshopifyDomain":"acme-lamps.myshopify.com"}},"extensions":{}}`, ""},
		{"the shop, spelled otherwise", 200, `{"data":{"shop":{"myshopifyDomain":"ACME-Lamps.myshopify.com"}}}`, ""},
		{"another shop", 200, `{"data":{"shop":{"myshopifyDomain":"eve.myshopify.com"}}}`, foreign},
		{"a domain around it", 200, `{"data":{"shop":{"myshopifyDomain":"acme-lamps.myshopify.com.evil.example"}}}`, foreign},
		{"a part of it", 200, `{"data":{"shop":{"myshopifyDomain":"lamps.myshopify.com"}}}`, foreign},
		{"no shop", 200, `{"data":{"shop":null},"errors":[{"message":"Access denied"}]}`, foreign},
		{"no data", 200, `{"errors":"[API] Invalid API key or access token"}`, foreign},
		{"null", 200, `null`, foreign},
		{"elsewhere in the answer", 200, `{"myshopifyDomain":"acme-lamps.myshopify.com","shop":{"myshopifyDomain":"acme-lamps.myshopify.com"}}`, foreign},
		{"refused with the right body", 401, `{"data":{"shop":{"myshopifyDomain":"acme-lamps.myshopify.com"}}}`, "the shop rejected the credential access_token (401)"},
		{"redirected", 301, `{"data":{"shop":{"myshopifyDomain":"acme-lamps.myshopify.com"}}}`, "the shop rejected the credential access_token (301)"},
		{"of another type", 200, `{"data":{"shop":{"myshopifyDomain":["acme-lamps.myshopify.com"]}}}`, "the shop rejected the credential access_token (200)"},
		{"cut short", 200, `{"data":{"shop":{"myshopifyDomain":"acme-lamps.myshopify.com"}}`, "the shop rejected the credential access_token (200)"},
		{"a page", 200, `<html>acme-lamps.myshopify.com</html>`, "the shop rejected the credential access_token (200)"},
		{"nothing", 200, ``, "the shop rejected the credential access_token (200)"},
	} {
		call, err := a.ProofCall(shop, credentials, []channel.Response{{Status: tt.status, Body: []byte(tt.body)}})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != tt.want || call != nil {
			t.Errorf("%s: %v, %q, want %q", tt.name, call, got, tt.want)
		}
	}
}
