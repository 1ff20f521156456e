package gbfs

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/fleet"
)

// GBFS 2.3 differs from 3.0 in its forms: texts have one language, times are seconds since 1970,
// and vehicles are bikes. What it cannot say is left out, or said by the stricter rule.

// posix is a time in seconds since 1970.
type posix time.Time

// MarshalJSON implements [json.Marshaler].
func (t posix) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, time.Time(t).Unix(), 10), nil
}

// posixOf converts a time of GBFS 3.0; nil stays nil.
func posixOf(t *instant) *posix {
	if t == nil {
		return nil
	}
	return new(posix(*t))
}

// text is the text of a localized string in its only language.
func (l localized) text() string {
	if len(l) == 0 {
		return ""
	}
	return l[0].Text
}

func discovery23(_ context.Context, o *source) (any, error) {
	type feeds struct {
		Feeds []link `json:"feeds"`
	}
	return map[string]feeds{o.language(): {o.feeds()}}, nil
}

func information23(_ context.Context, o *source) (any, error) {
	sub := &o.system.Subaccount
	return struct {
		SystemID     string `json:"system_id"`
		Language     string `json:"language"`
		Name         string `json:"name"`
		Operator     string `json:"operator,omitempty"`
		TimeZone     string `json:"timezone"`
		ContactEmail string `json:"feed_contact_email"`
		RentalApps   *apps  `json:"rental_apps,omitempty"`
	}{
		sub.PublicSystemID(), o.language(), sub.Name, string(sub.GBFS.Operator), sub.TimeZone, string(sub.GBFS.ContactEmail), appsOf(&sub.GBFS),
	}, nil
}

func vehicleTypes23(ctx context.Context, o *source) (any, error) {
	list, err := o.types(ctx)
	if err != nil {
		return nil, err
	}
	type vehicleType23 struct {
		vehicleType
		Name string `json:"name"`
	}
	data := struct {
		VehicleTypes []vehicleType23 `json:"vehicle_types"`
	}{make([]vehicleType23, len(list))}
	for i := range list {
		data.VehicleTypes[i] = vehicleType23{list[i], list[i].Name.text()}
	}
	return data, nil
}

func bikeStatus23(ctx context.Context, o *source) (any, error) {
	list, err := o.vehicles(ctx)
	if err != nil {
		return nil, err
	}
	type bike struct {
		vehicle
		VehicleID    *string `json:"vehicle_id,omitempty"` // nil: bike_id stands for it
		ID           string  `json:"bike_id"`
		LastReported *posix  `json:"last_reported,omitempty"`
	}
	data := struct {
		Bikes []bike `json:"bikes"`
	}{make([]bike, len(list))}
	for i := range list {
		data.Bikes[i] = bike{vehicle: list[i], ID: list[i].ID, LastReported: posixOf(list[i].LastReported)}
	}
	return data, nil
}

func pricingPlans23(ctx context.Context, o *source) (any, error) {
	list, err := o.plans(ctx)
	if err != nil {
		return nil, err
	}
	type plan23 struct {
		plan
		Name        string `json:"name"`
		Description string `json:"description"`
	}
	data := struct {
		Plans []plan23 `json:"plans"`
	}{make([]plan23, len(list))}
	for i := range list {
		data.Plans[i] = plan23{list[i], list[i].Name.text(), list[i].Description.text()}
	}
	return data, nil
}

// rule23 is a rule of GBFS 2.3, which has one word for the start and the end of rides.
type rule23 struct {
	VehicleTypeIDs []string `json:"vehicle_type_id,omitempty"`
	RideAllowed    bool     `json:"ride_allowed"`
	ThroughAllowed bool     `json:"ride_through_allowed"`
	MaximumSpeed   *int64   `json:"maximum_speed_kph,omitempty"`
}

func rules23(rules []fleet.Rule) []rule23 {
	list := make([]rule23, len(rules))
	for i, r := range rules {
		list[i] = rule23{r.VehicleTypeIDs, r.StartAllowed && r.EndAllowed, r.ThroughAllowed, r.MaximumSpeed}
	}
	return list
}

type feature23 struct {
	Type       string       `json:"type"`
	Geometry   any          `json:"geometry"` // geo.Area, or everywhere
	Properties properties23 `json:"properties"`
}

type properties23 struct {
	Name  string   `json:"name,omitempty"`
	Start *posix   `json:"start,omitempty"`
	End   *posix   `json:"end,omitempty"`
	Rules []rule23 `json:"rules"`
}

// everywhere is the geometry of the zone that stands for global rules.
const everywhere = `{"type":"MultiPolygon","coordinates":[[[[-180,-90],[180,-90],[180,90],[-180,90],[-180,-90]]]]}`

func geofencing23(ctx context.Context, o *source) (any, error) {
	zones, err := o.service.PublicZones(ctx, o.system)
	if err != nil {
		return nil, err
	}
	features := make([]feature23, 0, len(zones)+1)
	for _, z := range zones {
		features = append(features, feature23{"Feature", z.Geometry, properties23{
			z.Name, posixOf(instantOf(z.StartsAt.Std())), posixOf(instantOf(z.EndsAt.Std())), rules23(z.Rules),
		}})
	}
	// Zones that come first win, so the last one has the rules of the rest.
	global := rules23(o.system.DefaultRules(zones))
	if slices.ContainsFunc(global, func(r rule23) bool { return !r.RideAllowed || !r.ThroughAllowed || r.MaximumSpeed != nil }) {
		features = append(features, feature23{"Feature", json.RawMessage(everywhere), properties23{Rules: global}})
	}
	type collection struct {
		Type     string      `json:"type"`
		Features []feature23 `json:"features"`
	}
	return struct {
		Zones collection `json:"geofencing_zones"`
	}{collection{"FeatureCollection", features}}, nil
}

func alerts23(_ context.Context, o *source) (any, error) {
	type timeSpan23 struct {
		Start *posix `json:"start"`
		End   *posix `json:"end,omitempty"`
	}
	type alert23 struct {
		ID          string       `json:"alert_id"`
		Type        string       `json:"type"`
		Times       []timeSpan23 `json:"times,omitempty"`
		URL         string       `json:"url,omitempty"`
		Summary     string       `json:"summary"`
		Description string       `json:"description,omitempty"`
	}
	list := []alert23{}
	for _, a := range o.alerts() {
		shown := alert23{ID: a.ID, Type: a.Type, URL: a.URL.text(), Summary: a.Summary.text(), Description: a.Description.text()}
		for _, t := range a.Times {
			shown.Times = append(shown.Times, timeSpan23{posixOf(t.Start), posixOf(t.End)})
		}
		list = append(list, shown)
	}
	return struct {
		Alerts []alert23 `json:"alerts"`
	}{list}, nil
}
