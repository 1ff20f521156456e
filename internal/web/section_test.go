package web_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// testPages is a section with a page for each error, a form, and a confirmation page.
type testPages struct {
	*web.Section
	fails error
	shows web.Page
	done  bool
}

var confirm = web.Confirm{Text: "The <room> goes.", Type: `Room "1"`, Label: "Tear it down", Cancel: "/test/page"}

func newTestPages(t *testing.T) (*webtest.Harness, *testPages) {
	t.Helper()
	h := webtest.NewHarness(t)
	a := &testPages{Section: h.Site.Section(fstest.MapFS{
		"templates/_piece.html": {Data: []byte(`{{define "piece"}}<p>{{.}}</p>{{end}}`)},
		"templates/room.html":   {Data: []byte(`{{define "body"}}<h1>{{.Title}}</h1>{{template "piece" .Body}}{{end}}`)},
	})}
	a.Handle("/test/page", web.Route{Get: a.page})
	a.Handle("/test/admin", web.Route{Get: a.page, Post: a.post, Admin: true})
	a.Handle("/test/alone", web.Route{Get: a.page, WithoutOrganization: true})
	a.Handle("/test/fail", web.Route{Get: a.fail, Post: a.fail})
	a.Handle("/test/form", web.Route{Post: a.post})
	a.Handle("/test/confirm", web.Route{Get: a.confirmPage, Post: a.demolish})
	a.Handle("/test/part", web.Route{Get: func(w http.ResponseWriter, _ *web.Request) error { return a.Fragment(w, "room", "piece", "<here>") }})
	return h, a
}

func (a *testPages) page(w http.ResponseWriter, r *web.Request) error {
	p := a.shows
	p.Title, p.Body = "A <room>", r.User.Name+" of "+r.Organization.Name
	return a.Render(w, r, "room", p)
}

func (a *testPages) fail(http.ResponseWriter, *web.Request) error { return a.fails }

func (a *testPages) post(w http.ResponseWriter, r *web.Request) error {
	form, ok := a.Form(w, r)
	if !ok {
		return nil
	}
	return a.Redirect(w, "/test/page", web.Notice{
		Text: form.Get("text"), Bad: form.Get("bad") != "", Undo: form.Get("undo"), Fields: map[string]string{"again": form.Get("text")},
	})
}

func (a *testPages) confirmPage(w http.ResponseWriter, r *web.Request) error {
	return a.Confirm(w, r, "Tear down?", web.Page{}, confirm)
}

func (a *testPages) demolish(w http.ResponseWriter, r *web.Request) error {
	form, ok := a.Form(w, r)
	switch {
	case !ok:
		return nil
	case !a.Confirmed(form, confirm):
		return a.confirmPage(w, r)
	}
	a.done = true
	return a.Redirect(w, "/test/page", web.Notice{Text: "It is down."})
}

