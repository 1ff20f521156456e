package desk

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// What lists are sorted by.
const (
	ByCreatedAt = "created_at"
	ByUpdatedAt = "updated_at"
	ByPriority  = "priority" // low before urgent
	ByNumber    = "number"
	ByName      = "name" // in lower case; those without a name come last
)

// Sort is the order of a list. The zero value is the newest first. Ties are
// ordered by id, or by what was given in the same order as ids, in the same
// direction.
type Sort struct {
	Member     string // one of the list's; empty: created_at, and then Descending does not count
	Descending bool
}

func (o Sort) check(v *problem.Validation, members ...string) {
	if o.Member != "" && !slices.Contains(members, o.Member) {
		v.Add("sort", "must be one of %s", strings.Join(members, ", "))
	}
}

// filled is o with what its zero value stands for.
func (o Sort) filled() Sort {
	if o.Member == "" {
		return Sort{ByCreatedAt, true}
	}
	return o
}

// direction is o's in SQL, and compare what is true of whatever comes later.
func (o Sort) direction() (order, compare string) {
	if o.Descending {
		return "DESC", "<"
	}
	return "ASC", ">"
}

// Position is a place in a list of some sort: after the record that had these
// values. It is of use with the same sort only, and for ever: that record may have
// gone since.
type Position struct {
	Value string `json:"value"`
	ID    string `json:"id,omitempty"`
}

// integer is Value as a number.
func (p *Position) integer() (int64, error) {
	n, err := strconv.ParseInt(p.Value, 10, 64)
	if err != nil {
		return 0, problem.New(problem.Invalid, "the position is not one of this list")
	}
	return n, nil
}

// TicketQuery says which tickets a list has. Of a member with several values any
// one will do; a member without any does not restrict the list.
type TicketQuery struct {
	Status     []Status
	Priority   []Priority
	AssigneeID []string // an empty one is for the tickets that are nobody's
	CustomerID []string
	Channel    []string
	Tags       []string
	Number     []int64
	ExternalID []string
	CreatedAt  period.Range
	UpdatedAt  period.Range
	Text       string // what the subject or a message must say, see the package comment
	Sort       Sort   // by created_at, updated_at, priority or number
	After      *Position
	Limit      int // 0: 30; at most 200
}

// maxValues bounds the values of one filter.
const maxValues = 100

// Check implements [problem.Checker].
func (q TicketQuery) Check(v *problem.Validation) {
	for _, s := range q.Status {
		checkStatus(v, s)
	}
	for _, p := range q.Priority {
		checkPriority(v, p)
	}
	checkValues(v, "status", q.Status)
	checkValues(v, "priority", q.Priority)
	checkValues(v, "assignee_id", q.AssigneeID)
	checkValues(v, "customer_id", q.CustomerID)
	checkValues(v, "channel", q.Channel)
	checkValues(v, "tags", q.Tags)
	checkValues(v, "external_id", q.ExternalID)
	if len(q.Number) > maxValues {
		v.Add("number", "must be at most %d", maxValues)
	}
	v.Length("q", q.Text, 0, maxSubject)
	q.Sort.check(v, ByCreatedAt, ByUpdatedAt, ByPriority, ByNumber)
	checkLimit(v, q.Limit)
}

func checkValues[T ~string](v *problem.Validation, path string, values []T) {
	if len(values) > maxValues {
		v.Add(path, "must be at most %d", maxValues)
	}
	for _, value := range values {
		v.Text(path, string(value))
	}
}

func checkLimit(v *problem.Validation, limit int) {
	if limit < 0 || limit > maxPage {
		v.Add("limit", "must be from 1 to %d", maxPage)
	}
}

