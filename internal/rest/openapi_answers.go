package rest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

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

// problemDetail is a member of problems with some codes.
type problemDetail struct {
	codes []string
	schema.Member
	reports bool // only of services with reports
}

// problemDetails are the members that problems may have besides those of every problem.
var problemDetails = []problemDetail{
	{codes: []string{"permission_denied"}, Member: schema.Member{Name: "required", Type: schema.Text(), Doc: "The permission that is missing.", Example: "tickets.create"}},
	{codes: []string{"quota_exceeded", "daily_quota_exceeded"}, Member: schema.Member{Name: "quota", Type: schema.Enum("storage", "messages", "webhooks"), Doc: "The quota that is used up.", Example: "storage"}},
	{codes: []string{"quota_exceeded", "daily_quota_exceeded"}, Member: schema.Member{Name: "limit", Type: schema.Integer(), Doc: "Its limit: bytes, messages a day, or webhooks.", Example: 1000000000}},
	{codes: []string{"quota_exceeded", "daily_quota_exceeded"}, Member: schema.Member{Name: "used", Type: schema.Integer(), Doc: "What is used of it.", Example: 998000000}},
	{codes: []string{"rate_limited"}, Member: schema.Member{Name: "policy", Type: schema.Enum("key", "address", "telemetry"), Doc: "The limit that was reached.", Example: "key"}},
	{codes: []string{"rate_limited"}, Member: schema.Member{Name: "taken", Type: schema.Integer(), Doc: "Of the limit telemetry: the index of the first report that was not taken, in NDJSON of its line."}, reports: true},
	{codes: []string{"rate_limited"}, Member: schema.Member{Name: "result", Type: schema.JSON(), Doc: "The telemetry_result of these reports."}, reports: true},
	{codes: []string{"already_exists"}, Member: schema.Member{Name: "member", Type: schema.Text(), Doc: "The member that must be unique.", Example: "external_id"}},
	{codes: []string{"already_exists"}, Member: schema.Member{Name: "ticket_id", Type: schema.ID(), Doc: "The ticket that exists."}},
	{codes: []string{"already_exists"}, Member: schema.Member{Name: "ticket_number", Type: schema.Integer(), Doc: "Its number."}},
	{codes: []string{"crossed_reply"}, Member: schema.Member{Name: "message", Type: schema.Nested(newerReply), Doc: "The newer reply.", Example: map[string]any{
		"id": exampleID("message"), "author": map[string]any{"type": "agent", "id": exampleID("author"), "name": "Robin Demo"}, "created_at": "2026-03-14T09:26:53.250Z",
	}}},
	{codes: []string{"invalid_transition"}, Member: schema.Member{Name: "merged_into_id", Type: schema.ID(), Doc: "The ticket that the ticket is merged into."}},
	{codes: []string{"invalid_transition"}, Member: schema.Member{Name: "from", Type: schema.Text(), Doc: "The current state."}},
	{codes: []string{"invalid_transition"}, Member: schema.Member{Name: "to", Type: schema.Text(), Doc: "The requested state."}},
	{codes: []string{"invalid_transition"}, Member: schema.Member{Name: "allowed", Type: schema.Array(schema.Text(), 100), Doc: "The states that can follow the current one."}},
	{codes: []string{"vehicle_unavailable"}, Member: schema.Member{Name: "state", Type: schema.Text(), Doc: "The vehicle's state.", Example: "on_trip"}},
	{codes: []string{"customer_has_open_ride", "vehicle_in_use"}, Member: schema.Member{Name: "ride_id", Type: schema.ID(), Doc: "The open ride.", Example: "ride_01KKNTQ6YAEDQRB018TR4SJM6R"}},
	{codes: []string{"pricing_changed"}, Member: schema.Member{Name: "pricing_plan_id", Type: schema.ID(), Doc: "The plan that would apply.", Example: "plan_01KKNTQ6YAEDQRB018TR4SJM6R"}},
	{codes: []string{"pricing_changed"}, Member: schema.Member{Name: "pricing_plan_version", Type: schema.Integer(), Doc: "Its version.", Example: 2}},
	{codes: []string{"ride_start_not_allowed", "ride_end_not_allowed"}, Member: schema.Member{Name: "zone_id", Type: schema.ID(), Nullable: true, Doc: "The zone that forbids it; null: no zone allows it.", Example: "zone_01KKNTQ6YAEDQRB018TR4SJM6R"}},
	{codes: []string{"out_of_zone_fee_required"}, Member: schema.Member{Name: "out_of_zone_amount", Type: schema.Integer(), Doc: "The fee, in the minor unit of the currency.", Example: 500}},
	{codes: []string{"out_of_zone_fee_required"}, Member: schema.Member{Name: "currency", Type: schema.Text(), Doc: "ISO 4217.", Example: "EUR"}},
	{codes: []string{"clock_backwards"}, Member: schema.Member{Name: "now", Type: schema.Timestamp(), Doc: "The sandbox's time.", Example: "2026-03-14T09:26:53.250Z"}},
	{codes: []string{"validation_failed", "invalid_parameter", "invalid_idempotency_key"}, Member: schema.Member{Name: "errors", Type: schema.Array(schema.Nested(fieldErrorRecord), schema.MaxFieldErrors), Doc: "Each invalid member, parameter or header.", Example: []any{
		map[string]any{"code": "required", "detail": "subject is required.", "pointer": "#/subject"},
	}}},
}

