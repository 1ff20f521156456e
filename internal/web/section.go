package web

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Where somebody is sent who is not signed in, or belongs to no organization yet.
const (
	SignInPath  = "/sign-in"
	WelcomePath = "/welcome"
)

// Section is a part of the dashboard: pages in the frame, for who is signed in.
type Section struct {
	site      *Site
	styles    []string
	templates templates
}

// Request is a request of somebody who is signed in.
type Request struct {
	*http.Request
	account.Identity
	Organization account.Organization // zero on pages that are [Route.WithoutOrganization], for who has none
	Now          time.Time            // in the reader's zone
	Client       account.Client       // what they ask with

	liveMark string // where the organization's news was before anything was looked at
}

// Admin reports whether an admin of the organization asks.
func (r *Request) Admin() bool { return r.Role == account.Admin }

// Time is t as the reader is told it.
func (r *Request) Time(t time.Time) Time { return At(t, r.Now) }

// Handler answers a request. An error that it returns is shown as a page: a
// [problem.Error] with what it says, any other with an id under which the log
// has the rest. It must not have answered then.
type Handler func(w http.ResponseWriter, r *Request) error

// Route is what an address does.
type Route struct {
	Get   Handler // nil: there is no page
	Post  Handler // nil: there is no form
	Admin bool    // only for admins
	WithoutOrganization bool    // also for who belongs to no organization yet

	// Proof says that the form needs a fresh proof of identity. Forms below
	// /settings need one unless they are Routine.
	Proof, Routine bool
	// Enrol says that the page is also for sessions that lack a second factor which
	// the organization requires.
	Enrol bool
}

// Section returns an area whose pages are the templates of files: the folder
// "templates" has a file for each, which defines "body". Files whose names begin
// with "_" are parts that all of them may use, beside those of the kit. Styles
// are the sheets of static/css that its pages have beside the one of all. A template is
// parsed when its page is first shown; see [Site.ParseTemplates].
func (s *Site) Section(files fs.FS, styles ...string) *Section {
	a := &Section{site: s, styles: styles, templates: make(templates)}
	s.sections = append(s.sections, a)
	base := sync.OnceValue(func() *template.Template {
		t := template.Must(template.New("").Funcs(s.funcs()).ParseFS(templateFiles, "templates/app.html", "templates/_*.html"))
		if parts, _ := fs.Glob(files, "templates/_*.html"); len(parts) > 0 {
			template.Must(t.ParseFS(files, parts...))
		}
		return t
	})
	add := func(from fs.FS, name string) {
		a.templates.add(strings.TrimSuffix(path.Base(name), ".html"), func() *template.Template {
			return template.Must(template.Must(base().Clone()).ParseFS(from, name))
		})
	}
	for _, name := range []string{"appmessage", "confirm"} {
		add(templateFiles, "templates/"+name+".html")
	}
	pages, err := fs.Glob(files, "templates/[^_]*.html")
	if err != nil {
		panic(err)
	}
	for _, name := range pages {
		add(files, name)
	}
	return a
}

// templates are those of pages by name. Parsed, they take most of the memory of a
// server at rest, and few pages are shown on most days.
type templates map[string]func() *template.Template

func (ts templates) add(name string, parse func() *template.Template) {
	ts[name] = sync.OnceValue(parse)
}

// execute executes a template of the page with a name. It panics on one that cannot be
// parsed.
func (ts templates) execute(page, name string, data any) ([]byte, error) {
	parsed, ok := ts[page]
	if !ok {
		return nil, errors.New("web: no template " + page)
	}
	var body bytes.Buffer
	if err := parsed().ExecuteTemplate(&body, name, data); err != nil {
		return nil, err
	}
	return body.Bytes(), nil
}

// ParseTemplates parses the templates of all pages now. It panics on one that cannot be
// parsed.
func (s *Site) ParseTemplates() {
	all := []templates{s.templates}
	for _, a := range s.sections {
		all = append(all, a.templates)
	}
	for _, ts := range all {
		for _, parse := range ts {
			parse()
		}
	}
}

