package web

import (
	"io"
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// export serves a customer's data archive to holders of its link, which is mailed to the
// organization's admins.
func (s *Site) export(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	content, err := s.shop.OpenExport(r.Context(), r.PathValue("token"))
	if p := problem.Of(err); p == problem.NotFound {
		s.showMessage(w, r, http.StatusNotFound, "Archive not found", "The archive has expired or never existed. Links to archives work for two weeks.", "")
		return
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer content.Close()
	h.Set("Content-Type", "application/zip")
	h.Set("Content-Disposition", `attachment; filename="customer.zip"`)
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = io.Copy(w, content)
}
