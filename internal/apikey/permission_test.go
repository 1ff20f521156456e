package apikey

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// fleet is the catalogue of fleet.md 2 and fleet-api.md 3.1.
func fleet() Catalogue {
	all := []Action{Read, Create, Update, Delete}
	return Catalogue{
		Resources: []Resource{
			{Name: "rides", Actions: []Action{Read, Create, Update}},
			{Name: "vehicles", Actions: all},
			{Name: "customers", Actions: []Action{Read, Update}},
			{Name: "pricing", Actions: []Action{Read, Update}},
			{Name: "analytics", Actions: []Action{Read}},
			{Name: "zones", Actions: all, Unnamed: true},
			{Name: "settings", Actions: []Action{Read, Update}, Settings: true},
		},
		Test: true, Subaccounts: true,
	}
}

// decisions is the complete table of fleet-api.md 3.2.
const decisions = `
| Key | level | resources | rides | vehicles | customers | pricing | analytics | zones | settings |
|---|---|---|---|---|---|---|---|---|---|
| K1 | null | null | --- | ---- | -- | -- | - | ---- | -- |
| K2 | read_only | null | +-- | +--- | +- | +- | + | +--- | -- |
| K3 | read_write | null | +++ | ++++ | ++ | ++ | + | ++++ | -- |
| K4 | admin | null | +++ | ++++ | ++ | ++ | + | ++++ | ++ |
| K5 | null | all | +++ | ++++ | ++ | ++ | + | ++++ | -- |
| K6 | read_only | all | +-- | +--- | +- | +- | + | +--- | -- |
| K7 | read_write | all | +++ | ++++ | ++ | ++ | + | ++++ | -- |
| K8 | admin | all | +++ | ++++ | ++ | ++ | + | ++++ | ++ |
| K9 | null | rides: read | +-- | ---- | -- | -- | - | ---- | -- |
| K10 | null | rides: read, create, update; vehicles: read; customers: read, update | +++ | +--- | ++ | -- | - | ---- | -- |
| K11 | null | rides, vehicles, customers, analytics: read | +-- | +--- | +- | -- | + | ---- | -- |
| K12 | read_only | rides: read, create, update | +-- | ---- | -- | -- | - | ---- | -- |
| K13 | read_only | vehicles: delete | --- | ---- | -- | -- | - | ---- | -- |
| K14 | read_write | vehicles: all four; pricing: read, update | --- | ++++ | -- | ++ | - | ---- | -- |
| K15 | admin | analytics: read | --- | ---- | -- | -- | + | ---- | -- |
| K16 | null | every box of the contract's table | +++ | ++++ | ++ | ++ | + | ---- | -- |
| K17 | read_write | rides: create | -+- | ---- | -- | -- | - | ---- | -- |
| K18 | null | empty map | --- | ---- | -- | -- | - | ---- | -- |
`

// readGrants parses the table's third column.
func readGrants(t *testing.T, c Catalogue, text string) Grants {
	t.Helper()
	switch text {
	case "null":
		return Grants{}
	case "all":
		return Grants{All: true}
	case "empty map":
		return Grants{Named: map[string][]Action{}}
	}
	named := map[string][]Action{}
	if text == "every box of the contract's table" {
		for _, r := range c.Resources {
			if r.named() {
				named[r.Name] = r.Actions
			}
		}
		return Grants{Named: named}
	}
	for part := range strings.SplitSeq(text, "; ") {
		resources, words, ok := strings.Cut(part, ": ")
		if !ok {
			t.Fatalf("cannot read %q", part)
		}
		var actions []Action
		if words == "all four" {
			words = "read, create, update, delete"
		}
		for a := range strings.SplitSeq(words, ", ") {
			actions = append(actions, Action(a))
		}
		for r := range strings.SplitSeq(resources, ", ") {
			named[r] = actions
		}
	}
	return Grants{Named: named}
}

