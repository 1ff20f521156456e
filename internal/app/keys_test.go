package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
)

// TestCatalogues compares the catalogues with the contracts' tables.
func TestCatalogues(t *testing.T) {
	for service, want := range map[apikey.ServiceName][]string{
		apikey.Helpdesk: {
			"tickets: read create update delete", "messages: read create", "customers: read create update delete",
			"webhooks: read create update delete", "channels: read create update delete", "events: read create", "analytics: read",
			"settings: read update, admins'", "test false, subaccounts false",
		},
		apikey.Fleet: {
			"rides: read create update", "vehicles: read create update delete", "customers: read update", "pricing: read update",
			"analytics: read", "zones: read create update delete, not named", "settings: read update, admins'",
			"test true, subaccounts true",
		},
	} {
		c := catalogues()[service]
		var got []string
		for _, r := range c.Resources {
			line := r.Name + ": " + strings.Trim(fmt.Sprint(r.Actions), "[]")
			if r.Unnamed {
				line += ", not named"
			}
			if r.Settings {
				line += ", admins'"
			}
			got = append(got, line)
		}
		got = append(got, fmt.Sprintf("test %t, subaccounts %t", c.Test, c.Subaccounts))
		if !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", service, got, want)
		}
	}
}
