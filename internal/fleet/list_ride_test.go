package fleet

import (
	"errors"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// TestRangeOfBox checks that a list in a box by a key other than time needs a range
// of at most 92 days.
func TestRangeOfBox(t *testing.T) {
	d := dbtest.NewFleet(t)
	s := newService(t, d)
	days := func(n int, more time.Duration) period.Range {
		high := testNow.AddDate(0, 0, n).Add(more)
		return period.Range{Low: &testNow, High: &high}
	}
	box := &geo.Box{MinLng: 13, MinLat: 52, MaxLng: 14, MaxLat: 53}
	amount := keyset.Sort{Field: "total_amount"}
	for name, test := range map[string]struct {
		q  RideQuery
		ok bool
	}{
		"no box":             {RideQuery{Sort: amount}, true},
		"by time":            {RideQuery{Box: box}, true},
		"by start":           {RideQuery{Box: box, Sort: keyset.Sort{Field: "started_at"}}, true},
		"no range":           {RideQuery{Box: box, Sort: amount}, false},
		"by update":          {RideQuery{Box: box, Sort: keyset.Sort{Field: "updated_at"}}, false},
		"created":            {RideQuery{Box: box, Sort: amount, CreatedAt: days(92, 0)}, true},
		"started":            {RideQuery{Box: box, Sort: amount, StartedAt: days(92, 0)}, true},
		"summer time ends":   {RideQuery{Box: box, Sort: amount, StartedAt: days(92, time.Hour)}, true},
		"too long":           {RideQuery{Box: box, Sort: amount, StartedAt: days(92, time.Hour+time.Millisecond)}, false},
		"from":               {RideQuery{Box: box, Sort: amount, StartedAt: period.Range{Low: &testNow}}, false},
		"until":              {RideQuery{Box: box, Sort: amount, CreatedAt: period.Range{High: &testNow}}, false},
		"updated":            {RideQuery{Box: box, Sort: amount, UpdatedAt: days(1, 0)}, false},
		"one of two is long": {RideQuery{Box: box, Sort: amount, CreatedAt: days(900, 0), StartedAt: days(1, 0)}, true},
	} {
		_, _, err := s.ListRides(t.Context(), d, testOrg, test.q)
		each := s.EachRide(t.Context(), testOrg, test.q, func(*Record) error { return nil })
		for _, err := range []error{err, each} {
			if e, _ := errors.AsType[*problem.Error](err); test.ok != (err == nil) || err != nil && (e == nil || e.Kind != problem.Unparseable || e.Code != "range_too_large") {
				t.Errorf("%s: got %v, want success %v, else range_too_large", name, err, test.ok)
			}
		}
	}
}
