package rest

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

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

// documentBuilder collects the parts of the OpenAPI document.
type documentBuilder struct {
	api        *API
	components *schema.Components
	examples   object // components/examples
	make       schema.Examples
}

// document31 builds the OpenAPI document.
func (a *API) document31() ([]byte, error) {
	var answers []*schema.Record
	for i := range a.routes {
		answers = append(answers, a.routes[i].Output)
	}
	b := &documentBuilder{a, schema.NewComponents(answers...), object{}, schema.Examples{ID: exampleID}}
	if a.c.ExampleID != nil {
		b.make.ID = a.c.ExampleID
	}
	for i := range a.routes {
		for _, e := range a.routes[i].Expand {
			b.components.Expand(a.routes[i].Output, e.Name, e.Record)
		}
	}
	problems, err := b.problems()
	if err != nil {
		return nil, err
	}
	paths, err := b.paths()
	if err != nil {
		return nil, err
	}
	doc := object{
		"openapi": "3.1.0",
		"info": object{
			"title": a.c.Title, "version": a.c.Version, "description": a.c.Description,
			"contact": object{"name": a.c.Title, "url": a.c.Origin},
			"license": object{"name": "Apache License 2.0", "identifier": "Apache-2.0"},
		},
		"externalDocs": object{"url": a.c.Origin + a.c.Docs, "description": "The reference."},
		"servers":      []object{{"url": a.c.Origin + a.c.Base}},
		"tags":         a.tagList(),
		"paths":        paths,
		"security":     []object{{"key": []string{}}},
		"components": object{
			"schemas":         b.components.Schemas,
			"securitySchemes": object{"key": object{"type": "http", "scheme": "bearer", "description": "An API key, created in the dashboard."}},
			"headers":         headerComponents(a.routes),
			"parameters":      parameterComponents(a.routes),
			"responses":       problems,
			"examples":        b.examples,
		},
	}
	if len(a.c.Webhooks) > 0 {
		if doc["webhooks"], err = b.webhooks(); err != nil {
			return nil, err
		}
		parameters := doc["components"].(object)["parameters"].(object)
		maps.Copy(parameters, deliveryHeaders)
		parameters["X-Service-Event"] = deliveryHeader("X-Service-Event", true, "The name of the event.", a.c.Webhooks[0].Name)
	}
	if slices.ContainsFunc(a.routes, func(rt Route) bool { return rt.Import != nil }) {
		doc["x-import-line"] = importLineSchema()
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode the OpenAPI document: %w", err)
	}
	return text, nil
}

// exampleID returns a UUID that depends on its use only.
func exampleID(of string) string {
	return fmt.Sprintf("019aa0f2-8c1e-7d33-9a52-%012x", crc32.ChecksumIEEE([]byte(of)))
}

// tagList describes the groups of operations, in the order of the routes.
func (a *API) tagList() (tags []object) {
	for i := range a.routes {
		name := a.routes[i].Tag
		if !a.routes[i].Stream && !slices.ContainsFunc(tags, func(t object) bool { return t["name"] == name }) {
			t := object{"name": name}
			if doc := a.c.Tags[name]; doc != "" {
				t["description"] = doc
			}
			tags = append(tags, t)
		}
	}
	return tags
}

// paths returns the operations of all routes.
func (b *documentBuilder) paths() (object, error) {
	paths := object{}
	for i := range b.api.routes {
		rt := &b.api.routes[i]
		if rt.Stream {
			continue
		}
		item, _ := paths[rt.Path].(object)
		if item == nil {
			item = object{}
			paths[rt.Path] = item
		}
		op, err := b.operation(rt)
		if err != nil {
			return nil, fmt.Errorf("route %s %s: %w", rt.Method, rt.Path, err)
		}
		item[strings.ToLower(rt.Method)] = op
	}
	return paths, nil
}

