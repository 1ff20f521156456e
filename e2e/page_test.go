package e2e

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

var screenshots = flag.String("screenshots", "", "write pictures of the pages into this `folder` instead of checking how they are laid out")

//go:embed testdata/layout.js
var layoutScript string

// checkLayout fails for layout errors of the present page: see testdata/layout.js.
func (v *visitor) checkLayout() {
	v.t.Helper()
	for _, w := range v.layoutFaults() {
		v.t.Errorf("%s: %s", js[string](v, `location.pathname + " at " + innerWidth + " px"`), w)
	}
}

func (v *visitor) layoutFaults() []string {
	v.t.Helper()
	return js[[]string](v, layoutScript)
}

// axe is the source of axe-core, which is not part of this repository; empty if not
// configured.
var axe = sync.OnceValues(func() (string, error) {
	modules := os.Getenv("KICKSTAND_TEST_NODE_MODULES")
	if modules == "" {
		return "", nil
	}
	text, err := os.ReadFile(filepath.Join(modules, "axe-core", "axe.min.js"))
	return string(text), err
})

// axeRules are the rules of axe: WCAG 2.2 at level AA, and best practices.
const axeRules = `["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]`

// checkAccess fails for serious accessibility errors found by axe-core. Without axe-core
// it finds none.
func (v *visitor) checkAccess() {
	v.t.Helper()
	for _, w := range v.accessFaults() {
		v.t.Errorf("%s: %s", js[string](v, `location.pathname + " at " + innerWidth + " px"`), w)
	}
}

func (v *visitor) accessFaults() []string {
	v.t.Helper()
	source, err := axe()
	if err != nil {
		v.t.Fatal(err)
	}
	if source == "" {
		return nil // TestChecksCatch reports it
	}
	if js[bool](v, `typeof axe === "undefined"`) {
		// Evaluated as by a debugger: the content security policy applies to the page's
		// own scripts only.
		v.do(chromedp.Evaluate[chromedp.Void](source))
	}
	// From the top of the list: a row that is scrolled behind its header would count as too small.
	return js[[]string](v, `document.querySelector(".list")?.scrollTo(0, 0), axe.run(document, {runOnly: {type: "tag", values: `+axeRules+`}, resultTypes: ["violations"]}).then(found =>
		found.violations.filter(f => f.impact === "serious" || f.impact === "critical").flatMap(f => f.nodes.slice(0, 5).map(n =>
			f.impact + ": " + f.id + ": " + n.target.join(" ") + ": " + n.html.slice(0, 200) + "\n\t" + n.failureSummary.replaceAll("\n", "\n\t"))))`)
}

// Size limits of a page, in bytes before compression.
const (
	maxPage   = 100 << 10 // HTML, CSS and JavaScript together
	maxStyle  = 40 << 10
	maxScript = 30 << 10
	maxMap    = 60 << 10 // JavaScript of a page with a map
)

// checkWeight loads a page with an empty cache and again: the size is within the limits,
// and cached files are not requested again.
func (v *visitor) checkWeight(path string) {
	v.t.Helper()
	v.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, network.ClearBrowserCache, cdp.Empty{})
		return err
	}))
	cold := v.load(path)
	sums := map[network.ResourceType]int64{}
	var all int64
	for _, r := range cold {
		switch r.kind {
		case network.ResourceTypeDocument, network.ResourceTypeStylesheet, network.ResourceTypeScript:
			sums[r.kind] += r.bytes
			all += r.bytes
		}
	}
	maxScript := int64(maxScript)
	if js[bool](v, `document.querySelector("[data-map], [data-draw]") !== null`) {
		maxScript = maxMap
	}
	for _, c := range []struct {
		what     string
		got, max int64
	}{
		{"HTML, CSS and JavaScript", all, maxPage},
		{"CSS", sums[network.ResourceTypeStylesheet], maxStyle},
		{"JavaScript", sums[network.ResourceTypeScript], maxScript},
	} {
		if c.got > c.max {
			v.t.Errorf("%s: %s weigh %d bytes, more than %d: %v", path, c.what, c.got, c.max, cold)
		}
	}
	if sums[network.ResourceTypeDocument] == 0 {
		v.t.Errorf("%s: weighed no page: %v", path, cold)
	}
	for _, r := range v.load(path) {
		if !slices.Contains(uncounted, r.kind) && !r.cached && !strings.HasSuffix(r.url, "/favicon.svg") && !strings.HasSuffix(r.url, "/unread.svg") {
			v.t.Errorf("%s: asks for %s again (%s)", path, r.url, r.kind)
		}
	}
}

// uncounted are the document itself and requests of scripts.
var uncounted = []network.ResourceType{network.ResourceTypeDocument, network.ResourceTypeEventSource, network.ResourceTypeFetch}

// load opens a page and returns its requests.
func (v *visitor) load(path string) []request {
	v.t.Helper()
	v.do(chromedp.Navigate("about:blank"))
	v.mu.Lock()
	begin := len(v.order)
	v.mu.Unlock()
	v.open(path)
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []request
	for _, id := range v.order[begin:] {
		out = append(out, *v.requests[id])
	}
	return out
}

func (r request) String() string {
	return fmt.Sprintf("%s %s: %d bytes", r.kind, r.url, r.bytes)
}

// pageCase is a page of the program as a persona sees it.
type pageCase struct {
	name string // of its screenshot; unique
	// path returns the page's path and creates the records it needs; nil if show opens
	// it.
	path    func(w *world) string
	persona persona
	status  int64 // 0: 200
	// picture: docs/screenshots has the page.
	picture bool
}

// persona is a kind of user.
type persona int

