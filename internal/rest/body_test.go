package rest_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestInvalidJSON(t *testing.T) {
	n := open(t)
	deep := func(depth int) string {
		return `{"metadata":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + `}`
	}
	for _, body := range []string{
		`{`, `{"text"}`, `{"text":"a",}`, `{text:"a"}`, `{"text":'a'}`, `{"text":"a"} x`, `{"text":"a"}{}`, `{"text":"a","text":"b"}`,
		`{"text":"a","t\u0065xt":"b"}`, "{\"text\":\"a\xff\"}", "{\"text\":\"a\nb\"}", `{"text":"\x"}`, `{"text":"\ud800"}`, `{"text":"\ud800\u0041"}`, `{"text":"\u12"}`,
		`{"stars":01}`, `{"stars":+1}`, `{"stars":1.}`, `{"stars":.5}`, `{"stars":1e}`, `{"stars":NaN}`, `{"text":nul}`, ` `, "\ufeff{}", `{"metadata":{"a":1,"a":2}}`, deep(65), `// {}`,
	} {
		if a := n.Do("POST", "/notes", body); a.Status != 400 || a.Code() != "invalid_json" {
			t.Errorf("%.60q: got %d %s, want 400 invalid_json", body, a.Status, a.Body)
		}
	}
	for _, body := range []string{deep(64), `[]`, `"a"`, `1`, `null`} {
		if a := n.Do("POST", "/notes", body); a.Status != 422 || a.Code() != "validation_failed" {
			t.Errorf("%.60q: got %d %s, want 422 validation_failed", body, a.Status, a.Body)
		}
	}
	// A byte each on the wire, a hundred in memory.
	if a := n.Do("POST", "/notes", `{"tags":[`+strings.Repeat("0,", 100_000)+`0]}`); a.Status != 413 || a.Code() != "body_too_large" {
		t.Errorf("100,003 values: got %d %s, want 413", a.Status, a.Body)
	}
	if a := n.Do("POST", "/notes", `{"tags":[`+strings.Repeat("0,", 99_997)+`0]}`); a.Status != 422 {
		t.Errorf("100,000 values: got %d %s, want 422", a.Status, a.Body)
	}
	if a := n.Do("POST", "/notes", ""); a.Status != 400 || a.Code() != "invalid_json" {
		t.Errorf("no body: got %d %s, want 400 invalid_json", a.Status, a.Body)
	}
	if a := n.Do("POST", "/notes", `{"text":"a"}`, "Content-Type: application/json; charset=utf-8"); a.Status != 201 {
		t.Errorf("with a charset: got %d %s", a.Status, a.Body)
	}
	if a := n.Do("POST", "/notes", `{"text":"a"}`, "Content-Encoding: gzip"); a.Status != 415 || a.Header.Get("Accept") != "application/json" {
		t.Errorf("compressed: got %d %s", a.Status, a.Body)
	}
	if a := n.Get("/notes", "Content-Type: text/plain"); a.Status != 200 {
		t.Errorf("a type without a body: got %d %s", a.Status, a.Body)
	}
}

