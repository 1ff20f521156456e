package fleetpages_test

import (
	"context"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/quota/quotatest"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/tiles"
	"github.com/kickstand-dev/kickstand/internal/web/fleetpages"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// yard is a site with the pages of both environments.
type yard struct {
	*webtest.Harness
	live, sandbox environment
	desk          *desk.Service
	quotas        *quota.Service // without limits
	tiles         *tiles.Map
	admin, agent  *webtest.Browser
}

// environment is the fleet of one environment. Production has one empty subaccount;
// the sandbox is seeded.
type environment struct {
	*fleet.Service
	log          *audit.Log
	db           *db.DB
	organization fleet.Organization
	tb           testing.TB
}

func newYard(t testing.TB) *yard {
	t.Helper()
	y := &yard{Harness: webtest.NewHarness(t)}
	jobs := queue.Open(y.DB, queue.Config{})
	y.quotas = quotatest.Open(y.DB, jobs, nil, func(c *quota.Config) {
		c.Elsewhere = func(ctx context.Context, organizationID string, except *db.DB) (sum int64, err error) {
			for _, e := range []environment{y.live, y.sandbox} {
				if n := int64(0); e.db != except && err == nil {
					n, err = e.PhotoBytes(ctx, e.db, organizationID)
					sum += n
				}
			}
			return sum, err
		}
	})
	y.desk = desk.Open(desk.Config{DB: y.DB, Queue: jobs, Events: new(event.Log), Directory: y.Accounts, BaseURL: webtest.BaseURL, Logger: y.Log})
	background, err := tiles.Open(tiles.Config{Logger: y.Log})
	if err != nil {
		t.Fatal(err)
	}
	o := fleet.Organization{ID: y.Organization.ID, Name: y.Organization.Name}
	for _, e := range []*environment{&y.live, &y.sandbox} {
		d := dbtest.NewFleet(t)
		log := audittest.Fleet(d, e == &y.live)
		*e = environment{fleet.Open(fleet.Config{DB: d, Live: e == &y.live, Audit: log, Logger: y.Log}), log, d, o, t}
		fleetpages.Register(y.Site, fleetpages.Config{
			Fleet: e.Service, DB: d, Log: log, Quotas: y.quotas, Desk: y.desk, DeskDB: y.DB,
			API: "https://api.example.com/v1", Feed: "https://help.example.com/gbfs/v3/", Tiles: background, Agencies: "https://help.example.com/mds/v2", Members: y.Accounts.Members, Once: rest.OnceTx,
		})
	}
	y.tiles = background
	y.admin, y.agent = y.SignIn(y.Admin), y.SignIn(y.Agent)
	return y
}

// write provisions the fleet and runs fn in a transaction that must succeed.
func (e *environment) write(fn func(ctx context.Context, tx *db.Tx) error) {
	e.tb.Helper()
	ctx := e.tb.Context()
	err := e.Provision(ctx, e.organization)
	if err == nil {
		err = e.db.Write(ctx, func(tx *db.Tx) error { return fn(ctx, tx) })
	}
	if err != nil {
		e.tb.Fatal(err)
	}
}

// sole returns production's initial subaccount.
func (e *environment) sole() fleet.Subaccount {
	e.tb.Helper()
	if err := e.Provision(e.tb.Context(), e.organization); err != nil {
		e.tb.Fatal(err)
	}
	list, err := e.Subaccounts(e.tb.Context(), e.db, e.organization.ID)
	if err != nil || len(list) == 0 {
		e.tb.Fatal(list, err)
	}
	return list[0]
}
