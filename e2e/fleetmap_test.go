package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
)

// mouse sends a mouse event at a point of an element, given as 0 to 1 of its width and
// height.
func (v *visitor) mouse(what input.DispatchMouseEventType, selector string, x, y, wheel float64) {
	v.t.Helper()
	v.find(selector)
	v.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		r, err := chromedp.Evaluate[struct{ X, Y, Width, Height float64 }](`document.querySelector(`+quote(selector)+`).getBoundingClientRect().toJSON()`)(ctx, t)
		if err != nil {
			return err
		}
		p := input.DispatchMouseEventParams{Type: what, X: r.X + r.Width*x, Y: r.Y + r.Height*y, DeltaY: wheel}
		if wheel != 0 {
			p.DeltaX = 0.01 // the protocol requires a delta, but omits 0
		} else {
			p.Button, p.Buttons, p.ClickCount = input.MouseButtonLeft, 1, 1
		}
		_, err = cdp.Call(ctx, t, input.DispatchMouseEvent, p)
		return err
	}))
}

// drag moves the mouse with its button pressed.
func (v *visitor) drag(selector string, fromX, fromY, toX, toY float64) {
	v.t.Helper()
	v.mouse(input.DispatchMouseEventTypeMousePressed, selector, fromX, fromY, 0)
	v.mouse(input.DispatchMouseEventTypeMouseMoved, selector, (fromX+toX)/2, (fromY+toY)/2, 0)
	v.mouse(input.DispatchMouseEventTypeMouseMoved, selector, toX, toY, 0)
	v.mouse(input.DispatchMouseEventTypeMouseReleased, selector, toX, toY, 0)
}