// FindTickets returns a page of a list of tickets, and where the next one begins;
// nil after the last. Each page is of one moment. A ticket that stays in the list
// while the pages are read is on exactly one of them, unless what the list is
// sorted by changes: then it is where the new value puts it. Errors: Invalid.
func (s *Service) FindTickets(ctx context.Context, q db.Querier, organizationID string, query TicketQuery) ([]Ticket, *Position, error) {
	if err := problem.Check(query); err != nil {
		return nil, nil, err
	}
	if query.Limit == 0 {
		query.Limit = defaultPage
	}
	var tickets []Ticket
	var next *Position
	err := s.snapshot(ctx, q, func(q db.Querier) error {
		var err error
		tickets, next, err = s.findTickets(ctx, q, organizationID, &query)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("find tickets: %w", err)
	}
	return tickets, next, nil
}

const (
	defaultPage = 30
	exportPage  = 500
	// maxExport is how long an export may take. On SQLite its snapshot keeps
	// the write-ahead log from being merged, on PostgreSQL dead rows from being
	// removed.
	maxExport = time.Hour
)

// EachTicket calls fn with every ticket of a list, in order, as all of them were
// at one moment. query's After and Limit do not count. An error of fn ends it and
// is returned. It may take an hour at most.
func (s *Service) EachTicket(ctx context.Context, organizationID string, query TicketQuery, fn func(*Ticket) error) error {
	query.After, query.Limit = nil, 0
	if err := problem.Check(query); err != nil {
		return err
	}
	query.Limit = exportPage
	return s.each(ctx, func(q db.Querier) error {
		for {
			tickets, next, err := s.findTickets(ctx, q, organizationID, &query)
			if err != nil {
				return fmt.Errorf("export tickets: %w", err)
			}
			for i := range tickets {
				if err := fn(&tickets[i]); err != nil {
					return err
				}
			}
			if next == nil {
				return nil
			}
			query.After = next
		}
	})
}

// each runs fn over one snapshot, for as long as an export may take.
func (s *Service) each(ctx context.Context, fn func(q db.Querier) error) error {
	ctx, cancel := context.WithTimeout(ctx, maxExport)
	defer cancel()
	return s.db.Read(ctx, func(tx *db.Tx) error { return s.snapshot(ctx, tx, fn) })
}

// snapshot runs fn over one moment's state: q's, or, where q has none, a new one.
// PostgreSQL keeps plans from when a table was all but empty; it is told to go by
// indexes all the same.
func (s *Service) snapshot(ctx context.Context, q db.Querier, fn func(q db.Querier) error) error {
	if d, ok := q.(*db.DB); ok {
		return d.Read(ctx, func(tx *db.Tx) error { return s.snapshot(ctx, tx, fn) })
	}
	if s.db.Postgres() {
		var set string
		if err := q.QueryRow(ctx, "SELECT set_config('enable_seqscan', 'off', true)").Scan(&set); err != nil {
			return err
		}
	}
	return fn(q)
}

// statement is a query that is put together from parts.
type statement struct {
	strings.Builder
	args []any
}

// arg adds an argument and returns its placeholder.
func (st *statement) arg(v any) string {
	st.args = append(st.args, v)
	return "$" + strconv.Itoa(len(st.args))
}

// list adds arguments and returns their placeholders.
func list[T ~string](st *statement, values []T) string {
	places := make([]string, len(values))
	for i, v := range values {
		places[i] = st.arg(string(v))
	}
	return strings.Join(places, ", ")
}

func (st *statement) addf(format string, args ...any) { fmt.Fprintf(st, format, args...) }

// pace is the sizes of the steps in which tickets are found. Each step is some
// milliseconds' work at most.
type pace struct {
	few     int // so many are sorted rather than passed over
	probe   int // how far ahead it is looked where to go
	first   int // tickets looked at in one step
	last    int // likewise, where most are passed over
	passed  int // tickets passed over before another way is tried
	collect int // so many are sorted when all else fails
	words   int // so many documents that have the words are sorted
	listed  int // so many are listed rather than looked for one by one
}

func defaultPace() pace {
	return pace{few: 1500, probe: 200, first: 64, last: 1024, passed: 6000, collect: 200_000, words: 6000, listed: 50_000}
}

// way is a set of tickets, given by a filter, that an index has in the order of
// their numbers.
type way struct {
	from   string // table and condition
	values []any  // each of them adds a part of the set: %s in from
	unique bool   // no ticket is in two parts
	words  *words // instead of the others: what documents have
}

// candidate is a ticket that may belong on the page.
type candidate struct {
	id    string
	value int64 // what it is sorted by: number, updated_at, or the priority's rank
	tie   int64 // the number, beside the priority
}

// finder finds the tickets of one page.
type finder struct {
	ctx          context.Context
	q            db.Querier
	postgres     bool
	pace         pace
	organization string
	query        *TicketQuery
	sort         Sort
	words        *words // of query.Text; nil when there are none
	first, last  int64  // numbers lie between, by created_at; inclusive
	want         int
	found        []candidate
}

func (s *Service) findTickets(ctx context.Context, q db.Querier, organizationID string, query *TicketQuery) ([]Ticket, *Position, error) {
	f := finder{
		ctx: ctx, q: q, postgres: s.db.Postgres(), pace: s.pace, organization: organizationID, query: query, sort: query.Sort.filled(),
		first: 1, last: maxNumber, want: query.Limit + 1,
	}
	if some, err := f.readWords(); err != nil || !some {
		return nil, nil, err
	}
	some, err := f.bounds()
	if err != nil || !some {
		return nil, nil, err
	}
	switch f.sort.Member {
	case ByUpdatedAt:
		err = f.byUpdate()
	case ByPriority:
		err = f.byPriority()
	default:
		err = f.byNumber(query.After)
	}
	if err != nil {
		return nil, nil, err
	}
	var next *Position
	if len(f.found) > query.Limit {
		f.found = f.found[:query.Limit]
		next = f.position(&f.found[query.Limit-1])
	}
	tickets, err := f.load()
	return tickets, next, err
}

// maxNumber is more than any ticket's number.
const maxNumber = 1<<numberBits - 1

// position is the one after c.
func (f *finder) position(c *candidate) *Position {
	switch f.sort.Member {
	case ByUpdatedAt:
		return &Position{Value: strconv.FormatInt(c.value, 10), ID: c.id}
	case ByPriority:
		return &Position{Value: string(Priorities[c.value]), ID: strconv.FormatInt(c.tie, 10)}
	default:
		return &Position{Value: strconv.FormatInt(c.value, 10)}
	}
}

// load reads the tickets that were found.
func (f *finder) load() ([]Ticket, error) {
	if len(f.found) == 0 {
		return nil, nil
	}
	ids := make([]string, len(f.found))
	place := make(map[string]int, len(f.found))
	for i, c := range f.found {
		ids[i], place[c.id] = c.id, i
	}
	slices.Sort(ids) // neighbours are together on disk
	rows, err := db.All(f.ctx, f.q, scanTicket, selectTicket+"WHERE t.id = ANY($1)", ids)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b Ticket) int { return place[a.ID] - place[b.ID] })
	return rows, nil
}

