package app

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/netguard"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTenantMailNeverMeetsDeploymentKey covers the ways in which a connection can set a
// URL or key for its mail, in a deployment with a key and a URL.
func TestTenantMailNeverMeetsDeploymentKey(t *testing.T) {
	const deploymentKey, deploymentURL = "re_d3ployment", "https://10.0.0.7/resend"
	const key, url, server = email.CredentialAPIKey, email.CredentialAPIURL, email.CredentialServer
	for _, tt := range []struct {
		name        string
		credentials map[string]string
		withKey     bool   // the deployment has a key
		want        string // transport, host and key of the request
		trouble     string // the error, if sending is impossible
	}{
		{name: "nothing", withKey: true},
		{name: "address alone", withKey: true, credentials: map[string]string{url: "https://evil.example"}, trouble: "the API key is empty"},
		{name: "address alone, malformed", withKey: true, credentials: map[string]string{url: "evil"}, trouble: "is not usable"},
		{name: "key alone", withKey: true, credentials: map[string]string{key: "re_t3nant"}, want: "providers api.resend.com re_t3nant"},
		{name: "both", withKey: true, credentials: map[string]string{key: "re_t3nant", url: "https://api.tenant.example"}, want: "public api.tenant.example re_t3nant"},
		{name: "both, malformed", withKey: true, credentials: map[string]string{key: "re_t3nant", url: "https://re_t3nant@evil.example"}, trouble: "is not usable"},
		{name: "the deployment's address", withKey: true, credentials: map[string]string{key: "re_t3nant", url: deploymentURL}, want: "public 10.0.0.7 re_t3nant"},
		{name: "a signing secret", withKey: true, credentials: map[string]string{email.CredentialSecret: "whsec_x"}},
		{name: "an unknown name", withKey: true, credentials: map[string]string{"api_url": "https://evil.example"}},
		{name: "key alone, no key of the deployment", credentials: map[string]string{key: "re_t3nant"}, want: "providers 10.0.0.7 re_t3nant"},
		{name: "a server that is none", withKey: true, credentials: map[string]string{server: "ftp://evil.example"}, trouble: "its smtp_url is not usable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := Config{APIURLs: map[string]string{"email-delivery": deploymentURL}}
			if tt.withKey {
				config.EmailDeliveryAPIKey = deploymentKey
			}
			letters, err := openLetters(config)
			if err != nil {
				t.Fatal(err)
			}
			var left []string
			record := func(name string) roundTrip {
				return func(r *http.Request) (*http.Response, error) {
					var all bytes.Buffer
					r.Write(&all)
					if strings.Contains(all.String(), "d3ployment") {
						t.Errorf("the deployment's key left: %s", all.String())
					}
					left = append(left, fmt.Sprint(name, " ", r.URL.Host, " ", strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")))
					return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"id":"1"}`))}, nil
				}
			}
			a := &App{config: config}
			open := a.ownMail(netguard.Guard{}, record("public"), record("providers"))
			carrier, err := open(new(connection.Connection), channel.ConnectionCredentials(email.NewRaw(letters).API(), tt.credentials))
			if tt.trouble != "" {
				if err == nil || !strings.Contains(err.Error(), tt.trouble) || strings.Contains(err.Error(), "t3nant") {
					t.Errorf("got the error %v, want one with %q and no key", err, tt.trouble)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if carrier != nil {
				_, err = carrier.SendTracked(t.Context(), mail.Message{
					From: mail.Address{Address: "help@tenant.example"}, To: []mail.Address{{Address: "ana@client.example"}}, Subject: "Hi", Text: "Hi",
				}, func() error { return nil })
				if err != nil {
					t.Error(err)
				}
			}
			if got := strings.Join(left, ", "); got != tt.want {
				t.Errorf("%q left, want %q", got, tt.want)
			}
		})
	}
}

// TestDeploymentCredentials: the deployment's credentials have its key and its URL, which
// may be private.
func TestDeploymentCredentials(t *testing.T) {
	config := Config{EmailDeliveryAPIKey: "re_d3ployment", APIURLs: map[string]string{"email-delivery": "https://10.0.0.7/resend"}}
	letters, err := openLetters(config)
	if err != nil {
		t.Fatal(err)
	}
	sets := deploymentCredentials(config, letters)
	c := sets["email-delivery"]
	if len(sets) != 1 || c.Owner() != channel.OwnerDeployment || c.BaseURL() != "https://10.0.0.7/resend" || c.Public() || c.Get(email.CredentialAPIKey) != "re_d3ployment" {
		t.Errorf("got %v: %s at %s", sets, c.Owner(), c.BaseURL())
	}
	if sets := deploymentCredentials(Config{}, letters); len(sets) != 0 {
		t.Errorf("without a key, got %v", sets)
	}
}