// TestFleetMap pans and zooms the map, and checks that a vehicle's change appears.
func TestFleetMap(t *testing.T) {
	p := start(t)
	o, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/sandbox/fleet/map")
	v.waitText("vehicles in view", "Sandbox")
	number := func(name string) float64 {
		return js[float64](v, `Number(document.querySelector("[data-map]").dataset.`+name+`)`)
	}
	is := func(what, name, relation string, than float64) {
		t.Helper()
		v.wait(what, fmt.Sprintf(`Number(document.querySelector("[data-map]").dataset.%s) %s %v`, name, relation, than))
	}
	z, x, y := number("z"), number("x"), number("y")
	v.mouse(input.DispatchMouseEventTypeMouseWheel, ".ground", .5, .5, -300)
	is("a nearer map", "z", ">", z)
	v.drag(".ground", .4, .5, .6, .7)
	is("a map further west", "x", "<", x)
	is("and north", "y", "<", y)
	v.waitText("vehicle")
	x = number("x")
	v.do(chromedp.Focus(".ground"))
	v.keys(kb.ArrowRight)
	is("a map further east", "x", ">", x)
	v.press("Show the whole fleet")
	v.wait("the whole fleet", `!new URL(location.href).searchParams.has("z")`)

	// Zoom in to one vehicle.
	for range 12 {
		if js[bool](v, `!!document.querySelector(".map-list a[href*='vehicle=']")`) {
			break
		}
		before := number("z")
		v.click(".map-list a")
		is("a nearer map", "z", ">", before)
	}
	v.click(".map-list a[href*='vehicle=']")
	v.waitText("Last report", "Battery")
	v.press("Close")
	v.wait("no panel", `!document.querySelector(".panel")`)
	js[bool](v, `(history.back(), true)`)
	v.waitText("Last report")

	// Changes by the API appear without a reload.
	id := js[string](v, `new URL(location.href).searchParams.get("vehicle")`)
	f := p.Sandbox
	if err := f.DB.Write(t.Context(), func(tx *db.Tx) error {
		locked, err := f.LockVehicleTx(t.Context(), tx, o.ID, id)
		if err != nil {
			return err
		}
		var change fleet.VehicleChange
		change.BatteryPercent.Set, change.BatteryPercent.Value = true, 63
		_, err = f.UpdateVehicleTx(t.Context(), tx, o.ID, locked, change, fleet.Actor{Type: "system"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	v.waitText("63 %")

	// Parameters that choose another view do not hold the map there.
	v.open("/sandbox/fleet/map?place=berlin&was=another")
	x = number("x")
	v.drag(".ground", .4, .5, .6, .5)
	is("a map further west of the place", "x", "<", x)
}

// TestDrawZone draws a zone with the mouse, edits it with the keyboard, and saves it.
func TestDrawZone(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/sandbox/fleet/zones/new")
	const ground = ".draw .ground"
	corners := func(n string) {
		t.Helper()
		v.wait(n+" corners", `document.querySelectorAll(".corner").length === `+n+` && document.querySelector("#field-geometry").value.split("\n").length === `+n)
	}
	v.do(chromedp.ScrollIntoView(ground))
	for _, at := range [][2]float64{{.3, .3}, {.6, .3}, {.6, .7}, {.3, .7}} {
		v.mouse(input.DispatchMouseEventTypeMousePressed, ground, at[0], at[1], 0)
		v.mouse(input.DispatchMouseEventTypeMouseReleased, ground, at[0], at[1], 0)
	}
	corners("4")
	before := v.value("#field-geometry")
	v.drag(ground, .3, .3, .2, .2)
	v.wait("a corner that has moved", `document.querySelector("#field-geometry").value !== `+quote(before))
	corners("4")
	v.do(chromedp.Focus(`.corner[data-at="0.0.1"]`))
	v.keys(kb.Delete)
	corners("3")
	v.do(chromedp.Focus(`.between[data-at="0.0.0"]`))
	v.keys(kb.Enter)
	corners("4")
	v.mouse(input.DispatchMouseEventTypeMouseWheel, ground, .5, .5, -200)
	corners("4")
	v.fill("#field-name", "Drawn by hand")
	v.press("Create zone")
	v.waitText("Zone created.", "Drawn by hand", "Corners 4")
}

// clickAt presses and releases the mouse at a point of an element.
func (v *visitor) clickAt(selector string, x, y float64) {
	v.t.Helper()
	v.mouse(input.DispatchMouseEventTypeMousePressed, selector, x, y, 0)
	v.mouse(input.DispatchMouseEventTypeMouseReleased, selector, x, y, 0)
}

// TestFirstZone: on a fresh fleet, a city is found and a zone drawn there without typing a
// coordinate. The rules are explained, and the server answers whether a ride may end at a place.
func TestFirstZone(t *testing.T) {
	p := start(t, withTown(t))
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/fleet/zones")
	v.click("a[href='/fleet/zones/new']")
	v.waitText("rides may start and end")
	const ground = ".draw .ground"
	v.fill(".place-search input[name=place]", "berlin")
	v.keys(kb.Enter)
	v.wait("Berlin", `document.querySelector(".draw").dataset.z === "12" && document.querySelector(".place-search input[name=place]").value === "Berlin, DE"`)
	v.do(chromedp.ScrollIntoView(ground))
	for _, at := range [][2]float64{{.3, .3}, {.6, .3}, {.6, .7}, {.3, .7}} {
		v.clickAt(ground, at[0], at[1])
	}
	v.wait("4 corners", `document.querySelectorAll(".corner").length === 4`)
	v.do(chromedp.Focus("#field-type"))
	js[bool](v, `(document.querySelector("#field-type").value = "no_parking", document.querySelector("#field-type").dispatchEvent(new Event("change", {bubbles: true})))`)
	v.waitText("rides may start, but not end; riding through is allowed.")
	v.press("Check a place")
	v.clickAt(ground, .45, .5)
	v.waitText("May a ride end here? No", "By this zone.")
	v.clickAt(ground, .8, .8)
	v.waitText("May a ride end here? Yes", "No zone here.")
	v.press("Check a place")
	v.fill("#field-name", "Old town")
	v.press("Create zone")
	v.waitText("Zone created.", "Old town", "No parking", "Corners 4")
}

// TestEditShape: a hole, undo and redo, snapping to another zone, corners by keyboard, and a file.
func TestEditShape(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/sandbox/fleet/zones/new?z=15&lat=52.52&lng=13.405")
	const ground = ".draw .ground"
	corners := func(n int) {
		t.Helper()
		v.wait(fmt.Sprint(n, " corners"), fmt.Sprint(`document.querySelectorAll(".corner").length === `, n))
	}
	v.do(chromedp.ScrollIntoView(ground))
	// By keyboard: Enter adds a corner in the middle, arrow keys pan.
	v.do(chromedp.Focus(ground))
	for _, key := range []string{kb.ArrowRight, kb.ArrowDown, kb.ArrowLeft} {
		x := js[string](v, `document.querySelector(".draw").dataset.x + document.querySelector(".draw").dataset.y`)
		v.keys(kb.Enter)
		v.keys(key)
		v.wait("another view", `document.querySelector(".draw").dataset.x + document.querySelector(".draw").dataset.y !== `+quote(x))
		v.do(chromedp.Focus(ground))
	}
	corners(3)
	v.keys("z", chromedp.ModifierCtrl)
	corners(2)
	v.keys("z", chromedp.ModifierCtrl, chromedp.ModifierShift)
	corners(3)

	// A file replaces the shape, and the map moves there.
	file := filepath.Join(t.TempDir(), "area.geojson")
	shape := `{"type":"FeatureCollection","features":[{"type":"Feature","properties":{},"geometry":{"type":"Polygon","coordinates":[[[13,52],[13.1,52],[13.1,52.1],[13,52.1],[13,52]]]}}]}`
	if err := os.WriteFile(file, []byte(shape), 0o600); err != nil {
		t.Fatal(err)
	}
	v.do(chromedp.SetUploadFiles("[data-file]", []string{file}))
	corners(4)
	v.wait("the shape in view", `Number(document.querySelector(".draw").dataset.x) < 13.06 / 360 + .5 && document.querySelector(".corner").getBoundingClientRect().width > 0 && Math.abs(document.querySelector(".sketch").getBBox().width) > 100`)
	v.press("Add hole")
	for _, at := range [][2]float64{{.45, .45}, {.55, .45}, {.5, .6}} {
		v.clickAt(ground, at[0], at[1])
	}
	corners(7)
	v.wait("a polygon with a hole", `JSON.parse(document.querySelector("#field-geometry").value).coordinates.length === 2`)
	v.press("Undo")
	corners(6)
	v.press("Redo")
	corners(7)
	v.fill("#field-name", "With a hole")
	v.press("Create zone")
	v.waitText("Zone created.", "With a hole", "Corners 7")

	// A new zone beside it snaps to its corner.
	at := js[string](v, `new URL(document.querySelector('a[href*="/fleet/map?"]').href).search`)
	v.open("/sandbox/fleet/zones/new" + at)
	v.do(chromedp.ScrollIntoView(ground))
	place := js[[]float64](v, `(() => {
		const g = document.querySelector(".draw .ground"), r = g.getBoundingClientRect(), m = g.getScreenCTM();
		const [, x, y] = document.querySelector('.zones .zone[class~="parking"]').getAttribute("d").match(/M(-?[\d.]+) (-?[\d.]+)/).map(Number);
		return [(x * m.a + m.e + 5 - r.left) / r.width, (y * m.d + m.f + 4 - r.top) / r.height];
	})()`)
	v.clickAt(ground, place[0], place[1])
	corners(1)
	// To a meter.
	v.wait("a corner at the neighbour's", `document.querySelector("#field-geometry").value.split(", ").every((n) => [13, 13.1, 52, 52.1].some((c) => Math.abs(Number(n) - c) < 2e-4))`)
}
