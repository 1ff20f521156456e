package e2e

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestKey creates a key, uses the API with it, revokes it, and checks that the next
// request is refused.
func TestKey(t *testing.T) {
	t.Parallel()
	p := start(t)
	_, robin := p.organization("Acme Wheels")
	v := p.as(t, robin)
	v.open("/settings/keys")
	v.press("Create key")
	v.at("/settings/keys/new*")
	v.press("Create key")
	v.at("/settings/keys/new*")
	v.fill("#field-name", "Weekly figures")
	v.fill("#field-level", "read_only")
	v.checkLayout()
	v.press("Create key")
	v.find(".secret")
	key := js[string](v, `document.querySelector(".secret code").innerText.trim()`)
	v.checkLayout()
	v.checkAccess()
	header := http.Header{"Authorization": {"Bearer " + key}}
	if status, answer := p.call("GET", "/api/v1/tickets", header, nil); status != http.StatusOK {
		t.Errorf("the new key is answered %d %s", status, answer)
	}
	v.open("/settings/keys")
	v.waitText("Weekly figures", "…"+key[len(key)-8:])
	if page := js[string](v, `document.documentElement.outerHTML`); strings.Contains(page, key) {
		t.Error("the list shows the key")
	}
	v.press("Weekly figures")
	v.at("/settings/keys/*")
	v.press("Revoke")
	v.wait("the question", `document.querySelector("dialog[open] form button")`)
	v.checkAccess()
	v.click("dialog[open] form button:not([data-cancel], .plain)")
	v.waitText("Key revoked.", "Revoked")
	if status, _ := p.call("GET", "/api/v1/tickets", header, nil); status != http.StatusUnauthorized {
		t.Errorf("the revoked key is answered %d", status)
	}
}

// TestWebhook creates and tests a webhook, breaks its receiver, which the open page
// shows, and resends the failed delivery once the receiver works.
func TestWebhook(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	var taken atomic.Int64
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Webhook-Signature") == "" || broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		taken.Add(1)
	}))
	defer far.Close()
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	p.connect(o)
	v := p.as(t, robin)
	v.open("/settings/webhooks")
	v.press("Add webhook")
	v.at("/settings/webhooks/new")
	v.fill("#field-url", "not an address")
	v.checkLayout()
	v.fill("#field-url", far.URL+"/events")
	v.wait("every event, as long as nobody chooses", `document.querySelector('input[name=events][value="*"]').checked`)
	v.press("Add webhook")
	v.find(".secret")
	v.click(`main a.button[href^="/settings/webhooks/"]`)
	v.at("/settings/webhooks/*")
	v.press("Send test")
	v.at("/settings/deliveries/*")
	v.waitText("The receiver accepted the test: 200", "Verify the signature", "Webhook-Signature")
	v.checkLayout()
	broken.Store(true)
	v.open("/settings/webhooks")
	v.press(far.URL + "/events")
	v.at("/settings/webhooks/*")
	v.waitLive()
	p.receiveText("SM1", "+14155550123", "Hello, scooter B-0417 does not unlock.")
	// Without a reload.
	v.waitText("The last attempt failed", "ticket.created")
	v.checkLayout()
	v.checkAccess()
	broken.Store(false)
	before := taken.Load()
	v.click(`#deliveries a[href^="/settings/deliveries/"]`)
	v.at("/settings/deliveries/*")
	v.waitText("Attempt 1", "500")
	v.press("Resend")
	v.waitText("Event sent again.")
	p.until("the event at the receiver", func() bool { return taken.Load() > before })
	// The delivery may precede the page's event stream.
	p.until("the delivery", func() bool {
		v.do(chromedp.Reload())
		return js[string](v, `document.querySelector("#state").innerText.trim()`) == "Delivered"
	})
}
