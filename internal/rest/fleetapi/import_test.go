package fleetapi_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/resttest"
)

// importSummary is the last line of an import's answer.
type importSummary struct {
	Created, Updated, Unchanged, Failed int
	Skipped                             map[string]int
}

// summaryOf returns the summary of an import answered with 200.
func summaryOf(t *testing.T, a resttest.Answer) importSummary {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(a.Body), "\n")
	var last struct{ Summary *importSummary }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || a.Status != 200 || last.Summary == nil {
		t.Fatalf("got %d %.2000s (%v)", a.Status, a.Body, err)
	}
	return *last.Summary
}

// transfer is an importable resource and an export format.
type transfer struct{ path, kind string }

// transfers returns all importable resources in all their export formats. Every export format
// can be imported.
func (e *environment) transfers(t *testing.T) (list []transfer) {
	t.Helper()
	for _, to := range e.routes {
		if to.Import == nil {
			continue
		}
		for _, from := range e.routes {
			if from.Path != to.Path || !from.Export {
				continue
			}
			kinds := []string{rest.NDJSON, rest.CSV}
			if from.GeoJSON {
				kinds = append(kinds, rest.GeoJSON)
			}
			for _, kind := range kinds {
				if !slices.Contains(to.Import.Types, kind) {
					t.Errorf("%s is exported as %s and cannot be imported so", to.Path, kind)
				}
				list = append(list, transfer{to.Path, kind})
			}
		}
	}
	if len(list) < 5 {
		t.Fatalf("only %v", list)
	}
	return list
}

// TestExportsComeBack: every export of a seeded fleet, with vehicles in every state, can be
// imported unchanged with on_conflict=update and changes nothing, not even the time of update.
func TestExportsComeBack(t *testing.T) {
	e := newRig(t).live
	if err := e.fleet.Seed(t.Context(), fleet.Organization{ID: ours, Name: "Acme Mobility"}); err != nil {
		t.Fatal(err)
	}
	for _, x := range e.transfers(t) {
		export := e.Get(x.path, "Accept: "+x.kind)
		before := e.Get(x.path, "Accept: "+rest.NDJSON).Body
		count := strings.Count(before, "\n")
		a := e.Do("POST", x.path+"?on_conflict=update", export.Body, "Content-Type: "+x.kind)
		if got := summaryOf(t, a); count < 8 || got.Unchanged != count || got.Created+got.Updated+got.Failed != 0 || got.Skipped["created_at"] != count || got.Skipped["id"] != 0 {
			t.Errorf("%s as %s: %+v, want %d unchanged\n%.2000s", x.path, x.kind, got, count, a.Body)
		}
		if after := e.Get(x.path, "Accept: "+rest.NDJSON).Body; after != before {
			t.Errorf("%s as %s: the records are others afterwards", x.path, x.kind)
		}
		// Without on_conflict read-only fields are skipped, too, and each existing record is
		// refused, or created again if it has no unique field.
		got := summaryOf(t, e.Do("POST", x.path+"?atomic=false", export.Body, "Content-Type: "+x.kind))
		if got.Skipped["id"] != count || got.Skipped["updated_at"] != count || x.path == "/vehicles" && got.Created > 0 {
			t.Errorf("%s as %s, to be made: %+v", x.path, x.kind, got)
		}
		e.cleanUp(t, x.path, before)
	}
}

// cleanUp deletes records created since before.
func (e *environment) cleanUp(t *testing.T, path, before string) {
	t.Helper()
	for line := range strings.Lines(e.Get(path, "Accept: "+rest.NDJSON).Body) {
		if strings.Contains(before, line) {
			continue
		}
		var record fields
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if a := e.Do("DELETE", path+"/"+record.text("id"), ""); a.Status != 204 {
			t.Fatalf("delete %s: %d %s", record.text("id"), a.Status, a.Body)
		}
	}
}

