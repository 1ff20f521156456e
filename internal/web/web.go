// Package web serves the dashboard and the pages outside of it as HTML rendered on the
// server. All pages work without JavaScript.
//
// A page of the dashboard belongs to a [Section], which a subpackage registers. It
// consists of a file with its handlers, a struct that the template reads as .Body, and
// the template of the same name. Pages hold no rules and no SQL: they show values of
// services and call a service in a transaction. A page is rendered completely before any
// byte is sent.
//
// All pages share the templates that begin with "_" (a [Field], a [Badge], a [Time],
// ...), the style sheet built from static/css, and the modules in static/js, of which
// app.js is on every page. The content security policy allows nothing else: no inline
// script, no inline style, no request to another host.
//
// An element with an id and the attribute data-live lists topics of package live
// ("ticket:ID", or "ticket" for any). The browser fetches it again when a topic changes
// and replaces the changed nodes; see static/js/live.js. Other attributes that scripts
// read: data-hotkey="r" and data-hotkey-label on an element that a key presses or
// focuses, data-dialog on a link whose page opens as a dialog, data-copy on a button that
// copies the text before it, data-send on a form that Ctrl-Enter sends, data-submit on a
// field that submits its form on change.
package web

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/account/factor"
	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/live"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/shop"
	"github.com/kickstand-dev/kickstand/internal/telemetry"
)

//go:embed all:templates
var templateFiles embed.FS

// Config configures [New].
type Config struct {
	Accounts  *account.Service
	Desk      *desk.Service
	Gate      *browser.SessionAuth
	Factors   *factor.Service  // nil: no passkeys, second factors or fresh proofs
	Billing   *billing.Service // nil: no checkout page
	Shop      *shop.Service    // nil: no customer archives
	Live      *live.Hub        // nil: no live updates
	Endpoints []Endpoint       // listed for developers on the start page
	Mailbox   string           // path of the built-in mailbox; empty: mails are sent by SMTP
	Logger    *slog.Logger     // nil discards
	// NotFound is called with the id in the path of a page that does not exist in the
	// caller's organization; another organization may have it. May be nil.
	NotFound func(ctx context.Context, organizationID, id string)
	// Brand returns the organization whose name, logo and color the pages outside of the dashboard have;
	// false: none. May be nil.
	Brand func(ctx context.Context) (account.Organization, bool)
	// IsOperator reports whether a user sees and changes the settings of the deployment. Nil: nobody.
	IsOperator func(ctx context.Context, by account.Identity) bool
}

// Endpoint is an entry in the start page's list of endpoints.
type Endpoint struct {
	Path        string // below the base URL
	Link        bool   // a browser can open it
	Description string // a phrase
}

// Site is an [http.Handler] of all pages. Sections are added before it serves; after that
// it is safe for concurrent use.
type Site struct {
	accounts  *account.Service
	desk      *desk.Service
	gate      *browser.SessionAuth
	factors   *factor.Service
	billing   *billing.Service
	shop      *shop.Service
	live      *live.Hub
	endpoints []Endpoint
	mailbox   string
	log       *slog.Logger
	mux       *http.ServeMux
	routes    []RouteInfo
	templates templates
	sections  []*Section
	assets    *assets
	streams   streams

	siteBrand    func(ctx context.Context) (account.Organization, bool) // nil: none
	isOperator   func(ctx context.Context, by account.Identity) bool    // nil: nobody
	onNotFound   func(ctx context.Context, organizationID, id string)
	countNotices func(ctx context.Context, organizationID, userID string) (int, error) // nil: none
}

