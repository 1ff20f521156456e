package archtest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPackageComments requires one package comment.
func TestPackageComments(t *testing.T) {
	for _, p := range repository(t) {
		for _, w := range checkPackageComment(p) {
			t.Error(w)
		}
	}
}

func checkPackageComment(p *pkg) []string {
	var texts, where []string
	name, onlyTests := "", true
	for _, f := range p.files {
		onlyTests = onlyTests && f.test
	}
	for _, f := range p.files {
		if f.test && !onlyTests {
			continue
		}
		name = f.syntax.Name.Name
		if f.syntax.Doc != nil {
			texts = append(texts, f.syntax.Doc.Text())
			where = append(where, f.name)
		}
	}
	want := "Package " + name + " "
	if name == "main" {
		want = "Command " + path.Base(p.path) + " "
	}
	switch {
	case len(texts) == 0:
		return []string{fmt.Sprintf("package %s has no comment that says what it is, how it is meant, and what always holds", p.path)}
	case len(texts) > 1:
		return []string{fmt.Sprintf("package %s has %d package comments (%s); keep one", p.path, len(texts), strings.Join(where, ", "))}
	case !strings.HasPrefix(texts[0], want):
		return []string{fmt.Sprintf("%s: the package comment must begin with %q", where[0], want)}
	}
	return nil
}

// TestPackageNames refuses meaningless package names.
func TestPackageNames(t *testing.T) {
	empty := []string{"util", "utils", "common", "helper", "helpers", "model", "models", "types", "base", "misc", "shared", "lib", "manager", "handlers", "interfaces"}
	for _, p := range repository(t) {
		if slices.Contains(empty, path.Base(p.path)) {
			t.Errorf("package %s: the name does not say what it gives", p.path)
		}
	}
}

// TestHabits checks rules within single packages.
func TestHabits(t *testing.T) {
	for _, p := range repository(t) {
		for _, w := range checkHabits(p) {
			t.Error(w)
		}
	}
}

func checkHabits(p *pkg) []string {
	wrong := checkState(p)
	bubbles := bubbles(p)
	for _, f := range p.files {
		wrong = append(wrong, checkCalls(p.path, f, bubbles)...)
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				wrong = append(wrong, f.at(fn)+": no init functions; construct in internal/app and pass it on")
			}
		}
	}
	return wrong
}

// call is a function of the standard library with restricted use.
type call struct{ pkg, name string }

// places lists where such a function may be called, and the reason.
var places = map[call]struct {
	ok  func(pkgPath string, f *file) bool
	why string
}{
	{"os", "Getenv"}:    {readsEnvironment, "only the command reads the environment; pass the value down"},
	{"os", "LookupEnv"}: {readsEnvironment, "only the command reads the environment; pass the value down"},
	{"os", "Environ"}:   {readsEnvironment, "only the command reads the environment; pass the value down"},
	{"os", "Setenv"}:    {nowhere, "pass the value; tests give run its own lookup"},
	{"os", "Exit"}:      {inCommand, "return the error; main alone ends the program"},
	{"fmt", "Print"}:    {printing, "write to the writer you were given"},
	{"fmt", "Printf"}:   {printing, "write to the writer you were given"},
	{"fmt", "Println"}:  {printing, "write to the writer you were given"},
	{"slog", "Default"}: {nowhere, "use the logger you were given"},

	{"slog", "SetDefault"}: {nowhere, "pass the logger down"},
	{"time", "Tick"}:       {nowhere, "a ticker that nobody can stop; use time.NewTicker"},

	{"channel", "OfDeployment"}: {in("internal/app"), "the operator's credentials enter the program in one place (docs/adr/0019-one-owner.md)"},
	{"channel", "OfConnection"}: {in("internal/connection"), "a connection's credentials leave it as one set (docs/adr/0019-one-owner.md)"},
}

func readsEnvironment(pkgPath string, f *file) bool {
	return f.test || strings.HasPrefix(pkgPath, "cmd/") || pkgPath == "bench" || pkgPath == "internal/db/dbtest"
}

func inCommand(pkgPath string, f *file) bool {
	return f.test || strings.HasPrefix(pkgPath, "cmd/") || pkgPath == "bench" || path.Base(pkgPath) == "generate"
}

// printing allows programs that print as their purpose, and test binaries that act as another
// process.
func printing(pkgPath string, f *file) bool { return f.test || pkgPath == "bench" }

// in allows one package, and tests.
func in(where string) func(pkgPath string, f *file) bool {
	return func(pkgPath string, f *file) bool { return f.test || pkgPath == where }
}

func nowhere(string, *file) bool { return false }

// checkCalls reports misplaced calls, and sleeping.
func checkCalls(pkgPath string, f *file, bubbles map[string]bool) []string {
	var wrong []string
	for _, d := range f.syntax.Decls {
		inBubble := usesSynctest(d, bubbles)
		ast.Inspect(d, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := s.X.(*ast.Ident)
			if !ok {
				return true
			}
			c := call{x.Name, s.Sel.Name}
			if place, ok := places[c]; ok && !place.ok(pkgPath, f) {
				wrong = append(wrong, fmt.Sprintf("%s: %s.%s: %s", f.at(n), c.pkg, c.name, place.why))
			}
			if c == (call{"time", "Sleep"}) && !inBubble {
				why := "wait for what you wait for, with a context"
				if f.test {
					why = "a sleep in a test is too short on a slow machine and too long on the others; wait for the event, or run in a synctest bubble"
				}
				wrong = append(wrong, fmt.Sprintf("%s: time.Sleep: %s", f.at(n), why))
			}
			return true
		})
	}
	return wrong
}