// TestExportsAreMadeAnew: deleted records are recreated from each export, with new ids and all
// writable fields.
func TestExportsAreMadeAnew(t *testing.T) {
	p := newRig(t).live.tenant(t, ours)
	for i := range 3 {
		p.vehicle(fields{"code": fmt.Sprint("A-", i), "external_id": fmt.Sprint("=x", i), "metadata": fields{"k": "a,\"b\""}, "odometer_meters": 12})
		p.zone("parking", 13+float64(i), 52)
	}
	plain := func(text string) (list []string) {
		for line := range strings.Lines(text) {
			var record fields
			if err := json.Unmarshal([]byte(line), &record); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"id", "created_at", "updated_at", "state_changed_at", "public_vehicle_id"} {
				delete(record, name)
			}
			list = append(list, jsonOf(t, record))
		}
		slices.Sort(list)
		return list
	}
	for _, x := range p.transfers(t) {
		export := p.Get(x.path, "Accept: "+x.kind)
		before := p.Get(x.path, "Accept: "+rest.NDJSON).Body
		p.cleanUp(t, x.path, "")
		got := summaryOf(t, p.Do("POST", x.path, export.Body, "Content-Type: "+x.kind))
		if got.Created != 3 || got.Failed != 0 || got.Skipped["id"] != 3 {
			t.Errorf("%s as %s: %+v", x.path, x.kind, got)
		}
		if after := p.Get(x.path, "Accept: "+rest.NDJSON).Body; !slices.Equal(plain(after), plain(before)) {
			t.Errorf("%s as %s: got\n%s\nwant\n%s", x.path, x.kind, after, before)
		}
	}
}

// TestVehiclesOfEveryState: a seeded fleet's vehicles that are gone come back from their
// export; those in states that no vehicle begins in are removed, and counted.
func TestVehiclesOfEveryState(t *testing.T) {
	e := newRig(t).live
	if err := e.fleet.Seed(t.Context(), fleet.Organization{ID: ours, Name: "Acme Mobility"}); err != nil {
		t.Fatal(err)
	}
	var records []string
	others := 0
	for line := range strings.Lines(e.Get("/vehicles", "Accept: "+rest.NDJSON).Body) {
		var record fields
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if record["current_ride_id"] != nil || e.Do("DELETE", "/vehicles/"+record.text("id"), "").Status != 204 {
			continue
		}
		records = append(records, line)
		if state := record.text("state"); state != "available" && state != "removed" {
			others++
		}
	}
	got := summaryOf(t, e.Do("POST", "/vehicles", strings.Join(records, ""), "Content-Type: "+rest.NDJSON))
	if others == 0 || got.Created != len(records) || got.Failed != 0 || got.Skipped["state"] != others {
		t.Errorf("%+v of %d records, want %d with state skipped", got, len(records), others)
	}
}

// TestImportUpdates changes an exported file and imports it: by id, by external id, with new
// records, missing columns and empty cells.
func TestImportUpdates(t *testing.T) {
	p := newRig(t).live.tenant(t, ours)
	one := p.vehicle(fields{"code": "A-1", "external_id": "x1", "license_plate": "B-1", "metadata": fields{"a": "1", "b": "2"}})
	two := p.vehicle(fields{"code": "A-2", "external_id": "x2"})
	header, rows := []string{"id", "external_id", "code", "license_plate", "vehicle_type_id", "metadata", "subaccount_id", "form_factor"}, [][]string{
		{one.text("id"), "x1", "A-1", "B-9", "", `{"a":"9"}`, "", "bicycle"}, // by id; the form factor is the type's
		{"", "x2", "A-22", "", "", "", p.sub.ID, ""},                         // by external id
		{"", "x3", "A-3", "", p.scooter, "", p.sub.ID, ""},                   // a new record
		{two.text("id"), "", "", "", "", "", "", ""},                         // no change
	}
	var text strings.Builder
	w := csv.NewWriter(&text)
	if err := w.WriteAll(append([][]string{header}, rows...)); err != nil {
		t.Fatal(err)
	}
	a := p.Do("POST", "/vehicles?on_conflict=update", text.String(), "Content-Type: text/csv")
	if got := summaryOf(t, a); got.Created != 1 || got.Updated != 2 || got.Unchanged != 1 || got.Failed != 0 || got.Skipped["form_factor"] != 1 || len(got.Skipped) != 1 {
		t.Errorf("%+v\n%s", got, a.Body)
	}
	if v := send(t, p.Client, "GET", "/vehicles/"+one.text("id"), "", 200); v.text("license_plate") != "B-9" || jsonOf(t, v["metadata"]) != `{"a":"9","b":"2"}` || v.text("form_factor") != "scooter_standing" || v.text("state") != "available" {
		t.Errorf("by id: %v", v)
	}
	if v := send(t, p.Client, "GET", "/vehicles/"+two.text("id"), "", 200); v.text("code") != "A-22" || v.text("external_id") != "x2" {
		t.Errorf("by external id: %v", v)
	}
	// An older report is ignored, and the answer lists its fields.
	line := jsonOf(t, fields{"id": one.text("id"), "battery_percent": 5, "last_reported_at": "2020-01-01T00:00:00Z"})
	if a := p.Do("POST", "/vehicles?on_conflict=update", line, "Content-Type: application/x-ndjson"); !strings.Contains(a.Body, `"ignored":["battery_percent","last_reported_at"]`) {
		t.Errorf("an older report: %s", a.Body)
	}
	if list := p.entries(rest.AuditImported); len(list) != 2 || list[0].Details["updated"] == nil {
		t.Errorf("audit log: %+v", list)
	}
}