// TestValidation has a body and all that is wrong with it.
func TestValidation(t *testing.T) {
	n := open(t)
	made := n.add(t, "one")
	manyKeys := "{"
	for i := range 51 {
		manyKeys += fmt.Sprintf(`"k%d":"v",`, i)
	}
	manyKeys = strings.TrimSuffix(manyKeys, ",") + "}"
	for _, test := range []struct{ method, body, want string }{
		{"POST", `{}`, "#/text required"},
		{"POST", `{"text":null}`, "#/text required"},
		{"POST", `{"text":""}`, "#/text too_short"},
		{"POST", `{"text":"ääääääääääääääääääää"}`, ""},
		{"POST", `{"text":"äääääääääääääääääääää"}`, "#/text too_long"},
		{"POST", `{"text":"a\u0000"}`, "#/text invalid_format"},
		{"POST", `{"text":1}`, "#/text invalid_type"},
		{"POST", `{"text":"a","kind":"quiet"}`, "#/kind invalid_value"},
		{"POST", `{"text":"a","kind":null}`, "#/kind invalid_type"},
		{"POST", `{"text":"a","stars":-1}`, "#/stars too_small"},
		{"POST", `{"text":"a","stars":3.0}`, ""},
		{"POST", `{"text":"a","stars":-0.000}`, ""},
		{"POST", `{"text":"a","stars":3.50}`, "#/stars invalid_type"},
		{"POST", `{"text":"a","stars":3.0e1}`, "#/stars invalid_type"},
		{"POST", `{"text":"a","stars":6}`, "#/stars too_large"},
		{"POST", `{"text":"a","stars":-99999999999999999999}`, "#/stars too_small"},
		{"POST", `{"text":"a","stars":99999999999999999999}`, "#/stars too_large"},
		{"POST", `{"text":"a","stars":1.5}`, "#/stars invalid_type"},
		{"POST", `{"text":"a","stars":"1"}`, "#/stars invalid_type"},
		{"POST", `{"text":"a","due_at":"2026-01-01"}`, "#/due_at invalid_format"},
		{"POST", `{"text":"a","due_at":"2026-01-01T00:00:00+01:00"}`, ""},
		{"POST", `{"text":"a","due_at":null}`, ""},
		{"POST", `{"text":"a","tags":["","123456",1]}`, "#/tags/0 too_short, #/tags/1 too_long, #/tags/2 invalid_type"},
		{"POST", `{"text":"a","tags":["a","b","c","d"]}`, "#/tags too_long"},
		{"POST", `{"text":"a","tags":null}`, ""},
		{"POST", `{"text":"a","place":{}}`, "#/place/lat required"},
		{"POST", `{"text":"a","place":{"lat":1e999}}`, "#/place/lat too_large"},
		{"POST", `{"text":"a","place":{"lat":1,"label":"12345678901","x~y/z":1}}`, "#/place/label too_long, #/place/x~0y~1z unknown_field"},
		{"POST", `{"text":"a","place":[]}`, "#/place invalid_type"},
		{"POST", `{"text":"a","metadata":{"":"a","` + strings.Repeat("k", 41) + `":"v","n":1,"v":"` + strings.Repeat("v", 501) + `"}}`,
			"#/metadata/ too_short, #/metadata/" + strings.Repeat("k", 41) + " too_long, #/metadata/n invalid_type, #/metadata/v too_long"},
		{"POST", `{"text":"a","metadata":` + manyKeys + `}`, "#/metadata too_long"},
		{"POST", `{"text":"a","id":"x","done":true,"nothing":1}`, "#/done read_only, #/id read_only, #/nothing unknown_field"},
		{"PUT", `{"text":null}`, "#/text required"},
		{"PUT", `{"kind":"loud"}`, "#/kind read_only"},
		{"PUT", `{"kind":"plain","id":"` + made.ID + `"}`, ""},
		{"PUT", `{"id":"x","created_at":null,"author_id":"a1"}`, "#/created_at read_only, #/id read_only"},
		{"PUT", `{"done":true}`, ""},
		{"PUT", `{"pin":"123"}`, "#/pin too_short"},
	} {
		path := "/notes"
		if test.method == "PUT" {
			path += "/" + made.ID
		}
		a := n.Do(test.method, path, test.body)
		var got []string
		for _, e := range a.Problem().Errors {
			got = append(got, e.Pointer+" "+e.Code)
		}
		slices.Sort(got)
		if strings.Join(got, ", ") != test.want || (a.Status == 422) != (test.want != "") {
			t.Errorf("%s %.80s: got %d %s, want %s", test.method, test.body, a.Status, a.Body, test.want)
		}
	}
	var many strings.Builder
	for i := range 150 {
		fmt.Fprintf(&many, `,"x%d":1`, i)
	}
	if p := n.Do("POST", "/notes", "{"+many.String()[1:]+"}").Problem(); len(p.Errors) != 100 {
		t.Errorf("150 faults: %d are listed, want 100", len(p.Errors))
	}
}

// TestPut holds that PUT merges: a GET, an edit and a PUT is how it is used.
func TestPut(t *testing.T) {
	n := open(t)
	a := n.Do("POST", "/notes", `{"text":"one","stars":2,"due_at":"2026-01-01T00:00:00+01:00","tags":["a","b"],"place":{"lat":1.5,"label":"here"},"metadata":{"a":"1","b":"2"}}`)
	where := a.Header.Get("Location")
	whole := n.Get(where)
	if again := n.Do("PUT", where, whole.Body, "If-Match: "+whole.Header.Get("ETag")); again.Status != 200 || again.Body != whole.Body || again.Header.Get("ETag") != whole.Header.Get("ETag") {
		t.Errorf("GET, PUT: got %d %s, want %s", again.Status, again.Body, whole.Body)
	}
	for _, test := range []struct {
		body string
		see  func(got wireNote) any
		want any
	}{
		{`{}`, func(g wireNote) any { return g.Text }, "one"},
		{`{"stars":4}`, func(g wireNote) any { return []any{g.Stars, g.Text, g.Tags} }, []any{4, "one", []string{"a", "b"}}},
		{`{"due_at":null}`, func(g wireNote) any { return g.DueAt.Std().IsZero() }, true},
		{`{"tags":["c"]}`, func(g wireNote) any { return g.Tags }, []string{"c"}},
		{`{"tags":null}`, func(g wireNote) any { return g.Tags }, []string{}},
		{`{"place":{"lat":2}}`, func(g wireNote) any { return []any{g.Place.Lat, g.Place.Label == nil} }, []any{"2", true}},
		{`{"place":null}`, func(g wireNote) any { return g.Place == nil }, true},
		{`{"metadata":{"b":null,"c":"3"}}`, func(g wireNote) any { return pairs(g.Metadata) }, "a=1 c=3"},
		{`{"metadata":{}}`, func(g wireNote) any { return pairs(g.Metadata) }, "a=1 c=3"},
		{`{"metadata":null}`, func(g wireNote) any { return pairs(g.Metadata) }, ""},
	} {
		a := n.Do("PUT", where, test.body)
		var got wireNote
		a.JSON(&got)
		if a.Status != 200 || fmt.Sprint(test.see(got)) != fmt.Sprint(test.want) {
			t.Errorf("PUT %s: got %d %v, want %v; %s", test.body, a.Status, test.see(got), test.want, a.Body)
		}
		if stored := n.Get(where); stored.Body != a.Body {
			t.Errorf("PUT %s: answered %s, stored %s", test.body, a.Body, stored.Body)
		}
	}
}

func pairs(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, " ")
}
