package fleet

import (
	"context"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/geo"
)

// Fence is a zone of a rule evaluation.
type Fence struct {
	ID           string
	Kind         ZoneType
	Area         geo.Area
	Rules        []Rule // nil: the type's defaults
	Priority     int64  // 0: the type's default
	Starts, Ends time.Time
}

// Decide is fences.decide.
func Decide(list []Fence, global []Rule, lng, lat float64, vehicleTypeID string, at time.Time) (Rule, string) {
	fences := make([]fence, len(list))
	for i, f := range list {
		priority, rules := f.Kind.defaults()
		if f.Rules != nil {
			rules = f.Rules
		}
		if f.Priority != 0 {
			priority = f.Priority
		}
		fences[i] = fence{f.ID, 0, f.Kind, f.Area, rules, priority, f.Starts, f.Ends}
	}
	return newFences(fences).decide(global, &geo.Position{Lat: lat, Lng: lng}, vehicleTypeID, at)
}

// RuleAt is fences.decide for the zones of a subaccount at the current time.
func (s *Service) RuleAt(ctx context.Context, q db.Querier, organizationID, subaccountID string, lng, lat float64, vehicleTypeID string) (Rule, string, error) {
	a, err := s.orgContext(ctx, q, time.Now(), organizationID)
	if err != nil {
		return Rule{}, "", err
	}
	sub, stamp, err := s.subaccount(ctx, q, organizationID, subaccountID)
	if err != nil {
		return Rule{}, "", err
	}
	zones, err := s.fencesIn(ctx, q, organizationID, sub.ID, stamp)
	if err != nil {
		return Rule{}, "", err
	}
	rule, zoneID := zones.decide(sub.GlobalRules, &geo.Position{Lat: lat, Lng: lng}, vehicleTypeID, a.now)
	return rule, zoneID, nil
}

// CreateWithoutRecordsTx provisions a fleet with one empty subaccount, as in
// production.
func (s *Service) CreateWithoutRecordsTx(ctx context.Context, tx *db.Tx, o Organization) error {
	if err := s.deleteAll(ctx, tx, o.ID); err != nil {
		return err
	}
	_, err := s.CreateSubaccountTx(ctx, tx, o.ID, NewSubaccount{Name: o.Name, TimeZone: "UTC", Currency: "EUR"})
	return err
}

// PruneTracks deletes expired tracks, as Run does.
func PruneTracks(ctx context.Context, s *Service) error { return s.pruneTracks(ctx) }

// PruneFormerPlans deletes former pricing plans, as Run does.
func PruneFormerPlans(ctx context.Context, s *Service) error { return s.pruneFormerPlans(ctx) }

// PruneAlerts deletes expired alerts, as Run does.
func PruneAlerts(ctx context.Context, s *Service) error { return s.pruneAlerts(ctx) }

// CorrectDistances corrects the distances of rides with late reports, as Run does.
func CorrectDistances(ctx context.Context, s *Service) error { return s.correctDistances(ctx) }

// LimitUseChanges sets the limit of state changes until the returned function is called.
func LimitUseChanges(n int64) (restore func()) {
	former := maxUseChanges
	maxUseChanges = n
	return func() { maxUseChanges = former }
}

// ApplyDue applies the due changes of an organization, as Run does.
func (s *Service) ApplyDue(ctx context.Context, organizationID string) error {
	_, err := s.applyDue(ctx, organizationID, dueShare)
	return err
}

// ApplyRound applies a batch of due changes of each organization, and returns true if there are more.
func (s *Service) ApplyRound(ctx context.Context) (more bool, err error) {
	_, more, err = s.applyAllDue(ctx, 0)
	return more, err
}