// TestImportUpdatesHostile: a line that cannot be applied is an error of that line and changes
// nothing; with atomic=true nothing of the file is imported.
func TestImportUpdatesHostile(t *testing.T) {
	r := newSandbox(t)
	p, them, sandbox := r.live.tenant(t, ours), r.live.tenant(t, theirs), r.sandbox.tenant(t, ours)
	mine, plain, foreign, elsewhere := p.vehicle(fields{"external_id": "x1"}), p.vehicle(), them.vehicle(fields{"external_id": "x9"}), sandbox.vehicle()
	ridden := p.ride()
	creator := p.As(p.key(ours, apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{"vehicles": {apikey.Create}}}}))
	other := p.As(p.key(ours, apikey.Permissions{Level: apikey.Admin}, p.other.ID))
	for name, test := range map[string]struct {
		client *resttest.Client
		line   fields
		want   string
	}{
		"nowhere":                    {p.Client, fields{"id": "veh_01ARZ3NDEKTSV4RRFFQ69G5FAV", "code": "n"}, "404"},
		"of somebody else":           {p.Client, fields{"id": foreign["id"], "code": "n"}, "404"},
		"of the sandbox":             {p.Client, fields{"id": elsewhere["id"], "code": "n"}, "404"},
		"a number":                   {p.Client, fields{"id": 7, "code": "n"}, "422"},
		"NUL":                        {p.Client, fields{"id": "veh_\x00", "code": "n"}, "422"},
		"an external id with NUL":    {p.Client, fields{"external_id": "x\x00", "code": "n"}, "422"},
		"a long id":                  {p.Client, fields{"id": strings.Repeat("v", 129)}, "422"},
		"without permission":         {creator, fields{"id": mine["id"], "code": "n"}, "403"},
		"without permission, by own": {creator, fields{"external_id": "x1", "subaccount_id": p.sub.ID, "code": "n"}, "403"},
		"of another subaccount":      {other, fields{"id": mine["id"], "code": "n"}, "403"},
		"to another subaccount":      {p.Client, fields{"id": mine["id"], "subaccount_id": p.other.ID}, "422"},
		"in a ride":                  {p.Client, fields{"id": ridden["vehicle_id"], "state": "removed"}, "409"},
		"a wrong value":              {p.Client, fields{"id": mine["id"], "battery_percent": 101}, "422"},
		"an unknown member":          {p.Client, fields{"id": mine["id"], "colour": "red"}, "422"},
		"a code that is taken":       {p.Client, fields{"id": mine["id"], "code": plain["code"]}, "409"},
		"an external id taken":       {p.Client, fields{"id": plain["id"], "external_id": "x1"}, "409"},
		"incomplete, by own":         {p.Client, fields{"external_id": "new", "subaccount_id": p.sub.ID}, "422"},
	} {
		before := p.Get("/vehicles", "Accept: "+rest.NDJSON).Body + them.Get("/vehicles", "Accept: "+rest.NDJSON).Body
		good := jsonOf(t, fields{"subaccount_id": p.sub.ID, "code": "good", "vehicle_type_id": p.scooter})
		a := test.client.Do("POST", "/vehicles?on_conflict=update&atomic=true", good+"\n"+jsonOf(t, test.line), "Content-Type: application/x-ndjson")
		if a.Status != 422 {
			t.Errorf("%s, all or none: %d %s", name, a.Status, a.Body)
		}
		a = test.client.Do("POST", "/vehicles?on_conflict=update", jsonOf(t, test.line), "Content-Type: application/x-ndjson")
		if got := summaryOf(t, a); got.Failed != 1 || !strings.Contains(a.Body, `{"line":1,"status":`+test.want+`,`) {
			t.Errorf("%s: want %s, got %s", name, test.want, a.Body)
		}
		if after := p.Get("/vehicles", "Accept: "+rest.NDJSON).Body + them.Get("/vehicles", "Accept: "+rest.NDJSON).Body; after != before {
			t.Errorf("%s changed something", name)
		}
	}
	if a := p.Do("POST", "/vehicles?on_conflict=ignore", "{}", "Content-Type: application/x-ndjson"); a.Status != 400 {
		t.Errorf("another way: %d %s", a.Status, a.Body)
	}
}
