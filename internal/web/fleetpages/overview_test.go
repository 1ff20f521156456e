package fleetpages_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// TestEnvironments: every page shows its environment.
func TestEnvironments(t *testing.T) {
	y := newYard(t)
	for path, other := range map[string]string{
		"/fleet": "/sandbox/fleet", "/sandbox/fleet": "/fleet", "/fleet/map": "/sandbox/fleet/map", "/sandbox/fleet/zones": "/fleet/zones",
	} {
		d := y.agent.Page(path)
		sandbox := len(d.WithAttr("class", "sandbox")) == 1
		if sandbox != strings.HasPrefix(path, "/sandbox/") {
			t.Errorf("%s: looks like the other environment", path)
		}
		if len(d.WithAttr("href", other)) == 0 {
			t.Errorf("%s: no link to %s", path, other)
		}
	}
}

func TestOverview(t *testing.T) {
	y := newYard(t)
	y.agent.Page("/fleet").Want("No vehicles or rides yet")
	d := y.agent.Page("/sandbox/fleet")
	d.Want("Rides", "Revenue in EUR", "Revenue in JPY", "Vehicles ridden", "Average ride", "Needs attention", "missing", "30 days before", "Show tables")
	if n := len(d.WithAttr("class", "card chart")); n != 3 {
		t.Errorf("got %d charts, want one of rides and one for each currency", n)
	}
	d = y.agent.Page("/sandbox/fleet?days=365&view=table")
	d.Want("Week of", "365 days before", "Show charts")
	if n := len(d.All("table")); n != 3 {
		t.Errorf("got %d tables", n)
	}
	y.agent.Page("/sandbox/fleet?days=nine&subaccount=nowhere&type=none").Want("30 days before")

	// Active alerts show on the overview.
	sub := y.live.sole()
	y.live.write(func(ctx context.Context, tx *db.Tx) error {
		locked, err := y.live.LockSubaccountTx(ctx, tx, y.Organization.ID, sub.ID)
		if err != nil {
			return err
		}
		now := time.Now()
		_, err = y.live.UpdateSubaccountTx(ctx, tx, y.Organization.ID, locked, fleet.SubaccountChange{Alerts: optional.Of([]fleet.Alert{
			{Type: "other", Summary: "Storm <b>today</b>", StartsAt: rfc3339.Time(now.Add(-time.Hour))},
			{Type: "other", Summary: "Fair tomorrow", StartsAt: rfc3339.Time(now.Add(time.Hour))},
		})})
		return err
	})
	d = y.agent.Page("/fleet")
	d.Want("Storm <b>today</b>")
	if strings.Contains(webtest.Text(d.Root), "Fair tomorrow") {
		t.Error("an alert of tomorrow is told today")
	}
}
