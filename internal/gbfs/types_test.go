package gbfs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/gbfs"
	"github.com/kickstand-dev/kickstand/internal/optional"
)

// TestPublishedTypes checks every file of both versions by the types that MobilityData publishes as a
// package, for a full and for an empty system. They know members, types and enums, but no formats: the
// JSON Schemas of [TestSchemas] know more.
func TestPublishedTypes(t *testing.T) {
	modules := os.Getenv("KICKSTAND_TEST_NODE_MODULES")
	if modules == "" {
		t.Skip("set KICKSTAND_TEST_NODE_MODULES to a node_modules folder made by `npm ci` from testdata/types to check the feed by MobilityData's types (.ci/run gbfs does)")
	}
	modules, err := filepath.Abs(modules)
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs(filepath.Join("testdata", "types", "check.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	r.update(fleet.SubaccountChange{GBFS: optional.Of(fleet.GBFS{Enabled: true, SystemID: "acme_berlin", OpeningHours: "Mo-Fr 08:00-18:00", ContactEmail: "feed@example.com"})})
	for _, filled := range []bool{false, true} {
		if filled {
			r.fill()
		}
		for _, v := range []struct {
			version, prefix string
			names           []string
		}{{"v3.0", gbfs.Path, names}, {"v2.3", gbfs.Path23, names23}} {
			texts := map[string]string{}
			for _, name := range v.names {
				texts[name] = body(t, r.get(v.prefix+"acme_berlin/"+name+".json"))
			}
			// check runs the program in a folder of its own and returns the files with faults.
			check := func(texts map[string]string) (faulty []string, out string) {
				dir := t.TempDir()
				write := func(name, text string) {
					if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
					t.Fatal(err)
				}
				if err := os.Mkdir(filepath.Join(dir, "feed"), 0o700); err != nil {
					t.Fatal(err)
				}
				write("check.mjs", string(program))
				for name, text := range texts {
					write(filepath.Join("feed", name+".json"), text)
				}
				node := exec.CommandContext(t.Context(), "node", "check.mjs", v.version, "feed")
				node.Dir = dir
				got, err := node.CombinedOutput()
				if err != nil {
					t.Fatalf("check.mjs: %v\n%s", err, got)
				}
				for _, line := range regexp.MustCompile(`(?m)^(\w+)\.json: `).FindAllStringSubmatch(string(got), -1) {
					faulty = append(faulty, line[1])
				}
				return slices.Compact(faulty), string(got)
			}
			if faulty, out := check(texts); len(faulty) > 0 || out != "" {
				t.Errorf("%s, filled: %v: faults in %q\n%s", v.version, filled, faulty, out)
			}
			if !filled {
				continue
			}
			// The types detect a missing member of each file that has required ones.
			member := map[string]string{
				"system_information": "system_id", "vehicle_types": "form_factor", "vehicle_status": "is_disabled", "free_bike_status": "is_disabled",
				"system_pricing_plans": "is_taxable", "geofencing_zones": "ride_through_allowed", "system_alerts": "summary",
			}
			var want []string
			for name := range texts {
				if member[name] != "" {
					want = append(want, name)
					texts[name] = strings.Replace(texts[name], `"`+member[name]+`"`, `"other"`, 1)
				}
			}
			slices.Sort(want)
			if faulty, out := check(texts); !slices.Equal(faulty, want) {
				t.Errorf("%s: faults in %q, want %q\n%s", v.version, faulty, want, out)
			}
		}
	}
}
