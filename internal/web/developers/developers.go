// Package developers serves the dashboard's pages for API keys, webhooks and deliveries.
//
// All pages are for admins, as in package rpc. A secret is on the page that answers the
// form which created it and nowhere else: in no address, cookie or log. Such a form
// carries the id of the record to create, so that a repeated form creates nothing.
package developers

import (
	"context"
	"embed"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/requestlog"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

//go:embed all:templates
var templates embed.FS

// Config configures [Register].
type Config struct {
	DB       *db.DB // of the webhooks
	Keys     *apikey.Service
	Requests *requestlog.Log
	Audit    *audit.Log // of DB
	Webhooks *webhook.Service
	// AllowTest counts a test of an organization's webhooks, and reports how long to wait if too many
	// were made. nil: no limit.
	AllowTest func(ctx context.Context, organizationID string) (ok bool, retryAfter time.Duration)
	Fleet     Fleet // production
	Sandbox   Fleet
	DeskAPI   string // base URL of the helpdesk's API: "https://help.example.com/api/v1"
	// SandboxReference is the path of the sandbox's reference, in which requests can be run.
	// Empty: none can.
	SandboxReference string
}

// Fleet is an environment of the fleet. Keys can be bound to its subaccounts.
type Fleet struct {
	*fleet.Service
	DB  *db.DB
	API string // base URL of its API
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
	handle("/settings/keys/summary", p.keySummaryPart, nil)
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

// page returns a page of the settings; path is its item in the navigation.
func page(r *web.Request, path, title string, body any) web.Page {
	return web.Page{Title: title, At: "/settings", Views: web.SettingsViews(r, path), Body: body}
}

// refused returns pg with the status of a refused form.
func refused(pg web.Page) web.Page {
	pg.Status = http.StatusUnprocessableEntity
	return pg
}

// newID returns the id of a record to create.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// formID returns the id in a form, or a new one if it is invalid.
func formID(text string) string {
	if id, err := uuid.Parse(text); err == nil && id.String() == text {
		return text
	}
	return newID()
}

// createdPage is the body of the page that shows a secret once.
type createdPage struct {
	Secret  web.Secret
	Code    web.Code // an example of its use
	Summary string   // of the created record; empty: the title suffices
	Path    string   // of the record's page
	Label   string   // of the link to it
	Lines   []string // further hints
	// Reference is the path of a reference in which requests can be run with the key. Empty:
	// none.
	Reference string
	Name      string // of the key, there
}
