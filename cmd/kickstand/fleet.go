package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

type fleetCmd struct {
	Seed   fleetSeedCmd   `cmd:"" help:"Seed an empty fleet with demo data: two cities, vehicles, customers, rides."`
	Import fleetImportCmd `cmd:"" help:"Import a fleet from a file, completely or not at all."`
	Export fleetExportCmd `cmd:"" help:"Export a fleet, for import or record by record."`

	Tracker fleetTrackerCmd `cmd:"" help:"Create an address to which the tracker of a vehicle reports."`
	Trigger fleetTriggerCmd `cmd:"" help:"Cause an event in the sandbox, for webhooks and streams."`
}

func (*fleetCmd) Help() string {
	return `An organization has two separate fleets: live, and test (the sandbox), which has
demo data from the first request on.

Move a fleet, or import yours (docs/fleet.md describes the file):
  kickstand fleet export --org acme --environment test > fleet.json
  kickstand fleet import --org acme --environment live fleet.json

Export rides for another program:
  kickstand fleet export --org acme --environment live --what rides > rides.ndjson

Then create a key: kickstand key create --service fleet --help`
}

// fleetOf selects an organization's fleet in one environment.
type fleetOf struct {
	Org         string `required:"" placeholder:"SLUG" help:"Organization."`
	Environment string `required:"" enum:"live,test" help:"Environment: live, or test (the sandbox)."`
}

// with opens the program and finds the fleet.
func (c *fleetOf) with(ctx context.Context, e *env, fn func(f *app.Fleet, o fleet.Organization) error) error {
	return e.with(ctx, func(a *app.App) error { return c.in(ctx, a, fn) })
}

// in finds the fleet in the open program.
func (c *fleetOf) in(ctx context.Context, a *app.App, fn func(f *app.Fleet, o fleet.Organization) error) error {
	o, err := a.Accounts.OrganizationBySlug(ctx, c.Org)
	if err != nil {
		return err
	}
	f := &a.Fleet
	if c.Environment == "test" {
		f = &a.Sandbox
	}
	return fn(f, fleet.Organization{ID: o.ID, Name: o.Name})
}

type fleetSeedCmd struct {
	Of fleetOf `embed:""`
}

func (*fleetSeedCmd) Help() string {
	return `Two cities (Berlin and Fukuoka) with 40 vehicles in every state, 30 customers,
8 zones, 3 pricing plans and 500 rides of the last 90 days. The customers are
fictional; no messages are sent. The fleet must be empty, except for the one
subaccount of a new fleet, which is replaced.`
}

func (c *fleetSeedCmd) Run(ctx context.Context, e *env) error {
	return c.Of.with(ctx, e, func(f *app.Fleet, o fleet.Organization) error {
		err := f.Seed(ctx, o)
		if problem.Of(err) == problem.Precondition && !f.Live() {
			return fmt.Errorf("the sandbox of %s is not empty; POST /sandbox/v1/sandbox/reset with a test key resets it", c.Of.Org)
		}
		if problem.Of(err) == problem.Precondition {
			return fmt.Errorf("the fleet of %s is not empty and may have real data; nothing was changed", c.Of.Org)
		}
		if err != nil {
			return err
		}
		subs, err := f.Subaccounts(ctx, f.DB, o.ID)
		if err != nil {
			return err
		}
		type shown struct {
			ID   string `json:"id"`
			Name string `json:"name"`
		}
		record := struct {
			Subaccounts []shown `json:"subaccounts"`
		}{}
		var names []string
		for _, s := range subs {
			record.Subaccounts = append(record.Subaccounts, shown{s.ID, s.Name})
			names = append(names, s.Name)
		}
		return e.print(record, func(w io.Writer) {
			fmt.Fprintf(w, "The %[1]s fleet of %[2]s has vehicles and rides in %[3]s.\nNext: kickstand key create --org %[2]s --service fleet --environment %[1]s --name NAME --level read_write\n",
				c.Of.Environment, c.Of.Org, strings.Join(names, " and "))
		})
	})
}

type fleetTrackerCmd struct {
	Of      fleetOf `embed:""`
	Vehicle string  `arg:"" placeholder:"CODE" help:"Code on the vehicle."`
	Delete  bool    `help:"Only invalidate the present address."`
}

func (*fleetTrackerCmd) Help() string {
	return `Enter the address in Traccar Client or another tracker of the OsmAnd protocol. Its
secret is shown only once, and good for reports of this vehicle only. A new address
replaces the former one. docs/telemetry.md has the parameters.`
}