// TestRoutes checks access by role and session, and the refusals.
func TestRoutes(t *testing.T) {
	h, _ := newTestPages(t)
	newcomer, err := h.Accounts.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "new@example.com"}, "", account.Client{})
	if err != nil {
		t.Fatal(err)
	}
	_, token, _ := strings.Cut(h.Mails[len(h.Mails)-1].Text, "token=")
	token, _, _ = strings.Cut(token, "\n")
	alone, err := h.Accounts.FollowLink(t.Context(), strings.TrimSpace(token), newcomer, account.Client{})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		for _, fn := range change {
			fn(r)
		}
		w := httptest.NewRecorder()
		h.Site.ServeHTTP(w, r)
		return w
	}
	for _, tt := range []struct {
		path string
		w    *httptest.ResponseRecorder
		code int
		to   string
	}{
		{"nobody", get("/test/page?a=b&c=d%20e"), 303, "/sign-in?next=%2Ftest%2Fpage%3Fa%3Db%26c%3Dd%2520e"},
		{"a stale cookie", get("/test/page", cookie("svc-access-token", "x")), 303, "/sign-in?next=%2Ftest%2Fpage"},
		{"of no organization", get("/test/page", signedIn(alone)), 303, "/welcome"},
		{"of no organization, where they may be", get("/test/alone", signedIn(alone)), 200, ""},
		{"of no organization, an admin's", get("/test/admin", signedIn(alone)), 303, "/welcome"},
	} {
		if tt.w.Code != tt.code || tt.w.Header().Get("Location") != tt.to {
			t.Errorf("%s: got %d to %q, want %d to %q", tt.path, tt.w.Code, tt.w.Header().Get("Location"), tt.code, tt.to)
		}
	}
	admin, agent := h.SignIn(h.Admin), h.SignIn(h.Agent)
	admin.Page("/test/admin").Want(h.Admin.Name + " of " + h.Organization.Name)
	for _, w := range []*httptest.ResponseRecorder{agent.Get("/test/admin"), agent.Post("/test/admin", url.Values{"text": {"x"}})} {
		agent.WantRefused(w, http.StatusForbidden).Want("You don’t have access", "Only admins of "+h.Organization.Name)
	}
	if w := admin.Post("/test/page", nil); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: got %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
	if w := admin.Get("/test/part"); w.Body.String() != "<p>&lt;here&gt;</p>" || !strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "default-src 'none'; ") {
		t.Errorf("got part %q with header %v", w.Body, w.Header())
	}
}

// TestFailures checks the page of each kind of error, and that internal errors are not
// disclosed.
func TestFailures(t *testing.T) {
	h, a := newTestPages(t)
	b := h.SignIn(h.Agent)
	var v problem.Validation
	v.Add("name", "must not be <empty>")
	for _, tt := range []struct {
		err   error
		code  int
		wants string
	}{
		{problem.New(problem.NotFound, "no <x>"), 404, "This page does not exist, was deleted, or belongs to another organization"},
		{problem.New(problem.Forbidden, "only <admins> may"), 403, "Only <admins> may"},
		{problem.New(problem.Conflict, "it is taken"), 409, "It is taken."},
		{problem.New(problem.TooLarge, "it is too much"), 413, "It is too much"},
		{problem.New(problem.RateLimited, "try again in 5 seconds"), 429, "Too many requests"},
		{v.Err(), 422, "name must not be <empty>."},
		{problem.New(problem.Precondition, "not yet"), 422, "Action failed"},
		{problem.New(problem.Unavailable, "the disk is full").Because(errors.New("a secret")), 503, "the disk is full"},
		{errors.New("a secret"), 500, "to the operator of this server"},
	} {
		a.fails = tt.err
		for _, w := range []*httptest.ResponseRecorder{b.Get("/test/fail"), b.Post("/test/fail", nil)} {
			d := b.WantRefused(w, tt.code)
			d.Want(tt.wants)
			if strings.Contains(w.Body.String(), "a secret") {
				t.Errorf("%v: the page tells a secret", tt.err)
			}
		}
		if tt.code < 500 {
			b.WantRefused(b.Post("/test/fail", nil), tt.code).Want("Nothing was changed.")
		}
	}
	a.fails = nil
	h.DB.Close()
	b.WantRefused(b.Get("/test/page"), http.StatusServiceUnavailable).Want("Not available right now")
}

func TestConfirm(t *testing.T) {
	h, a := newTestPages(t)
	b := h.SignIn(h.Agent)
	d := b.Page("/test/confirm")
	d.Want("The <room> goes.", `Type Room "1" to confirm`)
	for _, typed := range []string{"", "room 1", `Room "2"`} {
		d := b.WantRefused(b.Post("/test/confirm", url.Values{"confirm": {typed}}), http.StatusUnprocessableEntity)
		if a.done || len(d.DescribedBy("confirm")) != 1 || !strings.HasPrefix(webtest.Text(d.All("title")[0]), "Error: ") {
			t.Fatalf("%q: done %t, said %q", typed, a.done, d.DescribedBy("confirm"))
		}
	}
	if _, notice := b.Follow(b.Post("/test/confirm", url.Values{"confirm": {` Room "1" `}})); !a.done || notice != "It is down." {
		t.Errorf("done %t, said %q", a.done, notice)
	}
}

