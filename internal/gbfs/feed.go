package gbfs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/tariff"

	"golang.org/x/text/language"
)

// version is the version of GBFS.
const version = "3.0"

// envelope wraps every file.
type envelope struct {
	LastUpdated instant         `json:"last_updated"`
	TTL         int             `json:"ttl"` // seconds
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
	root    string // URL of the feed version, without a trailing slash
	several bool   // the environment has other systems
}

// file describes a file of a system.
type file struct {
	name string
	ttl  int // seconds
	data func(ctx context.Context, o *source) (any, error)
}

// files are the files of a system (fleet-api.md 9).
func files() []file {
	return []file{
		{"gbfs", 300, discovery},
		{"gbfs_versions", 86400, versions},
		{"system_information", 3600, information},
		{"vehicle_types", 3600, vehicleTypes},
		{"vehicle_status", 30, vehicleStatus},
		{"system_pricing_plans", 300, pricingPlans},
		{"geofencing_zones", 300, geofencing},
		{"system_alerts", 60, alerts},
	}
}

func (o *source) url(name string) string {
	return o.root + "/" + o.system.Subaccount.PublicSystemID() + "/" + name + ".json"
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

func discovery(_ context.Context, o *source) (any, error) {
	var data struct {
		Feeds []link `json:"feeds"`
	}
	for _, f := range files() {
		data.Feeds = append(data.Feeds, link{Name: f.name, URL: o.url(f.name)})
	}
	return data, nil
}

func versions(_ context.Context, o *source) (any, error) {
	return struct {
		Versions []link `json:"versions"`
	}{[]link{{Version: version, URL: o.url("gbfs")}}}, nil
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
	}{
		SystemID: sub.PublicSystemID(), Languages: []string{o.language()}, Name: o.localize(sub.Name), Operator: o.localize(string(sub.GBFS.Operator)),
		OpeningHours: string(sub.GBFS.OpeningHours), TimeZone: sub.TimeZone,
		ContactEmail: string(sub.GBFS.ContactEmail), LicenseID: string(sub.GBFS.LicenseID),
	}
	if o.several {
		data.ManifestURL = o.root + "/manifest.json"
	}
	return data, nil
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
	plans, err := o.service.PublicPlans(ctx, o.system)
	if err != nil {
		return nil, err
	}
	sub := &o.system.Subaccount
	data := struct {
		VehicleTypes []vehicleType `json:"vehicle_types"`
	}{[]vehicleType{}}
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
			for _, id := range p.VehicleTypeIDs {
				if id == t.ID {
					shown.PricingPlanIDs = append(shown.PricingPlanIDs, p.ID)
				}
			}
		}
		data.VehicleTypes = append(data.VehicleTypes, shown)
	}
	return data, nil
}

// human is the propulsion type without a motor.
const human = "human"

type vehicle struct {
	ID                 string      `json:"vehicle_id"`
	Lat                float64     `json:"lat"`
	Lon                float64     `json:"lon"`
	IsReserved         bool        `json:"is_reserved"`
	IsDisabled         bool        `json:"is_disabled"`
	VehicleTypeID      string      `json:"vehicle_type_id"`
	LastReported       *instant    `json:"last_reported,omitempty"`
	CurrentRangeMeters *int64      `json:"current_range_meters,omitempty"` // required with a motor
	CurrentFuelPercent json.Number `json:"current_fuel_percent,omitempty"` // from 0 to 1
	PricingPlanID      string      `json:"pricing_plan_id,omitempty"`
}

func vehicleStatus(ctx context.Context, o *source) (any, error) {
	list, err := o.service.PublicVehicles(ctx, o.system)
	if err != nil {
		return nil, err
	}
	motor := make(map[string]bool)
	for _, t := range o.system.Subaccount.VehicleTypes {
		motor[t.ID] = t.PropulsionType != human
	}
	data := struct {
		Vehicles []vehicle `json:"vehicles"`
	}{make([]vehicle, 0, len(list))}
	for _, v := range list {
		shown := vehicle{
			ID: v.ID, Lat: v.Location.Lat, Lon: v.Location.Lng,
			IsReserved: v.State == fleet.VehicleReserved, IsDisabled: !o.system.Rentable(&v),
			VehicleTypeID: v.VehicleTypeID, LastReported: instantOf(v.LastReportedAt.Std()), PricingPlanID: string(v.PricingPlanID),
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
		data.Vehicles = append(data.Vehicles, shown)
	}
	return data, nil
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
	list, err := o.service.PublicPlans(ctx, o.system)
	if err != nil {
		return nil, err
	}
	data := struct {
		Plans []plan `json:"plans"`
	}{[]plan{}}
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
		}
		if shown.Description == nil { // required
			shown.Description = o.localize(p.Name)
		}
		if p.FareCap != nil {
			shown.FareCapping = []capping{{p.FareCap.DurationMinutes, major(p.FareCap.Amount)}}
		}
		data.Plans = append(data.Plans, shown)
	}
	return data, nil
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
	data := struct {
		Alerts []alert `json:"alerts"`
	}{[]alert{}}
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
		data.Alerts = append(data.Alerts, shown)
	}
	return data, nil
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
