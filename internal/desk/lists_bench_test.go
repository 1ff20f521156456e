package desk_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
)

// The benchmark's organization.
const (
	benchAgents    = 50
	benchCustomers = 5 // tickets of each
)

var (
	benchStart    = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	benchStep     = 30 * time.Second // between tickets: a year has a million
	benchChannels = []string{"email", "email", "email", "sms", "sms", "voice", "chat", "api"}
	benchTags     = strings.Fields("brake lock refund app battery wheel bell light seat tyre chain helmet map price account crash theft noise water paint")
)

// benchWord is one of 20,000 words; the n-th is about 1/n as frequent as the first.
func benchWord(r *rand.Rand) string {
	n := int(float64(20_000) * r.Float64() * r.Float64() * r.Float64() * r.Float64())
	return "w" + strconv.FormatInt(int64(n)+100, 36)
}

func benchText20(r *rand.Rand) string {
	words := make([]string, 20)
	for i := range words {
		words[i] = benchWord(r)
	}
	return strings.Join(words, " ")
}

func benchAgent(i int) string { return fmt.Sprintf("0190c0de-0000-7000-8000-0000000a%04d", i) }

func benchCustomer(i int) string { return fmt.Sprintf("0190c0de-0000-7000-8000-00%010d", i) }

// fill creates tickets of one organization as a busy rental company has them, and
// indexes them: a subject and a message each.
func (f *fixture) fill(tickets int) {
	f.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	ctx := context.Background()
	insert := func(tx *db.Tx, into string, list [][]any) {
		f.Helper()
		for part := range slices.Chunk(list, 200) {
			var b strings.Builder
			var args []any
			b.WriteString("INSERT INTO " + into + " VALUES ")
			for i, row := range part {
				for j, v := range row {
					args = append(args, v)
					b.WriteString([]string{", ", "("}[min(1, max(0, 1-j))] + "$" + strconv.Itoa(len(args)))
				}
				b.WriteString(")")
				if i < len(part)-1 {
					b.WriteString(", ")
				}
			}
			if _, err := tx.Exec(ctx, b.String(), args...); err != nil {
				f.Fatalf("%s: %v", into, err)
			}
		}
	}
	const batch = 10_000
	for n := 0; n < tickets; n += batch {
		var customers, made, tags, docs, words [][]any
		doc := func(number, place int64, text string) {
			doc, value := f.desk.Document(1, number, place, text)
			if f.db.Postgres() {
				docs = append(docs, []any{doc, value})
				return
			}
			docs, words = append(docs, []any{doc}), append(words, []any{doc, value})
		}
		for i := n; i < n+batch; i++ {
			at := benchStart.Add(time.Duration(i) * benchStep)
			id := benchTicket(i)
			if i%benchCustomers == 0 {
				customers = append(customers, []any{benchCustomer(i / benchCustomers), orgA, fmt.Sprintf("Customer %d", (i*7919)%tickets), fmt.Sprintf("c%d@example.com", i), "", at.UnixMicro(), at.UnixMicro()})
			}
			age := tickets - i
			status, resolved := desk.StatusClosed, any(at.Add(time.Duration(r.IntN(100))*time.Hour).UnixMicro())
			switch {
			case age < 20_000 && r.IntN(5) == 0 || r.IntN(500) == 0:
				status, resolved = []desk.Status{desk.StatusOpen, desk.StatusPending, desk.StatusOpen, desk.StatusOnHold}[r.IntN(4)], nil
			case age < 30_000:
				status = desk.StatusResolved
			}
			priority := desk.PriorityNormal
			switch x := r.IntN(100); {
			case x < 10:
				priority = desk.PriorityHigh
			case x < 15:
				priority = desk.PriorityLow
			case x < 17:
				priority = desk.PriorityUrgent
			}
			var assignee any = benchAgent(r.IntN(benchAgents))
			if r.IntN(20) == 0 {
				assignee = nil
			}
			var list []string
			for k, tag := range benchTags {
				if r.IntN(3*(k+1)*(k+1)) == 0 {
					list = append(list, tag)
					tags = append(tags, []any{orgA, tag, int64(i + 1), id})
				}
			}
			subject := benchText20(r)[:40]
			made = append(made, []any{
				id, orgA, int64(i + 1), subject, string(status), string(priority), benchChannels[r.IntN(len(benchChannels))],
				benchCustomer(r.IntN(i/benchCustomers + 1)), assignee, db.JSON(list), at.UnixMicro(),
				at.Add(time.Duration(r.IntN(int(min(age, 100_000)))) * benchStep).UnixMicro(), at.Add(time.Duration(r.IntN(300)) * time.Minute).UnixMicro(), resolved,
			})
			doc(int64(i+1), 0, subject)
			doc(int64(i+1), 1, benchText20(r))
		}
		f.write("batch", func(tx *db.Tx) error {
			insert(tx, "customers (id, organization_id, name, email, phone, created_at, updated_at)", customers)
			insert(tx, "tickets (id, organization_id, number, subject, status, priority, channel, customer_id, assignee_id, tags, created_at, updated_at, first_responded_at, resolved_at)", made)
			insert(tx, "ticket_tags (organization_id, tag, number, ticket_id)", tags)
			if f.db.Postgres() {
				insert(tx, "search_docs (doc, words)", docs)
			} else {
				insert(tx, "search_docs (doc)", docs)
				insert(tx, "ticket_words (rowid, words)", words)
			}
			return nil
		})
	}
	f.write("numbers", func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO search_organizations (organization_id, code) VALUES ($1, 1)", orgA); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO ticket_numbers (organization_id, last, last_at) VALUES ($1, $2, $3)", orgA, int64(tickets), benchStart.Add(time.Duration(tickets)*benchStep).UnixMicro())
		return err
	})
}

