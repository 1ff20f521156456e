package e2e

import (
	"context"
	"fmt"
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
	v.do(chromedp.Focus(`.corner[data-at="1"]`))
	v.keys(kb.Delete)
	corners("3")
	v.do(chromedp.Focus(`.between[data-at="0"]`))
	v.keys(kb.Enter)
	corners("4")
	v.mouse(input.DispatchMouseEventTypeMouseWheel, ground, .5, .5, -200)
	corners("4")
	v.fill("#field-name", "Drawn by hand")
	v.press("Create zone")
	v.waitText("Zone created.", "Drawn by hand", "Corners 4")
}
