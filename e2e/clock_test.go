package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
)

// TestSandboxTimes checks that relative times follow the sandbox clock, as rendered and
// as updated by the script, also when the clock is advanced while the page is open.
func TestSandboxTimes(t *testing.T) {
	t.Parallel()
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	of := fleet.Organization{ID: o.ID, Name: o.Name}
	if err := p.Sandbox.Provision(t.Context(), of); err != nil {
		t.Fatal(err)
	}
	travel := func(by time.Duration) {
		t.Helper()
		if err := p.Sandbox.DB.Write(t.Context(), func(tx *db.Tx) error {
			now, err := p.Sandbox.Now(t.Context(), tx, o.ID)
			if err != nil {
				return err
			}
			return p.Sandbox.AdvanceClockTx(t.Context(), tx, o.ID, now.Add(by))
		}); err != nil {
			t.Fatal(err)
		}
	}
	var vehicle string
	if err := p.Sandbox.EachVehicle(t.Context(), o.ID, fleet.VehicleQuery{}, func(d *fleet.Record) error {
		vehicle = d.ID
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	travel(10 * 24 * time.Hour)
	v := p.as(t, robin)
	v.open("/sandbox/fleet/vehicles/" + vehicle)
	const ago = `document.querySelector("dl time[data-ago]")?.textContent`
	first := js[string](v, ago)
	if !strings.HasSuffix(first, " d") {
		t.Fatalf("the last report was %q ago, ten days after the vehicle was created", first)
	}
	grow := `document.dispatchEvent(new Event("visibilitychange"))`
	js[bool](v, grow)
	if again := js[string](v, ago); again != first {
		t.Errorf("the script makes %q of %q", again, first)
	}
	travel(3 * 24 * time.Hour)
	v.wait("the time three days later", ago+` !== `+"`"+first+"`")
	later := js[string](v, ago)
	js[bool](v, grow)
	if again := js[string](v, ago); again != later {
		t.Errorf("the script makes %q of %q after the clock was advanced", again, later)
	}
}
