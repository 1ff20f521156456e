package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// The documents of vehicles are decoded and encoded with each report. Package encoding/json takes
// half of a report's time, so documents in their usual form, with all members in order and no
// escapes, are read and written here. All others go through encoding/json.

// encodeVehicle returns the JSON of a vehicle, as [encode] does.
func encodeVehicle(v *Vehicle) (string, error) {
	w := vehicleWriters.Get().(*vehicleWriter)
	defer vehicleWriters.Put(w)
	w.b, w.ok = w.b[:0], true
	w.vehicle(v)
	if !w.ok {
		doc, err := encode(v)
		return string(doc), err
	}
	return string(w.b), nil
}

// decodeVehicle decodes the JSON of a vehicle into v, which has no members yet.
func decodeVehicle(doc string, v *Vehicle) error {
	r := vehicleReader{rest: doc, ok: true}
	decoded := *v
	if r.vehicle(&decoded); r.ok && r.rest == "" {
		*v = decoded
		return nil
	}
	if err := json.Unmarshal([]byte(doc), v); err != nil {
		return fmt.Errorf("decode a vehicle: %w", err)
	}
	return nil
}

var vehicleWriters = sync.Pool{New: func() any { return new(vehicleWriter) }}

// vehicleWriter appends JSON to b. ok is false after a value with an unusual form.
type vehicleWriter struct {
	b  []byte
	ok bool
}

func (w *vehicleWriter) vehicle(v *Vehicle) {
	w.text(`{"id":`, v.ID)
	w.text(`,"object":`, v.Object)
	w.raw(`,"livemode":`)
	w.b = strconv.AppendBool(w.b, v.Live)
	w.text(`,"subaccount_id":`, v.SubaccountID)
	w.nullText(`,"external_id":`, v.ExternalID)
	w.text(`,"code":`, v.Code)
	w.text(`,"vehicle_type_id":`, v.VehicleTypeID)
	w.text(`,"form_factor":`, v.FormFactor)
	w.text(`,"propulsion_type":`, v.PropulsionType)
	w.text(`,"state":`, string(v.State))
	w.text(`,"last_event":`, string(v.LastEvent))
	w.time(`,"state_changed_at":`, v.StateChangedAt)
	w.position(`,"location":`, v.Location)
	w.integer(`,"battery_percent":`, v.BatteryPercent)
	w.integer(`,"fuel_percent":`, v.FuelPercent)
	w.integer(`,"current_range_meters":`, v.CurrentRangeMeters)
	w.integer(`,"odometer_meters":`, v.OdometerMeters)
	w.time(`,"last_reported_at":`, v.LastReportedAt)
	w.nullText(`,"pricing_plan_id":`, v.PricingPlanID)
	w.nullText(`,"device_id":`, v.DeviceID)
	w.nullText(`,"vin":`, v.VIN)
	w.nullText(`,"license_plate":`, v.LicensePlate)
	w.nullText(`,"current_ride_id":`, v.CurrentRideID)
	w.text(`,"public_vehicle_id":`, v.PublicVehicleID)
	w.metadata(`,"metadata":`, v.Metadata)
	w.time(`,"created_at":`, v.CreatedAt)
	w.time(`,"updated_at":`, v.UpdatedAt)
	w.raw(`}`)
}

func (w *vehicleWriter) raw(text string) { w.b = append(w.b, text...) }

func (w *vehicleWriter) text(name, value string) {
	w.ok = w.ok && plain(value)
	w.raw(name)
	w.raw(`"`)
	w.raw(value)
	w.raw(`"`)
}

func (w *vehicleWriter) nullText(name string, value NullString) {
	if value == "" {
		w.raw(name)
		w.raw("null")
		return
	}
	w.text(name, string(value))
}

func (w *vehicleWriter) integer(name string, n *int64) {
	w.raw(name)
	if n == nil {
		w.raw("null")
		return
	}
	w.b = strconv.AppendInt(w.b, *n, 10)
}

