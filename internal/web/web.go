// Package web serves the pages that people look at: HTML made on the server,
// that works without JavaScript and is better with it.
//
// It is the kit of the dashboard and the pages outside of it. A page of the
// dashboard belongs to an [Section], which a package below this one makes: a file
// with its handlers and the struct that its template is executed with as .Body,
// and the template of the same name. Pages hold no rules and no SQL: they show
// what services return, and run a service's change in a transaction. A page is
// rendered completely before anything is sent, so nobody sees half of one.
//
// What all pages share are the templates that begin with "_" (a [Field], a [Badge],
// a [Time], ...), the style sheet made of static/css, and the modules in static/js,
// of which app.js is on every page. The content security policy lets a page load
// nothing but these: no script and no style is in a page, and no request leaves
// for another host.
//
// A part of a page that has an id and the attribute data-live with topics of
// package live ("ticket:ID", or "ticket" for any) is fetched again when one of
// them is told, and what is different in it is put in place; see static/js/live.js.
// Attributes that scripts go by, beside: data-hotkey="r" and data-hotkey-label on
// what a key presses or focuses, data-dialog on a link whose page opens as a
// dialog, data-copy on a button after what it copies, data-send on a form that
// Ctrl-Enter sends, data-submit on a field that sends its form when it changes.
package web

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
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
)

//go:embed all:templates
var templateFiles embed.FS

// Config is what [New] needs.
type Config struct {
	Accounts *account.Service
	Desk     *desk.Service
	Gate     *browser.Gate
	Factors  *factor.Service  // nil: no passkeys, no second step, and no fresh proof is asked for
	Billing  *billing.Service // nil: there is no checkout page
	Shop     *shop.Service    // nil: there are no archives of customers
	Live     *live.Hub        // nil: pages that are open hear no news
	Endpoints   []Endpoint          // what the start page points at, for developers
	Mailbox  string           // where mails are shown that are kept here; empty: they are sent
	Logger   *slog.Logger     // nil discards
	// NotFound is called with the id in the path of a page that is not there, in case
	// it is another organization's. Nil: nothing is.
	NotFound func(ctx context.Context, organizationID, id string)
}

// Endpoint is something that this server offers.
type Endpoint struct {
	Path string // below the base URL
	Link bool   // whether a browser can open it
	Description string // a phrase
}

// Site is all pages. Its areas are added before it serves; then it is safe for
// concurrent use.
type Site struct {
	accounts  *account.Service
	desk      *desk.Service
	gate      *browser.Gate
	factors   *factor.Service
	billing   *billing.Service
	shop      *shop.Service
	live      *live.Hub
	endpoints    []Endpoint
	mailbox   string
	log       *slog.Logger
	mux       *http.ServeMux
	routes    []RouteInfo
	templates templates
	sections     []*Section
	assets    *assets
	streams   streams

	onNotFound func(ctx context.Context, organizationID, id string)
}

