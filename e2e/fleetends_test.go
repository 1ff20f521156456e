package e2e

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestReplayRide plays a ride along its track, by its button and by keys.
func TestReplayRide(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/sandbox/fleet/rides?status=completed&sort=-ended_at")
	v.click(".records tbody a")
	v.waitText("Track:")
	const at = `document.querySelector(".mover").getAttribute("cx")`
	v.wait("a mark", at+` !== null`)
	before := js[string](v, at)
	v.do(chromedp.Focus("[data-replay] input"))
	v.keys(kb.End)
	v.wait("the mark at the end", at+` !== `+quote(before)+` && document.querySelector("[data-replay] input").value === document.querySelector("[data-replay] input").max`)
	v.click("[data-play]")
	v.wait("a button that pauses", `document.querySelector("[data-play]").getAttribute("aria-label") === "Pause"`)
	v.wait("a mark on its way", `Number(document.querySelector("[data-replay] input").value) > 0 && /km\/h/.test(document.querySelector("[data-replay] output").textContent)`)
	v.click("[data-play]")
	v.wait("a button that plays", `document.querySelector("[data-play]").getAttribute("aria-label") === "Play"`)
}

// TestNearestVehicles lists the vehicles nearest to the center of the map, and to a click.
func TestNearestVehicles(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/sandbox/fleet/map?z=13&lat=52.52&lng=13.4")
	v.do(chromedp.ScrollIntoView(".ground"))
	v.press("Nearest to the center")
	v.waitText("Nearest available", "From 52.52000,13.40000")
	v.wait("three vehicles by distance", `document.querySelectorAll(".near-list li").length >= 3`)
	v.press("Close")
	v.wait("no list", `!document.querySelector("#nearest")`)
	// Anywhere that is no link, such as the sea.
	v.open("/sandbox/fleet/map?z=11&lat=54.5&lng=12")
	v.clickAt(".ground", .5, .5)
	v.waitText("No available vehicle within 50 km.")
}

// TestBulkVehicles sets vehicles out of service and undoes it.
func TestBulkVehicles(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/sandbox/fleet/vehicles?state=available")
	v.wait("a button without a selection", `document.querySelector("[data-continue]").disabled`)
	v.click("[data-page]")
	v.wait("the number of vehicles", `/^Continue with \d+$/.test(document.querySelector("[data-continue]").textContent)`)
	n := js[string](v, `document.querySelector("[data-continue]").textContent.slice(14)`)
	v.click("[data-continue]")
	v.waitText("Set " + n + " vehicles out of service")
	v.press("Set " + n + " vehicles out of service")
	v.waitText(n + " vehicles set out of service.")
	v.press("Undo")
	v.waitText(n + " vehicles restored.")
}

// TestPriceExamples: the examples follow what is entered, computed by the server.
func TestPriceExamples(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/fleet/pricing/new")
	v.waitText("By the example amounts in the fields")
	v.fill("#field-unlock_amount", "3")
	v.waitText("Unlocking €3.00")
}