// bounds turns created_at into numbers. It reports false when no ticket can be in
// the list.
func (f *finder) bounds() (bool, error) {
	r := f.query.CreatedAt
	if r.Whole() {
		return true, nil
	}
	first, last := r.Micros()
	var low, high *int64
	err := f.q.QueryRow(f.ctx, `SELECT
		(SELECT number FROM tickets WHERE organization_id = $1 AND created_at >= $2 ORDER BY created_at, number LIMIT 1),
		(SELECT number FROM tickets WHERE organization_id = $1 AND created_at <= $3 ORDER BY created_at DESC, number DESC LIMIT 1)`,
		f.organization, first, last).Scan(&low, &high)
	if err != nil || low == nil || high == nil || *low > *high {
		return false, err
	}
	f.first, f.last = *low, *high
	return true, nil
}

// ways are the filters' sets.
func (f *finder) ways() []way {
	q := f.query
	var ways []way
	if len(q.CustomerID) > 0 {
		ways = append(ways, way{from: "tickets WHERE coalesce(organization_id = $1, FALSE) AND customer_id = %s", values: values(q.CustomerID), unique: true})
	}
	if len(q.AssigneeID) > 0 {
		ways = append(ways, way{from: "tickets WHERE organization_id = $1 AND assignee_id = %s", values: values(q.AssigneeID), unique: true})
	}
	if len(q.Tags) > 0 {
		ways = append(ways, way{from: "ticket_tags WHERE organization_id = $1 AND tag = %s", values: values(q.Tags), unique: len(q.Tags) == 1})
	}
	if len(q.Status) > 0 {
		ways = append(ways, way{from: "tickets WHERE organization_id = $1 AND status = %s", values: values(q.Status), unique: true})
	}
	if len(q.Priority) > 0 && !slices.Contains(q.Priority, PriorityNormal) {
		ways = append(ways, way{from: "tickets WHERE organization_id = $1 AND priority = %s AND priority <> 'normal'", values: values(q.Priority), unique: true})
	}
	if len(q.Channel) > 0 {
		ways = append(ways, way{from: "tickets WHERE organization_id = $1 AND channel = %s", values: values(q.Channel), unique: true})
	}
	if f.words != nil {
		ways = append(ways, way{words: f.words})
	}
	return ways
}

