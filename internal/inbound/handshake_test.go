package inbound_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
)

// TestHandshake: a provider with a valid verify token gets its challenge back; every other
// client gets the same refusal.
func TestHandshake(t *testing.T) {
	other := greeting{newParcels("crates")}
	other.info.Path = "/api/webhooks/crates"
	h := start(t, withParcels(greeting{newParcels("parcels")}, other), func(h *house) {
		h.tokens = map[string][]string{"parcels": {"", "the deployment's"}, "crates": {"of crates"}}
	})
	token := func(value string) func(*connection.New) {
		return func(n *connection.New) { n.Credentials = map[string]string{channel.VerifyToken: value} }
	}
	a := h.connect(t, "parcels", "a", token("of a"))
	b := h.connect(t, "parcels", "b", ofOrg2, token("of b"))
	h.connect(t, "parcels", "c") // has no token
	crate := h.connect(t, "crates", "d", token("of d"))
	off := h.connect(t, "parcels", "off", token("of off"))
	if err := h.connections.SetEnabled(t.Context(), "org-1", off.ID, false); err != nil {
		t.Fatal(err)
	}
	const mode, no = "hub.mode=subscribe&hub.challenge=1158201444", `{"error":"the verify token is wrong"}` + "\n"
	before := h.rows(t)
	for _, tt := range []struct {
		name, query string
		known       bool
	}{
		{"the deployment's", mode + "&hub.verify_token=the+deployment%27s", true},
		{"a connection's", mode + "&hub.verify_token=of+a", true},
		{"another connection's", mode + "&hub.verify_token=of+b", true},
		{"named", mode + "&hub.verify_token=of+a&c=" + a.ID, true},
		{"named, the deployment's", mode + "&hub.verify_token=the+deployment%27s&c=" + a.ID, true},
		{"named, another's", mode + "&hub.verify_token=of+a&c=" + b.ID, false},
		{"named, of another channel", mode + "&hub.verify_token=of+d&c=" + crate.ID, false},
		{"named, disabled", mode + "&hub.verify_token=of+off&c=" + off.ID, false},
		{"named, unknown", mode + "&hub.verify_token=of+a&c=x", false},
		{"of another channel", mode + "&hub.verify_token=of+d", false},
		{"the deployment's for another channel", mode + "&hub.verify_token=of+crates", false},
		{"disabled", mode + "&hub.verify_token=of+off", false},
		{"wrong", mode + "&hub.verify_token=x", false},
		{"longer", mode + "&hub.verify_token=of+a+", false},
		{"other letters", mode + "&hub.verify_token=OF+A", false},
		{"empty", mode + "&hub.verify_token=", false},
		{"missing", mode, false},
		{"another mode", "hub.mode=unsubscribe&hub.challenge=1&hub.verify_token=of+a", false},
		{"nothing", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := h.do(httptest.NewRequest("GET", parcelPath+"?"+tt.query, nil))
			status, body, kind := http.StatusForbidden, no, "application/json"
			if tt.known {
				status, body, kind = http.StatusOK, "1158201444", "text/plain; charset=utf-8"
			}
			if w.Code != status || w.Body.String() != body {
				t.Errorf("answered %d %q, want %d %q", w.Code, w.Body, status, body)
			}
			if got := w.Header().Get("Content-Type"); got != kind {
				t.Errorf("Content-Type %q, want %q", got, kind)
			}
			if got := w.Header().Get("X-Content-Type-Options"); got != "nosniff" {
				t.Errorf("X-Content-Type-Options %q, want nosniff", got)
			}
		})
	}
	h.wantUntouched(t, before)

	// A new connection's token works at once.
	h.connect(t, "parcels", "e", token("of e"))
	h.wantAnswer(t, httptest.NewRequest("GET", parcelPath+"?"+mode+"&hub.verify_token=of+e", nil), 200, "1158201444")
}

func TestMethods(t *testing.T) {
	h := start(t, withParcels(greeting{newParcels("parcels")}))
	for _, tt := range []struct{ method, path, allow string }{
		{"GET", smsPath, "POST"}, {"HEAD", smsPath, "POST"}, {"PUT", smsPath, "POST"}, {"DELETE", mailPath, "POST"}, {"OPTIONS", mailPath, "POST"},
		{"HEAD", parcelPath, "GET, POST"}, {"PUT", parcelPath, "GET, POST"}, {"OPTIONS", parcelPath, "GET, POST"},
	} {
		w := h.do(httptest.NewRequest(tt.method, tt.path, nil))
		if w.Code != 405 || w.Header().Get("Allow") != tt.allow {
			t.Errorf("%s %s: answered %d, Allow %q, want 405 and %q", tt.method, tt.path, w.Code, w.Header().Get("Allow"), tt.allow)
		}
	}
}

// TestChallenge: a signed challenge is answered with its value and not stored.
func TestChallenge(t *testing.T) {
	h := start(t, withParcels(greeting{newParcels("parcels")}), func(h *house) {
		h.secrets = map[string][]string{"parcels": {"the deployment's"}}
	})
	a := h.connect(t, "parcels", "a")
	before := h.rows(t)
	challenge := []byte(`{"challenge":"<b>3eZb</b>"}`)
	h.wantAnswer(t, parcelRequest(parcelPath, challenge, "wrong"), 401, denied)
	h.wantAnswer(t, parcelRequest(parcelPath, challenge, secretOf("a")), 401, denied)
	h.wantAnswer(t, parcelRequest(parcelPath, challenge, "the deployment's"), 200, "<b>3eZb</b>")
	r := parcelRequest(parcelPath+"?c="+url.QueryEscape(a.ID), challenge, secretOf("a"))
	w := h.do(r)
	if got := w.Header().Get("Content-Type"); w.Code != 200 || w.Body.String() != "<b>3eZb</b>" || got != "text/plain; charset=utf-8" {
		t.Errorf("answered %d %s %q, want the challenge as plain text", w.Code, got, w.Body)
	}
	h.wantUntouched(t, before)
}
