package app

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/billing"
)

// catalogues returns the resources of API keys: for the helpdesk helpdesk-decisions.md 6,
// for the fleet fleet.md 2 and fleet-api.md 3.1.
func catalogues() map[apikey.ServiceName]apikey.Catalogue {
	all := []apikey.Action{apikey.Read, apikey.Create, apikey.Update, apikey.Delete}
	readCreate := []apikey.Action{apikey.Read, apikey.Create}
	readUpdate := []apikey.Action{apikey.Read, apikey.Update}
	read := []apikey.Action{apikey.Read}
	return map[apikey.ServiceName]apikey.Catalogue{
		apikey.Helpdesk: {
			Resources: []apikey.Resource{
				{Name: "tickets", Actions: all},
				{Name: "messages", Actions: readCreate},
				{Name: "customers", Actions: all},
				{Name: "webhooks", Actions: all},
				{Name: "channels", Actions: all},
				{Name: "events", Actions: readCreate}, // create means replay
				{Name: "analytics", Actions: read},
				{Name: "settings", Actions: readUpdate, Settings: true},
			},
		},
		apikey.Fleet: {
			Resources: []apikey.Resource{
				{Name: "rides", Actions: []apikey.Action{apikey.Read, apikey.Create, apikey.Update}},
				{Name: "vehicles", Actions: all},
				{Name: "customers", Actions: readUpdate},
				{Name: "pricing", Actions: readUpdate},
				{Name: "analytics", Actions: read},
				{Name: "zones", Actions: all, Unnamed: true},
				{Name: "settings", Actions: readUpdate, Settings: true},
			},
			Test: true, Subaccounts: true,
		},
	}
}

// planLimit returns the requests per minute of a key under an organization's plan.
func (a *App) planLimit(ctx context.Context, organizationID string) (int64, error) {
	o, err := a.Accounts.Organization(ctx, organizationID)
	if err != nil {
		return 0, err
	}
	return billing.KeyPlan(o.Plan).Limit(o.FleetRateLimit), nil
}