// benchTicket is the id of the i-th ticket, in order of creation.
func benchTicket(i int) string { return fmt.Sprintf("0190c0de-%04x-7000-8000-%012x", i>>16, i) }

// benchData names the variable with the URL of a database to keep the benchmark's
// tickets; without it, they are temporary.
const benchData = "KICKSTAND_BENCH_DATA"

// filled is a fixture with tickets, created unless they exist.
func filled(b *testing.B) (f *fixture, tickets int) {
	tickets, _ = strconv.Atoi(os.Getenv(benchTickets))
	tickets = max(tickets, 10_000)
	if url := os.Getenv(benchData); url != "" {
		d := dbtest.Open(b, url)
		if _, err := d.Migrate(b.Context(), db.Helpdesk); err != nil {
			b.Fatal(err)
		}
		f = fixtureOn(b, d)
	} else {
		f = newFixture(b)
	}
	if has := f.count("ticket_numbers"); has == 0 {
		began, used := time.Now(), cpu()
		f.fill(tickets)
		b.Logf("%d tickets made in %v, processor %v", tickets, time.Since(began), cpu()-used)
	}
	return f, tickets
}

// cpu is the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (f *fixture) write(what string, fn func(tx *db.Tx) error) {
	f.Helper()
	if err := f.db.Write(context.Background(), fn); err != nil {
		f.Fatalf("%s: %v", what, err)
	}
}

