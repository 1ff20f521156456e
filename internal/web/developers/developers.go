// Package developers is the part of the dashboard for who connects systems of
// their own: API keys, webhooks and what was delivered to them.
//
// All of it is for admins, as it is elsewhere (package rpc). A value that opens
// something is on the page that answers the form which made it and nowhere else:
// in no address, cookie or log. Such a form has the id of what it makes in it, so
// that sending it again makes nothing more.
package developers

import (
	"embed"
	"net/http"

	"github.com/google/uuid"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

//go:embed all:templates
var templates embed.FS

// Config is what [Register] needs.
type Config struct {
	DB       *db.DB // of the webhooks
	Keys     *apikey.Service
	Audit    *audit.Log // of DB
	Webhooks *webhook.Service
	Fleet    Fleet // production
	Sandbox  Fleet
	DeskAPI  string // where the helpdesk's API answers: "https://help.example.com/api/v1"
}

// Fleet is an environment of the fleet, whose subaccounts keys can be bound to.
type Fleet struct {
	*fleet.Service
	DB  *db.DB
	API string // where it answers
}

type pages struct {
	*web.Section
	Config
}

// Register adds the pages below /settings/keys, /settings/webhooks and
// /settings/deliveries to a site.
func Register(s *web.Site, c Config) {
	p := &pages{s.Section(templates, "developers.css"), c}
	handle := func(path string, get, post web.Handler) {
		p.Handle(path, web.Route{Get: get, Post: post, Admin: true})
	}
	routine := func(path string, get, post web.Handler) {
		p.Handle(path, web.Route{Get: get, Post: post, Admin: true, Routine: true})
	}
	handle("/settings/keys", p.keys, nil)
	handle("/settings/keys/new", p.newKey, p.createKey)
	handle("/settings/keys/says", p.keySummaryPart, nil)
	handle("/settings/keys/{id}", p.key, nil)
	handle("/settings/keys/{id}/edit", p.editKey, p.updateKey)
	handle("/settings/keys/{id}/rotate", p.confirmRotateKey, p.rotateKey)
	handle("/settings/keys/{id}/revoke", p.confirmRevokeKey, p.revokeKey)
	handle("/settings/keys/{id}/delete", p.confirmDeleteKey, p.deleteKey)

	handle("/settings/webhooks", p.webhooks, nil)
	handle("/settings/webhooks/new", p.newWebhook, p.createWebhook)
	routine("/settings/webhooks/{id}", p.webhook, p.replaySelected)
	handle("/settings/webhooks/{id}/edit", p.editWebhook, p.updateWebhook)
	routine("/settings/webhooks/{id}/state", nil, p.changeState)
	routine("/settings/webhooks/{id}/test", nil, p.testWebhook)
	handle("/settings/webhooks/{id}/secret", p.showSecretForm, p.replaceSecret)
	routine("/settings/webhooks/{id}/replay", p.showReplayForm, p.replayRange)
	handle("/settings/webhooks/{id}/delete", p.confirmDeleteWebhook, p.deleteWebhook)

	handle("/settings/deliveries/{id}", p.delivery, nil)
	routine("/settings/deliveries/{id}/replay", nil, p.replayDelivery)
}

// page is the frame of a page. path is the place in the settings it belongs to.
func page(r *web.Request, path, title string, body any) web.Page {
	return web.Page{Title: title, At: "/settings", Views: web.SettingsViews(r, path), Body: body}
}

// refused is a page whose form comes back with what is wrong.
func refused(pg web.Page) web.Page {
	pg.Status = http.StatusUnprocessableEntity
	return pg
}

// newID is what a form has that makes something.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// formID returns the id that a form has. One that is none, which no form of ours
// has, becomes another.
func formID(text string) string {
	if id, err := uuid.Parse(text); err == nil && id.String() == text {
		return text
	}
	return newID()
}

// Made is what a page shows of a value that is shown once.
type createdPage struct {
	Secret  web.Secret
	Code    web.Code // how it is used
	Summary string   // what was made; empty: the title says it
	Path    string   // where it is looked after
	Label   string   // what the link there says
	Lines   []string // what else to know
}
