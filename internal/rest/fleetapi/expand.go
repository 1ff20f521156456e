package fleetapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

// expandChunk is the number of records looked up together.
const expandChunk = 100

// expander adds the request's expansions to at most expandChunk records.
type expander func(ctx context.Context, r *rest.Request, records []rest.Document) error

// expanded answers with one record.
func expanded(ctx context.Context, r *rest.Request, record documented, expand expander) (rest.Response, error) {
	d, err := document(record)
	if err != nil {
		return rest.Response{}, err
	}
	list := []rest.Document{d}
	if err := expand(ctx, r, list); err != nil {
		return rest.Response{}, err
	}
	return rest.OK(list[0]), nil
}

// listed answers with a page of a list.
func listed(ctx context.Context, r *rest.Request, docs []fleet.Record, next *keyset.Cursor, expand expander) (rest.Response, error) {
	list := make([]rest.Document, len(docs))
	for i := range docs {
		list[i] = stored(&docs[i])
	}
	if err := expand(ctx, r, list); err != nil {
		return rest.Response{}, err
	}
	if next == nil {
		return rest.List(list, nil), nil
	}
	return rest.List(list, next), nil
}

// exported answers with all records of each.
func exported(ctx context.Context, r *rest.Request, each func(fn func(*fleet.Record) error) error, expand expander, expands bool) rest.Response {
	return rest.Export(rest.Each(func(give func(rest.Document) error) error {
		var chunk []rest.Document
		flush := func() error {
			if err := expand(ctx, r, chunk); err != nil {
				return err
			}
			for _, d := range chunk {
				if err := give(d); err != nil {
					return err
				}
			}
			chunk = chunk[:0]
			return nil
		}
		err := each(func(d *fleet.Record) error {
			if !expands {
				return give(stored(d))
			}
			kept := stored(d)
			kept.JSON = slices.Clone(kept.JSON)
			if chunk = append(chunk, kept); len(chunk) < expandChunk {
				return nil
			}
			return flush()
		})
		if err != nil {
			return err
		}
		return flush()
	}))
}

// plain expands nothing.
func plain(context.Context, *rest.Request, []rest.Document) error { return nil }

// references are the expandable ids of a record, and its subaccount.
type references struct {
	SubaccountID  string           `json:"subaccount_id"`
	CustomerID    fleet.NullString `json:"customer_id"`
	VehicleID     fleet.NullString `json:"vehicle_id"`
	PricingPlanID fleet.NullString `json:"pricing_plan_id"`
	VehicleTypeID fleet.NullString `json:"vehicle_type_id"`
	ID            fleet.NullString `json:"id"`
	CurrentRideID fleet.NullString `json:"current_ride_id"`
}

// join adds a field to the records of a list: the record referenced by id. look returns records
// by id; missing ones become null.
func join(records []rest.Document, refs []references, member string, id func(*references) fleet.NullString, look func(ids []string) (map[string][]byte, error)) error {
	var ids []string
	for i := range refs {
		if one := string(id(&refs[i])); one != "" && !slices.Contains(ids, one) {
			ids = append(ids, one)
		}
	}
	found, err := look(ids)
	if err != nil {
		return fmt.Errorf("expand %s: %w", member, err)
	}
	for i := range records {
		records[i] = records[i].With(member, found[string(id(&refs[i]))])
	}
	return nil
}

func referencesOf(records []rest.Document) ([]references, error) {
	refs := make([]references, len(records))
	for i := range records {
		if err := json.Unmarshal(records[i].JSON, &refs[i]); err != nil {
			return nil, fmt.Errorf("read a record: %w", err)
		}
	}
	return refs, nil
}

// expandRides is an [expander].
func (a *API) expandRides(ctx context.Context, r *rest.Request, records []rest.Document) error {
	if !r.Expanded("customer") && !r.Expanded("vehicle") && !r.Expanded("pricing_plan") {
		return nil
	}
	refs, err := referencesOf(records)
	if err != nil {
		return err
	}
	if r.Expanded("customer") {
		err := join(records, refs, "customer", func(f *references) fleet.NullString { return f.CustomerID }, func(ids []string) (map[string][]byte, error) {
			return texts(a.Fleet.CustomersByID(ctx, a.DB, r.Key.OrganizationID, ids))
		})
		if err != nil {
			return err
		}
	}
	if r.Expanded("vehicle") {
		err := join(records, refs, "vehicle", func(f *references) fleet.NullString { return f.VehicleID }, func(ids []string) (map[string][]byte, error) {
			return a.vehicles(ctx, r.Key.OrganizationID, ids)
		})
		if err != nil {
			return err
		}
	}
	return a.expandPlans(ctx, r, records, refs)
}

