package rest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxPathParams bounds the parameters of a path.
const maxPathParams = 3

// pathNode is a node of the tree of path segments.
type pathNode struct {
	fixed  map[string]*pathNode
	varies *pathNode
	routes map[string]*Route // by method
	allow  string            // Allow header; empty: no path ends here
}

// add adds a route to the tree and returns the names of its path parameters.
func (b *pathNode) add(rt *Route) ([]string, error) {
	var names []string
	for part := range strings.SplitSeq(rt.Path[1:], "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			names = append(names, strings.TrimSuffix(name, "}"))
			if b.varies == nil {
				b.varies = &pathNode{}
			}
			b = b.varies
			continue
		}
		if b.fixed == nil {
			b.fixed = make(map[string]*pathNode)
		}
		if b.fixed[part] == nil {
			b.fixed[part] = &pathNode{}
		}
		b = b.fixed[part]
	}
	if len(names) > maxPathParams {
		return nil, fmt.Errorf("the path has more than %d parameters", maxPathParams)
	}
	if b.routes[rt.Method] != nil {
		return nil, errors.New("there is one already")
	}
	if b.routes == nil {
		b.routes = make(map[string]*Route)
	}
	b.routes[rt.Method] = rt
	methods := []string{http.MethodOptions}
	for method := range b.routes {
		methods = append(methods, method)
		if method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	slices.Sort(methods)
	b.allow = strings.Join(methods, ", ")
	return names, nil
}

// find returns the node of a path, or nil, and stores the path parameters in params. Fixed
// segments win over parameters, without backtracking.
func (b *pathNode) find(path string, params *[maxPathParams]string) *pathNode {
	if len(path) < 2 || path[0] != '/' {
		return nil
	}
	n := 0
	for rest, more := path[1:], true; more; {
		var part string
		part, rest, more = strings.Cut(rest, "/")
		if next := b.fixed[part]; next != nil {
			b = next
			continue
		}
		if b.varies == nil || part == "" || n == maxPathParams || !utf8.ValidString(part) || strings.IndexByte(part, 0) >= 0 {
			return nil
		}
		b = b.varies
		params[n] = part
		n++
	}
	if b.allow == "" {
		return nil
	}
	return b
}

// route returns the route of a method; HEAD uses that of GET.
func (b *pathNode) route(method string) *Route {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	return b.routes[method]
}

// check validates the description of a route.
func (rt *Route) check() error {
	switch {
	case !slices.Contains([]string{"GET", "POST", "PUT", "DELETE"}, rt.Method):
		return fmt.Errorf("the method %q is not supported", rt.Method)
	case !strings.HasPrefix(rt.Path, "/") || len(rt.Path) < 2 || strings.HasSuffix(rt.Path, "/"):
		return errors.New("the path must begin with a slash, and not end with one")
	case rt.ID == "" || rt.Tag == "" || rt.Summary == "":
		return errors.New("it needs an ID, a Tag and a Summary")
	case rt.Deprecated != nil && rt.Deprecated.Sunset.Before(rt.Deprecated.Since.AddDate(1, 0, 0)):
		return errors.New("a deprecated operation stays for a year at least")
	case rt.Handle == nil:
		return errors.New("it needs a Handle")
	case (rt.Needs.Resource == "") != (rt.Needs.Action == ""):
		return errors.New("a permission is a resource and an action")
	case rt.Stream && (rt.Method != "GET" || rt.Output != nil || rt.File):
		return errors.New("a stream is the answer of a GET that has no other")
	case rt.List && rt.Output == nil:
		return errors.New("a list needs an Output")
	case rt.File && (rt.Method != "GET" || rt.Output != nil):
		return errors.New("a file is the answer of a GET that has no other")
	case rt.Rows != nil && !rt.Export:
		return errors.New("only exports have Rows")
	case rt.Export && rt.Output == nil:
		return errors.New("an export needs an Output")
	case (rt.GeoJSON || rt.Parquet) && !rt.Export:
		return errors.New("GeoJSON is a form of an export")
	case rt.Import != nil && (rt.Method != "POST" || rt.Input == nil || rt.Import.Handle == nil || len(rt.Import.Types) == 0):
		return errors.New("an import is of the Input of a POST, and needs types and a Handle")
	case rt.Import != nil && slices.ContainsFunc(rt.Import.Types, func(t string) bool { return importDoc[t] == "" }):
		return errors.New("an import is NDJSON, CSV or GeoJSON")
	case rt.Reports && (rt.Method != "POST" || rt.Input == nil || len(rt.Input.Members) != 1 || rt.Import != nil):
		return errors.New("reports are the list of the Input of a POST")
	case rt.Import != nil && rt.Claim:
		return errors.New("an import is one transaction, so there is nothing to claim")
	case rt.Input != nil && rt.Method != "POST" && rt.Method != "PUT":
		return errors.New("only POST and PUT have a body")
	case !rt.List && (len(rt.Sort) > 0 || rt.Order != ""):
		return errors.New("only a list is sorted")
	}
	if rt.List && len(rt.Sort) > 0 {
		if m, _ := rt.order(); !slices.Contains(rt.Sort, m) {
			return fmt.Errorf("the default order %s is not a sort field; set Order", m)
		}
	}
	seen := map[string]bool{"limit": true, "cursor": true, "sort": true, "expand": true}
	for _, p := range rt.Query {
		if seen[p.Name] || p.Name == "" {
			return fmt.Errorf("the parameter %q is duplicate or predefined", p.Name)
		}
		seen[p.Name] = true
	}
	for _, c := range rt.Codes {
		if _, ok := errorCodes[c]; !ok {
			return fmt.Errorf("the error code %q is unknown", c)
		}
	}
	return nil
}
