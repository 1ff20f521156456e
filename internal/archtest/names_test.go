package archtest

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"testing"
)

// bannedVerb matches identifiers that start with a verb without a meaning of its own.
// docs/vocabulary.md lists better ones.
var bannedVerb = regexp.MustCompile(`^(?:[Ss]ettle|[Tt]ell|[Kk]eep|[Bb]e|[Ff]orget|[Aa]sk|[Kk]now|[Tt]ake|[Gg]ive|[Hh]ave|[Mm]ade|[Ll]ook|[Ll]et)(?:$|[A-Z])`)

// TestNames refuses functions, methods and types that start with a banned verb.
func TestNames(t *testing.T) {
	for _, p := range repository(t) {
		for _, f := range p.files {
			for _, d := range declarations(f.syntax) {
				if bannedVerb.MatchString(d.ident.Name) {
					t.Errorf("%s: %s starts with a banned verb; see docs/vocabulary.md", f.at(d.ident), d.name)
				}
			}
		}
	}
}

// declaration is a declared function, method or type.
type declaration struct {
	name  string // "Name" or "Type.Method"
	ident *ast.Ident
}

// declarations returns the functions, methods, interface methods and types of a file.
func declarations(syntax *ast.File) (out []declaration) {
	for _, d := range syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d.Recv.List[0].Type) + "." + name
			}
			out = append(out, declaration{name, d.Name})
		case *ast.GenDecl:
			if d.Tok != token.TYPE {
				continue
			}
			for _, spec := range d.Specs {
				spec := spec.(*ast.TypeSpec)
				out = append(out, declaration{spec.Name.Name, spec.Name})
				i, ok := spec.Type.(*ast.InterfaceType)
				if !ok {
					continue
				}
				for _, m := range i.Methods.List {
					for _, ident := range m.Names {
						out = append(out, declaration{spec.Name.Name + "." + ident.Name, ident})
					}
				}
			}
		}
	}
	return out
}

// receiver returns the name of a method's receiver type.
func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// TestNamesCatch checks the rule itself, so that a broken one cannot pass.
func TestNamesCatch(t *testing.T) {
	for name, banned := range map[string]bool{
		"keep": true, "Keep": true, "keepOld": true, "Tell": true, "letIn": true, "made": true, "be": true,
		"keeper": false, "began": false, "Before": false, "takes": false, "knownIDs": false, "Letter": false, "lookup": false,
	} {
		if got := bannedVerb.MatchString(name); got != banned {
			t.Errorf("%s: got %v, want %v", name, got, banned)
		}
	}
	f, err := parse(token.NewFileSet(), "internal/p/p.go", "package p\ntype T[K any] struct{}\nfunc (t *T[K]) keep() {}\ntype i interface{ Tell() }\nfunc ask() {}")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range declarations(f.syntax) {
		got = append(got, d.name)
	}
	if want := []string{"T", "T.keep", "i", "i.Tell", "ask"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