func TestNotice(t *testing.T) {
	h, _ := newTestPages(t)
	b := h.SignIn(h.Agent)
	const text = `Gone: "<script>" & ` + "\u202e"
	w := b.Post("/test/form", url.Values{"text": {text}, "undo": {"/test/form"}})
	for _, c := range w.Result().Cookies() {
		if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.MaxAge > 60 {
			t.Errorf("got cookie %v", c)
		}
	}
	// A script's request does not consume the notice.
	quiet := httptest.NewRequest("GET", "/test/page", nil)
	quiet.Header.Set("X-Live", "1")
	if w := b.Do(quiet); strings.Contains(w.Body.String(), "Gone") || len(w.Result().Cookies()) != 0 {
		t.Errorf("told to a script, with cookies %v", w.Result().Cookies())
	}
	d, notice := b.Follow(w)
	if notice != "Gone: \"<script>\" & \u202e Undo" {
		t.Errorf("got notice %q", notice)
	}
	undo := d.WithAttr("action", "/test/form")
	if len(undo) != 1 || webtest.Attr(d.Field("again"), "value") != text {
		t.Errorf("got %d ways to undo", len(undo))
	}
	if strings.Contains(webtest.Text(b.Page("/test/page").Root), "Gone") {
		t.Error("told twice")
	}

	// Forged notices are ignored.
	for _, value := range []string{"x", "e30", "%%%", encode(`{"Text":"x","Undo":"https://evil.example/"}`), encode(`{"Text":"x","Undo":"//evil.example/"}`), encode(`{"Text":1}`)} {
		r := httptest.NewRequest("GET", "/test/page", nil)
		r.AddCookie(&http.Cookie{Name: "kickstand-notice", Value: value})
		w := b.Do(r)
		if d := webtest.Parse(t, w.Body.String()); webtest.Text(d.WithAttr("id", "toasts")[0]) != "" {
			t.Errorf("%s: got %s", value, webtest.Text(d.WithAttr("id", "toasts")[0]))
		}
	}
}

// TestPlantedNotice checks that over TLS only the cookie with the __Host- prefix is read.
func TestPlantedNotice(t *testing.T) {
	h := webtest.NewHarness(t)
	site := web.New(web.Config{Accounts: h.Accounts, Gate: &browser.SessionAuth{Accounts: h.Accounts, Secure: true}})
	for name, want := range map[string]bool{"kickstand-notice": false, "__Host-kickstand-notice": true} {
		r := httptest.NewRequest("GET", "/sign-in", nil)
		r.AddCookie(&http.Cookie{Name: name, Value: encode(`{"Text":"planted"}`)})
		w := httptest.NewRecorder()
		site.ServeHTTP(w, r)
		if told := strings.Contains(w.Body.String(), "planted"); told != want {
			t.Errorf("%s: told: %t", name, told)
		}
		if set := w.Header().Get("Set-Cookie"); want && set != name+"=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Lax" {
			t.Errorf("got cookie %q", set)
		}
	}
}

func encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// TestSandbox checks that sandbox pages are marked.
func TestSandbox(t *testing.T) {
	h, a := newTestPages(t)
	b := h.SignIn(h.Admin)
	a.shows = web.Page{At: "/sandbox/fleet", Sandbox: true, Other: "/fleet", Views: []web.NavItem{{Path: "/sandbox/fleet", Label: "Overview", Present: true, Count: "3"}}}
	d := b.Page("/test/page")
	if title := webtest.Text(d.All("title")[0]); title != "A <room> (sandbox) – Kickstand" {
		t.Errorf("got title %q", title)
	}
	if webtest.Attr(d.All("html")[0], "class") != "sandbox" || len(d.WithAttr("href", "/fleet")) != 1 || len(d.WithAttr("aria-label", "Environment")) != 1 {
		t.Error("the page does not say that it is the sandbox")
	}
	d.Want("Overview3")
}

