package desk_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/businesshours"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
)

// benchTickets names the variable with the number of existing tickets.
const benchTickets = "KICKSTAND_BENCH_TICKETS"

// BenchmarkIntake measures texts per second with all their writes: from new
// numbers, from numbers of recent tickets, from any known number, and from new
// numbers with SLA targets.
func BenchmarkIntake(b *testing.B) {
	before := 0
	if v := os.Getenv(benchTickets); v != "" {
		before, _ = strconv.Atoi(v)
	}
	f := newFixture(b)
	start := time.Now()
	const batch = 1000
	for n := 0; n < before; n += batch {
		err := f.db.Write(b.Context(), func(tx *db.Tx) error {
			for i := n; i < n+batch; i++ {
				if _, err := f.desk.IngestTx(b.Context(), tx, benchText(i)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	if before > 0 {
		b.Logf("%d tickets made in %v", before, time.Since(start))
	}
	next := max(before, 1)
	run := func(name string, number func(i int) int) {
		b.Run(name, func(b *testing.B) {
			const callers = 64
			work := make(chan desk.InboundEvent, callers)
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for in := range work {
						if err := f.db.Write(context.Background(), func(tx *db.Tx) error {
							_, err := f.desk.IngestTx(context.Background(), tx, in)
							return err
						}); err != nil {
							b.Error(err)
						}
					}
				})
			}
			i := 0
			for b.Loop() {
				work <- benchText(number(i))
				i++
			}
			close(work)
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "texts/s")
		})
	}
	run("new", func(int) int { next++; return next - 1 })
	run("recent", func(int) int { return next - 1 - rand.IntN(min(next, 1000)) })
	run("any", func(int) int { return rand.IntN(next) })
	f.setPolicy(desk.SLAPolicy{
		Priority: desk.PriorityNormal, FirstResponseMinutes: 30, ResolutionMinutes: 480,
		Hours: &businesshours.Hours{TimeZone: "Europe/Berlin", Weekly: week(b, "mon-fri 09:00-17:00, sat 10:00-14:00"), Holidays: []string{"2026-12-25"}},
	})
	run("promised", func(int) int { next++; return next - 1 })
}

// benchText is a text from the n-th number, in random order.
func benchText(n int) desk.InboundEvent {
	number := fmt.Sprintf("+49151%08d", (n*7919+13)%100_000_000)
	return desk.InboundEvent{
		OrganizationID: orgA, ConnectionID: smsA, Channel: "sms", ReceivedAt: time.Now(),
		Event: channel.Event{Message: &channel.Message{
			ExternalID: fmt.Sprintf("SM%016x%016x", rand.Uint64(), rand.Uint64()), ThreadKey: number,
			From: channel.Party{Phone: number},
			Text: "Hello, the car in front of the station does not unlock. I am in the app and it says that it is mine.",
		}},
	}
}

// BenchmarkCreateTicket measures tickets per second created by 16 clients through
// the API: with a text of a known customer, of a new one, and without content.
func BenchmarkCreateTicket(b *testing.B) {
	f := newFixture(b)
	ana, err := f.createCustomer(orgA, desk.NewCustomer{Name: "Ana", Emails: []string{"ana@c.example"}})
	if err != nil {
		b.Fatal(err)
	}
	says := f.compose(desk.Draft{Text: "Hello, the car in front of the station does not unlock. I am in the app and it says that it is mine."})
	for _, c := range []struct {
		name   string
		ticket func(i int) desk.NewTicket
	}{
		{"known", func(int) desk.NewTicket { return desk.NewTicket{CustomerID: ana.ID, Content: says} }},
		{"new", func(i int) desk.NewTicket {
			return desk.NewTicket{Customer: &desk.Person{Email: fmt.Sprintf("%d-%d@c.example", i, rand.Uint64())}, Content: says}
		}},
		{"empty", func(int) desk.NewTicket { return desk.NewTicket{CustomerID: ana.ID} }},
	} {
		b.Run(c.name, func(b *testing.B) {
			work := make(chan desk.NewTicket)
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					for n := range work {
						n.Subject = "The car does not unlock"
						if _, err := f.create(orgA, n); err != nil {
							b.Error(err)
						}
					}
				})
			}
			i := 0
			for b.Loop() {
				work <- c.ticket(i)
				i++
			}
			close(work)
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tickets/s")
		})
	}
}
