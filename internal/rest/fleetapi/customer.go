package fleetapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

var customerRecord = record("customer", "A rider. Riders sign up in the operator's app; this API neither creates nor deletes them.",
	schema.Member{Name: "name", Type: schema.String(1, 256), Access: schema.Writable, Nullable: true, Example: "Ada Example"},
	schema.Member{Name: "email", Type: schema.String(1, 254), Access: schema.Writable, Nullable: true, Example: "ada@example.com"},
	schema.Member{Name: "phone", Type: schema.String(1, 50), Access: schema.Writable, Nullable: true, Doc: "E.164.", Example: "+4930901820"},
	schema.Member{Name: "language", Type: schema.String(1, 35), Access: schema.Writable, Nullable: true, Doc: "BCP 47.", Example: "de"},
	schema.Member{Name: "status", Type: schema.Enum(customerStatuses...), Access: schema.Writable, Doc: "active or blocked. anonymised is set in the dashboard and permanent."},
	schema.Member{Name: "block_reason", Type: schema.String(1, 500), Access: schema.Writable, Nullable: true},
	schema.Member{Name: "birth_date", Type: schema.Date(), Access: schema.Writable, Nullable: true},
	schema.Member{Name: "driver_license_status", Type: schema.Enum("none", "pending", "verified", "rejected", "expired"), Access: schema.Writable, Doc: "Checked at the start of a ride if the vehicle type requires a license."},
	schema.Member{Name: "marketing_consent", Type: schema.Bool(), Access: schema.Writable},
	schema.Member{Name: "default_currency", Type: schema.Text(), Example: "EUR"},
	schema.Member{Name: "ride_count", Type: schema.Integer(), Doc: "Completed rides."},
	schema.Member{Name: "last_ride_at", Type: schema.Timestamp(), Nullable: true},
	schema.Member{Name: "open_ride_id", Type: schema.ID(), Nullable: true},
)

var customerStatuses = []string{"active", "blocked", "anonymised"}

func (a *API) customerRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/customers", ID: "listCustomers", Tag: "Customers", Summary: "List customers",
		Needs: needs("customers", apikey.Read),
		Query: []rest.Param{
			{Name: "q", Kind: rest.StringParam, Max: fleet.MaxCustomerText, Doc: "Words, each a part of the name, the address or the external id, without regard to case, accents and strokes such as in ł; phone numbers in any form, or their last digits. The newest customers are first, without sort. An exact address, number or external id finds only that. A page compares 20,000 customers: it can have fewer than limit, and next_cursor.", Example: "nunez 5678"},
			{Name: "status", Kind: rest.EnumsParam, Values: customerStatuses},
			{Name: "email", Kind: rest.StringsParam, Doc: "Case-insensitive."},
			{Name: "phone", Kind: rest.StringsParam, Doc: "As E.164; the + is written %2B."},
			{Name: "external_id", Kind: rest.StringsParam},
			{Name: "subaccount_id", Kind: rest.StringsParam},
			{Name: "created_at", Kind: rest.TimeRange},
			{Name: "updated_at", Kind: rest.TimeRange},
			{Name: "last_ride_at", Kind: rest.TimeRange},
		},
		Sort: []string{"created_at", "updated_at", "name"}, Export: true, Output: customerRecord, List: true, Handle: a.listCustomers,
	}, {
		Method: "GET", Path: "/customers/{id}", ID: "getCustomer", Tag: "Customers", Summary: "Read a customer",
		Needs: needs("customers", apikey.Read), Output: customerRecord, Handle: a.getCustomer,
	}, {
		Method: "PUT", Path: "/customers/{id}", ID: "updateCustomer", Tag: "Customers", Summary: "Change a customer",
		Needs: needs("customers", apikey.Update), Input: customerRecord, Output: customerRecord, Codes: []string{"invalid_transition", "already_exists"}, Handle: a.updateCustomer,
	}}
}

func (a *API) getCustomer(ctx context.Context, r *rest.Request) (rest.Response, error) {
	c, err := a.Fleet.Customer(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	if err := r.Within(c.SubaccountID); err != nil {
		return rest.Response{}, err
	}
	return ok(&c)
}

func (a *API) updateCustomer(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		c, err := a.Fleet.LockCustomerTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		current, err := reached(r, c.SubaccountID, &c)
		if err != nil {
			return rest.Response{}, err
		}
		var in fleet.CustomerChange
		if err := r.Update(current, &in); err != nil {
			return rest.Response{}, err
		}
		c, err = a.Fleet.UpdateCustomerTx(ctx, tx, r.Key.OrganizationID, c, in)
		if err != nil {
			return rest.Response{}, err
		}
		return changed(c.SubaccountID, &c)
	})
}
