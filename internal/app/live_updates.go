package app

import (
	"context"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/gbfs"
	"github.com/kickstand-dev/kickstand/internal/mds"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/remoteimage"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/deskapi"
	"github.com/kickstand-dev/kickstand/internal/rest/visitorapi"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/channels"
	"github.com/kickstand-dev/kickstand/internal/web/developers"
	"github.com/kickstand-dev/kickstand/internal/web/fleetpages"
	"github.com/kickstand-dev/kickstand/internal/web/inbox"
	"github.com/kickstand-dev/kickstand/internal/web/reports"
	"github.com/kickstand-dev/kickstand/internal/web/settings"
)

// mailboxPath is the page with stored mails, in development.
const mailboxPath = "/dev/mailbox"

// testsPerMinute bounds the tests of channels and webhooks that an organization makes on pages: each
// calls another server.
const testsPerMinute = 60

// newPages returns the site with all pages.
func (a *App) newPages(gate *browser.SessionAuth, places []web.Endpoint, live, sandbox fleetBase) *web.Site {
	mailbox := ""
	if a.mailbox != nil {
		mailbox = mailboxPath
	}
	tests := a.limiter("tests", testsPerMinute, time.Minute)
	site := web.New(web.Config{
		Accounts: a.Accounts, Desk: a.Desk, Gate: gate, Factors: a.Factors, Billing: a.Billing, Shop: a.Shop, Live: a.live, Endpoints: places, Mailbox: mailbox, Logger: a.log, NotFound: a.notFound, Brand: a.siteBrand, IsOperator: a.isOperator,
	})
	a.site = site
	inbox.Register(site, inbox.Config{
		DB: a.DB, Accounts: a.Accounts, Desk: a.Desk, Connections: a.Connections, Shop: a.Shop, Calls: a.Calls, Live: a.live, Pictures: a.pictures, Keys: a.Keys,
		Fleet: a.Fleet.Service, FleetDB: a.Fleet.DB, Search: a.search(), AgentTyping: a.reportAgentTyping,
	})
	reports.Register(site, reports.Config{Accounts: a.Accounts, Desk: a.Desk})
	const log = "/settings/audit-log"
	settings.Register(site, settings.Config{
		Accounts: a.Accounts, Factors: a.Factors, Billing: a.Billing, Desk: a.Desk, Imports: a.Imports, DB: a.DB, Keys: a.Keys, Webhooks: a.Webhooks, Quotas: a.Quotas, Push: a.Push, Logs: a.AuditLogs(),
		Server:  a.serverPages(),
		Exports: []string{a.BaseURL + deskapi.Base + log, live.String() + log, sandbox.String() + log},
	})
	channels.Register(site, channels.Config{DB: a.DB, Connections: a.Connections, Inbound: a.Inbound, Shop: a.Shop, Mailboxes: a.Mailboxes, Outbound: a.sender, BaseURL: a.BaseURL, MailHost: a.config.mailHost(), SendTrouble: a.sender.SendTrouble, TestMail: a.testMail, MailRecords: a.mailRecords, AllowTest: tests.Allow})
	developers.Register(site, developers.Config{
		DB: a.DB, Keys: a.Keys, Requests: a.Requests, Audit: a.Audit, Webhooks: a.Webhooks, AllowTest: tests.Allow, DeskAPI: a.BaseURL + deskapi.Base, SandboxReference: runnableReference(a.BaseURL, sandbox),
		Fleet:   developers.Fleet{Service: a.Fleet.Service, DB: a.Fleet.DB, API: live.String()},
		Sandbox: developers.Fleet{Service: a.Sandbox.Service, DB: a.Sandbox.DB, API: sandbox.String()},
	})
	a.mapTiles.Tileset() // a file of a server is opened before the first page
	for _, f := range []struct {
		Fleet
		api        fleetBase
		feed, data string
	}{{a.Fleet, live, gbfs.Path, mds.Path}, {a.Sandbox, sandbox, gbfs.SandboxPath, mds.SandboxPath}} {
		fleetpages.Register(site, fleetpages.Config{
			Fleet: f.Service, DB: f.DB, Log: f.Audit, Desk: a.Desk, DeskDB: a.DB, API: f.api.String(), Feed: a.BaseURL + f.feed, Tiles: a.mapTiles, Quotas: a.Quotas,
			Agencies: a.BaseURL + strings.TrimSuffix(f.data, "/"), Members: a.Accounts.Members, Once: rest.OnceTx,
		})
	}
	return site
}

// reportAgentTyping reports to the app or the visitor of a ticket's conversation that a member writes.
// It is best effort.
func (a *App) reportAgentTyping(ctx context.Context, t *desk.Ticket, name string) {
	c, ok, err := a.Desk.LastAppThread(ctx, a.DB, t)
	if err != nil || !ok {
		return
	}
	a.live.Publish(t.OrganizationID, visitorapi.AgentTopic(c.ID))
	if err := a.sender.ReportTyping(ctx, &c, name); err != nil {
		a.log.DebugContext(ctx, "a report of typing failed", "connection", c.ConnectionID, "error", err)
	}
}

// publishLiveUpdates notifies the open pages of tickets and customers in events.
func (a *App) publishLiveUpdates(events []event.Event) {
	for _, e := range events {
		if e.Data.Ticket != nil {
			a.live.PublishCoalesced(e.OrganizationID, "ticket:"+e.Data.Ticket.ID)
		}
		if e.Data.Customer != nil {
			a.live.PublishCoalesced(e.OrganizationID, "customer:"+e.Data.Customer.ID)
		}
	}
}

// openPictures returns the service that fetches remote pictures of mails.
func (a *App) openPictures(blobs blob.Store, box *seal.Box) *remoteimage.Service {
	transport := a.config.Pictures
	if transport == nil {
		transport = netguard.NewTransport(netguard.Guard{})
	}
	return remoteimage.New(remoteimage.Config{DB: a.DB, Desk: a.Desk, Blob: blobs, Box: box, Transport: transport, Logger: a.log})
}