func TestReaderZone(t *testing.T) {
	h, a := newTestPages(t)
	b := h.SignIn(h.Admin)
	var now time.Time
	a.Handle("/test/now", web.Route{Get: func(w http.ResponseWriter, r *web.Request) error {
		now = r.Now
		return a.page(w, r)
	}})
	for value, want := range map[string]string{
		"": "UTC", "Europe%2FBerlin": "Europe/Berlin", "Asia/Tokyo": "Asia/Tokyo", "Local": "UTC", "Nowhere": "UTC", "%zz": "UTC",
		"..%2F..%2Fetc%2Fpasswd": "UTC", strings.Repeat("a", 65): "UTC",
	} {
		r := httptest.NewRequest("GET", "/test/now", nil)
		r.AddCookie(&http.Cookie{Name: "kickstand-zone", Value: value})
		if b.Do(r); now.Location().String() != want {
			t.Errorf("%q: got zone %s, want %s", value, now.Location(), want)
		}
	}
}

// TestPreferredZone checks that the zone of the preferences comes before the browser's, and that
// a page says that it is in UTC for want of both, unless it answers a form.
func TestPreferredZone(t *testing.T) {
	h, a := newTestPages(t)
	b := h.SignIn(h.Admin)
	var zone string
	page := func(w http.ResponseWriter, r *web.Request) error {
		zone = r.Now.Location().String()
		return a.page(w, r)
	}
	a.Handle("/test/zone", web.Route{Get: page, Post: page})
	for _, tt := range []struct {
		preferences, cookie, method, zone string
		utc                               bool
	}{
		{`{}`, "", "GET", "UTC", true},
		{`{}`, "", "POST", "UTC", false},
		{`{}`, "Nowhere", "GET", "UTC", true},
		{`{}`, "UTC", "GET", "UTC", false},
		{`{}`, "Europe/Berlin", "GET", "Europe/Berlin", false},
		{`{"time_zone":"Asia/Tokyo"}`, "", "GET", "Asia/Tokyo", false},
		{`{"time_zone":"Asia/Tokyo"}`, "Europe/Berlin", "GET", "Asia/Tokyo", false},
		{`{"time_zone":""}`, "Europe/Berlin", "GET", "Europe/Berlin", false},
		{`{"time_zone":"Nowhere"}`, "Europe/Berlin", "GET", "Europe/Berlin", false},
		{`[]`, "Europe/Berlin", "GET", "Europe/Berlin", false},
	} {
		h.Prefer(h.Admin, tt.preferences)
		r := httptest.NewRequest(tt.method, "/test/zone", nil)
		if tt.cookie != "" {
			r.AddCookie(&http.Cookie{Name: "kickstand-zone", Value: tt.cookie})
		}
		if utc := strings.Contains(b.Do(r).Body.String(), " data-utc>"); zone != tt.zone || utc != tt.utc {
			t.Errorf("%+v: got zone %s, marked: %t", tt, zone, utc)
		}
	}
}

// TestLook checks the attributes by which style sheets know the theme and the density.
func TestLook(t *testing.T) {
	h, _ := newTestPages(t)
	b := h.SignIn(h.Admin)
	for _, tt := range []struct{ preferences, theme, density, scheme string }{
		{`{}`, "", "", "light dark"},
		{`{"theme":"system","density":"comfortable"}`, "", "", "light dark"},
		{`{"theme":"dark","density":"compact"}`, "dark", "compact", "dark"},
		{`{"theme":"light"}`, "light", "", "light"},
		{`{"theme":"\" onload=","density":7}`, "", "", "light dark"},
	} {
		h.Prefer(h.Admin, tt.preferences)
		d := b.Page("/test/page")
		root, scheme := d.All("html")[0], d.WithAttr("name", "color-scheme")[0]
		if webtest.Attr(root, "data-theme") != tt.theme || webtest.Attr(root, "data-density") != tt.density || webtest.Attr(scheme, "content") != tt.scheme {
			t.Errorf("%s: got %v, %v", tt.preferences, root.Attr, scheme.Attr)
		}
	}
}

