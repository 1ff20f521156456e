package rest

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var fuzzedRecord = &Record{Name: "x", Members: []Member{
	{Name: "s", Type: String(0, 50), Access: Required}, {Name: "i", Type: Int(0, 9), Access: Writable}, {Name: "b", Type: Bool(), Access: Writable},
	{Name: "o", Type: Object(Member{Name: "n", Type: Number(), Access: Required}, Member{Name: "s", Type: Text(), Access: Writable}), Access: Writable},
	{Name: "a", Type: Array(Text(), 9), Access: Writable}, {Name: "geometry", Type: JSON(), Access: Writable, Nullable: true},
}}

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
	route := &Route{Method: "POST", Input: fuzzedRecord}
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
				_, fieldErrs = checkBody(fuzzedRecord.Members, &body, nil, false)
			}
			for _, fl := range fieldErrs {
				if !strings.HasPrefix(fl.Pointer, "#") || fl.Code == "" || !utf8.ValidString(fl.Detail) {
					t.Errorf("%q: %+v", line, fl)
				}
			}
			if len(fieldErrs) > maxFieldErrors || err != nil && toAPIError(err, nil).code == "internal_error" {
				t.Errorf("%q: %d faults, %v", line, len(fieldErrs), err)
			}
		}
	})
}

// FuzzCSVRow: rows equal those of encoding/csv, except for line breaks within cells, which that
// changes.
func FuzzCSVRow(f *testing.F) {
	for _, s := range []string{"a,b\r\nc,d\r\n", "\"a\"\"b\",\"\n\"", "a\"b\n", "\"a\"b\nc", ",\n,", "\"", "a\r", "\"a\"\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var got [][]string
		anyMalformed, open := false, false
		for rest := text; len(rest) > 0; {
			if rest[0] == '\n' || bytes.HasPrefix(rest, []byte("\r\n")) {
				_, rest, _ = bytes.Cut(rest, []byte("\n"))
				continue
			}
			row, malformed, before := []string{}, false, len(rest)
			rest, malformed, open = csvRow(rest, func(cell string) { row = append(row, cell) })
			if len(rest) >= before {
				t.Fatalf("%q: stands still", text)
			}
			anyMalformed = anyMalformed || malformed
			got = append(got, row)
		}
		if bytes.Contains(text, []byte("\r")) {
			return // handled differently by encoding/csv
		}
		d := csv.NewReader(bytes.NewReader(text))
		d.FieldsPerRecord = -1
		want, err := d.ReadAll()
		if (err != nil) != (anyMalformed || open) {
			t.Fatalf("%q: malformed %t, open %t; encoding/csv: %v", text, anyMalformed, open, err)
		}
		if err == nil && len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	})
}

// FuzzWalk: iterating over JSON agrees with parsing it, iterating over any text ends, and a
// record written as CSV reads back equal.
func FuzzWalk(f *testing.F) {
	for _, s := range []string{`{"s":"=a\"b,\n","i":3,"b":true,"o":{"n":-1.50,"s":"\\"},"a":["x","\""],"geometry":{"a":[{}]}}`, ` { "s" : "'" , "o" : null } `, `{}`, `{"s":"\\\\"`, `{"s"`, `[1,"]",{"a":[]}]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var members []jsonMember
		for name, value := range membersOf(text) {
			members = append(members, jsonMember{string(textOf(slices.Concat([]byte{'"'}, name, []byte{'"'}), nil)), jsonNode{raw: value}})
		}
		var items [][]byte
		for item := range itemsOf(text) {
			items = append(items, item)
		}
		n, err := parseJSON(text)
		if err != nil {
			return
		}
		if n.kind == '[' && len(items) != len(n.items) || n.kind == '{' && len(members) != len(n.members) {
			t.Fatalf("%q: got %d members and %d items", text, len(members), len(items))
		}
		for i, item := range items {
			if !bytes.Equal(item, n.items[i].raw) {
				t.Errorf("%q: item %d is %q, want %q", text, i, item, n.items[i].raw)
			}
		}
		for i, m := range members {
			if m.name != n.members[i].name || !bytes.Equal(m.value.raw, n.members[i].value.raw) {
				t.Errorf("%q: member %d is %q: %q, want %q: %q", text, i, m.name, m.value.raw, n.members[i].name, n.members[i].value.raw)
			}
		}
		if _, fieldErrs := checkBody(fuzzedRecord.Members, &n, nil, false); len(fieldErrs) > 0 {
			return
		}
		var b bytes.Buffer
		out := bufio.NewWriter(&b)
		w := newCSVWriter(out, fuzzedRecord)
		if err := errors.Join(w.begin(), w.write(Document{JSON: bytes.TrimSpace(text)}), out.Flush()); err != nil {
			t.Fatal(err)
		}
		h, rest, fieldErrs := readHeader(b.Bytes(), fuzzedRecord)
		if len(fieldErrs) > 0 {
			t.Fatalf("%q: the header is %q: %v", text, b.Bytes(), fieldErrs)
		}
		record, fieldErrs := h.record(rest)
		if len(fieldErrs) > 0 {
			// A value of any type that is a string is text in CSV, not JSON.
			if g := n.find("geometry"); g == nil || g.kind != '"' {
				t.Fatalf("%q: the row is %q: %v", text, rest, fieldErrs)
			}
			return
		}
		var got, want map[string]any
		if err := errors.Join(json.Unmarshal(record, &got), json.Unmarshal(text, &want)); err != nil {
			t.Fatalf("%q became %q: %v", text, record, err)
		}
		if s, _ := want["s"].(string); len(s) > 1 && s[0] == '\'' && isFormula(s[1]) {
			return // indistinguishable from an apostrophe added by an export
		}
		if g := n.find("geometry"); g != nil && g.kind == '"' {
			return
		}
		if got, want := strip(got), strip(want); !reflect.DeepEqual(got, want) {
			t.Errorf("%q became %q", text, record)
		}
	})
}

// strip removes values that CSV cannot distinguish from absent ones.
func strip(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	for name, member := range m {
		if member == nil || member == "" {
			delete(m, name)
		}
	}
	if o, ok := m["o"].(map[string]any); ok {
		strip(o)
		if s, _ := o["s"].(string); len(s) > 1 && s[0] == '\'' && isFormula(s[1]) {
			delete(m, "o")
		}
	}
	if o, ok := m["o"].(map[string]any); ok && len(o) == 0 {
		delete(m, "o")
	}
	return m
}
