package desk_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

func TestList(t *testing.T) {
	f := newFixture(t)
	var ids []string
	for _, n := range []string{"1", "2", "3", "4", "5"} {
		ids = append(ids, f.intake(text("+491511234567"+n, "hello "+n)).TicketID)
	}
	f.setStatus(ids[1], desk.StatusPending)
	f.setStatus(ids[3], desk.StatusPending)
	for i, u := range []desk.Update{
		4: {Priority: new(desk.PriorityHigh), Tags: &[]string{"brake", "Köln"}},
		0: {Priority: new(desk.PriorityLow), Tags: &[]string{"brake"}, AssigneeID: new(graceID)},
	} {
		if _, err := f.update(orgA, ids[i], u); err != nil {
			t.Fatal(err)
		}
	}
	third, err := f.desk.Ticket(t.Context(), f.db, orgA, ids[2])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		query desk.TicketQuery
		want  []int64
	}{
		{desk.TicketQuery{}, []int64{5, 4, 3, 2, 1}},
		{desk.TicketQuery{Limit: 2}, []int64{5, 4}},
		{desk.TicketQuery{Limit: 2, After: &keyset.Cursor{Value: "4"}}, []int64{3, 2}},
		{desk.TicketQuery{Sort: keyset.Sort{Field: desk.ByCreatedAt}}, []int64{1, 2, 3, 4, 5}},
		{desk.TicketQuery{Sort: keyset.Sort{Field: desk.ByNumber, Descending: true}}, []int64{5, 4, 3, 2, 1}},
		{desk.TicketQuery{Sort: keyset.Sort{Field: desk.ByUpdatedAt}}, []int64{3, 2, 4, 1, 5}},
		{desk.TicketQuery{Sort: keyset.Sort{Field: desk.ByPriority}}, []int64{1, 2, 3, 4, 5}},
		{desk.TicketQuery{Sort: keyset.Sort{Field: desk.ByPriority, Descending: true}}, []int64{5, 4, 3, 2, 1}},
		{desk.TicketQuery{Status: []desk.Status{desk.StatusPending}}, []int64{4, 2}},
		{desk.TicketQuery{Status: []desk.Status{desk.StatusPending}, After: &keyset.Cursor{Value: "4"}}, []int64{2}},
		{desk.TicketQuery{Status: []desk.Status{desk.StatusPending, desk.StatusOpen}, Limit: 2}, []int64{5, 4}},
		{desk.TicketQuery{Status: []desk.Status{desk.StatusClosed}}, nil},
		{desk.TicketQuery{Priority: []desk.Priority{desk.PriorityNormal}}, []int64{4, 3, 2}},
		{desk.TicketQuery{Priority: []desk.Priority{desk.PriorityHigh, desk.PriorityLow}}, []int64{5, 1}},
		{desk.TicketQuery{AssigneeID: []string{graceID}}, []int64{1}},
		{desk.TicketQuery{AssigneeID: []string{""}}, []int64{5, 4, 3, 2}},
		{desk.TicketQuery{AssigneeID: []string{"", graceID}}, []int64{5, 4, 3, 2, 1}},
		{desk.TicketQuery{CustomerID: []string{third.Customer.ID}}, []int64{3}},
		{desk.TicketQuery{Channel: []string{"sms"}, Limit: 1}, []int64{5}},
		{desk.TicketQuery{Channel: []string{"email"}}, nil},
		{desk.TicketQuery{Tags: []string{"brake"}}, []int64{5, 1}},
		{desk.TicketQuery{Tags: []string{"brake", "Köln"}}, []int64{5, 1}},
		{desk.TicketQuery{Tags: []string{"bra"}}, nil},
		{desk.TicketQuery{Number: []int64{2, 4, 9}}, []int64{4, 2}},
		{desk.TicketQuery{CreatedAt: period.Range{Low: &third.CreatedAt}}, []int64{5, 4, 3}},
		{desk.TicketQuery{CreatedAt: period.Range{Low: &third.CreatedAt, LowOpen: true}}, []int64{5, 4}},
		{desk.TicketQuery{CreatedAt: period.Range{High: &third.CreatedAt, HighOpen: true}}, []int64{2, 1}},
		{desk.TicketQuery{UpdatedAt: period.Range{High: &third.UpdatedAt}}, []int64{3}},
		{desk.TicketQuery{UpdatedAt: period.Range{Low: &third.UpdatedAt, LowOpen: true}}, []int64{5, 4, 2, 1}},
	} {
		if got := f.numbers(orgA, c.query); !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %v, want %v", c.query, got, c.want)
		}
		if got := f.numbers(orgB, c.query); got != nil {
			t.Errorf("%+v of another organization: got %v, want none", c.query, got)
		}
	}
	for _, q := range []desk.TicketQuery{
		{Status: []desk.Status{"x"}}, {Priority: []desk.Priority{""}}, {Limit: -1}, {Limit: 201}, {Sort: keyset.Sort{Field: "subject"}},
		{After: &keyset.Cursor{}}, {After: &keyset.Cursor{Value: "x"}}, {Tags: make([]string, 101)}, {Channel: []string{"\x00"}},
		{Sort: keyset.Sort{Field: desk.ByPriority}, After: &keyset.Cursor{Value: "open", ID: "1"}},
		{Sort: keyset.Sort{Field: desk.ByUpdatedAt}, After: &keyset.Cursor{Value: "low", ID: "1"}},
		{Sort: keyset.Sort{Field: desk.ByUpdatedAt}, After: &keyset.Cursor{Value: "1", ID: "\x00"}},
	} {
		if _, _, err := f.desk.FindTickets(t.Context(), f.db, orgA, q); problem.Of(err) != problem.Invalid {
			t.Errorf("%+v: got %v, want invalid", q, err)
		}
	}
}