// everything is the way that passes all tickets.
var everything = way{from: "tickets WHERE organization_id = $1", values: []any{nil}, unique: true}

// values are the different ones of a filter; nil for an empty one.
func values[T ~string](list []T) []any {
	set := slices.Clone(list)
	slices.Sort(set)
	var out []any
	for _, v := range slices.Compact(set) {
		out = append(out, db.Text(string(v)))
	}
	return out
}

// walk writes a query of the next tickets of w: number and id, in order.
func (f *finder) walk(st *statement, w way, from, to int64, descending bool, limit int) {
	order, _ := Sort{Descending: descending}.direction()
	id := "id"
	if strings.HasPrefix(w.from, "ticket_tags") {
		id = "ticket_id AS id"
	}
	if w.words != nil {
		w.words.walk(st, from, to, order, limit)
		return
	}
	low, high := st.arg(from), st.arg(to)
	for i, v := range w.values {
		if i > 0 && w.unique {
			st.WriteString(" UNION ALL ")
		} else if i > 0 {
			st.WriteString(" UNION ")
		}
		part := w.from
		if strings.Contains(part, "%s") {
			if v == nil {
				part = strings.Replace(part, "= %s", "IS NULL", 1)
			} else {
				part = fmt.Sprintf(part, st.arg(v))
			}
		}
		st.addf("SELECT * FROM (SELECT number, %s FROM %s AND number >= %s AND number <= %s ORDER BY number %s LIMIT %d) AS w%d",
			id, part, low, high, order, limit, i)
	}
	if len(w.values) > 1 {
		st.addf(" ORDER BY number %s LIMIT %d", order, limit)
	}
}

// begin starts a statement whose $1 is the organization.
func (f *finder) begin() *statement { return &statement{args: []any{f.organization}} }