func (w *vehicleWriter) time(name string, t rfc3339.Time) {
	w.raw(name)
	if t.Std().IsZero() {
		w.raw("null")
		return
	}
	w.raw(`"`)
	w.b = t.Std().UTC().AppendFormat(w.b, rfc3339.Layout)
	w.raw(`"`)
}

func (w *vehicleWriter) number(name string, f float64) {
	if a := math.Abs(f); f != 0 && !(a >= 1e-6 && a < 1e21) {
		w.ok = false // encoding/json writes an exponent, or fails
	}
	w.raw(name)
	w.b = strconv.AppendFloat(w.b, f, 'f', -1, 64)
}

func (w *vehicleWriter) position(name string, p *geo.Position) {
	w.raw(name)
	if p == nil {
		w.raw("null")
		return
	}
	w.number(`{"lat":`, p.Lat)
	w.number(`,"lng":`, p.Lng)
	if p.AccuracyMeters != nil {
		w.number(`,"accuracy_meters":`, *p.AccuracyMeters)
	}
	if p.Heading != nil {
		w.number(`,"heading":`, *p.Heading)
	}
	if p.SpeedMPS != nil {
		w.number(`,"speed_mps":`, *p.SpeedMPS)
	}
	w.raw(`}`)
}

func (w *vehicleWriter) metadata(name string, m map[string]string) {
	w.raw(name)
	if m == nil {
		w.raw("null")
		return
	}
	w.raw(`{`)
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			w.raw(`,`)
		}
		w.text("", key)
		w.text(`:`, m[key])
	}
	w.raw(`}`)
}

// vehicleReader reads JSON. ok is false after anything unusual.
type vehicleReader struct {
	rest string
	ok   bool
}

func (r *vehicleReader) vehicle(v *Vehicle) {
	v.ID = r.text(`{"id":`)
	v.Object = r.text(`,"object":`)
	v.Live = r.boolean(`,"livemode":`)
	v.SubaccountID = r.text(`,"subaccount_id":`)
	v.ExternalID = r.nullText(`,"external_id":`)
	v.Code = r.text(`,"code":`)
	v.VehicleTypeID = r.text(`,"vehicle_type_id":`)
	v.FormFactor = r.text(`,"form_factor":`)
	v.PropulsionType = r.text(`,"propulsion_type":`)
	v.State = VehicleState(r.text(`,"state":`))
	v.LastEvent = VehicleEvent(r.text(`,"last_event":`))
	v.StateChangedAt = r.time(`,"state_changed_at":`)
	v.Location = r.position(`,"location":`)
	v.BatteryPercent = r.integer(`,"battery_percent":`)
	v.FuelPercent = r.integer(`,"fuel_percent":`)
	v.CurrentRangeMeters = r.integer(`,"current_range_meters":`)
	v.OdometerMeters = r.integer(`,"odometer_meters":`)
	v.LastReportedAt = r.time(`,"last_reported_at":`)
	v.PricingPlanID = r.nullText(`,"pricing_plan_id":`)
	v.DeviceID = r.nullText(`,"device_id":`)
	v.VIN = r.nullText(`,"vin":`)
	v.LicensePlate = r.nullText(`,"license_plate":`)
	v.CurrentRideID = r.nullText(`,"current_ride_id":`)
	v.PublicVehicleID = r.text(`,"public_vehicle_id":`)
	v.Metadata = r.metadata(`,"metadata":`)
	v.CreatedAt = r.time(`,"created_at":`)
	v.UpdatedAt = r.time(`,"updated_at":`)
	r.skip(`}`)
}

// has skips text if it comes next.
func (r *vehicleReader) has(text string) bool {
	rest, found := strings.CutPrefix(r.rest, text)
	r.rest = rest
	return found
}

func (r *vehicleReader) skip(text string) { r.ok = r.has(text) && r.ok }

// until returns what comes before text and skips both.
func (r *vehicleReader) until(text string) string {
	before, after, found := strings.Cut(r.rest, text)
	r.rest, r.ok = after, r.ok && found
	return before
}

