package rest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/resttest"
)

// outcome is a line of an import's answer.
type outcome struct {
	Line, Status int
	ID           string
	Problem      *struct {
		Code, Detail, Title, Type, Instance string
		Status                              int
		Errors                              []struct{ Code, Pointer, Detail string }
	}
	Summary *struct{ Created, Failed int }
}

// outcomes returns the results of an import in short form: "1 201", "2 422 validation_failed
// required #/code", "+1 -1".
func outcomes(t *testing.T, a resttest.Answer) (short []string) {
	t.Helper()
	if a.Status != 200 || a.Header.Get("Content-Type") != "application/x-ndjson" {
		return []string{wrong(a)}
	}
	for line := range strings.Lines(a.Body) {
		var o outcome
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		s := fmt.Sprint(o.Line, " ", o.Status)
		switch {
		case o.Summary != nil:
			s = fmt.Sprintf("+%d -%d", o.Summary.Created, o.Summary.Failed)
		case o.Problem != nil:
			s += " " + o.Problem.Code
			if o.Problem.Status != o.Status || o.Problem.Title == "" || o.Problem.Type == "" || o.Problem.Instance == "" || o.Problem.Detail == "" {
				t.Errorf("the problem is not whole: %s", line)
			}
			for _, e := range o.Problem.Errors {
				s += " " + e.Code + " " + e.Pointer
			}
		case o.ID == "":
			t.Errorf("no id: %s", line)
		}
		short = append(short, s)
	}
	return short
}

const (
	ndjson  = "Content-Type: application/x-ndjson"
	csvType = "Content-Type: text/csv; charset=utf-8"
	geojson = "Content-Type: application/geo+json"
)

// codes returns the codes of all bikes in order of creation.
func (g *garage) codes(t *testing.T) string {
	t.Helper()
	var out []string
	for line := range strings.Lines(g.Get("/bikes?sort=created_at", "Accept: application/x-ndjson").Body) {
		var b wireBike
		if err := json.Unmarshal([]byte(line), &b); err != nil {
			t.Fatal(err)
		}
		out = append(out, b.Code)
	}
	return strings.Join(out, " ")
}

