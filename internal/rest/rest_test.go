package rest_test

import (
	"testing"
)

func TestRecord(t *testing.T) {
	n := open(t)
	made := n.Do("POST", "/notes", `{"text":"Buy tyres","metadata":{"a":"1"}}`)
	t.Log(made.Status, made.Body, made.Header)
	a := n.Get("/notes?limit=1&kind=plain,loud&stars[gte]=0&created_at%5Bgte%5D=2026-01-01T00:00:00Z&expand[]=author")
	t.Log(a.Status, a.Body, a.Header)
	a = n.Get("/key")
	t.Log(a.Status, a.Body, a.Header)
	a = n.Get("/openapi.json")
	t.Log(a.Status, a.Body, a.Header)
}
