package e2e

import "testing"

// TestSubscribeBrowser: the page of preferences registers the service worker, subscribes the browser
// and lists it. The push service and the browser's permission are the test's.
func TestSubscribeBrowser(t *testing.T) {
	t.Parallel()
	p := start(t)
	_, robin := p.organization("Acme Wheels")
	v := p.as(t, robin)
	v.open("/settings/preferences")
	v.wait("the button", `!document.querySelector("#push form[hidden]")`)
	v.checkAccess()
	v.checkLayout()
	js[any](v, `(Notification.requestPermission = async () => "granted", PushManager.prototype.subscribe = async ({ applicationServerKey }) => ({
		toJSON: () => ({ endpoint: "https://push.example/" + applicationServerKey.length, keys: {
			p256dh: "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4", auth: "BTBZMqHH6r4Tts7J_aSIgg" } }) }), 1)`)
	v.press("Show notices in this browser")
	v.waitText("This browser shows your notices.")
	v.wait("the browser in the list", `document.getElementById("push").innerText.includes("This browser") && document.querySelector("#push form[hidden]")`)
	js[any](v, `navigator.serviceWorker.ready.then((r) => (window.worker = r.active.scriptURL + " " + r.scope), 1)`)
	v.wait("the service worker", `window.worker === location.origin + "/push-worker.js " + location.origin + "/"`)
	v.checkAccess()
	v.checkLayout()
	v.click("#push .quiet")
	v.waitText("Browser removed.")
	v.wait("the button again", `!document.querySelector("#push form[hidden]")`)
}
