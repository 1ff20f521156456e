package inbox

import (
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/web"
)

// handleLists adds the lists of tickets.
func (p *pages) handleLists() {
	p.Handle("/inbox", web.Route{Get: p.list})
}

func (p *pages) list(w http.ResponseWriter, r *web.Request) error {
	return p.Render(w, r, "list", web.Page{Title: "Inbox", At: "/inbox"})
}
