package mds

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/period"
)

// recentAge is the greatest age of recent events.
const recentAge = 14 * 24 * time.Hour

// goneAge is the time that vehicles which have left the streets stay in the status.
const goneAge = 90 * time.Minute

// statusTTL is the time to live of lists of vehicles: they are read for each request.
const statusTTL = 0

// head begins an answer about the present.
type head struct {
	Version     string `json:"version"`
	LastUpdated millis `json:"last_updated"`
	TTL         int    `json:"ttl"` // milliseconds
}

func (c *call) head() head { return head{version, millis(c.area.Now.UnixMilli()), statusTTL} }

type vehiclesBody struct {
	head
	Vehicles []vehicle `json:"vehicles"`
	Links    *links    `json:"links,omitempty"` // nil: a single vehicle
}

// page returns the vehicles of a page, and the id of its last one; empty on the last page.
func (c *call) page(ctx context.Context) ([]fleet.MDSVehicle, string, error) {
	after := ""
	if cursor := c.query.Get("cursor"); cursor != "" {
		id, ok := idOf("veh", cursor)
		if !ok {
			return nil, "", faultf(http.StatusBadRequest, "bad_param", "cursor must come from a link of the page before.")
		}
		after = id
	}
	list, err := c.service.MDSVehicles(ctx, c.area, after, pageSize+1)
	if err != nil || len(list) <= pageSize {
		return list, "", err
	}
	last, err := uuidOf(list[pageSize-1].ID)
	return list[:pageSize], last, err
}

func (c *call) vehicles(ctx context.Context) (any, error) {
	list, cursor, err := c.page(ctx)
	if err != nil {
		return nil, err
	}
	body := vehiclesBody{head: c.head(), Vehicles: make([]vehicle, len(list)), Links: new(c.next("vehicles", cursor))}
	for i := range list {
		if body.Vehicles[i], err = c.newVehicle(&list[i].Vehicle); err != nil {
			return nil, err
		}
	}
	return body, nil
}

// find returns the vehicle of a path. Error: NotFound; 400.
func (c *call) find(ctx context.Context, device string) (fleet.MDSVehicle, error) {
	id, ok := idOf("veh", device)
	if !ok {
		return fleet.MDSVehicle{}, faultf(http.StatusBadRequest, "bad_param", "device_id must be a UUID in lower case.")
	}
	return c.service.MDSVehicle(ctx, c.area, id)
}

func (c *call) vehicle(ctx context.Context, device string) (any, error) {
	v, err := c.find(ctx, device)
	if err != nil {
		return nil, err
	}
	shown, err := c.newVehicle(&v.Vehicle)
	return vehiclesBody{head: c.head(), Vehicles: []vehicle{shown}}, err
}

type statusBody struct {
	head
	Statuses []status `json:"vehicles_status"`
	Links    *links   `json:"links,omitempty"` // nil: a single vehicle
}

func (c *call) statuses(ctx context.Context) (any, error) {
	list, cursor, err := c.page(ctx)
	if err != nil {
		return nil, err
	}
	body := statusBody{head: c.head(), Statuses: []status{}, Links: new(c.next("vehicles/status", cursor))}
	for i := range list {
		v := &list[i]
		gone := v.State == fleet.Removed || v.State == fleet.Missing
		if gone && c.area.Now.Sub(v.StateChangedAt.Std()) > goneAge {
			continue
		}
		shown, located, err := c.newStatus(v)
		if err != nil {
			return nil, err
		}
		if located {
			body.Statuses = append(body.Statuses, shown)
		}
	}
	return body, nil
}

func (c *call) status(ctx context.Context, device string) (any, error) {
	v, err := c.find(ctx, device)
	if err != nil {
		return nil, err
	}
	shown, located, err := c.newStatus(&v)
	if err == nil && !located {
		err = faultf(http.StatusNotFound, "not_found", "The location of the vehicle is unknown.")
	}
	return statusBody{head: c.head(), Statuses: []status{shown}}, err
}

