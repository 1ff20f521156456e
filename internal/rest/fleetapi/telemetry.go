package fleetapi

import (
	"context"
	"math"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// maxTelemetry bounds a body with reports, in bytes.
const maxTelemetry = 8 << 20

// telemetryBudget is the limit of reports of a key.
var telemetryBudget = rest.Budget{Name: "Telemetry", Policy: "telemetry", Unit: "reports", Factor: 100}

var reportType = schema.Object(
	schema.Member{Name: "vehicle", Access: schema.Required, Doc: "One of the three.", Type: schema.Object(
		schema.Member{Name: "id", Type: schema.ID(), Access: schema.Writable, Sometimes: true, Example: "veh_01KKNTQ6YAEDQRB018TR4SJM6R"},
		schema.Member{Name: "code", Type: schema.String(1, 32), Access: schema.Writable, Sometimes: true, Doc: "Case-insensitive.", Example: "B-0417"},
		schema.Member{Name: "device_id", Type: schema.String(1, 128), Access: schema.Writable, Sometimes: true, Example: "861234050000417"},
	)},
	schema.Member{Name: "reported_at", Type: schema.Timestamp(), Access: schema.Required, Doc: "By the tracker's clock."},
	schema.Member{Name: "location", Access: schema.Writable, Sometimes: true, Type: schema.Object(
		schema.Member{Name: "lat", Type: schema.NumberIn(-90, 90), Access: schema.Required, Example: 52.520008},
		schema.Member{Name: "lng", Type: schema.NumberIn(-180, 180), Access: schema.Required, Example: 13.404954},
		schema.Member{Name: "accuracy_meters", Type: schema.NumberIn(0, 10_000_000), Access: schema.Writable, Sometimes: true},
		schema.Member{Name: "altitude_meters", Type: schema.NumberIn(-100_000, 100_000), Access: schema.Writable, Sometimes: true},
	)},
	schema.Member{Name: "heading_degrees", Type: schema.NumberIn(0, 360), Access: schema.Writable, Sometimes: true, Doc: "Clockwise from north."},
	schema.Member{Name: "speed_kph", Type: schema.NumberIn(0, 3600), Access: schema.Writable, Sometimes: true},
	schema.Member{Name: "battery_percent", Type: schema.Int(0, 100), Access: schema.Writable, Sometimes: true},
	schema.Member{Name: "fuel_percent", Type: schema.Int(0, 100), Access: schema.Writable, Sometimes: true},
	schema.Member{Name: "odometer_meters", Type: schema.Int(0, maxOdometer), Access: schema.Writable, Sometimes: true},
	schema.Member{Name: "locked", Type: schema.Bool(), Access: schema.Writable, Sometimes: true},
)

// maxOdometer bounds odometers, in meters.
const maxOdometer = 10_000_000_000

var telemetryRecord = &schema.Record{Name: "telemetry", Doc: "Reports of vehicles.", Members: []schema.Member{
	{Name: "reports", Type: schema.Array(reportType, fleet.MaxReports), Access: schema.Required},
}}

var telemetryResult = &schema.Record{Name: "telemetry_result", Doc: "The outcome of each report.", Members: []schema.Member{
	{Name: "object", Type: schema.Enum("telemetry_result")},
	{Name: "accepted", Type: schema.Integer(), Doc: "Reports that were stored, and applied to their vehicles."},
	{Name: "ignored", Type: schema.Integer(), Doc: "Reports that changed no state: duplicates, and those older than the vehicle's last one, which are part of the track."},
	{Name: "rejected", Type: schema.Integer(), Doc: "Reports that were not stored."},
	{Name: "results", Doc: "Of the reports that were not accepted, in order.", Type: schema.Array(schema.Object(
		schema.Member{Name: "index", Type: schema.Integer(), Doc: "Of the report, from 0; in NDJSON of its line, with blank ones counted."},
		schema.Member{Name: "status", Type: schema.Enum(fleet.ReportIgnored, fleet.ReportRejected)},
		schema.Member{Name: "code", Type: schema.Enum("duplicate", "out_of_order", "not_found", "outside_scope", "in_future", "invalid_value")},
		schema.Member{Name: "pointer", Type: schema.Text(), Nullable: true, Doc: "JSON pointer of the value, within the report.", Example: "#/battery_percent"},
	), fleet.MaxReports)},
	{Name: "clocks", Doc: "Vehicles with a tracker whose clock is wrong. Their reports were stored at the corrected time.", Type: schema.Array(schema.Object(
		schema.Member{Name: "vehicle_id", Type: schema.ID()},
		schema.Member{Name: "ahead_seconds", Type: schema.Integer(), Doc: "How far the clock is ahead; negative: behind."},
		schema.Member{Name: "corrected", Type: schema.Integer(), Doc: "Reports of this request."},
	), fleet.MaxReports)},
}}

func (a *API) telemetryRoutes() []rest.Route {
	return []rest.Route{{
		Method: "POST", Path: "/telemetry", ID: "createTelemetry", Tag: "Telemetry", Summary: "Report positions and states of vehicles",
		Doc: "Up to 10,000 reports in 8 MB, as JSON or as NDJSON with one report per line, in any order. Blank lines are skipped. Each report has an outcome of its own: an invalid one fails no other, and a request can be repeated safely. " +
			"Reports are applied in the order of their times.\n\n" +
			"A key may send 100 times as many reports as requests a minute. X-Telemetry-Limit, -Remaining and -Reset describe that window. A request beyond it is refused with 429 after the first reports have been taken: the field taken is the index of the first other one, in NDJSON of its line, and result the outcome of the taken ones.",
		Needs: needs("vehicles", apikey.Update), Input: telemetryRecord, Output: telemetryResult, Reports: true, MaxBody: maxTelemetry, Status: 200, Handle: a.recordTelemetry,
	}}
}

// wireTelemetry is the answer to reports.
type wireTelemetry struct {
	Object   string        `json:"object"`
	Accepted int64         `json:"accepted"`
	Ignored  int64         `json:"ignored"`
	Rejected int64         `json:"rejected"`
	Results  []wireVerdict `json:"results"`
	Clocks   []wireClock   `json:"clocks"`
}

type wireVerdict struct {
	Index   int     `json:"index"`
	Status  string  `json:"status"`
	Code    string  `json:"code"`
	Pointer *string `json:"pointer"`
}

type wireClock struct {
	VehicleID string `json:"vehicle_id"`
	Ahead     int64  `json:"ahead_seconds"`
	Corrected int64  `json:"corrected"`
}

// wireOfTelemetry returns the answer to reports with the given places in the request.
func wireOfTelemetry(t *fleet.TelemetryResult, places []int) wireTelemetry {
	w := wireTelemetry{Object: "telemetry_result", Accepted: t.Accepted, Ignored: t.Ignored, Rejected: t.Rejected, Results: make([]wireVerdict, len(t.Verdicts)), Clocks: []wireClock{}}
	for i, v := range t.Verdicts {
		w.Results[i] = wireVerdict{Index: places[v.Index], Status: v.Status, Code: v.Code}
		if v.Status == fleet.ReportRejected {
			w.Results[i].Pointer = new("#" + v.Pointer)
		}
	}
	for _, c := range t.Clocks {
		w.Clocks = append(w.Clocks, wireClock{c.VehicleID, int64(math.Round(c.Ahead.Seconds())), c.Reports})
	}
	return w
}

func (a *API) recordTelemetry(ctx context.Context, r *rest.Request) (rest.Response, error) {
	list, err := r.Reports(fleet.MaxReports)
	if err != nil {
		return rest.Response{}, err
	}
	granted, window, err := r.AcquireBudget(ctx, telemetryBudget, int64(len(list)))
	if err != nil {
		return rest.Response{}, err
	}
	reports, places := make([]fleet.Report, granted), make([]int, granted)
	for i, report := range list[:granted] {
		reports[i], places[i] = parseReport(report.Text), report.Index
	}
	record := func(tx *db.Tx) (wireTelemetry, error) {
		got, err := a.Fleet.RecordTelemetryTx(ctx, tx, r.Key.OrganizationID, reports, r.Covers)
		return wireOfTelemetry(&got, places), err
	}
	if granted == int64(len(list)) {
		return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
			w, err := record(tx)
			return rest.OK(w), err
		})
	}
	// Part of the reports: a refusal, which leaves no trace under an Idempotency-Key.
	var w wireTelemetry
	err = a.DB.Write(ctx, func(tx *db.Tx) (err error) {
		w, err = record(tx)
		return err
	})
	if err != nil {
		return rest.Response{}, err
	}
	return rest.Response{}, telemetryBudget.OverBudget(window, int64(list[granted].Index), w)
}