// TestTicketFilters: every filter of a list applies alone and beside each other one, in every
// order. A new field of [desk.TicketQuery] needs a sample here.
func TestTicketFilters(t *testing.T) {
	f := newFixture(t)
	f.setPolicy(desk.SLAPolicy{Priority: desk.PriorityNormal, ResolutionMinutes: 60})
	var ids []string
	for _, in := range []desk.InboundEvent{
		text("+4915112345671", "one bell"), text("+4915112345672", "two horns"), mail("ana@a.example", "3@a.example"), mail("ben@a.example", "4@a.example"),
		text("+4915112345675", "five bell"),
	} {
		ids = append(ids, f.intake(in).TicketID)
	}
	for i, u := range []desk.Update{
		1: {Status: new(desk.StatusPending), Tags: &[]string{"brake"}},
		2: {Priority: new(desk.PriorityHigh), ExternalID: new("x3"), AssigneeID: new(graceID)},
		3: {Priority: new(desk.PriorityHigh), Status: new(desk.StatusClosed), Tags: &[]string{"brake"}},
		0: {AssigneeID: new(graceID), ExternalID: new("x1")},
	} {
		if _, err := f.update(orgA, ids[i], u); err != nil {
			t.Fatal(err)
		}
	}
	f.index()
	first, second, third := f.ticket(ids[0]), f.ticket(ids[1]), f.ticket(ids[2])
	samples := map[string]struct {
		value any
		want  []int64
	}{
		"Status":     {[]desk.Status{desk.StatusPending, desk.StatusClosed}, []int64{2, 4}},
		"Priority":   {[]desk.Priority{desk.PriorityHigh}, []int64{3, 4}},
		"AssigneeID": {[]string{graceID}, []int64{1, 3}},
		"CustomerID": {[]string{second.Customer.ID, third.Customer.ID}, []int64{2, 3}},
		"Channel":    {[]string{"email"}, []int64{3, 4}},
		"Tags":       {[]string{"brake"}, []int64{2, 4}},
		"Number":     {[]int64{1, 2, 4}, []int64{1, 2, 4}},
		"ExternalID": {[]string{"x1", "x3"}, []int64{1, 3}},
		"CreatedAt":  {period.Range{Low: &second.CreatedAt}, []int64{2, 3, 4, 5}},
		"UpdatedAt":  {period.Range{Low: &first.UpdatedAt}, []int64{1, 2, 3, 4}},
		"Text":       {"bell", []int64{1, 5}},
	}
	kind := reflect.TypeFor[desk.TicketQuery]()
	for field := range kind.Fields() {
		if _, ok := samples[field.Name]; !ok && !slices.Contains([]string{"Sort", "After", "Limit", "Reader", "Faults", "tagged", "without"}, field.Name) {
			t.Fatalf("the filter %s has no sample", field.Name)
		}
	}
	for a, one := range samples {
		for b, other := range samples {
			if a > b {
				continue
			}
			var q desk.TicketQuery
			reflect.ValueOf(&q).Elem().FieldByName(a).Set(reflect.ValueOf(one.value))
			reflect.ValueOf(&q).Elem().FieldByName(b).Set(reflect.ValueOf(other.value))
			want := slices.DeleteFunc(slices.Clone(one.want), func(n int64) bool { return !slices.Contains(other.want, n) })
			for _, by := range []string{desk.ByNumber, desk.ByUpdatedAt, desk.ByPriority} {
				q.Sort.Field = by
				got := f.numbers(orgA, q)
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("list by %s and %s, sorted by %s: got %v, want %v", a, b, by, got, want)
				}
			}
		}
	}
}

