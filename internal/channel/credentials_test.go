package channel_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

var api = channel.API{URL: "https://api.example", Credentials: []channel.Credential{
	{Name: "key", Kind: channel.KindAPIKey}, {Name: "url", Kind: channel.KindAPIURL}, {Name: "secret", Kind: channel.KindSigning},
}}

func TestOfConnection(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values map[string]string
		base   string
		public bool
		hasAPI bool
	}{
		{"nothing", nil, "https://api.example", false, false},
		{"a key", map[string]string{"key": "k"}, "https://api.example", false, true},
		{"an address", map[string]string{"url": "https://own.example/v1/"}, "https://own.example/v1", true, true},
		{"an empty address", map[string]string{"url": ""}, "https://api.example", false, false},
		{"a malformed address", map[string]string{"key": "k", "url": "://"}, "", true, true},
		{"an address with a password", map[string]string{"key": "k", "url": "https://a:b@own.example"}, "", true, true},
		{"an address without TLS", map[string]string{"key": "k", "url": "http://own.example"}, "", true, true},
		{"a signing secret", map[string]string{"secret": "s"}, "https://api.example", false, false},
		{"undeclared", map[string]string{"api_key": "k", "base": "https://evil.example"}, "https://api.example", false, false},
	} {
		c := channel.ConnectionCredentials(api, tt.values)
		if c.BaseURL() != tt.base || c.Public() != tt.public || c.HasAPI() != tt.hasAPI || c.Owner() != channel.OwnerConnection {
			t.Errorf("%s: got %q, public %t, with an API %t; want %q, %t, %t", tt.name, c.BaseURL(), c.Public(), c.HasAPI(), tt.base, tt.public, tt.hasAPI)
		}
		if got := c.Get("api_key"); got != "" {
			t.Errorf("%s: Get of a name that is not declared returns %q", tt.name, got)
		}
	}
}

// TestCredentialsPrintNothing: no form of printing, logging or encoding shows a value.
func TestCredentialsPrintNothing(t *testing.T) {
	for _, c := range []channel.Credentials{
		channel.ConnectionCredentials(api, map[string]string{"key": "hush", "url": "https://hush.example"}),
		channel.DeploymentCredentials(api, "https://hush.example", map[string]string{"key": "hush"}),
		{},
	} {
		var b bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
			fmt.Fprintf(&b, verb+" "+verb+"\n", c, struct{ C channel.Credentials }{c})
		}
		slog.New(slog.NewTextHandler(&b, nil)).Info("x", "c", c)
		slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "c", c)
		encoded, err := json.Marshal(c)
		if err != nil {
			t.Error(err)
		}
		b.Write(encoded)
		if strings.Contains(b.String(), "hush") {
			t.Errorf("a value is shown: %s", b.String())
		}
	}
}

func TestCallRequest(t *testing.T) {
	own := channel.ConnectionCredentials(api, map[string]string{"key": "k", "url": "https://own.example/v1"})
	standard := channel.ConnectionCredentials(api, map[string]string{"key": "k"})
	at := func(c channel.Credentials, url string) channel.APIRequest {
		call := c.NewRequest("POST", "/x", http.Header{"Authorization": {"k"}}, []byte("body"))
		if url != "" {
			call.URL = url
		}
		return call
	}
	with := func(c channel.APIRequest) channel.APIRequest {
		c.Header = http.Header{"Authorization": {"k"}}
		return c
	}
	for _, tt := range []struct {
		name   string
		call   channel.APIRequest
		url    string // empty: refused
		public bool
		auth   string
	}{
		{"an address of one's own", at(own, ""), "https://own.example/v1/x", true, "k"},
		{"the standard address", at(standard, ""), "https://api.example/x", false, "k"},
		{"above the address", at(own, "https://own.example/x"), "", true, ""},
		{"another host", at(standard, "https://evil.example/x"), "", false, ""},
		{"a longer host", at(standard, "https://api.example.evil.example/x"), "", false, ""},
		{"a user", at(standard, "https://api.example@evil.example/x"), "", false, ""},
		{"no credentials", at(channel.Credentials{}, ""), "", false, ""},
		{"no credentials, with an address", at(channel.Credentials{}, "https://api.example/x"), "", false, ""},
		{"a literal", channel.APIRequest{Method: "GET", URL: "https://api.example/x"}, "", false, ""},
		{"a file at the standard address", with(standard.Download("https://api.example/f")), "https://api.example/f", false, ""},
		{"a file elsewhere", with(standard.Download("https://cdn.example/f")), "https://cdn.example/f", true, ""},
		{"a file at one's own address", with(own.Download("https://own.example/f")), "https://own.example/f", true, ""},
		{"a file at the standard address, by an API of one's own", with(own.Download("https://api.example/f")), "https://api.example/f", true, ""},
		{"a file without TLS", standard.Download("http://cdn.example/f"), "", true, ""},
		{"a file behind a password", standard.Download("https://a:b@cdn.example/f"), "", true, ""},
	} {
		req, err := tt.call.HTTPRequest(t.Context())
		if tt.call.Public() != tt.public {
			t.Errorf("%s: public: %t, want %t", tt.name, tt.call.Public(), tt.public)
		}
		if tt.url == "" {
			if err == nil {
				t.Errorf("%s: a request leaves for %s", tt.name, req.URL)
			}
			continue
		}
		if err != nil || req.URL.String() != tt.url || req.Header.Get("Authorization") != tt.auth {
			t.Errorf("%s: got %v, %v; want %s with %q", tt.name, req, err, tt.url, tt.auth)
		}
	}
}
