package gbfs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/tariff"

	"golang.org/x/text/language"
)

// envelope wraps every file.
type envelope struct {
	LastUpdated any             `json:"last_updated"` // instant or posix
	TTL         int             `json:"ttl"`          // seconds
	Version     string          `json:"version"`
	Data        json.RawMessage `json:"data"`
}

// instant is a time in whole seconds.
type instant time.Time

// MarshalJSON implements [json.Marshaler].
func (t instant) MarshalJSON() ([]byte, error) {
	return []byte(`"` + time.Time(t).UTC().Format(time.RFC3339) + `"`), nil
}

// instantOf returns nil for the zero time.
func instantOf(t time.Time) *instant {
	if t.IsZero() {
		return nil
	}
	return new(instant(t))
}

// localized is a GBFS localized string with one language.
type localized []struct {
	Text     string `json:"text"`
	Language string `json:"language"`
}

// source is the input of a file.
type source struct {
	service *fleet.Service
	system  *fleet.System
	base    string // URL of all versions, without a trailing slash
	edition *edition
	several bool // the environment has other systems
}

// file describes a file of a system.
type file struct {
	name string
	ttl  int // seconds
	data func(ctx context.Context, o *source) (any, error)
}

// edition is a version of the feed.
type edition struct {
	version string
	dir     string // of its paths
	files   []file
	updated func(t time.Time) any // the form of last_updated
}

// editions are the versions of the feed, the oldest first (fleet-api.md 9).
func editions() []edition {
	return []edition{{
		version: "2.3", dir: "2.3", updated: func(t time.Time) any { return posix(t) },
		files: []file{
			{"gbfs", 300, discovery23},
			{"gbfs_versions", 86400, versions},
			{"system_information", 3600, information23},
			{"vehicle_types", 3600, vehicleTypes23},
			{"free_bike_status", 30, bikeStatus23},
			{"system_pricing_plans", 300, pricingPlans23},
			{"geofencing_zones", 300, geofencing23},
			{"system_alerts", 60, alerts23},
		},
	}, {
		version: "3.0", dir: "v3", updated: func(t time.Time) any { return instant(t) },
		files: []file{
			{"gbfs", 300, discovery},
			{"gbfs_versions", 86400, versions},
			{"system_information", 3600, information},
			{"vehicle_types", 3600, vehicleTypes},
			{"vehicle_status", 30, vehicleStatus},
			{"system_pricing_plans", 300, pricingPlans},
			{"geofencing_zones", 300, geofencing},
			{"system_alerts", 60, alerts},
		},
	}}
}

// url returns the URL of a file of the system.
func (o *source) url(dir, name string) string {
	return o.base + "/" + dir + "/" + o.system.Subaccount.PublicSystemID() + "/" + name + ".json"
}

// language is the system's language in the format of GBFS, without a script subtag.
func (o *source) language() string {
	tag, err := language.Parse(o.system.Language)
	if err != nil {
		return "en"
	}
	base, _ := tag.Base()
	if region, sure := tag.Region(); sure == language.Exact && len(region.String()) == 2 {
		return base.String() + "-" + region.String()
	}
	return base.String()
}

// localize returns a text in the system's language, nil if it is empty.
func (o *source) localize(text string) localized {
	if text == "" {
		return nil
	}
	return localized{{text, o.language()}}
}

type link struct {
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	URL     string `json:"url"`
}

// feeds are the links to the files of the system.
func (o *source) feeds() []link {
	var list []link
	for _, f := range o.edition.files {
		list = append(list, link{Name: f.name, URL: o.url(o.edition.dir, f.name)})
	}
	return list
}

func discovery(_ context.Context, o *source) (any, error) {
	return struct {
		Feeds []link `json:"feeds"`
	}{o.feeds()}, nil
}

func versions(_ context.Context, o *source) (any, error) {
	var list []link
	for _, e := range editions() {
		list = append(list, link{Version: e.version, URL: o.url(e.dir, "gbfs")})
	}
	return struct {
		Versions []link `json:"versions"`
	}{list}, nil
}

// dataset is a system of the manifest.
type dataset struct {
	SystemID string `json:"system_id"`
	Versions []link `json:"versions"`
}

type manifest struct {
	Datasets []dataset `json:"datasets"`
}