// numbers returns the ticket numbers of a page.
func (f *fixture) numbers(org string, q desk.TicketQuery) []int64 {
	f.Helper()
	list, _, err := f.desk.FindTickets(f.Context(), f.db, org, q)
	if err != nil {
		f.Fatalf("%+v: %v", q, err)
	}
	return numbersOf(list)
}

func numbersOf(list []desk.Ticket) (numbers []int64) {
	for _, t := range list {
		numbers = append(numbers, t.Number)
	}
	return numbers
}

// TestTimesFollowNumbers: lists by created_at rely on it.
func TestTimesFollowNumbers(t *testing.T) {
	f := newFixture(t)
	now := time.Now().Truncate(time.Second)
	for i := range 3 {
		if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
			tx.Now = now.Add(-time.Duration(i) * time.Hour) // even if the clock goes back
			_, err := f.desk.IngestTx(t.Context(), tx, text(fmt.Sprintf("+4915112345%d", i), "hello"))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	list, _, err := f.desk.FindTickets(t.Context(), f.db, orgA, desk.TicketQuery{Sort: keyset.Sort{Field: desk.ByNumber}})
	if err != nil || len(list) != 3 {
		t.Fatalf("%v, %v", list, err)
	}
	for i, ticket := range list {
		if !ticket.CreatedAt.Equal(now) || !ticket.UpdatedAt.Equal(now) || ticket.Number != int64(i+1) {
			t.Errorf("ticket %d of the list has number %d, was made at %v, changed at %v, want %v", i+1, ticket.Number, ticket.CreatedAt, ticket.UpdatedAt, now)
		}
	}
}

// plain is a ticket of the property tests.
type plain struct {
	desk.Ticket
	texts []string   // of the messages
	words [][]string // of the subject and of each message
}

var (
	plainChannels  = []string{"sms", "email", "api"}
	plainAssignees = []string{"", graceID, heidiID}
	plainTags      = []string{"brake", "lock", "Köln", "it's"}
	plainWords     = []string{"brake", "brakes", "lock", "Straße", "Müller", "the", "neil", "42"}
	plainSearches  = []string{
		"brake", "BRAKE ", "brak", "STRASSE", "muller ", "mull", "the lock", `"the lock"`, `"lock the" 42`, "4", "42", "x", `"`, "!", `neil "brake"`, "brake'lock", `mu" or 1=1 --`,
	}
)

// world has the tickets of one organization, the expected content of the database.
type world struct {
	*fixture
	org       string
	base      time.Time
	customers []string
	tickets   []*plain
	last      int64
}

func newWorld(f *fixture) *world {
	w := &world{fixture: f, org: uuid.NewString(), base: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	for range 4 {
		w.customers = append(w.customers, uuid.Must(uuid.NewV7()).String())
	}
	w.write(func(tx *db.Tx) {
		for i, id := range w.customers {
			w.exec(tx, `INSERT INTO customers (id, organization_id, name, email, phone, created_at, updated_at) VALUES ($1, $2, $3, '', '', $4, $4)`,
				id, w.org, fmt.Sprintf("customer %d", i), w.base.UnixMicro())
		}
	})
	return w
}

func (w *world) write(fn func(tx *db.Tx)) {
	w.Helper()
	if err := w.db.Write(context.Background(), func(tx *db.Tx) error { fn(tx); return nil }); err != nil {
		w.Fatal(err)
	}
}

func (w *world) exec(tx *db.Tx, query string, args ...any) {
	if _, err := tx.Exec(context.Background(), query, args...); err != nil {
		w.Fatal(err)
	}
}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// some draws a few values of list, often none.
func some[T any](r *rand.Rand, list []T) (out []T) {
	if r.IntN(3) > 0 {
		return nil
	}
	for range 1 + r.IntN(2) {
		out = append(out, pick(r, list))
	}
	return out
}

// add creates n tickets.
func (w *world) add(r *rand.Rand, n int) {
	var made []*plain
	for range n {
		w.last++
		p := &plain{Ticket: desk.Ticket{
			ID: uuid.Must(uuid.NewV7()).String(), OrganizationID: w.org, Number: w.last,
			Status: pick(r, desk.Statuses[:]), Priority: pick(r, desk.Priorities[:]), Channel: pick(r, plainChannels),
			AssigneeID: pick(r, plainAssignees), Tags: uniq(some(r, plainTags)),
			CreatedAt: w.base.Add(time.Duration(w.last) * time.Second), UpdatedAt: w.base.Add(time.Duration(r.IntN(30)) * time.Minute),
		}}
		p.Customer.ID = pick(r, w.customers)
		if r.IntN(2) == 0 {
			p.DueAt = w.base.Add(time.Duration(r.IntN(30)) * time.Minute)
		}
		p.Subject = w.phrase(r, p)
		p.words[0] = slices.Concat(p.words[0], []string{fmt.Sprint("customer ", slices.Index(w.customers, p.Customer.ID))}, p.Tags)
		for range r.IntN(3) {
			p.texts = append(p.texts, w.phrase(r, p))
		}
		made = append(made, p)
	}
	w.tickets = append(w.tickets, made...)
	w.write(func(tx *db.Tx) {
		for _, p := range made {
			w.exec(tx, `INSERT INTO tickets (id, organization_id, number, subject, status, priority, channel, customer_id, assignee_id, tags, created_at, updated_at, due_at)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`, p.ID, p.OrganizationID, p.Number, p.Subject, string(p.Status), string(p.Priority),
				p.Channel, p.Customer.ID, db.Text(p.AssigneeID), db.JSON(p.Tags), p.CreatedAt.UnixMicro(), p.UpdatedAt.UnixMicro(), db.Time(p.DueAt))
			w.exec(tx, "INSERT INTO search_pending (id, ticket_id, organization_id, number) VALUES ($1, $2, $3, $4)", uuid.NewString(), p.ID, w.org, p.Number)
			for _, text := range p.texts {
				w.exec(tx, `INSERT INTO messages (ticket_id, id, conversation_id, direction, author_type, author_name, channel, kind, body, placed_by, created_at)
					VALUES ($1, $2, '', 'inbound', 'customer', '', 'sms', 'reply', $3, '', 0)`, p.ID, uuid.Must(uuid.NewV7()).String(), text)
			}
			for _, tag := range p.Tags {
				w.exec(tx, "INSERT INTO ticket_tags (organization_id, tag, number, ticket_id) VALUES ($1, $2, $3, $4)", w.org, tag, p.Number, p.ID)
			}
		}
	})
}

// shuffle makes the tickets older or younger than their numbers are, as an import does.
func (w *world) shuffle(r *rand.Rand) {
	w.write(func(tx *db.Tx) {
		for _, p := range w.tickets {
			p.CreatedAt = w.base.Add(time.Duration(r.IntN(len(w.tickets))) * time.Second)
			w.exec(tx, "UPDATE tickets SET created_at = $2 WHERE id = $1", p.ID, p.CreatedAt.UnixMicro())
		}
		w.exec(tx, "INSERT INTO ticket_numbers (organization_id, last, last_at, unordered) VALUES ($1, $2, 0, TRUE)", w.org, w.last)
	})
}

// phrase draws some words and adds them to those of p.
func (w *world) phrase(r *rand.Rand, p *plain) string {
	var words []string
	for range 1 + r.IntN(3) {
		words = append(words, pick(r, plainWords))
	}
	p.words = append(p.words, words)
	return strings.Join(words, " ")
}

func uniq(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// remove deletes a ticket.
func (w *world) remove(i int) {
	p := w.tickets[i]
	w.tickets = slices.Delete(w.tickets, i, i+1)
	if err := w.tryDelete(w.org, p.ID); err != nil {
		w.Fatal(err)
	}
}

func randomQuery(r *rand.Rand, w *world) desk.TicketQuery {
	q := desk.TicketQuery{
		Status: some(r, desk.Statuses[:]), Priority: some(r, desk.Priorities[:]), AssigneeID: some(r, plainAssignees),
		Channel: some(r, plainChannels), Tags: some(r, plainTags), CustomerID: some(r, w.customers),
		Sort:  keyset.Sort{Field: pick(r, []string{"", desk.ByCreatedAt, desk.ByUpdatedAt, desk.ByPriority, desk.ByNumber, desk.ByDueAt}), Descending: r.IntN(2) == 0},
		Limit: 1 + r.IntN(7),
	}
	if r.IntN(3) == 0 {
		q.Text = pick(r, plainSearches)
	}
	if r.IntN(6) == 0 {
		q.Number = []int64{1 + r.Int64N(w.last+1), 1 + r.Int64N(w.last+1)}
	}
	span := func(unit time.Duration, n int) (out period.Range) {
		if r.IntN(4) > 0 {
			return out
		}
		low, high := w.base.Add(unit*time.Duration(r.IntN(n))), w.base.Add(unit*time.Duration(r.IntN(n)))
		if r.IntN(3) > 0 {
			out.Low, out.LowOpen = &low, r.IntN(2) == 0
		}
		if r.IntN(3) > 0 {
			out.High, out.HighOpen = &high, r.IntN(2) == 0
		}
		return out
	}
	q.CreatedAt = span(time.Second, int(w.last)+1)
	q.UpdatedAt = span(time.Minute, 30)
	return q
}

func oneOf[T comparable](list []T, v T) bool { return len(list) == 0 || slices.Contains(list, v) }

// matches defines the filters.
func matches(q *desk.TicketQuery, p *plain) bool {
	return oneOf(q.Status, p.Status) && oneOf(q.Priority, p.Priority) && oneOf(q.AssigneeID, p.AssigneeID) &&
		oneOf(q.Channel, p.Channel) && oneOf(q.CustomerID, p.Customer.ID) && oneOf(q.Number, p.Number) &&
		(len(q.Tags) == 0 || slices.ContainsFunc(p.Tags, func(tag string) bool { return slices.Contains(q.Tags, tag) })) &&
		q.CreatedAt.Contains(p.CreatedAt) && q.UpdatedAt.Contains(p.UpdatedAt) &&
		(q.Sort.Field != desk.ByDueAt || !p.DueAt.IsZero()) && (q.Text == "" || says(q.Text, p))
}

// says defines searches: lists of adjacent words, the last of which may end with *
// for a prefix.
func says(search string, p *plain) bool {
	terms, ok := map[string][]string{
		"brake": {"brake*"}, "BRAKE ": {"brake"}, "brak": {"brak*"}, "STRASSE": {"strasse*"}, "muller ": {"muller"}, "mull": {"mull*"},
		"the lock": {"the", "lock*"}, `"the lock"`: {"the lock"}, `"lock the" 42`: {"lock the", "42"}, "4": {"4"}, "42": {"42"}, "x": {"x"},
		`neil "brake"`: {"neil", "brake"}, "brake'lock": {"brake lock*"}, `mu" or 1=1 --`: {"mu", "or 1 1"}, `"`: nil, "!": nil,
	}[search]
	if !ok {
		panic(search)
	}
	return len(terms) > 0 && slices.ContainsFunc(p.words, func(words []string) bool {
		text := " " + strings.NewReplacer("ß", "ss", "ü", "u").Replace(strings.ToLower(strings.Join(words, " "))) + " "
		return !slices.ContainsFunc(terms, func(term string) bool {
			if beginning, ok := strings.CutSuffix(term, "*"); ok {
				return !strings.Contains(text, " "+beginning)
			}
			return !strings.Contains(text, " "+term+" ")
		})
	})
}

// inOrder defines the sorts.
func inOrder(s keyset.Sort, a, b *plain) int {
	var c int
	switch s.Field {
	case desk.ByUpdatedAt:
		c = a.UpdatedAt.Compare(b.UpdatedAt)
	case desk.ByDueAt:
		c = a.DueAt.Compare(b.DueAt)
	case desk.ByPriority:
		c = slices.Index(desk.Priorities[:], a.Priority) - slices.Index(desk.Priorities[:], b.Priority)
	case desk.ByNumber:
		c = cmp.Compare(a.Number, b.Number)
	default:
		c = cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Number, b.Number))
	}
	if c == 0 {
		c = cmp.Compare(a.ID, b.ID)
	}
	if s.Descending || s.Field == "" {
		c = -c
	}
	return c
}

func (w *world) expect(q desk.TicketQuery) (numbers []int64) {
	var list []*plain
	for _, p := range w.tickets {
		if matches(&q, p) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *plain) int { return inOrder(q.Sort, a, b) })
	for _, p := range list {
		numbers = append(numbers, p.Number)
	}
	return numbers
}