func (c *call) trips(ctx context.Context) (any, error) {
	from, to, err := c.hour(ctx, "end_time")
	if err != nil {
		return nil, err
	}
	rides, err := c.service.MDSTrips(ctx, c.area, from, to)
	if err != nil {
		return nil, err
	}
	list := make([]trip, 0, len(rides))
	for i := range rides {
		shown, located, err := c.newTrip(&rides[i])
		if err != nil {
			return nil, err
		}
		if located {
			list = append(list, shown)
		}
	}
	return struct {
		Version string `json:"version"`
		Trips   []trip `json:"trips"`
	}{version, list}, nil
}

// telemetryTime is the time that a client may take to receive a part of the points.
const telemetryTime = time.Minute

// telemetry answers with the points of an hour, as they are read: those of a large fleet do not
// fit into memory. After the first of them has been sent, an error breaks the connection, so that
// the answer is not taken for a complete one.
func (c *call) telemetry(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	from, to, err := c.hour(ctx, "telemetry_time")
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", jsonType+";version="+mediaVersion)
		return nil
	}
	if !c.beginReading() {
		w.Header().Set("Retry-After", strconv.Itoa(int(telemetryTime.Seconds())))
		return faultf(http.StatusTooManyRequests, "too_many_requests", "At most %d answers with telemetry are sent at the same time. Try again when one of them is complete.", maxReading)
	}
	defer c.endReading()
	w.Header().Set("Content-Type", jsonType+";version="+mediaVersion)
	out := &partWriter{to: w, deadlines: http.NewResponseController(w)}
	b := bufio.NewWriterSize(out, 64<<10)
	b.WriteString(`{"version":"` + version + `","telemetry":[`)
	separator := ""
	err = c.service.EachMDSPoint(ctx, c.area, from, to, func(p *fleet.MDSPoint) error {
		shown, err := c.newPoint(p)
		if err != nil {
			return err
		}
		text, err := json.Marshal(shown)
		if err != nil {
			return fmt.Errorf("encode a point for an agency: %w", err)
		}
		b.WriteString(separator)
		separator = ","
		_, err = b.Write(text)
		return err
	})
	if err == nil {
		b.WriteString("]}")
		err = b.Flush()
	}
	if err != nil && out.begun {
		if ctx.Err() == nil && !out.failed {
			c.log.ErrorContext(ctx, "points for an agency", "error", err)
		}
		panic(http.ErrAbortHandler)
	}
	return err
}

// maxReading bounds the answers with telemetry of an organization that are sent at the same time: each
// decodes the tracks of an hour.
const maxReading = 4

// beginReading returns false if the organization has maxReading answers with telemetry already.
func (c *call) beginReading() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading[c.area.OrganizationID] >= maxReading {
		return false
	}
	c.reading[c.area.OrganizationID]++
	return true
}

// endReading follows a successful beginReading.
func (c *call) endReading() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading[c.area.OrganizationID]--; c.reading[c.area.OrganizationID] == 0 {
		delete(c.reading, c.area.OrganizationID)
	}
}

// partWriter sends an answer in parts, each within telemetryTime.
type partWriter struct {
	to        http.ResponseWriter
	deadlines *http.ResponseController
	begun     bool // something was sent
	failed    bool // the client does not receive
}

