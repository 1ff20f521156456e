package app

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/app/doctor"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/marketplace"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// market is a deployment that accepts a test key in place of the notification service's,
// with which anybody can sign for their own topic.
type market struct {
	*App
	t    *testing.T
	key  *marketplace.TestKey
	sent int
}

const orderChange = `{"NotificationVersion":"1.0","NotificationType":"ORDER_CHANGE","PayloadVersion":"1.0","EventTime":"2026-11-22T10:00:00Z",
	"Payload":{"OrderChangeNotification":{"NotificationLevel":"OrderLevel","SellerId":"A3SELLER","AmazonOrderId":"903-1","OrderChangeType":"OrderStatusChange",
	"OrderChangeTrigger":{"TimeOfOrderChange":"2026-11-22T10:00:00Z"},"Summary":{"MarketplaceId":"ATVPDKIKX0DER","OrderStatus":"Shipped","OrderItems":[]}}},
	"NotificationMetadata":{"NotificationId":"n1","PublishTime":"2026-11-22T10:00:00Z"}}`

func openMarket(t *testing.T, baseURL string, topics ...string) *market {
	text, err := marketplace.NewTestKey()
	if err != nil {
		t.Fatal(err)
	}
	m := &market{t: t, App: deployment(t, baseURL, quiet, func(c *Config) {
		c.Secrets, c.MarketplaceTopics, c.SignUp = map[string][]string{"marketplace": {text}}, topics, "open"
	})}
	if m.key, err = marketplace.ParseTestKey(text); err != nil {
		t.Fatal(err)
	}
	return m
}

// post sends a signed notification of a topic, and returns the status and the slug of the
// organization that received it.
func (m *market) post(topic, query string) (status int, owner string) {
	m.t.Helper()
	m.sent++
	body, err := json.Marshal(map[string]any{
		"Type": "Notification", "MessageId": strconv.Itoa(m.sent), "TopicArn": topic, "Message": orderChange,
		"Timestamp": time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), "SignatureVersion": "2",
	})
	if err != nil {
		m.t.Fatal(err)
	}
	r := httptest.NewRequest("POST", m.BaseURL+"/api/marketplace/webhook"+query, strings.NewReader(string(m.key.Sign(body))))
	r.Header.Set("Content-Type", "text/plain; charset=UTF-8")
	w := httptest.NewRecorder()
	m.handler.ServeHTTP(w, r)
	list, err := m.Inbound.List(m.t.Context(), inbound.Filter{Limit: 1})
	if err != nil {
		m.t.Fatal(err)
	}
	if w.Code != http.StatusOK || len(list) == 0 {
		return w.Code, ""
	}
	slug, err := m.Accounts.Slug(m.t.Context(), m.DB, list[0].OrganizationID)
	if err != nil {
		m.t.Fatal(err)
	}
	return w.Code, slug
}

func (m *market) want(topic, query string, status int, owner string) {
	m.t.Helper()
	if got, of := m.post(topic, query); got != status || of != owner {
		m.t.Errorf("%s%s: answered %d for %q, want %d for %q", topic, query, got, of, status, owner)
	}
}

// TestMarketplaceRefusesUntilConnected: at a public base URL a signed topic is refused
// until the operator connects or allows it: it reaches neither the default organization
// nor a stranger's.
func TestMarketplaceRefusesUntilConnected(t *testing.T) {
	const topic, another = "arn:aws:sns:us-east-1:123456789012:orders", "arn:aws:sns:us-east-1:999999999999:orders"
	m := openMarket(t, publicURL)
	acme, err := m.Accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme"})
	if err != nil {
		t.Fatal(err)
	}
	stranger := signUp(t, m.App, "Stranger")
	m.want(topic, "", 401, "")
	claim, _, err := m.Connections.Connect(t.Context(), connection.New{OrganizationID: stranger.ID, Channel: "marketplace", Address: topic})
	if err != nil {
		t.Fatal(err)
	}
	m.want(topic, "", 401, "")
	m.want(topic, "?c="+claim.ID, 401, "")
	if _, _, err := m.Connections.Connect(t.Context(), connection.New{OrganizationID: acme.ID, Channel: "marketplace", Address: topic, ByOperator: true}); err != nil {
		t.Fatal(err)
	}
	m.want(topic, "", 200, "acme")
	m.want(topic, "?c="+claim.ID, 401, "")
	m.want(another, "", 401, "")
	if n, err := m.Inbound.List(t.Context(), inbound.Filter{Limit: 10}); err != nil || len(n) != 1 {
		t.Errorf("%d events are stored, %v; want 1", len(n), err)
	}

	allowed := openMarket(t, publicURL, topic)
	if _, err := allowed.Accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme"}); err != nil {
		t.Fatal(err)
	}
	allowed.want(topic, "", 200, "acme")
	allowed.want(another, "", 401, "")

	here := openMarket(t, "http://localhost:8080")
	signUp(t, here.App, "First")
	here.want(topic, "", 200, "first")
}

// TestChannelsRefuseUntilConfigured: at a public base URL without secrets every channel
// refuses requests.
func TestChannelsRefuseUntilConfigured(t *testing.T) {
	a := deployment(t, publicURL, quiet)
	admin(t, a)
	for _, ad := range posted(a) {
		info := ad.Info()
		for _, contentType := range []string{"application/json", "application/x-www-form-urlencoded", "message/rfc822", "text/plain"} {
			r := httptest.NewRequest("POST", publicURL+info.Path, strings.NewReader(`{"type":"x"}`))
			r.Header.Set("Content-Type", contentType)
			w := httptest.NewRecorder()
			a.handler.ServeHTTP(w, r)
			if w.Code < 400 || w.Code > 499 || w.Code == http.StatusNotFound {
				t.Errorf("%s with %s is answered %d %s", info.Name, contentType, w.Code, w.Body)
			}
		}
	}
	if list, err := a.Inbound.List(t.Context(), inbound.Filter{Limit: 1}); err != nil || len(list) > 0 {
		t.Errorf("stored %v, %v", list, err)
	}
}

