package rest_test

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestExport(t *testing.T) {
	n := open(t)
	n.Do("POST", "/notes", `{"text":"=1+1","tags":["a","b"],"place":{"lat":-1.5,"label":"@home"},"metadata":{"k":"v"}}`)
	n.Do("POST", "/notes", `{"text":"a,\"b\"\r\nc","due_at":"2026-03-14T09:26:53Z"}`)
	for i, text := range []string{"+1", "-1", "@x", `\tx`, `\rx`, "plain", "'x"} {
		n.Do("POST", "/notes", fmt.Sprintf(`{"text":"%s","stars":%d}`, text, i%5))
	}
	before := number(t, n.Get("/key"), "X-RateLimit-Remaining")
	a := n.Get("/notes?sort=created_at", "Accept: text/csv")
	if a.Status != 200 || a.Header.Get("Content-Type") != "text/csv; charset=utf-8; header=present" || number(t, a, "X-RateLimit-Remaining") != before-1 {
		t.Fatalf("got %d %v", a.Status, a.Header)
	}
	const header = "id,object,text,kind,stars,due_at,tags,place.lat,place.label,done,author_id,metadata,created_at"
	if !strings.HasPrefix(a.Body, header+"\r\n") || strings.Count(a.Body, "\r\n") != 11 { // ten lines and one in a cell
		t.Errorf("got %q", a.Body)
	}
	rows, err := csv.NewReader(strings.NewReader(a.Body)).ReadAll()
	if err != nil || len(rows) != 10 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	var texts []string
	for _, row := range rows[1:] {
		texts = append(texts, row[2])
	}
	if want := []string{"'=1+1", "a,\"b\"\nc", "'+1", "'-1", "'@x", "'\tx", "'\rx", "plain", "'x"}; !slices.Equal(texts, want) {
		t.Errorf("got texts %q, want %q", texts, want)
	}
	if got := strings.Join(rows[1][4:12], "|"); got != `0||["a","b"]|-1.5|'@home|false|a1|{"k":"v"}` {
		t.Errorf("first row: got %s", got)
	}
	if got := strings.Join(rows[2][5:9], "|"); got != "2026-03-14T09:26:53.000Z|[]||" {
		t.Errorf("second row: got %s", got)
	}
	a = n.Get("/notes?sort=created_at&kind=plain&expand[]=author", "Accept: application/x-ndjson")
	lines := strings.Split(strings.TrimSuffix(a.Body, "\n"), "\n")
	if a.Status != 200 || a.Header.Get("Content-Type") != "application/x-ndjson" || len(lines) != 9 || !strings.Contains(lines[0], `"text":"=1+1"`) || !strings.Contains(lines[0], `"name":"Ada"`) {
		t.Errorf("NDJSON: got %d %s", a.Status, a.Body)
	}
	for query, parameter := range map[string]string{"?limit=5": "limit", "?cursor=x": "cursor", "?expand[]=author": "expand[]", "?x=1": "x"} {
		if a := n.Get("/notes"+query, "Accept: text/csv"); a.Status != 400 || a.Problem().Errors[0].Parameter != parameter {
			t.Errorf("%s: got %d %s", query, a.Status, a.Body)
		}
	}
}

func TestAccept(t *testing.T) {
	n := open(t)
	n.add(t, "one")
	const json, ndjson, csv = "application/json", "application/x-ndjson", "text/csv; charset=utf-8; header=present"
	for accept, want := range map[string]string{
		"*/*": json, "application/*": json, "text/*": csv, "text/csv": csv, "TEXT/CSV": csv, "application/x-ndjson": ndjson,
		"text/csv;q=0.5, application/json;q=0.4": csv, "text/csv;q=0.5, */*;q=0.9": json, "text/csv, application/json;q=0": csv,
		"*/*, application/json;q=0.1": ndjson, "text/html, */*;q=0.1": json, "": "application/problem+json",
		"image/png": "application/problem+json", "application/json;q=0": "application/problem+json", "text/csv;q=x": "application/problem+json",
	} {
		a := n.Get("/notes", "Accept: "+accept)
		if got := a.Header.Get("Content-Type"); got != want || (a.Status == 406) != (want == "application/problem+json") {
			t.Errorf("Accept %q: got %d as %s, want %s", accept, a.Status, got, want)
		}
	}
	if a := n.Get("/key", "Accept: text/csv"); a.Status != 406 || a.Code() != "not_acceptable" {
		t.Errorf("a record as CSV: got %d %s, want 406", a.Status, a.Body)
	}
}

// TestExportBreaks: a client can tell a failed export from a complete one.
func TestExportBreaks(t *testing.T) {
	n := open(t)
	for range 300 { // more than one piece
		n.Do("POST", "/notes", `{"text":"fine","metadata":{"k":"`+strings.Repeat("v", 400)+`"}}`)
	}
	n.add(t, "broken")
	for _, accept := range []string{"text/csv", "application/x-ndjson"} {
		a := n.Get("/notes?sort=created_at", "Accept: "+accept)
		if a.Status != 200 || a.Err != io.ErrUnexpectedEOF || !strings.Contains(a.Body, "fine") || strings.Contains(a.Body, "secret") {
			t.Errorf("%s: got %d, %d bytes, %v; want an unexpected end", accept, a.Status, len(a.Body), a.Err)
		}
	}
	if !strings.Contains(n.log(), "export broken off") {
		t.Errorf("not logged: %s", n.log())
	}
	// Before the first record it is an answer like any other.
	if a := n.Get("/notes", "Accept: text/csv"); a.Status != 500 || a.Code() != "internal_error" {
		t.Errorf("at once: got %d %s, want 500", a.Status, a.Body)
	}
	if a := n.Get("/notes?kind=loud&created_at[gt]=2100-01-01T00:00:00Z", "Accept: text/csv"); a.Status != 200 || strings.Count(a.Body, "\r\n") != 1 {
		t.Errorf("of nothing: got %d %q, want the header row", a.Status, a.Body)
	}
}

// TestExportPanics is the same of a handler that does not return.
func TestExportPanics(t *testing.T) {
	n := open(t)
	for range 100 { // more than one piece
		n.Do("POST", "/notes", `{"text":"fine","metadata":{"k":"`+strings.Repeat("v", 400)+`"}}`)
	}
	n.add(t, "fatal")
	for _, accept := range []string{"text/csv", "application/x-ndjson"} {
		if a := n.Get("/notes?sort=created_at", "Accept: "+accept); a.Err != io.ErrUnexpectedEOF || strings.Contains(a.Body, "internal_error") {
			t.Errorf("%s midway: got %d %q, want an unexpected end", accept, a.Status, a.Body)
		}
		if a := n.Get("/notes", "Accept: "+accept); a.Status != 500 || a.Code() != "internal_error" || strings.Contains(a.Body, "secret") {
			t.Errorf("%s at once: got %d %s, want 500", accept, a.Status, a.Body)
		}
	}
}
