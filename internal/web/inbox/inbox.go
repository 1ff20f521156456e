// Package inbox is the part of the dashboard where messages are answered: lists of
// tickets, a ticket with what was said in it, and who the customers are.
//
// A list is a [view], which has an address of its own. Beside a ticket the list is
// shown that it was opened from: "in" in the ticket's address says which.
package inbox

import (
	"embed"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/call"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/live"
	"github.com/kickstand-dev/kickstand/internal/picture"
	"github.com/kickstand-dev/kickstand/internal/shop"
	"github.com/kickstand-dev/kickstand/internal/web"
)

//go:embed all:templates
var templates embed.FS

// Config is what [Register] needs.
type Config struct {
	DB       *db.DB
	Accounts *account.Service
	Desk     *desk.Service
	// What is known beside; nil: nothing is.
	Connections *connection.Service
	Shop        *shop.Service
	Calls       *call.Service
	Live        *live.Hub
	Pictures    *picture.Service
	// Fleet is production's, on FleetDB.
	Fleet   *fleet.Service
	FleetDB *db.DB
}

type pages struct {
	*web.Section
	Config
	presence presence
	once     submissions
}

// Register adds the inbox, tickets and customers to a site.
func Register(s *web.Site, c Config) {
	p := &pages{Section: s.Section(templates, "inbox.css", "ticket.css"), Config: c}
	p.handleLists()
	p.handleCustomers()
	p.handleTickets()
}
