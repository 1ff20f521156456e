package app

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/shop"
)

// openShop returns the service for orders and privacy requests. It follows the
// connections of shops.
func (a *App) openShop(blobs blob.Store, server mail.Sender, providers http.RoundTripper) (*shop.Service, error) {
	at := a.config.APIURLs["storefront"]
	if at != "" {
		if _, err := netguard.ParseAPIURL(strings.ReplaceAll(at, "{shop}", "acme.myshopify.com"), ""); err != nil {
			return nil, fmt.Errorf("storefront-api-url: %w", err)
		}
	}
	transport := providers
	if at == "" { // the tenant's shop domain is the API's host
		transport = netguard.NewTransport(netguard.Guard{})
	}
	s := shop.Open(shop.Config{
		DB: a.DB, Queue: a.queue, Blob: blobs, Box: a.box, Desk: shopDesk{a.Desk},
		Redactors:   []shop.Redactor{rawEvents{a}, storedEvents{a}, calls{a}},
		Connections: shopConnections{a.Connections}, Admins: admins{a.Accounts},
		Mail: server, BaseURL: a.BaseURL, HTTP: transport, APIURL: strings.TrimRight(at, "/"), Audit: a.Audit, Logger: a.log,
	})
	a.Desk.OnCustomerMove(s.MoveCustomerTx)
	a.Connections.OnChange(func(ctx context.Context, tx *db.Tx, c *connection.Connection, gone bool) error {
		return s.ConnectionChangedTx(ctx, tx, shopConnection(c), gone)
	})
	return s, nil
}

// shopDesk adapts the desk to package shop.
type shopDesk struct{ *desk.Service }

// ExportCustomer implements [shop.Desk].
func (d shopDesk) ExportCustomer(ctx context.Context, q db.Querier, organizationID, customerID string) (*shop.CustomerExport, error) {
	of, err := d.Service.ExportCustomer(ctx, q, organizationID, customerID)
	if err != nil {
		return nil, err
	}
	out := &shop.CustomerExport{Record: of.Record, Person: shop.Person{
		OrganizationID: organizationID, CustomerID: of.CustomerID, TicketIDs: of.TicketIDs, Contacts: of.Contacts,
		EventIDs: of.EventIDs, EventTicketIDs: of.EventTicketIDs,
	}}
	for _, f := range of.Files {
		name := path.Base(strings.ReplaceAll(f.Name, `\`, "/"))
		if name == "." || name == "/" || name == ".." {
			name = "attachment"
		}
		out.Files = append(out.Files, shop.File{Name: f.ID + "/" + name, BlobKey: f.BlobKey})
	}
	return out, nil
}

// rawEvents redacts the stored inbound events.
type rawEvents struct{ *App }

// RedactPerson implements [shop.Redactor].
func (k rawEvents) RedactPerson(ctx context.Context, p *shop.Person) error {
	return k.Inbound.RedactPerson(ctx, p)
}

// RedactPlace implements [shop.Redactor].
func (k rawEvents) RedactPlace(ctx context.Context, organizationID, place string) error {
	return k.Inbound.RedactPlace(ctx, organizationID, place)
}

// storedEvents redacts the events for webhooks.
type storedEvents struct{ *App }

// RedactPerson implements [shop.Redactor].
func (k storedEvents) RedactPerson(ctx context.Context, p *shop.Person) error {
	if p.CustomerID == "" {
		return nil
	}
	// The customer itself is among them, unless the person is of an earlier version.
	for _, id := range append([]string{p.CustomerID}, p.EventIDs...) {
		if err := event.Redact(ctx, k.DB, p.OrganizationID, id, append(slices.Clone(p.TicketIDs), p.EventTicketIDs...), k.Webhooks.RedactEventsTx); err != nil {
			return err
		}
	}
	return nil
}

// RedactPlace implements [shop.Redactor]. No event is about a connection alone.
func (storedEvents) RedactPlace(context.Context, string, string) error { return nil }

// calls redacts telephone calls.
type calls struct{ *App }

// RedactPerson implements [shop.Redactor].
func (k calls) RedactPerson(ctx context.Context, p *shop.Person) error {
	return k.DB.Write(ctx, func(tx *db.Tx) error {
		return k.Calls.RedactTx(ctx, tx, p.OrganizationID, append([]string{}, p.TicketIDs...), append([]string{}, p.Contacts...))
	})
}

// RedactPlace implements [shop.Redactor]. A shop's connection has no calls.
func (calls) RedactPlace(context.Context, string, string) error { return nil }

// shopConnections adapts the connections to package shop.
type shopConnections struct{ *connection.Service }

func shopConnection(c *connection.Connection) shop.Connection {
	out := shop.Connection{
		ID: c.ID, OrganizationID: c.OrganizationID, Channel: c.Channel, Address: c.Address, Enabled: c.Enabled, Proven: c.Proven(), Settings: c.Settings,
	}
	if token := c.Credentials().Get(shop.AccessToken); token != "" {
		out.Credentials = map[string]string{shop.AccessToken: token}
	}
	return out
}

// Connection implements [shop.Connections].
func (s shopConnections) Connection(ctx context.Context, id string) (shop.Connection, error) {
	c, err := s.Find(ctx, id)
	if err != nil {
		return shop.Connection{}, err
	}
	return shopConnection(&c), nil
}

// NoticeTx implements [shop.Connections].
func (s shopConnections) NoticeTx(ctx context.Context, tx *db.Tx, c *shop.Connection, text string) error {
	err := s.Service.NoticeTx(ctx, tx, c.OrganizationID, c.ID, text)
	if problem.Of(err) == problem.NotFound {
		return nil // removed concurrently
	}
	return err
}

// RetireTx implements [shop.Connections].
func (s shopConnections) RetireTx(ctx context.Context, tx *db.Tx, organizationID, id string) error {
	return s.Service.RetireTx(ctx, tx, organizationID, id)
}