// bubbles returns the functions of a package's tests that use package synctest, directly or
// through one another.
func bubbles(p *pkg) map[string]bool {
	names := map[string]bool{}
	for more := true; more; {
		more = false
		for _, f := range p.files {
			for _, d := range f.syntax.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if ok && f.test && fn.Recv == nil && !names[fn.Name.Name] && usesSynctest(d, names) {
					names[fn.Name.Name], more = true, true
				}
			}
		}
	}
	return names
}

// usesSynctest reports whether a declaration starts a bubble or waits in one: there, sleeping
// advances a fake clock.
func usesSynctest(d ast.Decl, bubbles map[string]bool) bool {
	found := false
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			found = found || ok && x.Name == "synctest"
		case *ast.CallExpr:
			fn, ok := n.Fun.(*ast.Ident)
			found = found || ok && bubbles[fn.Name]
		}
		return !found
	})
	return found
}

// checkState reports package-level variables that are assigned after their declaration, or have
// a mutable type. Imports are not resolved: the rule needs only the package's own names.
func checkState(p *pkg) []string {
	var wrong []string
	var files []*ast.File
	at := map[*ast.File]*file{}
	var fset *token.FileSet // shared by all files of the repository
	for _, f := range p.files {
		if f.test {
			continue
		}
		files = append(files, f.syntax)
		at[f.syntax], fset = f, f.fset
	}
	if len(files) == 0 {
		return nil
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: noImports{}, Error: func(error) {}}
	scope := types.NewPackage(p.path, files[0].Name.Name)
	checker := types.NewChecker(&conf, fset, scope, info)
	_ = checker.Files(files) // always fails, because imports are missing

	for _, syntax := range files {
		f := at[syntax]
		for _, d := range syntax.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				if changes(v.Type) {
					wrong = append(wrong, fmt.Sprintf("%s: package-level state (%s); put it into the value that needs it", f.at(v), v.Names[0].Name))
				}
			}
		}
		written := func(e ast.Expr) {
			id := rootOf(e)
			if id == nil {
				return
			}
			if v, ok := info.Uses[id].(*types.Var); ok && v.Parent() == scope.Scope() {
				wrong = append(wrong, fmt.Sprintf("%s: %s is a package-level variable; it is written once, where it is declared", f.at(id), id.Name))
			}
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, e := range n.Lhs {
					written(e)
				}
			case *ast.IncDecStmt:
				written(n.X)
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "delete" || id.Name == "clear") && len(n.Args) > 0 {
					written(n.Args[0])
				}
			}
			return true
		})
	}
	return wrong
}

// changes reports whether a type is meant for mutable values.
func changes(t ast.Expr) bool {
	switch t := t.(type) {
	case *ast.ChanType:
		return true
	case *ast.IndexExpr:
		return changes(t.X)
	case *ast.SelectorExpr:
		x, ok := t.X.(*ast.Ident)
		return ok && (x.Name == "sync" || x.Name == "atomic")
	}
	return false
}