const (
	anonymous persona = iota // not signed in
	admin                    // of the populated organization
	agent                    // of the same organization
	newcomer                 // admin of an empty organization
	signingUp                // signed in for the first time, without an organization
	halfway                  // password entered, second factor pending
	secured                  // of the populated organization, with an authenticator app
)

// slots limits the tests that run in parallel.
var slots = make(chan struct{}, 4)

// parallel runs the test in parallel with a few others.
func parallel(t *testing.T) {
	t.Parallel()
	slots <- struct{}{}
	t.Cleanup(func() { <-slots })
}

// forEachPage calls see for the pages of a world, several at once. Tabs are reused for
// pages of the same persona.
func (w *world) forEachPage(t *testing.T, list []pageCase, see func(t *testing.T, v *visitor, p pageCase, path string)) {
	t.Run("pages", func(t *testing.T) { // returns when all pages are done
		all := w.with(t)
		var mu sync.Mutex
		idle := make(map[persona][]*visitor)
		take := func(who persona) *visitor {
			mu.Lock()
			defer mu.Unlock()
			free := idle[who]
			if len(free) == 0 {
				return nil
			}
			idle[who] = free[:len(free)-1]
			return free[len(free)-1]
		}
		for _, p := range list {
			t.Run(p.name, func(t *testing.T) {
				parallel(t)
				v := take(p.persona)
				if v == nil {
					v = all.visitor(p.persona)
				}
				v.attach(t)
				see(t, v, p, p.path(w.with(t)))
				v.detach()
				if p.persona == anonymous || p.persona == admin || p.persona == agent || p.persona == newcomer { // these pages change nothing
					v.t = all.t
					mu.Lock()
					defer mu.Unlock()
					idle[p.persona] = append(idle[p.persona], v)
				}
			})
		}
	})
}

// show opens the page.
func (p pageCase) show(v *visitor, path string) {
	v.t.Helper()
	want := p.status
	if want == 0 {
		want = 200
	}
	if want >= 400 { // a live update loads the page again
		v.allow(fmt.Sprint(want, " for ", path))
	}
	if got := v.open(path); got != want {
		v.fatal(path, "was answered", got, "want", want)
	}
	if got := js[string](v, "location.pathname"); got == "/sign-in" && !strings.HasPrefix(path, "/sign-in") {
		v.fatal(path, "leads to", got)
	}
}

// TestPages visits all pages: those of the table and those that links lead to, as admin
// of a populated and of an empty organization. It checks layout on wide and narrow
// screens and without scripts, accessibility in light and dark, and size. With -short it
// visits each page once per width and skips the sandbox and the empty organization.
func TestPages(t *testing.T) {
	needChromium(t)
	w := newWorld(t)
	list := slices.Clone(pageCases)
	found := w.discover(admin)
	if !testing.Short() {
		found = append(found, w.discover(newcomer)...)
	}
	for _, found := range found {
		if testing.Short() && strings.Contains(found.name, "sandbox") {
			continue
		}
		if !slices.ContainsFunc(list, func(p pageCase) bool { return p.name == found.name }) {
			list = append(list, found)
		}
	}
	w.forEachPage(t, list, func(t *testing.T, v *visitor, p pageCase, path string) {
		p.show(v, path)
		if testing.Short() {
			v.setScreen(screen{width: wide.width, height: 4000})
			v.checkLayout()
			v.setScreen(screen{width: narrow.width, height: 4000, dark: true})
			v.checkLayout()
			v.checkAccess()
			return
		}
		for _, s := range []screen{wide, middle, narrow} {
			v.setScreen(s)
			v.checkLayout()
		}
		// Fixed elements of a small screen must not cover content.
		v.setScreen(screen{width: wide.width, height: 4000})
		v.checkAccess()
		v.setScreen(screen{width: narrow.width, height: 4000, dark: true})
		v.checkAccess()
		if p.persona == newcomer {
			return // a reduced variant of the same page
		}
		if p.status == 0 {
			v.checkWeight(path)
		}
		v.withoutScripts()
		v.setScreen(wide)
		p.show(v, path)
		v.checkLayout()
	})
}

// TestScreenshots writes the documentation's screenshots into the folder of the flag: those of the
// demo, and of a world for pages that the demo has not.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		return // TestPages visits the same pages
	}
	if err := os.MkdirAll(*screenshots, 0o755); err != nil {
		t.Fatal(err)
	}
	needChromium(t)
	d := startDemo(t)
	shown, v := d.pages(t), d.visit(t)
	for _, p := range shown {
		p.writeScreenshots(v, p.path(nil))
	}
	pictured := slices.DeleteFunc(slices.Clone(pageCases), func(p pageCase) bool {
		return !p.picture || slices.ContainsFunc(shown, func(s pageCase) bool { return s.name == p.name })
	})
	newWorld(t).forEachPage(t, pictured, func(t *testing.T, v *visitor, p pageCase, path string) { p.writeScreenshots(v, path) })
}

// writeScreenshots writes the page's screenshots, wide and narrow, in light and dark.
func (p pageCase) writeScreenshots(v *visitor, path string) {
	v.t.Helper()
	for _, s := range []screen{wide, narrow} {
		for _, dark := range []bool{false, true} {
			s.dark = dark
			v.setScreen(s)
			p.show(v, path)
			name := strings.Join([]string{p.name, s.name, map[bool]string{false: "light", true: "dark"}[dark]}, "-") + ".webp"
			got := v.screenshot()
			if len(got) > 150<<10 {
				v.t.Errorf("%s has %d bytes", name, len(got))
			}
			if err := os.WriteFile(filepath.Join(*screenshots, name), got, 0o644); err != nil {
				v.t.Fatal(err)
			}
		}
	}
}
