package rest

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

//go:embed pages.html
var pageTemplates string

//go:embed pages.css
var pageStyle []byte

var pageTemplate = template.Must(template.New("pages").Parse(pageTemplates))

// pageOperation is an operation on the reference page.
type pageOperation struct {
	ID, Summary, Method, Path, Needs, Status string
	Doc                                      []string
	Export, GeoJSON, List                    bool
	Imports                                  []pageImport
	Parameters, Body, Answer                 []schema.FieldDoc
	Codes                                    []string
}

// pageImport is a media type that an operation accepts besides JSON.
type pageImport struct{ Type, Doc string }

type pageGroup struct {
	Tag        string
	Operations []pageOperation
}

// Reference returns a handler for the HTML reference of this API at path, and its style sheet
// below. The pages load nothing from other hosts.
func (a *API) Reference(path string) http.Handler {
	text := sync.OnceValues(func() ([]byte, error) { return a.reference(path) })
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		text, err := text()
		if err != nil {
			a.log.ErrorContext(r.Context(), "reference not rendered", "api", a.c.Title, "error", err)
			http.Error(w, "This page cannot be shown; the log says why.", http.StatusInternalServerError)
			return
		}
		servePage(w, http.StatusOK, text)
	})
	mux.HandleFunc("GET "+path+"/style.css", serveStyle)
	return mux
}

// reference renders the HTML reference of this API at path.
func (a *API) reference(path string) ([]byte, error) {
	page := struct {
		Title, Style, Base, Document string
		Description                  []string
		Groups                       []pageGroup
	}{a.c.Title, path + "/style.css", a.c.Origin + a.c.Base, a.c.Base + "/openapi.json", paragraphs(a.c.Description), nil}
	for i := range a.routes {
		rt := &a.routes[i]
		at := slices.IndexFunc(page.Groups, func(g pageGroup) bool { return g.Tag == rt.Tag })
		if at < 0 {
			at = len(page.Groups)
			page.Groups = append(page.Groups, pageGroup{Tag: rt.Tag})
		}
		page.Groups[at].Operations = append(page.Groups[at].Operations, rt.show(a.c.Base))
	}
	return render("reference", page)
}

// Problems returns a handler for the pages linked from the type of a problem, everything below
// /problems/. They are the same for all APIs of an origin.
func Problems() (http.Handler, error) {
	type shownCode struct {
		Code, Status, Title, Doc, Style string
	}
	var all []shownCode
	mux := http.NewServeMux()
	const style = "/problems/style.css"
	for _, name := range slices.Sorted(maps.Keys(errorCodes)) {
		c := errorCodes[name]
		shown := shownCode{name, strconv.Itoa(c.status), c.title, c.doc, style}
		all = append(all, shown)
		text, err := render("problem", shown)
		if err != nil {
			return nil, err
		}
		mux.HandleFunc("GET /problems/"+name, func(w http.ResponseWriter, r *http.Request) { servePage(w, http.StatusOK, text) })
	}
	slices.SortStableFunc(all, func(a, b shownCode) int { return cmp.Compare(a.Status, b.Status) })
	text, err := render("problems", struct {
		Title, Style string
		Codes        []shownCode
	}{"Problems", style, all})
	if err != nil {
		return nil, err
	}
	mux.HandleFunc("GET /problems/{$}", func(w http.ResponseWriter, r *http.Request) { servePage(w, http.StatusOK, text) })
	mux.HandleFunc("GET "+style, serveStyle)
	mux.HandleFunc("GET /problems/", func(w http.ResponseWriter, r *http.Request) { servePage(w, http.StatusNotFound, text) })
	return mux, nil
}

func render(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := pageTemplate.ExecuteTemplate(&b, name, data); err != nil {
		return nil, fmt.Errorf("page %s: %w", name, err)
	}
	return b.Bytes(), nil
}

func servePage(w http.ResponseWriter, status int, text []byte) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "public, no-cache")
	w.WriteHeader(status)
	w.Write(text)
}

func serveStyle(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "public, max-age=300")
	w.Write(pageStyle)
}

func paragraphs(s string) []string {
	var out []string
	for p := range strings.SplitSeq(s, "\n\n") {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}

// show returns the operation for the reference page.
func (rt *Route) show(base string) pageOperation {
	o := pageOperation{
		ID: rt.ID, Summary: rt.Summary, Method: rt.Method, Path: base + rt.Path, Status: strconv.Itoa(rt.success()),
		Doc: paragraphs(rt.doc()), Export: rt.Export, GeoJSON: rt.GeoJSON, List: rt.List, Codes: rt.codes(),
	}
	if rt.Needs != (Permission{}) {
		o.Needs = rt.Needs.String()
	}
	for _, p := range rt.parameters() {
		if p["in"] == "path" {
			continue
		}
		s := p["schema"].(object)
		m := schema.FieldDoc{Name: p["name"].(string), Type: s["type"].(string)}
		m.Doc, _ = p["description"].(string)
		switch example := p["example"].(type) {
		case nil:
		case []string:
			m.Example = strings.Join(example, ",")
		default:
			m.Example = fmt.Sprint(example)
		}
		if p["in"] == "header" {
			m.Note = "header"
		}
		if items, ok := s["items"].(object); ok {
			m.Type, s = "list", items
		}
		if values, ok := s["enum"].([]string); ok {
			m.Doc = schema.WithValues(m.Doc, values)
		}
		if p["required"] == true {
			m.Note = "required"
		}
		o.Parameters = append(o.Parameters, m)
	}
	if rt.Input != nil {
		o.Body = rt.Input.Describe(rt.bodyUse())
	}
	if rt.Import != nil {
		for _, t := range rt.Import.Types {
			o.Imports = append(o.Imports, pageImport{t, importDoc[t]})
		}
	}
	if rt.Output != nil {
		o.Answer = rt.Output.Describe("")
	}
	return o
}
