package rest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

var fuzzed = &Route{Method: "GET", Path: "/x", List: true, Sort: []string{"created_at", "name"}, Query: []Param{
	{Name: "s"}, {Name: "ss", Kind: StringsParam}, {Name: "e", Kind: EnumParam, Values: []string{"a", "b"}}, {Name: "es", Kind: EnumsParam, Values: []string{"a", "b"}},
	{Name: "i", Kind: IntParam, Min: 1, Max: 9}, {Name: "b", Kind: BoolParam}, {Name: "n", Kind: NumberParam, Min: -9, Max: 9}, {Name: "t", Kind: TimeParam}, {Name: "ir", Kind: IntRange}, {Name: "tr", Kind: TimeRange},
}, Expand: []Expansion{{Name: "x"}}}

// FuzzQuery: accepted values are within their bounds, and a cursor opens only with its own
// list, filters and order.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{"", "limit=5&sort=-name", "ss=a,b&es=b,a&i=3&b=true&n=-8.5", "tr[gte]=2026-01-01T00:00:00Z&ir%5Blt%5D=-5", "expand[]=x", "s=%00", "cursor=AAAAAAAAAAAx", "t=2026-01-01T00:00:00.123456789%2B01:00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		values, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		var q query
		if err := fuzzed.checkQuery(&q, "/x", values, false); err != nil {
			if f := toAPIError(err, nil); errorCodes[f.code].status != 400 || !utf8.ValidString(f.detail) {
				t.Errorf("%q: got %v", raw, err)
			}
			return
		}
		if q.limit < 1 || q.limit > maxLimit || (q.sort != "created_at" && q.sort != "name") || len(q.expand) > 1 {
			t.Errorf("%q: got %+v", raw, q)
		}
		if n, ok := q.values["i"].(int64); ok && (n < 1 || n > 9) {
			t.Errorf("%q: i is %d", raw, n)
		}
		if n, ok := q.values["n"].(float64); ok && !(-9 <= n && n <= 9) {
			t.Errorf("%q: n is %v", raw, n)
		}
		cursor, err := q.encodeCursor("/x", map[string]int{"at": 7})
		if err != nil {
			t.Fatal(err)
		}
		if err := q.decodeCursor("/x", cursor); err != nil || string(q.position) != `{"at":7}` {
			t.Errorf("%q: its own cursor opens %s, %v", raw, q.position, err)
		}
		if q.decodeCursor("/y", cursor) == nil {
			t.Errorf("%q: the cursor opens for another path", raw)
		}
		next, err := url.Parse(q.next("/x", cursor))
		if err != nil || next.Query().Get("cursor") != cursor {
			t.Fatalf("%q: next is %v, %v", raw, next, err)
		}
		if err := fuzzed.checkQuery(new(query), "/x", next.Query(), false); err != nil {
			t.Errorf("%q: the next page is refused: %v", raw, err)
		}
	})
}

// FuzzCursor: a cursor is refused or was created here.
func FuzzCursor(f *testing.F) {
	q := query{sort: "created_at"}
	good, _ := q.encodeCursor("/x", []any{1, "a"})
	for _, s := range []string{good, "", "x", good + "=", good[:11], good[:4] + "\n" + good[4:], strings.Repeat("A", 20)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		q := query{sort: "created_at"}
		if q.decodeCursor("/x", cursor) != nil {
			return
		}
		again, err := q.encodeCursor("/x", json.RawMessage(q.position))
		var compact bytes.Buffer
		if err != nil || json.Compact(&compact, q.position) != nil {
			t.Fatalf("%q: opened to %q", cursor, q.position)
		}
		if bytes.Equal(compact.Bytes(), q.position) && !bytes.ContainsAny(q.position, "<>&\u2028\u2029\\") && again != cursor {
			t.Errorf("%q: sealed again it is %q", cursor, again)
		}
	})
}

// FuzzAuthorization: a token is accepted only from a single Bearer header.
func FuzzAuthorization(f *testing.F) {
	for _, s := range []string{"Bearer x", "bearer  x", "Basic x", "Bearer", "Bearer ", "Bearer a b", "Bearer a,b", "Bearer\tx"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		token, err := bearer(http.Header{"Authorization": {line}})
		if (token == "") != (err != nil) {
			t.Fatalf("%q: got %q, %v", line, token, err)
		}
		if err == nil && (!strings.EqualFold(line[:7], "Bearer ") || !strings.HasSuffix(line, token) || strings.ContainsAny(token, " ,\t")) {
			t.Errorf("%q: got %q", line, token)
		}
		if _, err := bearer(http.Header{"Authorization": {line, line}}); err == nil {
			t.Errorf("%q twice: taken", line)
		}
		key, err := idempotencyKey([]string{line})
		if err == nil && (len(key) < 1 || len(key) > 255 || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' })) {
			t.Errorf("idempotency key %q: got %q", line, key)
		}
	})
}