// New returns the pages that are outside of the dashboard's frame. [Site.Section]
// adds those within. It answers 404 to any other path.
func New(c Config) *Site {
	s := &Site{
		accounts: c.Accounts,
		desk:     c.Desk,
		gate:     c.Gate,
		factors:  c.Factors,
		billing:  c.Billing,
		shop:     c.Shop,
		live:     c.Live,
		endpoints:   c.Endpoints,
		mailbox:  c.Mailbox,
		log:      c.Logger,

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
	s.mux.Handle("GET "+s.assets.base, s.assets)
	s.mux.HandleFunc("/", s.notFound)
	return s
}

// ServeHTTP implements [http.Handler].
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !addressable(r.URL) {
		s.notFound(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// funcs are what templates can call beside what html/template has.
func (s *Site) funcs() template.FuncMap {
	return template.FuncMap{
		"asset": s.assets.path, "icon": s.assets.icon,
		"avatar": NewAvatar, "code": func(label, text string) Code { return Code{label, text} },
		"empty": newEmpty,
	}
}

// RouteInfo is an address of a site, for tests that walk all of them.
type RouteInfo struct {
	Path      string // a pattern of [http.ServeMux], without a method
	Get, Post bool
	InDashboard      bool // in the frame of the dashboard, for people who are signed in
	Proof     bool // its form needs a fresh proof of identity
}

// Routes returns all addresses of the site.
func (s *Site) Routes() []RouteInfo { return slices.Clone(s.routes) }

// handle has one address show a page, unless get is nil, and take a form, unless
// post is. Other methods are told which there are.
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
		s.showMessage(w, r, http.StatusMethodNotAllowed, "This cannot be done here", "The address is right, but the request to it is not one of "+allow+".", "")
	}
}

// page is what the layout shows around every page.
type page struct {
	Title  string
	Wide   bool    // more than a card with one thing to do
	Posts  bool    // there is a form on it
	Script string  // a module of static/js; empty for none
	Fields Fields  // of the form; those in which something is wrong are told of first
	Notice *Notice // what has just happened; nil for nothing
	Body   any     // for the page's own template
}

// render sends a page.
func (s *Site) render(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	body, err := s.templates.execute(name, "layout", p)
	if err != nil {
		s.log.ErrorContext(r.Context(), "page not rendered", "page", name, "error", err)
		http.Error(w, "This page cannot be shown; the log says why.", http.StatusInternalServerError)
		return
	}
	referrer := "no-referrer"
	if p.Posts {
		// Still never more than our origin, so no token. Under no-referrer a
		// browser posts even to where the form came from with "Origin: null";
		// over plain http, where it sends no Sec-Fetch-Site either, that is what
		// a post from another site looks like, and is refused as one.
		referrer = "strict-origin"
	}
	policy := "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
	if p.Script != "" {
		policy += "; script-src 'self'"
	}
	send(w, status, body, policy, referrer, untouched)
}

// message is a page that says what happened and what to do next.
type message struct {
	Text  string
	Next  string // empty when the link says it all
	Path  string // where the link leads
	Label string // what it says
}

// showMessage sends one that leads to the start page.
func (s *Site) showMessage(w http.ResponseWriter, r *http.Request, status int, title, text, next string) {
	s.renderMessage(w, r, status, title, message{text, next, "/", "To the start page"})
}

func (s *Site) renderMessage(w http.ResponseWriter, r *http.Request, status int, title string, m message) {
	s.render(w, r, status, "message", page{Title: title, Body: m})
}

// redirectExternal sends the browser on to another host after a form. A redirect would not
// do: the policy of the page with the form lets it lead to our own origin only.
func (s *Site) redirectExternal(w http.ResponseWriter, r *http.Request, title, text, to string) {
	w.Header().Set("Refresh", "0; url="+to)
	s.renderMessage(w, r, http.StatusOK, title, message{Text: text, Path: to, Label: "Go on"})
}

// fail shows an error that has no page of its own: what may be said about it,
// or an id under which the log tells the rest. The log names the page by its
// pattern: paths hold tokens.
func (s *Site) fail(w http.ResponseWriter, r *http.Request, err error) {
	p, ok := errors.AsType[*problem.Error](err)
	switch {
	case ok && p.Kind == problem.Unavailable:
		s.log.WarnContext(r.Context(), "page unavailable", "page", r.Pattern, "error", err)
		s.showMessage(w, r, http.StatusServiceUnavailable, "Not available right now", p.Message, "Try again in a moment.")
	case r.Context().Err() != nil: // nobody is there to see it
	default:
		id := rand.Text()[:12]
		s.log.ErrorContext(r.Context(), "page failed", "id", id, "page", r.Pattern, "error", err)
		s.showMessage(w, r, http.StatusInternalServerError, "Something went wrong",
			"This is our fault, not yours.", "If it happens again, tell whoever runs this server the id "+id+".")
	}
}

func (s *Site) notFound(w http.ResponseWriter, r *http.Request) {
	s.showMessage(w, r, http.StatusNotFound, "Not found", "There is nothing at this address.", "")
}
