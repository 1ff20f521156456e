package fleetapi

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/webhook"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// eventKind describes the events whose names begin with the same word.
type eventKind struct {
	resource string // whose permission to read shows them
	record   *schema.Record
}

// eventKinds are the kinds of events by the first part of their names, which is also the name of the
// record in their data. An event needs no more than its line in [event.FleetEvents] if it has a kind.
var eventKinds = map[string]eventKind{
	"ride":    {"rides", eventRecord("ride", "A ride", rideRecord, "status", "trip_type", "customer_id", "vehicle_id")},
	"vehicle": {"vehicles", eventRecord("vehicle", "A vehicle", vehicleRecord, "code", "state", "last_event")},
	"zone":    {"zones", eventRecord("zone", "A zone without its geometry", zoneRecord, "name", "type")},
	"customer": {"customers", eventRecord("customer", "A customer without personal data: name, email and phone are null, and others are absent",
		customerRecord, "status")},
	"alert": {"vehicles", eventRecord("alert", "An alert", alertRecord, "alert_rule_id", "name", "kind", "vehicle_id", "vehicle_code", "state", "value")},
	"task":  {"vehicles", eventRecord("task", "A task", taskRecord, "vehicle_id", "kind", "title", "state")},
}

// hiddenMembers are members of records that no event has.
var hiddenMembers = map[string][]string{
	"vehicle":  {"ignored", "distance_meters"},
	"zone":     {"geometry"},
	"customer": {"external_id", "language", "block_reason", "birth_date", "marketing_consent", "default_currency", "last_ride_at", "metadata", "created_at", "updated_at"},
}

// eventRecord describes a record as of an event. Test deliveries have the members always and the
// first ones of every record.
func eventRecord(name, what string, of *schema.Record, always ...string) *schema.Record {
	always = append(always, "id", "object", "livemode", "subaccount_id")
	r := partial("event."+name, what+", as of the event. A test delivery has only the members that are always there.", of, always)
	r.Members = slices.DeleteFunc(r.Members, func(m schema.Member) bool { return m.WriteOnly || slices.Contains(hiddenMembers[name], m.Name) })
	return r
}

// stateChange is a state change of a vehicle, which comes with vehicle.state_changed,
// vehicle.comms_lost and vehicle.comms_restored.
var stateChange = &schema.Record{Name: "event.state_change", Doc: "The state change of a vehicle.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "vehicle_id", Type: schema.ID()},
	{Name: "state", Type: schema.Enum(vehicleStates...)},
	{Name: "event", Type: schema.Enum(vehicleEvents...), Doc: "The MDS event type."},
	{Name: "at", Type: schema.Timestamp()},
	{Name: "location", Type: position(), Nullable: true},
	{Name: "battery_percent", Type: schema.Integer(), Nullable: true},
	{Name: "ride_id", Type: schema.ID(), Nullable: true},
	{Name: "actor", Type: schema.Object(
		schema.Member{Name: "type", Type: schema.Text()},
		schema.Member{Name: "id", Type: schema.ID(), Nullable: true},
	)},
	{Name: "ride_events", Type: schema.Array(schema.Enum(vehicleEvents...), 8), Sometimes: true, Doc: "The events of the ride while the vehicle was out of contact; absent without any."},
}}

// kindOf returns the kind of an event, and its name.
func kindOf(name event.Name) (string, eventKind) {
	kind, _, _ := strings.Cut(string(name), ".")
	return kind, eventKinds[kind]
}

// Deliveries describes the bodies of webhooks of a fleet, which are also the data of server-sent events.
func Deliveries(live bool) ([]rest.Webhook, error) {
	source := event.Sandbox
	if live {
		source = event.Fleet
	}
	all := make([]rest.Webhook, len(event.FleetEvents))
	for i, e := range event.FleetEvents {
		sample := webhook.SampleOf(source, e.Name, "", time.Date(2026, 3, 14, 9, 26, 53, 250e6, time.UTC))
		sample.ID = "evt_01KKNTQ6YAEDQRB018TR4SJM6R"
		example, err := payload.Render(payload.Nested, &sample)
		if err != nil {
			return nil, fmt.Errorf("example of a webhook: %w", err)
		}
		all[i] = rest.Webhook{Name: string(e.Name), Summary: e.Summary, Tag: "Events", Body: deliveryBody(e), Example: example}
	}
	return all, nil
}

// deliveryBody describes the body of an event.
func deliveryBody(e event.FleetEvent) *schema.Record {
	name, kind := kindOf(e.Name)
	data := []schema.Member{
		{Name: "test", Type: schema.Bool(), Sometimes: true, Doc: "true for a test delivery; else absent."},
		{Name: "livemode", Type: schema.Bool(), Doc: "true for production, false for the sandbox."},
		{Name: name, Type: schema.Nested(kind.record)},
		{Name: "changed", Type: schema.Array(schema.Text(), 1000), Sometimes: true, Doc: "The names of the fields that changed."},
	}
	switch e.Name {
	case event.VehicleStateChanged, event.VehicleCommsLost, event.VehicleCommsRestored:
		data = append(data, schema.Member{Name: "state_change", Type: schema.Nested(stateChange), Sometimes: true, Doc: "Absent in a test delivery."})
	}
	return &schema.Record{Name: "event." + string(e.Name), Doc: e.Summary + ".", Members: []schema.Member{
		{Name: "id", Type: schema.ID(), Doc: "The same for every delivery of the event, as in Webhook-Id.", Example: "evt_01KKNTQ6YAEDQRB018TR4SJM6R"},
		{Name: "event", Type: schema.Enum(string(e.Name))},
		{Name: "created_at", Type: schema.Timestamp(), Doc: "By the fleet's clock."},
		{Name: "data", Type: schema.Object(data...), Doc: "The record after the change."},
	}}
}