func TestDecision(t *testing.T) {
	c := fleet()
	rows := strings.Split(strings.TrimSpace(decisions), "\n")[2:]
	if len(rows) != 18 {
		t.Fatalf("the table has %d keys, want 18", len(rows))
	}
	cells := 0
	for _, row := range rows {
		columns := strings.Split(strings.Trim(row, "| "), " | ")
		p := Permissions{Resources: readGrants(t, c, columns[2])}
		if columns[1] != "null" {
			p.Level = Level(columns[1])
		}
		for i, r := range c.Resources {
			if len(columns[3+i]) != len(r.Actions) {
				t.Fatalf("%s, %s: %q for %d actions", columns[0], r.Name, columns[3+i], len(r.Actions))
			}
			for j, a := range r.Actions {
				cells++
				if got, want := c.Allows(p, r.Name, a), columns[3+i][j] == '+'; got != want {
					t.Errorf("%s: %s.%s allowed: got %t, want %t", columns[0], r.Name, a, got, want)
				}
			}
		}
		// K1 is the only key that cannot be created.
		var v problem.Validation
		c.check(&v, &p)
		if err := v.Err(); (err != nil) != (columns[0] == "K1") {
			t.Errorf("%s: making it: got %v", columns[0], err)
		}
	}
	if cells != 18*18 {
		t.Errorf("looked at %d cells, want %d", cells, 18*18)
	}
}

func TestDecisionBeyondTheCatalogue(t *testing.T) {
	c := fleet()
	admin := Permissions{Level: Admin, Resources: Grants{All: true}}
	forged := Permissions{Resources: Grants{Named: map[string][]Action{
		"zones": {Read}, "settings": {Read}, "customers": {Delete}, "nothing": {Read},
	}}}
	for _, test := range []struct {
		p        Permissions
		resource string
		action   Action
	}{
		{admin, "nothing", Read},
		{admin, "", ""},
		{admin, "customers", Delete},
		{admin, "settings", Delete},
		{forged, "zones", Read},
		{forged, "settings", Read},
		{forged, "customers", Delete},
		{forged, "nothing", Read},
		{Permissions{Level: Admin, Resources: Grants{Named: map[string][]Action{"settings": {Read}}}}, "settings", Read},
	} {
		if c.Allows(test.p, test.resource, test.action) {
			t.Errorf("%+v may %s.%s", test.p, test.resource, test.action)
		}
	}
}

func TestGrantsJSON(t *testing.T) {
	for _, text := range []string{`null`, `"all"`, `{}`, `{"rides":["read","create"]}`, `{"rides":[]}`} {
		var g Grants
		if err := json.Unmarshal([]byte(text), &g); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		out, err := json.Marshal(g)
		if err != nil || string(out) != text {
			t.Errorf("%s came back as %s, %v", text, out, err)
		}
		if got, want := g.Set(), text != "null"; got != want {
			t.Errorf("%s is set: got %t, want %t", text, got, want)
		}
	}
	for _, text := range []string{`""`, `"All"`, `true`, `1`, `[]`, `["all"]`, `{"rides":"read"}`, `{"rides":[1]}`} {
		var g Grants
		if err := json.Unmarshal([]byte(text), &g); err == nil {
			t.Errorf("%s was read as %+v", text, g)
		}
	}
}

func TestCheckPermissions(t *testing.T) {
	c := fleet()
	for _, test := range []struct {
		p    Permissions
		want string // path and message of the first issue
	}{
		{Permissions{Level: "owner"}, "level must be read_only, read_write or admin"},
		{Permissions{}, "level or resources is required: the key has no permissions"},
		{Permissions{Resources: Grants{Named: map[string][]Action{"customers": {Delete}}}}, `resources.customers has no action "delete"; it has read, update`},
		{Permissions{Resources: Grants{Named: map[string][]Action{"zones": {Read}}}}, `resources cannot name "zones"; it may name rides, vehicles, customers, pricing, analytics`},
		{Permissions{Resources: Grants{Named: map[string][]Action{"settings": {Read}}}}, `resources cannot name "settings"; it may name rides, vehicles, customers, pricing, analytics`},
	} {
		var v problem.Validation
		c.check(&v, &test.p)
		err := v.Err()
		if err == nil || err.(*problem.Error).Message != test.want {
			t.Errorf("%+v: got %v, want %q", test.p, err, test.want)
		}
	}
	p := Permissions{Resources: Grants{Named: map[string][]Action{"rides": {Update, Read, Update}}}}
	var v problem.Validation
	c.check(&v, &p)
	if got := p.Resources.Named["rides"]; !slices.Equal(got, []Action{Read, Update}) || v.Err() != nil {
		t.Errorf("in order: got %v, %v", got, v.Err())
	}
}