func TestImport(t *testing.T) {
	deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	for name, test := range map[string]struct{ kind, body, want, made string }{
		"NDJSON":             {ndjson, `{"code":"a"}` + "\n" + `{"code":"b","gears":3}` + "\n", "1 201, 2 201, +2 -0", "a b"},
		"CRLF, no last end":  {ndjson, `{"code":"a"}` + "\r\n" + `{"code":"b"}`, "1 201, 2 201, +2 -0", "a b"},
		"blank last lines":   {ndjson, `{"code":"a"}` + "\n\n\r\n", "1 201, +1 -0", "a"},
		"blank line":         {ndjson, `{"code":"a"}` + "\n\n" + `{"code":"b"}`, "1 201, 2 400 invalid_json, 3 201, +2 -1", "a b"},
		"all that is wrong":  {ndjson, `{"gears":0,"x":1}` + "\n" + `{"code":"b"}`, "1 422 validation_failed too_small #/gears unknown_field #/x required #/code, 2 201, +1 -1", "b"},
		"not JSON":           {ndjson, "{\n{\"code\":\"b\"}\n[]\n\"x", "1 400 invalid_json, 2 201, 3 422 validation_failed invalid_type #, 4 400 invalid_json, +1 -3", "b"},
		"twice":              {ndjson, `{"code":"a","code":"b"}`, "1 400 invalid_json, +0 -1", ""},
		"not UTF-8":          {ndjson, "{\"code\":\"\xff\"}\n{\"code\":\"b\"}", "1 400 invalid_json, 2 201, +1 -1", "b"},
		"BOM":                {ndjson, "\ufeff{\"code\":\"a\"}\n{\"code\":\"b\"}", "1 400 invalid_json, 2 201, +1 -1", "b"},
		"NUL":                {ndjson, `{"code":"a\u0000"}` + "\n{\"code\":\"b\x00\"}", "1 422 validation_failed invalid_format #/code, 2 400 invalid_json, +0 -2", ""},
		"bomb":               {ndjson, `{"geometry":` + deep + "}\n" + strings.Repeat("[", 1<<20) + "\n" + `{"code":"b"}`, "1 400 invalid_json, 2 400 invalid_json, 3 201, +1 -2", "b"},
		"values":             {ndjson, `{"tags":[` + strings.Repeat("0,", 100_000) + "0]}\n" + `{"code":"b"}`, "1 413 body_too_large, 2 201, +1 -1", "b"},
		"taken":              {ndjson, `{"code":"a"}` + "\n" + `{"code":"taken"}` + "\n" + `{"code":"b"}`, "1 201, 2 409 already_exists, 3 201, +2 -1", "a b"},
		"written, then not":  {ndjson, `{"code":"late"}` + "\n" + `{"code":"b"}`, "1 409 invalid_transition, 2 201, +1 -1", "b"},
		"broken":             {ndjson, `{"code":"a"}` + "\n" + `{"code":"disk"}`, "500 internal_error", ""},
		"other subaccount":   {ndjson, `{"code":"a","subaccount_id":"sub_b"}` + "\n" + `{"code":"b","subaccount_id":"sub_a"}`, "1 403 subaccount_out_of_scope, 2 201, +1 -1", "b"},
		"no charset of ours": {"Content-Type: application/x-ndjson; charset=latin1", `{"code":"a"}`, "415 unsupported_media_type", ""},
		"other type":         {"Content-Type: text/plain", `{"code":"a"}`, "415 unsupported_media_type", ""},

		"CSV":                {csvType, "code,gears,electric,weight,bought_at,tags,place.lat,place.label,metadata\r\na,3,TRUE,1.5,2026-01-01T00:00:00Z,\"[\"\"x\"\"]\",1.5,\"a \"\"b\"\"\",\"{\"\"k\"\":\"\"v\"\"}\"\r\n", "1 201, +1 -0", "a"},
		"LF, BOM":            {csvType, "\ufeffcode\na\n\nb\n\n", "1 201, 2 201, +2 -0", "a b"},
		"no last end":        {csvType, "code,gears\na,", "1 201, +1 -0", "a"},
		"header only":        {csvType, "code\r\n", "+0 -0", ""},
		"apostrophe":         {csvType, "code\r\n'=1\r\n'x\r\n'\r\n'-\r\n", "1 201, 2 201, 3 201, 4 201, +4 -0", "=1 'x ' -"},
		"empty is absent":    {csvType, "code,gears,place.lat\r\na,,\r\n\"\",3,\r\n", "1 201, 2 422 validation_failed required #/code, +1 -1", "a"},
		"types":              {csvType, "code,gears,electric,weight,bought_at,tags,place.lat\r\na,x,yes,1.,soon,a,y\r\nb,03,,,,,\r\nc,9,,,,,\r\n", "1 422 validation_failed invalid_format #/tags, 2 422 validation_failed invalid_type #/gears, 3 201, +1 -2", "c"},
		"types checked":      {csvType, "code,gears,electric,weight,bought_at,place.lat\r\na,x,yes,1.,soon,y\r\n", "1 422 validation_failed invalid_type #/gears invalid_type #/electric invalid_type #/weight invalid_format #/bought_at invalid_type #/place/lat, +0 -1", ""},
		"CSV not UTF-8":      {csvType, "code,place.label\r\n\xff,\xfe\r\nb,\r\n", "1 422 validation_failed invalid_format #/code invalid_format #/place/label, 2 201, +1 -1", "b"},
		"CSV NUL":            {csvType, "code\r\na\x00\r\nb\r\n", "1 422 validation_failed invalid_format #/code, 2 201, +1 -1", "b"},
		"half an object":     {csvType, "code,place.label\r\na,here\r\nb,\r\n", "1 422 validation_failed required #/place/lat, 2 201, +1 -1", "b"},
		"read-only":          {csvType, "code,id\r\na,5\r\nb,\r\n", "1 201, 2 201, +2 -0", "a b"},
		"ragged":             {csvType, "code,gears\r\na\r\nb,1,2\r\nc,1\r\n", "1 422 validation_failed invalid_format #, 2 422 validation_failed invalid_format #, 3 201, +1 -2", "c"},
		"quotes":             {csvType, "code,gears\r\n5\" x,1\r\n\"a\"b,1\r\nc,1\r\n", "1 422 validation_failed invalid_format #, 2 422 validation_failed invalid_format #, 3 201, +1 -2", "c"},
		"open":               {csvType, "code\r\na\r\n\"b\r\nc\r\n", "422 validation_failed invalid_format #/2", ""},
		"unknown columns":    {csvType, "code,color,place\r\na,red,x\r\n", "422 validation_failed unknown_field #/color unknown_field #/place", ""},
		"column twice":       {csvType, "code,code\r\na,b\r\n", "422 validation_failed conflict #/code", ""},
		"semicolons":         {csvType, "code;gears\r\na;3\r\n", "422 validation_failed unknown_field #/code%3Bgears", ""},
		"header broken":      {csvType, "\"code\r\na", "422 validation_failed invalid_format #", ""},
		"too many columns":   {csvType, strings.Repeat("x,", 1<<20) + "\r\n", "422 validation_failed invalid_format #", ""},
		"too many cells":     {csvType, "code\r\n" + strings.Repeat("x,", 1<<20) + "\r\nb", "1 422 validation_failed invalid_format #, 2 201, +1 -1", "b"},
		"CSV without header": {"Content-Type: text/csv; header=absent", "code\r\na", "415 unsupported_media_type", ""},

		"GeoJSON": {geojson, `{"type":"FeatureCollection","bbox":[1,2,3,4],"features":[{"type":"Feature","id":7,"geometry":{"type":"Point","coordinates":[1,2]},"properties":{"code":"a"}},
			{"type":"Feature","geometry":null,"properties":{"code":"b"}},{"type":"Feature","geometry":null,"properties":null}]}`, "1 201, 2 201, 3 422 validation_failed required #/code, +2 -1", "a b"},
		"no Features": {geojson, `{"features":[1,{"type":"Point"},{"type":"Feature","properties":[]},{"type":"Feature","geometry":null,"properties":{"code":"a","geometry":1}},{"type":"Feature","properties":{"code":"b"}},{"type":"Feature","type":"Feature"}],"type":"FeatureCollection"}`,
			"1 422 validation_failed invalid_value #/type, 2 422 validation_failed invalid_value #/type, 3 422 validation_failed invalid_type #/properties, 4 422 validation_failed conflict #/properties/geometry, 5 201, 6 400 invalid_json, +1 -5", "b"},
		"none":              {geojson, `{"type":"FeatureCollection","features":[]}`, "+0 -0", ""},
		"a Feature":         {geojson, `{"type":"Feature","geometry":null,"properties":{"code":"a"}}`, "422 validation_failed invalid_value #/type invalid_type #/features", ""},
		"an array":          {geojson, `[]`, "422 validation_failed invalid_value #/type invalid_type #/features", ""},
		"GeoJSON syntax":    {geojson, `{"type":"FeatureCollection","features":[{]}`, "400 invalid_json", ""},
		"GeoJSON twice":     {geojson, `{"type":"FeatureCollection","features":[],"featur\u0065s":[]}`, "400 invalid_json", ""},
		"GeoJSON not UTF-8": {geojson, "{\"type\":\"\xff\"}", "400 invalid_json", ""},
		"GeoJSON BOM":       {geojson, "\ufeff{}", "400 invalid_json", ""},
		"GeoJSON bomb":      {geojson, strings.Repeat(`{"features":[`, 1<<19), "400 invalid_json", ""},
		"deep":              {geojson, `{"type":"FeatureCollection","features":[{"type":"Feature","geometry":` + deep + `,"properties":{"code":"a"}}]}`, "1 400 invalid_json, +0 -1", ""},
		"as JSON":           {"Content-Type: application/json", `{"type":"FeatureCollection","features":[]}`, "422 validation_failed unknown_field #/type unknown_field #/features required #/code", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := openGarage(t)
			a := g.Do("POST", "/bikes", test.body, test.kind)
			if got := strings.Join(outcomes(t, a), ", "); got != test.want {
				t.Errorf("got %s\nwant %s\n%.1000s", got, test.want, a.Body)
			}
			if got := g.codes(t); got != test.made {
				t.Errorf("made %q, want %q", got, test.made)
			}
			if a.Status == 415 && a.Header.Get("Accept") != "application/json, application/x-ndjson, text/csv, application/geo+json" {
				t.Errorf("Accept: got %q", a.Header.Get("Accept"))
			}
		})
	}
}

