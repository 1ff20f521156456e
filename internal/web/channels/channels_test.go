package channels_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/api"
	"github.com/kickstand-dev/kickstand/internal/channel/chat"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/marketplace"
	"github.com/kickstand-dev/kickstand/internal/channel/meta"
	"github.com/kickstand-dev/kickstand/internal/channel/payments"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/channel/storefront"
	"github.com/kickstand-dev/kickstand/internal/channel/voice"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/mailbox"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/shop"
	"github.com/kickstand-dev/kickstand/internal/web/channels"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// harness is a site with the channels and their endpoints.
type harness struct {
	*webtest.Harness
	t           *testing.T
	connections *connection.Service
	endpoints   *http.ServeMux
	admin       *webtest.Browser
	tests       int // tests of channels; at most maxTests
}

const maxTests = 3

func adapters() []channel.Adapter {
	letters := email.Config{}
	return []channel.Adapter{
		sms.New(sms.Config{}), voice.New(voice.Config{}), chat.New(chat.Config{}), api.New(), marketplace.New(nil),
		email.NewForm(letters), email.NewParsed(letters), email.NewJSON(letters), email.NewRaw(letters), email.NewMailbox(letters), email.NewDirect(letters), email.NewDelivery(letters),
		meta.NewBusiness(meta.Config{}), meta.NewMessenger(meta.Config{}), payments.NewConnect(), storefront.New(storefront.Config{}),
	}
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{Harness: webtest.NewHarness(t), t: t, endpoints: http.NewServeMux()}
	files, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	q := queue.Open(h.DB, queue.Config{Poll: time.Hour})
	h.connections = connection.Open(h.DB, seal.New(seal.NewKey()), adapters())
	d := desk.Open(desk.Config{
		DB: h.DB, Queue: q, Events: new(event.Log), Blob: files, Directory: h.Accounts, Addresses: h.connections, BaseURL: webtest.BaseURL, Logger: h.Log,
	})
	in := inbound.Open(inbound.Config{
		DB: h.DB, Queue: q, Blob: files, Connections: h.connections, Desk: d, Adapters: adapters(), BaseURL: webtest.BaseURL,
		DefaultOrganization: h.Accounts.DefaultOrganization, Logger: h.Log,
	})
	in.Register(h.endpoints)
	boxes := mailbox.Open(mailbox.Config{DB: h.DB, Connections: h.connections, Journal: in, Guard: netguard.Guard{AllowPrivate: true}, Box: seal.New(seal.NewKey()), Logger: h.Log})
	channels.Register(h.Site, channels.Config{DB: h.DB, Connections: h.connections, Inbound: in, Mailboxes: boxes, Shop: shop.Open(shop.Config{DB: h.DB, Queue: q}), BaseURL: webtest.BaseURL, MailHost: "mx.help.example",
		AllowTest: func(context.Context, string) (bool, time.Duration) {
			h.tests++
			return h.tests <= maxTests, time.Minute
		}})
	h.admin = h.SignIn(h.Admin)
	return h
}

// only returns the only connection.
func (h *harness) only() connection.Connection {
	h.t.Helper()
	list, err := h.connections.List(h.t.Context(), h.Organization.ID)
	if err != nil || len(list) != 1 {
		h.t.Fatalf("got %d connections, %v", len(list), err)
	}
	return list[0]
}

// text posts an SMS as the provider does.
func (h *harness) text(secret, id, says string) int {
	h.t.Helper()
	form := url.Values{"MessageSid": {id}, "AccountSid": {"AC1"}, "From": {"+4915112345678"}, "To": {"+14155550100"}, "Body": {says}, "NumMedia": {"0"}}
	mac := hmac.New(sha1.New, []byte(secret))
	mac.Write([]byte(webtest.BaseURL + "/api/webhooks/sms"))
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range form {
			if !yield(name) {
				return
			}
		}
	}) {
		mac.Write([]byte(name + form.Get(name)))
	}
	r := httptest.NewRequest("POST", webtest.BaseURL+"/api/webhooks/sms", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Sms-Signature", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	w := httptest.NewRecorder()
	h.endpoints.ServeHTTP(w, r)
	return w.Code
}