func (r *vehicleReader) text(name string) string {
	r.skip(name)
	r.skip(`"`)
	value := r.until(`"`)
	r.ok = r.ok && plain(value)
	return value
}

func (r *vehicleReader) nullText(name string) NullString {
	r.skip(name)
	if r.has("null") {
		return ""
	}
	return NullString(r.text(""))
}

func (r *vehicleReader) boolean(name string) bool {
	r.skip(name)
	if r.has("true") {
		return true
	}
	r.skip("false")
	return false
}

func (r *vehicleReader) integer(name string) *int64 {
	r.skip(name)
	if r.has("null") {
		return nil
	}
	n, err := strconv.ParseInt(r.digits("-0123456789"), 10, 64)
	r.ok = r.ok && err == nil
	return &n
}

func (r *vehicleReader) number(name string) float64 {
	r.skip(name)
	f, err := strconv.ParseFloat(r.digits("-.0123456789"), 64)
	r.ok = r.ok && err == nil
	return f
}

// digits returns the longest prefix of characters in set and skips it. Unlike package strconv, JSON
// has digits on both sides of a point, and no zero before other digits.
func (r *vehicleReader) digits(set string) string {
	n := 0
	for n < len(r.rest) && strings.IndexByte(set, r.rest[n]) >= 0 {
		n++
	}
	text := r.rest[:n]
	r.rest = r.rest[n:]
	whole, fraction, hasPoint := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	r.ok = r.ok && (whole == "0" || whole != "" && whole[0] != '0') && hasPoint == (fraction != "")
	return text
}

// time reads a time in [rfc3339.Layout].
func (r *vehicleReader) time(name string) rfc3339.Time {
	r.skip(name)
	if r.has("null") {
		return rfc3339.Time{}
	}
	text := r.text("")
	if len(text) != len(rfc3339.Layout) || text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' || text[16] != ':' || text[19] != '.' || text[23] != 'Z' {
		r.ok = false
		return rfc3339.Time{}
	}
	part := func(from, to int) (n int) {
		for _, c := range []byte(text[from:to]) {
			r.ok = r.ok && c >= '0' && c <= '9'
			n = 10*n + int(c-'0')
		}
		return n
	}
	year, month, day, hour, minute, second := part(0, 4), time.Month(part(5, 7)), part(8, 10), part(11, 13), part(14, 16), part(17, 19)
	t := time.Date(year, month, day, hour, minute, second, part(20, 23)*int(time.Millisecond), time.UTC)
	if t.Month() != month || t.Day() != day || hour > 23 || minute > 59 || second > 59 {
		r.ok = false
	}
	return rfc3339.Time(t)
}

func (r *vehicleReader) position(name string) *geo.Position {
	r.skip(name)
	if r.has("null") {
		return nil
	}
	p := &geo.Position{Lat: r.number(`{"lat":`), Lng: r.number(`,"lng":`)}
	for _, member := range []struct {
		name  string
		value **float64
	}{{`,"accuracy_meters":`, &p.AccuracyMeters}, {`,"heading":`, &p.Heading}, {`,"speed_mps":`, &p.SpeedMPS}} {
		if r.has(member.name) {
			*member.value = new(r.number(""))
		}
	}
	r.skip(`}`)
	// A position has six decimals, which it may lack in the document of a previous version, and no
	// negative zeros.
	lat, lng := geo.Degrees(geo.Millionths(p.Lat)), geo.Degrees(geo.Millionths(p.Lng))
	r.ok = r.ok && p.Lat == lat && p.Lng == lng
	p.Lat, p.Lng = lat, lng
	return p
}

func (r *vehicleReader) metadata(name string) map[string]string {
	r.skip(name)
	if r.has("null") {
		return nil
	}
	r.skip(`{`)
	m := make(map[string]string)
	for more := !r.has(`}`); more && r.ok; more = !r.has(`}`) {
		if len(m) > 0 {
			r.skip(`,`)
		}
		key := r.text("")
		m[key] = r.text(`:`)
	}
	return m
}