func information(_ context.Context, o *source) (any, error) {
	sub := &o.system.Subaccount
	data := struct {
		SystemID     string    `json:"system_id"`
		Languages    []string  `json:"languages"`
		Name         localized `json:"name"`
		Operator     localized `json:"operator,omitempty"`
		OpeningHours string    `json:"opening_hours"`
		TimeZone     string    `json:"timezone"`
		ContactEmail string    `json:"feed_contact_email"`
		LicenseID    string    `json:"license_id,omitempty"`
		ManifestURL  string    `json:"manifest_url,omitempty"`
		RentalApps   *apps     `json:"rental_apps,omitempty"`
	}{
		SystemID: sub.PublicSystemID(), Languages: []string{o.language()}, Name: o.localize(sub.Name), Operator: o.localize(string(sub.GBFS.Operator)),
		OpeningHours: string(sub.GBFS.OpeningHours), TimeZone: sub.TimeZone,
		ContactEmail: string(sub.GBFS.ContactEmail), LicenseID: string(sub.GBFS.LicenseID),
		RentalApps: appsOf(&sub.GBFS),
	}
	if o.several {
		data.ManifestURL = o.base + "/v3/manifest.json"
	}
	return data, nil
}

// apps are the apps by which riders rent.
type apps struct {
	Android *app `json:"android,omitempty"`
	IOS     *app `json:"ios,omitempty"`
}

type app struct {
	StoreURI     string `json:"store_uri"`
	DiscoveryURI string `json:"discovery_uri"`
}

// appsOf returns nil without an app.
func appsOf(g *fleet.GBFS) *apps {
	var list apps
	if g.AndroidStoreURI != "" {
		list.Android = &app{string(g.AndroidStoreURI), string(g.AndroidDiscoveryURI)}
	}
	if g.IOSStoreURI != "" {
		list.IOS = &app{string(g.IOSStoreURI), string(g.IOSDiscoveryURI)}
	}
	if list == (apps{}) {
		return nil
	}
	return &list
}

// rentalLinks lead to a vehicle in the operator's apps and pages.
type rentalLinks struct {
	Android string `json:"android,omitempty"`
	IOS     string `json:"ios,omitempty"`
	Web     string `json:"web,omitempty"`
}

// linksTo returns the links to a vehicle, nil for none. They have its public id, which
// changes after each ride.
func linksTo(g *fleet.GBFS, publicID string) *rentalLinks {
	of := func(template fleet.NullString) string {
		return strings.ReplaceAll(string(template), fleet.VehicleIDVariable, publicID)
	}
	l := rentalLinks{of(g.AndroidRentalURI), of(g.IOSRentalURI), of(g.WebRentalURI)}
	if l == (rentalLinks{}) {
		return nil
	}
	return &l
}

type vehicleType struct {
	ID                   string    `json:"vehicle_type_id"`
	Name                 localized `json:"name"`
	FormFactor           string    `json:"form_factor"`
	PropulsionType       string    `json:"propulsion_type"`
	MaxRangeMeters       *int64    `json:"max_range_meters,omitempty"` // required with a motor
	WheelCount           *int64    `json:"wheel_count,omitempty"`
	MaxPermittedSpeed    *int64    `json:"max_permitted_speed,omitempty"`
	RiderCapacity        *int64    `json:"rider_capacity,omitempty"`
	DefaultReserveTime   int64     `json:"default_reserve_time"` // minutes
	ReturnConstraint     string    `json:"return_constraint"`
	DefaultPricingPlanID string    `json:"default_pricing_plan_id,omitempty"`
	PricingPlanIDs       []string  `json:"pricing_plan_ids,omitempty"`
}

func vehicleTypes(ctx context.Context, o *source) (any, error) {
	list, err := o.types(ctx)
	return struct {
		VehicleTypes []vehicleType `json:"vehicle_types"`
	}{list}, err
}

// types returns the system's vehicle types.
func (o *source) types(ctx context.Context) ([]vehicleType, error) {
	plans, err := o.service.PublicPlans(ctx, o.system)
	if err != nil {
		return nil, err
	}
	sub := &o.system.Subaccount
	list := []vehicleType{}
	for _, t := range sub.VehicleTypes {
		shown := vehicleType{
			ID: t.ID, Name: o.localize(t.Name), FormFactor: t.FormFactor, PropulsionType: t.PropulsionType,
			WheelCount: t.WheelCount, MaxPermittedSpeed: t.MaxPermittedSpeed, RiderCapacity: t.RiderCapacity,
			DefaultReserveTime: t.ReservationMinutes, ReturnConstraint: "free_floating",
		}
		if t.PropulsionType != human {
			shown.MaxRangeMeters = t.MaxRangeMeters
		}
		usual := t.DefaultPricingPlanID
		if usual == "" {
			usual = sub.DefaultPricingPlanID
		}
		for _, p := range plans {
			if p.ID == string(usual) {
				shown.DefaultPricingPlanID = p.ID
			}
			if p.ID == string(usual) || slices.Contains(p.VehicleTypeIDs, t.ID) {
				shown.PricingPlanIDs = append(shown.PricingPlanIDs, p.ID)
			}
		}
		list = append(list, shown)
	}
	return list, nil
}