// BenchmarkLists prints the duration of lists and searches over
// KICKSTAND_BENCH_TICKETS tickets: the median and the maximum over some pages, the
// first and random ones; wall time and processor time of this process, which
// excludes PostgreSQL. KICKSTAND_BENCH_ONLY selects names by pattern.
func BenchmarkLists(b *testing.B) {
	f, tickets := filled(b)
	span := time.Duration(tickets) * benchStep
	var filters []struct {
		name  string
		query desk.TicketQuery
	}
	add := func(name string, q desk.TicketQuery) {
		filters = append(filters, struct {
			name  string
			query desk.TicketQuery
		}{name, q})
	}
	at := func(part float64) *time.Time { return new(benchStart.Add(time.Duration(part * float64(span)))) }
	open, closed := []desk.Status{desk.StatusOpen}, []desk.Status{desk.StatusClosed}
	add("all", desk.TicketQuery{})
	add("open", desk.TicketQuery{Status: open})
	add("open or pending", desk.TicketQuery{Status: []desk.Status{desk.StatusOpen, desk.StatusPending}})
	add("closed", desk.TicketQuery{Status: closed})
	add("urgent", desk.TicketQuery{Priority: []desk.Priority{desk.PriorityUrgent}})
	add("normal", desk.TicketQuery{Priority: []desk.Priority{desk.PriorityNormal}})
	add("assignee", desk.TicketQuery{AssigneeID: []string{benchAgent(7)}})
	add("nobody's", desk.TicketQuery{AssigneeID: []string{""}})
	add("customer", desk.TicketQuery{CustomerID: []string{benchCustomer(tickets / benchCustomers / 3)}})
	add("channel", desk.TicketQuery{Channel: []string{"voice"}})
	add("common tag", desk.TicketQuery{Tags: []string{"brake"}})
	add("rare tag", desk.TicketQuery{Tags: []string{"paint"}})
	add("two tags", desk.TicketQuery{Tags: []string{"lock", "paint"}})
	add("numbers", desk.TicketQuery{Number: []int64{5, 70, 900, int64(tickets)}})
	add("created in a day", desk.TicketQuery{CreatedAt: period.Range{Low: at(.5), High: new(at(.5).Add(24 * time.Hour))}})
	add("created in a half", desk.TicketQuery{CreatedAt: period.Range{Low: at(.25), High: at(.75)}})
	add("updated in a day", desk.TicketQuery{UpdatedAt: period.Range{Low: at(.5), High: new(at(.5).Add(24 * time.Hour))}})
	add("updated in a half", desk.TicketQuery{UpdatedAt: period.Range{Low: at(.25), High: at(.75)}})
	add("open, assignee", desk.TicketQuery{Status: open, AssigneeID: []string{benchAgent(7)}})
	add("closed, assignee", desk.TicketQuery{Status: closed, AssigneeID: []string{benchAgent(7)}})
	add("open, channel", desk.TicketQuery{Status: open, Channel: []string{"voice"}})
	add("closed, channel", desk.TicketQuery{Status: closed, Channel: []string{"voice"}})
	add("open, urgent", desk.TicketQuery{Status: open, Priority: []desk.Priority{desk.PriorityUrgent}})
	add("open, normal", desk.TicketQuery{Status: open, Priority: []desk.Priority{desk.PriorityNormal}})
	add("open, common tag", desk.TicketQuery{Status: open, Tags: []string{"brake"}})
	add("open, rare tag", desk.TicketQuery{Status: open, Tags: []string{"paint"}})
	add("created in a half, assignee", desk.TicketQuery{CreatedAt: period.Range{Low: at(.25), High: at(.75)}, AssigneeID: []string{benchAgent(7)}})
	add("created in a half, open", desk.TicketQuery{CreatedAt: period.Range{Low: at(.25), High: at(.75)}, Status: open})
	for _, w := range []struct {
		name string
		n    int64
	}{{"very common word", 100}, {"common word", 110}, {"middling word", 300}, {"rare word", 15_000}} {
		word := "w" + strconv.FormatInt(w.n, 36) + " "
		add(w.name, desk.TicketQuery{Text: word})
		add(w.name+", open", desk.TicketQuery{Text: word, Status: open})
		add(w.name+", assignee", desk.TicketQuery{Text: word, AssigneeID: []string{benchAgent(7)}})
		add(w.name+", customer", desk.TicketQuery{Text: word, CustomerID: []string{benchCustomer(3)}})
	}
	add("two common words", desk.TicketQuery{Text: "w2s w2t "})
	add("phrase", desk.TicketQuery{Text: `"w2s w2t"`})
	add("beginning of words", desk.TicketQuery{Text: "w2s"})
	r := rand.New(rand.NewPCG(3, 4))
	only := regexp.MustCompile(os.Getenv("KICKSTAND_BENCH_ONLY"))
	for _, filter := range filters {
		if !only.MatchString(filter.name) {
			continue
		}
		for _, member := range []string{desk.ByCreatedAt, desk.ByUpdatedAt, desk.ByPriority} {
			for _, descending := range []bool{true, false} {
				q := filter.query
				q.Sort = keyset.Sort{Field: member, Descending: descending}
				var times, used []time.Duration
				var found int
				for run := range 20 {
					q.After = nil
					if run >= 5 { // a random page
						switch member {
						case desk.ByCreatedAt:
							q.After = &keyset.Cursor{Value: strconv.Itoa(1 + r.IntN(tickets))}
						case desk.ByUpdatedAt:
							q.After = &keyset.Cursor{Value: strconv.FormatInt(at(r.Float64()).UnixMicro(), 10)}
						case desk.ByPriority:
							q.After = &keyset.Cursor{Value: string(desk.Priorities[r.IntN(4)]), ID: strconv.Itoa(1 + r.IntN(tickets))}
						}
					}
					began, before := time.Now(), cpu()
					list, _, err := f.desk.FindTickets(b.Context(), f.db, orgA, q)
					if err != nil {
						b.Fatal(err)
					}
					times, used = append(times, time.Since(began)), append(used, cpu()-before)
					if run == 0 {
						found = len(list)
					}
				}
				slices.Sort(times)
				slices.Sort(used)
				slow := ""
				if aim := map[bool]time.Duration{false: 10 * time.Millisecond, true: 50 * time.Millisecond}[q.Text != ""]; used[len(used)-1] > aim || f.db.Postgres() && times[len(times)-1] > aim {
					slow = " SLOW"
				}
				ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
				fmt.Printf("%-32s %-10s %-5t %3d  clock p50 %7.2f max %7.2f  processor p50 %7.2f max %7.2f ms%s\n", filter.name, member, descending, found,
					ms(times[len(times)/2]), ms(times[len(times)-1]), ms(used[len(used)/2]), ms(used[len(used)-1]), slow)
			}
		}
	}
}
