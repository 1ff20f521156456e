package fleetpages

import (
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/web"
)

// overview is what the fleet does and earns.
func (p *pages) overview(w http.ResponseWriter, r *web.Request) error {
	return p.Render(w, r, "overview", p.page(r, "", "Overview", nil))
}