// human is the propulsion type without a motor.
const human = "human"

type vehicle struct {
	ID                 string       `json:"vehicle_id"`
	Lat                float64      `json:"lat"`
	Lon                float64      `json:"lon"`
	IsReserved         bool         `json:"is_reserved"`
	IsDisabled         bool         `json:"is_disabled"`
	RentalURIs         *rentalLinks `json:"rental_uris,omitempty"`
	VehicleTypeID      string       `json:"vehicle_type_id"`
	LastReported       *instant     `json:"last_reported,omitempty"`
	CurrentRangeMeters *int64       `json:"current_range_meters,omitempty"` // required with a motor
	CurrentFuelPercent json.Number  `json:"current_fuel_percent,omitempty"` // from 0 to 1
	PricingPlanID      string       `json:"pricing_plan_id,omitempty"`
}

func vehicleStatus(ctx context.Context, o *source) (any, error) {
	list, err := o.vehicles(ctx)
	return struct {
		Vehicles []vehicle `json:"vehicles"`
	}{list}, err
}

// vehicles returns the system's vehicles.
func (o *source) vehicles(ctx context.Context) ([]vehicle, error) {
	list, err := o.service.PublicVehicles(ctx, o.system)
	if err != nil {
		return nil, err
	}
	offered, err := o.service.PublicPlans(ctx, o.system)
	if err != nil {
		return nil, err
	}
	plans := make(map[string]bool)
	for _, p := range offered {
		plans[p.ID] = true
	}
	motor := make(map[string]bool)
	for _, t := range o.system.Subaccount.VehicleTypes {
		motor[t.ID] = t.PropulsionType != human
	}
	out := make([]vehicle, 0, len(list))
	for _, v := range list {
		shown := vehicle{
			ID: v.ID, Lat: v.Location.Lat, Lon: v.Location.Lng,
			IsReserved: v.State == fleet.VehicleReserved, IsDisabled: !o.system.Rentable(&v, plans),
			VehicleTypeID: v.VehicleTypeID, LastReported: instantOf(v.LastReportedAt.Std()),
			RentalURIs: linksTo(&o.system.Subaccount.GBFS, v.ID),
		}
		if plans[string(v.PricingPlanID)] {
			shown.PricingPlanID = string(v.PricingPlanID)
		}
		if motor[v.VehicleTypeID] {
			shown.CurrentRangeMeters = new(int64(0))
			if v.CurrentRangeMeters != nil {
				shown.CurrentRangeMeters = v.CurrentRangeMeters
			}
			percent := v.BatteryPercent
			if percent == nil {
				percent = v.FuelPercent
			}
			if percent != nil {
				shown.CurrentFuelPercent = decimal(*percent, 2)
			}
		}
		out = append(out, shown)
	}
	return out, nil
}

type plan struct {
	ID              string       `json:"plan_id"`
	URL             string       `json:"url,omitempty"`
	Name            localized    `json:"name"`
	Currency        string       `json:"currency"`
	Price           json.Number  `json:"price"`
	IsTaxable       bool         `json:"is_taxable"`
	Description     localized    `json:"description"`
	PerKm           []segment    `json:"per_km_pricing,omitempty"`
	PerMin          []segment    `json:"per_min_pricing,omitempty"`
	ReservationMin  *json.Number `json:"_reservation_price_per_min,omitempty"`
	ReservationFlat *json.Number `json:"_reservation_price_flat_rate,omitempty"`
	FareCapping     []capping    `json:"_fare_capping,omitempty"`
	PauseMin        *json.Number `json:"_pause_price_per_min,omitempty"` // absent: as riding
	OutOfZone       *json.Number `json:"_out_of_zone_price,omitempty"`   // absent: rides cannot end there
}

type segment struct {
	Start    int64       `json:"start"`
	Rate     json.Number `json:"rate"`
	Interval int64       `json:"interval"`
	End      *int64      `json:"end,omitempty"`
}

type capping struct {
	Duration int64       `json:"duration"` // minutes
	Price    json.Number `json:"price"`
}

func pricingPlans(ctx context.Context, o *source) (any, error) {
	list, err := o.plans(ctx)
	return struct {
		Plans []plan `json:"plans"`
	}{list}, err
}

