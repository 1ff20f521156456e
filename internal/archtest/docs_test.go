package archtest

import (
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestSettingsAreDocumented compares the configuration struct with the table in
// docs/operations.md: one row per field and no others.
func TestSettingsAreDocumented(t *testing.T) {
	var settings []string
	for _, p := range repository(t) {
		if p.path != "cmd/kickstand" {
			continue
		}
		for _, f := range p.files {
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.Name == "config" {
					settings = append(settings, variables(t, spec.Type.(*ast.StructType))...)
				}
				return true
			})
		}
	}
	if len(settings) == 0 {
		t.Fatal("found no fields of the struct config in cmd/kickstand")
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(KICKSTAND_[A-Z_]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, m[1])
	}
	for _, s := range settings {
		if !slices.Contains(documented, s) {
			t.Errorf("docs/operations.md has no row for %s", s)
		}
	}
	for _, d := range documented {
		if !slices.Contains(settings, d) {
			t.Errorf("docs/operations.md has a row for %s, which is no setting", d)
		}
	}
}

// variables returns the environment variables of the fields, derived like the command line
// library does.
func variables(t *testing.T, s *ast.StructType) []string {
	t.Helper()
	var out []string
	for _, f := range s.Fields.List {
		for _, name := range f.Names {
			flag := ""
			if f.Tag != nil {
				tag, err := strconv.Unquote(f.Tag.Value)
				if err != nil {
					t.Fatal(err)
				}
				flag = reflect.StructTag(tag).Get("name")
			}
			if flag == "" {
				flag = regexp.MustCompile(`(.)([A-Z])`).ReplaceAllString(name.Name, "$1-$2")
			}
			out = append(out, "KICKSTAND_"+strings.ToUpper(strings.ReplaceAll(flag, "-", "_")))
		}
	}
	return out
}

// TestLinksLeadSomewhere checks the relative links of the repository's pages.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	followed := 0
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			followed++
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), target)); err != nil {
				t.Errorf("%s links to %s, which is not there", strings.TrimPrefix(name, root+"/"), m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if followed < 10 {
		t.Fatalf("followed only %d links: the pattern is wrong", followed)
	}
}