// TestDateForms checks all forms of a time.
func TestDateForms(t *testing.T) {
	now := time.Date(2026, 3, 29, 18, 30, 0, 0, time.UTC)
	thisYear, before := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC), time.Date(2025, 1, 2, 0, 4, 5, 0, time.UTC)
	for _, tt := range []struct{ form, clock, when, day, ago, exact, old, long string }{
		{"2 Jan 2006", "24h", "2 Jan 2026, 15:04", "Fri 2 Jan", "2 Jan", "Fri 2 Jan 2026, 15:04:05 UTC", "2 Jan 2025", "Fri 2 Jan 2026"},
		{"02.01.2006", "24h", "02.01.2026, 15:04", "Fri 02.01.", "02.01.", "Fri 02.01.2026, 15:04:05 UTC", "02.01.2025", "Fri 02.01.2026"},
		{"01/02/2006", "12h", "01/02/2026, 3:04 PM", "Fri 01/02", "01/02", "Fri 01/02/2026, 3:04:05 PM UTC", "01/02/2025", "Fri 01/02/2026"},
		{"2006-01-02", "12h", "2026-01-02, 3:04 PM", "Fri 2026-01-02", "2026-01-02", "Fri 2026-01-02, 3:04:05 PM UTC", "2025-01-02", "Fri 2026-01-02"},
	} {
		r := &web.Request{Now: now, Preferences: account.Preferences{DateForm: tt.form, Clock: tt.clock}}
		got, old := r.Time(thisYear), r.Time(before)
		if got.When() != tt.when || got.Day() != tt.day || got.Ago() != tt.ago || got.Exact() != tt.exact || old.Day() != tt.old || old.Ago() != tt.old ||
			r.LongDate(thisYear) != tt.long || r.ShortDate(thisYear) != tt.ago || r.Date(before) != tt.old {
			t.Errorf("%s: got %q, %q, %q, %q, %q, %q", tt.form, got.When(), got.Day(), got.Ago(), got.Exact(), old.Day(), r.LongDate(thisYear))
		}
		if midnight := old.Clock(); (midnight == "12:04 AM") != (tt.clock == "12h") {
			t.Errorf("%s: got clock %q", tt.form, midnight)
		}
	}
}

func TestTimes(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 29, 0, 30, 0, 0, berlin)
	r := &web.Request{Now: now}
	for _, tt := range []struct {
		at                    time.Time
		when, day, ago, clock string
	}{
		{now, "29 Mar 2026, 00:30", "Today", "now", "00:30"},
		{now.Add(-59 * time.Second), "29 Mar 2026, 00:29", "Today", "now", "00:29"},
		{now.Add(-time.Minute), "29 Mar 2026, 00:29", "Today", "1 min", "00:29"},
		{now.Add(-time.Hour), "28 Mar 2026, 23:30", "Yesterday", "1 h", "23:30"},
		{now.Add(-49 * time.Hour), "26 Mar 2026, 23:30", "Thu 26 Mar", "2 d", "23:30"},
		{now.Add(2 * time.Hour), "29 Mar 2026, 03:30", "Today", "in 2 h", "03:30"}, // daylight saving time begins
		{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), "2 Jan 2026, 04:04", "Fri 2 Jan", "2 Jan", "04:04"},
		{time.Date(2025, 12, 31, 23, 30, 0, 0, time.UTC), "1 Jan 2026, 00:30", "Thu 1 Jan", "1 Jan", "00:30"},
		{time.Date(2025, 7, 1, 12, 0, 0, 0, time.UTC), "1 Jul 2025, 14:00", "1 Jul 2025", "1 Jul 2025", "14:00"},
	} {
		got := r.Time(tt.at)
		if got.When() != tt.when || got.Day() != tt.day || got.Ago() != tt.ago || got.Clock() != tt.clock {
			t.Errorf("%v: got %q, %q, %q, %q", tt.at, got.When(), got.Day(), got.Ago(), got.Clock())
		}
	}
	got := r.Time(time.Date(2026, 7, 1, 8, 42, 7, 0, time.UTC))
	if got.Exact() != "Wed 1 Jul 2026, 10:42:07 CEST" || got.Machine() != "2026-07-01T08:42:07Z" || got.IsZero() || !r.Time(time.Time{}).IsZero() {
		t.Errorf("got %q, %q", got.Exact(), got.Machine())
	}
}

