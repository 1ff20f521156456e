package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
)

// setBattery reports the battery of a vehicle.
func setBattery(t *testing.T, f app.Fleet, organizationID, vehicleID string, percent int64) {
	t.Helper()
	if err := f.DB.Write(t.Context(), func(tx *db.Tx) error {
		locked, err := f.LockVehicleTx(t.Context(), tx, organizationID, vehicleID)
		if err != nil {
			return err
		}
		var change fleet.VehicleChange
		change.BatteryPercent.Set, change.BatteryPercent.Value = true, percent
		_, err = f.UpdateVehicleTx(t.Context(), tx, organizationID, locked, change, fleet.Actor{Type: "system"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// seededVehicle opens the sandbox's map, which seeds the sandbox, and returns the id of a vehicle.
func seededVehicle(t *testing.T, p *program, v *visitor, organizationID string) string {
	t.Helper()
	v.open("/sandbox/fleet/map")
	f := p.Sandbox
	docs, _, err := f.ListVehicles(t.Context(), f.DB, organizationID, fleet.VehicleQuery{Limit: 1})
	if err != nil || len(docs) != 1 {
		t.Fatal(len(docs), err)
	}
	return docs[0].ID
}

// openVehicleOnMap opens the sandbox's map with a vehicle, and returns the vehicle's id.
func openVehicleOnMap(t *testing.T, p *program, v *visitor, organizationID string) string {
	t.Helper()
	id := seededVehicle(t, p, v, organizationID)
	v.open("/sandbox/fleet/map?z=15&lat=52.52&lng=13.405&vehicle=" + id)
	v.waitText("Battery")
	v.waitLive()
	return id
}

// TestUpdateDuringDrag: a live update leaves the map where a drag has moved it, with its tiles.
func TestUpdateDuringDrag(t *testing.T) {
	p := start(t, withTown(t))
	o, u := p.organization("Wheels")
	v := p.as(t, u)
	id := openVehicleOnMap(t, p, v, o.ID)
	shift := func() float64 {
		return js[float64](v, `Number(document.querySelector(".tiles").transform.baseVal[0]?.matrix.e ?? 0)`)
	}
	tiles := func() int { return js[int](v, `document.querySelectorAll(".tiles use").length`) }
	before := tiles()
	v.mouse("mousePressed", ".ground", .2, .5, 0)
	v.mouse("mouseMoved", ".ground", .5, .5, 0)
	v.mouse("mouseMoved", ".ground", .9, .5, 0)
	moved := shift()
	if moved < 100 || tiles() <= before {
		t.Fatalf("the map has moved by %v and has %d tiles, before %d", moved, tiles(), before)
	}
	setBattery(t, p.Sandbox, o.ID, id, 43)
	v.waitText("43 %")
	if now := shift(); now != moved || tiles() <= before {
		t.Errorf("after an update the map is at %v, not at %v, with %d tiles, before %d", now, moved, tiles(), before)
	}
	v.mouse("mouseReleased", ".ground", .9, .5, 0)
	v.wait("a map further west", `Number(new URL(location.href).searchParams.get("lng")) < 13.4`)
}

// TestDragOfWholeFleet: a map that shows all vehicles keeps its view from when a drag begins, so that updates
// do not fit it to the vehicles meanwhile.
func TestDragOfWholeFleet(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/sandbox/fleet/map")
	v.find(".ground")
	v.mouse("mousePressed", ".ground", .3, .5, 0)
	v.mouse("mouseMoved", ".ground", .6, .5, 0)
	if !js[bool](v, `new URL(location.href).searchParams.has("z")`) {
		t.Error("the address has no view during the drag")
	}
	v.mouse("mouseReleased", ".ground", .6, .5, 0)
	v.open("/sandbox/fleet/map?near=52.52,13.405")
	v.mouse("mousePressed", ".ground", .3, .5, 0)
	v.mouse("mouseMoved", ".ground", .6, .5, 0)
	if !js[bool](v, `new URL(location.href).searchParams.has("z") && new URL(location.href).searchParams.has("near")`) {
		t.Error("near a place, the address has no view during the drag")
	}
	v.mouse("mouseReleased", ".ground", .6, .5, 0)
}

// TestLateView: a view that was requested before a live update does not show the state before it.
func TestLateView(t *testing.T) {
	p := start(t)
	o, u := p.organization("Wheels")
	v := p.as(t, u)
	id := openVehicleOnMap(t, p, v, o.ID)
	v.holdAnswers("z=14")
	v.click(`a[aria-label="Zoom out"]`)
	v.waitHeld(1)
	setBattery(t, p.Sandbox, o.ID, id, 43)
	v.waitText("43 %")
	js[bool](v, `(window.holding = false, window.held[0](), true)`)
	v.wait("the wider view with the present battery", `document.querySelector("[data-map]").dataset.z === "14" && document.body.innerText.includes("43 %")`)
}

// TestNearestOnMovedMap: a click on a map that has just been zoomed keeps the zoom.
func TestNearestOnMovedMap(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/sandbox/fleet/map?z=13&lat=52.6&lng=13.6")
	v.find(".ground")
	v.holdAnswers("z=14")
	js[bool](v, `(document.querySelector(".ground").dispatchEvent(new WheelEvent("wheel", {deltaY: -350, bubbles: true, cancelable: true})), true)`)
	v.waitHeld(1)
	v.clickAt(".ground", .1, .1)
	v.waitHeld(2)
	v.release(1)
	v.wait("the nearest vehicles", `new URL(location.href).searchParams.has("near")`)
	if z := js[float64](v, `Number(new URL(location.href).searchParams.get("z"))`); z < 13.9 {
		t.Errorf("the zoom is %v", z)
	}
}

// TestLostUpdate: the topics of an update that the server does not answer are asked for again, and
// updates wait for each other.
func TestLostUpdate(t *testing.T) {
	p := start(t)
	o, u := p.organization("Wheels")
	v := p.as(t, u)
	id := openVehicleOnMap(t, p, v, o.ID)
	js[bool](v, `(() => {
		const fetchNow = window.fetch, timeout = window.setTimeout;
		window.waits = [];
		window.setTimeout = (f, ms, ...a) => (window.waits.push(ms), timeout(f, Math.min(ms, 50), ...a));
		AbortSignal.timeout = () => AbortSignal.abort(); // at once
		const silent = (_, {signal}) => signal?.aborted ? Promise.reject(signal.reason) : new Promise(() => {});
		const bad = [silent, () => new Response("", {status: 429, headers: {"Retry-After": "3600"}}), () => Promise.reject(new TypeError("offline")), () => new Response("", {status: 503})];
		window.fetch = async (...a) => a[0] === location.href ? (bad.shift() ?? (() => fetchNow(a[0], {...a[1], signal: undefined})))(...a) : fetchNow(...a);
		window.left = () => bad.length;
		return true;
	})()`)
	setBattery(t, p.Sandbox, o.ID, id, 43)
	v.waitText("43 %")
	if n := js[int](v, `window.left()`); n != 0 {
		t.Errorf("%d failures are left", n)
	}
	if !js[bool](v, `(([first, second, third]) => first <= 10000 && second >= 60000 && third >= 20000 && third <= 40000)(window.waits.filter((ms) => ms >= 5000))`) {
		t.Errorf("the pauses were %v", js[[]float64](v, `window.waits`))
	}
	most := js[int](v, `(async () => {
		const fetchNow = window.fetch;
		let now = 0, most = 0;
		window.fetch = async (...a) => {
			if (a[0] !== location.href) return fetchNow(...a);
			most = Math.max(most, ++now);
			const answer = await fetchNow(...a);
			now--;
			return answer;
		};
		const { renew } = await import(document.querySelector('script[src$="/app.js"]').src.replace("app.js", "live.js"));
		const map = document.getElementById("map");
		await Promise.all([renew([map]), renew([map]), renew([map])]);
		return most;
	})()`)
	if most != 1 {
		t.Errorf("%d updates at once", most)
	}
}

// TestZoomOut: the wheel does not zoom beyond the map's limits.
func TestZoomOut(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	for path, frame := range map[string]string{"/sandbox/fleet/map": "[data-map]", "/sandbox/fleet/zones/new": ".draw"} {
		v.open(path + "?z=4&lat=40&lng=13.405")
		v.find(".ground")
		wheel := func(delta string) {
			js[bool](v, `(() => {
				const svg = document.querySelector(".ground"), r = svg.getBoundingClientRect();
				for (let i = 0; i < 8; i++) svg.dispatchEvent(new WheelEvent("wheel", {deltaY: `+delta+`, clientX: r.left + r.width / 4, clientY: r.top + r.height / 4, bubbles: true, cancelable: true}));
				return true;
			})()`)
		}
		wheel("500")
		if n := js[int](v, `document.querySelectorAll(".tiles > *").length`); n > 100 {
			t.Errorf("%s: %d tiles", path, n)
		}
		v.wait("the whole earth", `document.querySelector("`+frame+`").dataset.z === "2"`)
		v.wait("a view at rest", `(({a, e, f}) => Math.abs(a - 1) < .01 && Math.hypot(e, f) < 1)(document.querySelector("[data-pan]").transform.baseVal[0].matrix)`)
		x := js[string](v, `document.querySelector("`+frame+`").dataset.x`)
		wheel("500")
		if got := js[float64](v, `Math.hypot(document.querySelector("[data-pan]").transform.baseVal[0].matrix.e, document.querySelector("[data-pan]").transform.baseVal[0].matrix.f)`); got > 5 {
			t.Errorf("%s: at the limit, the wheel moves the map by %v", path, got)
		}
		wheel("-1000")
		v.wait("the nearest view", `document.querySelector("`+frame+`").dataset.z === "20" && document.querySelector("`+frame+`").dataset.x !== `+quote(x))
	}
}

// TestMovementGoesOn: a press without a drag does not stop a movement from being rendered, and a button
// that was released elsewhere drags no more.
func TestMovementGoesOn(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/sandbox/fleet/zones/new?z=13&lat=52.52&lng=13.405")
	v.find(".ground")
	at := func() string { return js[string](v, `document.querySelector(".draw").dataset.z`) }
	events := func(script string) {
		js[bool](v, `(() => {
			const svg = document.querySelector(".ground"), r = svg.getBoundingClientRect();
			const send = (type, x, more) => svg.dispatchEvent(new (type === "wheel" ? WheelEvent : PointerEvent)(type, {bubbles: true, cancelable: true, clientX: r.left + x, clientY: r.top + 50, pointerId: 1, ...more}));
			`+script+`
			return true;
		})()`)
	}
	z := at()
	events(`send("wheel", 50, {deltaY: -200}); send("pointerdown", 60, {buttons: 1}); send("pointerup", 60)`)
	v.wait("a nearer view", `document.querySelector(".draw").dataset.z !== `+quote(z))
	v.drag(".ground", .4, .5, .5, .5)
	v.wait("a view at rest", `Math.abs(document.querySelector("[data-pan]").transform.baseVal[0].matrix.e) < 1`)
	events(`send("pointerdown", 60, {buttons: 1}); send("pointermove", 160, {buttons: 0})`)
	if e := js[float64](v, `document.querySelector("[data-pan]").transform.baseVal[0].matrix.e`); e > 1 {
		t.Errorf("without a button the map moves by %v", e)
	}
}

// TestSupersededRequest: a request of the map that fails after another one has begun opens no page.
func TestSupersededRequest(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/sandbox/fleet/map?z=13&lat=52.52&lng=13.405")
	v.find(".ground")
	js[bool](v, `(() => {
		const now = window.fetch;
		let first = true;
		window.same = true;
		window.fetch = (...a) => {
			if (!first || !a[0].includes("z=14")) return now(...a);
			first = false;
			return new Promise((_, fail) => (window.fail = fail));
		};
		return true;
	})()`)
	v.click(`a[aria-label="Zoom in"]`)
	v.click(`a[aria-label="East"]`)
	v.wait("the view further east", `Number(new URL(location.href).searchParams.get("lng")) > 13.41`)
	js[bool](v, `(window.fail(new TypeError("offline")), true)`)
	v.click(`a[aria-label="North"]`)
	v.wait("the view further north", `Number(new URL(location.href).searchParams.get("lat")) > 52.525`)
	if !js[bool](v, `window.same === true`) {
		t.Error("the page was loaded again")
	}
}

// TestDragEnds: nothing of the drag of a corner is left to act later.
func TestDragEnds(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/sandbox/fleet/zones/new?z=15&lat=52.52&lng=13.405")
	const ground = ".draw .ground"
	v.drawTriangle(ground)
	v.wait("3 corners", `document.querySelectorAll(".corner").length === 3`)
	v.drag(ground, .3, .3, .2, .2)
	v.do(chromedp.Focus("#field-name"))
	if js[string](v, `(dispatchEvent(new PointerEvent("pointercancel", {pointerId: 7})), document.activeElement.id)`) != "field-name" {
		t.Error("the end of another touch takes the focus")
	}
	// Another finger does not move or drop the corner.
	v.mouse("mousePressed", ground, .6, .3, 0)
	shape := v.value("#field-geometry")
	js[bool](v, `(dispatchEvent(new PointerEvent("pointermove", {pointerId: 7})), dispatchEvent(new PointerEvent("pointerup", {pointerId: 7})), true)`)
	v.mouse("mouseMoved", ground, .65, .25, 0)
	v.mouse("mouseReleased", ground, .65, .25, 0)
	v.wait("a corner that has moved", `document.querySelector("#field-geometry").value !== `+quote(shape))

	// A held key is one change.
	v.do(chromedp.Focus(`.corner[data-at="0.0.0"]`))
	shape = v.value("#field-geometry")
	js[bool](v, `([false, true, true].forEach((repeat) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowLeft", repeat, bubbles: true, cancelable: true}))), true)`)
	v.keys("z", chromedp.ModifierCtrl)
	if now := v.value("#field-geometry"); now != shape {
		t.Errorf("a held key undone leaves %s", now)
	}

	// Two holes that are undone: the next corner is one of the outline.
	v.press("Add hole")
	for _, at := range [][2]float64{{.45, .35}, {.5, .35}, {.5, .4}} {
		v.clickAt(ground, at[0], at[1])
	}
	v.keys(kb.Escape)
	v.press("Add hole")
	v.clickAt(ground, .55, .4)
	v.wait("7 corners", `document.querySelectorAll(".corner").length === 7`)
	for range 4 {
		v.press("Undo")
	}
	v.clickAt(ground, .3, .8)
	v.press("Undo")
	v.press("Redo")
	v.wait("4 corners in one ring", `document.querySelectorAll(".corner").length === 4 && document.querySelector("#field-geometry").value.split("\n").length === 4`)
}

// TestZoneAtAntimeridian: a zone that ends at 180 degrees stays there when another corner is dragged, in
// a view of either side.
func TestZoneAtAntimeridian(t *testing.T) {
	p := start(t)
	o, u := p.organization("Wheels")
	v := p.as(t, u)
	f := p.Sandbox
	vehicle, err := f.Vehicle(t.Context(), f.DB, o.ID, seededVehicle(t, p, v, o.ID))
	if err != nil {
		t.Fatal(err)
	}
	var area geo.Area
	if err := area.UnmarshalJSON([]byte(`{"type":"Polygon","coordinates":[[[170,0],[180,0],[180,5],[170,5],[170,0]]]}`)); err != nil {
		t.Fatal(err)
	}
	var zone fleet.Zone
	if err := f.DB.Write(t.Context(), func(tx *db.Tx) (err error) {
		zone, err = f.CreateZoneTx(t.Context(), tx, o.ID, fleet.NewZone{SubaccountID: vehicle.SubaccountID, Name: "Edge", Type: fleet.Parking, Geometry: area})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, lng := range []string{"175", "-178"} {
		v.open("/sandbox/fleet/zones/" + zone.ID + "/edit?z=5&lat=3&lng=" + lng)
		v.do(chromedp.ScrollIntoView(".draw .ground"))
		v.find(`.corner[data-at="0.0.0"]`)
		before := v.value("#field-geometry")
		v.drag(`.corner[data-at="0.0.0"]`, .5, .5, 2.5, .5)
		v.wait("a corner that has moved", `document.querySelector("#field-geometry").value !== `+quote(before))
		if now := v.value("#field-geometry"); strings.Count(now, " 180.000000") != 2 || strings.Count(now, " 17") != 2 {
			t.Errorf("at %s the shape is now %s", lng, now)
		}
		v.press("Save")
		v.waitText("Zone saved.")
	}
	// A corner beyond 180 degrees is on the edge, and one more is in the same turn.
	v.open("/sandbox/fleet/zones/" + zone.ID + "/edit?z=5&lat=3&lng=-178")
	v.do(chromedp.ScrollIntoView(".draw .ground"))
	v.find(`.corner[data-at="0.0.0"]`)
	v.drag(`.corner[data-at="0.0.1"]`, .5, .5, 3.5, .5)
	v.clickAt(".draw .ground", .3, .3)
	v.wait("5 corners", `document.querySelectorAll(".corner").length === 5`)
	if now := v.value("#field-geometry"); strings.Contains(now, "-1") || strings.Count(now, " 180.000000") != 2 {
		t.Errorf("the shape is now %s", now)
	}
	v.press("Save")
	v.waitText("Zone saved.")
}

// TestFailedCheck: an answer about another place does not stay when a check fails, and a view that does
// not load is reported.
func TestFailedCheck(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/sandbox/fleet/zones/new?z=15&lat=52.52&lng=13.405")
	v.do(chromedp.ScrollIntoView(".draw .ground"))
	v.press("Check a place")
	v.clickAt(".draw .ground", .45, .5)
	v.waitText("May a ride end here?")
	js[bool](v, `(window.now = window.fetch, window.fetch = () => Promise.reject(new TypeError("offline")), true)`)
	v.clickAt(".draw .ground", .8, .8)
	v.waitText("could not be checked. Try again.")
	if js[bool](v, `document.querySelector("#zone-words").innerText.includes("May a ride end here?")`) {
		t.Error("the answer about the place before is still there")
	}
	v.fill(".place-search input[name=place]", "berlin")
	v.keys(kb.Enter)
	v.waitText("The map could not be loaded. Try again.")
	js[bool](v, `(window.fetch = window.now, true)`)
	v.clickAt(".draw .ground", .8, .7)
	v.waitText("May a ride end here?")
	if js[bool](v, `document.querySelector("#zone-words").innerText.includes("could not")`) {
		t.Error("the failure is still there")
	}
}

// TestShortcutsOnce: "?" opens one list, however often it is pressed before the list is there.
func TestShortcutsOnce(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/sandbox/fleet/map")
	js[bool](v, `([1, 2, 3].forEach(() => document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "?", bubbles: true, cancelable: true}))), true)`)
	v.waitText("Keyboard shortcuts")
	v.find("dialog[open]")
	if n := js[int](v, `document.querySelectorAll("dialog").length`); n != 1 {
		t.Errorf("%d dialogs", n)
	}
}

// TestFirstZoneOfNewBrowser: the form of a zone that was rendered before the server knew the browser's time zone
// can draw after it was rendered again.
func TestFirstZoneOfNewBrowser(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/sandbox/fleet/zones/new?z=15&lat=52.52&lng=13.405")
	v.find(".draw .ground")
	js[bool](v, `(async () => {
		const { renew } = await import(document.querySelector('script[src$="/app.js"]').src.replace("app.js", "live.js"));
		await renew([document.getElementById("main")]);
		return true;
	})()`)
	v.drawTriangle(".draw .ground")
	v.wait("3 corners", `document.querySelectorAll(".corner").length === 3`)
	if js[bool](v, `document.querySelector("[data-tools]").hidden || document.querySelector("form[data-draw] button").name === "check"`) {
		t.Error("the form is as without a script")
	}
}

// TestRefusedDialog: a refusal without a form, and an answer that is no page, have words in the dialog;
// two clicks open one dialog.
func TestRefusedDialog(t *testing.T) {
	p := start(t)
	o, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/sandbox/fleet/map") // seeds the sandbox
	f := p.Sandbox
	vehicle := func(state fleet.VehicleState) string {
		docs, _, err := f.ListVehicles(t.Context(), f.DB, o.ID, fleet.VehicleQuery{State: []fleet.VehicleState{state}, Limit: 1})
		if err != nil || len(docs) != 1 {
			t.Fatal(state, len(docs), err)
		}
		return docs[0].ID
	}
	riding, err := f.Vehicle(t.Context(), f.DB, o.ID, vehicle(fleet.OnTrip))
	if err != nil {
		t.Fatal(err)
	}
	v.open("/sandbox/fleet/vehicles/" + vehicle(fleet.Available))
	link := `a[href$="/delete"]`
	v.find(link)
	v.holdAnswers("/delete")
	js[bool](v, `(document.querySelector('`+link+`').click(), document.querySelector('`+link+`').click(), true)`)
	v.waitHeld(2)
	v.release(1)
	v.release(0)
	js[bool](v, `(window.holding = false, true)`)
	v.find("dialog input:not([type=hidden])")
	if n := js[int](v, `document.querySelectorAll("dialog").length`); n != 1 {
		t.Errorf("two clicks open %d dialogs", n)
	}
	js[bool](v, `(window.now = window.fetch, window.fetch = async () => new Response("Bad gateway", {status: 502}), true)`)
	v.fill("dialog input:not([type=hidden])", riding.Code)
	v.click("dialog form button:not([type=button])")
	v.waitText("The server did not finish. Look whether the change was saved before you try again.")
	js[bool](v, `(window.fetch = () => Promise.reject(new TypeError("offline")), true)`)
	v.click("dialog form button:not([type=button])")
	v.waitText("The server is unreachable; the change was probably not saved. Try again.")
	// The vehicle has a ride by now.
	js[bool](v, fmt.Sprintf(`(window.fetch = window.now, document.querySelector("dialog form").action = "/sandbox/fleet/vehicles/%s/delete", true)`, riding.ID))
	v.allow("/delete")
	v.click("dialog form button:not([type=button])")
	v.wait("the refusal", `document.querySelector("dialog[open]")?.innerText.includes("Nothing was changed.")`)
}