// TestImportBounds holds how large an import may be.
func TestImportBounds(t *testing.T) {
	g := openGarage(t)
	line, row, feature := "{\"code\":\"a\"}\n", "a\r\n", `,{"type":"Feature","geometry":null,"properties":{"code":"a"}}`
	for name, test := range map[string]struct {
		kind, body string
		want       int
	}{
		"lines":          {ndjson, strings.Repeat(line, 10_001), 413},
		"rows":           {csvType, "code\r\n" + strings.Repeat(row, 10_001), 413},
		"features":       {geojson, `{"type":"FeatureCollection","features":[` + strings.Repeat(feature, 10_001)[1:] + `]}`, 413},
		"bytes":          {ndjson, line + strings.Repeat(" ", 16<<20), 413},
		"bytes of JSON":  {"Content-Type: application/json", line + strings.Repeat(" ", 1<<20), 413},
		"as many as may": {csvType, "code\r\n" + strings.Repeat(row, 10_000), 200},
		"large":          {ndjson, line + strings.Repeat(" ", 16<<20-len(line)-1) + "\n", 200},
	} {
		a := g.Do("POST", "/bikes", test.body, test.kind)
		if a.Status != test.want || a.Status == 413 && a.Code() != "body_too_large" {
			t.Errorf("%s: got %d %.200s, want %d", name, a.Status, a.Body, test.want)
		}
		if d := a.Problem().Detail; strings.HasSuffix(name, "s") && a.Status == 413 && !strings.Contains(name, "bytes") && d != "An import may have at most 10000 records." {
			t.Errorf("%s: got %q", name, d)
		}
	}
}

