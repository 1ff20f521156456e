package webhook

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/event"
)

// Sample records of fleets. They have the members of the records that no setting of a fleet removes.
const (
	sampleRide = `"ride":{"id":"ride_01KKNTQ6YAEDQRB018TR4SJM6R","object":"ride","livemode":LIVE,"subaccount_id":"sub_01KKNTQ6YAEDQRB018TR4SJM6R",` +
		`"status":"STATUS","trip_type":"rider","customer_id":"cus_01KKNTQ6YAEDQRB018TR4SJM6R","vehicle_id":"veh_01KKNTQ6YAEDQRB018TR4SJM6R"}`
	sampleVehicle = `"vehicle":{"id":"veh_01KKNTQ6YAEDQRB018TR4SJM6R","object":"vehicle","livemode":LIVE,"subaccount_id":"sub_01KKNTQ6YAEDQRB018TR4SJM6R",` +
		`"code":"TEST-1","state":"STATUS","last_event":"maintenance"}`
	sampleZone = `"zone":{"id":"zone_01KKNTQ6YAEDQRB018TR4SJM6R","object":"zone","livemode":LIVE,"subaccount_id":"sub_01KKNTQ6YAEDQRB018TR4SJM6R",` +
		`"name":"Test delivery from Kickstand","type":"parking"}`
	sampleAlert = `"alert":{"id":"alert_01KKNTQ6YAEDQRB018TR4SJM6R","object":"alert","livemode":LIVE,"subaccount_id":"sub_01KKNTQ6YAEDQRB018TR4SJM6R",` +
		`"alert_rule_id":"rule_01KKNTQ6YAEDQRB018TR4SJM6R","name":"Test delivery from Kickstand","kind":"battery_low","vehicle_id":"veh_01KKNTQ6YAEDQRB018TR4SJM6R",` +
		`"vehicle_code":"TEST-1","state":"STATUS","value":9}`
	sampleCustomer = `"customer":{"id":"cus_01KKNTQ6YAEDQRB018TR4SJM6R","object":"customer","livemode":LIVE,"subaccount_id":"sub_01KKNTQ6YAEDQRB018TR4SJM6R",` +
		`"status":"STATUS"}`
	sampleTask = `"task":{"id":"task_01KKNTQ6YAEDQRB018TR4SJM6R","object":"task","livemode":LIVE,"subaccount_id":"sub_01KKNTQ6YAEDQRB018TR4SJM6R",` +
		`"vehicle_id":"veh_01KKNTQ6YAEDQRB018TR4SJM6R","kind":"repair","title":"Test delivery from Kickstand","state":"STATUS"}`
)

// SampleOf is [Sample] for an event of any source.
func SampleOf(source event.Source, name event.Name, baseURL string, at time.Time) event.Event {
	if !source.OfFleet() {
		return Sample(name, baseURL, at)
	}
	kind, what, _ := strings.Cut(string(name), ".")
	record, status := sampleRide, map[string]string{
		"reserved": "reserved", "paused": "paused", "completed": "completed", "updated": "completed", "cancelled": "cancelled", "blocked": "blocked", "anonymised": "anonymised",
	}[what]
	switch kind {
	case "vehicle":
		record, status = sampleVehicle, "non_operational"
	case "zone":
		record = sampleZone
	case "alert":
		record, status = sampleAlert, what
	case "customer":
		record = sampleCustomer
		if what == "updated" {
			status = ""
		}
	}
	if kind == "task" {
		record, status = sampleTask, map[string]string{"created": "open", "updated": "in_progress", "overdue": "open", "done": "done"}[what]
	}
	if status == "" {
		status = "active"
	}
	live := "false"
	if source == event.Fleet {
		live = "true"
	}
	text := strings.NewReplacer("LIVE", live, "STATUS", status).Replace(`{"livemode":LIVE,` + record + "}")
	return event.Event{Name: name, At: at, Source: source, Data: event.Data{Fleet: json.RawMessage(text)}}
}
