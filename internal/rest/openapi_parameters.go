package rest

import (
	"encoding/json"
	"slices"
	"strings"
)

// sharedParameters are the parameters that are the same in every operation that has them.
var sharedParameters = []string{"limit", "cursor", "Idempotency-Key", "If-Match", "If-None-Match", subaccountHeader}

// parameterComponents returns the shared parameters of routes.
func parameterComponents(routes []Route) object {
	shared := object{}
	for i := range routes {
		for _, p := range routes[i].parameters() {
			if name := p["name"].(string); slices.Contains(sharedParameters, name) {
				shared[name] = p
			}
		}
	}
	return shared
}

// parameters returns the parameters in path, query and headers.
func (rt *Route) parameters() []object {
	var out []object
	before := ""
	for part := range strings.SplitSeq(rt.Path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			name = strings.TrimSuffix(name, "}")
			out = append(out, parameter("path", name, true, object{"type": "string"}, pathDoc(before, name)))
			continue
		}
		before = part
	}
	for i := range rt.Query {
		out = append(out, rt.Query[i].describe()...)
	}
	add := func(in, name string, of object, doc string) {
		out = append(out, parameter(in, name, false, of, doc))
	}
	if rt.List {
		add("query", "limit", object{"type": "integer", "minimum": 1, "maximum": maxLimit, "default": defaultLimit}, "How many records a page has.")
		add("query", "cursor", object{"type": "string"}, "The next_cursor of the page before.")
	}
	if len(rt.Sort) > 0 {
		var values []string
		for _, m := range rt.Sort {
			values = append(values, m, "-"+m)
		}
		m, descending := rt.order()
		if descending {
			m = "-" + m
		}
		add("query", "sort", object{"type": "string", "enum": values, "default": m}, "The order; with - the largest first.")
	}
	if len(rt.Expand) > 0 {
		var values []string
		for _, e := range rt.Expand {
			values = append(values, e.Name)
		}
		p := parameter("query", "expand[]", false, object{"type": "array", "maxItems": maxExpand, "items": object{"type": "string", "enum": values}}, "Records to have beside their ids.")
		p["style"], p["explode"] = "form", true
		out = append(out, p)
	}
	if rt.narrows {
		add("header", subaccountHeader, object{"type": "string"}, "Narrows the request to this one of the subaccounts that the key reaches.")
	}
	if rt.Method != "GET" {
		add("header", "Idempotency-Key", object{"type": "string", "minLength": 1, "maxLength": 257}, "Makes a retry safe: the same key and request get the same answer for 24 hours.")
	}
	if rt.Method == "PUT" || rt.Method == "DELETE" {
		add("header", "If-Match", object{"type": "string"}, "The ETag that the record must still have.")
	}
	if rt.Method == "GET" && !rt.List {
		add("header", "If-None-Match", object{"type": "string"}, "ETags that the client has already.")
	}
	return out
}

// parameter returns a parameter object. of is the schema of its value.
func parameter(in, name string, required bool, of object, doc string) object {
	p := object{"in": in, "name": name, "schema": of}
	if required {
		p["required"] = true
	}
	if doc != "" {
		p["description"] = doc
	}
	return p
}

// describe returns the parameter objects of a query parameter: one, or one for each bound of a
// range.
func (p *Param) describe() []object {
	kind := &paramKinds[p.Kind]
	if kind.narrow != nil {
		var out []object
		for _, bound := range bounds {
			doc := strings.TrimSpace(p.Doc + " " + p.Name + " " + kind.words[bound] + " this.")
			out = append(out, parameter("query", p.Name+"["+bound+"]", false, kind.schema(p), doc))
		}
		return out
	}
	o := parameter("query", p.Name, p.Required, kind.schema(p), p.description())
	if kind.list {
		o["style"], o["explode"] = "form", false
	}
	switch {
	case p.Example == "":
	case p.Kind == NumberParam:
		o["example"] = json.Number(p.Example)
	case kind.list:
		o["example"] = strings.Split(p.Example, ",")
	default:
		o["example"] = p.Example
	}
	return []object{o}
}

// pathDoc returns the description of a parameter after a segment of the path.
func pathDoc(segment, name string) string {
	if name != "id" && !strings.HasSuffix(name, "_id") {
		return "The " + name + "."
	}
	return "Id of a record of the list " + segment + "."
}

// description returns the description of a query parameter; without its own Doc that of its kind.
func (p *Param) description() string {
	switch {
	case p.Doc != "":
		return p.Doc
	case paramKinds[p.Kind].list:
		return "Only records with one of these."
	default:
		return "Only records with this " + p.Name + "."
	}
}
