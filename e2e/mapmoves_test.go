package e2e

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestEnterChecksPlace: Enter in the field of a place checks it, and saves nothing. Elsewhere it saves.
func TestEnterChecksPlace(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	form := func() {
		v.open("/fleet/zones/new")
		v.fill("#field-name", "Old town")
		v.fill("#field-geometry", "52.5, 13.3\n52.5, 13.4\n52.6, 13.4\n52.6, 13.3")
		v.fill("#check-at", "52.55, 13.35")
		v.keys(kb.Enter)
		v.waitText("May a ride end here?")
		v.at("/fleet/zones/new")
	}
	form()
	v.do(chromedp.Focus("#field-name"))
	v.keys(kb.Enter)
	v.waitText("Zone created.")
	v.withoutScripts()
	form()
	if got := v.value("#field-name"); got != "Old town" {
		t.Errorf("the name is now %q", got)
	}
	v.press("Create zone")
	v.waitText("Zone created.")
}
