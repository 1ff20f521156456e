package e2e

import (
	"context"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestFirstPageZone checks that the first page of a browser shows times in the browser's zone, and
// the notice of a form stays.
func TestFirstPageZone(t *testing.T) {
	t.Parallel()
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	p.connect(o)
	p.receiveText("SM1", "+14155550123", "Hello, scooter B-0417 does not unlock.")
	p.until("the ticket", func() bool { return p.tickets(o.ID) == 1 })
	v := p.as(t, robin)
	v.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kathmandu"})
		return err
	}))
	v.open("/tickets/1")
	v.wait("times of Kathmandu", `document.querySelector("#thread .said time").title.endsWith("+0545")`)
	v.fill("textarea[name=reply]", "The page still works.")
	v.click("button[data-sends]")
	v.wait("the reply", `document.querySelector("#thread").innerText.includes("The page still works.")`)
}

// TestSendAndNext checks the preferences' form, and that a reply which leads to the next ticket can
// be undone there.
func TestSendAndNext(t *testing.T) {
	t.Parallel()
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	p.connect(o)
	p.receiveText("SM1", "+14155550123", "Hello, scooter B-0417 does not unlock.")
	p.receiveText("SM2", "+14155550124", "Where is my refund?")
	p.until("the tickets", func() bool { return p.tickets(o.ID) == 2 })
	v := p.as(t, robin)
	v.open("/settings/preferences")
	v.fill("#field-after_send", "next")
	v.fill("#field-theme", "dark")
	v.fill("#field-undo_send_seconds", "30")
	v.press("Save")
	v.waitText("Preferences saved.")
	v.wait("the dark theme", `getComputedStyle(document.documentElement).colorScheme === "dark"`)
	v.open("/inbox")
	v.click(".trow > a")
	v.wait("the reply field", `document.querySelector("textarea[name=reply]")`)
	from := js[string](v, `location.pathname`)
	v.fill("textarea[name=reply]", "Wrong ticket.")
	v.click("button[data-sends]")
	v.wait("the next ticket", `location.pathname.startsWith("/tickets/") && location.pathname !== `+quote(from))
	v.waitText("Reply sent.")
	v.press("Undo")
	v.at(from + "*")
	v.wait("the text", `document.querySelector("textarea[name=reply]").value === "Wrong ticket."`)
}