// all reads the whole list, page by page, calling between after each.
func (w *world) all(q desk.TicketQuery, between func()) (numbers []int64) {
	for {
		list, next, err := w.desk.FindTickets(context.Background(), w.db, w.org, q)
		if err != nil {
			w.Fatalf("%+v: %v", q, err)
		}
		if len(list) > q.Limit || next != nil && len(list) < q.Limit {
			w.Fatalf("%+v: a page of %d, next %v", q, len(list), next)
		}
		numbers = append(numbers, numbersOf(list)...)
		if next == nil {
			return numbers
		}
		stored, err := json.Marshal(next)
		if err != nil {
			w.Fatal(err)
		}
		q.After = nil
		if err := json.Unmarshal(stored, &q.After); err != nil {
			w.Fatal(err)
		}
		between()
	}
}

// random is a source for values that rapid need not shrink.
func random(t *rapid.T) *rand.Rand {
	return rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
}

// index indexes all pending messages.
func (f *fixture) index() {
	f.Helper()
	for {
		n, err := f.desk.Index(context.Background())
		if err != nil {
			f.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// TestListsAreExact compares every way to find tickets with a full scan.
func TestListsAreExact(t *testing.T) {
	f := newFixture(t)
	f.desk.SmallSteps()
	rapid.Check(t, func(t *rapid.T) {
		r := random(t)
		w := newWorld(f)
		w.add(r, r.IntN(50))
		if r.IntN(2) == 0 {
			w.shuffle(r)
		}
		w.index()
		for range 30 {
			q := randomQuery(r, w)
			got, want := w.all(q, func() {}), w.expect(q)
			if !slices.Equal(got, want) {
				t.Fatalf("%+v: got %v, want %v", q, got, want)
			}
			got = nil
			if err := f.desk.EachTicket(context.Background(), w.org, q, func(p *desk.Ticket) error {
				got = append(got, p.Number)
				return nil
			}); err != nil || !slices.Equal(got, want) {
				t.Fatalf("export of %+v: got %v, %v, want %v", q, got, err, want)
			}
		}
	})
}

// TestBroadListsAreRefused: within narrow limits a list is exact or refused, an export is exact, and
// a page of a single filter in the order of creation is never refused.
func TestBroadListsAreRefused(t *testing.T) {
	f := newFixture(t)
	f.desk.NarrowLimits()
	r := newRand(7)
	w := newWorld(f)
	w.add(r, 300)
	w.index()
	refused := 0
	for range 600 {
		q := randomQuery(r, w)
		want := w.expect(q)
		list, _, err := f.desk.FindTickets(t.Context(), f.db, w.org, q)
		if p, ok := errors.AsType[*problem.Error](err); ok && p.Code == "range_too_large" {
			refused++
		} else if got := numbersOf(list); err != nil || !slices.Equal(got, want[:min(q.Limit, len(want))]) {
			t.Fatalf("%+v: got %v, %v, want %v", q, got, err, want)
		}
		var got []int64
		if err := f.desk.EachTicket(t.Context(), w.org, q, func(p *desk.Ticket) error {
			got = append(got, p.Number)
			return nil
		}); err != nil || !slices.Equal(got, want) {
			t.Fatalf("export of %+v: got %v, %v, want %v", q, got, err, want)
		}
	}
	if refused < 20 || refused > 400 {
		t.Errorf("%d of 600 lists were refused", refused)
	}
	for _, q := range []desk.TicketQuery{
		{}, {CustomerID: w.customers[:1]}, {AssigneeID: []string{""}}, {AssigneeID: []string{graceID}}, {Channel: []string{"sms"}}, {Tags: []string{"lock"}},
	} {
		q.Limit = 3
		if got, want := w.all(q, func() {}), w.expect(q); !slices.Equal(got, want) {
			t.Errorf("%+v: got %v, want %v", q, got, want)
		}
	}
}

// TestListsWithinLimits: a list of which the limits allow every ticket to be examined is answered, also
// if many tickets were deleted.
func TestListsWithinLimits(t *testing.T) {
	f := newFixture(t)
	f.desk.NarrowLimits()
	for _, every := range []int{1, 4} { // ticket is left
		w := newWorld(f)
		w.add(newRand(7), 60*every)
		w.write(func(tx *db.Tx) {
			w.exec(tx, "DELETE FROM tickets WHERE organization_id = $1 AND number % $2 <> 0", w.org, every)
			w.exec(tx, "UPDATE tickets SET channel = 'sms', status = CASE WHEN number = $2 THEN 'closed' ELSE 'open' END WHERE organization_id = $1", w.org, 6*every)
		})
		for _, q := range []desk.TicketQuery{
			{Status: []desk.Status{desk.StatusClosed}},
			{Status: []desk.Status{desk.StatusClosed}, Channel: []string{"sms"}},
		} {
			for _, descending := range []bool{false, true} {
				q.Sort = keyset.Sort{Field: desk.ByCreatedAt, Descending: descending}
				list, next, err := f.desk.FindTickets(t.Context(), f.db, w.org, q)
				if got := numbersOf(list); err != nil || next != nil || !slices.Equal(got, []int64{int64(6 * every)}) {
					t.Errorf("every %d. ticket, %+v: got %v, %v, %v", every, q, got, next, err)
				}
			}
		}
	}
}

// change changes a ticket, except its sort key, and returns its number. It may
// enter or leave the list.
func (w *world) change(r *rand.Rand, by keyset.Sort) int64 {
	p := pick(r, w.tickets)
	p.Status, p.AssigneeID = pick(r, desk.Statuses[:]), pick(r, plainAssignees)
	if by.Field != desk.ByPriority {
		p.Priority = pick(r, desk.Priorities[:])
	}
	if by.Field != desk.ByUpdatedAt {
		p.UpdatedAt = w.base.Add(time.Duration(r.IntN(30)) * time.Minute)
	}
	w.write(func(tx *db.Tx) {
		w.exec(tx, "UPDATE tickets SET status = $2, assignee_id = $3, priority = $4, updated_at = $5 WHERE id = $1",
			p.ID, string(p.Status), db.Text(p.AssigneeID), string(p.Priority), p.UpdatedAt.UnixMicro())
	})
	return p.Number
}

// TestPagesLoseNothing reads lists while tickets are created, changed and deleted.
func TestPagesLoseNothing(t *testing.T) {
	f := newFixture(t)
	f.desk.SmallSteps()
	rapid.Check(t, func(t *rapid.T) {
		r := random(t)
		w := newWorld(f)
		w.add(r, 5+r.IntN(40))
		if r.IntN(2) == 0 {
			w.shuffle(r)
		}
		w.index()
		q := randomQuery(r, w)
		before, changed := w.expect(q), make(map[int64]bool)
		got := w.all(q, func() {
			switch r.IntN(4) {
			case 0:
				w.add(r, 1)
			case 1:
				if len(w.tickets) > 1 {
					w.remove(r.IntN(len(w.tickets)))
				}
			case 2:
				changed[w.change(r, q.Sort)] = true
			}
		})
		seen := make(map[int64]int)
		for _, n := range got {
			if seen[n]++; seen[n] > 1 {
				t.Fatalf("%+v: %d came twice: %v", q, n, got)
			}
		}
		after := w.expect(q)
		for _, n := range before {
			if slices.Contains(after, n) && seen[n] == 0 && !changed[n] {
				t.Fatalf("%+v: %d was there all the time and is not among %v", q, n, got)
			}
		}
	})
}

func TestExportEnds(t *testing.T) {
	f := newFixture(t)
	for _, n := range []string{"1", "2"} {
		f.intake(text("+491511234567"+n, "hello"))
	}
	stop := errors.New("enough")
	n := 0
	if err := f.desk.EachTicket(t.Context(), orgA, desk.TicketQuery{}, func(*desk.Ticket) error { n++; return stop }); err != stop || n != 1 {
		t.Errorf("got %v after %d, want %v after 1", err, n, stop)
	}
}

// interrupter cancels the context of statements that contain a text, once they have begun.
type interrupter struct {
	db.Querier
	text   string
	cancel context.CancelFunc
	n      int
}

func (i *interrupter) Query(ctx context.Context, query string, args ...any) (*db.Rows, error) {
	rows, err := i.Querier.Query(ctx, query, args...)
	if strings.Contains(query, i.text) {
		i.n++
		i.cancel()
	}
	return rows, err
}

// TestInterruptedSearch: an interrupted search returns an error, not a short page.
func TestInterruptedSearch(t *testing.T) {
	f := fixtureOn(t, dbtest.NewSQLite(t))
	f.desk.NarrowLimits()
	for n := range 10 {
		f.intake(text(fmt.Sprintf("+49151123456%02d", n), "bell"))
	}
	f.index()
	for _, statement := range []string{"AS number FROM ticket_words", "ELSE 0 END FROM tickets t WHERE", "FROM unnest("} {
		ctx, cancel := context.WithCancel(t.Context())
		i := &interrupter{text: statement, cancel: cancel}
		err := f.db.Read(t.Context(), func(tx *db.Tx) error {
			i.Querier = tx
			list, _, err := f.desk.FindTickets(ctx, i, orgA, desk.TicketQuery{Text: "bell ", Sort: keyset.Sort{Field: desk.ByUpdatedAt}})
			if err == nil {
				t.Errorf("interrupted in %q: got %d tickets", statement, len(list))
			}
			return err
		})
		cancel()
		if err == nil {
			t.Errorf("interrupted in %q: no error", statement)
		}
		if i.n == 0 {
			t.Errorf("no statement has %q", statement)
		}
	}
}
