package schema

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

	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// FuzzParseJSON: text that the parser accepts has the same meaning for encoding/json; text that
// only the parser refuses has a reason that encoding/json does not check.
func FuzzParseJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e3,true,false,null,"\u00e4\ud83d\ude00\n"]}`, `{"a":1,"a":2}`, `[[[[]]]]`, `"\ud800"`, `{"a":}`, " 1 ", "01", `{"":{"":""}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := Parse(text)
		if err != nil {
			if !utf8.ValidString(err.Error()) || len(err.Error()) > 1000 {
				t.Errorf("%q: the error cannot be shown: %q", text, err)
			}
			return
		}
		if !json.Valid(text) || !utf8.Valid(text) {
			t.Fatalf("%q: taken", text)
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		var want any
		if err := d.Decode(&want); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if got := plain(&n); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %#v, want %#v", text, got, want)
		}
		if !n.equal(&n) {
			t.Errorf("%q: does not equal itself", text)
		}
	})
}

// plain is the value as encoding/json has it.
func plain(n *Node) any {
	switch n.Kind {
	case '{':
		out := map[string]any{}
		for i := range n.Members {
			out[n.Members[i].Name] = plain(&n.Members[i].Value)
		}
		return out
	case '[':
		out := []any{}
		for i := range n.items {
			out = append(out, plain(&n.items[i]))
		}
		return out
	case '"':
		return n.Text
	case '0':
		return json.Number(n.Text)
	case 't', 'f':
		return n.Kind == 't'
	}
	return nil
}

// FuzzBody: an accepted body decodes, for any stored record.
func FuzzBody(f *testing.F) {
	members := []Member{
		{Name: "id", Type: ID()}, {Name: "s", Type: String(1, 5), Access: Required}, {Name: "i", Type: Int(0, 9), Access: Writable},
		{Name: "t", Type: Timestamp(), Access: Writable, Nullable: true}, {Name: "a", Type: Array(Enum("x", "y"), 3), Access: Writable},
		{Name: "o", Type: Object(Member{Name: "n", Type: Number(), Access: Required}), Access: Writable, Nullable: true},
		{Name: "m", Type: Metadata(), Access: Writable}, {Name: "b", Type: Bool(), Access: UpdateOnly},
	}
	for _, s := range []string{`{"s":"a","i":3,"t":null,"a":["x"],"o":{"n":1.5},"m":{"k":"v","l":null}}`, `{"id":"1","b":true}`, `{"i":1e3}`, `{"m":null,"a":null}`, `{}`} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	stored, err := Parse([]byte(`{"id":"1","s":"a","i":0,"t":null,"a":[],"o":null,"m":{"l":"1"},"b":false}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte, put bool) {
		n, err := Parse(text)
		if err != nil {
			return
		}
		current := &stored
		if !put {
			current = nil
		}
		c := Check{Put: put}
		got := c.Body(members, &n, current)
		fieldErrs := c.Errors
		if len(fieldErrs) > MaxFieldErrors {
			t.Fatalf("%d faults", len(fieldErrs))
		}
		for _, fl := range fieldErrs {
			if !strings.HasPrefix(fl.Pointer, "#") || fl.Code == "" || !utf8.ValidString(fl.Detail) {
				t.Errorf("%q: %+v", text, fl)
			}
		}
		if len(fieldErrs) > 0 {
			return
		}
		var into struct {
			S optional.Value[string]            `json:"s"`
			I optional.Value[int64]             `json:"i"`
			T optional.Value[rfc3339.Time]      `json:"t"`
			A optional.Value[[]string]          `json:"a"`
			O optional.Value[map[string]any]    `json:"o"`
			M optional.Value[map[string]string] `json:"m"`
			B optional.Value[bool]              `json:"b"`
		}
		if err := json.Unmarshal(got, &into); err != nil {
			t.Fatalf("%q became %q: %v", text, got, err)
		}
		if into.I.Value < 0 || into.I.Value > 9 || len(into.A.Value) > 3 || utf8.RuneCountInString(into.S.Value) > 5 || len(into.M.Value) > maxMetadata {
			t.Errorf("%q became %+v", text, into)
		}
	})
}

var fuzzedRecord = &Record{Name: "x", Members: []Member{
	{Name: "s", Type: String(0, 50), Access: Required}, {Name: "i", Type: Int(0, 9), Access: Writable}, {Name: "b", Type: Bool(), Access: Writable},
	{Name: "o", Type: Object(Member{Name: "n", Type: Number(), Access: Required}, Member{Name: "s", Type: Text(), Access: Writable}), Access: Writable},
	{Name: "a", Type: Array(Text(), 9), Access: Writable}, {Name: "geometry", Type: JSON(), Access: Writable, Nullable: true},
}}

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
			rest, malformed, open = CSVRow(rest, func(cell string) { row = append(row, cell) })
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
		var members []NodeMember
		for name, value := range MembersOf(text) {
			members = append(members, NodeMember{string(TextOf(slices.Concat([]byte{'"'}, name, []byte{'"'}), nil)), Node{raw: value}})
		}
		var items [][]byte
		for item := range ItemsOf(text) {
			items = append(items, item)
		}
		n, err := Parse(text)
		if err != nil {
			return
		}
		if n.Kind == '[' && len(items) != len(n.items) || n.Kind == '{' && len(members) != len(n.Members) {
			t.Fatalf("%q: got %d members and %d items", text, len(members), len(items))
		}
		for i, item := range items {
			if !bytes.Equal(item, n.items[i].raw) {
				t.Errorf("%q: item %d is %q, want %q", text, i, item, n.items[i].raw)
			}
		}
		for i, m := range members {
			if m.Name != n.Members[i].Name || !bytes.Equal(m.Value.raw, n.Members[i].Value.raw) {
				t.Errorf("%q: member %d is %q: %q, want %q: %q", text, i, m.Name, m.Value.raw, n.Members[i].Name, n.Members[i].Value.raw)
			}
		}
		var c Check
		if c.Body(fuzzedRecord.Members, &n, nil); len(c.Errors) > 0 {
			return
		}
		var b bytes.Buffer
		out := bufio.NewWriter(&b)
		w := NewCSVWriter(out, fuzzedRecord)
		if err := errors.Join(w.Begin(), w.Write(bytes.TrimSpace(text)), out.Flush()); err != nil {
			t.Fatal(err)
		}
		h, rest, fieldErrs := ReadCSVHeader(b.Bytes(), fuzzedRecord)
		if len(fieldErrs) > 0 {
			t.Fatalf("%q: the header is %q: %v", text, b.Bytes(), fieldErrs)
		}
		record, fieldErrs := h.Record(rest)
		if len(fieldErrs) > 0 {
			// A value of any type that is a string is text in CSV, not JSON.
			if g := n.Find("geometry"); g == nil || g.Kind != '"' {
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
		if g := n.Find("geometry"); g != nil && g.Kind == '"' {
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
