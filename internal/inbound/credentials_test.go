package inbound_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/chat"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/meta"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/channel/voice"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// credentialRows lists all credentials of all channels. Add new ones here and to
// TestOneOwnerPerCall.
var credentialRows = map[string]map[string]channel.CredentialKind{
	"sms": {
		"account_sid": channel.KindOption, "auth_token": channel.KindAPIKey, "api_key": channel.KindAPIKey, "api_secret": channel.KindAPIKey,
		"messaging_service_sid": channel.KindOption,
	},
	"voice": {
		"api_token": channel.KindAPIKey, "user_id": channel.KindOption, "sender_group_id": channel.KindOption, "sender_group_type": channel.KindOption,
	},
	"email-form": mailCredentials, "email-parse": mailCredentials, "email-json": mailCredentials, "email-raw": mailCredentials,
	"email-delivery":     mailCredentials,
	"business-messaging": metaCredentials, "social-messenger": metaCredentials,
	"chat":       {"bot_token": channel.KindAPIKey},
	"storefront": {"access_token": channel.KindAPIKey, "api_secret": channel.KindSigning},
}

var (
	mailCredentials = map[string]channel.CredentialKind{
		"smtp_url": channel.KindServer, "delivery_api_key": channel.KindAPIKey, "delivery_api_url": channel.KindAPIURL, "delivery_secret": channel.KindSigning,
	}
	metaCredentials = map[string]channel.CredentialKind{
		"access_token": channel.KindAPIKey, "app_secret": channel.KindSigning, "verify_token": channel.KindSigning,
		"api_version": channel.KindOption, "phone_number_id": channel.KindOption, "human_agent": channel.KindOption,
	}
)

// TestEveryCredentialHasARow compares the table with the adapters' declarations, which are all
// that they can read.
func TestEveryCredentialHasARow(t *testing.T) {
	for _, p := range posters(t) {
		name := p.adapter.Info().Name
		declared := make(map[string]channel.CredentialKind)
		for _, c := range channel.APIOf(p.adapter).Credentials {
			declared[c.Name] = c.Kind
		}
		if want := credentialRows[name]; !maps.Equal(declared, want) {
			t.Errorf("%s declares the credentials %v, want %v", name, declared, want)
		}
	}
}

// Planted values and the hosts of planted addresses.
const (
	markTenant, markDeployment = "t3nant", "d3ployment"
	tenantHost, deploymentHost = "api.tenant.example", "10.0.0.7"
)

// mediaHosts are hosts that require credentials for a download.
var mediaHosts = []string{"api.twilio.com", "lookaside.fbsbx.com", "files.slack.com"}

// planted returns a value for each credential of an API that identifies its owner.
func planted(api channel.API, mark string) map[string]string {
	values := make(map[string]string)
	for _, c := range api.Credentials {
		values[c.Name] = mark + "-" + c.Name
		switch c.Kind {
		case channel.KindAPIURL:
			values[c.Name] = "https://" + tenantHost
		case channel.KindServer:
			values[c.Name] = "smtps://" + mark + ":" + mark + "-password@mail.tenant.example"
		case channel.KindSigning:
			values[c.Name] = base64.StdEncoding.EncodeToString([]byte(mark + "-signing-" + c.Name))
		}
	}
	return values
}

// sent is an outgoing request as one text.
type sent struct {
	host, text string
	public     bool // sent over the transport for public addresses
}

// wire records all outgoing requests.
type wire struct {
	mu   sync.Mutex
	list []sent
}

func (w *wire) capture(r *http.Request, public bool) {
	var b bytes.Buffer
	fmt.Fprintln(&b, r.URL)
	r.Header.Write(&b)
	if r.Body != nil {
		io.Copy(&b, r.Body)
	}
	if user, password, ok := r.BasicAuth(); ok {
		fmt.Fprintln(&b, user, password)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, sent{r.URL.Host, b.String(), public})
}

// answering returns a transport that records requests and answers with a body from which every
// provider's adapter can continue.
func (w *wire) answering(public bool) http.RoundTripper {
	const answer = `{"ok":true,"id":"56761188","to":["support@acme.example"],"url":"https://lookaside.fbsbx.com/file","raw":{"download_url":"https://inbound-cdn.resend.com/raw"},` +
		`"attachments":[{"id":"f1"}],"data":[{"id":"f1","download_url":"https://inbound-cdn.resend.com/f1"}]}`
	return transport(func(r *http.Request) (*http.Response, error) {
		w.capture(r, public)
		resp := respond(200, strings.NewReader(answer), "Content-Type", "application/json")
		resp.Request = r
		return resp, nil
	})
}

// judge checks all outgoing requests and returns the owners of the values in them.
func (w *wire) judge(t *testing.T, api channel.API) (tenant, deployment bool) {
	t.Helper()
	for _, s := range w.list {
		ofTenant, ofDeployment := strings.Contains(s.text, markTenant), strings.Contains(s.text, markDeployment)
		tenant, deployment = tenant || ofTenant, deployment || ofDeployment
		switch {
		case ofTenant && ofDeployment:
			t.Errorf("a request has values of two owners: %s", s.text)
		case ofDeployment && s.host != deploymentHost && !slices.Contains(mediaHosts, s.host):
			t.Errorf("the deployment's credentials left for %s: %s", s.host, s.text)
		case ofTenant && s.host == deploymentHost:
			t.Errorf("a tenant's credentials left for the deployment's address: %s", s.text)
		case s.host == tenantHost && !s.public:
			t.Errorf("an address that a tenant chose was called without a guard: %s", s.text)
		case strings.Contains(s.text, "-signing-"), strings.Contains(s.text, base64.StdEncoding.EncodeToString([]byte(markTenant + "-sign"))[:12]):
			t.Errorf("what verifies requests left: %s", s.text)
		}
	}
	return tenant, deployment
}

// providerCall is a request that makes the worker call the provider's API or download a file.
type providerCall struct {
	adapter channel.Adapter
	of      string // the connection's channel
	address string
	request func(secret string) *http.Request
}