// parseReport reads a report; one that is not valid is marked.
func parseReport(text []byte) fleet.Report {
	n, err := schema.Parse(text)
	if err != nil || n.Kind != '{' {
		return fleet.Report{Invalid: true}
	}
	p := reportParser{}
	p.report(&n)
	return p.out
}

// reportParser reads a report and notes the first value that is not valid.
type reportParser struct{ out fleet.Report }

func (p *reportParser) fail(pointer string) {
	if !p.out.Invalid {
		p.out.Invalid, p.out.Pointer = true, pointer
	}
}

// Parts of a unit in which a field is stored.
const (
	units      = 1
	tenths     = 10
	millionths = 1_000_000
)

func (p *reportParser) report(n *schema.Node) {
	timed := false
	for i := range n.Members {
		m := &n.Members[i]
		if m.Value.Kind == 'n' {
			continue // as if absent
		}
		switch m.Name {
		case "vehicle":
			p.vehicle(&m.Value)
		case "reported_at":
			at, err := rfc3339.Parse(m.Value.Text)
			if m.Value.Kind != '"' || err != nil {
				p.fail("/reported_at")
			}
			p.out.Data.At, timed = at.UnixMilli(), true
		case "location":
			p.location(&m.Value)
		case "heading_degrees":
			p.number("", m, track.Heading, 0, 360, tenths)
		case "speed_kph":
			p.number("", m, track.Speed, 0, 3600, tenths)
		case "battery_percent":
			p.number("", m, track.Battery, 0, 100, units)
		case "fuel_percent":
			p.number("", m, track.Fuel, 0, 100, units)
		case "odometer_meters":
			p.number("", m, track.Odometer, 0, maxOdometer, units)
		case "locked":
			switch m.Value.Kind {
			case 't':
				p.out.Data.Set(track.Locked, 1)
			case 'f':
				p.out.Data.Set(track.Locked, 0)
			default:
				p.fail("/locked")
			}
		default:
			p.fail(strings.TrimPrefix(schema.Pointer("#", m.Name), "#"))
		}
	}
	if p.out.Vehicle == (fleet.VehicleRef{}) {
		p.fail("/vehicle")
	}
	if !timed {
		p.fail("/reported_at")
	}
}

