// Package web serves the pages that people look at: HTML made on the server,
// that works without JavaScript.
//
// A page is a file: its handler, the struct that its template is executed with,
// and the template of the same name. Pages hold no rules and no SQL. A page is
// rendered completely before anything is sent, so nobody sees half of one. The
// content security policy lets a page load nothing but our own style sheet.
package web

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/shop"
)

//go:embed templates
var templateFiles embed.FS

//go:embed static/style.css
var styleSheet []byte

// Config is what [New] needs.
type Config struct {
	Accounts *account.Service
	Desk     *desk.Service
	Gate     *browser.Gate
	Billing  *billing.Service // nil: there is no checkout page
	Shop     *shop.Service    // nil: there are no archives of customers
	Places   []Place          // what the index page points at
	Logger   *slog.Logger     // nil discards
}

// Place is something that this server offers.
type Place struct {
	Path string // below the base URL
	Link bool   // whether a browser can open it
	What string // a phrase
}

type site struct {
	accounts  *account.Service
	desk      *desk.Service
	gate      *browser.Gate
	billing   *billing.Service
	shop      *shop.Service
	places    []Place
	log       *slog.Logger
	templates map[string]*template.Template
	style     string // path of the style sheet, which changes with its content
}

// New returns the handler of all pages. It answers 404 to any other path.
func New(c Config) http.Handler {
	digest := sha256.Sum256(styleSheet)
	s := &site{
		accounts:  c.Accounts,
		desk:      c.Desk,
		gate:      c.Gate,
		billing:   c.Billing,
		shop:      c.Shop,
		places:    c.Places,
		log:       c.Logger,
		templates: make(map[string]*template.Template),
		style:     "/static/style-" + hex.EncodeToString(digest[:6]) + ".css",
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	for _, name := range []string{"index", "message", "resetpassword", "invitation", "checkout"} {
		s.templates[name] = template.Must(template.ParseFS(templateFiles, "templates/layout.html", "templates/"+name+".html"))
	}

	mux := http.NewServeMux()
	s.handle(mux, "/{$}", s.index, nil)
	s.handle(mux, account.CallbackPath, s.callback, nil)
	s.handle(mux, account.ProviderCallbackPath, s.providerCallback, nil)
	s.handle(mux, account.ResetPath, s.askPassword, s.resetPassword)
	s.handle(mux, resetDonePath, s.resetDone, nil)
	s.handle(mux, account.InvitationPath, s.showInvitation, s.acceptInvitation)
	if s.billing != nil && s.billing.HasDevCheckout() {
		s.handle(mux, billing.DevCheckoutPath+"{token}", s.showCheckout, s.pay)
	}
	s.handle(mux, "/attachments/{id}", s.attachment, nil)
	if s.shop != nil {
		s.handle(mux, shop.ExportPath+"{token}", s.export, nil)
	}
	s.handle(mux, desk.SharedPath+"{id}", s.sharedFile, nil)
	mux.HandleFunc("GET "+s.style, serveStyle)
	mux.HandleFunc("/", s.notFound)
	return mux
}

// handle has one address show a page, and take the form on it when post is not
// nil. Other methods are told which there are.
func (s *site) handle(mux *http.ServeMux, path string, get, post http.HandlerFunc) {
	allow := "GET, HEAD"
	mux.HandleFunc("GET "+path, get)
	if post != nil {
		allow += ", POST"
		mux.HandleFunc("POST "+path, post)
	}
	mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allow)
		s.message(w, r, http.StatusMethodNotAllowed, "This cannot be done here", "The address is right, but the request to it is not one of "+allow+".", "")
	})
}

// page is what the layout shows around every page.
type page struct {
	Title  string
	Style  string
	Wide   bool          // more than a card with one thing to do
	Posts  bool          // there is a form on it
	Fields fields        // of the form; those in which something is wrong are told of first
	User   *account.User // nil when nobody is signed in
	Body   any           // for the page's own template
}

// render sends a page.
func (s *site) render(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	p.Style = s.style
	var body bytes.Buffer
	if err := s.templates[name].ExecuteTemplate(&body, "layout", p); err != nil {
		s.log.ErrorContext(r.Context(), "page not rendered", "page", name, "error", err)
		http.Error(w, "This page cannot be shown; the log says why.", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	if p.Posts {
		// Still never more than our origin, so no token. Under no-referrer a
		// browser posts even to where the form came from with "Origin: null";
		// over plain http, where it sends no Sec-Fetch-Site either, that is what
		// a post from another site looks like, and is refused as one.
		h.Set("Referrer-Policy", "strict-origin")
	}
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // only fails when nobody is there to see it
}

// message is a page that says what happened and what to do next.
type message struct {
	Text  string
	Next  string // empty when the link says it all
	Path  string // where the link leads
	Label string // what it says
}

// message sends one that leads to the start page.
func (s *site) message(w http.ResponseWriter, r *http.Request, status int, title, text, next string) {
	s.tell(w, r, status, title, message{text, next, "/", "To the start page"})
}

func (s *site) tell(w http.ResponseWriter, r *http.Request, status int, title string, m message) {
	s.render(w, r, status, "message", page{Title: title, Body: m})
}

// fail shows an error that has no page of its own: what may be said about it,
// or an id under which the log tells the rest.
func (s *site) fail(w http.ResponseWriter, r *http.Request, err error) {
	p, ok := errors.AsType[*problem.Error](err)
	switch {
	case ok && p.Kind == problem.Unavailable:
		s.log.WarnContext(r.Context(), "page unavailable", "path", r.URL.Path, "error", err)
		s.message(w, r, http.StatusServiceUnavailable, "Not available right now", p.Message, "Try again in a moment.")
	case r.Context().Err() != nil: // nobody is there to see it
	default:
		id := rand.Text()[:12]
		s.log.ErrorContext(r.Context(), "page failed", "id", id, "path", r.URL.Path, "error", err)
		s.message(w, r, http.StatusInternalServerError, "Something went wrong",
			"This is our fault, not yours.", "If it happens again, tell whoever runs this server the id "+id+".")
	}
}

func (s *site) notFound(w http.ResponseWriter, r *http.Request) {
	s.message(w, r, http.StatusNotFound, "Not found", "There is nothing at this address.", "")
}

// serveStyle serves the style sheet, to be kept: another one has another path.
func serveStyle(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/css; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(styleSheet)
}
