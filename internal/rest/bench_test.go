package rest_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// sink is a ResponseWriter that stores nothing, so that only the handler is measured.
type sink struct {
	h      http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.h }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkDocument is the cost of records that are encoded already: of one read
// with a key, and of each of the 100,000 of an export.
func BenchmarkDocument(b *testing.B) {
	g := openGarageOn(b, dbtest.NewSQLite(b))
	run := func(name, path, accept string, records int) {
		b.Run(name, func(b *testing.B) {
			r, err := http.NewRequestWithContext(b.Context(), "GET", "http://api.example.com/v1"+path, nil)
			if err != nil {
				b.Fatal(err)
			}
			r.RemoteAddr = "198.51.100.1:4000"
			r.Header.Set("Authorization", "Bearer "+g.Token)
			r.Header.Set("Accept", accept)
			b.ReportAllocs()
			for b.Loop() {
				w := &sink{h: make(http.Header, 16), status: 200}
				g.api.ServeHTTP(w, r)
				if w.status != 200 {
					b.Fatalf("got %d", w.status)
				}
			}
			if records > 1 {
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(records), "ns/record")
			}
		})
	}
	run("get", "/fixed", "application/json", 1)
	run("ndjson", "/parked", "application/x-ndjson", 100_000)
	run("csv", "/parked", "text/csv", 100_000)
	run("geojson", "/parked", "application/geo+json", 100_000)
}

// BenchmarkGet is the fixed cost of one record read with a key: everything but
// the network. "bare" is a handler that only encodes the same record.
func BenchmarkGet(b *testing.B) {
	n := openOn(b, dbtest.NewSQLite(b))
	n.planLimit = 1 << 40
	_, token := n.make(b, apikey.New{OrganizationID: ours, Permissions: apikey.Permissions{Level: apikey.ReadOnly}})
	record := n.add(b, "one")
	request := func(path string) *http.Request {
		r, err := http.NewRequestWithContext(b.Context(), "GET", "http://api.example.com"+path, nil)
		if err != nil {
			b.Fatal(err)
		}
		r.RemoteAddr = "198.51.100.1:4000"
		r.Header.Set("Authorization", "Bearer "+token)
		return r
	}
	run := func(b *testing.B, h http.Handler, r *http.Request) {
		b.ReportAllocs()
		for b.Loop() {
			w := &sink{h: make(http.Header, 16), status: 200}
			h.ServeHTTP(w, r)
			if w.status != 200 {
				b.Fatalf("got %d", w.status)
			}
		}
	}
	b.Run("bare", func(b *testing.B) {
		run(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, err := json.Marshal(record)
			if err != nil {
				b.Fatal(err)
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(text)))
			w.Write(text)
		}), request("/x"))
	})
	b.Run("authenticate", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := n.keys.Authenticate(b.Context(), apikey.Request{Token: token, Service: apikey.Helpdesk, Environment: apikey.Live}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("fixed", func(b *testing.B) { run(b, n.api, request("/api/v1/fixed")) })
	b.Run("stored", func(b *testing.B) { run(b, n.api, request("/api/v1/notes/"+record.ID)) })
}
