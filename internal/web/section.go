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

// Redirect targets for users without a session or without an organization.
const (
	SignInPath  = "/sign-in"
	WelcomePath = "/welcome"
)

// Section is a part of the dashboard: pages with the sidebar, for signed-in users.
type Section struct {
	site      *Site
	styles    []string
	templates templates
}

// Request is an authenticated request.
type Request struct {
	*http.Request
	account.Identity
	Organization account.Organization // zero on pages with [Route.WithoutOrganization] for users without one
	Preferences  account.Preferences  // of the user
	Now          time.Time            // in the user's time zone
	Client       account.Client       // the user agent and IP address

	liveMark   string                                              // the live mark before the page's first query
	zoneKnown  bool                                                // the zone of Now is the user's; otherwise it is UTC
	isOperator func(ctx context.Context, by account.Identity) bool // nil: nobody
}

// Admin reports whether the user is an admin of the organization.
func (r *Request) Admin() bool { return r.Role == account.Admin }

// Viewed reports whether the user sees the page that is requested: not so if a browser fetches it ahead.
func (r *Request) Viewed() bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Purpose") == ""
}

// Operator reports whether the user sees and changes the settings of the deployment.
func (r *Request) Operator() bool {
	return r.isOperator != nil && r.isOperator(r.Context(), r.Identity)
}

// Handler handles a request. It returns an error only if it has written nothing: a
// [problem.Error] is rendered with its message, any other error with an id under which it
// is logged.
type Handler func(w http.ResponseWriter, r *Request) error

// Route is the handlers of a path and their access rules.
type Route struct {
	Get                 Handler // nil: none
	Post                Handler // nil: none
	Admin               bool    // admins only
	WithoutOrganization bool    // also users without an organization

	// Proof requires a fresh proof of identity for the form. Forms below /settings
	// require one unless Routine is set.
	Proof, Routine bool
	// Enrol admits sessions without the second factor that the organization requires.
	Enrol bool
}

// Section returns a section with the templates of files: each file in its folder
// "templates" defines "body" for one page. Files that begin with "_" define shared
// templates, in addition to those of this package. styles names the section's sheets of
// static/css beside the common one. Templates are parsed on first use; see
// [Site.ParseTemplates].
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

// templates maps page names to their templates. They are parsed on first use: parsed,
// they would be most of an idle server's memory.
type templates map[string]func() *template.Template

func (ts templates) add(name string, parse func() *template.Template) {
	ts[name] = sync.OnceValue(parse)
}

// execute executes the template name of a page. It panics if the page's templates don't
// parse.
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

// ParseTemplates parses the templates of all pages now. It panics on an invalid one.
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

// Handle registers the handlers of a path, which may have wildcards of [http.ServeMux]
// but no method.
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
	// One pattern per method: a pattern without a method would conflict with that of
	// another page, such as "/tickets/new" with "GET /tickets/{number}".
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		if !slices.Contains(allow, method) {
			a.site.mux.HandleFunc(method+" "+path, a.site.notAllowed(strings.Join(allow, ", ")))
		}
	}
}

// serve authenticates and authorizes the request and calls the handler.
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
		err = problem.New(problem.Forbidden, "Only admins of %s can open this page.", req.Organization.Name)
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

// identify returns the authenticated request. The error is Unauthorized without a
// session, or that of [account.Identity.Restricted].
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
	req := &Request{Request: r.WithContext(ctx), Identity: id, Preferences: account.ReadPreferences(id.User.Preferences), Client: s.gate.Client(r), isOperator: s.isOperator}
	zone, known := readerZone(r, &req.Preferences)
	req.Now, req.zoneKnown = s.accounts.Now().In(zone), known
	if id.OrganizationID != "" {
		if s.live != nil && !id.NeedsSecondFactor {
			req.liveMark = s.live.Version(id.OrganizationID)
		}
		if req.Organization, err = s.accounts.Organization(ctx, id.OrganizationID); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// redirectToSignIn redirects GET requests to sign-in and back. POST requests get 401 and
// a message that nothing was changed.
func (s *Site) redirectToSignIn(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		s.renderMessage(w, r, http.StatusUnauthorized, "Sign in first", messagePage{
			Text: "Your session has ended. Nothing was changed.", Next: "Sign in, go back and submit the form again.",
			Path: SignInPath, Label: "Sign in",
		})
		return
	}
	seeOther(w, SignInPath+"?next="+url.QueryEscape(r.URL.RequestURI()))
}

// Page is the data of a dashboard page.
type Page struct {
	Title   string
	At      string    // path of the current item of the sidebar: "/inbox"
	Views   []NavItem // its subitems
	Class   string    // of main: "panes" for a page that scrolls in panes, "lists" for a wide table
	Scripts []string  // modules of static/js beside app.js
	Sheets  []string  // of static/css; nil: those of the section
	Status  int       // 0: 200
	Fields  Fields    // of its form; the errors are listed above it
	Body    any       // read by its template as .Body

	// Sandbox marks fleet pages that show sandbox data. Other is the path of the same
	// page in the other environment.
	Sandbox bool
	Other   string

	// Secret marks a page that shows a secret. Neither this server nor a proxy may
	// compress it: its length would leak information (BREACH).
	Secret bool
}

