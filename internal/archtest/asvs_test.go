package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// asvsSections lists the requirements of OWASP ASVS 4.0.3 by section: the numbers of the last
// requirements of level 1 and of level 2.
var asvsSections = []struct{ section, level1, level2 string }{
	{"1.1", "", "1 2 3 4 5 6 7"},
	{"1.2", "", "1 2 3 4"},
	{"1.4", "", "1 4 5"},
	{"1.5", "", "1 2 3 4"},
	{"1.6", "", "1 2 3 4"},
	{"1.7", "", "1 2"},
	{"1.8", "", "1 2"},
	{"1.9", "", "1 2"},
	{"1.10", "", "1"},
	{"1.11", "", "1 2"},
	{"1.12", "", "2"},
	{"1.14", "", "1 2 3 4 5 6"},
	{"2.1", "1 2 3 4 5 6 7 8 9 10 11 12", ""},
	{"2.2", "1 2 3", ""},
	{"2.3", "1", "2 3"},
	{"2.4", "", "1 2 3 4 5"},
	{"2.5", "1 2 3 4 5 6", "7"},
	{"2.6", "", "1 2 3"},
	{"2.7", "1 2 3 4", "5 6"},
	{"2.8", "1", "2 3 4 5 6 7"},
	{"2.9", "", "1 2 3"},
	{"2.10", "", "1 2 3 4"},
	{"3.1", "1", ""},
	{"3.2", "1 2 3", "4"},
	{"3.3", "1 2", "3 4"},
	{"3.4", "1 2 3 4 5", ""},
	{"3.5", "", "1 2 3"},
	{"3.7", "1", ""},
	{"4.1", "1 2 3 5", ""},
	{"4.2", "1 2", ""},
	{"4.3", "1 2", "3"},
	{"5.1", "1 2 3 4 5", ""},
	{"5.2", "1 2 3 4 5 6 7 8", ""},
	{"5.3", "1 2 3 4 5 6 7 8 9 10", ""},
	{"5.4", "", "1 2 3"},
	{"5.5", "1 2 3 4", ""},
	{"6.1", "", "1 2 3"},
	{"6.2", "1", "2 3 4 5 6"},
	{"6.3", "", "1 2"},
	{"6.4", "", "1 2"},
	{"7.1", "1 2", "3 4"},
	{"7.2", "", "1 2"},
	{"7.3", "", "1 3 4"},
	{"7.4", "1", "2 3"},
	{"8.1", "", "1 2 3 4"},
	{"8.2", "1 2 3", ""},
	{"8.3", "1 2 3 4", "5 6 7 8"},
	{"9.1", "1 2 3", ""},
	{"9.2", "", "1 2 3 4"},
	{"10.2", "", "1 2"},
	{"10.3", "1 2 3", ""},
	{"11.1", "1 2 3 4 5", "6 7 8"},
	{"12.1", "1", "2 3"},
	{"12.2", "", "1"},
	{"12.3", "1 2 3 4 5", "6"},
	{"12.4", "1 2", ""},
	{"12.5", "1 2", ""},
	{"12.6", "1", ""},
	{"13.1", "1 3", "4 5"},
	{"13.2", "1 2 3", "5 6"},
	{"13.3", "1", "2"},
	{"13.4", "", "1 2"},
	{"14.1", "", "1 2 3 4"},
	{"14.2", "1 2 3", "4 5 6"},
	{"14.3", "2 3", ""},
	{"14.4", "1 2 3 4 5 6 7", ""},
	{"14.5", "1 2 3", "4"},
}

// asvsLevels returns the level of each requirement by id, such as "2.1.1".
func asvsLevels() map[string]string {
	levels := map[string]string{}
	for _, s := range asvsSections {
		for level, numbers := range map[string]string{"1": s.level1, "2": s.level2} {
			for n := range strings.FieldsSeq(numbers) {
				levels[s.section+"."+n] = level
			}
		}
	}
	return levels
}

// asvsRow is a row of docs/security/asvs.md.
type asvsRow struct{ id, level, name, how, proof, state string }

var asvsStates = []string{"met", "partly", "not met", "not applicable"}

