package archtest

import (
	"go/ast"
	"strings"
	"testing"
)

// TestTransactionNames requires the suffix Tx of exported methods and functions that take a
// *db.Tx, so that a call shows whether it is part of the caller's transaction. Package db itself
// defines transactions, and is exempt.
func TestTransactionNames(t *testing.T) {
	for _, p := range repository(t) {
		if p.path == "internal/db" || strings.HasPrefix(p.path, "internal/db/") {
			continue
		}
		for _, f := range p.files {
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				for _, m := range methods(n) {
					if m.ident.IsExported() && takesTx(m.params) && !strings.HasSuffix(m.ident.Name, "Tx") && !isTest(m.ident.Name) {
						t.Errorf("%s: %s takes a *db.Tx: name it %sTx", f.at(m.ident), m.ident.Name, m.ident.Name)
					}
				}
				return true
			})
		}
	}
}

// method is a function, a method or a method of an interface.
type method struct {
	ident  *ast.Ident
	params *ast.FieldList
}

func methods(n ast.Node) []method {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return []method{{n.Name, n.Type.Params}}
	case *ast.InterfaceType:
		var out []method
		for _, m := range n.Methods.List {
			if fn, ok := m.Type.(*ast.FuncType); ok {
				out = append(out, method{m.Names[0], fn.Params})
			}
		}
		return out
	}
	return nil
}

func takesTx(params *ast.FieldList) bool {
	for _, p := range params.List {
		star, ok := p.Type.(*ast.StarExpr)
		if !ok {
			continue
		}
		if sel, ok := star.X.(*ast.SelectorExpr); ok && sel.Sel.Name == "Tx" {
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "db" {
				return true
			}
		}
	}
	return false
}

// isTest reports whether a name is that of a test, benchmark, fuzz test or example.
func isTest(name string) bool {
	for _, prefix := range []string{"Test", "Benchmark", "Fuzz", "Example"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
