package resttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kickstand-dev/kickstand/internal/rest"
)

// document is the API's OpenAPI document: one library checks its routes and parameters, another
// its schemas, which are JSON Schema 2020-12. It is safe for concurrent use.
type document struct {
	router routers.Router

	mu      sync.Mutex // the compiler may not be safe for concurrent use
	schemas *jsonschema.Compiler
}

// location is the document's URL in the schema library.
const location = "http://api.example.com/openapi.json"

// read returns documents by their text, each parsed once: that takes longer than most tests.
var read = &parsed{byText: make(map[string]*document)}

type parsed struct {
	mu     sync.Mutex
	byText map[string]*document
}

func (p *parsed) document(t testing.TB, text []byte) *document {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	d, ok := p.byText[string(text)]
	if !ok {
		d = parseDocument(t, strict(t, text))
		p.byText[string(text)] = d
	}
	return d
}

// parseDocument parses and validates a document.
func parseDocument(t testing.TB, text []byte) *document {
	t.Helper()
	loader := openapi3.NewLoader()
	loaded, err := loader.LoadFromData(text)
	if err == nil {
		err = loaded.Validate(t.Context(), openapi3.EnableMultiError(), openapi3.DisableExamplesValidation()) // see Examples
	}
	if err != nil {
		t.Fatalf("the OpenAPI document: %v", err)
	}
	d := &document{schemas: jsonschema.NewCompiler()}
	if d.router, err = legacy.NewRouter(loaded, openapi3.DisableExamplesValidation()); err != nil {
		t.Fatalf("the OpenAPI document: %v", err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err == nil {
		d.schemas.DefaultDraft(jsonschema.Draft2020)
		d.schemas.AssertFormat()
		err = d.schemas.AddResource(location, value)
	}
	if err != nil {
		t.Fatalf("the OpenAPI document: %v", err)
	}
	return d
}

// Examples validates every example of a document by its schema.
func Examples(t testing.TB, text []byte) {
	t.Helper()
	d := read.document(t, text)
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	examples := doc["components"].(map[string]any)["examples"].(map[string]any)
	count := 0
	check := func(pointer string, example any) {
		count++
		text, err := json.Marshal(example)
		if err == nil {
			err = d.validate(pointer+"/schema", text)
		}
		if err != nil {
			t.Errorf("the example at %s: %v\n%s", pointer, err, text)
		}
	}
	var walk func(pointer string, v any)
	walk = func(pointer string, v any) {
		switch v := v.(type) {
		case []any:
			for i, item := range v {
				walk(pointer+"/"+strconv.Itoa(i), item)
			}
		case map[string]any:
			if example, ok := v["example"]; ok && v["schema"] != nil {
				check(pointer, example)
			}
			if of, ok := v["examples"].(map[string]any); ok && v["schema"] != nil {
				for _, ref := range of {
					at := strings.TrimPrefix(ref.(map[string]any)["$ref"].(string), "#/components/examples/")
					check(pointer, examples[at].(map[string]any)["value"])
				}
			}
			for name, item := range v {
				walk(pointer+"/"+escape(name), item)
			}
		}
	}
	walk("#", doc)
	if count == 0 {
		t.Error("the document has no examples")
	}
}

// strict returns the document with additionalProperties false on every object with named
// properties: clients must tolerate more, but our answers have no more. Bodies of an update, and
// objects nested in bodies, may also repeat the answer's members, with its values.
func strict(t testing.TB, text []byte) []byte {
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatalf("the OpenAPI document: %v", err)
	}
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for name, body := range schemas {
		answer, ok := schemas[strings.TrimSuffix(strings.TrimSuffix(name, "_update"), "_input")].(map[string]any)
		if body, isObject := body.(map[string]any); ok && isObject && body["additionalProperties"] == nil {
			allowRepeats(body["properties"].(map[string]any), answer["properties"].(map[string]any))
		}
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				walk(item)
			}
		case map[string]any:
			for _, item := range v {
				walk(item)
			}
			if v["type"] == "object" && v["properties"] != nil && v["additionalProperties"] == nil {
				v["additionalProperties"] = false
			}
		}
	}
	walk(doc)
	closed, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return closed
}

// allowRepeats adds the members of an answer to those of a body.
func allowRepeats(body, answer map[string]any) {
	for name, s := range answer {
		if own := body[name]; own == nil {
			body[name] = s
		} else if enum := own.(map[string]any)["enum"]; enum != nil {
			body[name] = map[string]any{"anyOf": []any{own, s}}
		}
	}
}

// route is the operation of a request in the document.
type route struct {
	document *document
	route    *routers.Route
	values   map[string]string // path parameters
}

func (d *document) find(req *http.Request) (*route, error) {
	found, values, err := d.router.FindRoute(req)
	if err != nil {
		return nil, err
	}
	return &route{d, found, values}, nil
}

// input returns the request for the routing library, which ignores bodies.
func (r *route) input(req *http.Request) *openapi3filter.RequestValidationInput {
	return &openapi3filter.RequestValidationInput{
		Request: req, PathParams: r.values, Route: r.route,
		Options: &openapi3filter.Options{
			ExcludeRequestBody: true, ExcludeResponseBody: true, IncludeResponseStatus: true, MultiError: true, SkipSettingDefaults: true,
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
		},
	}
}