// rootOf returns the variable of a[i], a.b or *a.
func rootOf(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not resolved") }

// TestHabitRulesCatch breaks each rule once, so that a broken check cannot pass.
func TestHabitRulesCatch(t *testing.T) {
	const doc = "// Package p is.\n"
	for _, c := range []struct{ file, text, want string }{
		{"internal/p/p.go", "package p", "has no comment"},
		{"internal/p/p.go", "// Something else.\npackage p", "must begin with"},
		{"cmd/p/p.go", "// Command p does.\npackage main", ""},
		{"internal/p/p.go", doc + "package p\nfunc init() {}", "no init functions"},
		{"internal/p/p.go", doc + "package p\ntype t int\nfunc (t) init() {}", ""},
		{"internal/p/p.go", doc + "package p\nvar n int\nfunc f() { n++ }", "written once"},
		{"internal/p/p.go", doc + "package p\nvar n int\nfunc f() { n := 1; n++ }", ""},
		{"internal/p/p.go", doc + "package p\nvar m = map[int]int{}\nfunc f() { m[1] = 2 }", "written once"},
		{"internal/p/p.go", doc + "package p\nvar m = map[int]int{}\nfunc f() { delete(m, 1) }", "written once"},
		{"internal/p/p.go", doc + "package p\nvar v struct{ a int }\nfunc f() { v.a = 2 }", "written once"},
		{"internal/p/p.go", doc + "package p\nimport \"sync\"\nvar mu sync.Mutex", "package-level state"},
		{"internal/p/p.go", doc + "package p\nimport \"sync/atomic\"\nvar x atomic.Pointer[int]", "package-level state"},
		{"internal/p/p.go", doc + "package p\nvar table = [...]int{1, 2}\nfunc f() int { return table[1] }", ""},
		{"internal/p/p.go", doc + "package p\nimport \"os\"\nvar _ = os.Getenv(\"A\")", "reads the environment"},
		{"internal/p/p.go", doc + "package p\nimport \"channel\"\nvar _ = channel.OfDeployment(a, b, c)", "in one place"},
		{"internal/app/p.go", doc + "package p\nimport \"channel\"\nvar _ = channel.OfDeployment(a, b, c)", ""},
		{"internal/app/p.go", doc + "package p\nimport \"channel\"\nvar _ = channel.OfConnection(a, b)", "as one set"},
		{"internal/p/p_test.go", doc + "package p\nimport \"os\"\nvar _ = os.Getenv(\"A\")", ""},
		{"internal/p/p.go", doc + "package p\nimport \"os\"\nfunc f() { os.Exit(1) }", "main alone ends"},
		{"internal/p/p.go", doc + "package p\nimport \"fmt\"\nfunc f() { fmt.Println() }", "the writer you were given"},
		{"internal/p/p.go", doc + "package p\nimport \"time\"\nfunc f() { time.Sleep(1) }", "with a context"},
		{"internal/p/p_test.go", doc + "package p\nimport \"time\"\nfunc f() { time.Sleep(1) }", "a sleep in a test"},
		{"internal/p/p_test.go", doc + "package p\nimport (\"time\"; \"testing/synctest\")\nfunc f() { synctest.Test(nil, func() { time.Sleep(1) }) }", ""},
		{"internal/p/p_test.go", doc + "package p\nimport (\"time\"; \"testing/synctest\")\nfunc g() { f(func() { time.Sleep(1) }) }\nfunc f(h func()) { synctest.Test(nil, h) }", ""},
	} {
		f, err := parse(token.NewFileSet(), c.file, c.text)
		if err != nil {
			t.Fatal(err)
		}
		p := &pkg{path: path.Dir(c.file), files: []*file{f}}
		got := strings.Join(append(checkPackageComment(p), checkHabits(p)...), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s:\n%s\ngot complaint %q, want one with %q", c.file, c.text, got, c.want)
		}
	}
	two := &pkg{path: "internal/p"}
	for _, name := range []string{"internal/p/a.go", "internal/p/b.go"} {
		f, err := parse(token.NewFileSet(), name, doc+"package p")
		if err != nil {
			t.Fatal(err)
		}
		two.files = append(two.files, f)
	}
	if got := strings.Join(checkPackageComment(two), "\n"); !strings.Contains(got, "keep one") {
		t.Errorf("two package comments: got complaint %q, want one with %q", got, "keep one")
	}
}

// TestProgramLinksNoTestCode checks the packages linked into the program.
func TestProgramLinksNoTestCode(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/kickstand")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list: %v\n%s", err, e.Stderr)
		}
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, module+"cmd/kickstand") || !slices.Contains(deps, module+"internal/db") {
		t.Fatalf("go list -deps answered %d packages and not the program's own", len(deps))
	}
	for _, d := range deps {
		ours, isOurs := strings.CutPrefix(d, module)
		if d == "testing" || strings.HasPrefix(d, "testing/") || isOurs && helper(ours) {
			t.Errorf("the program links %s, which is for tests; `go list -deps -f '{{.ImportPath}}: {{.Imports}}' ./cmd/kickstand` shows who imports it", d)
		}
	}
}

// machinePath matches paths of a developer's machine.
var machinePath = regexp.MustCompile(`(^|[^\w.\-/])/(home|Users|root|mnt|work|opt/homebrew)/[\w.]`)

// TestNoMachinePaths refuses paths that exist only on one machine.
func TestNoMachinePaths(t *testing.T) {
	looked := 0
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); base == ".git" || base == "kickstand-data" || base == "kickstand-demo" || base == "node_modules" {
				return fs.SkipDir
			}
			return nil
		}
		// Skip texts of others.
		if base := d.Name(); base == "LICENSE" || base == ".git" || base == "go.sum" || strings.Contains(name, "/testdata/") || !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if slices.Contains(text[:min(len(text), 512)], 0) {
			return nil // not text
		}
		looked++
		for i, line := range strings.Split(string(text), "\n") {
			if machinePath.MatchString(line) && !strings.Contains(line, "machinePath") {
				t.Errorf("%s:%d names a path of somebody's machine: %s", strings.TrimPrefix(name, root+"/"), i+1, strings.TrimSpace(line))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if looked < 50 {
		t.Fatalf("looked at only %d files: the walk is wrong", looked)
	}
	for _, c := range []struct {
		line string
		want bool
	}{
		{"see /home/ana/kickstand", true},                  // machinePath
		{`open("/Users/ana/x")`, true},                     // machinePath
		{"https://example.com/home/ana", false},            // machinePath
		{"a path such as kickstand-demo/kickstand", false}, // machinePath
	} {
		if got := machinePath.MatchString(c.line); got != c.want {
			t.Errorf("%q names a machine's path: got %t, want %t", c.line, got, c.want)
		}
	}
}