func TestFields(t *testing.T) {
	fresh := func() web.Fields {
		return web.Fields{{Name: "name", Label: "Name"}, {Name: "password", Label: "Password", Type: "password"}}
	}
	var v problem.Validation
	v.Add("password", "is too short")
	v.Add("password", "is too common")
	v.Add("planTier", "must be one of them")
	for _, tt := range []struct {
		err            error
		taken          bool
		name, password string
	}{
		{v.Err(), true, "Name must be one of them.", "Password is too short."},
		{problem.New(problem.Invalid, "it will not do"), true, "It will not do.", ""},
		{problem.New(problem.Conflict, "élan is taken!"), true, "Élan is taken!", ""},
		{problem.New(problem.Conflict, "ada@example.com is a member"), true, "ada@example.com is a member.", ""},
		{problem.New(problem.Precondition, ""), true, "", ""},
		{problem.New(problem.TooLarge, "it is too much?"), true, "It is too much?", ""},
		{problem.New(problem.NotFound, "there is none"), false, "", ""},
		{problem.New(problem.Unavailable, "later"), false, "", ""},
		{errors.New("x"), false, "", ""},
	} {
		fs := fresh()
		if taken := fs.Refused(tt.err); taken != tt.taken || fs[0].Error != tt.name || fs[1].Error != tt.password {
			t.Errorf("%v: got %t, %q, %q", tt.err, taken, fs[0].Error, fs[1].Error)
		}
	}
	if (web.Fields{}).Refused(problem.New(problem.Conflict, "x")) {
		t.Error("a form without fields shows an error")
	}
	fs := fresh()
	fs.Fill(url.Values{"name": {"Ada"}, "password": {"secret"}})
	if fs.Field("name").Value != "Ada" || fs.Field("password").Value != "" || fs.Field("other") != nil {
		t.Errorf("got %+v", fs)
	}
}

// TestPushWorker: the service worker is a script at a path above all pages, and is asked for again.
func TestPushWorker(t *testing.T) {
	h, _ := newTestPages(t)
	w := h.SignIn(h.Agent).Get("/push-worker.js")
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/javascript; charset=utf-8" || w.Header().Get("Cache-Control") != "no-cache" || !strings.Contains(w.Body.String(), "showNotification") {
		t.Errorf("answered %d %v\n%s", w.Code, w.Header(), w.Body)
	}
}

// TestUnreadIcon: the icon of a page shows whether there are unread notices.
func TestUnreadIcon(t *testing.T) {
	h, _ := newTestPages(t)
	unread := 0
	h.Site.CountNotices(func(context.Context, string, string) (int, error) { return unread, nil })
	b := h.SignIn(h.Agent)
	for _, test := range []struct {
		unread     int
		icon, head string
	}{{0, "favicon.svg", "A <room>"}, {3, "unread.svg", "(3) A <room>"}} {
		unread = test.unread
		d := b.Page("/test/page")
		icon := webtest.Attr(d.WithAttr("rel", "icon")[0], "href")
		if title := webtest.Text(d.All("title")[0]); !strings.HasSuffix(icon, "/"+test.icon) || !strings.HasPrefix(title, test.head) {
			t.Errorf("with %d unread: %s, %q", test.unread, icon, title)
		}
		if w := b.Get(icon); w.Code != http.StatusOK || w.Header().Get("Content-Type") != "image/svg+xml" {
			t.Errorf("%s: %d", icon, w.Code)
		}
	}
}