// plans returns the system's active plans.
func (o *source) plans(ctx context.Context) ([]plan, error) {
	list, err := o.service.PublicPlans(ctx, o.system)
	if err != nil {
		return nil, err
	}
	plans := []plan{}
	for _, p := range list {
		digits, ok := tariff.MinorDigits(p.Currency)
		if !ok {
			return nil, fmt.Errorf("plan %s has the currency %q", p.ID, p.Currency)
		}
		major := func(amount int64) json.Number { return decimal(amount, digits) }
		optional := func(amount *int64) *json.Number {
			if amount == nil {
				return nil
			}
			return new(major(*amount))
		}
		segments := func(list []tariff.Segment) (out []segment) {
			for _, s := range list {
				out = append(out, segment{s.Start, major(s.Rate), s.Interval, s.End})
			}
			return out
		}
		shown := plan{
			ID: p.ID, URL: string(p.URL), Name: o.localize(p.Name), Currency: p.Currency, Price: major(p.UnlockAmount), IsTaxable: p.Taxable,
			Description: o.localize(p.Description), PerKm: segments(p.PerKilometer), PerMin: segments(p.PerMinute),
			ReservationMin: optional(p.ReservationPerMin), ReservationFlat: optional(p.ReservationFlat),
			PauseMin: optional(p.PausePerMinAmount), OutOfZone: optional(p.OutOfZoneAmount),
		}
		if shown.Description == nil { // required
			shown.Description = o.localize(p.Name)
		}
		if p.FareCap != nil {
			shown.FareCapping = []capping{{p.FareCap.DurationMinutes, major(p.FareCap.Amount)}}
		}
		plans = append(plans, shown)
	}
	return plans, nil
}

// decimal formats amount / 10^digits exactly, without trailing zeros.
func decimal(amount int64, digits int) json.Number {
	sign := ""
	if amount < 0 {
		sign, amount = "-", -amount
	}
	text := strconv.FormatInt(amount, 10)
	if short := digits + 1 - len(text); short > 0 {
		text = strings.Repeat("0", short) + text
	}
	whole, fraction := text[:len(text)-digits], strings.TrimRight(text[len(text)-digits:], "0")
	if fraction == "" {
		return json.Number(sign + whole)
	}
	return json.Number(sign + whole + "." + fraction)
}

type feature struct {
	Type       string   `json:"type"`
	Geometry   geo.Area `json:"geometry"`
	Properties struct {
		Name  localized    `json:"name"`
		Start *instant     `json:"start,omitempty"`
		End   *instant     `json:"end,omitempty"`
		Rules []fleet.Rule `json:"rules"`
	} `json:"properties"`
}

func geofencing(ctx context.Context, o *source) (any, error) {
	zones, err := o.service.PublicZones(ctx, o.system)
	if err != nil {
		return nil, err
	}
	var data struct {
		Zones struct {
			Type     string    `json:"type"`
			Features []feature `json:"features"`
		} `json:"geofencing_zones"`
		GlobalRules []fleet.Rule `json:"global_rules"`
	}
	data.Zones.Type, data.Zones.Features = "FeatureCollection", make([]feature, len(zones))
	for i, z := range zones {
		f := &data.Zones.Features[i]
		f.Type, f.Geometry = "Feature", z.Geometry
		f.Properties.Name, f.Properties.Rules = o.localize(z.Name), z.Rules
		f.Properties.Start, f.Properties.End = instantOf(z.StartsAt.Std()), instantOf(z.EndsAt.Std())
	}
	data.GlobalRules = o.system.DefaultRules(zones)
	return data, nil
}

type alert struct {
	ID          string     `json:"alert_id"`
	Type        string     `json:"type"`
	Times       []timeSpan `json:"times,omitempty"`
	URL         localized  `json:"url,omitempty"`
	Summary     localized  `json:"summary"`
	Description localized  `json:"description,omitempty"`
}

type timeSpan struct {
	Start *instant `json:"start"`
	End   *instant `json:"end,omitempty"`
}

func alerts(_ context.Context, o *source) (any, error) {
	return struct {
		Alerts []alert `json:"alerts"`
	}{o.alerts()}, nil
}

// alerts returns the system's alerts that are not over.
func (o *source) alerts() []alert {
	list := []alert{}
	for _, a := range o.system.Subaccount.Alerts {
		start, end := a.StartsAt.Std(), a.EndsAt.Std()
		if !end.IsZero() && !o.system.Now.Before(end) {
			continue
		}
		shown := alert{ID: a.ID, Type: a.Type, URL: o.localize(string(a.URL)), Summary: o.localize(a.Summary), Description: o.localize(string(a.Description))}
		if start.IsZero() && !end.IsZero() {
			start = o.system.Subaccount.CreatedAt.Std() // an end requires a start
		}
		if !start.IsZero() {
			shown.Times = []timeSpan{{instantOf(start), instantOf(end)}}
		}
		list = append(list, shown)
	}
	return list
}

// encode returns JSON without HTML escaping.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