func (p *reportParser) vehicle(n *schema.Node) {
	if n.Kind != '{' || len(n.Members) != 1 || n.Members[0].Value.Kind != '"' {
		p.fail("/vehicle")
		return
	}
	name := n.Members[0].Value.Text
	if name == "" || strings.IndexByte(name, 0) >= 0 {
		p.fail("/vehicle")
		return
	}
	switch n.Members[0].Name {
	case "id":
		p.out.Vehicle.ID = name
	case "code":
		p.out.Vehicle.Code = name
	case "device_id":
		p.out.Vehicle.DeviceID = name
	default:
		p.fail("/vehicle")
	}
}

func (p *reportParser) location(n *schema.Node) {
	if n.Kind != '{' {
		p.fail("/location")
		return
	}
	for i := range n.Members {
		m := &n.Members[i]
		switch {
		case m.Name == "lat":
			p.number("/location", m, track.Lat, -90, 90, millionths)
		case m.Name == "lng":
			p.number("/location", m, track.Lng, -180, 180, millionths)
		case m.Value.Kind == 'n':
		case m.Name == "accuracy_meters":
			p.number("/location", m, track.Accuracy, 0, 1e7, tenths)
		case m.Name == "altitude_meters":
			p.number("/location", m, track.Altitude, -1e5, 1e5, tenths)
		default:
			p.fail(strings.TrimPrefix(schema.Pointer("#/location", m.Name), "#"))
		}
	}
	if !p.out.Data.Located() {
		p.fail("/location")
	}
}

// number sets a field to a number between low and high, in parts of its unit. A number in whole
// units must be an integer.
func (p *reportParser) number(pointer string, m *schema.NodeMember, field track.Field, low, high, parts float64) {
	f, err := strconv.ParseFloat(m.Value.Text, 64)
	if m.Value.Kind != '0' || err != nil || !(low <= f && f <= high) || parts == units && f != math.Trunc(f) {
		p.fail(pointer + "/" + m.Name)
		return
	}
	p.out.Data.Set(field, int64(math.Round(f*parts)))
}
