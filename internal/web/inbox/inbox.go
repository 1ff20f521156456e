// Package inbox serves the dashboard's pages for tickets and customers: lists of tickets,
// a ticket with its thread, and customers.
//
// A list of tickets is a [view], built in or saved, with an address of its own: its [place]. A
// ticket's page shows the list from which it was opened; "in" in its query names that view.
package inbox

import (
	"context"
	"embed"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/cache"
	"github.com/kickstand-dev/kickstand/internal/call"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/live"
	"github.com/kickstand-dev/kickstand/internal/remoteimage"
	"github.com/kickstand-dev/kickstand/internal/search"
	"github.com/kickstand-dev/kickstand/internal/shop"
	"github.com/kickstand-dev/kickstand/internal/web"
)

//go:embed all:templates
var templates embed.FS

// Config configures [Register].
type Config struct {
	DB       *db.DB
	Accounts *account.Service
	Desk     *desk.Service
	// Optional sources for the customer panel.
	Connections *connection.Service
	Shop        *shop.Service
	Calls       *call.Service
	Live        *live.Hub
	Keys        *apikey.Service // nil: changes do not name API keys
	Pictures    *remoteimage.Service
	Search      *search.Service // nil: no search over all records
	// AgentTyping is called repeatedly while a member writes a reply; nil: no reports. It may
	// take a few seconds.
	AgentTyping func(ctx context.Context, t *desk.Ticket, name string)
	// Fleet is the production fleet, on FleetDB.
	Fleet   *fleet.Service
	FleetDB *db.DB
}

type pages struct {
	*web.Section
	Config
	presence  presence
	submitted *cache.Cache[string, struct{}] // keys of recent forms, to reject repeated ones
}

// Register adds the inbox, tickets and customers to a site.
func Register(s *web.Site, c Config) {
	p := &pages{Section: s.Section(templates, "inbox.css", "ticket.css"), Config: c, submitted: cache.New[string, struct{}](10_000, 10*time.Minute)}
	p.handleLists()
	p.handleSearch()
	p.handleViews()
	p.handleCustomers()
	p.handleTickets()
	p.handleNotices()
	s.CountNotices(p.countNotices)
}