// checkRequest returns how a request violates the document.
func (r *route) checkRequest(req *http.Request) error {
	if err := openapi3filter.ValidateRequest(req.Context(), r.input(req)); err != nil {
		return err
	}
	text, err := io.ReadAll(req.Body)
	if err != nil {
		return err
	}
	body := r.route.Operation.RequestBody
	switch {
	case body == nil:
		return nil // ignored by the API
	case len(text) == 0 && body.Value.Required:
		return errors.New("it has no body")
	case len(text) == 0:
		return nil
	}
	if kind := mediaType(req.Header); r.forms("x-imports")[kind] != nil || r.forms("x-reports") != nil {
		return nil // its lines are checked one by one, and refused one by one
	}
	return r.checkBody(body.Value.Content, r.pointer(body.Ref, "requestBody"), req.Header.Get("Content-Type"), text)
}

// checkAnswer returns how an answer violates the document.
func (r *route) checkAnswer(req *http.Request, a Answer) error {
	in := &openapi3filter.ResponseValidationInput{RequestValidationInput: r.input(req), Status: a.Status, Header: a.Header}
	in.Options = in.RequestValidationInput.Options
	if err := openapi3filter.ValidateResponse(req.Context(), in); err != nil {
		return err
	}
	status := strconv.Itoa(a.Status)
	answer := r.route.Operation.Responses.Value(status)
	if answer == nil {
		status = status[:1] + "XX"
		answer = r.route.Operation.Responses.Value(status)
		if code := a.Code(); !slices.Contains(r.problems(), code) {
			return fmt.Errorf("it has the code %q, which is not in x-problems", code)
		}
	}
	kind := mediaType(a.Header)
	switch {
	case len(answer.Value.Content) == 0:
		if a.Body != "" {
			return errors.New("it has a body")
		}
		return nil
	case answer.Value.Content["application/octet-stream"] != nil:
		return nil // a file of any type
	case a.Status == 200 && req.Method == "GET" && r.forms("x-exports")[kind] != nil:
		return r.checkExport(kind, a.Body)
	case r.narrowed(a):
		return nil
	}
	return r.checkBody(answer.Value.Content, r.pointer(answer.Ref, "responses", status), a.Header.Get("Content-Type"), []byte(a.Body))
}

// mediaType returns the type of a body without parameters.
func mediaType(h http.Header) string {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return kind
}

// forms returns the exports or imports of the operation by media type.
func (r *route) forms(extension string) map[string]any {
	forms, _ := r.route.Operation.Extensions[extension].(map[string]any)
	return forms
}

// problems returns the codes of problems that the operation may have.
func (r *route) problems() (codes []string) {
	list, _ := r.route.Operation.Extensions["x-problems"].([]any)
	for _, c := range list {
		codes = append(codes, c.(string))
	}
	return codes
}

// narrowed reports whether an answer is the one for keys that may write but not read.
func (r *route) narrowed(a Answer) bool {
	var got map[string]string
	return a.Status < 300 && r.route.Operation.Extensions["x-answer-permission"] != nil && json.Unmarshal([]byte(a.Body), &got) == nil &&
		len(got) == 2 && got["id"] != "" && got["object"] != ""
}

// checkExport validates each record of an NDJSON export.
func (r *route) checkExport(kind, text string) error {
	if kind != rest.NDJSON {
		return nil
	}
	for line := range strings.Lines(text) {
		if err := r.document.validate(r.pointer("", "x-exports", kind, "schema"), []byte(line)); err != nil {
			return err
		}
	}
	return nil
}

// checkImport validates each line of the answer to an import.
func (r *route) checkImport(kind, text string) error {
	if r.forms("x-imports")[kind] == nil {
		return fmt.Errorf("the document has no import of %s", kind)
	}
	for line := range strings.Lines(text) {
		if err := r.document.validate(r.pointer("", "x-imports", kind, "answer", "schema"), []byte(line)); err != nil {
			return err
		}
	}
	return nil
}

// checkBody validates a body by the schema of its media type, in the content object at pointer.
func (r *route) checkBody(content openapi3.Content, pointer, contentType string, text []byte) error {
	kind, _, _ := strings.Cut(contentType, ";")
	media := content[kind]
	if media == nil {
		return fmt.Errorf("it is of the type %q", contentType)
	}
	if media.Schema == nil {
		return nil
	}
	return r.document.validate(pointer+"/content/"+escape(kind)+"/schema", text)
}

// validate validates JSON by the schema at pointer.
func (d *document) validate(pointer string, text []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	schema, err := d.schemas.Compile(location + pointer)
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// pointer returns the JSON pointer of a part of the operation, or of its $ref.
func (r *route) pointer(ref string, at ...string) string {
	if ref != "" {
		return ref
	}
	var pointer strings.Builder
	pointer.WriteString("#/paths/" + escape(r.route.Path) + "/" + strings.ToLower(r.route.Method))
	for _, name := range at {
		pointer.WriteString("/" + escape(name))
	}
	return pointer.String()
}

// escape escapes a name for a JSON Pointer (RFC 6901) in a fragment.
func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "%", "%25", "{", "%7B", "}", "%7D").Replace(name)
}