// tests writes what t, a ticket's row or its entry of an index, must be like: a
// condition that no engine mistakes for one to look up. Of the entry of an index
// what it lacks is looked up last. It must have the words w, if any.
func (f *finder) tests(st *statement, entry bool, w *words) string {
	q := f.query
	tests := []string{"TRUE"}
	addf := func(format string, args ...any) { tests = append(tests, fmt.Sprintf(format, args...)) }
	if len(q.Status) > 0 {
		addf("t.status IN (%s)", list(st, q.Status))
	}
	if len(q.Priority) > 0 {
		addf("t.priority IN (%s)", list(st, q.Priority))
	}
	if len(q.Channel) > 0 {
		addf("t.channel IN (%s)", list(st, q.Channel))
	}
	if len(q.AssigneeID) > 0 {
		addf("coalesce(t.assignee_id, '') IN (%s)", list(st, q.AssigneeID))
	}
	if len(q.Number) > 0 {
		addf("t.number = ANY(%s)", st.arg(q.Number))
	}
	if len(q.ExternalID) > 0 {
		addf("t.external_id = ANY(%s)", st.arg(q.ExternalID))
	}
	if f.first > 1 {
		addf("t.number >= %s", st.arg(f.first))
	}
	if f.last < maxNumber {
		addf("t.number <= %s", st.arg(f.last))
	}
	if !q.UpdatedAt.Whole() {
		first, last := q.UpdatedAt.Micros()
		addf("t.updated_at >= %s AND t.updated_at <= %s", st.arg(first), st.arg(last))
	}
	if len(q.Tags) > 0 {
		addf("EXISTS (SELECT 1 FROM ticket_tags g WHERE g.organization_id = $1 AND g.tag IN (%s) AND g.number = t.number)", list(st, q.Tags))
	}
	if len(q.CustomerID) > 0 && entry {
		addf("EXISTS (SELECT 1 FROM tickets c WHERE c.id = t.id AND c.customer_id IN (%s))", list(st, q.CustomerID))
	} else if len(q.CustomerID) > 0 {
		addf("t.customer_id IN (%s)", list(st, q.CustomerID))
	}
	if w != nil {
		tests = append(tests, w.test(st))
	}
	return strings.Join(tests, " AND ")
}

// narrowest is that of ways which advances most: it has the fewest tickets just
// ahead, from a number on.
func (f *finder) narrowest(ways []way, from, to int64, descending bool) (way, error) {
	if len(ways) == 1 {
		return ways[0], nil
	}
	var best way
	var most float64
	for _, w := range ways {
		st := f.begin()
		st.WriteString("SELECT count(*), coalesce(min(number), 0), coalesce(max(number), 0) FROM (")
		f.walk(st, w, from, to, descending, f.pace.probe)
		st.WriteString(") AS p")
		var n, low, high int64
		if err := f.q.QueryRow(f.ctx, st.String(), st.args...).Scan(&n, &low, &high); err != nil {
			return way{}, err
		}
		var advance float64
		switch {
		case n < int64(f.pace.probe):
			advance = 1e12 - float64(n) // and then it ends
		case descending:
			advance = float64(to-low) / float64(n)
		default:
			advance = float64(high-from) / float64(n)
		}
		if advance > most {
			best, most = w, advance
		}
	}
	return best, nil
}

// byNumber finds tickets in the order of their numbers: by walking whichever of
// the filters' indexes has the fewest tickets just ahead, and looking at each.
func (f *finder) byNumber(after *Position) error {
	from, to := f.first, f.last
	if after != nil {
		n, err := after.integer()
		if err != nil {
			return err
		}
		if f.sort.Descending {
			to = min(to, n-1)
		} else {
			from = max(from, n+1)
		}
	}
	if len(f.query.Number) > 0 || len(f.query.ExternalID) > 0 || !f.query.UpdatedAt.Whole() {
		if done, err := f.collectFew(f.pace.few); err != nil || done {
			return err
		}
	}
	return f.walkNumbers(from, to, f.sort.Descending, 0)
}

