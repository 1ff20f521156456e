package mcp

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const sample = `{
  "paths": {
    "/notes": {
      "get": {"operationId": "listNotes", "summary": "List notes", "description": "All of them.", "x-permission": "notes.read",
        "parameters": [
          {"$ref": "#/components/parameters/limit"},
          {"in": "query", "name": "created_at[gte]", "schema": {"type": "string"}, "description": "At or after."},
          {"in": "query", "name": "expand[]", "schema": {"type": "array", "items": {"type": "string"}}},
          {"in": "header", "name": "X-Subaccount-Id", "schema": {"type": "string"}}],
        "responses": {"200": {"content": {"application/json": {}}}, "4XX": {"content": {"application/problem+json": {}}}}},
      "post": {"operationId": "createNote", "summary": "Create a note", "x-permission": "notes.create",
        "parameters": [{"in": "header", "name": "Idempotency-Key", "schema": {"type": "string"}}],
        "requestBody": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/note_create"}}}},
        "responses": {"201": {"content": {"application/json": {}}}}}
    },
    "/notes/{id}": {
      "delete": {"operationId": "deleteNote", "summary": "Delete a note",
        "parameters": [{"in": "path", "name": "id", "required": true, "schema": {"type": "string"}}, {"in": "header", "name": "If-Match", "schema": {}}],
        "responses": {"204": {}}}
    },
    "/notes/{id}/file": {"get": {"operationId": "getFile", "summary": "Download", "responses": {"200": {"content": {"application/octet-stream": {}}}}}}
  },
  "components": {
    "parameters": {"limit": {"in": "query", "name": "limit", "schema": {"type": "integer", "maximum": 100}}},
    "schemas": {
      "note_create": {"type": "object", "properties": {"text": {"type": "string"}, "parent": {"$ref": "#/components/schemas/note_create"}, "place": {"$ref": "#/components/schemas/place"}}},
      "place": {"type": "object", "properties": {"lat": {"type": "number"}}}
    }
  }
}`

func sampleTools(t *testing.T) map[string]*tool {
	t.Helper()
	list, err := readTools([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	tools := map[string]*tool{}
	for _, one := range list {
		tools[one.Name] = one
	}
	return tools
}

func TestReadTools(t *testing.T) {
	tools := sampleTools(t)
	if len(tools) != 3 {
		t.Fatalf("got %d tools, want three: none for the file", len(tools))
	}
	for name, want := range map[string]string{
		"list_notes":  `{"destructiveHint":false,"idempotentHint":true,"openWorldHint":false,"readOnlyHint":true,"title":"List notes"}`,
		"create_note": `{"destructiveHint":false,"idempotentHint":false,"openWorldHint":true,"readOnlyHint":false,"title":"Create a note"}`,
		"delete_note": `{"destructiveHint":true,"idempotentHint":true,"openWorldHint":true,"readOnlyHint":false,"title":"Delete a note"}`,
	} {
		if got := compact(t, tools[name].Annotations); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"list_notes": `{"additionalProperties":false,"properties":{"created_at_gte":{"description":"At or after.","type":"string"},"expand":{"items":{"type":"string"},"type":"array"},` +
			`"limit":{"maximum":100,"type":"integer"},"x_subaccount_id":{"type":"string"}},"type":"object"}`,
		"create_note": `{"additionalProperties":false,"properties":{"body":{"properties":{"parent":{"type":"object"},"place":{"properties":{"lat":{"type":"number"}},"type":"object"},"text":{"type":"string"}},"type":"object"},` +
			`"idempotency_key":{"type":"string"}},"required":["body"],"type":"object"}`,
		"delete_note": `{"additionalProperties":false,"properties":{"id":{"type":"string"}},"required":["id"],"type":"object"}`,
	} {
		if got := compact(t, tools[name].InputSchema); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
	}
	if got := tools["list_notes"]; got.Description != "List notes.\n\nAll of them." || got.permission != "notes.read" {
		t.Errorf("got %q, %q", got.Description, got.permission)
	}
}

func compact(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRequest(t *testing.T) {
	tools := sampleTools(t)
	hr := httptest.NewRequest("POST", "http://help.example.com/mcp?write=true", strings.NewReader("the message"))
	hr.RemoteAddr = "192.0.2.1:4000"
	hr.Header = http.Header{
		"Authorization": {"Bearer k"}, "X-Forwarded-For": {"198.51.100.1"}, "Content-Type": {"application/json"}, "Cookie": {"session=1"},
		"Idempotency-Key": {"of the message"}, "Accept": {"application/json, text/event-stream"}, "If-Match": {"x"}, "Mcp-Protocol-Version": {"2025-06-18"},
	}
	for _, tt := range []struct {
		tool, arguments string
		want            string // method, URI, special headers and body, or an error
	}{
		{"list_notes", ``, "GET /v1/notes"},
		{"list_notes", `{"limit":5,"created_at_gte":"2026-01-01T00:00:00Z","expand":["a","b"],"x_subaccount_id":"s"}`,
			"GET /v1/notes?created_at%5Bgte%5D=2026-01-01T00%3A00%3A00Z&expand%5B%5D=a%2Cb&limit=5 X-Subaccount-Id=s"},
		{"list_notes", `{"limit":null}`, "GET /v1/notes"},
		{"list_notes", `{"limits":1}`, `error: the tool has no argument "limits"; it has created_at_gte, expand, limit, x_subaccount_id`},
		{"list_notes", `{"limit":{}}`, "error: the argument limit must be a text, a number, a boolean or a list of them"},
		{"list_notes", `[]`, "error: the arguments are not an object"},
		{"create_note", `{"body":{"text":"a"},"idempotency_key":"k"}`, `POST /v1/notes Idempotency-Key=k {"text":"a"}`},
		{"create_note", `{}`, "error: the argument body is required"},
		{"list_notes", `{"x_subaccount_id":"a\u0000"}`, "error: the argument x_subaccount_id has characters that a header cannot have"},
		{"create_note", `{"body":{},"idempotency_key":"a\r\nb"}`, "error: the argument idempotency_key has characters that a header cannot have"},
		{"delete_note", `{"id":"a b?c#d"}`, "DELETE /v1/notes/a%20b%3Fc%23d"},
		{"delete_note", `{"id":"a/file"}`, "error: the argument id is not an id"},
		{"delete_note", `{"id":""}`, "error: the argument id is not an id"},
	} {
		got := ""
		r, err := tools[tt.tool].request(hr, "/v1", json.RawMessage(tt.arguments))
		if err != nil {
			got = "error: " + err.Error()
		} else {
			got = r.Method + " " + r.RequestURI
			for _, name := range []string{"X-Subaccount-Id", "Idempotency-Key"} {
				if v := r.Header.Get(name); v != "" {
					got += " " + name + "=" + v
				}
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			got = strings.TrimSpace(got + " " + string(body))
			if r.Header.Get("Authorization") != "Bearer k" || r.Header.Get("X-Forwarded-For") != "198.51.100.1" || r.RemoteAddr != hr.RemoteAddr || r.Header.Get("Accept") != "application/json" {
				t.Errorf("%s: the request lacks the client: %v", tt.tool, r.Header)
			}
			if r.Header.Get("Cookie")+r.Header.Get("If-Match") != "" {
				t.Errorf("%s: the request has headers of the message: %v", tt.tool, r.Header)
			}
		}
		if !strings.HasPrefix(got, tt.want) || err == nil && got != tt.want {
			t.Errorf("%s %s:\ngot  %s\nwant %s", tt.tool, tt.arguments, got, tt.want)
		}
	}
}

func TestSnake(t *testing.T) {
	for id, want := range map[string]string{"listTickets": "list_tickets", "getSLAPolicy": "get_sla_policy", "setSLA": "set_sla", "a": "a", "getV1": "get_v1"} {
		if got := snake(id); got != want {
			t.Errorf("%s: got %s, want %s", id, got, want)
		}
	}
}

// FuzzRequest: arguments lead to the tool's own path, or to an error.
func FuzzRequest(f *testing.F) {
	list, err := readTools([]byte(sample))
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{``, `{}`, `{"id":"a"}`, `{"id":"../x"}`, `{"id":"{id}","body":{}}`, `{"limit":[1,"a",true,null]}`, `{"body":null,"idempotency_key":"k"}`} {
		f.Add(text)
	}
	hr := httptest.NewRequest("POST", "http://help.example.com/mcp", http.NoBody)
	f.Fuzz(func(t *testing.T, text string) {
		for _, one := range list {
			r, err := one.request(hr, "/v1", json.RawMessage(text))
			if err != nil {
				continue
			}
			if got, want := strings.Count(r.URL.Path, "/"), strings.Count("/v1"+one.path, "/"); r.Method != one.method || got != want || !strings.HasPrefix(r.URL.Path, "/v1/notes") {
				t.Errorf("%s leads %s to %s %s", text, one.Name, r.Method, r.URL.Path)
			}
		}
	})
}
