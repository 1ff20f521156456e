package rest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

type object = map[string]any

// serveOpenAPI answers with the OpenAPI document, without authentication.
func (a *API) serveOpenAPI(w http.ResponseWriter, r *Request, bucket string) {
	a.peek(w, r, bucket)
	doc, err := a.openAPI()
	if err != nil {
		a.writeError(w, r, err)
		return
	}
	h := w.Header()
	h["Etag"] = []string{doc.tag}
	h["Cache-Control"] = []string{"public, no-cache"}
	if lines := r.http.Header["If-None-Match"]; len(lines) > 0 && anyTag(lines, doc.tag, true) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h["Content-Type"] = []string{"application/json"}
	a.send(w, r, http.StatusOK, doc.text)
}

// OpenAPI returns the OpenAPI 3.1 document. The error reports an invalid route description.
func (a *API) OpenAPI() ([]byte, error) {
	doc, err := a.openAPI()
	return slices.Clone(doc.text), err
}

// document31 builds the OpenAPI document.
func (a *API) document31() ([]byte, error) {
	var answers []*schema.Record
	for i := range a.routes {
		answers = append(answers, a.routes[i].Output)
	}
	d := schema.NewComponents(answers...)
	for i := range a.routes {
		for _, e := range a.routes[i].Expand {
			d.Expand(a.routes[i].Output, e.Name, e.Record)
		}
	}
	paths := object{}
	var tags []string
	for i := range a.routes {
		rt := &a.routes[i]
		if !slices.Contains(tags, rt.Tag) {
			tags = append(tags, rt.Tag)
		}
		item, _ := paths[rt.Path].(object)
		if item == nil {
			item = object{}
			paths[rt.Path] = item
		}
		op, err := a.operation(d, rt)
		if err != nil {
			return nil, fmt.Errorf("route %s %s: %w", rt.Method, rt.Path, err)
		}
		item[strings.ToLower(rt.Method)] = op
	}
	d.Schemas["problem"] = problemSchema()
	if slices.ContainsFunc(a.routes, func(rt Route) bool { return rt.Import != nil }) {
		d.Schemas["import_line"] = importLineSchema()
	}
	tagList := make([]object, len(tags))
	for i, t := range tags {
		tagList[i] = object{"name": t}
	}
	text, err := json.Marshal(object{
		"openapi": "3.1.0",
		"info":    object{"title": a.c.Title, "version": a.c.Version, "description": a.c.Description},
		"servers": []object{{"url": a.c.Origin + a.c.Base}},
		"tags":    tagList,
		"paths":   paths,
		"security": []object{
			{"key": []string{}},
		},
		"components": object{
			"schemas":         d.Schemas,
			"securitySchemes": object{"key": object{"type": "http", "scheme": "bearer", "description": "An API key, created in the dashboard."}},
			"headers":         headerComponents(),
			"parameters":      parameterComponents(a.routes),
			"responses":       problemComponents(),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the OpenAPI document: %w", err)
	}
	return text, nil
}

// operation returns the operation object of a route.
func (a *API) operation(d *schema.Components, rt *Route) (object, error) {
	op := object{"operationId": rt.ID, "tags": []string{rt.Tag}, "summary": rt.Summary}
	if doc := rt.doc(); doc != "" {
		op["description"] = doc
	}
	if rt.Needs != (Permission{}) {
		op["x-permission"] = rt.Needs.String()
	}
	var params []object
	for _, p := range rt.parameters() {
		if name := p["name"].(string); slices.Contains(sharedParameters, name) {
			p = object{"$ref": "#/components/parameters/" + name}
		}
		params = append(params, p)
	}
	if params != nil {
		op["parameters"] = params
	}
	op["x-problems"] = rt.codes()
	if rt.Input != nil {
		s, err := d.Ref(rt.Input, rt.bodyUse())
		if err != nil {
			return nil, err
		}
		op["requestBody"] = object{"required": rt.Method == "PUT" || rt.Input.HasRequired(), "content": object{"application/json": object{"schema": s}}}
		if rt.Import != nil {
			op["x-imports"] = rt.imports(s)
		}
	}
	success := object{"description": "Success.", "headers": headerRefs(rt)}
	if rt.Output != nil {
		s, err := rt.output(d)
		if err != nil {
			return nil, err
		}
		success["content"] = object{"application/json": object{"schema": s}}
		if rt.Export {
			if op["x-exports"], err = rt.exports(d); err != nil {
				return nil, err
			}
		}
		if p := rt.completes(); p != (Permission{}) {
			op["x-answer-permission"] = p.String()
		}
	}
	if rt.File {
		success["content"] = object{"application/octet-stream": object{"schema": object{"type": "string", "format": "binary"}}}
	}
	responses := rt.problemResponses()
	responses[strconv.Itoa(rt.success())] = success
	if rt.Method == "GET" && !rt.List {
		responses["304"] = object{"description": "The record still has the ETag in If-None-Match.", "headers": headerRefs(nil)}
	}
	op["responses"] = responses
	return op, nil
}

// output returns a reference to the schema of a successful answer with records.
func (rt *Route) output(d *schema.Components) (object, error) {
	s, err := d.Ref(rt.Output, "")
	if err != nil || !rt.List {
		return s, err
	}
	name := rt.Output.SchemaName() + "_list"
	d.Schemas[name] = listSchema(s)
	return object{"$ref": "#/components/schemas/" + name}, nil
}

// exports returns the forms of a list besides a page of JSON, by media type. They are an
// extension, because generated clients would make a union of all media types of an answer.
func (rt *Route) exports(d *schema.Components) (object, error) {
	of := rt.Output
	if rt.Rows != nil {
		of = rt.Rows
	}
	s, err := d.Ref(of, "")
	if err != nil {
		return nil, err
	}
	forms := object{
		NDJSON: object{"description": "One record per line.", "schema": s},
		CSV:    object{"description": "RFC 4180 with a header row."},
	}
	if rt.GeoJSON {
		forms[GeoJSON] = object{"description": "A FeatureCollection (RFC 7946) of all records, each a Feature with the record's id and geometry; the rest are properties."}
	}
	return forms, nil
}

// imports returns the forms of a body with many records, by media type, and the answer to each.
// They are an extension, like exports.
func (rt *Route) imports(body object) object {
	forms := object{}
	for _, t := range rt.Import.Types {
		form := object{"description": importDoc[t], "status": http.StatusOK, "answer": object{
			"description": "NDJSON: the result of each record, in order, and a summary at the end.",
			"schema":      object{"$ref": "#/components/schemas/import_line"},
		}}
		if t == NDJSON {
			form["schema"] = body
		}
		forms[t] = form
	}
	return forms
}

// completes returns the permission without which the answer of a write has only the id and
// object of its record; zero: none is needed.
func (rt *Route) completes() Permission {
	if rt.Method == "GET" || rt.Output == nil || rt.Needs.Resource == "" {
		return Permission{}
	}
	return Permission{rt.Needs.Resource, apikey.Read}
}

// problemResponses returns references to the error responses by class of status: one for each
// status would multiply generated clients, and all are problems. x-problems has the codes.
func (rt *Route) problemResponses() object {
	return object{
		"4XX": object{"$ref": "#/components/responses/refused"},
		"5XX": object{"$ref": "#/components/responses/failed"},
	}
}

// problemComponents returns the error responses of all operations.
func problemComponents() object {
	response := func(first int, doc string) object {
		var lines []string
		for _, c := range slices.Sorted(maps.Keys(errorCodes)) {
			if e := errorCodes[c]; e.status/100 == first {
				lines = append(lines, fmt.Sprintf("- %d `%s`: %s", e.status, c, e.doc))
			}
		}
		slices.Sort(lines)
		return object{
			"description": doc + "\n\n" + strings.Join(lines, "\n"),
			"headers":     headerRefs(nil),
			"content":     object{"application/problem+json": object{"schema": object{"$ref": "#/components/schemas/problem"}}},
		}
	}
	return object{
		"refused": response(4, "The request was refused; x-problems of the operation lists the codes that it may have."),
		"failed":  response(5, "The request could not be answered."),
	}
}

// doc returns the description of a route.
func (rt *Route) doc() string {
	doc := rt.Doc
	if p := rt.completes(); p != (Permission{}) {
		doc += "\n\nA key without the permission " + p.String() + " gets only id and object of the record."
	}
	if rt.Method == "PUT" {
		doc += "\n\nThe body may repeat read-only members with their stored values."
	}
	if rt.WholeScope {
		doc += "\n\nNeeds an API key for all subaccounts."
	}
	return strings.TrimSpace(doc)
}

// codes returns the error codes that a route may answer with.
func (rt *Route) codes() []string {
	codes := map[string]bool{}
	add := func(more ...string) {
		for _, c := range more {
			codes[c] = true
		}
	}
	add("missing_credentials", "malformed_authorization", "invalid_api_key", "wrong_environment", "api_key_revoked", "api_key_expired",
		"ip_not_allowed", "rate_limited", "invalid_parameter", "not_acceptable", "unsupported_media_type", "internal_error", "unavailable")
	if rt.Needs != (Permission{}) || len(rt.Expand) > 0 {
		add("permission_denied")
	}
	if rt.narrows {
		add("subaccount_out_of_scope")
	}
	if rt.List {
		add("invalid_cursor")
	}
	if strings.Contains(rt.Path, "{") {
		add("not_found")
	}
	if rt.Method != "GET" {
		add("invalid_json", "body_too_large", "invalid_idempotency_key", "idempotency_in_progress", "idempotency_key_reused")
	}
	if rt.Input != nil || rt.Method == "POST" {
		add("validation_failed")
	}
	if rt.Method == "PUT" || rt.Method == "DELETE" {
		add("precondition_failed")
	}
	add(rt.Codes...)
	return slices.Sorted(maps.Keys(codes))
}

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
	for part := range strings.SplitSeq(rt.Path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			out = append(out, parameter("path", strings.TrimSuffix(name, "}"), true, object{"type": "string"}, ""))
		}
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
	o := parameter("query", p.Name, p.Required, kind.schema(p), p.Doc)
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

func listSchema(of object) object {
	return object{"type": "object", "required": []string{"object", "url", "data", "has_more", "next_cursor"}, "properties": object{
		"object": object{"type": "string", "enum": []string{"list"}},
		"url":    object{"type": "string"}, "data": object{"type": "array", "items": of},
		"has_more": object{"type": "boolean"}, "next_cursor": object{"type": []string{"string", "null"}},
	}}
}

// importLineSchema describes a line of the answer to an import.
func importLineSchema() object {
	integer := object{"type": "integer"}
	return object{"type": "object", "description": "A line of the answer to an import: the result of a record or, at the end, the summary.", "properties": object{
		"line":    object{"type": "integer", "description": "Number of the record, from 1; a header row is not counted."},
		"status":  object{"type": "integer", "description": "201 for a new record, 200 for one that was there, else the status of the problem."},
		"id":      object{"type": "string", "description": "The record's id; absent with a problem."},
		"ignored": object{"type": "array", "items": object{"type": "string"}, "description": "Members that were not applied, because what is stored is newer."},
		"problem": object{"$ref": "#/components/schemas/problem"},
		"summary": object{"type": "object", "required": []string{"created", "failed"}, "properties": object{
			"created": integer, "updated": integer, "unchanged": integer, "failed": integer,
			"skipped": object{"type": "object", "additionalProperties": integer, "description": "In how many records each read-only member was skipped."},
		}},
	}}
}

func problemSchema() object {
	text := object{"type": "string"}
	return object{"type": "object", "description": "A problem (RFC 9457).",
		"required": []string{"type", "title", "status", "detail", "instance", "code", "request_id"},
		"properties": object{
			"type": object{"type": "string", "format": "uri", "description": "A page that explains the code."}, "title": text,
			"status": object{"type": "integer"}, "detail": text, "instance": text,
			"code": object{"type": "string", "enum": slices.Sorted(maps.Keys(errorCodes))}, "request_id": text,
			"required": object{"type": "string", "description": "The permission that is missing."},
			"policy":   object{"type": "string", "enum": []string{"key", "address"}, "description": "The limit that was reached."},
			"member":   object{"type": "string", "description": "The member that must be unique."},
			"errors": object{"type": "array", "maxItems": schema.MaxFieldErrors, "items": object{"type": "object", "required": []string{"code", "detail"},
				"properties": object{"code": text, "detail": text, "pointer": text, "parameter": text, "header": text}}},
		}}
}

func headerComponents() object {
	integer := object{"type": "integer"}
	text := object{"type": "string"}
	return object{
		"X-RateLimit-Limit":     object{"schema": integer, "required": true, "description": "Requests per minute."},
		"X-RateLimit-Remaining": object{"schema": integer, "required": true, "description": "Requests left in the window."},
		"X-RateLimit-Reset":     object{"schema": integer, "required": true, "description": "When the window ends, in Unix seconds."},
		"RateLimit-Policy":      object{"schema": text, "required": true},
		"RateLimit":             object{"schema": text, "required": true},
		"X-Request-Id":          object{"schema": text, "required": true},
		"ETag":                  object{"schema": text}, "Location": object{"schema": text}, "Link": object{"schema": text},
	}
}

func headerRefs(rt *Route) object {
	names := []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit-Policy", "RateLimit", "X-Request-Id"}
	if rt != nil && rt.List {
		names = append(names, "Link")
	} else if rt != nil && rt.Output != nil {
		names = append(names, "ETag")
	}
	if rt != nil && rt.success() == 201 {
		names = append(names, "Location")
	}
	out := object{}
	for _, n := range names {
		out[n] = object{"$ref": "#/components/headers/" + n}
	}
	return out
}
