package webhook_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// The benchmarks count deliveries. BenchmarkBareClient is the reference: a client that posts
// bodies of the same size to the same receivers, with the same concurrency, and stores nothing.

// benchReceiver answers 200 and closes full after n requests.
func benchReceiver(b *testing.B, n int64) (url string, full <-chan struct{}) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	var got atomic.Int64
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if got.Add(1) == n {
			close(done)
		}
	})}
	go srv.Serve(l)
	b.Cleanup(func() { srv.Close() })
	return "http://" + l.Addr().String() + "/", done
}

func benchEvent(i int) event.Event {
	customer := &event.Customer{ID: "0190c0de-0000-7000-8000-000000000001", Name: "Ada Lovelace", Email: "ada@example.com", Phone: "+4915112345678"}
	return event.Event{OrganizationID: org, Name: event.MessageCreated, Data: event.Data{
		Ticket: &event.Ticket{
			ID: "0190c0de-0000-7000-8000-000000000002", Number: int64(i), Subject: "The bike does not unlock", Status: "open",
			Priority: "normal", Channel: "sms", Customer: customer, URL: "https://help.example.com/tickets/" + strconv.Itoa(i),
		},
		Message: &event.Message{
			ID: "0190c0de-0000-7000-8000-000000000003", TicketID: "0190c0de-0000-7000-8000-000000000002",
			ConversationID: "0190c0de-0000-7000-8000-000000000004", Direction: "inbound", Channel: "sms", Kind: "reply",
			Author: event.Author{Type: "customer", ID: customer.ID, Name: customer.Name},
			Text:   "Hello, I stand in front of bike 4711 and it does not unlock.", ExternalID: "SM0001",
		},
	}}
}

func BenchmarkBareClientOneReceiver(b *testing.B)  { benchBare(b, 1) }
func BenchmarkBareClientTenReceivers(b *testing.B) { benchBare(b, 10) }

func benchBare(b *testing.B, receivers int) {
	var urls []string
	for range receivers {
		url, _ := benchReceiver(b, -1)
		urls = append(urls, url)
	}
	client := &http.Client{Transport: netguard.NewTransport(netguard.Guard{AllowPrivate: true})}
	body := bytes.Repeat([]byte("x"), 1100)
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range 16 * receivers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				res, err := client.Post(urls[i%receivers], "application/json", bytes.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		})
	}
	wg.Wait()
	perSecond(b)
}

// benchDeliveries emits events for deliveries to the given number of receivers. With backlog
// all are written before the clock and the dispatcher start, else during the deliveries.
// Ordered receivers get one at a time.
func benchDeliveries(b *testing.B, receivers int, backlog, ordered bool) {
	d := dbtest.New(b)
	ctx := context.Background()
	q := queue.Open(d, queue.Config{})
	log := new(event.Log)
	s := webhook.Open(webhook.Config{
		DB: d, Queue: q, Events: log, Box: seal.New(seal.NewKey()), AllowPrivate: true,
	})
	events := (b.N + receivers - 1) / receivers
	var dones []<-chan struct{}
	for range receivers {
		url, done := benchReceiver(b, int64(events))
		dones = append(dones, done)
		if _, err := s.Create(ctx, org, webhook.New{URL: url, Events: []string{"*"}, Secret: new("a secret of some length"), Ordered: ordered}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	emit := func() {
		const writers = 64
		var next atomic.Int64
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for i := next.Add(1); i <= int64(events); i = next.Add(1) {
					if err := d.Write(ctx, func(tx *db.Tx) error { return log.EmitTx(ctx, tx, benchEvent(int(i))) }); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	if backlog {
		emit()
	}
	b.ResetTimer()
	if err := q.Start(ctx); err != nil {
		b.Fatal(err)
	}
	if !backlog {
		emit()
	}
	for _, done := range dones {
		<-done
	}
	b.StopTimer()
	q.Stop(ctx)
	perSecond(b)
	var left int
	if err := d.QueryRow(ctx, "SELECT count(*) FROM deliveries WHERE state <> 2").Scan(&left); err != nil || left != 0 {
		b.Errorf("deliveries not recorded as delivered: %d, %v", left, err)
	}
}

func BenchmarkBacklogOneReceiver(b *testing.B)    { benchDeliveries(b, 1, true, false) }
func BenchmarkBacklogTenReceivers(b *testing.B)   { benchDeliveries(b, 10, true, false) }
func BenchmarkSustainedOneReceiver(b *testing.B)  { benchDeliveries(b, 1, false, false) }
func BenchmarkSustainedTenReceivers(b *testing.B) { benchDeliveries(b, 10, false, false) }
func BenchmarkOrderedOneReceiver(b *testing.B)    { benchDeliveries(b, 1, true, true) }
func BenchmarkOrderedTenReceivers(b *testing.B)   { benchDeliveries(b, 10, true, true) }

func perSecond(b *testing.B) {
	b.Helper()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
}
