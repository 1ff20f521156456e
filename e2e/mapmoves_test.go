package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// holdAnswers makes the page's next answers wait. release lets one of them, counted from 0, arrive;
// waitHeld waits until there are n.
func (v *visitor) holdAnswers(part string) {
	v.t.Helper()
	js[bool](v, `(() => {
		const now = window.fetch;
		window.held = [];
		window.holding = true;
		const part = `+quote(part)+`;
		window.fetch = async (...a) => {
			const answer = await now(...a);
			if (window.holding && String(a[0]).includes(part)) await new Promise((go) => window.held.push(go));
			return answer;
		};
		return true;
	})()`)
}

func (v *visitor) waitHeld(n int) {
	v.t.Helper()
	v.wait(fmt.Sprint(n, " answers"), fmt.Sprint(`window.held.length === `, n))
}

func (v *visitor) release(i int) {
	v.t.Helper()
	js[bool](v, fmt.Sprintf(`(window.held[%d](), true)`, i))
}

// TestLateLiveAnswer: an update that was requested before the map moved does not move it back, and
// is not lost.
func TestLateLiveAnswer(t *testing.T) {
	p := start(t)
	o, u := p.organization("Wheels")
	v := p.as(t, u)
	id := openVehicleOnMap(t, p, v, o.ID)
	v.holdAnswers("")
	setBattery(t, p.Sandbox, o.ID, id, 43)
	v.waitHeld(1)
	js[bool](v, `(window.holding = false, true)`)
	x := js[string](v, `document.querySelector("[data-map]").dataset.x`)
	v.do(chromedp.Focus(".ground"))
	v.keys(kb.ArrowRight)
	v.wait("a map further east", `document.querySelector("[data-map]").dataset.x > `+quote(x))
	x = js[string](v, `document.querySelector("[data-map]").dataset.x`)
	js[bool](v, `(document.querySelector(".panel").remove(), true)`) // the update renders it again
	v.release(0)
	v.waitText("43 %")
	if now := js[string](v, `document.querySelector("[data-map]").dataset.x`); now != x {
		t.Errorf("the map is at %s, not at %s", now, x)
	}
}

// TestDragDuringAnswer: a drag that goes on while the view of an earlier one arrives is not lost, on
// the map and in the form of a zone.
func TestDragDuringAnswer(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	for path, frame := range map[string]string{"/sandbox/fleet/map": "[data-map]", "/sandbox/fleet/zones/new": ".draw"} {
		const ground = ".ground"
		v.open(path + "?z=13&lat=52.52&lng=13.405")
		v.do(chromedp.ScrollIntoView(ground))
		v.find(ground)
		v.holdAnswers("")
		at := func() float64 { return js[float64](v, `Number(document.querySelector("`+frame+`").dataset.x)`) }
		moved := func() {
			t.Helper()
			v.wait("another view", `document.querySelector("`+frame+`").dataset.x !== window.before`)
		}
		before := func() {
			js[bool](v, `(window.before = document.querySelector("`+frame+`").dataset.x, true)`)
		}
		first := at()
		before()
		v.drag(ground, .4, .9, .6, .9)
		v.waitHeld(1)
		v.mouse(input.DispatchMouseEventTypeMousePressed, ground, .4, .9, 0)
		v.mouse(input.DispatchMouseEventTypeMouseMoved, ground, .5, .9, 0)
		v.release(0)
		moved()
		second := at()
		if shift := js[float64](v, `document.querySelector("`+frame+` [data-pan]").getCTM().e - document.querySelector("`+frame+` .bar").parentNode.getCTM().e`); shift < 50 {
			t.Errorf("%s: the map under the pointer is %v units further, want a tenth of the map", path, shift)
		}
		before()
		v.mouse(input.DispatchMouseEventTypeMouseMoved, ground, .6, .9, 0)
		v.mouse(input.DispatchMouseEventTypeMouseReleased, ground, .6, .9, 0)
		v.waitHeld(2)
		v.release(1)
		moved()
		if one, two := first-second, second-at(); one <= 0 || two < .9*one || two > 1.1*one {
			t.Errorf("%s: a drag moves the map by %v, and the same during its answer by %v", path, one, two)
		}
	}
}

