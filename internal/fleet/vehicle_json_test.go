package fleet

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"

	"pgregory.net/rapid"
)

// drawVehicle draws a vehicle, at times with members that have no usual form.
func drawVehicle(t *rapid.T) *Vehicle {
	text := func(name string) string {
		return rapid.OneOf(rapid.StringMatching(`[A-Za-z0-9_ <>&-]{0,12}`), rapid.SampledFrom([]string{`"`, `\`, "é", "null", "{}", ",", "a\nb", "\u2028"})).Draw(t, name)
	}
	usual := rapid.Bool().Draw(t, "usual")
	if usual {
		text = func(name string) string { return rapid.StringMatching(`[A-Za-z0-9_-]{1,12}`).Draw(t, name) }
	}
	null := func(name string) NullString {
		if rapid.Bool().Draw(t, name+" is null") {
			return ""
		}
		return NullString(text(name))
	}
	integer := func(name string) *int64 {
		if rapid.Bool().Draw(t, name+" is null") {
			return nil
		}
		return new(rapid.Int64().Draw(t, name))
	}
	at := func(name string) rfc3339.Time {
		if rapid.Bool().Draw(t, name+" is null") {
			return rfc3339.Time{}
		}
		return rfc3339.Time(time.UnixMilli(rapid.Int64Range(-60_000_000_000_000, 200_000_000_000_000).Draw(t, name)).UTC())
	}
	number := func(name string) *float64 {
		if rapid.Bool().Draw(t, name+" is null") {
			return nil
		}
		return new(rapid.OneOf(rapid.SampledFrom([]float64{0, 1e-7, 1e21, 0.1, 359.9}), rapid.Float64Range(-1000, 1000)).Draw(t, name))
	}
	v := &Vehicle{
		RecordHeader: RecordHeader{text("id"), "vehicle", rapid.Bool().Draw(t, "live"), text("subaccount"), null("external")},
		Code:         text("code"), VehicleTypeID: text("type"), FormFactor: text("form"), PropulsionType: text("propulsion"),
		State: VehicleState(text("state")), LastEvent: VehicleEvent(text("event")), StateChangedAt: at("changed"),
		BatteryPercent: integer("battery"), FuelPercent: integer("fuel"), CurrentRangeMeters: integer("range"), OdometerMeters: integer("odometer"),
		LastReportedAt: at("reported"), PricingPlanID: null("plan"), DeviceID: null("device"), VIN: null("vin"), LicensePlate: null("plate"),
		CurrentRideID: null("ride"), PublicVehicleID: text("public"),
		Timestamps: Timestamps{rapid.MapOf(rapid.Custom(func(t *rapid.T) string { return text("key") }), rapid.Custom(func(t *rapid.T) string { return text("value") })).Draw(t, "metadata"), at("created"), at("updated")},
	}
	if rapid.Bool().Draw(t, "located") {
		v.Location = &geo.Position{Lat: geo.Degrees(rapid.Int64Range(-90e6, 90e6).Draw(t, "lat")), Lng: geo.Degrees(rapid.Int64Range(-180e6, 180e6).Draw(t, "lng")),
			AccuracyMeters: number("accuracy"), Heading: number("heading"), SpeedMPS: number("speed")}
	}
	return v
}

// TestVehicleJSON compares with encoding/json.
func TestVehicleJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawVehicle(t)
		want, err := encode(v)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := encodeVehicle(v); err != nil || got != string(want) {
			t.Fatalf("got %s, %v, want %s", got, err, want)
		}
		var decoded, plain Vehicle
		if err := decodeVehicle(string(want), &decoded); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(want, &plain); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(decoded, plain) {
			t.Fatalf("%s: got %+v, want %+v", want, decoded, plain)
		}
	})
}

// TestUnusualVehicleJSON decodes documents that the program does not write, or no longer.
func TestUnusualVehicleJSON(t *testing.T) {
	for _, doc := range []string{
		`{}`, `{"id":"veh_1"}`, `{"code":"A","id":"veh_1"}`, `{"id":"veh_1","added":{"later":[1]}}`, ` { "id" : "veh_1" } `,
		`{"location":{"lat":1.12345678,"lng":2}}`, `{"last_reported_at":"2026-03-14T10:26:53+01:00"}`,
	} {
		var got, want Vehicle
		if err := decodeVehicle(doc, &got); err != nil {
			t.Errorf("%s: %v", doc, err)
		}
		if err := json.Unmarshal([]byte(doc), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", doc, got, want)
		}
	}
	var v Vehicle
	for _, doc := range []string{``, `{`, `{"id":1}`, `{"state_changed_at":"2026-02-30T00:00:00.000Z"}`} {
		if err := decodeVehicle(doc, &v); err == nil {
			t.Errorf("%q: got no error", doc)
		}
	}
}

// TestDamagedVehicleJSON replaces parts of documents by others, most of which are errors there.
func TestDamagedVehicleJSON(t *testing.T) {
	parts := []string{`"`, `\`, `,`, `{`, `}`, `null`, `-`, `.`, `e5`, " ", "é", "\xff", `\u0041`, `:`, `true`, `0`, `-0`, `00`, `9999999999999999999999`, `"a":"b",`, `"added":1,`}
	rapid.Check(t, func(t *rapid.T) {
		text := func(v *Vehicle) string { // distinguishes 0 and -0
			doc, err := encode(v)
			if err != nil {
				t.Fatal(err)
			}
			return string(doc)
		}
		whole := text(drawVehicle(t))
		for range 20 {
			at := rapid.IntRange(0, len(whole)).Draw(t, "place")
			end := min(len(whole), at+rapid.IntRange(0, 3).Draw(t, "removed"))
			damaged := whole[:at] + rapid.SampledFrom(parts).Draw(t, "part") + whole[end:]
			var got, want Vehicle
			gotErr, wantErr := decodeVehicle(damaged, &got), json.Unmarshal([]byte(damaged), &want)
			if (gotErr == nil) != (wantErr == nil) {
				t.Fatalf("%s: got %v, want %v", damaged, gotErr, wantErr)
			}
			if wantErr == nil && (!reflect.DeepEqual(got, want) || text(&got) != text(&want)) {
				t.Fatalf("%s: got %+v, want %+v", damaged, got, want)
			}
		}
	})
}

// TestNumbersOfVehicleJSON decodes numbers in forms that package strconv takes and JSON does not, and
// negative zeros.
func TestNumbersOfVehicleJSON(t *testing.T) {
	doc, err := encode(&Vehicle{Location: &geo.Position{Lat: 12.5, Lng: 7}, BatteryPercent: new(int64(50))})
	if err != nil {
		t.Fatal(err)
	}
	for _, number := range []string{"0", "-0", "-0.0", "00", "01", "-01", "1.", ".5", "-", "-.5", "1.50", "1e1", "+1", "1.2.3", "9223372036854775808", "12.12345678", "400.12345678"} {
		for _, member := range []string{`"lat":12.5`, `"lng":7`, `"battery_percent":50`} {
			name, _, _ := strings.Cut(member, ":")
			text := strings.Replace(string(doc), member, name+":"+number, 1)
			var got, want Vehicle
			gotErr, wantErr := decodeVehicle(text, &got), json.Unmarshal([]byte(text), &want)
			if (gotErr == nil) != (wantErr == nil) {
				t.Errorf("%s: got %v, want %v", text, gotErr, wantErr)
				continue
			}
			if wantErr != nil {
				continue
			}
			gotDoc, gotErr := encode(&got)
			wantDoc, wantErr := encode(&want)
			if gotErr != nil || wantErr != nil || string(gotDoc) != string(wantDoc) {
				t.Errorf("%s: got %s, %v, want %s, %v", text, gotDoc, gotErr, wantDoc, wantErr)
			}
		}
	}
}
