package reference

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/rest"
)

// problemPage is the page about a code.
type problemPage struct {
	Title, Style, Script string
	Code, Status, Doc    string
}

// Problems returns a handler for the pages linked from the type of a problem, everything below
// /problems/. They are the same for all APIs of an origin.
func Problems() (http.Handler, error) {
	mux := http.NewServeMux()
	const stylePath = "/problems/style.css"
	address := stylePath + "?" + digest(style) // it is cached for a year
	var all []problemPage
	for _, c := range rest.ErrorCodes() {
		page := problemPage{Title: c.Title, Style: address, Code: c.Code, Status: strconv.Itoa(c.Status), Doc: c.Doc}
		all = append(all, page)
		text, err := execute("problem", page)
		if err != nil {
			return nil, err
		}
		mux.HandleFunc("GET /problems/"+c.Code, func(w http.ResponseWriter, _ *http.Request) { serve(w, http.StatusOK, text) })
	}
	slices.SortStableFunc(all, func(a, b problemPage) int { return cmp.Compare(a.Status, b.Status) })
	text, err := execute("problems", struct {
		Title, Style, Script string
		Codes                []problemPage
	}{Title: "Problems", Style: address, Codes: all})
	if err != nil {
		return nil, err
	}
	mux.HandleFunc("GET /problems/{$}", func(w http.ResponseWriter, _ *http.Request) { serve(w, http.StatusOK, text) })
	mux.HandleFunc("GET "+stylePath, asset("text/css", style))
	mux.HandleFunc("GET /problems/", func(w http.ResponseWriter, _ *http.Request) { serve(w, http.StatusNotFound, text) })
	return mux, nil
}