func (c *fleetTrackerCmd) Run(ctx context.Context, e *env) error {
	return e.with(ctx, func(a *app.App) error {
		return c.Of.in(ctx, a, func(f *app.Fleet, o fleet.Organization) error {
			list, _, err := f.ListVehicles(ctx, f.DB, o.ID, fleet.VehicleQuery{Code: []string{c.Vehicle}})
			if err != nil {
				return err
			}
			if len(list) == 0 {
				return problem.New(problem.NotFound, "there is no vehicle with the code %s", c.Vehicle)
			}
			made := struct {
				VehicleID string `json:"vehicle_id"`
				URL       string `json:"url,omitempty"`
			}{VehicleID: list[0].ID}
			err = f.DB.Write(ctx, func(tx *db.Tx) error {
				if c.Delete {
					return f.DeleteTrackerTx(ctx, tx, o.ID, made.VehicleID)
				}
				secret, err := f.CreateTrackerTx(ctx, tx, o.ID, made.VehicleID)
				made.URL = a.TrackerURL(f, secret)
				return err
			})
			if err != nil {
				return err
			}
			return e.print(made, func(w io.Writer) {
				if c.Delete {
					fmt.Fprintf(w, "The address for the tracker of %s is no longer valid.\n", c.Vehicle)
					return
				}
				fmt.Fprintf(w, "The tracker of %s reports to %s\n", c.Vehicle, made.URL)
			})
		})
	})
}

type fleetImportCmd struct {
	Of   fleetOf `embed:""`
	File string  `arg:"" placeholder:"FILE" help:"JSON with lists of records; - reads it from standard input."`
}

func (*fleetImportCmd) Help() string {
	return `The file is an object with any of the lists subaccounts, vehicle_types,
pricing_plans, customers, zones and vehicles, with records in the form of the API:
the output of "kickstand fleet export". Its records refer to each other by ids.
Each gets a new id; a record with an existing id of the fleet is skipped.
If anything is wrong, the command lists every error and imports nothing. Rides
cannot be imported. Vehicles out of service remain so, and available ones whose
battery is low become so. Vehicles without a location or contact become removed.`
}

func (c *fleetImportCmd) Run(ctx context.Context, e *env) error {
	var text []byte
	var err error
	if c.File == "-" {
		text, err = io.ReadAll(e.in)
	} else {
		text, err = os.ReadFile(c.File)
	}
	if err != nil {
		return usageError{err}
	}
	file, err := fleet.ParseFile(text)
	if err != nil {
		return err
	}
	return c.Of.with(ctx, e, func(f *app.Fleet, o fleet.Organization) error {
		if err := f.Provision(ctx, o); err != nil {
			return err
		}
		var made fleet.Imported
		err := f.DB.Write(ctx, func(tx *db.Tx) (err error) {
			made, err = f.ImportTx(ctx, tx, o.ID, file, fleet.Actor{Type: "system"})
			return err
		})
		if err != nil {
			return err
		}
		return e.print(made, func(w io.Writer) {
			fmt.Fprintf(w, "Imported %d subaccounts, %d vehicle types, %d pricing plans, %d customers, %d zones and %d vehicles.\n",
				made.Subaccounts, made.VehicleTypes, made.Plans, made.Customers, made.Zones, made.Vehicles)
			if made == (fleet.Imported{}) {
				fmt.Fprintln(w, "All records exist already, by their ids.")
			}
		})
	})
}

type fleetExportCmd struct {
	Of   fleetOf `embed:""`
	What string  `enum:"fleet,subaccounts,pricing_plans,customers,zones,vehicles,rides,tasks,alert_rules,alerts" default:"fleet" help:"fleet: one JSON object for import; or subaccounts, pricing_plans, customers, zones, vehicles, rides, tasks, alert_rules, alerts: NDJSON, one record per line."`
	Dir  string  `placeholder:"DIR" help:"Write a file NAME.ndjson for each kind of record, including rides, tasks and alerts, instead of standard output."`
}

func (*fleetExportCmd) Help() string {
	return `Writes records in the form of the API, each kind from one snapshot; a server may
be running. A fleet for import has no anonymised customers: only their rides
remain.`
}

// importedKinds returns the kinds of records that an import takes, in its order.
func importedKinds() []string {
	return []string{"subaccounts", "pricing_plans", "customers", "zones", "vehicles"}
}

// fleetKinds returns the kinds of records of an export.
func fleetKinds() []string {
	return append(importedKinds(), "rides", "tasks", "alert_rules", "alerts")
}