// TestDragFromZone: a drag that begins on a zone leaves no frame around it, and the names of the
// map do not shine through the numbers of clusters.
func TestDragFromZone(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/sandbox/fleet/map?z=9&lat=52.51&lng=13.36")
	v.find(".cluster")
	if got := js[string](v, `getComputedStyle(document.querySelector(".cluster circle")).fillOpacity`); got != "1" {
		t.Errorf("clusters have opacity %s", got)
	}
	v.open("/sandbox/fleet/map?z=11.5&lat=52.51&lng=13.36")
	v.find(".ground")
	x := js[string](v, `document.querySelector("[data-map]").dataset.x`)
	v.drag(".ground", .5, .62, .35, .62)
	v.wait("another view", `document.querySelector("[data-map]").dataset.x !== `+quote(x))
	if got := js[string](v, `document.activeElement.tagName + " " + getComputedStyle(document.activeElement).outlineStyle`); got != "a none" {
		t.Errorf("after a drag from a zone, the focused element and its outline are %q", got)
	}
	v.do(chromedp.Focus(".ground"))
	v.keys(kb.ArrowRight)
	if got := js[string](v, `getComputedStyle(document.activeElement).outlineStyle`); got == "none" {
		t.Error("the map has no outline with the focus of a keyboard")
	}
}

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

// drawTriangle clicks three corners of a new shape.
func (v *visitor) drawTriangle(ground string) {
	v.t.Helper()
	v.do(chromedp.ScrollIntoView(ground))
	for _, at := range [][2]float64{{.3, .3}, {.6, .3}, {.6, .6}} {
		v.clickAt(ground, at[0], at[1])
	}
}