// walkNumbers adds what it finds between two numbers. rank is that of the
// priority whose tickets these are, where it matters.
func (f *finder) walkNumbers(from, to int64, descending bool, rank int64) error {
	ways := f.ways()
	tested := len(ways) != 1 || len(f.query.Number) > 0 || !f.query.UpdatedAt.Whole() || f.words != nil ||
		slices.Contains(f.query.Priority, PriorityNormal)
	if len(ways) == 0 {
		ways = append(ways, everything)
		tested = len(f.query.Number) > 0 || !f.query.UpdatedAt.Whole() || f.words != nil || len(f.query.Priority) > 0
	}
	total, tried := 0, f.query.UpdatedAt.Whole() || f.sort.Member == ByPriority
	for chunk := f.pace.first; len(f.found) < f.want && from <= to; chunk = min(4*chunk, f.pace.last) {
		if !tested {
			chunk = f.want - len(f.found)
		}
		w, err := f.narrowest(ways, from, to, descending)
		if err != nil {
			return err
		}
		st := f.begin()
		if tested {
			must := f.words
			if w.words != nil {
				must = nil // it has them
			}
			st.WriteString("SELECT d.number, coalesce(t.id, d.id), CASE WHEN t.id IS NOT NULL AND ")
			st.WriteString(f.tests(st, false, must))
			st.WriteString(" THEN 1 ELSE 0 END FROM (")
		} else {
			st.WriteString("SELECT d.number, d.id, 1 FROM (")
		}
		f.walk(st, w, from, to, descending, chunk)
		st.WriteString(") AS d")
		switch {
		case w.words != nil:
			st.WriteString(" LEFT JOIN tickets t ON t.organization_id = $1 AND t.number = d.number")
		case tested:
			st.WriteString(" LEFT JOIN tickets t ON t.id = d.id")
		}
		order, _ := Sort{Descending: descending}.direction()
		st.addf(" ORDER BY d.number %s", order)
		passed, err := f.take(st, rank, func(number int64) {
			if descending {
				to = number - 1
			} else {
				from = number + 1
			}
		})
		if err != nil {
			return err
		}
		if passed < chunk {
			return nil
		}
		if total += passed; total > f.pace.passed && !tried {
			tried = true
			if done, err := f.collectFew(f.pace.collect); err != nil || done {
				return err
			}
		}
	}
	return nil
}