// TestImportWrong sends many invalid records: each has its first error in the answer, which
// stays within bounds.
func TestImportWrong(t *testing.T) {
	g := openGarage(t)
	var line strings.Builder
	line.WriteString("{")
	for i := range 99 {
		line.WriteString(fmt.Sprintf(`"m%d":0,`, i))
	}
	line.WriteString(`"m99":0}` + "\n")
	a := g.Do("POST", "/bikes", strings.Repeat(line.String(), 2000), ndjson)
	short := outcomes(t, a)
	if n := len(a.Body); len(short) != 2001 || short[2000] != "+0 -2000" || n > 4<<20 {
		t.Fatalf("got %d lines of %d bytes, at last %s", len(short), n, short[len(short)-1])
	}
	if got := strings.Count(short[0], "unknown_field"); got != 100 {
		t.Errorf("the first record has %d fieldErrs, want 100", got)
	}
	if want := "2000 422 validation_failed unknown_field #/m0"; short[1999] != want {
		t.Errorf("the last record: got %s, want %s", short[1999], want)
	}
}

func TestImportAtomic(t *testing.T) {
	g := openGarage(t)
	post := func(lines ...string) resttest.Answer {
		return g.Do("POST", "/bikes?atomic=true", strings.Join(lines, "\n"), ndjson)
	}
	for _, test := range []struct {
		lines        []string
		want, detail string
	}{
		{[]string{`{"code":"a"}`, `{"gears":0}`, `{`}, "422 validation_failed too_small #/2/gears required #/2/code invalid_json #/3", "2 records are not valid, so none was imported."},
		{[]string{`{"code":"a"}`, `{"code":"taken"}`}, "422 validation_failed already_exists #/2", "1 record is not valid, so none was imported."},
	} {
		a := post(test.lines...)
		if got := wrong(a); got != test.want || a.Problem().Detail != test.detail {
			t.Errorf("%q: got %s, want %s; %s", test.lines, got, test.want, a.Body)
		}
	}
	many := make([]string, 150)
	for i := range many {
		many[i] = `{"gears":0}`
	}
	if got := len(post(many...).Problem().Errors); got != 100 {
		t.Errorf("300 faults: %d are listed, want 100", got)
	}
	if got := g.codes(t); got != "" {
		t.Errorf("made %q", got)
	}
	if got := strings.Join(outcomes(t, post(`{"code":"a"}`, `{"code":"b"}`)), ", "); got != "1 201, 2 201, +2 -0" {
		t.Errorf("got %s", got)
	}
	if a := g.Do("POST", "/bikes?atomic=1", `{"code":"c"}`, ndjson); wrong(a) != "400 invalid_parameter invalid_value atomic" {
		t.Errorf("got %d %s", a.Status, a.Body)
	}
}

