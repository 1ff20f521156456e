package fleet

import (
	"context"
	"fmt"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Seed creates two cities with vehicles, customers and rides in an empty fleet. A
// fleet with only the subaccount of [Service.Provision] counts as empty; that
// subaccount is replaced. Error: Precondition if the fleet is not empty.
func (s *Service) Seed(ctx context.Context, o Organization) error {
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		a, err := s.requireEmpty(ctx, tx, o)
		if err != nil {
			return err
		}
		if err := s.seed(ctx, tx, a, o); err != nil {
			return err
		}
		return s.record(ctx, tx, o.ID, FleetSeeded, audit.Target{Type: "fleet", Name: o.Name}, nil)
	})
	if err == nil {
		s.provisioned.Store(o.ID, true)
	}
	return err
}

// requireEmpty creates or locks the settings of a fleet and deletes the subaccount
// of Provision. It fails if the fleet has other records.
func (s *Service) requireEmpty(ctx context.Context, tx *db.Tx, o Organization) (orgContext, error) {
	first, err := s.createSettings(ctx, tx, o)
	if err != nil {
		return orgContext{}, err
	}
	if _, _, err := s.LockSettingsTx(ctx, tx, o.ID); err != nil {
		return orgContext{}, err
	}
	a, err := s.orgContext(ctx, tx, tx.Now, o.ID)
	if err != nil || first {
		return a, err
	}
	subs, err := s.Subaccounts(ctx, tx, o.ID)
	if err != nil {
		return a, err
	}
	own := len(subs) > 1 || len(subs) == 1 && subs[0].revision > 1
	for _, table := range []string{"plans", "customers", "zones", "vehicles", "rides"} {
		var any bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM "+table+" WHERE organization_id = $1)", o.ID).Scan(&any); err != nil {
			return a, fmt.Errorf("look for %s: %w", table, err)
		}
		own = own || any
	}
	if own {
		return a, problem.New(problem.Precondition, "the fleet is not empty")
	}
	if err := tx.Queue(ctx, "DELETE FROM subaccounts WHERE organization_id = $1", o.ID); err != nil {
		return a, fmt.Errorf("delete the first subaccount: %w", err)
	}
	return a, nil
}

// seed creates the records of a [simulator] in a fleet that has only settings.
func (s *Service) seed(ctx context.Context, tx *db.Tx, a orgContext, o Organization) error {
	f := newSimulator(o, s.live, a.settings, a.now, sandboxSize)
	tracks := make(simulatedTracks)
	err := f.run(func(r *Ride, changes []StateChange) error {
		if r != nil {
			tracks.add(r, a.now.AddDate(0, 0, -simulatedTrackDays))
			// An empty fleet has no rollups to invalidate.
			if err := r.encode(a.settings); err != nil {
				return err
			}
			row := r.columns()
			if err := insertOne(ctx, tx, "rides", a.id, row); err != nil {
				return err
			}
			if err := s.indexRide(ctx, tx, a.id, nil, row); err != nil {
				return err
			}
		}
		for i := range changes {
			c := &changes[i]
			doc, err := encode(c)
			if err != nil {
				return err
			}
			if err := insertOne(ctx, tx, "vehicle_events", a.id, []column{{"vehicle_id", c.VehicleID}, {"id", c.ID}, {"doc", string(doc)}}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("seed a fleet: %w", err)
	}
	if err := tracks.insert(ctx, tx, a.id); err != nil {
		return fmt.Errorf("seed a fleet: %w", err)
	}
	for _, c := range f.cities {
		err := c.insertStatic(ctx, tx, a)
		if err == nil {
			err = c.insertCustomersAndVehicles(ctx, tx, a)
		}
		if err != nil {
			return fmt.Errorf("seed a fleet: %w", err)
		}
	}
	return nil
}

// insertStatic writes the subaccount, plans and zones of a city.
func (c *simCity) insertStatic(ctx context.Context, tx *db.Tx, a orgContext) error {
	// If another organization has taken the feed's id, the feed is disabled.
	if err := checkUnique(ctx, tx, "gbfs.system_id", "subaccounts WHERE system_id = $1", string(c.sub.systemID())); problem.Of(err) == problem.Conflict {
		c.sub.GBFS.Enabled = false
	} else if err != nil {
		return err
	}
	sub, err := c.sub.Record()
	if err != nil {
		return err
	}
	err = insertOne(ctx, tx, "subaccounts", a.id, []column{
		{"id", sub.ID}, {"revision", sub.Revision}, {"stamp", newStamp()}, {"external_id", idValue(c.sub.ExternalID)},
		{"system_id", idValue(c.sub.systemID())}, {"doc", string(sub.JSON)},
	})
	if err != nil {
		return err
	}
	for _, p := range c.plans {
		doc, err := p.Record()
		if err != nil {
			return err
		}
		err = insertOne(ctx, tx, "plans", a.id, []column{
			{"id", p.ID}, {"subaccount_id", p.SubaccountID}, {"revision", p.revision}, {"stamp", newStamp()}, {"version", p.Version},
			{"external_id", idValue(p.ExternalID)}, {"doc", string(doc.JSON)},
		})
		if err != nil {
			return err
		}
		if err := insertPlanVersion(ctx, tx, a.id, p); err != nil {
			return err
		}
	}
	for _, z := range c.zones {
		doc, err := z.Record()
		if err != nil {
			return err
		}
		minLng, minLat, maxLng, maxLat := z.Geometry.Bound()
		err = insertOne(ctx, tx, "zones", a.id, []column{
			{"id", z.ID}, {"subaccount_id", z.SubaccountID}, {"revision", z.revision}, {"external_id", idValue(z.ExternalID)},
			{"type", string(z.Type)}, {"name", z.Name}, {"priority", z.Priority}, {"starts_at", db.Time(z.StartsAt.Std())}, {"ends_at", db.Time(z.EndsAt.Std())},
			{"min_lng", minLng}, {"min_lat", minLat}, {"max_lng", maxLng}, {"max_lat", maxLat}, {"doc", string(doc.JSON)}, {"stamp", newStamp()},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// insertCustomersAndVehicles writes the final customers and vehicles of a city.
func (c *simCity) insertCustomersAndVehicles(ctx context.Context, tx *db.Tx, a orgContext) error {
	for _, p := range c.customers {
		doc, err := p.Record()
		if err != nil {
			return err
		}
		err = insertOne(ctx, tx, "customers", a.id, []column{
			{"id", p.ID}, {"subaccount_id", p.SubaccountID}, {"revision", p.revision}, {"external_id", idValue(p.ExternalID)}, {"status", string(p.Status)},
			{"email", idValue(NullString(strings.ToLower(string(p.Email))))}, {"phone", idValue(p.Phone)}, {"name", idValue(p.Name)},
			{"last_ride_at", db.Time(p.LastRideAt.Std())}, {"updated_at", db.Time(p.UpdatedAt.Std())}, {"doc", string(doc.JSON)},
		})
		if err != nil {
			return err
		}
	}
	for _, m := range c.vehicles {
		if err := m.encode(a); err != nil {
			return err
		}
		if err := insertOne(ctx, tx, "vehicles", a.id, m.columns()); err != nil {
			return err
		}
	}
	return nil
}

// insertOne inserts a row that cannot conflict.
func insertOne(ctx context.Context, tx *db.Tx, table, organizationID string, columns []column) error {
	added, err := insertRow(ctx, tx, table, organizationID, columns)
	if err == nil && !added {
		err = fmt.Errorf("insert into %s: key exists", table)
	}
	return err
}