// take runs a query of number, id and whether the ticket belongs to the list. It
// tells seen of each number, and returns how many there were.
func (f *finder) take(st *statement, rank int64, seen func(number int64)) (int, error) {
	rows, err := f.q.Query(f.ctx, st.String(), st.args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	n := 0
	for last := int64(-1); rows.Next(); {
		var c candidate
		var in int64
		if err := rows.Scan(&c.value, &c.id, &in); err != nil {
			return 0, err
		}
		n++
		seen(c.value)
		if in == 0 || c.value == last {
			continue
		}
		last = c.value
		if f.sort.Member == ByPriority {
			c.value, c.tie = rank, c.value
		}
		if f.found = append(f.found, c); len(f.found) == f.want {
			break
		}
	}
	return n, rows.Err()
}

// source is a set of tickets to be sorted.
type source struct {
	write func(st *statement) // a query of their id or, of those that have words, number
	words bool
}

// smallest is the set with the fewest tickets of those that the filters give; false
// when each has more than limit.
func (f *finder) smallest(limit int) (source, bool, error) {
	if len(f.query.Number) > 0 {
		return source{write: func(st *statement) {
			st.addf("SELECT id FROM tickets WHERE organization_id = $1 AND number = ANY(%s)", st.arg(f.query.Number))
		}}, true, nil
	}
	if len(f.query.ExternalID) > 0 {
		return source{write: func(st *statement) {
			st.addf("SELECT id FROM tickets WHERE organization_id = $1 AND external_id = ANY(%s)", st.arg(f.query.ExternalID))
		}}, true, nil
	}
	var sources []source
	for _, w := range f.ways() {
		if w.words != nil {
			sources = append(sources, source{words: true, write: func(st *statement) {
				f.walk(st, w, f.first, f.last, true, max(limit, f.pace.words)+1)
			}})
			continue
		}
		sources = append(sources, source{write: func(st *statement) {
			st.WriteString("SELECT id FROM (")
			f.walk(st, w, f.first, f.last, true, limit+1)
			st.WriteString(") AS c")
		}})
	}
	if f.first > 1 || f.last < maxNumber {
		sources = append(sources, source{write: func(st *statement) {
			st.WriteString("SELECT id FROM (")
			f.walk(st, everything, f.first, f.last, true, limit+1)
			st.WriteString(") AS c")
		}})
	}
	if !f.query.UpdatedAt.Whole() {
		first, last := f.query.UpdatedAt.Micros()
		sources = append(sources, source{write: func(st *statement) {
			st.addf("SELECT id FROM tickets WHERE organization_id = $1 AND updated_at >= %s AND updated_at <= %s LIMIT %d",
				st.arg(first), st.arg(last), limit+1)
		}})
	}
	var best source
	fewest := max(limit, f.pace.words) + 1
	for _, src := range sources {
		st := f.begin()
		st.WriteString("SELECT count(*) FROM (")
		src.write(st)
		st.WriteString(") AS s")
		var n int
		if err := f.q.QueryRow(f.ctx, st.String(), st.args...).Scan(&n); err != nil {
			return source{}, false, err
		}
		if n < fewest && (src.words || n <= limit) {
			best, fewest = src, n
		}
	}
	return best, best.write != nil, nil
}

// priorityRank is the place of a ticket's priority among [Priorities].
const priorityRank = "CASE t.priority WHEN 'low' THEN 0 WHEN 'normal' THEN 1 WHEN 'high' THEN 2 ELSE 3 END"

// collectFew finds the page by sorting the smallest of the filters' sets. It
// reports false, and has found nothing more, when each has more than limit.
func (f *finder) collectFew(limit int) (bool, error) {
	src, ok, err := f.smallest(limit)
	if err != nil || !ok {
		return false, err
	}
	order, later := f.sort.direction()
	value, tie := "t.number", "t.number"
	switch f.sort.Member {
	case ByUpdatedAt:
		value, tie = "t.updated_at", "t.id"
	case ByPriority:
		value = priorityRank
	}
	must := f.words
	if must != nil && !must.postgres && !src.words {
		var n int
		count := f.begin()
		count.WriteString("SELECT count(*) FROM (")
		must.walk(count, f.first, f.last, order, f.pace.listed+1)
		count.WriteString(") AS d")
		if err := f.q.QueryRow(f.ctx, count.String(), count.args...).Scan(&n); err != nil {
			return false, err
		}
		must = new(*must)
		must.listed = n <= f.pace.listed
	}
	st := f.begin()
	st.addf("SELECT %s, t.number, t.id FROM (", value)
	if src.words {
		st.WriteString("SELECT DISTINCT number FROM (")
		src.write(st)
		st.addf(") AS w) AS s CROSS JOIN tickets t WHERE t.organization_id = $1 AND t.number = s.number AND coalesce(%s, FALSE)", f.tests(st, false, nil))
	} else {
		src.write(st)
		st.addf(") AS s CROSS JOIN tickets t WHERE t.id = s.id AND coalesce(%s, FALSE)", f.tests(st, false, must))
	}
	if after := f.query.After; after != nil {
		a, b, err := f.after(after)
		if err != nil {
			return false, err
		}
		st.addf(" AND coalesce((%s, %s) %s (%s, %s), FALSE)", value, tie, later, st.arg(a), st.arg(b))
	}
	st.addf(" ORDER BY 1 %s, %s %s LIMIT %d", order, tie, order, f.want)
	f.found, err = db.All(f.ctx, f.q, func(row db.Row) (c candidate, err error) {
		err = row.Scan(&c.value, &c.tie, &c.id)
		return c, err
	}, st.String(), st.args...)
	return true, err
}

// after is a position's value and tie, as they compare.
func (f *finder) after(p *Position) (value int64, tie any, err error) {
	if f.sort.Member == ByPriority {
		i := slices.Index(Priorities[:], Priority(p.Value))
		n, err := (&Position{Value: p.ID}).integer()
		if i < 0 || err != nil {
			return 0, nil, problem.New(problem.Invalid, "the position is not one of this list")
		}
		return int64(i), n, nil
	}
	n, err := p.integer()
	if err != nil {
		return 0, nil, err
	}
	if f.sort.Member == ByUpdatedAt {
		return n, p.ID, nil
	}
	return n, n, nil
}

// byPriority finds tickets of one priority after the other, unless they are few.
func (f *finder) byPriority() error {
	if done, err := f.collectFew(f.pace.few); err != nil || done {
		return err
	}
	if !f.query.UpdatedAt.Whole() {
		// No index has these in any order of use here.
		if done, err := f.collectFew(f.pace.collect); err != nil || done {
			return err
		}
	}
	order := []int64{0, 1, 2, 3}
	if f.sort.Descending {
		slices.Reverse(order)
	}
	begin, from, to := order[0], f.first, f.last
	if after := f.query.After; after != nil {
		value, tie, err := f.after(after)
		if err != nil {
			return err
		}
		begin = value
		if number := tie.(int64); f.sort.Descending {
			to = min(to, number-1)
		} else {
			from = max(from, number+1)
		}
	}
	wanted := f.query.Priority
	for _, p := range order[slices.Index(order, begin):] {
		if len(wanted) == 0 || slices.Contains(wanted, Priorities[p]) {
			one := *f.query
			one.Priority = []Priority{Priorities[p]}
			part := *f
			part.query = &one
			if err := part.walkNumbers(from, to, f.sort.Descending, p); err != nil {
				return err
			}
			f.found = part.found
		}
		if len(f.found) == f.want {
			break
		}
		from, to = f.first, f.last
	}
	return nil
}

// byUpdate finds tickets in the order of their changes: by sorting a filter's
// set, where that is small, and else by walking all, with what filters look at in
// the index.
func (f *finder) byUpdate() error {
	if done, err := f.collectFew(f.pace.few); err != nil || done {
		return err
	}
	order, later := f.sort.direction()
	first, last := f.query.UpdatedAt.Micros()
	value, id := first, ""
	if f.sort.Descending {
		value, id = last, "~" // after every id
	}
	if f.query.After != nil {
		n, tie, err := f.after(f.query.After)
		if err != nil {
			return err
		}
		value, id = n, tie.(string)
	}
	total, tried := 0, false
	for chunk := f.pace.first; len(f.found) < f.want; chunk = min(4*chunk, f.pace.last) {
		st := f.begin()
		st.WriteString("SELECT t.updated_at, t.id, CASE WHEN ")
		st.WriteString(f.tests(st, true, f.words))
		st.WriteString(" THEN 1 ELSE 0 END FROM (SELECT updated_at, id, number, status, priority, channel, assignee_id FROM tickets WHERE organization_id = $1")
		st.addf(" AND (updated_at, id) %s (%s, %s) AND updated_at >= %s AND updated_at <= %s ORDER BY updated_at %s, id %s LIMIT %d) AS t ORDER BY t.updated_at %s, t.id %s",
			later, st.arg(value), st.arg(id), st.arg(first), st.arg(last), order, order, chunk, order, order)
		passed := 0
		rows, err := f.q.Query(f.ctx, st.String(), st.args...)
		if err != nil {
			return err
		}
		for rows.Next() && len(f.found) < f.want {
			var in int64
			if err := rows.Scan(&value, &id, &in); err != nil {
				rows.Close()
				return err
			}
			passed++
			if in == 1 {
				f.found = append(f.found, candidate{id: id, value: value})
			}
		}
		rows.Close()
		if err := rows.Err(); err != nil {
			return err
		}
		if passed < chunk {
			return nil
		}
		if total += passed; total > f.pace.passed && !tried {
			tried = true
			if done, err := f.collectFew(f.pace.collect); err != nil || done {
				return err
			}
		}
	}
	return nil
}