func providerCalls(t *testing.T) []providerCall {
	signing := func(r *http.Request, secret string) *http.Request {
		return resigned(r, "", meta.SignatureHeader, func(body []byte) string { return meta.Sign(body, secret) })
	}
	received := func(secret string) *http.Request {
		body := []byte(`{"type":"email.received","created_at":"2026-11-20T10:00:00.000Z","data":{"email_id":"56761188","from":"ana@client.example",` +
			`"to":["support@acme.example"],"subject":"Lamp","attachments":[{"id":"f1"}]}}`)
		signature, timestamp := email.SignDelivery(body, "msg_1", time.Now(), secret)
		r := httptest.NewRequest("POST", "/api/webhooks/email-delivery", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Webhook-Id", "msg_1")
		r.Header.Set("Webhook-Timestamp", timestamp)
		r.Header.Set("Webhook-Signature", signature)
		return r
	}
	list := []providerCall{
		{sms.New(sms.Config{}), "sms", ours, func(secret string) *http.Request {
			form := text("SM1", theirs, "look")
			form.Set("NumMedia", "1")
			form.Set("MediaUrl0", api)
			form.Set("MediaContentType0", "image/png")
			return smsRequest(form, secret)
		}},
		{meta.NewBusiness(meta.Config{}), "business-messaging", "1065", func(secret string) *http.Request {
			return signing(businessRequest("x", "1029", businessChange("1065", "wamid.1", "image", `{"id":"777","mime_type":"image/png"}`)), secret)
		}},
		{meta.NewMessenger(meta.Config{}), "social-messenger", "3001", func(secret string) *http.Request {
			return signing(messengerRequest("x", "3001", `{"sender":{"id":"901"},"recipient":{"id":"3001"},"timestamp":1764000000000,"message":{"mid":"m1","text":"hello"}}`), secret)
		}},
		{chat.New(chat.Config{}), "chat", "T1", func(secret string) *http.Request {
			return chatRequest(chatPath, chatEvent("T1", "Ev1", "text", "hello", "ts", "1764000000.000100", "files", []any{
				map[string]any{"id": "F1", "name": "a.png", "mimetype": "image/png", "url_private_download": "https://files.slack.com/a.png"},
			}), secret)
		}},
	}
	for _, of := range []string{"email-form", "email-parse", "email-json", "email-raw", "email-delivery"} {
		list = append(list, providerCall{email.NewDelivery(email.Config{DeploymentAPIURL: "https://" + deploymentHost}), of, "support@acme.example", received})
	}
	return list
}

// styles returns the mail channels; email-delivery serves their connections.
func styles() []channel.Adapter {
	c := email.Config{}
	return []channel.Adapter{email.NewForm(c), email.NewParsed(c), email.NewJSON(c), email.NewRaw(c)}
}

// undeclared is a channel that declares no credentials.
type undeclared struct{ channel.Adapter }

// connectBefore connects as before credentials were validated: some connections have an API URL
// without a key.
func (h *house) connectBefore(t testing.TB, name, address string, change ...func(*connection.New)) {
	t.Helper()
	checked := h.connections
	defer func() { h.connections = checked }()
	var unchecked []channel.Adapter
	for _, a := range h.adapters {
		unchecked = append(unchecked, undeclared{a})
	}
	h.connections = connection.Open(h.db, seal.New(h.key), unchecked)
	h.connect(t, name, address, change...)
}

// run processes one request signed with the deployment's secret or the connection's, and
// returns the outgoing requests.
func (a providerCall) run(t *testing.T, credentials map[string]string, byDeployment bool) *wire {
	w := new(wire)
	dbtest.SQLiteURL(t) // skips the whole test on other engines, not only the bubble
	synctest.Test(t, func(t *testing.T) {
		info, declared := a.adapter.Info(), channel.APIOf(a.adapter)
		tenantKey, deploymentKey := markTenant+" signs this", markDeployment+" signs this"
		if info.TicketChannel == "email" {
			tenantKey, deploymentKey = base64.StdEncoding.EncodeToString([]byte(tenantKey)), base64.StdEncoding.EncodeToString([]byte(deploymentKey))
		}
		h := startSQLite(t, func(h *house) {
			h.adapters = []channel.Adapter{a.adapter}
			if info.TicketChannel == "email" {
				h.adapters = append(styles(), a.adapter)
			}
			h.api, h.media = w.answering(false), w.answering(true)
			h.secrets = map[string][]string{info.Name: {deploymentKey}}
			h.tokens = map[string][]string{info.Name: {markDeployment + "-token"}}
			h.credentials = map[string]channel.Credentials{
				info.Name: channel.DeploymentCredentials(declared, "https://"+deploymentHost, planted(declared, markDeployment)),
			}
		})
		values := maps.Clone(credentials)
		if a.of != info.Name { // its own secrets belong to another provider
			values["delivery_secret"] = tenantKey
		}
		h.connectBefore(t, a.of, a.address, func(n *connection.New) {
			n.Secrets, n.Credentials = []string{tenantKey}, values
			if a.of == "email-parse" {
				n.Secrets = []string{publicKeyOf("x")}
			}
		})
		secret := tenantKey
		if byDeployment {
			secret = deploymentKey
		}
		if got := h.do(a.request(secret)); got.Code != 200 {
			t.Fatalf("the request is answered %d, want 200", got.Code)
		}
		h.run(t)
		h.settled(t)
	})
	return w
}

// TestOneOwnerPerCall tries every credential of every channel that calls its provider, each
// alone and all together, next to a deployment with all of them. No request mixes values of two
// owners or sends them to another owner's address.
func TestOneOwnerPerCall(t *testing.T) {
	for _, a := range providerCalls(t) {
		api := channel.APIOf(a.adapter)
		all := planted(api, markTenant)
		sets := map[string]map[string]string{"none": {}, "all": all}
		for name, value := range all {
			if credentialRows[a.of][name] != channel.KindOption { // an option forms no set and is not secret
				sets[name] = map[string]string{name: value}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(sets)) {
			for _, byDeployment := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/deployment=%t", a.of, name, byDeployment), func(t *testing.T) {
					w := a.run(t, sets[name], byDeployment)
					tenant, deployment := w.judge(t, api)
					own := name == "all"
					switch kind := credentialRows[a.of][name]; kind {
					case channel.KindAPIKey, channel.KindAPIURL:
						own = true
					}
					if want := byDeployment && !own; deployment != want {
						t.Errorf("the deployment's credentials were used: %t, want %t", deployment, want)
					}
					if name == "all" && !tenant {
						t.Error("the connection's credentials were not used")
					}
				})
			}
		}
	}
}

// TestTenantURLNeverReceivesDeploymentKey: a connection with only an API URL never receives the
// deployment's keys there, with any signature.
func TestTenantURLNeverReceivesDeploymentKey(t *testing.T) {
	for _, a := range providerCalls(t) {
		if a.adapter.Info().Name != "email-delivery" {
			continue
		}
		for _, byDeployment := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/deployment=%t", a.of, byDeployment), func(t *testing.T) {
				for _, s := range a.run(t, map[string]string{"delivery_api_url": "https://" + tenantHost}, byDeployment).list {
					if strings.Contains(s.text, markDeployment) || s.host == tenantHost {
						t.Errorf("the tenant's address was called: %s", s.text)
					}
				}
			})
		}
	}
}