func (p *partWriter) Write(part []byte) (int, error) {
	p.begun = true
	if err := p.deadlines.SetWriteDeadline(time.Now().Add(telemetryTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := p.to.Write(part)
	p.failed = err != nil
	return n, err
}

// events returns the state changes with a location as events.
func (c *call) events(changes []fleet.StateChange) ([]event, error) {
	list := make([]event, 0, len(changes))
	for i := range changes {
		if changes[i].Location == nil {
			continue
		}
		e, err := c.newEvent(&changes[i])
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

type eventsBody struct {
	Version string  `json:"version"`
	Events  []event `json:"events"`
	Links   *links  `json:"links,omitempty"` // nil: the list has no pages
}

func (c *call) historical(ctx context.Context) (any, error) {
	from, to, err := c.hour(ctx, "event_time")
	if err != nil {
		return nil, err
	}
	changes, err := c.service.MDSChanges(ctx, c.area, from, to, "", 0)
	if err != nil {
		return nil, err
	}
	list, err := c.events(changes)
	return eventsBody{Version: version, Events: list}, err
}

func (c *call) recent(ctx context.Context) (any, error) {
	from, err := c.milliseconds("start_time")
	if err != nil {
		return nil, err
	}
	to, err := c.milliseconds("end_time")
	if err != nil {
		return nil, err
	}
	if to.Before(from) {
		return nil, faultf(http.StatusBadRequest, "bad_param", "end_time must not be before start_time.")
	}
	if oldest := c.area.Now.Add(-recentAge); from.Before(oldest) {
		return nil, faultf(http.StatusBadRequest, "bad_param", "start_time and end_time must be within the last two weeks.")
	}
	after := ""
	if cursor := c.query.Get("cursor"); cursor != "" {
		id, ok := idOf("evt", cursor)
		if !ok {
			return nil, faultf(http.StatusBadRequest, "bad_param", "cursor must come from a link of the page before.")
		}
		after = id
	}
	changes, err := c.service.MDSChanges(ctx, c.area, from, to, after, pageSize+1)
	if err != nil {
		return nil, err
	}
	cursor := ""
	if len(changes) > pageSize {
		changes = changes[:pageSize]
		if cursor, err = uuidOf(changes[pageSize-1].ID); err != nil {
			return nil, err
		}
	}
	list, err := c.events(changes)
	return eventsBody{version, list, new(c.next("events/recent", cursor))}, err
}

// leastCount is the least count that a report shows; lower ones are -1, so that no rider
// can be recognized.
const leastCount = 10

// report returns the report of a month: "2026-10.csv".
func (c *call) report(ctx context.Context, name string) ([]byte, error) {
	none := faultf(http.StatusNotFound, "not_found", "There is no such report: reports are YYYY-MM.csv, of months that are over and whose rides have all ended, when no app can send a late one any more.")
	text, isCSV := strings.CutSuffix(name, ".csv")
	month, err := time.Parse("2006-01", text)
	if err != nil || !isCSV {
		return nil, none
	}
	zone, err := time.LoadLocation(c.area.Subaccount.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("time zone of a subaccount: %w", err)
	}
	from, to := period.StartOf(month.Year(), month.Month(), 1, zone), period.StartOf(month.Year(), month.Month()+1, 1, zone)
	if to.After(c.area.Now) || !to.After(c.area.Subaccount.CreatedAt.Std()) {
		return nil, none
	}
	complete, err := c.service.MDSRidesComplete(ctx, c.area, to)
	if err != nil {
		return nil, err
	}
	if !complete {
		return nil, none
	}
	var b strings.Builder
	b.WriteString("provider_id,start_date,duration,special_group_type,geography_id,vehicle_type,trip_count,rider_count\n")
	count := func(groupBy string, types []string) (fleet.RideReport, error) {
		return c.service.RideAnalytics(ctx, c.area.OrganizationID, fleet.AnalyticsQuery{
			From: from, To: to, Granularity: period.Total, Location: zone, GroupBy: []string{groupBy},
			Subaccounts: []string{c.area.Subaccount.ID}, VehicleTypes: types, TripTypes: []fleet.TripType{fleet.RiderTrip},
		})
	}
	used, err := count("vehicle_type_id", nil)
	if err != nil {
		return nil, err
	}
	var ridden []string
	for _, row := range used.Rows {
		ridden = append(ridden, string(row.Group[0]))
	}
	names, types := formFactors(c.area, ridden)
	for _, name := range names {
		report, err := count("status", types[name])
		if err != nil {
			return nil, err
		}
		var trips, riders int64
		for _, row := range report.Rows {
			if row.Group[0] == fleet.NullString(fleet.Completed) {
				trips, riders = row.RideCount, row.UniqueCustomers
			}
		}
		fmt.Fprintf(&b, "%s,%s-01,P1M,all_riders,null,%s,%s,%s\n", c.provider(), text, name, redacted(trips), redacted(riders))
	}
	return []byte(b.String()), nil
}

func redacted(n int64) string {
	if n < leastCount {
		n = -1
	}
	return strconv.FormatInt(n, 10)
}