// TestGuides checks that exactly the connectable channels have guides, and that each
// guide renders.
func TestGuides(t *testing.T) {
	h := newHarness(t)
	d := h.admin.Page("/settings/channels")
	d.Want("No channels connected")
	var linked []string
	for _, a := range d.All("a") {
		if name, ok := strings.CutPrefix(webtest.Attr(a, "href"), "/settings/connect/"); ok {
			linked = append(linked, name)
		}
	}
	var want []string
	for _, a := range adapters() {
		want = append(want, a.Info().Name)
	}
	slices.Sort(linked)
	slices.Sort(want)
	if !slices.Equal(linked, want) {
		t.Errorf("the page offers %q, want %q", linked, want)
	}
	for _, name := range want {
		d := h.admin.Page("/settings/connect/" + name)
		if name == email.DirectName || name == api.Name {
			d.Want("Setup")
		} else {
			d.Want("At the provider")
		}
		if name == email.DirectName {
			d.Want("example.com. MX 10 mx.help.example.")
		} else if name != email.MailboxName {
			d.Want(webtest.BaseURL + "/api/")
		}
		if len(d.WithAttr("name", "address")) != 1 {
			t.Errorf("%s: no address is asked for", name)
		}
	}
	h.admin.WantRefused(h.admin.Get("/settings/connect/telex"), http.StatusNotFound)
}

// TestConnect connects a number, posts an event and reads it on the page.
func TestConnect(t *testing.T) {
	const secret = "an auth token"
	h := newHarness(t)
	path := "/settings/connect/sms"
	d := h.admin.WantRefused(h.admin.Post(path, url.Values{"address": {"+14155550100"}}), http.StatusUnprocessableEntity)
	if d.Alert() == "" || webtest.Attr(d.Field("address"), "value") != "+14155550100" {
		t.Errorf("got alert %q, and what was typed is gone", d.Alert())
	}
	d = h.admin.WantRefused(h.admin.Post(path, url.Values{"address": {"+14155550100"}, "secrets.0": {"short"}}), http.StatusUnprocessableEntity)
	if got := d.DescribedBy("secrets.0"); len(got) == 0 {
		t.Error("nothing is said of a secret that is too short")
	}
	form := url.Values{"address": {"+14155550100"}, "secrets.0": {secret}, "name": {"<b>Texts</b>"}, "credentials.account_sid": {"AC1"}, "settings.auto_reply": {"Thanks & <soon>"}}
	d, notice := h.admin.Follow(h.admin.Post(path, form))
	if !strings.HasPrefix(notice, "SMS is connected.") {
		t.Errorf("got notice %q", notice)
	}
	d.Want("<b>Texts</b>", "+14155550100", "No events stored")
	if strings.Contains(webtest.Text(d.Root), secret) || strings.Contains(webtest.Text(d.Root), "AC1") {
		t.Error("the page shows a secret")
	}
	d = h.admin.WantRefused(h.admin.Post(path, form), http.StatusUnprocessableEntity)
	d.Want("is connected already")

	if got := h.text("another token", "SM0", "no"); got != http.StatusUnauthorized {
		t.Fatalf("a wrong secret: got %d", got)
	}
	if got := h.text(secret, "SM1", "It <em>hisses</em>"); got != http.StatusOK {
		t.Fatalf("got %d", got)
	}
	d = h.admin.Page("/settings/channels/" + h.only().ID)
	d.Want("Recent events", "+4915112345678", "Waiting")
	d = h.admin.Page("/settings/inbound?state=accepted&channel=sms")
	var event string
	for _, a := range d.All("a") {
		if to := webtest.Attr(a, "href"); strings.HasPrefix(to, "/settings/inbound/") {
			event = to
		}
	}
	h.admin.Page(event).Want("POST "+webtest.BaseURL+"/api/webhooks/sms", "It+%3Cem%3Ehisses", "Raw body", "Waiting")
	if w := h.admin.Get(event + "/body"); w.Body.String() == "" || w.Header().Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(w.Header().Get("Content-Disposition"), "attachment") {
		t.Errorf("the body: got %v", w.Header())
	}
	if _, notice := h.admin.Follow(h.admin.Post(event+"/replay", nil)); !strings.HasPrefix(notice, "The event is still queued") {
		t.Errorf("got notice %q", notice)
	}
	h.admin.Page("/settings/inbound?state=dead").Want("No events match these filters.")
	// Dead events are announced on the channels' pages.
	const trouble = "An inbound event could not be processed."
	shows := func(path string, want bool) {
		t.Helper()
		if got := strings.Contains(webtest.Text(h.admin.Page(path).Root), trouble); got != want {
			t.Errorf("%s says that an event could not be processed: %v, want %v", path, got, want)
		}
	}
	shows("/settings/channels", false)
	if err := h.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE inbound_events SET state = 'dead'")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	shows("/settings/channels", true)
	shows("/settings/inbound", true)
	shows("/settings/inbound?state=dead", false)
}

