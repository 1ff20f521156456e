package app

import (
	"cmp"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
)

func TestFleetBases(t *testing.T) {
	for _, test := range []struct{ live, sandbox, want string }{
		{"", "", "https://help.example.com/v1  https://help.example.com/sandbox/v1 "},
		{"https://api.example.com/v1", "https://sandbox.example.com/v1", "https://api.example.com/v1 api.example.com https://sandbox.example.com/v1 sandbox.example.com"},
		{"https://help.example.com/fleet/v1", "", "https://help.example.com/fleet/v1  https://help.example.com/sandbox/v1 "},
		{"https://api.example.com:8443/v1", "", "https://api.example.com:8443/v1 api.example.com:8443 https://help.example.com/sandbox/v1 "},
		{"https://api.example.com/v1", "https://api.example.com/v1", "sandbox-base-url:"},
		{"https://api.example.com/v1", "https://api.example.com/v1/sandbox/v1", "sandbox-base-url:"},
		{"https://help.example.com/api/v1", "", "fleet-base-url:"},
		{"https://api.example.com/v2", "", "fleet-base-url:"},
		{"https://api.example.com/v1/", "", "fleet-base-url:"},
		{"https://api.example.com//v1", "", "fleet-base-url:"},
		{"https://api.example.com/{x}/v1", "", "fleet-base-url:"},
		{"https://api.example.com/v1?x=1", "", "fleet-base-url:"},
		{"https://me@api.example.com/v1", "", "fleet-base-url:"},
		{"api.example.com/v1", "", "fleet-base-url:"},
		{"", "ftp://api.example.com/v1", "sandbox-base-url:"},
	} {
		c := Config{BaseURL: "https://help.example.com", FleetBaseURL: test.live, SandboxBaseURL: test.sandbox}
		live, sandbox, err := c.fleetBases()
		got := live.String() + " " + live.host + " " + sandbox.String() + " " + sandbox.host
		if err != nil {
			got, _, _ = strings.Cut(err.Error(), " ")
		}
		if got != test.want {
			t.Errorf("%q and %q: got %q, want %q (%v)", test.live, test.sandbox, got, test.want, err)
		}
	}
}

// TestDatabaseConnections: three processes fit a server of PostgreSQL's default size, and what
// the databases open never exceeds the setting.
func TestDatabaseConnections(t *testing.T) {
	const server = 100 - 3 // PostgreSQL's defaults: max_connections, and those for superusers
	if 3*DefaultDatabaseConnections >= server {
		t.Errorf("three processes open %d connections, of %d", 3*DefaultDatabaseConnections, server)
	}
	for _, set := range []int{0, LeastDatabaseConnections, 31, 100} {
		total := 0
		for _, d := range databases {
			_, o := d.at(&Config{DatabaseURL: "postgres://db.example.com/kickstand", DatabaseConnections: set})
			if least := 3; o.MaxConns < least {
				t.Errorf("%d connections: %s has %d, want at least %d", set, d.name, o.MaxConns, least)
			}
			total += o.MaxConns
		}
		if want := cmp.Or(set, DefaultDatabaseConnections); total != want {
			t.Errorf("%d connections: the databases open %d, want %d", set, total, want)
		}
	}
}

func TestDatabases(t *testing.T) {
	for helpdesk, want := range map[string][3]string{
		"sqlite:/var/lib/kickstand/kickstand.db": {"sqlite:/var/lib/kickstand/kickstand.db", "sqlite:/var/lib/kickstand/fleet-live.db", "sqlite:/var/lib/kickstand/fleet-test.db"},
		"postgres://db.example.com/kickstand":    {"postgres://db.example.com/kickstand", "postgres://db.example.com/kickstand", "postgres://db.example.com/kickstand"},
	} {
		for i, d := range databases {
			at, o := d.at(&Config{DatabaseURL: helpdesk})
			namespace := ""
			if strings.HasPrefix(helpdesk, "postgres") && i > 0 {
				namespace = d.name
			}
			if at != want[i] || o.Namespace != namespace || (d.schema == db.Helpdesk) != (i == 0) {
				t.Errorf("%s of %s: got %s %+v", d.name, helpdesk, at, o)
			}
		}
	}
}
