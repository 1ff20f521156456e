package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// waitTimeout is the limit of every wait.
const waitTimeout = 20 * time.Second

func TestMain(m *testing.M) {
	flag.Parse()
	status := m.Run()
	if stopChromium != nil {
		if err := stopChromium(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping Chromium:", err)
		}
	}
	os.Exit(status)
}

// stopChromium stops the browser.
var stopChromium func() error

// findChromium returns the path of Chromium, or "".
func findChromium() string {
	if name := os.Getenv("KICKSTAND_TEST_CHROMIUM"); name != "" {
		return name
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "headless-shell"} {
		if found, err := exec.LookPath(name); err == nil {
			return found
		}
	}
	return ""
}

// chromium starts the browser that all tests share.
var chromium = sync.OnceValues(func() (context.Context, error) {
	name := findChromium()
	dir, err := os.MkdirTemp("", "kickstand-chromium-")
	if err != nil {
		return nil, err
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(name), chromedp.UserDataDir(dir), chromedp.Headless, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.DisableGPU,
		// Block all other hosts, including DNS.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"),
		chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-default-apps", true),
		chromedp.Flag("disable-extensions", true),
		chromedp.Flag("disable-breakpad", true),
		chromedp.Flag("disable-dev-shm-usage", true),
		// Background tabs must run at full speed.
		chromedp.Flag("disable-background-timer-throttling", true),
		chromedp.Flag("disable-backgrounding-occluded-windows", true),
		chromedp.Flag("disable-renderer-backgrounding", true),
		chromedp.Flag("disable-ipc-flooding-protection", true),
		// Keep frames in the page's process, so that their events arrive with the page's.
		chromedp.Flag("disable-site-isolation-trials", true),
		chromedp.Flag("disable-features", "IsolateSandboxedIframes,IsolateOrigins,site-per-process,Translate,OptimizationHints,MediaRouter,AutofillServerCommunication"),
		chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("font-render-hinting", "none"),
		chromedp.Flag("force-color-profile", "srgb"),
		chromedp.Flag("lang", "en"),
	}
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses to run as root with a sandbox
	}
	allocator, cancelAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocator)
	stopChromium = func() error {
		end, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		err := chromedp.Cancel(end)
		cancelAllocator()
		if rerr := os.RemoveAll(dir); err == nil {
			err = rerr
		}
		return err
	}
	if err := chromedp.Do(ctx); err != nil {
		return nil, fmt.Errorf("%s does not start: %w", name, err)
	}
	return ctx, nil
})

// needChromium skips the test if there is no browser.
func needChromium(t testing.TB) context.Context {
	t.Helper()
	if findChromium() == "" {
		t.Skip("no Chromium: install it (Debian: apt-get install chromium) or set KICKSTAND_TEST_CHROMIUM to one (.ci/run browser does)")
	}
	ctx, err := chromium()
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

// screen is a viewport.
type screen struct {
	name          string
	width, height int64
	dark          bool
}

var (
	wide   = screen{"wide", 1440, 900, false}
	middle = screen{"middle", 900, 700, false}
	narrow = screen{"narrow", 390, 844, false}
)

// visitor is a browser profile with one tab; [visitor.tab] opens more.
type visitor struct {
	t    testing.TB
	ctx  context.Context // of the tab
	base string          // base URL of the program

	mu       sync.Mutex
	faults   []string
	requests map[network.RequestID]*request
	order    []network.RequestID
	allowed  []string // substrings of expected faults
}

// request is a request of the tab.
type request struct {
	url    string
	kind   network.ResourceType
	status int64
	bytes  int64 // of the body, decompressed
	cached bool
}

// visit opens a new browser profile with a wide screen. At its end, the test fails if a
// page has violated a rule.
func (p *program) visit(t testing.TB) *visitor {
	t.Helper()
	return newTab(t, needChromium(t), p.base, chromedp.WithNewBrowserContext())
}

// tab opens another tab of the same profile.
func (v *visitor) tab() *visitor {
	v.t.Helper()
	return newTab(v.t, v.ctx, v.base)
}

func newTab(t testing.TB, parent context.Context, base string, options ...chromedp.ContextOption) *visitor {
	t.Helper()
	v := &visitor{t: t, base: base, requests: map[network.RequestID]*request{}}
	ctx, cancel := chromedp.NewContext(parent, append(options, chromedp.WithListener(v.listen))...)
	v.ctx = ctx
	t.Cleanup(func() {
		cancel()
		v.detach()
	})
	v.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		if _, err := cdp.Call(ctx, t, audits.Enable, cdp.Empty{}); err != nil {
			return err
		}
		// Emulate focus in every tab.
		_, err := cdp.Call(ctx, t, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
		return err
	}))
	v.setScreen(wide)
	return v
}

