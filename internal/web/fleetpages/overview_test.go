package fleetpages_test

import "testing"

// TestEnvironments: nobody can take the one for the other.
func TestEnvironments(t *testing.T) {
	y := newYard(t)
	for path, other := range map[string]string{"/fleet": "/sandbox/fleet", "/sandbox/fleet": "/fleet"} {
		d := y.agent.Page(path)
		sandbox := len(d.With("class", "sandbox")) == 1
		if sandbox != (path == "/sandbox/fleet") {
			t.Errorf("%s: looks like the other environment", path)
		}
		if len(d.With("href", other)) == 0 {
			t.Errorf("%s: no link to %s", path, other)
		}
	}
}