func (c *fleetExportCmd) Run(ctx context.Context, e *env) error {
	if c.Dir != "" && c.What != "fleet" {
		return usageError{errors.New("--dir writes every kind of record; omit --what")}
	}
	return c.Of.with(ctx, e, func(f *app.Fleet, o fleet.Organization) error {
		if err := f.Provision(ctx, o); err != nil {
			return err
		}
		if err := f.Audit.Record(ctx, audit.Entry{
			OrganizationID: o.ID, Action: fleet.FleetExported, Target: audit.Target{Type: "fleet", ID: o.ID, Name: o.Name}, Details: map[string]any{"records": c.What},
		}); err != nil {
			return err
		}
		x := exporter{f: f, organizationID: o.ID, progress: e.err}
		switch {
		case c.Dir != "":
			return x.files(ctx, e, c.Dir)
		case c.What == "fleet":
			return x.whole(ctx, e.out)
		}
		_, err := x.lines(ctx, e.out, c.What)
		return err
	})
}

// exporter writes the records of a fleet.
type exporter struct {
	f              *app.Fleet
	organizationID string
	progress       io.Writer
}

// each calls fn with every record of a kind, as JSON.
func (x *exporter) each(ctx context.Context, kind string, fn func(record []byte) error) error {
	n := 0
	next := func(d *fleet.Record) error {
		if n++; n%100_000 == 0 {
			fmt.Fprintf(x.progress, "%d %s so far\n", n, kind)
		}
		return fn(d.JSON)
	}
	switch kind {
	case "subaccounts":
		list, err := x.f.Subaccounts(ctx, x.f.DB, x.organizationID)
		return eachDoc(list, err, (*fleet.Subaccount).Record, next)
	case "pricing_plans":
		list, err := x.f.Plans(ctx, x.f.DB, x.organizationID)
		return eachDoc(list, err, (*fleet.Plan).Record, next)
	case "customers":
		return x.f.EachCustomer(ctx, x.organizationID, fleet.CustomerQuery{}, next)
	case "zones":
		return x.f.EachZone(ctx, x.organizationID, fleet.ZoneQuery{}, next)
	case "vehicles":
		return x.f.EachVehicle(ctx, x.organizationID, fleet.VehicleQuery{}, next)
	case "tasks":
		return x.f.EachTask(ctx, x.organizationID, fleet.TaskQuery{}, next)
	case "alert_rules":
		list, err := x.f.AlertRules(ctx, x.f.DB, x.organizationID)
		return eachDoc(list, err, (*fleet.AlertRule).Record, next)
	case "alerts":
		return x.f.EachAlert(ctx, x.organizationID, fleet.AlertQuery{}, next)
	}
	return x.f.EachRide(ctx, x.organizationID, fleet.RideQuery{}, next)
}

func eachDoc[T any](list []T, err error, doc func(*T) (fleet.Record, error), fn func(*fleet.Record) error) error {
	for i := range list {
		if err != nil {
			break
		}
		var d fleet.Record
		if d, err = doc(&list[i]); err == nil {
			err = fn(&d)
		}
	}
	return err
}

// lines writes the records of a kind as NDJSON, and returns their number.
func (x *exporter) lines(ctx context.Context, w io.Writer, kind string) (n int, err error) {
	b := bufio.NewWriter(w)
	err = x.each(ctx, kind, func(record []byte) error {
		n++
		b.Write(record)
		return b.WriteByte('\n') // returns earlier errors, too
	})
	return n, errors.Join(err, b.Flush())
}

// whole writes all kinds as one JSON object for import.
func (x *exporter) whole(ctx context.Context, w io.Writer) error {
	b := bufio.NewWriter(w)
	for i, kind := range importedKinds() {
		separator := "{\n"
		if i > 0 {
			separator = "],\n"
		}
		fmt.Fprintf(b, "%s%q: [", separator, kind)
		separator = "\n"
		err := x.each(ctx, kind, func(record []byte) error {
			if kind == "customers" {
				var c struct {
					Status fleet.CustomerStatus `json:"status"`
				}
				if err := json.Unmarshal(record, &c); err != nil || c.Status == fleet.CustomerAnonymised {
					return err
				}
			}
			b.WriteString(separator)
			separator = ",\n"
			_, err := b.Write(record)
			return err
		})
		if err != nil {
			return err
		}
	}
	b.WriteString("]}\n")
	return b.Flush()
}

// files writes each kind into a file of a folder.
func (x *exporter) files(ctx context.Context, e *env, folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	counts := map[string]int{}
	for _, kind := range fleetKinds() {
		file, err := os.OpenFile(filepath.Join(folder, kind+".ndjson"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		n, err := x.lines(ctx, file, kind)
		if err := errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("%s is not complete: %w", file.Name(), err)
		}
		counts[kind] = n
	}
	return e.print(counts, func(w io.Writer) {
		for _, kind := range fleetKinds() {
			fmt.Fprintf(w, "%s: %d\n", filepath.Join(folder, kind+".ndjson"), counts[kind])
		}
	})
}
