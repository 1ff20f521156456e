package fleetpages

import (
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/web"
)

// dataPage is the body of the import and export page.
type dataPage struct {
	In, Out []command
}

// command is a shell command to copy.
type command struct {
	What, Note, Text string
}

// data shows how to import and export records by API or on the server.
func (p *pages) data(w http.ResponseWriter, r *web.Request) error {
	bring := func(kind, file string) string {
		return p.command("POST", "/vehicles", "", "Content-Type: "+kind) + " --data-binary @" + file
	}
	get := func(path, kind, file string) string {
		return p.command("GET", path, "", "Accept: "+kind) + " -o " + file
	}
	server := " --org " + r.Organization.Slug + " --environment " + string(p.environment)
	b := dataPage{
		In: []command{
			{"Vehicles from CSV", "The header row names fields: code, vehicle_type_id, state, location.lat, location.lng, battery_percent. Add ?atomic=true to the URL to import all or none.", bring("text/csv", "vehicles.csv")},
			{"Vehicles from NDJSON", "One vehicle per line, in the format of the API.", bring("application/x-ndjson", "vehicles.ndjson")},
			{"Zones from GeoJSON", "A FeatureCollection; its properties are the fields of a zone.", p.command("POST", "/zones", "", "Content-Type: application/geo+json") + " --data-binary @zones.geojson"},
			{"A whole fleet", "On the server: subaccounts, vehicle types, plans, riders, zones and vehicles in one file.", "kickstand fleet import" + server + " fleet.json"},
		},
		Out: []command{
			{"Rides", "As CSV, or with Accept: application/x-ndjson as one JSON object per line. Add filters of the API, such as ?started_at[gte]=2026-01-01T00:00:00Z.", get("/rides", "text/csv", "rides.csv")},
			{"Vehicles", "", get("/vehicles", "text/csv", "vehicles.csv")},
			{"Riders", "", get("/customers", "text/csv", "riders.csv")},
			{"Zones", "As GeoJSON.", get("/zones", "application/geo+json", "zones.geojson")},
			{"A whole fleet", "On the server.", "kickstand fleet export" + server + " > fleet.json"},
		},
	}
	return p.Render(w, r, "data", p.page(r, "/settings", "Import and export", b))
}