// New returns a site with the pages outside of the dashboard. [Site.Section] adds the
// dashboard's. Unknown paths get 404.
func New(c Config) *Site {
	s := &Site{
		accounts:  c.Accounts,
		desk:      c.Desk,
		gate:      c.Gate,
		factors:   c.Factors,
		billing:   c.Billing,
		shop:      c.Shop,
		live:      c.Live,
		endpoints: c.Endpoints,
		mailbox:   c.Mailbox,
		log:       c.Logger,

		siteBrand:  c.Brand,
		isOperator: c.IsOperator,
		onNotFound: c.NotFound,
		mux:        http.NewServeMux(),
		templates:  make(templates),
		assets:     loadAssets(),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	for _, name := range []string{"index", "message", "signin", "sent", "link", "forgot", "welcome", "notadmitted", "resetpassword", "invitation", "checkout", "secondfactor", "proof", "newpasskey"} {
		s.templates.add(name, func() *template.Template {
			return template.Must(template.New("").Funcs(s.funcs()).ParseFS(templateFiles,
				"templates/card.html", "templates/_*.html", "templates/"+name+".html"))
		})
	}
	s.handlePages()
	return s
}

// handlePages registers the pages outside of the dashboard.
func (s *Site) handlePages() {
	s.handle("/{$}", s.index, nil)
	s.handle(SignInPath, s.showSignIn, s.signIn)
	s.handle(signUpPath, s.showSignUp, s.signUp)
	s.handle(SignInPath+"/sent", s.linkSent, nil)
	s.handle(SignInPath+"/provider", nil, s.signInWithProvider)
	if s.factors != nil {
		s.handle(secondFactorPath, s.showSecondFactor, s.completeSignIn)
		s.handle(ConfirmPath, s.showConfirm, s.submitConfirm)
	}
	if s.passkeys() {
		s.handle(passkeyPath, nil, s.signInWithPasskey)
		s.handle(newPasskeyPath, s.showNewPasskey, s.addNewPasskey)
	}
	s.handle(forgotPath, s.showForgot, s.forgot)
	s.handle(forgotPath+"/sent", s.resetSent, nil)
	s.handle(WelcomePath, s.showWelcome, s.completeSignup)
	s.handle("/sign-out", nil, s.signOut)
	s.handle(account.CallbackPath, s.callback, nil)
	s.handle(linkPath, nil, s.followLink)
	s.handle(account.ProviderCallbackPath, s.providerCallback, nil)
	s.handle(account.ResetPath, s.showReset, s.resetPassword)
	s.handle(resetDonePath, s.resetDone, nil)
	s.handle(account.InvitationPath, s.showInvitation, s.acceptInvitation)
	if s.billing != nil && s.billing.HasDevCheckout() {
		s.handle(billing.DevCheckoutPath+"{token}", s.showCheckout, s.pay)
	}
	s.handle(desk.AttachmentPath+"{id}", s.attachment, nil)
	if s.shop != nil {
		s.handle(shop.ExportPath+"{token}", s.export, nil)
	}
	s.handle("/live", s.liveEvents, nil)
	s.handle(pushWorkerPath, s.pushWorker, nil)
	s.mux.HandleFunc("GET "+brandPath+"{file}", s.brand)
	s.mux.Handle("GET "+s.assets.base, s.assets)
	s.mux.HandleFunc("/", s.notFound)
}

func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !addressable(r.URL) {
		s.notFound(w, r)
		return
	}
	defer func() { telemetry.RequestFrom(r.Context()).SetRoute("web", r.Pattern) }()
	s.mux.ServeHTTP(w, r)
}

// funcs returns the functions of templates beside those of html/template.
func (s *Site) funcs() template.FuncMap {
	return template.FuncMap{
		"asset": s.assets.path, "icon": s.assets.icon,
		"avatar": NewAvatar, "code": func(label, text string) Code { return Code{label, text} },
		"empty": newEmpty, "count": func(n any, one, other string) string { return Count(reflect.ValueOf(n).Int(), one, other) },
	}
}

// RouteInfo describes a path of a site, for tests that visit all of them.
type RouteInfo struct {
	Path        string // a pattern of [http.ServeMux], without a method
	Get, Post   bool
	InDashboard bool // a dashboard page: requires a session
	Proof       bool // its form requires a fresh proof of identity
}

// Routes returns all addresses of the site.
func (s *Site) Routes() []RouteInfo { return slices.Clone(s.routes) }

