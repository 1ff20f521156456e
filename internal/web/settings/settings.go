// Package settings is the part of the dashboard where people look after
// themselves and, if they are admins, after their organization.
//
// What only admins may do is what only they may do elsewhere (package rpc).
package settings

import (
	"embed"
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/web"
)

//go:embed all:templates
var templates embed.FS

// Config is what [Register] needs.
type Config struct {
	Accounts *account.Service
}

type pages struct {
	*web.Area
	Config
}

// Register adds the pages below /settings to a site.
func Register(s *web.Site, c Config) {
	p := &pages{s.Area(templates), c}
	p.Handle("/settings", web.Route{Get: p.index, Alone: true})
	p.Handle("/settings/sessions", web.Route{Get: p.sessions, Post: p.endSession, Alone: true})
}

// page is the frame of a page of the settings.
func page(r *web.Request, path, title string, body any) web.Page {
	return web.Page{Title: title, At: "/settings", Views: web.SettingsViews(r, path), Body: body}
}

func (p *pages) index(w http.ResponseWriter, _ *web.Request) error {
	return p.Redirect(w, "/settings/sessions", web.Notice{})
}