// TestImportOnce: a stored import answer is replayed like any other, to keys that cover its
// records.
func TestImportOnce(t *testing.T) {
	g := openGarage(t)
	write := apikey.Permissions{Level: apikey.ReadWrite}
	all, b := g.As(g.key(t, ours, write)), g.As(g.key(t, ours, write, "sub_b"))
	const body = `{"code":"a","subaccount_id":"sub_a"}` + "\n" + `{"code":"b"}` + "\n" + `{"code":"c","subaccount_id":"sub_b"}`
	first := all.Do("POST", "/bikes", body, ndjson, "Idempotency-Key: k1")
	if got := strings.Join(outcomes(t, first), ", "); got != "1 201, 2 422 validation_failed required #/subaccount_id, 3 201, +2 -1" {
		t.Fatalf("got %s", got)
	}
	again := all.Do("POST", "/bikes", body, ndjson, "Idempotency-Key: k1")
	if again.Body != first.Body || again.Header.Get("Idempotent-Replayed") != "true" || again.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("again: got %d %v %s", again.Status, again.Header, again.Body)
	}
	for _, c := range []*resttest.Client{g.Client, b} {
		if a := c.Do("POST", "/bikes", body, ndjson, "Idempotency-Key: k1"); a.Code() != "subaccount_out_of_scope" {
			t.Errorf("by another key: got %d %s", a.Status, a.Body)
		}
	}
	// The same text is another request as another type.
	one := g.Do("POST", "/bikes", `{"code":"d"}`, ndjson, "Idempotency-Key: k2")
	if a := g.Do("POST", "/bikes", `{"code":"d"}`, "Idempotency-Key: k2"); one.Status != 200 || a.Code() != "idempotency_key_reused" {
		t.Errorf("as JSON: got %d %s", a.Status, a.Body)
	}
	// By the header.
	if got := strings.Join(outcomes(t, all.Do("POST", "/bikes", body, ndjson, "X-Subaccount-Id: sub_b")), ", "); got != "1 400 invalid_parameter conflict , 2 201, 3 201, +2 -1" {
		t.Errorf("got %s", got)
	}
	// Without read permission an import is allowed, and Accept: application/json still gets
	// lines.
	writer := g.As(g.key(t, ours, apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{"bikes": {apikey.Create}}}}, "sub_a"))
	for accept, want := range map[string]string{"application/json": "1 201, +1 -0", "application/x-ndjson": "1 201, +1 -0", "text/csv": "406 not_acceptable"} {
		if got := strings.Join(outcomes(t, writer.Do("POST", "/bikes", `{"code":"e"}`, ndjson, "Accept: "+accept)), ", "); got != want {
			t.Errorf("Accept %s: got %s, want %s", accept, got, want)
		}
	}
	reader := g.As(g.key(t, ours, apikey.Permissions{Level: apikey.ReadOnly}))
	if a := reader.Do("POST", "/bikes", `{"code":"e"}`, ndjson); a.Code() != "permission_denied" {
		t.Errorf("a key that may only read: got %d %s", a.Status, a.Body)
	}
}

// TestRoundTrip: an export can be imported unchanged.
func TestRoundTrip(t *testing.T) {
	g := openGarage(t)
	for _, body := range []string{
		`{"code":"a","gears":3,"electric":true,"weight":-1.5,"bought_at":"2026-01-01T00:00:00Z","tags":["a,b","\"c\""],"place":{"lat":1.50,"label":"@home, \"x\"\r\ny"},"geometry":{"type":"Point","coordinates":[1.5,2]},"metadata":{"k":"=1"}}`,
		`{"code":"=1+1"}`, `{"code":"'x"}`, `{"code":"\t\n,"}`, `{"code":"-5","place":{"lat":0,"label":"é \u2028"}}`,
	} {
		if a := g.Do("POST", "/bikes", body); a.Status != 201 {
			t.Fatalf("%s: got %d %s", body, a.Status, a.Body)
		}
	}
	// plain is a record without its unique fields.
	plain := func(text string) string {
		var m map[string]any
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"id", "object", "subaccount_id", "created_at"} {
			delete(m, name)
		}
		out, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	var want []string
	for line := range strings.Lines(g.Get("/bikes", "Accept: application/x-ndjson").Body) {
		want = append(want, plain(line))
	}
	export := g.Get("/bikes", "Accept: text/csv").Body
	var features struct {
		Type     string
		Features []struct {
			Type, ID   string
			Geometry   json.RawMessage
			Properties map[string]any
		}
	}
	answer := g.Get("/bikes", "Accept: application/geo+json")
	answer.JSON(&features)
	if answer.Header.Get("Content-Type") != "application/geo+json" || features.Type != "FeatureCollection" || len(features.Features) != 5 {
		t.Fatalf("GeoJSON: got %s", answer.Body)
	}
	for _, f := range features.Features {
		if f.Type != "Feature" || f.ID == "" || f.Properties["id"] != nil || f.Properties["geometry"] != nil || f.Properties["object"] != "bike" {
			t.Errorf("GeoJSON: got %+v", f)
		}
	}
	for kind, body := range map[string]string{
		csvType: export,
		geojson: answer.Body,
		ndjson:  g.Get("/bikes", "Accept: application/x-ndjson").Body,
	} {
		g := openGarage(t)
		if got := strings.Join(outcomes(t, g.Do("POST", "/bikes", body, kind)), ", "); got != "1 201, 2 201, 3 201, 4 201, 5 201, +5 -0" {
			t.Fatalf("%s: got %s\n%s", kind, got, body)
		}
		i := 0
		for line := range strings.Lines(g.Get("/bikes", "Accept: application/x-ndjson").Body) {
			if got := plain(line); got != want[i] {
				t.Errorf("%s, record %d: got %s, want %s", kind, i+1, got, want[i])
			}
			i++
		}
	}
	if a := g.Get("/bikes?near=true&expand[]=owner", "Accept: application/geo+json"); a.Status != 200 || !strings.Contains(a.Body, `"distance_meters":7,"owner":{`) {
		t.Errorf("expanded: got %d %s", a.Status, a.Body)
	}
	empty := g.As(g.key(t, theirs, apikey.Permissions{Level: apikey.ReadOnly}))
	if a := empty.Get("/bikes", "Accept: application/geo+json"); a.Body != `{"type":"FeatureCollection","features":[`+"\n]}\n" {
		t.Errorf("of nothing: got %q", a.Body)
	}
	if a := open(t).Get("/notes", "Accept: application/geo+json"); a.Status != 406 {
		t.Errorf("of a list without shapes: got %d", a.Status)
	}
}