// TestTexter: codes are sent by the operator's account. Errors about the number are
// shown; other texts of the provider, which may name the account, are not.
func TestTexter(t *testing.T) {
	if a := (&App{}).smsSender(nil); a != nil {
		t.Error("without an account there is something that texts")
	}
	database := dbtest.New(t)
	const taken = `{"sid":"SM1","status":"queued"}`
	for _, tt := range []struct {
		name   string
		status int // 0: unreachable provider
		body   string
		want   string // error; empty: sent
		shown  bool
	}{
		{"taken", 201, taken, "", false},
		{"not a mobile number", 400, `{"code":21614,"message":"'To' number is not a valid mobile number"}`, "the number is not a mobile number (21614)", true},
		{"opted out", 400, `{"code":21610,"message":"Attempt to send to unsubscribed recipient"}`, "the recipient has opted out (21610)", true},
		{"taken, and failed", 201, `{"sid":"SM1","status":"failed","error_code":30006}`, "the number is a landline or its carrier takes no texts (30006)", true},
		{"no such account", 404, `{"code":20404,"message":"The requested resource /2010-04-01/Accounts/AC0operator/Messages.json was not found"}`,
			"the SMS provider: the provider does not know the connection's account (20404)", false},
		{"the provider's own words", 400, `{"code":63999,"message":"Account AC0operator is suspended"}`, "the SMS provider: Account AC0operator is suspended (63999)", false},
		{"too many", 429, ``, "the SMS provider: the provider's rate limit was exceeded (429)", false},
		{"trouble", 503, `<html>`, "the SMS provider: the provider failed (503)", false},
		{"redirected", 302, taken, "the SMS provider: the provider refused the message (302)", false},
		{"unreadable", 200, `<html>`, "the SMS provider: the provider's response is malformed", false},
		{"cut short", 201, `{"sid":"SM1"`, "the SMS provider: the provider's response is malformed", false},
		{"no id", 201, `{}`, "the SMS provider: the provider's response is malformed", false},
		{"out of reach", 0, ``, "the SMS provider cannot be reached", false},
	} {
		var sent []string
		providers := roundTrip(func(r *http.Request) (*http.Response, error) {
			user, password, _ := r.BasicAuth()
			body, _ := io.ReadAll(r.Body)
			sent = append(sent, r.Method+" "+r.URL.String()+" "+user+" "+password+" "+string(body))
			if tt.status == 0 {
				return nil, errors.New("dial http://AC0operator:hush@provider.example")
			}
			return &http.Response{StatusCode: tt.status, Header: http.Header{"Location": {"https://evil.example"}}, Body: io.NopCloser(strings.NewReader(tt.body))}, nil
		})
		a := &App{DB: database, adapters: []channel.Adapter{sms.New(sms.Config{APIURL: "https://provider.example"})}}
		a.config.TextAccount = TextAccount{SID: "AC0operator", Token: "hush", From: "+14155550199"}
		err := a.smsSender(providers)(t.Context(), "+14155550100", channel.ProofText("12345678"))
		got := ""
		if err != nil {
			got = err.Error()
		}
		p, shown := errors.AsType[*problem.Error](err)
		if shown {
			got = p.Message
		}
		if got != tt.want || shown != tt.shown {
			t.Errorf("%s: got %q, shown: %t; want %q, %t", tt.name, got, shown, tt.want, tt.shown)
		}
		if want := "POST https://provider.example/2010-04-01/Accounts/AC0operator/Messages.json AC0operator hush "; len(sent) != 1 || !strings.HasPrefix(sent[0], want) ||
			!strings.Contains(sent[0], "Body=Kickstand+code%3A+12345678.") || !strings.Contains(sent[0], "From=%2B14155550199") || !strings.Contains(sent[0], "To=%2B14155550100") {
			t.Errorf("%s: sent %q", tt.name, sent)
		}
	}
}

// TestDiagnoseAddresses: the doctor counts proofs in the database and reports unknown
// slugs of allowed-addresses.
func TestDiagnoseAddresses(t *testing.T) {
	var config Config
	a := deployment(t, publicURL, quiet, func(c *Config) {
		c.AllowedAddresses = []string{"support@acme.example=acme", "@bolt.example=bolt", "sms:+14155550100=bolt"}
		config = *c
	})
	admin(t, a)
	acme, err := a.Accounts.OrganizationBySlug(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	connect := func(channel, address string) connection.Connection {
		c, _, err := a.Connections.Connect(t.Context(), connection.New{OrganizationID: acme.ID, Channel: channel, Address: address})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := connect("email-raw", "support@acme.example"); c.Proof.Method != connection.ByAllowList {
		t.Errorf("proof %+v", c.Proof)
	}
	connect("email-raw", "other@acme.example")
	old := connect("sms", "+14155550100")
	if err := a.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE connections SET proof = 'proven', proof_method = 'before_proofs', proven_at = 1 WHERE id = $1", old.ID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	stored := doctor.Database{Schema: db.Helpdesk, Open: func(context.Context) (*db.DB, func(), error) { return a.DB, func() {}, nil }}
	got, err := config.proofs(t.Context(), stored)
	want := doctor.Proofs{Proven: 2, Pending: 1, BeforeProofs: 1, UnknownSlugs: []string{"bolt"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}