// Handle has an address answered: a path with wildcards as [http.ServeMux] takes
// them, without a method.
func (a *Section) Handle(path string, rt Route) {
	if strings.HasPrefix(path, "/settings/") && !rt.Routine {
		rt.Proof = rt.Post != nil
	}
	a.site.routes = append(a.site.routes, RouteInfo{path, rt.Get != nil, rt.Post != nil, true, rt.Proof})
	var allow []string
	add := func(method string, h Handler) {
		if h != nil {
			a.site.mux.HandleFunc(method+" "+path, func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, rt, h) })
			allow = append(allow, method)
		}
	}
	add("GET", rt.Get)
	add("POST", rt.Post)
	if rt.Get != nil {
		allow = append(allow, "HEAD")
	}
	// Method by method: a pattern for all of them would be at odds with that of
	// another page, as "/tickets/new" with "GET /tickets/{number}".
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		if !slices.Contains(allow, method) {
			a.site.mux.HandleFunc(method+" "+path, a.site.notAllowed(strings.Join(allow, ", ")))
		}
	}
}

// serve finds out who asks, whether they may, and has the handler answer.
func (a *Section) serve(w http.ResponseWriter, r *http.Request, rt Route, h Handler) {
	req, err := a.site.authenticate(w, r)
	if err != nil {
		if problem.Of(err) != problem.Unauthorized {
			a.site.fail(w, r, err)
			return
		}
		a.site.redirectToSignIn(w, r)
		return
	}
	switch {
	case req.NeedsSecondFactor && !rt.Enrol:
		a.site.restricted(w, req)
		return
	case req.OrganizationID == "" && !rt.WithoutOrganization:
		seeOther(w, WelcomePath)
		return
	case rt.Admin && !req.Admin():
		err = problem.New(problem.Forbidden, "This page is for admins of %s. Ask one of them.", req.Organization.Name)
	case rt.Proof && r.Method == http.MethodPost:
		err = a.withProof(w, req, h)
	default:
		err = h(w, req)
	}
	switch {
	case r.Method == http.MethodGet && code(err) == account.FreshProofRequired:
		seeOther(w, ConfirmPath+"?next="+url.QueryEscape(r.URL.RequestURI()))
	case err != nil:
		a.fail(w, req, err)
	}
}

// identify returns who sent r. The error is Unauthorized when nobody is signed in,
// and that of [account.Identity.Restricted].
func (s *Site) identify(w http.ResponseWriter, r *http.Request) (*Request, error) {
	req, err := s.authenticate(w, r)
	if err == nil {
		err = req.Restricted()
	}
	return req, err
}

