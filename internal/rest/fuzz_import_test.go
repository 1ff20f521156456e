package rest

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

// FuzzImport: any body is split into lines that are parts of it, and each is a record or has an
// error.
func FuzzImport(f *testing.F) {
	for _, s := range []string{
		"{\"s\":\"a\"}\r\n\n{", "s,o.n,o.s,a\r\n'=a,1,\"x\"\"y\",[]\r\n,,\r\n", "\ufeffs\na\"b\n\"a\"b\n\"a", "o.n,i\n1",
		`{"type":"FeatureCollection","features":[{"type":"Feature","geometry":null,"properties":{"s":"a"}},1]}`, `{"features":[],"features":0}`,
	} {
		for kind := range 3 {
			f.Add([]byte(s), uint8(kind))
		}
	}
	route := &Route{Method: "POST", Input: &schema.Record{Name: "x", Members: []schema.Member{
		{Name: "s", Type: schema.String(0, 50), Access: schema.Required}, {Name: "i", Type: schema.Int(0, 9), Access: schema.Writable}, {Name: "b", Type: schema.Bool(), Access: schema.Writable},
		{Name: "o", Type: schema.Object(schema.Member{Name: "n", Type: schema.Number(), Access: schema.Required}, schema.Member{Name: "s", Type: schema.Text(), Access: schema.Writable}), Access: schema.Writable},
		{Name: "a", Type: schema.Array(schema.Text(), 9), Access: schema.Writable}, {Name: "geometry", Type: schema.JSON(), Access: schema.Writable, Nullable: true},
	}}}
	f.Fuzz(func(t *testing.T, text []byte, kind uint8) {
		r := &Request{api: &API{}, route: route, Body: text}
		r.importing.kind = []string{NDJSON, CSV, GeoJSON}[kind%3]
		fault := r.cut()
		if fault == nil {
			fault = r.importing.apiErr
		}
		if fault != nil {
			if !utf8.ValidString(fault.detail) || errorCodes[fault.code].status/100 != 4 {
				t.Errorf("%q: got %v", text, fault)
			}
			return
		}
		at := 0
		for _, line := range r.importing.lines {
			n := bytes.Index(text[at:], line)
			if n < 0 {
				t.Fatalf("%q: the line %q is not in it, or not after the one before", text, line)
			}
			at += n + len(line)
			body, fieldErrs, err := r.read(line)
			if err == nil && len(fieldErrs) == 0 {
				var c schema.Check
				c.Body(route.Input.Members, &body, nil)
				fieldErrs = c.Errors
			}
			for _, fl := range fieldErrs {
				if !strings.HasPrefix(fl.Pointer, "#") || fl.Code == "" || !utf8.ValidString(fl.Detail) {
					t.Errorf("%q: %+v", line, fl)
				}
			}
			if len(fieldErrs) > schema.MaxFieldErrors || err != nil && toAPIError(err, nil).code == "internal_error" {
				t.Errorf("%q: %d faults, %v", line, len(fieldErrs), err)
			}
		}
	})
}