// NavItem is a link in the sidebar.
type NavItem struct {
	Path    string
	Label   string
	Icon    string
	Count   string // empty: none
	Present bool
	Under   []NavItem
}

// frame is the data of the dashboard's layout.
type frame struct {
	Page
	Request  *Request
	Styles   []string
	Sidebar  []NavItem
	Notice   *Notice
	LiveMark string // see live.Hub.Mark
	Theme    string // of the preferences; empty: the system's
	Density  string // of the preferences; empty: comfortable
	InUTC    bool   // the browser's zone is unknown, and the browser can get the page again
	Unread   string // number of the member's unread notices; empty: none
}

// CountNotices sets the function that counts a member's unread notices, for the sidebar and the
// titles of all pages.
func (s *Site) CountNotices(count func(ctx context.Context, organizationID, userID string) (int, error)) {
	s.countNotices = count
}

// unreadNotices returns the number of the reader's unread notices; empty: none. A page shows
// without it if it cannot be read.
func (s *Site) unreadNotices(r *Request) string {
	if s.countNotices == nil || r.OrganizationID == "" {
		return ""
	}
	n, err := s.countNotices(r.Context(), r.OrganizationID, r.UserID)
	switch {
	case err != nil:
		s.log.WarnContext(r.Context(), "unread notices not counted", "error", err)
		return ""
	case n == 0:
		return ""
	case n > 99:
		return "99+"
	}
	return strconv.Itoa(n)
}