// expandVehicles is an [expander].
func (a *API) expandVehicles(ctx context.Context, r *rest.Request, records []rest.Document) error {
	if !r.Expanded("vehicle_type") && !r.Expanded("current_ride") && !r.Expanded("pricing_plan") {
		return nil
	}
	refs, err := referencesOf(records)
	if err != nil {
		return err
	}
	if r.Expanded("vehicle_type") {
		err := join(records, refs, "vehicle_type", func(f *references) fleet.NullString { return f.VehicleTypeID }, func([]string) (map[string][]byte, error) {
			return a.vehicleTypes(ctx, r.Key.OrganizationID, refs)
		})
		if err != nil {
			return err
		}
	}
	if r.Expanded("current_ride") {
		err := join(records, refs, "current_ride", func(f *references) fleet.NullString { return f.CurrentRideID }, func([]string) (map[string][]byte, error) {
			return a.openRides(ctx, r.Key.OrganizationID, refs)
		})
		if err != nil {
			return err
		}
	}
	return a.expandPlans(ctx, r, records, refs)
}

func (a *API) expandPlans(ctx context.Context, r *rest.Request, records []rest.Document, refs []references) error {
	if !r.Expanded("pricing_plan") {
		return nil
	}
	return join(records, refs, "pricing_plan", func(f *references) fleet.NullString { return f.PricingPlanID }, func(ids []string) (map[string][]byte, error) {
		found := make(map[string][]byte, len(ids))
		for _, id := range ids { // few, and cached
			p, err := a.Fleet.Plan(ctx, a.DB, r.Key.OrganizationID, id)
			if err != nil {
				if problem.Of(err) == problem.NotFound {
					continue
				}
				return nil, err
			}
			d, err := p.Record()
			if err != nil {
				return nil, err
			}
			found[id] = d.JSON
		}
		return found, nil
	})
}

func texts(docs []fleet.Record, err error) (map[string][]byte, error) {
	found := make(map[string][]byte, len(docs))
	for i := range docs {
		found[docs[i].ID] = docs[i].JSON
	}
	return found, err
}

// vehicles returns the vehicles of rides, including deleted ones.
func (a *API) vehicles(ctx context.Context, organizationID string, ids []string) (map[string][]byte, error) {
	found, err := texts(a.Fleet.VehiclesByID(ctx, a.DB, organizationID, ids))
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if found[id] != nil {
			continue
		}
		code, _, err := a.Fleet.DeletedVehicle(ctx, a.DB, organizationID, id)
		if problem.Of(err) == problem.NotFound {
			continue // deleted meanwhile; found as deleted next time
		}
		if err != nil {
			return nil, err
		}
		found[id], err = json.Marshal(struct {
			ID      string `json:"id"`
			Object  string `json:"object"`
			Code    string `json:"code"`
			Deleted bool   `json:"deleted"`
		}{id, "vehicle", code, true})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// vehicleTypes returns the types of vehicles from their subaccounts.
func (a *API) vehicleTypes(ctx context.Context, organizationID string, refs []references) (map[string][]byte, error) {
	found := map[string][]byte{}
	var read []string
	for i := range refs {
		id := refs[i].SubaccountID
		if slices.Contains(read, id) {
			continue
		}
		read = append(read, id)
		sub, err := a.Fleet.Subaccount(ctx, a.DB, organizationID, id)
		if err != nil {
			return nil, err
		}
		for _, t := range sub.VehicleTypes {
			if found[t.ID], err = json.Marshal(t); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// openRides returns the current rides of vehicles.
func (a *API) openRides(ctx context.Context, organizationID string, refs []references) (map[string][]byte, error) {
	q := fleet.RideQuery{Status: []fleet.RideStatus{fleet.Reserved, fleet.Active, fleet.Paused}, Limit: expandChunk}
	for i := range refs {
		if refs[i].CurrentRideID != "" {
			q.VehicleID = append(q.VehicleID, string(refs[i].ID))
		}
	}
	if q.VehicleID == nil {
		return nil, nil
	}
	docs, _, err := a.Fleet.ListRides(ctx, a.DB, organizationID, q)
	return texts(docs, err)
}
