package deskapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
)

// nowhere is a ResponseWriter that discards the answer.
type nowhere struct {
	header http.Header
	status int
}

func (w *nowhere) Header() http.Header         { return w.header }
func (w *nowhere) WriteHeader(status int)      { w.status = status }
func (w *nowhere) Write(b []byte) (int, error) { return len(b), nil }

func BenchmarkGetTicket(b *testing.B) {
	r := newRig(b)
	t := r.ticket("Flat tyre", "alex@example.com")
	token := r.key(r.ours, apikey.Permissions{Level: apikey.ReadWrite})
	req := httptest.NewRequest("GET", "/api/v1/tickets/"+t.text("id"), nil)
	req.Header.Set("Authorization", "Bearer "+token)
	b.ReportAllocs()
	for b.Loop() {
		w := nowhere{header: make(http.Header)}
		r.api.ServeHTTP(&w, req)
		if w.status != 200 {
			b.Fatalf("got %d", w.status)
		}
	}
}

// BenchmarkCreateTicket runs 16 clients, each for a different customer.
func BenchmarkCreateTicket(b *testing.B) {
	r := newRig(b)
	token := r.key(r.ours, apikey.Permissions{Level: apikey.ReadWrite})
	var clients atomic.Int64
	b.SetParallelism(max(1, 16/runtime.GOMAXPROCS(0)))
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		body := fmt.Sprintf(`{"subject":"Flat tyre","text":"It is flat.","customer":{"email":"c%d@example.com"}}`, clients.Add(1))
		for pb.Next() {
			req := httptest.NewRequest("POST", "/api/v1/tickets", strings.NewReader(body))
			req.Header.Set("Authorization", "Bearer "+token)
			req.Header.Set("Content-Type", "application/json")
			w := nowhere{header: make(http.Header)}
			r.api.ServeHTTP(&w, req)
			if w.status != 201 {
				b.Errorf("got %d", w.status)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tickets/s")
}