// TestTenantsEventReadsNothingOfDeploymentsAccount: an event signed only with a tenant's
// secret, with the id of another tenant's mail, is not looked up with the deployment's key.
func TestTenantsEventReadsNothingOfDeploymentsAccount(t *testing.T) {
	for _, a := range providerCalls(t) {
		if a.of == "email-delivery" {
			if list := a.run(t, nil, false).list; len(list) > 0 {
				t.Errorf("the provider was called: %v", list)
			}
		}
	}
}

// TestOneOwnerPerMessage does the same for outbound messages: a call uses the connection's set
// alone, and a call outside its base URL is refused.
func TestOneOwnerPerMessage(t *testing.T) {
	m := &channel.Outgoing{
		ID: "m1", From: ours, To: channel.Party{Phone: theirs, ID: "901"}, Text: "Hi", ThreadKey: "C9:1764000000.000100", LastInboundAt: time.Now(),
	}
	for _, p := range posters(t) {
		caller, ok := p.adapter.(channel.APISender)
		if !ok {
			continue
		}
		t.Run(p.adapter.Info().Name, func(t *testing.T) {
			api := channel.APIOf(p.adapter)
			own := channel.ConnectionCredentials(api, planted(api, markTenant))
			shared := channel.DeploymentCredentials(api, "https://"+deploymentHost, planted(api, markDeployment))
			calls := func(c channel.Credentials) []channel.APIRequest {
				list := []channel.APIRequest{caller.SendCall(m, c)}
				if s, ok := p.adapter.(channel.Searcher); ok {
					list = append(list, s.SearchCall(m, c, time.Now()))
				}
				return list
			}
			w := new(wire)
			for _, call := range append(calls(own), calls(shared)...) {
				req, err := call.HTTPRequest(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				w.capture(req, call.Public())
			}
			if tenant, deployment := w.judge(t, api); !tenant || !deployment {
				t.Errorf("the connection's values were used: %t, the deployment's: %t, want both", tenant, deployment)
			}
			for _, call := range calls(channel.Credentials{}) {
				if _, err := call.HTTPRequest(t.Context()); err == nil {
					t.Errorf("a call without credentials leaves for %s", call.URL)
				}
			}
			for _, elsewhere := range []string{"https://" + deploymentHost + "/x", own.BaseURL() + ".evil.example/x", own.BaseURL() + "@evil.example/x"} {
				call := caller.SendCall(m, own)
				call.URL = elsewhere
				if _, err := call.HTTPRequest(t.Context()); err == nil {
					t.Errorf("a call of %s leaves for %s", own.BaseURL(), elsewhere)
				}
			}
		})
	}
}

// TestMediaNeverTakesCredentialsElsewhere: for any URL of a file, credentials are sent only to
// the hosts that require them.
func TestMediaNeverTakesCredentialsElsewhere(t *testing.T) {
	for _, tt := range []struct {
		adapter channel.MediaSource
		hosts   []string // receive credentials
		without []string // allowed, without credentials
	}{
		{sms.New(sms.Config{}), []string{"api.twilio.com"}, []string{"mms.twiliocdn.com", "media.twiliocdn.com", "s3-external-1.amazonaws.com"}},
		{voice.New(voice.Config{}), []string{"dialpad.com", "a.dialpad.com"}, []string{"storage.googleapis.com"}},
		{meta.NewBusiness(meta.Config{}), []string{"lookaside.fbsbx.com", "graph.facebook.com"}, []string{"x.fbcdn.net", "x.fbsbx.com"}},
		{meta.NewMessenger(meta.Config{}), nil, []string{"lookaside.fbsbx.com", "x.fbcdn.net"}},
		{chat.New(chat.Config{}), []string{"files.slack.com"}, nil},
		{email.NewRaw(email.Config{}), nil, []string{"api.mailgun.net"}},
		{email.NewDelivery(email.Config{}), nil, []string{"inbound-cdn.resend.com", "x.amazonaws.com"}},
	} {
		a := tt.adapter.(channel.Adapter)
		m := tt.adapter.MediaRequest(channel.Attachment{}, channel.ConnectionCredentials(channel.APIOf(a), planted(channel.APIOf(a), markTenant)))
		gets := func(host string) bool {
			return len(m.Header) > 0 && slices.ContainsFunc(m.HeaderHosts, func(h string) bool {
				return h == host || strings.HasPrefix(h, ".") && strings.HasSuffix(host, h)
			})
		}
		for _, host := range tt.hosts {
			if !gets(host) {
				t.Errorf("%s: %s gets no credentials", a.Info().Name, host)
			}
		}
		for _, host := range append(tt.without, "evil.example", "slack.com.evil.example") {
			if gets(host) {
				t.Errorf("%s: %s gets credentials", a.Info().Name, host)
			}
		}
	}
}