// TestChange checks that an empty credential stays, a cleared setting is removed and an
// unknown setting stays.
func TestChange(t *testing.T) {
	h := newHarness(t)
	c, _, err := h.connections.Connect(t.Context(), connection.New{
		OrganizationID: h.Organization.ID, Channel: "sms", Address: "+14155550100", Secrets: []string{"an auth token"},
		Credentials: map[string]string{"account_sid": "AC1", "auth_token": "t", "odd": "o"}, Settings: map[string]string{"auto_reply": "Hi", "odd": "o"},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := "/settings/channels/" + c.ID
	h.admin.Follow(h.admin.Post(path, url.Values{"name": {"Texts"}, "settings.auto_reply": {""}, "credentials.auth_token": {"new"}, "forget.account_sid": {"on"}}))
	c = h.only()
	if c.Name != "Texts" || len(c.Settings) != 1 || c.Settings["odd"] != "o" {
		t.Errorf("got name %q, settings %v", c.Name, c.Settings)
	}
	if got := c.CredentialValues(); len(got) != 2 || got["auth_token"] != "new" || got["odd"] != "o" {
		t.Errorf("got credentials %v", got)
	}
	h.admin.WantRefused(h.admin.Post(path, url.Values{"name": {strings.Repeat("x", 300)}}), http.StatusUnprocessableEntity)

	_, notice := h.admin.Follow(h.admin.Post(path+"/switch", nil))
	if !strings.Contains(notice, "Undo") || h.only().Enabled {
		t.Errorf("got notice %q", notice)
	}
	h.admin.Follow(h.admin.Post(path+"/switch", url.Values{"on": {"on"}}))
	if !h.only().Enabled {
		t.Error("it is still off")
	}

	h.admin.Page(path + "/secret")
	h.admin.WantRefused(h.admin.Post(path+"/secret", nil), http.StatusUnprocessableEntity).Want("Enter the new secret of the provider")
	h.admin.Follow(h.admin.Post(path+"/secret", url.Values{"secret": {"another token"}, "overlap": {"0"}}))
	if got := h.text("another token", "SM1", "x"); got != http.StatusOK {
		t.Errorf("the new secret: got %d", got)
	}
	if got := h.text("an auth token", "SM2", "x"); got != http.StatusUnauthorized {
		t.Errorf("the old one: got %d", got)
	}

	h.admin.Page(path + "/delete")
	h.admin.WantRefused(h.admin.Post(path+"/delete", url.Values{"confirm": {"no"}}), http.StatusUnprocessableEntity)
	h.admin.Follow(h.admin.Post(path+"/delete", url.Values{"confirm": {"+14155550100"}}))
	h.admin.WantRefused(h.admin.Get(path), http.StatusNotFound)
}

// TestForgottenKeyIsRefused checks that a delivery provider's key cannot be removed while
// its address stays.
func TestForgottenKeyIsRefused(t *testing.T) {
	h := newHarness(t)
	c, _, err := h.connections.Connect(t.Context(), connection.New{
		OrganizationID: h.Organization.ID, Channel: "email-raw", Address: "help@example.com",
		Credentials: map[string]string{"delivery_api_key": "re_ours", "delivery_api_url": "https://api.example"},
	})
	if err != nil {
		t.Fatal(err)
	}
	h.admin.WantRefused(h.admin.Post("/settings/channels/"+c.ID, url.Values{"name": {"x"}, "forget.delivery_api_key": {"on"}}), http.StatusUnprocessableEntity).
		Want("is required (delivery_api_key) with delivery_api_url, which is called with the connection's own key only.")
	if got := h.only(); got.Name != "help@example.com" || got.CredentialValues()["delivery_api_key"] != "re_ours" {
		t.Errorf("left with %q and %v", got.Name, got.CredentialValues())
	}
}

// TestSecretOnce checks that a generated secret is on exactly one page.
func TestSecretOnce(t *testing.T) {
	h := newHarness(t)
	w := h.admin.Post("/settings/connect/email-json", url.Values{"address": {"help@example.com"}})
	d := h.admin.WantRefused(w, http.StatusOK)
	c := h.only()
	secret := c.Secrets(time.Now())[0]
	d.Want("It is shown only once.", secret)
	for _, path := range []string{"/settings/channels", "/settings/channels/" + c.ID} {
		if strings.Contains(h.admin.Get(path).Body.String(), secret) {
			t.Errorf("%s shows it again", path)
		}
	}
	d = h.admin.WantRefused(h.admin.Post("/settings/channels/"+c.ID+"/secret", url.Values{"overlap": {"3600"}}), http.StatusOK)
	c = h.only()
	next := c.Secrets(time.Now())
	if len(next) != 2 || next[0] == secret {
		t.Fatalf("got %d secrets", len(next))
	}
	d.Want("It is shown only once.", next[0])
}

// TestOthers checks that agents have no access, and other organizations no connections.
func TestOthers(t *testing.T) {
	h := newHarness(t)
	c, _, err := h.connections.Connect(t.Context(), connection.New{OrganizationID: h.Organization.ID, Channel: "sms", Address: "+14155550100", Secrets: []string{"an auth token"}})
	if err != nil {
		t.Fatal(err)
	}
	h.text("an auth token", "SM1", "x")
	agent := h.SignIn(h.Agent)
	other := h.SignIn(h.NewUser(h.NewOrganization("Other"), "eve@example.com", "Eve", account.Admin))
	for _, path := range []string{"/settings/channels", "/settings/connect/sms", "/settings/channels/" + c.ID, "/settings/channels/" + c.ID + "/secret", "/settings/channels/" + c.ID + "/delete", "/settings/inbound", "/settings/privacy"} {
		agent.WantRefused(agent.Get(path), http.StatusForbidden)
	}
	for _, path := range []string{"", "/secret", "/delete", "/switch"} {
		at := "/settings/channels/" + c.ID + path
		agent.WantRefused(agent.Post(at, nil), http.StatusForbidden)
		other.WantRefused(other.Post(at, url.Values{"secret": {"another token"}}), http.StatusNotFound)
	}
	other.Page("/settings/channels").Want("No channels connected")
	other.Page("/settings/inbound").Want("No events yet")
	h.admin.Page("/settings/privacy").Want("No privacy requests.")
}

// TestTestButton shows the results of a test on the channel's page, and its health.
func TestTestButton(t *testing.T) {
	h := newHarness(t)
	c, secrets, err := h.connections.Connect(t.Context(), connection.New{OrganizationID: h.Organization.ID, Channel: "sms", Address: "+14155550100", ByOperator: true})
	if err != nil {
		t.Fatal(err)
	}
	path := "/settings/channels/" + c.ID
	h.admin.Page(path).Want("Last received", "nothing yet", "Test channel", webtest.BaseURL+"/api/webhooks/sms")
	webtest.Parse(t, h.admin.Post(path+"/test", nil).Body.String()).Want("Receiving", "Works", "It was not stored.")
	if code := h.text(secrets[0], "SM1", "Hello"); code != 200 {
		t.Fatalf("a text is answered %d", code)
	}
	if err := h.connections.RecordSend(t.Context(), c.ID, "the provider rejected the key (401)"); err != nil {
		t.Fatal(err)
	}
	d := h.admin.Page(path)
	d.Want("Last error", "the provider rejected the key (401)")
	if strings.Count(webtest.Text(d.All("body")[0]), "nothing yet") != 1 {
		t.Error("the text is not shown as received")
	}
	if err := h.connections.SetEnabled(t.Context(), h.Organization.ID, c.ID, false); err != nil {
		t.Fatal(err)
	}
	webtest.Parse(t, h.admin.Post(path+"/test", nil).Body.String()).Want("Receiving", "Fails", "The channel is disabled, so requests are refused.")
	h.tests = maxTests
	h.admin.WantRefused(h.admin.Post(path+"/test", nil), http.StatusTooManyRequests)
}

// TestAppPage: the page of one's own app has nothing to prove, and the secret with the steps once.
func TestAppPage(t *testing.T) {
	h := newHarness(t)
	d := webtest.Parse(t, h.admin.Post("/settings/connect/api", url.Values{"address": {"contact-form"}}).Body.String())
	c := h.only()
	secret := c.Secrets(time.Now())[0]
	d.Want(secret, "Store it on your server now.", c.ID, webtest.BaseURL+"/api/visitor/v1/"+c.ID)
	d = h.admin.Page("/settings/channels/" + c.ID)
	d.Want("Your own app", c.ID, webtest.BaseURL+"/api/webhooks/api?c="+c.ID, "Test channel")
	if text := webtest.Text(d.Root); strings.Contains(text, secret) || strings.Contains(text, "Ownership") {
		t.Errorf("the page is %s", text)
	}
}

// TestConnectedAccount: without the provider's secret none is shown to be entered there.
func TestConnectedAccount(t *testing.T) {
	h := newHarness(t)
	w := h.admin.Post("/settings/connect/payments-connect", url.Values{"address": {"acct_1032D82eZvKYlo2C"}})
	c := h.only()
	if secret := c.Secrets(time.Now())[0]; strings.Contains(w.Body.String(), secret) {
		t.Error("a generated secret is shown, which the provider cannot use")
	}
	d, notice := h.admin.Follow(w)
	if d.Want("Connected account"); notice == "" {
		t.Error("there is no notice")
	}
}