// attach reuses a tab of an earlier test: wide screen, scripts enabled.
func (v *visitor) attach(t testing.TB) {
	v.t = t
	v.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: false})
		return err
	}))
	v.setScreen(wide)
}

// detach fails the test for the recorded faults.
func (v *visitor) detach() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range v.faults {
		v.t.Error("in the browser: " + f)
	}
	v.faults = nil
}

// listen records the tab's events. It runs between CDP messages and must not block.
func (v *visitor) listen(event any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
		v.fault("an exception: %s at %s:%d", text, e.ExceptionDetails.URL, e.ExceptionDetails.LineNumber+1)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeAssert || e.Type == runtime.ConsoleAPICalledTypeWarning {
			var words []string
			for _, a := range e.Args {
				words = append(words, string(a.Value)+a.Description)
			}
			v.fault("console.%s: %s", e.Type, strings.Join(words, " "))
		}
	case *log.EventEntryAdded:
		// Network entries duplicate the checks of responses.
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			v.fault("%s: %s (%s)", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *audits.EventIssueAdded:
		if e.Issue.Code == audits.InspectorIssueCodeContentSecurityPolicyIssue || e.Issue.Code == audits.InspectorIssueCodeQuirksModeIssue ||
			e.Issue.Code == audits.InspectorIssueCodeGenericIssue {
			details, _ := json.Marshal(e.Issue.Details)
			v.fault("%s: %s", e.Issue.Code, details)
		}
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || !slices.Contains([]string{"data", "blob", "about"}, u.Scheme) && u.Scheme+"://"+u.Host != v.base {
			v.fault("a request to another host: %s", e.Request.URL)
		}
		if _, again := v.requests[e.RequestID]; !again {
			v.order = append(v.order, e.RequestID)
		}
		v.requests[e.RequestID] = &request{url: strings.TrimPrefix(e.Request.URL, v.base), kind: e.Type}
	case *network.EventWebSocketCreated:
		v.fault("a web socket to %s", e.URL)
	case *network.EventRequestServedFromCache:
		if r := v.requests[e.RequestID]; r != nil {
			r.cached = true
		}
	case *network.EventResponseReceived:
		if r := v.requests[e.RequestID]; r != nil {
			r.status = e.Response.Status
			r.cached = r.cached || e.Response.FromDiskCache
			if r.status >= 400 && r.kind != network.ResourceTypeDocument {
				v.fault("%d for %s", r.status, r.url)
			}
		}
	case *network.EventDataReceived:
		if r := v.requests[e.RequestID]; r != nil {
			r.bytes += e.DataLength
		}
	case *network.EventLoadingFailed:
		// Requests that the page aborted are no faults, and CSP violations were recorded
		// above.
		if r := v.requests[e.RequestID]; r != nil && !e.Canceled && e.ErrorText != "net::ERR_ABORTED" && e.BlockedReason != network.BlockedReasonCsp {
			v.fault("%s for %s %s", e.ErrorText, r.url, e.BlockedReason)
		}
	}
}

// fault records a rule violation, unless the test allows it.
func (v *visitor) fault(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.ContainsFunc(v.allowed, func(part string) bool { return strings.Contains(text, part) }) {
		v.faults = append(v.faults, text)
	}
}

// allow expects faults that contain part.
func (v *visitor) allow(part string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.allowed = append(v.allowed, part)
}

// do runs actions in the tab.
func (v *visitor) do(actions ...chromedp.Action[chromedp.Void]) {
	v.t.Helper()
	ctx, cancel := v.actionContext()
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		v.fatal(err)
	}
}

// actionContext returns a context with waitTimeout.
func (v *visitor) actionContext() (context.Context, context.CancelFunc) {
	// The tab must outlive its first action.
	if chromedp.FromContext(v.ctx).Target == nil {
		return v.ctx, func() {}
	}
	return context.WithTimeout(v.ctx, waitTimeout)
}