// TestBackToShape: back to a zone that was not saved, the map has the shape of its field, in view.
func TestBackToShape(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/sandbox/fleet/zones/new?z=15&lat=48.14&lng=11.58")
	const ground = ".draw .ground"
	v.drawTriangle(ground)
	shown := `document.querySelectorAll(".corner").length === 3 && document.querySelector(".sketch").getBBox().width > 100`
	v.wait("3 corners", shown)
	shape := v.value("#field-geometry")
	for _, tt := range []struct{ name, where string }{
		{"the same view", "/sandbox/fleet/zones/new?z=15&lat=48.14&lng=11.58"},
		{"a view elsewhere", "/sandbox/fleet/zones/new"},
		{"a view that was moved", "/sandbox/fleet/zones/new?z=15&lat=48.14&lng=11.6"},
	} {
		v.open(tt.where)
		view := `(({z, x}) => z + " " + x)(document.querySelector(".draw").dataset)`
		opened := js[string](v, view)
		if strings.Contains(tt.name, "moved") {
			v.do(chromedp.ScrollIntoView(ground))
			v.drag(ground, .3, .5, .6, .5)
			v.wait("a view further west", view+" !== "+quote(opened))
		}
		v.fill("#field-geometry", shape)
		v.waitLive() // the page with the stream does not go to the back/forward cache
		v.click(`a[href="/sandbox/fleet/riders"]`)
		v.at("/sandbox/fleet/riders")
		js[bool](v, `(history.back(), true)`)
		v.at("/sandbox/fleet/zones/new*")
		v.wait("the shape again on "+tt.name, `document.querySelector("#field-geometry").value === `+quote(shape)+` && `+shown)
		v.wait("a view that fits the shape", view+" !== "+quote(opened))
		v.do(chromedp.ScrollIntoView(ground))
		js[bool](v, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`) // the browser restores its scroll position
		v.wait("the shape in view", `(() => {
			const s = document.querySelector(".sketch").getBoundingClientRect(), g = document.querySelector(".draw .ground").getBoundingClientRect();
			return s.left > g.left && s.right < g.right && s.top > g.top && s.bottom < g.bottom;
		})()`)
		v.clickAt(ground, .1, .1)
		v.wait("4 corners", `document.querySelector("#field-geometry").value.split("\n").length === 4`)
	}
}

// TestOpenFiles: a file without a shape has a message and changes nothing; other geometries beside a
// shape are skipped and counted.
func TestOpenFiles(t *testing.T) {
	p := start(t)
	_, u := p.organization("Wheels")
	v := p.as(t, u)
	v.open("/sandbox/fleet/zones/new?z=15&lat=52.52&lng=13.405")
	v.find(".draw .ground")
	dir := t.TempDir()
	number := 0
	opens := func(content, words string) {
		t.Helper()
		number++
		file := filepath.Join(dir, fmt.Sprint(number, ".geojson"))
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		js[bool](v, `(document.querySelectorAll(".toast").forEach((e) => e.remove()), true)`)
		v.do(chromedp.SetUploadFiles("[data-file]", []string{file}))
		if words != "" {
			v.waitText(words)
		}
	}
	const first, second = `[[13,52],[13.1,52],[13.1,52.1],[13,52.1]]`, `[[13.2,52],[13.3,52],[13.3,52.1],[13.2,52]]`
	polygon := func(rings string) string { return `{"type":"Polygon","coordinates":[` + rings + `]}` }
	feature := func(geometry string) string {
		return `{"type":"Feature","properties":{},"geometry":` + geometry + `}`
	}
	opens(polygon(second), "")
	v.wait("a triangle", `document.querySelectorAll(".corner").length === 3`)
	before := v.value("#field-geometry")
	for content, words := range map[string]string{
		``:                                       "The file is not GeoJSON.",
		`{"type":"Polygon"`:                      "The file is not GeoJSON.",
		`<kml><Placemark/></kml>`:                "The file is not GeoJSON.",
		`null`:                                   "The file has no polygon",
		`{"type":"Point","coordinates":[13,52]}`: "The file has no polygon",
		`{"type":"LineString","coordinates":[[13,52],[13.1,52]]}`: "The file has no polygon",
		feature(`null`): "The file has no polygon",
		`{"type":"FeatureCollection","features":[]}`:                                     "The file has no polygon",
		`{"type":"Polygon","coordinates":[]}`:                                            "The file has no polygon",
		polygon(`[[13,52],[13.1,52],[13,52]]`):                                           "The file has no polygon",
		polygon(`[[392000,5820000],[393000,5820000],[393000,5821000],[392000,5820000]]`): "The file has no polygon in degrees",
		polygon(`[["a","b"],[13,52],[13.1,52],[13,52.1]]`):                               "The file has no polygon",
	} {
		opens(content, words)
		v.waitText("The shape is as before.")
		if now := v.value("#field-geometry"); now != before || js[int](v, `document.querySelectorAll(".corner").length`) != 3 {
			t.Errorf("%s: the shape is now %s", content, now)
		}
	}
	opens(`{"type":"FeatureCollection","features":[`+feature(polygon(first))+`,`+feature(`{"type":"Point","coordinates":[13,52]}`)+`]}`, "Skipped: 1 geometry of the file that is no polygon.")
	v.wait("an open ring, closed", `document.querySelectorAll(".corner").length === 4`)
	opens(`{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[13,52]},{"type":"MultiPolygon","coordinates":[[`+first+`],[`+second+`]]},null]}`, "Skipped: 2 geometries of the file that are no polygons.")
	v.wait("both polygons", `document.querySelectorAll(".corner").length === 7`)
	v.fill("#field-name", "From a file")
	v.press("Create zone")
	v.waitText("Zone created.", "Corners 7")
}
