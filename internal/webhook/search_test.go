package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// many is how many deliveries there are to search.
const many = 200_000

func hookID(i int) string { return fmt.Sprintf("00000000-0000-7000-8000-%012d", 100000000000+i) }

// deliveryID returns the id of the n-th delivery. Only the first ten hexadecimal digits, of the
// time, are used: both engines can write them.
func deliveryID(n int) string {
	digits := fmt.Sprintf("%06d", n)
	return "200000" + digits[:2] + "-" + digits[2:] + "-7000-8000-100000000000"
}

func deliveryNumber(id string) int {
	n, _ := strconv.Atoi(id[6:8] + id[9:13])
	return n
}

const firstMade = 0x200000000000 // milliseconds

// createdAt returns the creation time of the n-th delivery.
func createdAt(n int) time.Time {
	after, _ := strconv.ParseInt(fmt.Sprint(n), 16, 64)
	return time.UnixMilli(firstMade + after)
}

// fillHistory writes deliveries number 1 to many in turn to 20 webhooks, of which
// the last is another organization's. Every 5000th has failed, every 5001st is
// retried, every 5003rd was dropped, every 20001st waits. Every tenth event is of
// ticket "busy", every 5000th of ticket "quiet". Every 2500th delivery is a replay
// of the event of the one 300 before.
func fillHistory(t *testing.T, d *db.DB) {
	t.Helper()
	write := func(query string, args ...any) {
		t.Helper()
		if err := d.Write(t.Context(), func(tx *db.Tx) error { _, err := tx.Exec(t.Context(), query, args...); return err }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		owner := "ours"
		if i == 19 {
			owner = "theirs"
		}
		write(`INSERT INTO webhooks (id, organization_id, url, events, state, payload_form, retry_schedule, created_at, updated_at)
			VALUES ($1, $2, 'https://receiver.example.com/', '*', 'enabled', 'b', 'two', 0, 0)`, hookID(i), owner)
	}
	const numbers = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) `
	write(numbers+`INSERT INTO events (id, organization_id, name, ticket_id, data, created_at)
		SELECT '10000000-0000-7000-8000-' || (100000000000 + i), 'ours', 'ticket.created',
		CASE WHEN i % 10 = 0 THEN CASE WHEN i % 5000 = 0 THEN 'quiet' ELSE 'busy' END ELSE 'ticket ' || i END, '{}', 0 FROM n`, many)
	write(numbers+`INSERT INTO deliveries (webhook_id, id, event_id, event, state, created_at, next_at, attempts)
		SELECT '00000000-0000-7000-8000-' || (100000000000 + i % 20),
		'200000' || substr('' || (1000000 + i), 2, 2) || '-' || substr('' || (1000000 + i), 4) || '-7000-8000-100000000000',
		'10000000-0000-7000-8000-' || (100000000000 + CASE WHEN i % 2500 = 0 AND i % 5000 > 0 THEN i - 300 ELSE i END),
		CASE WHEN i % 7 = 0 THEN 'sla.warning' ELSE 'ticket.created' END,
		CASE WHEN i % 5000 = 0 THEN 3 WHEN i % 5001 = 0 THEN 1 WHEN i % 5003 = 0 THEN 4 WHEN i % 20001 = 0 THEN 0 ELSE 2 END,
		CAST($2 AS BIGINT) + 1000 * (i % 10 + i / 10 % 10 * 16 + i / 100 % 10 * 256 + i / 1000 % 10 * 4096 + i / 10000 % 10 * 65536 + i / 100000 * 1048576),
		CASE WHEN i % 5001 = 0 THEN i END, 0 FROM n`, many, int64(firstMade*1000))
	write("ANALYZE")
}

type nobody struct{}

func (nobody) AdminAddresses(context.Context, db.Querier, string) ([]mail.Address, error) {
	return nil, nil
}

func (nobody) EnqueueMailTx(context.Context, *db.Tx, mail.Message) error { return nil }

func eachEngine(t *testing.T, run func(t *testing.T, d *db.DB)) {
	t.Run("sqlite", func(t *testing.T) { run(t, dbtest.NewSQLite(t)) })
	t.Run("postgres", func(t *testing.T) {
		if os.Getenv(dbtest.Variable) == "" {
			t.Skip(dbtest.Variable + " is not set")
		}
		run(t, dbtest.New(t))
	})
}

// With any number of deliveries, a search uses indexes and reads no more deliveries than its
// budget.
func TestSearch(t *testing.T) {
	if raceDetector {
		t.Skip("it takes minutes, and runs in one goroutine")
	}
	eachEngine(t, func(t *testing.T, d *db.DB) {
		fillHistory(t, d)
		s := Open(Config{DB: d, Queue: queue.Open(d, queue.Config{}), Events: new(event.Log), Box: seal.New(seal.NewKey()), Admins: nobody{}, Mailer: nobody{}})
		t.Run("plans", func(t *testing.T) { testSearchPlans(t, d) })
		t.Run("found", func(t *testing.T) { testFound(t, s) })
		t.Run("refused", func(t *testing.T) { testSearchRefused(t, s) })
	})
}

func testFound(t *testing.T, s *Service) {
	state := func(n int) DeliveryState {
		switch {
		case n%5000 == 0:
			return DeliveryFailed
		case n%5001 == 0:
			return Retrying
		case n%5003 == 0:
			return Dropped
		case n%20001 == 0:
			return Pending
		}
		return Delivered
	}
	name := func(n int) event.Name {
		if n%7 == 0 {
			return event.SLAWarning
		}
		return event.TicketCreated
	}
	eventOf := func(n int) int {
		if n%2500 == 0 && n%5000 > 0 {
			return n - 300
		}
		return n
	}
	quiet := func(n int) bool { return eventOf(n)%5000 == 0 }
	busy := func(n int) bool { return eventOf(n)%10 == 0 && !quiet(n) }
	for _, test := range []struct {
		name  string
		query Query
		want  func(n int) bool
		calls int // at most
	}{
		{"all, the newest", Query{Limit: 500}, func(n int) bool { return n > many-3000 }, 7},
		{"of one webhook", Query{WebhookID: hookID(3), Limit: 500}, func(n int) bool { return n%20 == 3 && n > many-20_000 }, 4},
		{"failed", Query{States: []DeliveryState{DeliveryFailed}, Limit: 20}, func(n int) bool { return state(n) == DeliveryFailed }, 3},
		{"failed and dropped of one", Query{WebhookID: hookID(0), States: []DeliveryState{Dropped, DeliveryFailed, Dropped}},
			func(n int) bool { return n%20 == 0 && (state(n) == DeliveryFailed || state(n) == Dropped) }, 2},
		{"waiting", Query{States: []DeliveryState{Pending, Retrying}, Limit: 7},
			func(n int) bool { return state(n) == Pending || state(n) == Retrying }, 9},
		{"delivered or failed of one event", Query{States: []DeliveryState{Delivered, DeliveryFailed}, Events: []event.Name{event.SLAWarning}, Limit: 500},
			func(n int) bool { return name(n) == event.SLAWarning && state(n) != Retrying && n > many-20_000 }, 7},
		{"rare among all", Query{Events: []event.Name{event.SLAWarning}, States: []DeliveryState{Delivered, Dropped, Retrying}, From: createdAt(1), To: createdAt(60_000)},
			func(n int) bool {
				return n < 60_000 && name(n) == event.SLAWarning && state(n) != DeliveryFailed && state(n) != Pending
			}, 170},
		{"failed of one event", Query{States: []DeliveryState{DeliveryFailed}, Events: []event.Name{event.SLAWarning}},
			func(n int) bool { return state(n) == DeliveryFailed && name(n) == event.SLAWarning }, 2},
		{"of a time", Query{From: createdAt(150_000), To: createdAt(150_100)}, func(n int) bool { return n >= 150_000 && n < 150_100 }, 11}, // reads the ids of clockSlack before and after
		{"of an event", Query{EventID: "10000000-0000-7000-8000-100000002200"}, func(n int) bool { return n == 2200 || n == 2500 }, 1},
		{"of an event, in a state", Query{EventID: "10000000-0000-7000-8000-100000005000", States: []DeliveryState{DeliveryFailed}}, func(n int) bool { return n == 5000 }, 1},
		{"of an event of another ticket", Query{EventID: "10000000-0000-7000-8000-100000002200", TicketID: "quiet"}, func(int) bool { return false }, 1},
		{"of an event of the ticket", Query{EventID: "10000000-0000-7000-8000-100000002200", TicketID: "busy"}, func(n int) bool { return n == 2200 || n == 2500 }, 1},
		{"of a ticket", Query{TicketID: "quiet", Limit: 16}, quiet, 4},
		{"of a ticket, in a time", Query{TicketID: "quiet", From: createdAt(50_000), To: createdAt(100_000)}, func(n int) bool { return quiet(n) && n >= 50_000 && n < 100_000 }, 1},
		{"of a ticket with many events", Query{TicketID: "busy", Limit: 500}, func(n int) bool { return busy(n) && n > many-50_000 }, 12},
		{"of no ticket", Query{TicketID: "none"}, func(int) bool { return false }, 1},
		{"of no event", Query{EventID: "none"}, func(int) bool { return false }, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var want []int
			least := many
			for n := many; n > 0; n-- {
				if n%20 != 19 && test.want(n) {
					want = append(want, n)
					least = n
				}
			}
			q := test.query
			var got []int
			calls := 0
			for {
				page, err := s.Search(t.Context(), "ours", q)
				if err != nil {
					t.Fatal(err)
				}
				calls++
				if len(page.Deliveries) > cmp.Or(q.Limit, defaultPage) {
					t.Errorf("got a page of %d", len(page.Deliveries))
				}
				for _, d := range page.Deliveries {
					if n := deliveryNumber(d.ID); n >= least || len(want) == 0 {
						got = append(got, n)
					}
				}
				if page.Next == "" || page.Next < deliveryID(least) && len(want) > 0 {
					break
				}
				if q.Before != "" && page.Next >= q.Before {
					t.Fatalf("the cursor went from %s to %s", q.Before, page.Next)
				}
				q.Before = page.Next
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %d deliveries, %v …, want %d, %v …", len(got), got[:min(5, len(got))], len(want), want[:min(5, len(want))])
			}
			if calls > test.calls {
				t.Errorf("took %d calls, want at most %d", calls, test.calls)
			}
		})
	}
	// A page without results has a Next.
	if page, err := s.Search(t.Context(), "ours", Query{Events: []event.Name{event.CustomerUpdated}}); err != nil || len(page.Deliveries) != 0 || page.Next == "" ||
		many-deliveryNumber(page.Next) > maxScan*20/19+1 {
		t.Errorf("got %+v, %v, want nothing yet, after %d of %d", page, err, maxScan, many)
	}
	if page, err := s.Search(t.Context(), "nobody's", Query{}); err != nil || len(page.Deliveries) != 0 || page.Next != "" {
		t.Errorf("an organization without webhooks: got %+v, %v", page, err)
	}
}

func testSearchRefused(t *testing.T, s *Service) {
	now := time.Now()
	for want, q := range map[string]Query{
		"event is not the name of an event":               {Events: []event.Name{"ticket.exploded"}},
		"ticketNumber must not be combined with ticketId": {TicketID: "a", TicketNumber: 1},
		"ticketNumber must be positive":                   {TicketNumber: -1},
		"states.1 is not the state of a delivery":         {States: []DeliveryState{Pending, 7}},
		"to must be after from":                           {From: now, To: now},
		"before is not the end of a page":                 {Before: "~"},
		"limit must be from 1 to 500":                     {Limit: 501},
	} {
		_, err := s.Search(t.Context(), "ours", q)
		p, ok := errors.AsType[*problem.Error](err)
		if !ok || p.Kind != problem.Invalid || len(p.Issues) != 1 || p.Issues[0].Path+" "+p.Issues[0].Message != want {
			t.Errorf("%+v: got %v, want %s", q, err, want)
		}
	}
	for _, q := range []Query{{WebhookID: hookID(19)}, {WebhookID: "none"}, {TicketNumber: 4}} {
		if _, err := s.Search(t.Context(), "ours", q); problem.Of(err) != problem.NotFound {
			t.Errorf("%+v: got %v, want not found", q, err)
		}
	}
}

func testSearchPlans(t *testing.T, d *db.DB) {
	type plan struct {
		name, query string
		args        []any
		index       string // the only one on deliveries
	}
	hooks := make([]string, 19)
	for i := range hooks {
		hooks[i] = hookID(i)
	}
	lower, upper := deliveryID(50_000), deliveryID(150_000)
	indexes := map[DeliveryState]string{
		everything: "primary", Pending: "deliveries_waiting", Retrying: "deliveries_waiting", DeliveryFailed: "deliveries_lost", Dropped: "deliveries_lost",
	}
	var plans []plan
	for state, index := range indexes {
		plans = append(plans,
			plan{fmt.Sprint("heads, ", state), sqlHeads(condition(state)), []any{hooks, upper, lower}, index},
			plan{fmt.Sprint("chunk, ", state), sqlChunk(condition(state)), []any{hookID(3), upper, lower, 50}, index},
		)
	}
	plans = append(plans,
		plan{"keys", sqlKeys, []any{[]string{"10000000-0000-7000-8000-100000000010", "10000000-0000-7000-8000-100000000020"}, upper, lower, maxScan}, "deliveries_event"},
		plan{"events of a ticket", sqlTicketEvents, []any{"quiet", maxTicketEvents}, "events_ticket"},
		plan{"which are of a ticket", sqlOfTicket, []any{[]string{"10000000-0000-7000-8000-100000000010"}, "busy"}, "events primary"},
		plan{"by keys", selectCandidate + " WHERE webhook_id = $1 AND id = ANY($2)", []any{hookID(3), hooks}, "primary"},
		plan{"one", sqlFindDelivery, []any{"ours", upper}, "primary"},
		plan{"untried", sqlUntried, []any{hookID(3), 50}, "deliveries_waiting"},
		plan{"retrying", sqlRetrying, []any{hookID(3), 50}, "deliveries_waiting"},
		plan{"retrying soon", sqlRetryingSoon, []any{hookID(3), 50}, "deliveries_retrying"},
		plan{"range", sqlRange("TRUE"), []any{hookID(3), lower, upper, upper, replayPage}, "primary"},
		plan{"range of those that failed", sqlLostRange, []any{hookID(3), lower, upper, upper, replayPage}, "deliveries_lost"},
	)
	explain, dest := "EXPLAIN QUERY PLAN ", make([]any, 4)
	if d.Postgres() {
		explain, dest = "EXPLAIN ", make([]any, 1)
	}
	for _, p := range plans {
		t.Run(p.name, func(t *testing.T) {
			var line string
			for i := range dest {
				dest[i] = new(any)
			}
			dest[len(dest)-1] = &line
			var lines []string
			err := (&Service{db: d}).read(t.Context(), func(tx *db.Tx) (err error) {
				lines, err = db.All(t.Context(), tx, func(row db.Row) (string, error) {
					err := row.Scan(dest...)
					return line, err
				}, explain+p.query, p.args...)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(lines, "\n")
			used := make(map[string]bool)
			for _, m := range regexp.MustCompile(`(deliveries|events)_(event|lost|retrying|waiting|pkey|ticket)\b|USING PRIMARY KEY \(webhook_id=\? AND id|sqlite_autoindex_events`).FindAllString(text, -1) {
				if m == "events_pkey" || strings.HasPrefix(m, "sqlite") {
					m = "events primary"
				}
				if m == "deliveries_pkey" || strings.HasPrefix(m, "USING") {
					m = "primary"
				}
				used[m] = true
			}
			if got := slices.Sorted(maps.Keys(used)); !slices.Equal(got, []string{p.index}) {
				t.Errorf("got indexes %q, want %q:\n%s", got, p.index, text)
			}
			bad := []string{"Seq Scan on deliveries", "Seq Scan on events", "SCAN deliveries", "SCAN d ", "SCAN events"}
			if p.index != "deliveries_event" && p.index != "deliveries_lost" {
				bad = append(bad, "TEMP B-TREE", "Sort")
			}
			for _, bad := range bad {
				if strings.Contains(strings.ReplaceAll(text, "\n", " \n")+" ", bad) {
					t.Errorf("the plan has %q:\n%s", bad, text)
				}
			}
		})
	}
}
