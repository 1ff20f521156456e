// Package deskapi is the helpdesk's REST API, `/api/v1` (helpdesk.md 1 and 9,
// helpdesk-decisions.md 3 and 6): its routes and the wire format of its records. Package rest
// implements the conventions.
//
// A handler decodes, calls a service, and encodes. Each file holds a group of routes with their
// records.
package deskapi

import (
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/live"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/search"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// Base is the base path.
const Base = "/api/v1"

// Tags describes the groups of routes.
var Tags = map[string]string{
	"Tickets":        "Requests of customers: list, search, create, change, merge and split them.",
	"Timeline":       "Changes of a ticket: who made them, when and where.",
	"Followers":      "Members who are notified of the messages of a ticket.",
	"Views":          "Saved lists of tickets that the members share.",
	"Messages":       "Messages and conversations of a ticket, replies to customers, notes, and files.",
	"Search":         "Records of all kinds by one text.",
	"Customers":      "People who contact the organization.",
	"Macros":         "Saved replies with changes of tickets.",
	"Members":        "Users of the organization, to whom tickets can be assigned.",
	"Notices":        "What members are notified of.",
	"Webhooks":       "Subscriptions to events, and their deliveries.",
	"Channels":       "Addresses at which customers reach the organization, and the proofs that they are its own.",
	"Apps":           "Users of an organization's own app, on channels of the kind api: their messages, receipts, typing and identities.",
	"Inbound events": "Verified requests of the channels' providers, and their results.",
	"Events":         "Changes of tickets, messages and customers, as delivered to webhooks.",
	"Analytics":      "Figures of tickets by period and group.",
	"Settings":       "SLA policies and the audit log.",
	"API key":        "The key that is used, and its last requests.",
}

// API holds the services that the routes call.
type API struct {
	DB          *db.DB
	BaseURL     string // public address, without a trailing slash
	Desk        *desk.Service
	Webhooks    *webhook.Service
	Connections *connection.Service
	Inbound     *inbound.Service
	Accounts    *account.Service
	Keys        *apikey.Service
	Search      *search.Service
	Audit       *audit.Log
	Live        *live.Hub // nil: typing is not shown
}

// Routes returns all routes.
func (a *API) Routes() []rest.Route {
	routes := slices.Concat(
		a.ticketRoutes(), a.followerRoutes(), a.timelineRoutes(), a.viewRoutes(),
		a.messageRoutes(),
		a.customerRoutes(), a.searchRoutes(),
		a.macroRoutes(),
		a.memberRoutes(), a.noticeRoutes(),
		a.webhookRoutes(), a.deliveryRoutes(), a.channelRoutes(), a.appChannelRoutes(), a.inboundRoutes(),
		a.eventRoutes(), a.analyticsRoutes(), a.slaRoutes(),
		[]rest.Route{rest.AuditRoute(needs("settings", apikey.Read), "Security-relevant actions in the helpdesk: sign-ins, members, channels, webhooks, API keys, settings and more.", a.Audit)},
	)
	for i := range routes {
		if r := &routes[i]; strings.HasPrefix(r.Path, "/tickets/{id}") {
			r.Handle = hintNumber(r.Handle)
		}
	}
	return routes
}

// needs returns a permission.
func needs(resource string, action apikey.Action) rest.Permission {
	return rest.Permission{Resource: resource, Action: action}
}
