package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestFleetExport exports a fleet as files with every kind of record; sample data has no alerts. The
// import of what exists changes nothing.
func TestFleetExport(t *testing.T) {
	database := []string{"--data=" + t.TempDir(), "--database-url=" + dbtest.EmptyURL(t)}
	do := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if err := run(t.Context(), append(args, database...), noEnvironment, nil, &out, io.Discard); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return out.String()
	}
	do("org", "create", "--name=Acme")
	do("fleet", "seed", "--org=acme", "--environment=live")
	folder := t.TempDir()
	do("fleet", "export", "--org=acme", "--environment=live", "--dir="+folder)
	for kind, object := range map[string]string{
		"subaccounts": "subaccount", "pricing_plans": "pricing_plan", "customers": "customer", "zones": "zone", "vehicles": "vehicle", "rides": "ride",
		"tasks": "task", "alert_rules": "alert_rule", "alerts": "alert",
	} {
		text, err := os.ReadFile(filepath.Join(folder, kind+".ndjson"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, `"object":"`+object+`"`) {
				t.Errorf("%s has %.200q", kind, line)
			}
		}
		if len(text) == 0 && !strings.HasPrefix(kind, "alert") {
			t.Errorf("there are no %s", kind)
		}
		if one := do("fleet", "export", "--org=acme", "--environment=live", "--what="+kind); one != string(text) {
			t.Errorf("%s differ on standard output", kind)
		}
	}
	whole := do("fleet", "export", "--org=acme", "--environment=live")
	file := filepath.Join(t.TempDir(), "fleet.json")
	if err := os.WriteFile(file, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := do("fleet", "import", "--org=acme", "--environment=live", file); !strings.Contains(out, "All records exist already") {
		t.Errorf("the import of what is there printed %q", out)
	}
}