// TestShown: the OpenAPI document describes imports.
func TestShown(t *testing.T) {
	g := openGarage(t)
	var doc struct {
		Paths map[string]map[string]struct {
			Description string
			Exports     map[string]any                  `json:"x-exports"`
			Imports     map[string]struct{ Answer any } `json:"x-imports"`
		}
	}
	if err := json.Unmarshal(resttest.OpenAPI(t, g.api), &doc); err != nil {
		t.Fatal(err)
	}
	post, list := doc.Paths["/bikes"]["post"], doc.Paths["/bikes"]["get"]
	for _, kind := range []string{rest.NDJSON, rest.CSV, rest.GeoJSON} {
		if list.Exports[kind] == nil || post.Imports[kind].Answer == nil {
			t.Errorf("the document has no export or import of %s", kind)
		}
	}
	if got := doc.Paths["/owner"]["get"].Description; got != "Needs an API key for all subaccounts." {
		t.Errorf("got the description %q", got)
	}
}

// TestImportUpdate: fields absent from a line are unchanged, a change that fails after writing
// is rolled back, and a retry with the same key changes nothing.
func TestImportUpdate(t *testing.T) {
	g := openGarage(t)
	var a, b struct{ ID string }
	g.Do("POST", "/bikes", `{"code":"a","gears":3,"tags":["x"],"metadata":{"k":"v","l":"w"}}`).JSON(&a)
	g.Do("POST", "/bikes", `{"code":"b"}`).JSON(&b)
	lines := fmt.Sprintf(`{"id":%q,"gears":5,"metadata":{"k":null},"created_at":null}
{"id":%q,"code":"stuck"}
{"id":%q,"code":"b","metadata":{}}
{"code":"c"}`, a.ID, b.ID, b.ID)
	const key = "Idempotency-Key: update-1"
	first := g.Do("POST", "/bikes?on_conflict=update", lines, ndjson, key)
	if got, want := strings.Join(outcomes(t, first), ", "), "1 200, 2 409 invalid_transition, 3 200, 4 201, +1 -1"; got != want {
		t.Errorf("got %s\nwant %s\n%s", got, want, first.Body)
	}
	if !strings.Contains(first.Body, `{"summary":{"created":1,"updated":1,"unchanged":1,"failed":1,"skipped":{"created_at":1}}}`) {
		t.Errorf("the summary is %s", first.Body)
	}
	if again := g.Do("POST", "/bikes?on_conflict=update", lines, ndjson, key); again.Body != first.Body || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("a retry: %v %s", again.Header, again.Body)
	}
	if got := g.Get("/bikes/" + a.ID).Body; !strings.Contains(got, `"gears":5`) || !strings.Contains(got, `"tags":["x"]`) || !strings.Contains(got, `"metadata":{"l":"w"}`) {
		t.Errorf("the bike is %s", got)
	}
	if got := g.codes(t); got != "a b c" {
		t.Errorf("there are %s", got)
	}
}
