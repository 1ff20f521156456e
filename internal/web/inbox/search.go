package inbox

import (
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/search"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// searchPage is the body of the templates "search" and "found".
type searchPage struct {
	Search string
	Wrong  string // why nothing was searched, or which filters were ignored
	Found  []search.Result
}

// Icon is for the template.
func (searchPage) Icon(t search.Type) string {
	switch t {
	case search.Customer:
		return "user"
	case search.Message:
		return "reply"
	case search.Order:
		return "link"
	case search.Vehicle, search.Ride:
		return "bike"
	}
	return "inbox"
}

// handleSearch registers the search over records of all kinds. The command palette loads its
// results without the page around them.
func (p *pages) handleSearch() {
	if p.Search != nil {
		p.Handle("/search", web.Route{Get: p.search})
	}
}

func (p *pages) search(w http.ResponseWriter, r *web.Request) error {
	b := searchPage{Search: strings.TrimSpace(r.URL.Query().Get("q"))}
	if len([]rune(b.Search)) > search.MaxText || strings.ContainsRune(b.Search, 0) {
		b.Search = ""
	}
	if b.Search != "" {
		var err error
		var faults []string
		b.Found, err = p.Search.Find(r.Context(), r.OrganizationID, search.Query{Text: b.Search, Reader: desk.Reader{UserID: r.UserID, Zone: r.Now.Location()}, Faults: &faults})
		if b.Wrong = refusedSearch(err); b.Wrong == "" && err != nil {
			return err
		}
		b.Wrong += ignoredFilters(faults)
	}
	page := web.Page{Title: "Search", At: "/inbox", Sheets: []string{"inbox.css", "lists.css"}, Body: b}
	if b.Search != "" {
		page.Title = "Search: " + b.Search
	}
	return p.Render(w, r, "search", page)
}
