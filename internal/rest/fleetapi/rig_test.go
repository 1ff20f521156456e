package fleetapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/live"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/fleetapi"
	"github.com/kickstand-dev/kickstand/internal/rest/resttest"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/tariff"

	"github.com/google/uuid"
)

const (
	origin       = "http://api.example.com"
	ours, theirs = "0190c0de-0000-7000-8000-000000000001", "0190c0de-0000-7000-8000-000000000002"
)

// rig is an installation: the key database and the APIs of both environments.
type rig struct {
	testing.TB
	desk *db.DB // holds the keys
	keys *apikey.Service
	box  *seal.Box

	live, sandbox *environment // sandbox is nil unless requested
}

// environment is production or the sandbox.
type environment struct {
	*rig
	*resttest.Client // with a key for everything
	name             apikey.Environment
	fleet            *fleet.Service
	db               *db.DB
	audit            *audit.Log
	surface          *fleetapi.API
	routes           []rest.Route
	api              *rest.API
}

// catalogue equals app's.
func catalogue() apikey.Catalogue {
	all := []apikey.Action{apikey.Read, apikey.Create, apikey.Update, apikey.Delete}
	return apikey.Catalogue{Test: true, Subaccounts: true, Resources: []apikey.Resource{
		{Name: "rides", Actions: all[:3]}, {Name: "vehicles", Actions: all}, {Name: "customers", Actions: []apikey.Action{apikey.Read, apikey.Update}},
		{Name: "pricing", Actions: []apikey.Action{apikey.Read, apikey.Update}}, {Name: "analytics", Actions: all[:1]}, {Name: "zones", Actions: all, Unnamed: true},
		{Name: "settings", Actions: []apikey.Action{apikey.Read, apikey.Update}, Settings: true},
	}}
}

// newRig opens production.
func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{TB: t, desk: dbtest.New(t)}
	r.keys = apikey.Open(apikey.Config{
		DB: r.desk, Audit: audittest.Open(r.desk), Catalogues: map[apikey.ServiceName]apikey.Catalogue{apikey.Fleet: catalogue(), apikey.Helpdesk: {Resources: catalogue().Resources}},
		PlanLimit: func(context.Context, string) (int64, error) { return 1_000_000, nil },
	})
	key, err := seal.LoadOrCreateKeys(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	r.box = seal.New(key[0])
	r.live = r.open(apikey.Live, "/v1")
	return r
}

// newSandbox opens both.
func newSandbox(t testing.TB) *rig {
	t.Helper()
	r := newRig(t)
	r.sandbox = r.open(apikey.Test, "/sandbox/v1")
	return r
}