// authenticate is identify without the check of [account.Identity.Restricted].
func (s *Site) authenticate(w http.ResponseWriter, r *http.Request) (*Request, error) {
	ctx, err := s.gate.AuthenticateRestricted(w, r)
	if err != nil {
		return nil, err
	}
	id, _ := account.FromContext(ctx)
	req := &Request{Request: r.WithContext(ctx), Identity: id, Now: time.Now().In(readerZone(r)), Client: s.gate.Client(r)}
	if id.OrganizationID != "" {
		if s.live != nil && !id.NeedsSecondFactor {
			req.liveMark = s.live.Mark(id.OrganizationID)
		}
		if req.Organization, err = s.accounts.Organization(ctx, id.OrganizationID); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// redirectToSignIn sends who asks for a page to sign in first and back, and tells who
// posts a form that nothing was changed.
func (s *Site) redirectToSignIn(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		s.renderMessage(w, r, http.StatusUnauthorized, "Sign in first", message{
			Text: "You are not signed in any more, so nothing was changed.", Next: "Sign in, go back, and send the form again.",
			Path: SignInPath, Label: "Sign in",
		})
		return
	}
	seeOther(w, SignInPath+"?next="+url.QueryEscape(r.URL.RequestURI()))
}

// Page is a page in the frame.
type Page struct {
	Title   string
	At      string   // the path of the entry of the rail where it belongs: "/inbox"
	Views   []NavItem  // what that entry has below it
	Class   string   // of main: "panes" for a page that scrolls within itself
	Scripts []string // modules of static/js beside app.js
	Status  int      // 0: 200
	Fields  Fields   // of its form; those in which something is wrong are told of first
	Body    any      // for its template, as .Body

	// Sandbox and Other are for pages of the fleet: whether what they show is the
	// sandbox's, and where the other environment has the same page.
	Sandbox bool
	Other   string

	// Secret says that the page shows a secret: it must not be compressed, here or by a
	// proxy, since its length would say something about it.
	Secret bool
}

// NavItem is a place in the rail.
type NavItem struct {
	Path    string
	Label   string
	Icon    string
	Count   string // empty for none
	Present bool
	Under   []NavItem
}

// frame is what the layout is executed with.
type frame struct {
	Page
	Request *Request
	Styles  []string
	Sidebar    []NavItem
	Notice  *Notice
	LiveMark    string // see live.Hub.Mark
}

// Render sends the page whose template has this name.
func (a *Section) Render(w http.ResponseWriter, r *Request, name string, p Page) error {
	f := frame{Page: p, Request: r, Styles: a.styles, Sidebar: sidebar(p), Notice: a.site.popNotice(w, r.Request), LiveMark: r.liveMark}
	body, err := a.templates.execute(name, "layout", f)
	if err != nil {
		return err
	}
	status := p.Status
	if status == 0 {
		status = http.StatusOK
	}
	cache := noStore
	if p.Secret {
		cache = untouched
	}
	send(w, status, body, appPolicy, "strict-origin", cache)
	return nil
}

// Fragment sends what a template named part of a page's file makes of data, without
// the frame: for scripts that put it into a page.
func (a *Section) Fragment(w http.ResponseWriter, page, part string, data any) error {
	body, err := a.templates.execute(page, part, data)
	if err != nil {
		return err
	}
	send(w, http.StatusOK, body, appPolicy, "strict-origin", noStore)
	return nil
}

// fail shows an error in the frame.
func (a *Section) fail(w http.ResponseWriter, r *Request, err error) {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok {
		a.site.fail(w, r.Request, err)
		return
	}
	status, title := http.StatusUnprocessableEntity, "This cannot be done"
	m := message{Text: sentence(p.Message), Path: "/inbox", Label: "To the inbox"}
	switch p.Kind {
	case problem.NotFound:
		status, title = http.StatusNotFound, "Not found"
		m.Text = "There is nothing at this address, or it is not your organization's, or it was deleted."
		if id := r.PathValue("id"); id != "" && a.site.onNotFound != nil {
			a.site.onNotFound(r.Context(), r.OrganizationID, id)
		}
	case problem.Forbidden:
		status, title = http.StatusForbidden, "This is not for you"
		audit.Security(r.Context(), a.site.log, "request.refused", slog.String("page", r.Pattern))
	case problem.Conflict:
		status = http.StatusConflict
	case problem.TooLarge:
		status = http.StatusRequestEntityTooLarge
	case problem.RateLimited:
		status, title = http.StatusTooManyRequests, "Too fast"
	case problem.Invalid, problem.Precondition:
		for _, issue := range p.Issues {
			m.Text += " " + issue.Path + " " + issue.Message + "."
		}
	default:
		a.site.fail(w, r.Request, err)
		return
	}
	if r.Method == http.MethodPost {
		m.Next = "Nothing was changed."
	}
	if err := a.Render(w, r, "appmessage", Page{Title: title, Status: status, Body: m, Sandbox: strings.HasPrefix(r.URL.Path, "/sandbox/")}); err != nil {
		a.site.fail(w, r.Request, err)
	}
}

// Form reads what a form of ours posts. What is none it answers, and reports
// false.
func (a *Section) Form(w http.ResponseWriter, r *Request) (url.Values, bool) {
	return a.site.form(w, r.Request)
}

// Confirm asks before something is done for good. Its page is a form that posts
// to its own address, with the field "confirm" when there is a word to type.
type Confirm struct {
	Text   string // what will happen
	Type   string // a word that must be typed, such as the name of what goes; empty: none
	Label  string // of the button: "Delete the key"
	Cancel string // where to go instead

	ListTitle string
	List      []string // records that it concerns, each in a line
	Choice    *Field   // a checkbox below the list; nil for none
}

// Confirm shows the page that asks. at and views are those of [Page].
func (a *Section) Confirm(w http.ResponseWriter, r *Request, title string, p Page, c Confirm) error {
	p.Title, p.Body = title, c
	if c.Type != "" {
		p.Fields = confirmFields(c)
		if r.Method == http.MethodPost {
			p.Status = http.StatusUnprocessableEntity
			p.Fields[0].Error = "This is not what was to be typed."
		}
	}
	return a.Render(w, r, "confirm", p)
}

func confirmFields(c Confirm) Fields {
	return Fields{{Name: "confirm", Label: "Type " + c.Type + " to confirm", Type: "text", Autocomplete: "off", Focus: true}}
}

// Confirmed reads the form of [Section.Confirm] and reports whether what was to be
// typed was; otherwise show the page again.
func (a *Section) Confirmed(form url.Values, c Confirm) bool {
	return strings.TrimSpace(form.Get("confirm")) == strings.TrimSpace(c.Type)
}

// Notice is told once on the next page: what was done.
type Notice struct {
	Text string
	Bad  bool // it was not done
	// Undo is the form that takes it back: where it is posted, and its fields.
	// Empty: there is none.
	Undo   string            `json:",omitempty"`
	Fields map[string]string `json:",omitempty"`
}

// noticeCookie names the cookie that holds a [Notice] between a form and the page
// after it. What undoes something is in it, so no other host of the domain, and
// nobody on a way that is not encrypted, may be able to set it: the prefix has
// browsers see to that.
func (s *Site) noticeCookie() string {
	if s.secure() {
		return "__Host-kickstand-notice"
	}
	return "kickstand-notice"
}

func (s *Site) secure() bool { return s.gate != nil && s.gate.Secure }

// Redirect sends the browser on after a form, to a path of ours, where it is told n.
func (a *Section) Redirect(w http.ResponseWriter, to string, n Notice) error {
	return a.site.redirect(w, to, n)
}

func (s *Site) redirect(w http.ResponseWriter, to string, n Notice) error {
	if n.Text != "" {
		text, err := json.Marshal(n)
		if err != nil {
			return err
		}
		http.SetCookie(w, s.cookie(s.noticeCookie(), base64.RawURLEncoding.EncodeToString(text), 60))
	}
	seeOther(w, to)
	return nil
}

// SignOut has the browser forget a session that has ended.
func (a *Section) SignOut(w http.ResponseWriter) { a.site.clearSession(w) }

func (s *Site) cookie(name, value string, seconds int) *http.Cookie {
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: s.secure()}
}

