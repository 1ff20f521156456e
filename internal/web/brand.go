package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// brandPath is the folder of logos and of style sheets with the color of an organization. A file depends
// on nothing but its name, so it never changes.
const brandPath = account.LogoPath

// brand is how an organization looks on a page outside of the dashboard.
type brand struct {
	Site          string // the organization's name in place of Kickstand; empty: Kickstand
	Name          string // of the organization, the alternative text of the logo
	Sheet         string // path of the style sheet with its color; empty: none
	Logo          string // path; empty: none
	Width, Height int    // of the logo, in CSS pixels
}

func newBrand(site, name string, a account.Accent, l account.Logo) *brand {
	b := &brand{Site: site, Name: name, Sheet: brandSheet(a), Logo: l.Path()}
	b.Width, b.Height = l.Size()
	return b
}

// defaultBrand returns the brand of pages about no organization.
func (s *Site) defaultBrand(ctx context.Context) *brand {
	if s.siteBrand != nil {
		if o, ok := s.siteBrand(ctx); ok {
			return newBrand(o.Name, o.Name, o.Accent, o.Logo)
		}
	}
	return new(brand)
}

// brandOf returns the brand of a page that only the user with an e-mail address sees: that of their
// organization; nil: none. A page does not fail for it.
func (s *Site) brandOf(ctx context.Context, email string) *brand {
	o, err := s.accounts.OrganizationOf(ctx, email)
	if err != nil {
		if problem.Of(err) != problem.NotFound {
			s.log.WarnContext(ctx, "brand not found", "error", err)
		}
		return nil
	}
	if o.Accent == "" && o.Logo == "" {
		return nil
	}
	return newBrand("", o.Name, o.Accent, o.Logo)
}

// brandSheet returns the path of the style sheet of a color; empty for none.
func brandSheet(a account.Accent) string {
	if a == "" {
		return ""
	}
	return brandPath + strings.TrimPrefix(string(a), "#") + ".css"
}

// brand serves the style sheet of a color, or a logo. The content security policy of pages allows no inline
// style.
func (s *Site) brand(w http.ResponseWriter, r *http.Request) {
	file := r.PathValue("file")
	if l, ok := account.ParseLogo(file); ok {
		s.logo(w, r, l)
		return
	}
	name, found := strings.CutSuffix(file, ".css")
	a, err := account.ParseAccent("#" + name)
	if err != nil || !found || brandSheet(a) != r.URL.Path {
		s.notFound(w, r)
		return
	}
	setBrandHeader(w, "text/css; charset=utf-8")
	w.Write([]byte(":root{--accent:light-dark(" + string(a) + "," + string(a.Dark()) + ")}\n"))
}

// logo serves a logo, also to mail programs.
func (s *Site) logo(w http.ResponseWriter, r *http.Request, l account.Logo) {
	content, err := s.accounts.LogoContent(r.Context(), l)
	switch {
	case problem.Of(err) == problem.NotFound:
		s.notFound(w, r)
	case err != nil:
		s.fail(w, r, err)
	default:
		setBrandHeader(w, "image/png")
		w.Write(content)
	}
}

func setBrandHeader(w http.ResponseWriter, contentType string) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
}