// Render renders the page with the template name.
func (a *Section) Render(w http.ResponseWriter, r *Request, name string, p Page) error {
	unread := a.site.unreadNotices(r)
	f := &frame{
		Page: p, Request: r, InUTC: !r.zoneKnown && r.Method == http.MethodGet, Styles: a.styles, Sidebar: sidebar(p, unread), Notice: a.site.popNotice(w, r.Request), LiveMark: r.liveMark,
		Unread: unread,
	}
	if p.Sheets != nil {
		f.Styles = p.Sheets
	}
	if theme := r.Preferences.Theme; theme != account.ThemeSystem {
		f.Theme = theme
	}
	if density := r.Preferences.Density; density != account.DensityComfortable {
		f.Density = density
	}
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

// Fragment renders the template part of a page without the layout, for scripts that
// insert it into the page.
func (a *Section) Fragment(w http.ResponseWriter, page, part string, data any) error {
	body, err := a.templates.execute(page, part, data)
	if err != nil {
		return err
	}
	send(w, http.StatusOK, body, appPolicy, "strict-origin", noStore)
	return nil
}

// fail renders an error inside the dashboard.
func (a *Section) fail(w http.ResponseWriter, r *Request, err error) {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok {
		a.site.fail(w, r.Request, err)
		return
	}
	status, title := http.StatusUnprocessableEntity, "Action failed"
	m := messagePage{Text: Sentence(p.Message), Path: "/inbox", Label: "Go to inbox"}
	switch p.Kind {
	case problem.NotFound:
		status, title = http.StatusNotFound, "Not found"
		m.Text = "This page does not exist, was deleted, or belongs to another organization."
		if id := r.PathValue("id"); id != "" && a.site.onNotFound != nil {
			a.site.onNotFound(r.Context(), r.OrganizationID, id)
		}
	case problem.Forbidden:
		status, title = http.StatusForbidden, "You don’t have access"
		audit.LogSecurityEvent(r.Context(), a.site.log, "request.refused", slog.String("page", r.Pattern))
	case problem.Conflict:
		status = http.StatusConflict
		if p.Code == problem.CodeSavedBefore {
			title = "Saved before"
		}
	case problem.TooLarge:
		status = http.StatusRequestEntityTooLarge
	case problem.RateLimited:
		status, title = http.StatusTooManyRequests, "Too many requests"
	case problem.Invalid, problem.Precondition:
		for _, issue := range p.Issues {
			m.Text += " " + issue.Path + " " + issue.Message + "."
		}
	default:
		a.site.fail(w, r.Request, err)
		return
	}
	switch {
	case p.Code == problem.CodeSavedBefore:
		m.Next = "It was not saved again."
	case r.Method == http.MethodPost:
		m.Next = "Nothing was changed."
	}
	if err := a.Render(w, r, "appmessage", Page{Title: title, Status: status, Body: m, Sandbox: strings.HasPrefix(r.URL.Path, "/sandbox/")}); err != nil {
		a.site.fail(w, r.Request, err)
	}
}

// Form returns the fields of a posted form. On an invalid request it writes the response
// and returns false.
func (a *Section) Form(w http.ResponseWriter, r *Request) (url.Values, bool) {
	return a.site.form(w, r.Request)
}

// FormUpTo is [Section.Form] with a size limit in bytes, for a page whose form is larger than
// others and needs no proof of identity.
func (a *Section) FormUpTo(w http.ResponseWriter, r *Request, limit int64) (url.Values, bool) {
	return a.site.formUpTo(w, r.Request, limit)
}

// Logger returns the site's logger, for a failure that the page mentions.
func (a *Section) Logger() *slog.Logger { return a.site.log }

// Confirm is a confirmation page for an action that cannot be undone. Its form posts to
// the page's own path, with the field "confirm" if a word must be typed.
type Confirm struct {
	Text   string // the consequences
	Type   string // a word to type, such as the record's name; empty: none
	Label  string // of the button: "Delete key"
	Cancel string // path of the link that cancels
	Safe   bool   // deletes and ends nothing

	ListTitle string
	List      []string // affected records, one per line
	Choice    *Field   // a checkbox below the list; nil: none
}

// Confirm renders the confirmation page c. p gives its navigation.
func (a *Section) Confirm(w http.ResponseWriter, r *Request, title string, p Page, c Confirm) error {
	p.Title, p.Body = title, c
	if c.Type != "" {
		p.Fields = confirmFields(c)
		if r.Method == http.MethodPost {
			p.Status = http.StatusUnprocessableEntity
			p.Fields[0].Error = "The text does not match."
		}
	}
	return a.Render(w, r, "confirm", p)
}

func confirmFields(c Confirm) Fields {
	return Fields{{Name: "confirm", Label: "Type " + c.Type + " to confirm", Type: "text", Autocomplete: "off", Focus: true}}
}

// Confirmed reports whether the word that c requires was typed. If not, render the page
// again.
func (a *Section) Confirmed(form url.Values, c Confirm) bool {
	return strings.TrimSpace(form.Get("confirm")) == strings.TrimSpace(c.Type)
}

// Notice is shown once, on the next page: the result of an action.
type Notice struct {
	Text string
	Bad  bool // the action failed
	// Undo and Fields are the path and fields of a form that reverts the action. Empty:
	// it cannot be undone.
	Undo   string            `json:",omitempty"`
	Fields map[string]string `json:",omitempty"`
}

// noticeCookie returns the name of the cookie that carries a [Notice] from a form to the
// next page. It contains an undo form, so no other host of the domain and no attacker on
// an unencrypted connection may set it: the __Host- prefix prevents both.
func (s *Site) noticeCookie() string {
	if s.secure() {
		return "__Host-kickstand-notice"
	}
	return "kickstand-notice"
}

func (s *Site) secure() bool { return s.gate != nil && s.gate.Secure }

// Redirect redirects to a path of this site, where n is shown.
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

// SignOut deletes the session cookies.
func (a *Section) SignOut(w http.ResponseWriter) { a.site.clearSession(w) }

func (s *Site) cookie(name, value string, seconds int) *http.Cookie {
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: s.secure()}
}

// popNotice returns the notice of the cookie and deletes the cookie. An invalid cookie is
// ignored.
func (s *Site) popNotice(w http.ResponseWriter, r *http.Request) *Notice {
	c, err := r.Cookie(s.noticeCookie())
	if err != nil || c.Value == "" {
		return nil
	}
	// Scripts that poll for changes must not consume the notice.
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

// local reports whether to is a path on this server.
func local(to string) bool {
	return strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") && !strings.ContainsAny(to, "\\\r\n\t")
}

// sidebar returns the items of the main navigation.
func sidebar(p Page, unread string) []NavItem {
	fleet := "/fleet"
	if p.Sandbox {
		fleet = "/sandbox/fleet"
	}
	entries := []NavItem{
		{Path: "/inbox", Label: "Inbox", Icon: "inbox"},
		{Path: "/customers", Label: "Customers", Icon: "users"},
		{Path: "/reports", Label: "Reports", Icon: "chart"},
		{Path: fleet, Label: "Fleet", Icon: "bike"},
		{Path: "/notices", Label: "Notices", Icon: "bell", Count: unread},
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

// Context returns the request's context.
func (r *Request) Context() context.Context { return r.Request.Context() }

// appPolicy is the content security policy of the dashboard: own scripts, styles, media
// and event stream, and frames for HTML mails, which have a policy of their own.
const appPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// Values of Cache-Control. Pages with secrets and sign-in pages must not be compressed.
const (
	noStore   = "no-store"
	untouched = "no-store, no-transform"
)

// send writes a rendered page.
func send(w http.ResponseWriter, status int, body []byte, policy, referrer, cache string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", referrer)
	h.Set("Cache-Control", cache)
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails only if the client has disconnected
}
