// Package reference serves the HTML reference of a REST API and the pages about problem types.
//
// A reference is rendered from the API's OpenAPI document, as package clientgen reads it: an
// overview with all operations, a page per tag, and a search. Each operation has its fields,
// samples in curl and in the languages of the client libraries, and the answer's example. A
// module of our own chooses the language, copies samples, and runs them in the sandbox. All of
// it can be read without JavaScript, and nothing is loaded from another host.
package reference

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/kickstand-dev/kickstand/internal/clientgen"
)

//go:embed pages.html
var templateText string

//go:embed reference.css
var style []byte

//go:embed reference.js
var script []byte

var templates = template.Must(template.New("pages").Funcs(template.FuncMap{"prose": prose}).Parse(templateText))

// prose returns a description of the document as HTML: text between backticks is code.
func prose(text string) template.HTML {
	var b strings.Builder
	for i, part := range strings.Split(text, "`") {
		part = template.HTMLEscapeString(part)
		if i%2 == 1 {
			part = "<code>" + part + "</code>"
		}
		b.WriteString(part)
	}
	return template.HTML(b.String())
}

// maxQuery bounds a search, in bytes.
const maxQuery = 100

// Config configures [New].
type Config struct {
	Path string // "/docs/fleet"; the pages are at it and below
	Name string // of the API in package clientgen: "helpdesk" or "fleet"
	Base string // path of the API: "/v1"
	Key  string // the key in samples: "sk_test_…"
	// Document returns the API's OpenAPI document.
	Document func() ([]byte, error)

	// Runs lets readers run requests with a key of theirs, for an API on the same origin that
	// serves a sandbox.
	Runs   bool
	NewKey string       // path of the form that creates a sandbox key
	Logger *slog.Logger // nil discards
}

// New returns a handler of the reference at c.Path and below. Pages are rendered on first use.
func New(c Config) http.Handler {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	open := sync.OnceValues(func() (*site, error) { return newSite(c) })
	with := func(serve func(s *site, w http.ResponseWriter, r *http.Request)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			s, err := open()
			if err != nil {
				c.Logger.ErrorContext(r.Context(), "reference not rendered", "path", c.Path, "error", err)
				http.Error(w, "This page cannot be shown; the server's log has the reason.", http.StatusInternalServerError)
				return
			}
			serve(s, w, r)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+c.Path, with((*site).serveOverview))
	mux.HandleFunc("GET "+c.Path+"/{group}", with((*site).serveGroup))
	mux.HandleFunc("GET "+c.Path+"/style.css", asset("text/css", style))
	mux.HandleFunc("GET "+c.Path+"/reference.js", asset("text/javascript", script))
	return mux
}

// site is a rendered reference.
type site struct {
	c      Config
	frame  frame
	pages  map[string][]byte // by the name of the group; "" is the overview
	search []entry
}

// frame is the part of a page that all pages have.
type frame struct {
	Name                                       string // of the API
	Title, Style, Script, Path, Current, Query string
	Runs                                       bool
	NewKey                                     string
	Languages                                  []language
	Groups                                     []group
}

func newSite(c Config) (*site, error) {
	text, err := c.Document()
	if err != nil {
		return nil, err
	}
	api, err := clientgen.ReadDocument(c.Name, text)
	if err != nil {
		return nil, err
	}
	s := &site{c: c, pages: map[string][]byte{}, frame: frame{
		Name: api.Title, Title: api.Title, Style: c.Path + "/style.css?" + digest(style), Script: c.Path + "/reference.js?" + digest(script), Path: c.Path,
		Runs: c.Runs, NewKey: c.NewKey, Languages: languages,
	}}
	v := &viewer{commonCodes(api), c, api, strings.TrimSuffix(api.Server, c.Base)}
	if s.frame.Groups, err = v.groups(); err != nil {
		return nil, err
	}
	s.search = entries(api, s.frame.Groups)
	if err := s.render(v); err != nil {
		return nil, err
	}
	return s, nil
}

// render renders the overview and the pages of all groups.
func (s *site) render(v *viewer) error {
	overview := struct {
		frame
		Base, Document string
		Description    []string
		Start          []code
		Common         []string
	}{s.frame, v.api.Server, s.c.Base + "/openapi.json", paragraphs(v.api.Doc), nil, v.common}
	var err error
	if overview.Start, err = v.samples(v.api.Operation("getKey")); err != nil {
		return err
	}
	if s.pages[""], err = execute("overview", overview); err != nil {
		return err
	}
	for _, g := range s.frame.Groups {
		page := struct {
			frame
			Group group
		}{s.frame, g}
		page.Current, page.Title = g.Name, g.Title+" – "+s.frame.Name
		if s.pages[g.Name], err = execute("group", page); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) serveOverview(w http.ResponseWriter, r *http.Request) {
	query := strings.TrimSpace(r.URL.Query().Get("q"))
	if query == "" {
		serve(w, http.StatusOK, s.pages[""])
		return
	}
	if len(query) > maxQuery {
		query = strings.ToValidUTF8(query[:maxQuery], "")
	}
	page := struct {
		frame
		Results []result
	}{s.frame, find(s.search, query)}
	page.Query = query
	text, err := execute("results", page)
	if err != nil {
		s.c.Logger.ErrorContext(r.Context(), "search results not rendered", "path", s.c.Path, "error", err)
		http.Error(w, "This page cannot be shown; the server's log has the reason.", http.StatusInternalServerError)
		return
	}
	serve(w, http.StatusOK, text)
}

func (s *site) serveGroup(w http.ResponseWriter, r *http.Request) {
	text, ok := s.pages[r.PathValue("group")]
	if !ok {
		http.Redirect(w, r, s.c.Path, http.StatusFound)
		return
	}
	serve(w, http.StatusOK, text)
}

func execute(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		return nil, fmt.Errorf("page %s: %w", name, err)
	}
	return b.Bytes(), nil
}

func serve(w http.ResponseWriter, status int, text []byte) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "public, no-cache")
	w.WriteHeader(status)
	w.Write(text)
}

// asset serves a file of the program. Its address has the digest of its content.
func asset(mediaType string, content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", mediaType+"; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		w.Write(content)
	}
}

// digest returns a short digest of content.
func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:6])
}

// paragraphs splits text at empty lines.
func paragraphs(s string) []string {
	var out []string
	for p := range strings.SplitSeq(s, "\n\n") {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}
