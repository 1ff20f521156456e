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

// checkLayout fails for what is wrong with how the page is laid out now: see
// testdata/layout.js.
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

// axe is the source of axe-core, which is not part of this repository; empty where
// nobody says where it is.
var axe = sync.OnceValues(func() (string, error) {
	modules := os.Getenv("KICKSTAND_TEST_NODE_MODULES")
	if modules == "" {
		return "", nil
	}
	text, err := os.ReadFile(filepath.Join(modules, "axe-core", "axe.min.js"))
	return string(text), err
})

// axeRules are what axe looks for: all that WCAG 2.2 asks for at level AA, and what
// its makers recommend.
const axeRules = `["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]`

// checkAccess fails for what hinders people seriously, by axe-core's judgement. Where
// that is not at hand, nothing is found.
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
		return nil // TestChecksCatch says so
	}
	if js[bool](v, `typeof axe === "undefined"`) {
		// As a debugger would: the page's policy holds for the page.
		v.do(chromedp.Evaluate[chromedp.Void](source))
	}
	return js[[]string](v, `axe.run(document, {runOnly: {type: "tag", values: `+axeRules+`}, resultTypes: ["violations"]}).then(found =>
		found.violations.filter(f => f.impact === "serious" || f.impact === "critical").flatMap(f => f.nodes.slice(0, 5).map(n =>
			f.impact + ": " + f.id + ": " + n.target.join(" ") + ": " + n.html.slice(0, 200) + "\n\t" + n.failureSummary.replaceAll("\n", "\n\t"))))`)
}

// What a page may weigh, in bytes as they are before compression.
const (
	maxPage   = 100 << 10 // HTML, CSS and JavaScript together
	maxStyle  = 40 << 10
	maxScript = 30 << 10
)

// checkWeight opens a page as somebody who never was here, and then again: it weighs
// no more than it may, and what is kept is not asked for again.
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
		if !slices.Contains(later, r.kind) && !r.cached && !strings.HasSuffix(r.url, "/favicon.svg") {
			v.t.Errorf("%s: asks for %s again (%s)", path, r.url, r.kind)
		}
	}
}

// later are the page itself, and what scripts ask for once it is there.
var later = []network.ResourceType{network.ResourceTypeDocument, network.ResourceTypeEventSource, network.ResourceTypeFetch}

// load opens a page and returns what was requested for it.
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

// place is a page of the program as somebody sees it.
type place struct {
	name string // of its picture; unique
	// path says where it is, making what it needs; nil for a page that shows needs.
	path   func(w *world) string
	who    who
	status int64 // 0: 200
	// picture says that docs/screenshots has it.
	picture bool
}

// who looks at a page.
type who int

const (
	nobody    who = iota // is signed in
	admin                // of the organization that has everything
	agent                // of the same
	newcomer             // admin of an organization that has nothing yet
	signingUp            // has signed in for the first time and has no organization
	halfway              // has given a password, and an authenticator app is still to come
	secured              // of the organization that has everything, with an authenticator app
)

// turns are those of tests that look at pages in parallel.
var turns = make(chan struct{}, 4)

// inTurn has a test run beside a few others.
func inTurn(t *testing.T) {
	t.Parallel()
	turns <- struct{}{}
	t.Cleanup(func() { <-turns })
}

// everywhere calls see for pages of a world, several at once. A tab that is through
// with a page goes on to the next one of the same person.
func (w *world) everywhere(t *testing.T, list []place, see func(t *testing.T, v *visitor, p place, path string)) {
	t.Run("pages", func(t *testing.T) { // ends when all have
		all := w.with(t)
		var mu sync.Mutex
		idle := make(map[who][]*visitor)
		take := func(who who) *visitor {
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
				inTurn(t)
				v := take(p.who)
				if v == nil {
					v = all.visitor(p.who)
				}
				v.begins(t)
				see(t, v, p, p.path(w.with(t)))
				v.ends()
				if p.who == nobody || p.who == admin || p.who == agent || p.who == newcomer { // pages leave nothing behind
					v.t = all.t
					mu.Lock()
					defer mu.Unlock()
					idle[p.who] = append(idle[p.who], v)
				}
			})
		}
	})
}

// show opens the page of the table.
func (p place) show(v *visitor, path string) {
	v.t.Helper()
	want := p.status
	if want == 0 {
		want = 200
	}
	if got := v.open(path); got != want {
		v.fatal(path, "was answered", got, "want", want)
	}
	if got := js[string](v, "location.pathname"); got == "/sign-in" && !strings.HasPrefix(path, "/sign-in") {
		v.fatal(path, "leads to", got)
	}
}

// TestPages looks at every page: those of the table, and those that one comes to
// from there, as an admin of the organization that has everything and of one that has
// nothing yet. How is it laid out, wide and narrow, and without scripts; what hinders
// people, in light and dark; and what does it weigh? In short, each page is looked
// at once in either width; the sandbox, which has production's pages, and those of who
// has nothing yet are left out.
func TestPages(t *testing.T) {
	needChromium(t)
	w := newWorld(t)
	list := slices.Clone(places)
	found := w.discover(admin)
	if !testing.Short() {
		found = append(found, w.discover(newcomer)...)
	}
	for _, found := range found {
		if testing.Short() && strings.Contains(found.name, "sandbox") {
			continue
		}
		if !slices.ContainsFunc(list, func(p place) bool { return p.name == found.name }) {
			list = append(list, found)
		}
	}
	w.everywhere(t, list, func(t *testing.T, v *visitor, p place, path string) {
		p.show(v, path)
		if testing.Short() {
			v.look(screen{width: wide.width, height: 4000})
			v.checkLayout()
			v.look(screen{width: narrow.width, height: 4000, dark: true})
			v.checkLayout()
			v.checkAccess()
			return
		}
		for _, s := range []screen{wide, middle, narrow} {
			v.look(s)
			v.checkLayout()
		}
		// Nothing is behind what stays at the edges of a small screen.
		v.look(screen{width: wide.width, height: 4000})
		v.checkAccess()
		v.look(screen{width: narrow.width, height: 4000, dark: true})
		v.checkAccess()
		if p.who == newcomer {
			return // the same page with less on it
		}
		if p.status == 0 {
			v.checkWeight(path)
		}
		v.withoutScripts()
		v.look(wide)
		p.show(v, path)
		v.checkLayout()
	})
}

// TestScreenshots writes the pictures of the documentation, when it is told where to.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		return // TestPages looks at the same pages
	}
	if err := os.MkdirAll(*screenshots, 0o755); err != nil {
		t.Fatal(err)
	}
	needChromium(t)
	pictured := slices.DeleteFunc(slices.Clone(places), func(p place) bool { return !p.picture })
	newWorld(t).everywhere(t, pictured, func(t *testing.T, v *visitor, p place, path string) {
		for _, s := range []screen{wide, narrow} {
			for _, dark := range []bool{false, true} {
				s.dark = dark
				v.look(s)
				p.show(v, path)
				name := strings.Join([]string{p.name, s.name, map[bool]string{false: "light", true: "dark"}[dark]}, "-") + ".webp"
				got := v.picture()
				if len(got) > 150<<10 {
					t.Errorf("%s has %d bytes", name, len(got))
				}
				if err := os.WriteFile(filepath.Join(*screenshots, name), got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