// popNotice returns what is to be told, once. Whatever is no such thing is
// nothing.
func (s *Site) popNotice(w http.ResponseWriter, r *http.Request) *Notice {
	c, err := r.Cookie(s.noticeCookie())
	if err != nil || c.Value == "" {
		return nil
	}
	// A page that a script fetches to look for news is not the one people read.
	if r.Header.Get("X-Live") != "" {
		return nil
	}
	http.SetCookie(w, s.cookie(s.noticeCookie(), "", -1))
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	var n Notice
	if err != nil || json.Unmarshal(text, &n) != nil || n.Text == "" || n.Undo != "" && !local(n.Undo) {
		return nil
	}
	return &n
}

// local reports whether a path leads to this server.
func local(to string) bool {
	return strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") && !strings.ContainsAny(to, "\\\r\n\t")
}

// sidebar is what is at the left of every page.
func sidebar(p Page) []NavItem {
	fleet := "/fleet"
	if p.Sandbox {
		fleet = "/sandbox/fleet"
	}
	entries := []NavItem{
		{Path: "/inbox", Label: "Inbox", Icon: "inbox"},
		{Path: "/customers", Label: "Customers", Icon: "users"},
		{Path: fleet, Label: "Fleet", Icon: "bike"},
		{Path: "/settings", Label: "Settings", Icon: "settings"},
	}
	for i := range entries {
		e := &entries[i]
		e.Present = p.At == e.Path
		if e.Present {
			e.Under = p.Views
		}
	}
	return entries
}

// Context is r's, for services.
func (r *Request) Context() context.Context { return r.Request.Context() }

// appPolicy lets a page of the frame load what is ours, frame letters, which have
// a policy of their own, and hear news.
const appPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// How pages may be kept and changed on the way. Those with secrets, and those of signing
// in, are not compressed.
const (
	noStore   = "no-store"
	untouched = "no-store, no-transform"
)

// send sends a page that was rendered.
func send(w http.ResponseWriter, status int, body []byte, policy, referrer, cache string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", referrer)
	h.Set("Cache-Control", cache)
	w.WriteHeader(status)
	_, _ = w.Write(body) // only fails when nobody is there to see it
}
