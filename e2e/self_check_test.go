package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestChecksCatch violates each rule for pages once, to verify that the checks work.
func TestChecksCatch(t *testing.T) {
	ctx := needChromium(t)
	const (
		head    = `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>T</title><style>body { margin: 0; font: 16px sans-serif; color: #111; background: #fff } button { min-height: 24px }</style>`
		good    = `<main><h1>Good</h1><p><a href="/">A link</a></p><button>A button</button></main>`
		longest = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft"
	)
	for _, tt := range []struct{ name, body, kind, want, allowed string }{
		{"good", good, "", "", ""},
		{"ellipsis", good + `<p style="width: 9em; overflow: hidden; text-overflow: ellipsis; white-space: nowrap">` + longest + `</p>`, "", "", ""},
		{"scrolls", good + `<div style="width: 9em; overflow: auto" tabindex="0">` + longest + `</div>`, "", "", ""},
		{"console", good + `<script>console.error("broken", 1)</script>`, "faults", "broken", ""},
		{"exception", good + `<script>nothing.at.all()</script>`, "faults", "nothing is not defined", ""},
		{"rejection", good + `<script>Promise.reject(new Error("nobody listens"))</script>`, "faults", "nobody listens", ""},
		{"policy", good + `<img src="/x.png" alt="">`, "faults", "ContentSecurityPolicyIssue", ""},
		{"handler", good + `<p onclick="x()">Text</p>`, "faults", "ContentSecurityPolicyIssue", ""},
		{"other host", good + `<script>fetch("http://127.0.0.2/").catch(() => {})</script>`, "faults", "a request to another host: http://127.0.0.2/", ""},
		{"missing", good + `<script>fetch("/missing")</script>`, "faults", "404 for /missing", ""},
		{"sideways", good + `<p style="white-space: nowrap">` + strings.Repeat("long ", 200) + `</p>`, "layout", "the page is", ""},
		{"cut", good + `<p style="width: 9em; overflow: hidden">` + longest + `</p>`, "layout", "is cut off by p", ""},
		{"cut below", good + `<div style="height: 10px; overflow: hidden"><p style="margin: 0">One</p><p style="margin: 0">Two</p></div>`, "layout", "“One” is cut off by div", ""},
		{"covered", good + `<div style="position: absolute; inset: 0"></div>`, "layout", "is where one would press", ""},
		{"overlap", good + `<button style="position: absolute; left: 9px; top: 200px">First</button><button style="position: absolute; left: 40px; top: 205px">Second</button>`, "layout", "overlap by", ""},
		{"sticks out", good + `<button style="width: 20px; white-space: nowrap; position: absolute; top: 300px">A long word</button>`, "layout", "needs", ""},
		{"allowed", good + `<script>console.error("allowed", 1)</script>`, "", "", "allowed"},
		{"contrast", good + `<p style="color: #aaa">Hard to read</p>`, "access", "color-contrast", ""},
		{"no label", good + `<input name="x">`, "access", "label", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parallel(t)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/" {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				w.Header().Set("Content-Security-Policy", "default-src 'none'; connect-src *; style-src 'unsafe-inline'; script-src "+map[bool]string{true: "'unsafe-inline'", false: "'none'"}[strings.Contains(tt.body, "<script>")])
				fmt.Fprint(w, head+tt.body)
			}))
			defer server.Close()
			v := newTab(t, ctx, server.URL, chromedp.WithNewBrowserContext())
			for part := range strings.FieldsSeq(tt.allowed) {
				v.allow(part)
			}
			v.open("/")
			if tt.name == "handler" {
				v.click("p[onclick]")
			}
			if tt.kind == "faults" { // reported after the page has loaded
				v.untilFault(tt.want)
			}
			got := v.drainFaults()
			v.allow("") // further ones of the same cause
			switch tt.kind {
			case "layout":
				got = append(got, v.layoutFaults()...)
			case "access", "":
				if source, err := axe(); source == "" && err == nil {
					t.Skip("set KICKSTAND_TEST_NODE_MODULES to a node_modules folder made by `npm ci` from e2e/testdata to look for what hinders people (.ci/run browser does)")
				}
				got = slices.Concat(got, v.layoutFaults(), v.accessFaults())
			}
			if all := strings.Join(got, "\n"); tt.want == "" && all != "" || !strings.Contains(all, tt.want) {
				t.Errorf("got %q, want one with %q", all, tt.want)
			}
		})
	}
}

// drainFaults returns and clears the recorded faults.
func (v *visitor) drainFaults() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	taken := v.faults
	v.faults = nil
	return taken
}

// untilFault waits for a fault that contains a text. Chromium reports some things twice, in
// either order: as an entry of the console and as an issue.
func (v *visitor) untilFault(text string) {
	v.t.Helper()
	(&program{t: v.t}).until("a fault with "+text, func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return slices.ContainsFunc(v.faults, func(fault string) bool { return strings.Contains(fault, text) })
	})
}
