package meta_test

import (
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/meta"
)

// prover is an adapter with a proof by its provider.
type prover interface {
	channel.Adapter
	channel.ProviderProof
}

// TestProofCalls: a number, an account or a page is proven only by an answer that the provider
// gives to its managers.
func TestProofCalls(t *testing.T) {
	config := meta.Config{APIURL: "https://graph.example"}
	business, page := prover(meta.NewBusiness(config)), prover(meta.NewMessenger(config))
	const (
		number  = "1065"
		missing = "the proof needs the credential access_token, which the connection does not have"
		foreign = "the credential access_token does not manage this number or account"
		notPage = "the credential access_token does not belong to this page"
	)
	type answer struct {
		status int
		body   string
	}
	none := answer{400, `{"error":{"message":"Unsupported get request.","code":100}}`}
	for _, tt := range []struct {
		name    string
		adapter prover
		answers []answer
		want    string // the error; empty if proven
	}{
		{"a number", business, []answer{{200, `{"id":"1065","display_phone_number":"+1 415-555-0100"}`}}, ""},
		{"an account with numbers", business, []answer{none, {200, `{"data":[{"id":"7"}]}`}}, ""},
		{"another number", business, []answer{{200, `{"id":"1066","display_phone_number":"+1"}`}, none}, foreign + " (Unsupported get request.)"},
		{"a number without its spelling", business, []answer{{200, `{"id":"1065"}`}, none}, foreign + " (Unsupported get request.)"},
		{"an empty spelling", business, []answer{{200, `{"id":"1065","display_phone_number":""}`}, {200, `{}`}}, foreign},
		{"refused with the right body", business, []answer{{403, `{"id":"1065","display_phone_number":"+1"}`}, {403, `{"data":[{"id":"7"}]}`}}, foreign},
		{"redirected", business, []answer{{302, `{"id":"1065","display_phone_number":"+1"}`}, {302, `{"data":[{"id":"7"}]}`}}, foreign},
		{"no numbers", business, []answer{none, {200, `{"data":[]}`}}, foreign},
		{"numbers of no list", business, []answer{none, {200, `{"data":{"id":"7"}}`}}, foreign},
		{"null", business, []answer{{200, `null`}, {200, `null`}}, foreign},
		{"pages", business, []answer{{200, `<html>`}, {200, `<html>`}}, foreign},
		{"cut short", business, []answer{{200, `{"id":"1065","display_phone_number":"+1"`}, {200, `{"data":[{"id":"7"}]`}}, foreign},
		{"more after it", business, []answer{{200, `{"id":"1065","display_phone_number":"+1"}{}`}, {200, `{"data":[{"id":"7"}]}{}`}}, foreign},
		{"twice the name, the last counts", business, []answer{{200, `{"id":"1065","id":"7","display_phone_number":"+1"}`}, none}, foreign + " (Unsupported get request.)"},
		{"nothing", business, []answer{{200, ``}, {200, ``}}, foreign},

		{"a page's own token", page, []answer{{200, `{"id":"1065","category":"Shop"}`}}, ""},
		{"another page's", page, []answer{{200, `{"id":"1066","category":"Shop"}`}}, notPage},
		{"a person's", page, []answer{{200, `{"id":"1065"}`}}, notPage},
		{"with an empty category", page, []answer{{200, `{"id":"1065","category":""}`}}, notPage},
		{"of another type", page, []answer{{200, `{"id":["1065"],"category":{"a":1}}`}}, notPage},
		{"refused", page, []answer{{401, `{"id":"1065","category":"Shop","error":{"message":"Invalid\n OAuth\taccess token."}}`}}, notPage + " (Invalid OAuth access token.)"},
		{"no page", page, []answer{{200, `<html>`}}, notPage},
	} {
		credentials := channel.ConnectionCredentials(tt.adapter.ProofAPI(number), map[string]string{"access_token": "EAA-ours"})
		var given []channel.Response
		var call *channel.APIRequest
		var err error
		for {
			if call, err = tt.adapter.ProofCall(number, credentials, given); call == nil || err != nil {
				break
			}
			if len(given) == len(tt.answers) {
				t.Fatalf("%s: asks once more: %s", tt.name, call.URL)
			}
			if call.Method != "GET" || call.Header.Get("Authorization") != "Bearer EAA-ours" || strings.Contains(call.URL, "EAA") || !strings.HasPrefix(call.URL, "https://graph.example/v") {
				t.Errorf("%s: asks %s %s %v", tt.name, call.Method, call.URL, call.Header)
			}
			a := tt.answers[len(given)]
			given = append(given, channel.Response{Status: a.status, Body: []byte(a.body)})
		}
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != tt.want || len(given) != len(tt.answers) {
			t.Errorf("%s: %q after %d answers, want %q after %d", tt.name, got, len(given), tt.want, len(tt.answers))
		}
	}
	for _, a := range []prover{business, page} {
		if call, err := a.ProofCall(number, channel.ConnectionCredentials(a.ProofAPI(number), nil), nil); call != nil || err == nil || err.Error() != missing {
			t.Errorf("%s without a token: %v, %v", a.Info().Name, call, err)
		}
	}
	long := []byte(`{"error":{"message":"` + strings.Repeat("x", 1<<20) + `"}}`)
	credentials := channel.ConnectionCredentials(page.ProofAPI(number), map[string]string{"access_token": "EAA-ours"})
	if _, err := page.ProofCall(number, credentials, []channel.Response{{Status: 400, Body: long}}); err == nil || len(err.Error()) > 1000 {
		t.Errorf("a long error: %.80v", err)
	}
}