// operation returns the operation object of a route.
func (b *documentBuilder) operation(rt *Route) (object, error) {
	op := object{"operationId": rt.ID, "tags": []string{rt.Tag}, "summary": rt.Summary, "description": rt.description(), "x-problems": rt.codes()}
	if rt.Needs != (Permission{}) {
		op["x-permission"] = rt.Needs.String()
	}
	if rt.Deprecated != nil {
		op["deprecated"] = true
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
	if rt.Input != nil {
		s, err := b.components.Ref(rt.Input, rt.bodyUse())
		if err != nil {
			return nil, err
		}
		op["requestBody"] = object{"required": rt.Method == "PUT" || rt.Input.HasRequired(), "content": object{"application/json": object{
			"schema": s, "examples": b.example(s, b.make.Record(rt.Input, rt.bodyUse())),
		}}}
		if rt.Reports {
			op["x-reports"] = object{NDJSON: object{"description": "One report per line."}}
		}
		if rt.Import != nil {
			op["x-imports"] = rt.imports(s)
		}
	}
	success := object{"description": "Success.", "headers": headerRefs(rt.successHeaders()...)}
	if rt.Output != nil {
		s, example, err := b.output(rt)
		if err != nil {
			return nil, err
		}
		success["content"] = object{"application/json": object{"schema": s, "examples": b.example(s, example)}}
		if rt.Export {
			if op["x-exports"], err = rt.exports(b.components); err != nil {
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
	if rt.Method == "GET" && !rt.List && !rt.File {
		responses["304"] = object{"description": "The record still has the ETag in If-None-Match.", "headers": headerRefs(append(rt.everyHeader(), "ETag")...)}
	}
	op["responses"] = responses
	return op, nil
}

// example adds the example of a schema to the components, and returns the examples of a media type
// with it. ref refers to the schema, which names the example.
func (b *documentBuilder) example(ref, value object) object {
	name := strings.TrimPrefix(ref["$ref"].(string), "#/components/schemas/")
	if b.examples[name] == nil {
		b.examples[name] = object{"value": value}
	}
	return object{name: object{"$ref": "#/components/examples/" + name}}
}

// output returns a reference to the schema of a successful answer with records, and an example.
func (b *documentBuilder) output(rt *Route) (ref, example object, err error) {
	s, err := b.components.Ref(rt.Output, "")
	example = b.make.Record(rt.Output, "")
	if err != nil || !rt.List {
		return s, example, err
	}
	name := rt.Output.SchemaName() + "_list"
	b.components.Schemas[name] = listSchema(s)
	return object{"$ref": "#/components/schemas/" + name}, object{
		"object": "list", "url": b.api.c.Base + rt.Path, "data": []any{example}, "has_more": false, "next_cursor": nil,
	}, nil
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
	forms := object{}
	for kind, doc := range rt.exportForms() {
		forms[kind] = object{"description": doc}
	}
	forms[NDJSON].(object)["schema"] = s
	return forms, nil
}

// exportForms describes the forms of an export by media type.
func (rt *Route) exportForms() map[string]string {
	forms := map[string]string{NDJSON: "One record per line.", CSV: "RFC 4180 with a header row."}
	if rt.GeoJSON {
		forms[GeoJSON] = "A FeatureCollection (RFC 7946) of all records, each a Feature with the record's id and geometry; the rest are properties."
	}
	if rt.Parquet {
		forms[Parquet] = "A Parquet file with the columns of the CSV: integers, numbers, booleans, times in UTC and texts; arrays and maps as JSON."
	}
	return forms
}

// imports returns the forms of a body with many records, by media type, and the answer to each.
// They are an extension, like exports.
func (rt *Route) imports(body object) object {
	forms := object{}
	for _, t := range rt.Import.Types {
		form := object{"description": importDoc[t], "status": http.StatusOK, "answer": object{
			"description": "NDJSON: the result of each record, in order, and a summary at the end.",
			"schema":      object{"$ref": "#/x-import-line"},
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
	if rt.Method == "GET" || rt.Output == nil || rt.Needs.Resource == "" || rt.Reports {
		return Permission{}
	}
	return Permission{rt.Needs.Resource, apikey.Read}
}

// description returns the description of a route with everything that its extensions say.
func (rt *Route) description() string {
	doc := rt.doc()
	if doc == "" && rt.List {
		doc = "A page of the records; next_cursor leads to the next page."
	}
	if doc == "" && rt.Method == "GET" {
		doc = "The record as it is now. Its ETag is for If-Match of a change, and If-None-Match of a later read."
	}
	if rt.Export {
		doc += "\n\nWith Accept: " + strings.Join(slices.Sorted(maps.Keys(rt.exportForms())), " or ") + " the answer is the whole list, as a stream."
	}
	return doc
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
	if d := rt.Deprecated; d != nil {
		doc += "\n\nDeprecated since " + d.Since.Format(time.DateOnly) + ", and removed on " + d.Sunset.Format(time.DateOnly) + " or later."
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
