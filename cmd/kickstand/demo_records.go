package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/businesshours"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/demo"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/importer"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// demoTickets is the number of tickets with a history, beside those of [demoMessages].
const demoTickets = 185

// demoAgents are the members beside the admin. The first one works while the demo runs.
var demoAgents = []demo.Person{
	{Name: "Kim Wagner", Email: "kim@demo.example"}, {Name: "Ade Okafor", Email: "ade@demo.example"}, {Name: "Lena Brandt", Email: "lena@demo.example"},
}

// demoCredentials let connections send by the stand-in of their provider. They open nothing else.
var demoCredentials = map[string]map[string]string{
	"sms":                {"account_sid": "AC" + strings.Repeat("0", 32), "auth_token": "demo"},
	"voice":              {"api_token": "demo", "user_id": "11"},
	"chat":               {"bot_token": "demo"},
	"business-messaging": {"access_token": "demo"},
	"social-messenger":   {"access_token": "demo"},
}

// demoCompany is what the demo's tickets are about.
type demoCompany struct {
	demo.Company
	first account.User // the agent who works
}

// createMembers creates the admin and the agents.
func (c *demoCompany) createMembers(ctx context.Context, a *app.App, o account.Organization, password string) error {
	admin, err := a.Accounts.CreateUser(ctx, account.NewUser{Email: demoAdmin, Password: password, Name: "Robin Demo", Organization: o.Slug, Role: account.Admin})
	if err != nil {
		return err
	}
	c.Agents = append(c.Agents, demo.Person{Name: admin.Name, Email: admin.Email})
	for i, p := range demoAgents {
		u, err := a.Accounts.CreateUser(ctx, account.NewUser{Email: p.Email, Name: p.Name, Organization: o.Slug, Role: account.Agent})
		if err != nil {
			return err
		}
		if i == 0 {
			c.first = u
		}
		c.Agents = append(c.Agents, p)
	}
	return nil
}

// readFleet reads the newest rides of the fleet, with riders and vehicles.
func (c *demoCompany) readFleet(ctx context.Context, f app.Fleet, organizationID string) error {
	vehicles, err := demoRecords[fleet.Vehicle](func(after *keyset.Cursor) ([]fleet.Record, *keyset.Cursor, error) {
		return f.ListVehicles(ctx, f.DB, organizationID, fleet.VehicleQuery{Sort: keyset.Sort{Field: "created_at"}, After: after, Limit: 100})
	})
	if err != nil {
		return err
	}
	riders, err := demoRecords[fleet.Customer](func(after *keyset.Cursor) ([]fleet.Record, *keyset.Cursor, error) {
		return f.ListCustomers(ctx, f.DB, organizationID, fleet.CustomerQuery{Sort: keyset.Sort{Field: "created_at"}, After: after, Limit: 100})
	})
	if err != nil {
		return err
	}
	rides, err := demoRecords[fleet.Ride](func(after *keyset.Cursor) ([]fleet.Record, *keyset.Cursor, error) {
		return f.ListRides(ctx, f.DB, organizationID, fleet.RideQuery{
			Status: []fleet.RideStatus{fleet.Completed}, Sort: keyset.Sort{Field: "started_at", Descending: true}, After: after, Limit: 100,
		})
	})
	if err != nil {
		return err
	}
	for i := range rides {
		r := &rides[i]
		v := slices.IndexFunc(vehicles, func(v fleet.Vehicle) bool { return v.ID == r.VehicleID })
		p := slices.IndexFunc(riders, func(p fleet.Customer) bool { return p.ID == string(r.CustomerID) })
		if v < 0 || p < 0 || r.Price == nil || riders[p].Email == "" {
			continue
		}
		city := "berlin"
		if r.Price.Currency == "JPY" {
			city = "fukuoka"
		}
		c.Rides = append(c.Rides, demo.Ride{
			ID: r.ID, Vehicle: vehicles[v].Code, EndedAt: time.Time(r.EndedAt), Minutes: (r.DurationSeconds + 59) / 60, City: city,
			Price: web.Money(r.Price.TotalAmount, r.Price.Currency),
			Rider: demo.Person{Name: string(riders[p].Name), Email: string(riders[p].Email), Phone: string(riders[p].Phone)},
		})
	}
	return nil
}