func TestLimit(t *testing.T) {
	for _, test := range []struct {
		plan        Plan
		agreed, own int64
		want        int64
	}{
		{Standard, 0, 20, 20},
		{Standard, 0, 0, 60},
		{Standard, 5000, 0, 60},
		{Professional, 0, 500, 300}, // the plan was lowered later
		{Professional, 0, 0, 300},
		{Enterprise, 0, 0, 1000},
		{Enterprise, 900, 0, 1000},
		{Enterprise, 2500, 0, 2500},
		{Enterprise, 2500, 2000, 2000},
	} {
		if got := Limit(test.own, test.plan.Limit(test.agreed)); got != test.want {
			t.Errorf("plan %d, agreed %d, own %d: got %d, want %d", test.plan, test.agreed, test.own, got, test.want)
		}
	}
}

func TestScope(t *testing.T) {
	all, two, one := ScopeOf(nil), ScopeOf([]string{"a", "b"}), ScopeOf([]string{"a"})
	for _, test := range []struct {
		scope  Scope
		places [][]string
		want   string // mode and subaccounts, or the error
	}{
		{all, nil, "all "},
		{all, [][]string{nil, {}}, "all "},
		{all, [][]string{{"x"}}, "single x"},
		{two, nil, "selected a b"},
		{two, [][]string{{"b"}}, "single b"},
		{two, [][]string{{"b", "a", "b"}, {"a", "b"}}, "selected a b"},
		{two, [][]string{{"a"}, nil, {"a"}}, "single a"},
		{two, [][]string{{"c"}}, ErrOutOfScope.Error()},
		{two, [][]string{{"a", "c"}}, ErrOutOfScope.Error()},
		{two, [][]string{{"a"}, {"b"}}, ErrScopeDiffer.Error()},
		{two, [][]string{{"c"}, {"d"}}, ErrScopeDiffer.Error()},
		{one, [][]string{{"b"}}, ErrOutOfScope.Error()},
		{one, nil, "single a"},
	} {
		s, err := test.scope.Narrow(test.places...)
		got := string(s.Mode) + " " + strings.Join(s.SubaccountIDs, " ")
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v narrowed to %v: got %q, want %q", test.scope, test.places, got, test.want)
		}
	}
	for _, test := range []struct {
		scope    Scope
		existing []string
		want     string
	}{
		{all, []string{"a"}, "a"}, {all, []string{"a", "b"}, ""}, {all, nil, ""},
		{two, []string{"a", "b"}, ""}, {two, []string{"b", "c"}, "b"}, {one, []string{"a", "b"}, "a"}, {one, []string{"b"}, ""},
	} {
		if got, ok := test.scope.Sole(test.existing); ok != (test.want != "") || ok && got != test.want {
			t.Errorf("%+v among %v: got %q, %t, want %q", test.scope, test.existing, got, ok, test.want)
		}
	}
	for _, s := range []Scope{
		{}, {Mode: "none"}, {AllSubaccounts, []string{"a"}}, {Mode: SelectedSubaccounts}, {Mode: SingleSubaccount},
		{SingleSubaccount, []string{"a", "b"}}, {SelectedSubaccounts, []string{"a", "a"}}, {SingleSubaccount, []string{""}},
	} {
		var v problem.Validation
		if s.check(&v, fleet()); v.Err() == nil {
			t.Errorf("%+v was taken", s)
		}
	}
	var v problem.Validation
	if one.check(&v, Catalogue{}); v.Err() == nil {
		t.Error("a service without subaccounts took one")
	}
}