// fatal fails the test with the browser's address and page.
func (v *visitor) fatal(args ...any) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, 5*time.Second)
	defer cancel()
	if where, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`)); err == nil {
		args = append(args, "\nat", where)
	}
	if dir := os.Getenv("KICKSTAND_TEST_PICTURES"); dir != "" {
		if picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot()); err == nil {
			name := filepath.Join(dir, strings.ReplaceAll(v.t.Name(), "/", "-")+".png")
			if os.WriteFile(name, picture, 0o600) == nil {
				args = append(args, "\nseen as", name)
			}
		}
	}
	v.t.Fatal(args...)
}

// run runs an action in the tab and returns its result.
func run[T any](v *visitor, action chromedp.Action[T]) T {
	v.t.Helper()
	ctx, cancel := v.actionContext()
	defer cancel()
	got, err := chromedp.Run(ctx, action)
	if err != nil {
		v.fatal(err)
	}
	return got
}

// js evaluates an expression in the page.
func js[T any](v *visitor, expression string) T {
	v.t.Helper()
	return run(v, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// wait waits until an expression is true, across page loads.
func (v *visitor) wait(what, expression string) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, waitTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`!!(`+expression+`)`))
		if err == nil && ok {
			return
		}
		if ctx.Err() != nil {
			v.fatal("waited in vain for", what, last)
		}
		last = err // the page is being unloaded
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// waitText waits until the page shows all texts.
func (v *visitor) waitText(texts ...string) {
	v.t.Helper()
	for _, text := range texts {
		v.wait(fmt.Sprintf("the text %q", text), `document.body && document.body.innerText.replace(/\s+/g, " ").includes(`+quote(text)+`)`)
	}
}

// find waits until the page is loaded and an element is visible: before that it may move.
func (v *visitor) find(selector string) {
	v.t.Helper()
	v.wait(selector, loaded+` && (e => e && e.checkVisibility({visibilityProperty: true}))(document.querySelector(`+quote(selector)+`))`)
}

// loaded is true once the page is loaded.
const loaded = `document.readyState === "complete"`

// waitLive waits until the page's event stream is open.
func (v *visitor) waitLive() {
	v.t.Helper()
	(&program{t: v.t}).until("the live stream", func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		for _, id := range slices.Backward(v.order) {
			switch r := v.requests[id]; r.kind {
			case network.ResourceTypeEventSource:
				return r.status == 200
			case network.ResourceTypeDocument:
				return false
			}
		}
		return false
	})
}

// at waits until the browser is at path and the page is loaded. The query is optional; a
// trailing "*" matches any suffix.
func (v *visitor) at(path string) {
	v.t.Helper()
	is := `[location.pathname, location.pathname + location.search].includes(` + quote(path) + `)`
	if begin, ok := strings.CutSuffix(path, "*"); ok {
		is = `(location.pathname + location.search).startsWith(` + quote(begin) + `)`
	}
	v.wait("the address "+path, is+` && `+loaded)
}

// open opens a path of the program and returns the status.
func (v *visitor) open(path string) int64 {
	v.t.Helper()
	if strings.HasPrefix(path, "/") {
		path = v.base + path
	}
	r := run(v, chromedp.NavigateResponse(path))
	if r == nil {
		v.fatal("no response for", path)
	}
	return r.Status
}

// click clicks the centre of an element; an element that covers it receives the click.
func (v *visitor) click(selector string) {
	v.t.Helper()
	v.find(selector)
	v.do(clickIn(`document.querySelector(` + quote(selector) + `)`))
}

// clickIn clicks the centre of the element that an expression returns.
func clickIn(element string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		at, err := chromedp.Evaluate[struct{ X, Y float64 }](`(e => {
			e.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
			const r = [...e.getClientRects()].find(r => r.width && r.height) || e.getBoundingClientRect();
			return {X: r.left + r.width / 2, Y: r.top + r.height / 2};
		})(`+element+`)`)(ctx, t)
		if err != nil {
			return err
		}
		_, err = chromedp.MouseClickXY(at.X, at.Y)(ctx, t)
		return err
	})
}

// press clicks the button or link with a label.
func (v *visitor) press(text string) {
	v.t.Helper()
	element := `(` + labelled + `)(` + quote(text) + `)`
	v.wait("something to press that says "+text, loaded+` && `+element)
	v.do(clickIn(element))
}

// labelled finds a control by its label.
const labelled = `text => [...document.querySelectorAll("button, a[href], summary, input[type=submit], [role=tab]")]
	.filter(e => e.checkVisibility({visibilityProperty: true}))
	.find(e => (e.ariaLabel || (e.tagName === "INPUT" ? e.value : e.innerText ?? e.textContent)).replace(/\s+/g, " ").trim() === text)`

// fill sets the value of a control, by typing where a user types.
func (v *visitor) fill(selector, text string) {
	v.t.Helper()
	v.find(selector)
	if js[bool](v, `(e => {
		if (e.tagName !== "SELECT" && !["date", "time", "datetime-local", "color", "range"].includes(e.type)) { e.focus(); e.select(); return false; }
		e.value = `+quote(text)+`;
		e.dispatchEvent(new Event("input", {bubbles: true}));
		e.dispatchEvent(new Event("change", {bubbles: true}));
		return true;
	})(document.querySelector(`+quote(selector)+`))`) {
		return
	}
	v.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, input.InsertText, input.InsertTextParams{Text: text})
		return err
	}))
}

// keys presses keys one after the other at the present focus. A key that a script handles
// is not typed.
func (v *visitor) keys(keys string, modifiers ...chromedp.Modifier) {
	v.t.Helper()
	var held int64
	for _, m := range modifiers {
		held |= int64(m)
	}
	v.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		for _, r := range keys {
			k, ok := kb.Keys[r]
			if !ok {
				k = &kb.Key{Key: string(r), Text: string(r), Unmodified: string(r), Print: true}
			}
			press := input.DispatchKeyEventParams{
				Type: input.DispatchKeyEventTypeKeyDown, Key: k.Key, Code: k.Code, Modifiers: held,
				WindowsVirtualKeyCode: k.Windows, NativeVirtualKeyCode: k.Native,
			}
			if k.Shift {
				press.Modifiers |= int64(chromedp.ModifierShift)
			}
			if k.Print && held == 0 {
				press.Text, press.UnmodifiedText = k.Text, k.Unmodified
			}
			if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, press); err != nil {
				return err
			}
			press.Type, press.Text, press.UnmodifiedText = input.DispatchKeyEventTypeKeyUp, "", ""
			if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, press); err != nil {
				return err
			}
		}
		return nil
	}))
}

// value returns the value of an input.
func (v *visitor) value(selector string) string {
	v.t.Helper()
	v.find(selector)
	return js[string](v, `document.querySelector(`+quote(selector)+`).value`)
}

// setScreen sets the viewport.
func (v *visitor) setScreen(s screen) {
	v.t.Helper()
	scheme := "light"
	if s.dark {
		scheme = "dark"
	}
	options := []chromedp.EmulateViewportOption{}
	if s.width < 700 {
		options = append(options, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulatePortrait)
	}
	v.do(chromedp.EmulateViewport(s.width, s.height, options...), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
		return err
	}))
}

// withoutScripts disables scripts from the next page on.
func (v *visitor) withoutScripts() {
	v.t.Helper()
	// Running scripts would be aborted.
	v.do(chromedp.Navigate("about:blank"), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
}

// cookie sets a cookie of the program.
func (v *visitor) cookie(name, value string) {
	v.t.Helper()
	v.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		yes := true
		_, err := cdp.Call(ctx, t, network.SetCookie, network.SetCookieParams{
			Name: name, Value: value, URL: v.base, Path: "/", HTTPOnly: &yes, SameSite: network.CookieSameSiteLax,
		})
		return err
	}))
}

// screenshot captures the viewport.
func (v *visitor) screenshot() []byte {
	v.t.Helper()
	return run(v, func(ctx context.Context, t *chromedp.Target) ([]byte, error) {
		quality := int64(82)
		got, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatWebp, Quality: &quality})
		return got.Data, err
	})
}

// quote returns text as a JavaScript string.
func quote(text string) string {
	quoted, _ := json.Marshal(text) // cannot fail for a string
	return string(quoted)
}