func (r *rig) open(name apikey.Environment, base string) *environment {
	r.Helper()
	e := &environment{rig: r, name: name, db: dbtest.NewFleet(r)}
	log := audittest.Fleet(e.db, name == apikey.Live)
	e.audit = log
	hub := live.Open(e.db)
	r.Cleanup(hub.Close)
	e.fleet = fleet.Open(fleet.Config{DB: e.db, Live: name == apikey.Live, Audit: log, Emitted: func(organizationID string) { hub.Publish(organizationID, fleetapi.EventsTopic) }})
	routes := &fleetapi.API{Fleet: e.fleet, DB: e.db, Keys: r.keys, Logs: []*audit.Log{audittest.Open(r.desk), log}, TrackerURL: "https://kickstand.example/osmand/", Account: func(_ context.Context, id string) (fleetapi.Account, error) {
		if id == ours {
			return fleetapi.Account{Name: "Acme Mobility", Plan: apikey.Professional, RateLimit: 300}, nil
		}
		return fleetapi.Account{Name: "Other", RateLimit: 60}, nil
	}, Live: hub}
	e.surface, e.routes = routes, routes.Routes()
	webhooks, err := fleetapi.Deliveries(name == apikey.Live)
	if err != nil {
		r.Fatal(err)
	}
	e.api, err = rest.New(rest.Config{
		Base: base, Origin: origin, Service: apikey.Fleet, Environment: name, Realm: "fleet",
		Title: "Fleet", Description: "Vehicles.", Version: "1.0",
		Keys: r.keys, KeyLimiter: ratelimit.NewMemory(time.Minute), AddressLimiter: ratelimit.NewMemory(time.Minute), DB: e.db, Box: r.box,
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix(resttest.Peer + "/32")}, Routes: e.routes, Webhooks: webhooks, Subaccounts: routes.Subaccounts,
		Audit: log,
		Log:   slog.New(slog.NewTextHandler(r.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		r.Fatal(err)
	}
	e.Client = resttest.New(r, e.api, base).As(e.key(ours, apikey.Permissions{Level: apikey.Admin}))
	return e
}

// makeKey creates a fleet key, for this environment unless n sets another.
func (e *environment) makeKey(n apikey.New) (apikey.Key, string) {
	e.rig.Helper()
	n.Name = uuid.NewString()
	if n.Service == "" {
		n.Service, n.Environment = apikey.Fleet, e.name
	}
	k, token, err := e.keys.Create(e.rig.Context(), n)
	if err != nil {
		e.rig.Fatal(err)
	}
	return k, token.Reveal()
}

func (e *environment) key(organizationID string, p apikey.Permissions, subaccounts ...string) string {
	e.rig.Helper()
	_, token := e.makeKey(apikey.New{OrganizationID: organizationID, Permissions: p, Scope: apikey.ScopeOf(subaccounts)})
	return token
}

// write runs fn in a transaction that must succeed.
func (e *environment) write(fn func(ctx context.Context, tx *db.Tx) error) {
	e.rig.Helper()
	ctx := e.rig.Context()
	if err := e.db.Write(ctx, func(tx *db.Tx) error { return fn(ctx, tx) }); err != nil {
		e.rig.Fatal(err)
	}
}

// tenant is an organization with two subaccounts, the first with a vehicle type and the
// applicable plan.
type tenant struct {
	*environment
	*resttest.Client // with a key for everything
	t                testing.TB
	org              string
	sub, other       fleet.Subaccount
	scooter, car     string // vehicle types: reservable, and with required license
	plan             fleet.Plan
}

func (e *environment) tenant(t testing.TB, organizationID string) *tenant {
	t.Helper()
	p := &tenant{environment: e, Client: e.As(e.key(organizationID, apikey.Permissions{Level: apikey.Admin})), t: t, org: organizationID}
	if err := e.fleet.Provision(t.Context(), fleet.Organization{ID: organizationID, Name: "Acme Mobility"}); err != nil {
		t.Fatal(err)
	}
	e.write(func(ctx context.Context, tx *db.Tx) (err error) {
		if p.sub, err = e.fleet.CreateSubaccountTx(ctx, tx, organizationID, fleet.NewSubaccount{Name: "Berlin", TimeZone: "Europe/Berlin", Currency: "EUR", CountryCode: "DE"}); err != nil {
			return err
		}
		if p.other, err = e.fleet.CreateSubaccountTx(ctx, tx, organizationID, fleet.NewSubaccount{Name: "Tokyo", TimeZone: "Asia/Tokyo", Currency: "JPY"}); err != nil {
			return err
		}
		types := []fleet.VehicleType{
			{Name: "Scooter", FormFactor: "scooter_standing", PropulsionType: "electric", MaxRangeMeters: new(int64(45_000)), ReservationMinutes: 15},
			{Name: "Car", FormFactor: "car", PropulsionType: "electric", MaxRangeMeters: new(int64(300_000)), LicenseRequired: true, MinAge: 18},
		}
		if p.sub, err = e.fleet.UpdateSubaccountTx(ctx, tx, organizationID, p.sub, fleet.SubaccountChange{VehicleTypes: optional.Of(types)}); err != nil {
			return err
		}
		p.scooter, p.car = p.sub.VehicleTypes[0].ID, p.sub.VehicleTypes[1].ID
		p.plan, err = e.fleet.CreatePlanTx(ctx, tx, organizationID, fleet.NewPlan{
			SubaccountID: p.sub.ID, Name: "Standard", VehicleTypeIDs: []string{p.scooter},
			Tariff: tariff.Tariff{UnlockAmount: 100, PerMinute: []tariff.Segment{{Rate: 25, Interval: 1}}, ReservationPerMin: new(int64(15)), ReservationFreeMinutes: 5, OutOfZoneAmount: new(int64(1500))},
		})
		if err != nil {
			return err
		}
		p.sub, err = e.fleet.UpdateSubaccountTx(ctx, tx, organizationID, p.sub, fleet.SubaccountChange{DefaultPricingPlanID: optional.Of(fleet.NullString(p.plan.ID))})
		return err
	})
	return p
}

// customer creates a customer in the first subaccount.
func (p *tenant) customer() string {
	p.t.Helper()
	var c fleet.Customer
	p.write(func(ctx context.Context, tx *db.Tx) (err error) {
		c, err = p.fleet.CreateCustomerTx(ctx, tx, p.org, fleet.NewCustomer{SubaccountID: p.sub.ID, Name: "Ada Example", Email: "ada@example.com", Phone: "+4930901820", Language: "de"})
		return err
	})
	return c.ID
}

// created creates a record and returns it.
func (p *tenant) created(path string, body any) fields {
	p.t.Helper()
	return send(p.t, p.Client, "POST", path, jsonOf(p.t, body), 201)
}

// vehicle creates an available vehicle in Berlin; changes replace the default fields.
func (p *tenant) vehicle(changes ...fields) fields {
	p.t.Helper()
	v := fields{
		"subaccount_id": p.sub.ID, "code": uuid.NewString()[:8], "vehicle_type_id": p.scooter, "state": "available",
		"location": fields{"lat": 52.52, "lng": 13.405}, "battery_percent": 80,
	}
	for _, c := range changes {
		maps.Copy(v, c)
	}
	return p.created("/vehicles", v)
}

// ride starts a ride of a new customer on a new vehicle.
func (p *tenant) ride(changes ...fields) fields {
	p.t.Helper()
	body := fields{"vehicle_id": p.vehicle().text("id"), "customer_id": p.customer()}
	for _, c := range changes {
		maps.Copy(body, c)
	}
	return p.created("/rides", body)
}

// picture is a PNG of one pixel in base64.
const picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="

// task creates a task of a new vehicle.
func (p *tenant) task(changes ...fields) fields {
	p.t.Helper()
	body := fields{"vehicle_id": p.vehicle().text("id"), "title": "Replace the brake"}
	for _, c := range changes {
		maps.Copy(body, c)
	}
	return p.created("/tasks", body)
}

// zone creates a square of a tenth of a degree around a point.
func (p *tenant) zone(kind string, lng, lat float64) fields {
	p.t.Helper()
	const d = 0.05
	return p.created("/zones", fields{"subaccount_id": p.sub.ID, "name": kind, "type": kind, "geometry": fields{"type": "Polygon", "coordinates": [][][2]float64{
		{{lng - d, lat - d}, {lng + d, lat - d}, {lng + d, lat + d}, {lng - d, lat + d}, {lng - d, lat - d}},
	}}})
}

// fields is an answered record.
type fields map[string]any

// text returns a string field, empty if null.
func (f fields) text(name string) string {
	s, _ := f[name].(string)
	return s
}

// send sends a request and returns the answered record.
func send(t testing.TB, c *resttest.Client, method, path, body string, want int, headers ...string) fields {
	t.Helper()
	a := c.Do(method, path, body, headers...)
	if a.Status != want {
		t.Fatalf("%s %s %.300s: got %d %s, want %d", method, path, body, a.Status, a.Body, want)
	}
	if a.Body == "" {
		return nil
	}
	var f fields
	a.JSON(&f)
	return f
}

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// refused checks that an answer is a problem.
func refused(t testing.TB, what string, a resttest.Answer, status int, code string, pointers ...string) {
	t.Helper()
	p := a.Problem()
	var at []string
	for _, e := range p.Errors {
		at = append(at, e.Pointer+e.Parameter+" "+e.Code)
	}
	if a.Status != status || p.Code != code || pointers != nil && fmt.Sprint(at) != fmt.Sprint(pointers) {
		t.Errorf("%s: got %d %s %q, want %d %s %q\n%s", what, a.Status, p.Code, at, status, code, pointers, a.Body)
	}
}

// alertRule creates a rule about batteries.
func (p *tenant) alertRule(changes ...fields) fields {
	p.t.Helper()
	body := fields{"subaccount_id": p.sub.ID, "name": "Battery low", "kind": "battery_low", "threshold_percent": 15}
	for _, c := range changes {
		maps.Copy(body, c)
	}
	return p.created("/alert_rules", body)
}

// alert raises an alert and returns its id.
func (p *tenant) alert() string {
	p.t.Helper()
	p.alertRule()
	v := p.vehicle()
	send(p.t, p.Client, "PUT", "/vehicles/"+v.text("id"), `{"battery_percent":5}`, 200)
	list := send(p.t, p.Client, "GET", "/alerts?state=raised&vehicle_id="+v.text("id"), "", 200)
	return list["data"].([]any)[0].(map[string]any)["id"].(string)
}
