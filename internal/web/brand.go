package web

import (
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
)

// brandPath is the folder of style sheets with the color of an organization. A sheet depends on nothing but
// its name, so it names no organization and never changes.
const brandPath = "/brand/"

// brandSheet returns the path of the style sheet of a color; empty for none.
func brandSheet(a account.Accent) string {
	if a == "" {
		return ""
	}
	return brandPath + strings.TrimPrefix(string(a), "#") + ".css"
}

// brand serves the style sheet of a color. The content security policy of pages allows no inline style.
func (s *Site) brand(w http.ResponseWriter, r *http.Request) {
	name, found := strings.CutSuffix(r.PathValue("sheet"), ".css")
	a, err := account.ParseAccent("#" + name)
	if err != nil || !found || brandSheet(a) != r.URL.Path {
		s.notFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/css; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Write([]byte(":root{--accent:light-dark(" + string(a) + "," + string(a.Dark()) + ")}\n"))
}
