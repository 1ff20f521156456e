package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// TestDefaultOrganizationCommands: the list marks the default organization, and the
// operator can change it.
func TestDefaultOrganizationCommands(t *testing.T) {
	settings := []string{"--data=" + t.TempDir(), "--database-url=" + dbtest.URL(t), "--base-url=https://help.example.com"}
	try := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := run(t.Context(), append(args, settings...), noEnvironment, nil, &out, t.Output())
		return out.String(), err
	}
	kickstand := func(args ...string) string {
		t.Helper()
		out, err := try(args...)
		if err != nil {
			t.Fatalf("kickstand %s: %v", strings.Join(args, " "), err)
		}
		return out
	}
	wantDefault := func(slug string) {
		t.Helper()
		var list []struct {
			Slug    string
			Default bool
			MadeBy  string `json:"made_by"`
		}
		if err := json.Unmarshal([]byte(kickstand("org", "list", "--json")), &list); err != nil {
			t.Fatal(err)
		}
		for _, o := range list {
			if o.Default != (o.Slug == slug) || o.MadeBy != "operator" {
				t.Errorf("%+v, want the default to be %s", o, slug)
			}
		}
	}
	kickstand("org", "create", "--name=Acme")
	kickstand("org", "create", "--name=Wheels")
	wantDefault("acme")
	if got := kickstand("org", "default", "wheels"); got != "wheels is the default organization.\n" {
		t.Errorf("org default said %q", got)
	}
	wantDefault("wheels")
	kickstand("org", "create", "--name=Third", "--default")
	wantDefault("third")
	if table := kickstand("org", "list"); !strings.Contains(table, "DEFAULT") || strings.Count(table, "yes") != 1 {
		t.Errorf("the list is\n%s", table)
	}
	if _, err := try("org", "default", "nobody"); problem.Of(err) != problem.NotFound || !strings.Contains(err.Error(), "kickstand org list") {
		t.Errorf("org default of nobody: %v", err)
	}
	wantDefault("third")
}