var newerReply = &schema.Record{Name: "problem.message", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "author", Type: schema.Object(
		schema.Member{Name: "type", Type: schema.Enum("customer", "agent", "system")},
		schema.Member{Name: "id", Type: schema.ID(), Nullable: true},
		schema.Member{Name: "name", Type: schema.Text(), Nullable: true},
	)},
	{Name: "created_at", Type: schema.Timestamp()},
}}

var fieldErrorRecord = &schema.Record{Name: "field_error", Doc: "An invalid member, parameter or header of a request.", Members: []schema.Member{
	{Name: "code", Type: schema.Text(), Doc: "such as required, invalid_value, too_long or read_only."},
	{Name: "detail", Type: schema.Text(), Doc: "A sentence that names it."},
	{Name: "pointer", Type: schema.Text(), Sometimes: true, Doc: "JSON pointer of the member in the body."},
	{Name: "parameter", Type: schema.Text(), Sometimes: true, Doc: "Name of the query parameter."},
	{Name: "header", Type: schema.Text(), Sometimes: true, Doc: "Name of the header."},
}}

// problemRecord describes problems with the given codes.
func problemRecord(codes []string, reports bool) *schema.Record {
	r := &schema.Record{Name: "problem", Doc: "A problem (RFC 9457).", Members: []schema.Member{
		{Name: "type", Type: schema.Formatted("uri", 500), Doc: "A page that explains the code."},
		{Name: "title", Type: schema.Text(), Doc: "The code in words."},
		{Name: "status", Type: schema.Integer(), Doc: "The status of the answer."},
		{Name: "detail", Type: schema.Text(), Doc: "A sentence about this request."},
		{Name: "instance", Type: schema.Text(), Doc: "urn:request: and the request id."},
		{Name: "code", Type: schema.Enum(codes...)},
		{Name: "request_id", Type: schema.Text(), Doc: "X-Request-Id of the answer, or of the first answer if it is replayed."},
	}}
	for _, d := range problemDetails {
		if (reports || !d.reports) && slices.ContainsFunc(d.codes, func(c string) bool { return slices.Contains(codes, c) }) {
			m := d.Member
			m.Sometimes = true
			m.Doc += " With " + strings.Join(d.codes, ", ") + "."
			r.Members = append(r.Members, m)
		}
	}
	return r
}

// allCodes returns the codes of all problems of the API.
func (a *API) allCodes() []string {
	codes := map[string]bool{"route_not_found": true, "method_not_allowed": true}
	for i := range a.routes {
		for _, c := range a.routes[i].codes() {
			codes[c] = true
		}
	}
	return slices.Sorted(maps.Keys(codes))
}

// problemResponses returns references to the error responses by class of status: one for each
// status would multiply generated clients, and all are problems. x-problems has the codes.
func (rt *Route) problemResponses() object {
	return object{
		"4XX": object{"$ref": "#/components/responses/refused"},
		"5XX": object{"$ref": "#/components/responses/failed"},
	}
}

// problems adds the schema of problems and an example for each code, and returns the error
// responses of all operations.
func (b *documentBuilder) problems() (object, error) {
	codes := b.api.allCodes()
	s, err := b.components.Ref(problemRecord(codes, slices.ContainsFunc(b.api.routes, func(rt Route) bool { return rt.Reports })), "")
	if err != nil {
		return nil, err
	}
	response := func(class int, doc string, headers ...string) object {
		lines, examples := []string{}, object{}
		for _, c := range codes {
			e := errorCodes[c]
			if e.status/100 != class {
				continue
			}
			lines = append(lines, fmt.Sprintf("- %d `%s`: %s", e.status, c, e.doc))
			name := "problem_" + c
			b.examples[name] = object{"summary": e.title, "value": b.api.exampleProblem(c)}
			examples[c] = object{"$ref": "#/components/examples/" + name}
		}
		slices.Sort(lines)
		return object{
			"description": doc + "\n\n" + strings.Join(lines, "\n"),
			"headers":     headerRefs(append(headers, limitHeaders...)...),
			"content":     object{"application/problem+json": object{"schema": s, "examples": examples}},
		}
	}
	return object{
		"refused": response(4, "The request was refused; x-problems of the operation lists the codes that it may have.", "Retry-After", "WWW-Authenticate", "Idempotent-Replayed"),
		"failed":  response(5, "The request could not be answered.", "Retry-After"),
	}, nil
}

// exampleProblem returns a problem with a code, as it is answered.
func (a *API) exampleProblem(code string) any {
	f := &apiError{code: code, detail: schema.EndSentence(errorCodes[code].title), details: map[string]any{}}
	for _, d := range problemDetails {
		if d.Example != nil && slices.Contains(d.codes, code) {
			f.details[d.Name] = d.Example
		}
	}
	_, body := a.document(f, exampleID("request"))
	return json.RawMessage(body)
}

// limitHeaders are the headers of every answer.
var limitHeaders = []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit-Policy", "RateLimit", "X-Request-Id"}

// everyHeader returns the headers of every answer of the route.
func (rt *Route) everyHeader() []string {
	if rt.Deprecated != nil {
		return append(slices.Clone(limitHeaders), "Deprecation", "Sunset")
	}
	return slices.Clone(limitHeaders)
}

// successHeaders returns the headers of the route's successful answer.
func (rt *Route) successHeaders() []string {
	names := rt.everyHeader()
	switch {
	case rt.List:
		names = append(names, "Link")
	case rt.Output != nil:
		names = append(names, "ETag")
	case rt.File:
		names = append(names, "Content-Disposition")
	}
	if rt.success() == 201 {
		names = append(names, "Location")
	}
	if rt.Method != "GET" {
		names = append(names, "Idempotent-Replayed")
	}
	return names
}

// headerComponents returns the headers that answers of the routes have.
func headerComponents(routes []Route) object {
	integer, text := object{"type": "integer"}, object{"type": "string"}
	all := object{
		"X-RateLimit-Limit":     object{"schema": integer, "required": true, "description": "Requests per minute.", "example": 600},
		"X-RateLimit-Remaining": object{"schema": integer, "required": true, "description": "Requests left in the window.", "example": 599},
		"X-RateLimit-Reset":     object{"schema": integer, "required": true, "description": "When the window ends, in Unix seconds.", "example": 1773480420},
		"RateLimit-Policy":      object{"schema": text, "required": true, "description": "The limit that counts this request: its name, requests and seconds.", "example": `"key";q=600;w=60`},
		"RateLimit":             object{"schema": text, "required": true, "description": "Requests left, and seconds until the window ends.", "example": `"key";r=599;t=7`},
		"X-Request-Id":          object{"schema": text, "required": true, "description": "The id of the request in logs: that of the request, or a new one.", "example": exampleID("request")},
		"Retry-After":           object{"schema": integer, "description": "Seconds to wait before the same request: with 429 and 503, idempotency_in_progress, and a file that is still being fetched.", "example": 5},
		"WWW-Authenticate":      object{"schema": text, "description": "With 401 and permission_denied: how to authenticate (RFC 6750).", "example": `Bearer realm="api"`},
		"Idempotent-Replayed":   object{"schema": object{"type": "string", "enum": []string{"true"}}, "description": "The answer is the stored one of the first request with the Idempotency-Key."},
	}
	optional := object{
		"ETag":                object{"schema": text, "description": "The version of the record, for If-Match and If-None-Match. Absent with expand[].", "example": `"42"`},
		"Location":            object{"schema": text, "description": "The path of the new record."},
		"Link":                object{"schema": text, "description": "The next page, with rel=\"next\" (RFC 8288); absent on the last."},
		"Deprecation":         object{"schema": text, "required": true, "description": "When the operation was deprecated, as @ and Unix seconds (RFC 9745).", "example": "@1767225600"},
		"Sunset":              object{"schema": text, "required": true, "description": "The earliest time of its removal (RFC 8594).", "example": "Fri, 01 Jan 2027 00:00:00 GMT"},
		"Content-Disposition": object{"schema": text, "description": "attachment, with the name of the file.", "example": `attachment; filename="receipt.pdf"`},
	}
	for i := range routes {
		for _, name := range routes[i].successHeaders() {
			if h := optional[name]; h != nil {
				all[name] = h
			}
		}
	}
	return all
}

func headerRefs(names ...string) object {
	out := object{}
	for _, n := range names {
		out[n] = object{"$ref": "#/components/headers/" + n}
	}
	return out
}