// asvsRows parses the rows of a page. It reports malformed tables.
func asvsRows(page string) (rows []asvsRow, wrong []string) {
	requirement := regexp.MustCompile(`^(\d+\.\d+\.\d+) \(L([12])\) (.+)$`)
	for n, line := range strings.Split(page, "\n") {
		if !regexp.MustCompile(`^\| *\d`).MatchString(line) {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		m := requirement.FindStringSubmatch(cells[0])
		switch {
		case len(cells) != 4 || m == nil:
			wrong = append(wrong, fmt.Sprintf("line %d is no row of four cells: %s", n+1, line))
		case slices.Contains(cells, ""):
			wrong = append(wrong, fmt.Sprintf("%s has an empty cell", m[1]))
		case !slices.Contains(asvsStates, cells[3]):
			wrong = append(wrong, fmt.Sprintf("%s is %q, which is no state", m[1], cells[3]))
		default:
			rows = append(rows, asvsRow{m[1], m[2], m[3], cells[1], cells[2], cells[3]})
		}
	}
	return rows, wrong
}

// evidence holds the names that a proof may cite.
type evidence struct {
	tests map[string][]string // packages by name of a test or fuzz target
	parts []string            // of .ci/run
	file  func(name string) bool
}

// check returns the unknown names of a proof, and the number of known ones.
func (e evidence) check(proof string) (found int, wrong []string) {
	test := regexp.MustCompile(`^(?:([a-z0-9]+)\.)?((?:Test|Fuzz)\w+)$`)
	for _, m := range regexp.MustCompile("(part )?`([^`]+)`").FindAllStringSubmatch(proof, -1) {
		name := m[2]
		t := test.FindStringSubmatch(name)
		switch {
		case m[1] != "" && slices.Contains(e.parts, name):
		case m[1] != "":
			wrong = append(wrong, name+" is no part of .ci/run")
			continue
		case t != nil:
			in := slices.DeleteFunc(slices.Clone(e.tests[t[2]]), func(p string) bool { return t[1] != "" && path.Base(p) != t[1] })
			if len(in) != 1 {
				wrong = append(wrong, fmt.Sprintf("%s is in %d packages: %s", name, len(in), strings.Join(in, ", ")))
				continue
			}
		case !e.file(name):
			wrong = append(wrong, name+" is no file")
			continue
		}
		found++
	}
	return found, wrong
}

// checkASVS compares the rows with the standard and the tree.
func checkASVS(page string, levels map[string]string, e evidence) []string {
	rows, wrong := asvsRows(page)
	seen := map[string]bool{}
	count := map[string]int{}
	for _, r := range rows {
		switch {
		case levels[r.id] == "":
			wrong = append(wrong, r.id+" is no requirement of levels 1 and 2")
		case levels[r.id] != r.level:
			wrong = append(wrong, r.id+" is of level "+levels[r.id])
		case seen[r.id]:
			wrong = append(wrong, r.id+" is here twice")
		}
		seen[r.id] = true
		count["L"+r.level+r.state]++
		found, faults := e.check(r.proof)
		for _, f := range faults {
			wrong = append(wrong, r.id+": "+f)
		}
		if found == 0 && len(faults) == 0 && r.state != "not applicable" {
			wrong = append(wrong, r.id+" names no proof")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(levels)) {
		if !seen[id] {
			wrong = append(wrong, id+" is missing")
		}
	}
	for title, level := range map[string]string{"Level 1": "L1", "Level 2 adds": "L2"} {
		line, all := "| "+title+" |", 0
		for _, s := range asvsStates {
			line += fmt.Sprintf(" %d |", count[level+s])
			all += count[level+s]
		}
		if line += fmt.Sprintf(" %d |", all); !strings.Contains(page, line) {
			wrong = append(wrong, "the counts are not "+line)
		}
	}
	return wrong
}

// TestASVS holds docs/security/asvs.md to the standard's ids and levels, and its proofs
// to the tree.
func TestASVS(t *testing.T) {
	levels := asvsLevels()
	if len(levels) != 259 {
		t.Fatalf("got %d requirements, want 259", len(levels))
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "security", "asvs.md"))
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	e := evidence{tests: map[string][]string{}, file: func(name string) bool {
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
		return err == nil
	}}
	for _, m := range regexp.MustCompile(`(?m)^(\w+)\(\) \{$`).FindAllStringSubmatch(string(script), -1) {
		e.parts = append(e.parts, m[1])
	}
	for _, p := range repository(t) {
		for _, f := range p.files {
			for _, d := range f.syntax.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && f.test && fn.Recv == nil {
					e.tests[fn.Name.Name] = append(e.tests[fn.Name.Name], p.path)
				}
			}
		}
	}
	for _, w := range checkASVS(string(page), levels, e) {
		t.Error("docs/security/asvs.md: " + w)
	}
}

// TestASVSRulesCatch breaks a page in every way that counts.
func TestASVSRulesCatch(t *testing.T) {
	levels := map[string]string{"1.1.1": "1", "1.1.2": "2"}
	e := evidence{map[string][]string{"TestOne": {"a"}, "TestTwo": {"x/a", "b"}}, []string{"lint"}, func(name string) bool { return name == "go.mod" }}
	const counts = "| Level 1 | 1 | 0 | 0 | 0 | 1 |\n| Level 2 adds | 0 | 0 | 0 | 1 | 1 |\n"
	const good1, good2 = "| 1.1.1 (L1) a | how | `TestOne`, `b.TestTwo`, `go.mod`, part `lint` | met |\n", "| 1.1.2 (L2) b | how | none | not applicable |\n"
	if wrong := checkASVS(counts+good1+good2, levels, e); len(wrong) > 0 {
		t.Errorf("complaints of a good page: %q", wrong)
	}
	for page, want := range map[string]string{
		counts + good1: "1.1.2 is missing",
		counts + good1 + good2 + "| 1.1.3 (L1) c | how | `go.mod` | met |\n": "1.1.3 is no requirement",
		counts + good1 + good2 + good2:                                       "1.1.2 is here twice",
		counts + strings.Replace(good1, "L1", "L2", 1) + good2:               "1.1.1 is of level 1",
		counts + strings.Replace(good1, "how", "", 1) + good2:                "1.1.1 has an empty cell",
		counts + strings.Replace(good1, "met", "done", 1) + good2:            `"done", which is no state`,
		counts + strings.Replace(good1, " a |", " a |x|", 1) + good2:         "no row of four cells",
		counts + strings.Replace(good1, "TestOne", "TestOn", 1) + good2:      "TestOn is in 0 packages",
		counts + strings.Replace(good1, "b.TestTwo", "TestTwo", 1) + good2:   "TestTwo is in 2 packages",
		counts + strings.Replace(good1, "go.mod", "go.none", 1) + good2:      "go.none is no file",
		counts + strings.Replace(good1, "`lint`", "`line`", 1) + good2:       "line is no part",
		counts + "| 1.1.1 (L1) a | how | somehow | met |\n" + good2:          "1.1.1 names no proof",
		"| Level 1 | 2 |" + good1 + good2:                                    "the counts are not",
	} {
		if got := strings.Join(checkASVS(page, levels, e), "\n"); !strings.Contains(got, want) {
			t.Errorf("got complaints %q, want %q", got, want)
		}
	}
}
