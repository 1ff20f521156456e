package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/apikey"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/net/http/httpguts"
)

// tool is an operation of an API as a tool.
type tool struct {
	*mcp.Tool
	method     string
	path       string // "/tickets/{id}"
	permission string // "tickets.read"; empty: any key
	arguments  map[string]argument
	required   []string
}

// argument is a part of the request that an argument sets.
type argument struct {
	in   string // path, query, header or body
	name string
}

// allowed reports whether a key has the tool's permission.
func (t *tool) allowed(keys *apikey.Service, k *apikey.Key) bool {
	resource, action, _ := strings.Cut(t.permission, ".")
	return t.permission == "" || keys.Allows(k, resource, apikey.Action(action))
}

// document is the part of an OpenAPI document that tools need.
type document struct {
	Paths      map[string]map[string]operation
	Components struct {
		Schemas    map[string]any
		Parameters map[string]parameter
	}
}

type operation struct {
	ID          string `json:"operationId"`
	Summary     string
	Description string
	Permission  string `json:"x-permission"`
	Parameters  []parameter
	RequestBody *struct {
		Required bool
		Content  map[string]media
	}
	Responses map[string]struct{ Content map[string]media }
}

type media struct{ Schema map[string]any }

type parameter struct {
	Ref         string `json:"$ref"`
	In, Name    string
	Required    bool
	Description string
	Schema      map[string]any
}

const jsonType = "application/json"

// readTools returns the tools of an OpenAPI document, by name. Files and other answers that are
// not JSON have none.
func readTools(text []byte) ([]*tool, error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	var tools []*tool
	for path, methods := range d.Paths {
		for method, o := range methods {
			if o.answersNonJSON() {
				continue
			}
			t, err := d.tool(strings.ToUpper(method), path, &o)
			if err != nil {
				return nil, fmt.Errorf("operation %s: %w", o.ID, err)
			}
			tools = append(tools, t)
		}
	}
	slices.SortFunc(tools, func(a, b *tool) int { return strings.Compare(a.Name, b.Name) })
	return tools, nil
}

// answersNonJSON reports whether a successful answer is not JSON.
func (o *operation) answersNonJSON() bool {
	for status, r := range o.Responses {
		if _, ok := r.Content[jsonType]; strings.HasPrefix(status, "2") && len(r.Content) > 0 && !ok {
			return true
		}
	}
	return false
}

func (d *document) tool(method, path string, o *operation) (*tool, error) {
	t := &tool{method: method, path: path, permission: o.Permission, arguments: map[string]argument{}}
	properties := map[string]any{}
	add := func(name string, a argument, required bool, of any) error {
		if _, taken := t.arguments[name]; taken {
			return fmt.Errorf("two arguments have the name %s", name)
		}
		t.arguments[name], properties[name] = a, of
		if required {
			t.required = append(t.required, name)
		}
		return nil
	}
	for _, p := range o.Parameters {
		if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
			p = d.Components.Parameters[name]
		}
		if p.Name == "If-Match" || p.Name == "If-None-Match" {
			continue // results have no entity tags
		}
		of := maps.Clone(p.Schema)
		if p.Description != "" {
			of["description"] = p.Description
		}
		if err := add(argumentName(p), argument{p.In, p.Name}, p.Required, d.inline(of, nil)); err != nil {
			return nil, err
		}
	}
	if o.RequestBody != nil {
		if err := add("body", argument{in: "body"}, o.RequestBody.Required, d.inline(o.RequestBody.Content[jsonType].Schema, nil)); err != nil {
			return nil, err
		}
	}
	input := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if t.required != nil {
		input["required"] = t.required
	}
	read := method == http.MethodGet
	_, creates := o.Responses["201"]
	destructive, open := !read && !creates, !read
	t.Tool = &mcp.Tool{
		Name: snake(o.ID), Title: o.Summary, Description: strings.TrimSpace(o.Summary + ".\n\n" + o.Description), InputSchema: input,
		Annotations: &mcp.ToolAnnotations{
			Title: o.Summary, ReadOnlyHint: read, DestructiveHint: &destructive, OpenWorldHint: &open,
			IdempotentHint: read || method == http.MethodPut || method == http.MethodDelete,
		},
	}
	return t, nil
}

// argumentName returns the argument of a parameter: created_at_gte for created_at[gte], and
// idempotency_key for Idempotency-Key. Models do not accept other characters.
func argumentName(p parameter) string {
	name := strings.NewReplacer("[]", "", "[", "_", "]", "", "-", "_").Replace(p.Name)
	if p.In == "header" {
		name = strings.ToLower(name)
	}
	return name
}