// demoRecords reads all pages of a list.
func demoRecords[T any](page func(after *keyset.Cursor) ([]fleet.Record, *keyset.Cursor, error)) (list []T, err error) {
	err = keyset.EachPage("records", func(r *fleet.Record) error {
		var one T
		err := json.Unmarshal(r.JSON, &one)
		list = append(list, one)
		return err
	}, page)
	return list, err
}

// fillDesk writes service levels, macros and the history of tickets.
func (c *demoCompany) fillDesk(ctx context.Context, a *app.App, o account.Organization) error {
	hours := businesshours.Hours{TimeZone: c.Location.String(), Weekly: make(businesshours.Week)}
	for _, day := range []string{"mon", "tue", "wed", "thu", "fri", "sat"} {
		hours.Weekly[day] = []businesshours.Interval{{From: "08:00", To: "20:00"}}
	}
	for _, p := range []desk.SLAPolicy{
		{Priority: desk.PriorityUrgent, FirstResponseMinutes: 15, ResolutionMinutes: 240},
		{Priority: desk.PriorityHigh, FirstResponseMinutes: 60, ResolutionMinutes: 480, Hours: &hours},
		{Priority: desk.PriorityNormal, FirstResponseMinutes: 120, ResolutionMinutes: 1440, Hours: &hours},
	} {
		p.OrganizationID = o.ID
		if _, err := a.Desk.SetSLAPolicy(ctx, p); err != nil {
			return err
		}
	}
	err := a.DB.Write(ctx, func(tx *db.Tx) error {
		for _, m := range demo.Macros {
			m.OrganizationID = o.ID
			if _, err := a.Desk.CreateMacroTx(ctx, tx, m); err != nil {
				return fmt.Errorf("macro %s: %w", m.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	history := demo.History(demo.Tickets(c.Company, a.DB.Now(), demoTickets))
	_, err = a.Imports.RunReader(ctx, importer.New{OrganizationID: o.ID, Source: "demo", Name: "The last 90 days"}, history, nil)
	return err
}

// connectDemo connects the channels.
func (c *demoCompany) connectDemo(ctx context.Context, a *app.App, f demoData, organizationID string) error {
	channels := map[string]string{"sms": "sms", "voice": "voice", "chat": "chat", "business-messaging": "business_messaging", "social-messenger": "social_messenger", "email-raw": "email"}
	for _, n := range demoConnections {
		n.OrganizationID, n.ByOperator, n.Credentials = organizationID, true, demoCredentials[n.Channel]
		if n.Channel == "email-parse" {
			n.Secrets = []string{f.secrets[n.Channel]} // a key cannot be invented
		}
		if n.Channel == "api" {
			n.Credentials = map[string]string{"webhook_url": f.providers + "/app"}
		}
		made, secrets, err := a.Connections.Connect(ctx, n)
		if err != nil {
			return fmt.Errorf("connect %s: %w", n.Channel, err)
		}
		if n.Channel == "api" {
			*f.app = demoAppChannel{made.ID, secrets[0]}
		}
		if name := channels[n.Channel]; name != "" {
			c.Connections = append(c.Connections, demo.Connection{Channel: name, ID: made.ID})
		}
	}
	return nil
}

// post sends the request of a provider, signed for the public base URL, which may not be reachable
// from here.
func (f demoData) post(ctx context.Context, base, channel, event string, t *triggerCmd, mail []byte) error {
	c, err := (&triggerCmd{Channel: channel}).find()
	if err != nil {
		return err
	}
	t.APIChannel, t.APISecret = f.app.id, f.app.secret
	s := triggerRequest{ctx: ctx, base: base, secret: f.secrets[channel], event: firstNonEmpty(event, c.events[0]), file: mail}
	req, err := c.request(t, s)
	if err != nil {
		return fmt.Errorf("%s: %w", channel, err)
	}
	req.URL.Scheme, req.Host, req.URL.Host = "http", req.URL.Host, f.here
	return sendExpectingOK(req)
}