// handle registers the GET and POST handlers of a path; nil for none. Other methods get
// 405 with Allow.
func (s *Site) handle(path string, get, post http.HandlerFunc) {
	s.routes = append(s.routes, RouteInfo{Path: path, Get: get != nil, Post: post != nil})
	var allow []string
	if get != nil {
		allow = append(allow, "GET", "HEAD")
		s.mux.HandleFunc("GET "+path, get)
	}
	if post != nil {
		allow = append(allow, "POST")
		s.mux.HandleFunc("POST "+path, post)
	}
	s.mux.HandleFunc(path, s.notAllowed(strings.Join(allow, ", ")))
}

func (s *Site) notAllowed(allow string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allow)
		s.showMessage(w, r, http.StatusMethodNotAllowed, "Method not allowed", "This address accepts only "+allow+".", "")
	}
}

// page is the data of the layout around every page outside of the dashboard.
type page struct {
	Title  string
	Wide   bool    // wider than a card
	Posts  bool    // contains a form
	Script string  // a module of static/js; empty: none
	Brand  *brand  // nil: that of the site
	Fields Fields  // of the form; the errors are listed above it
	Notice *Notice // of the action before; nil: none
	Body   any     // for the page's template
}

func (s *Site) render(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	if p.Brand == nil {
		p.Brand = s.defaultBrand(r.Context())
	}
	body, err := s.templates.execute(name, "layout", p)
	if err != nil {
		s.log.ErrorContext(r.Context(), "page not rendered", "page", name, "error", err)
		http.Error(w, "This page could not be rendered. See the log.", http.StatusInternalServerError)
		return
	}
	referrer := "no-referrer"
	if p.Posts {
		// This still discloses no more than our origin, so no token. With no-referrer a
		// browser posts even a same-origin form with "Origin: null". Over plain http,
		// which has no Sec-Fetch-Site, such a request is indistinguishable from a
		// cross-site one and refused.
		referrer = "strict-origin"
	}
	policy := "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
	if p.Script != "" {
		policy += "; script-src 'self'"
	}
	send(w, status, body, policy, referrer, untouched)
}

// messagePage is the body of a page with a text and one link.
type messagePage struct {
	Text  string
	Next  string // the next step; empty if the link suffices
	Path  string // of the link
	Label string // of the link
}

// showMessage renders a message that links to the start page.
func (s *Site) showMessage(w http.ResponseWriter, r *http.Request, status int, title, text, next string) {
	s.renderMessage(w, r, status, title, messagePage{text, next, "/", "Go to start page"})
}

func (s *Site) renderMessage(w http.ResponseWriter, r *http.Request, status int, title string, m messagePage) {
	s.render(w, r, status, "message", page{Title: title, Body: m})
}

// redirectExternal sends the browser to another host after a form, by a Refresh header:
// the form-action policy would block a redirect to another origin.
func (s *Site) redirectExternal(w http.ResponseWriter, r *http.Request, title, text, to string) {
	w.Header().Set("Refresh", "0; url="+to)
	s.renderMessage(w, r, http.StatusOK, title, messagePage{Text: text, Path: to, Label: "Continue"})
}

// fail renders err: a [problem.Unavailable] with its message, any other with an id under
// which it is logged. The log has the page's pattern instead of its path, since paths
// contain tokens.
func (s *Site) fail(w http.ResponseWriter, r *http.Request, err error) {
	p, ok := errors.AsType[*problem.Error](err)
	switch {
	case ok && p.Kind == problem.Unavailable:
		s.log.DebugContext(r.Context(), "page unavailable", "page", r.Pattern, "error", err)
		s.showMessage(w, r, http.StatusServiceUnavailable, "Not available right now", p.Message, "Try again in a moment.")
	case r.Context().Err() != nil: // the client has disconnected
	default:
		id := rand.Text()[:12]
		s.log.ErrorContext(r.Context(), "page failed", "id", id, "page", r.Pattern, "error", err)
		s.showMessage(w, r, http.StatusInternalServerError, "Something went wrong",
			"An internal error occurred.", "If it happens again, send the id "+id+" to the operator of this server.")
	}
}

func (s *Site) notFound(w http.ResponseWriter, r *http.Request) {
	s.showMessage(w, r, http.StatusNotFound, "Not found", "This page does not exist.", "")
}