// inline returns a schema with its references replaced, since few clients follow them. above
// has the enclosing records: one of them within itself becomes any object.
func (d *document) inline(of any, above []string) any {
	switch of := of.(type) {
	case map[string]any:
		if ref, ok := of["$ref"].(string); ok {
			name := strings.TrimPrefix(ref, "#/components/schemas/")
			if slices.Contains(above, name) {
				return map[string]any{"type": "object"}
			}
			return d.inline(d.Components.Schemas[name], append(slices.Clip(above), name))
		}
		out := make(map[string]any, len(of))
		for name, value := range of {
			out[name] = d.inline(value, above)
		}
		return out
	case []any:
		out := make([]any, len(of))
		for i, value := range of {
			out[i] = d.inline(value, above)
		}
		return out
	}
	return of
}

// snake returns list_tickets for listTickets, and get_sla_policy for getSLAPolicy.
func snake(id string) string {
	var b strings.Builder
	for i := range len(id) {
		c := id[i]
		upper := 'A' <= c && c <= 'Z'
		afterLower := i > 0 && 'a' <= id[i-1] && id[i-1] <= 'z'
		beforeLower := i > 0 && i+1 < len(id) && 'a' <= id[i+1] && id[i+1] <= 'z'
		if upper && (afterLower || beforeLower) {
			b.WriteByte('_')
		}
		b.WriteString(strings.ToLower(string(c)))
	}
	return b.String()
}

// request returns the request of a call, to be sent in place of hr, which has the credentials
// and the client. base is the base path of the API.
func (t *tool) request(hr *http.Request, base string, raw json.RawMessage) (*http.Request, error) {
	var given map[string]json.RawMessage
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &given); err != nil {
			return nil, fmt.Errorf("the arguments are not an object: %w", err)
		}
	}
	for _, name := range t.required {
		if given[name] == nil {
			return nil, fmt.Errorf("the argument %s is required", name)
		}
	}
	path, query, header, body := t.path, url.Values{}, callHeader(hr.Header), []byte(nil)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		a, known := t.arguments[name]
		if !known {
			return nil, fmt.Errorf("the tool has no argument %.40q; it has %s", name, strings.Join(slices.Sorted(maps.Keys(t.arguments)), ", "))
		}
		if a.in == "body" {
			body = given[name]
			continue
		}
		value, err := text(given[name])
		if err != nil {
			return nil, fmt.Errorf("the argument %s %w", name, err)
		}
		switch {
		case a.in == "path" && (value == "" || strings.Contains(value, "/")):
			return nil, fmt.Errorf("the argument %s is not an id", name)
		case a.in == "path":
			path = strings.ReplaceAll(path, "{"+a.name+"}", value)
		case a.in == "header" && !httpguts.ValidHeaderFieldValue(value):
			return nil, fmt.Errorf("the argument %s has characters that a header cannot have", name)
		case a.in == "header" && value != "":
			header.Set(a.name, value)
		case a.in == "query" && value != "":
			query.Set(a.name, value)
		}
	}
	r := hr.Clone(hr.Context())
	r.Method, r.Header, r.URL = t.method, header, &url.URL{Path: base + path, RawQuery: query.Encode()}
	r.RequestURI = r.URL.RequestURI()
	r.Body, r.ContentLength = http.NoBody, 0
	if body != nil {
		r.Body, r.ContentLength = readCloser{bytes.NewReader(body)}, int64(len(body))
		header.Set("Content-Type", jsonType)
	}
	return r, nil
}

// callHeader returns the headers of a request that concern the client, not its body.
func callHeader(of http.Header) http.Header {
	h := http.Header{"Accept": {jsonType}}
	for _, name := range []string{"Authorization", "User-Agent", "X-Forwarded-For", "Forwarded"} {
		if lines := of[name]; lines != nil {
			h[name] = lines
		}
	}
	return h
}

// text returns the text of an argument in a path, query or header: a list with commas.
func text(raw json.RawMessage) (string, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	list, isList := v.([]any)
	if !isList {
		list = []any{v}
	}
	var parts []string
	for _, v := range list {
		switch v := v.(type) {
		case nil:
		case string:
			parts = append(parts, v)
		case bool, json.Number:
			parts = append(parts, fmt.Sprint(v))
		default:
			return "", fmt.Errorf("must be a text, a number, a boolean or a list of them")
		}
	}
	return strings.Join(parts, ","), nil
}

// readCloser is a body in memory.
type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }
