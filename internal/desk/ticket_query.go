package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// The sort fields of lists.
const (
	ByCreatedAt = "created_at"
	ByUpdatedAt = "updated_at"
	ByPriority  = "priority" // low before urgent
	ByNumber    = "number"
	ByDueAt     = "due_at" // only tickets with a due time
	ByName      = "name"   // in lower case; nameless records come last
)

// byDefault returns the sort of a list: newest first for the zero value.
func byDefault(s keyset.Sort) keyset.Sort {
	if s.Field == "" {
		return keyset.Sort{Field: ByCreatedAt, Descending: true}
	}
	return s
}

// TicketQuery describes a list of tickets. A field with several values matches any
// of them; an empty field does not restrict the list.
type TicketQuery struct {
	Status     []Status
	Priority   []Priority
	AssigneeID []string // an empty value selects unassigned tickets
	CustomerID []string
	Channel    []string
	Tags       []string
	Number     []int64
	ExternalID []string
	CreatedAt  period.Range
	UpdatedAt  period.Range
	Text       string      // full-text search of subjects and messages, see the package comment
	Sort       keyset.Sort // by created_at, updated_at, priority, number or due_at
	After      *keyset.Cursor
	Limit      int // 0: 30; at most 200
}

// Check implements [problem.Checker].
func (q TicketQuery) Check(v *problem.Validation) {
	for _, s := range q.Status {
		checkStatus(v, s)
	}
	for _, p := range q.Priority {
		checkPriority(v, p)
	}
	keyset.CheckValues(v, "status", q.Status)
	keyset.CheckValues(v, "priority", q.Priority)
	keyset.CheckValues(v, "assignee_id", q.AssigneeID)
	keyset.CheckValues(v, "customer_id", q.CustomerID)
	keyset.CheckValues(v, "channel", q.Channel)
	keyset.CheckValues(v, "tags", q.Tags)
	keyset.CheckValues(v, "external_id", q.ExternalID)
	if len(q.Number) > keyset.MaxValues {
		v.Add("number", "must have at most %d values", keyset.MaxValues)
	}
	v.Length("q", q.Text, 0, maxSubject)
	keyset.CheckPage(v, q.Sort, q.After, q.Limit, maxPage, ByCreatedAt, ByUpdatedAt, ByPriority, ByNumber, ByDueAt)
}

// FindTickets returns a page of tickets, and the cursor of the next page; nil after
// the last. A page is consistent. A ticket that matches while all pages are read is
// on exactly one of them, unless its sort value changes: then its position does
// too. Error: Invalid.
func (s *Service) FindTickets(ctx context.Context, q db.Querier, organizationID string, query TicketQuery) ([]Ticket, *keyset.Cursor, error) {
	if err := problem.Check(query); err != nil {
		return nil, nil, err
	}
	query.Limit = cmp.Or(query.Limit, defaultPage)
	return findPage(ctx, s, q, "tickets", func(q db.Querier) ([]Ticket, *keyset.Cursor, error) {
		return s.findTickets(ctx, q, organizationID, &query)
	})
}

// defaultPage is the default page size of lists.
const defaultPage = 30

// findPage reads a page in the snapshot of q, or in a new one. The name of the records is for
// errors.
func findPage[T any](ctx context.Context, s *Service, q db.Querier, records string, page func(q db.Querier) ([]T, *keyset.Cursor, error)) (list []T, next *keyset.Cursor, err error) {
	err = s.snapshot(ctx, q, func(q db.Querier) (err error) {
		list, next, err = page(q)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("find %s: %w", records, err)
	}
	return list, next, nil
}

// EachTicket calls fn with each ticket of a list, in order, from one snapshot. It
// ignores query.After and query.Limit, and stops at the first error of fn, which it
// returns. It runs for at most [keyset.MaxExport].
func (s *Service) EachTicket(ctx context.Context, organizationID string, query TicketQuery, fn func(*Ticket) error) error {
	query.After, query.Limit = nil, 0
	if err := problem.Check(query); err != nil {
		return err
	}
	query.Limit = keyset.ExportPage
	return s.export(ctx, func(ctx context.Context, q db.Querier) error {
		return keyset.EachPage("tickets", fn, func(after *keyset.Cursor) ([]Ticket, *keyset.Cursor, error) {
			query.After = after
			return s.findTickets(ctx, q, organizationID, &query)
		})
	})
}

// export is [keyset.Export] with the planner of lists.
func (s *Service) export(ctx context.Context, fn func(ctx context.Context, q db.Querier) error) error {
	return keyset.Export(ctx, s.db, func(ctx context.Context, tx *db.Tx) error {
		return s.snapshot(ctx, tx, func(q db.Querier) error { return fn(ctx, q) })
	})
}

// snapshot runs fn in q's snapshot, or in a new one if q has none.
func (s *Service) snapshot(ctx context.Context, q db.Querier, fn func(q db.Querier) error) error {
	return keyset.Snapshot(ctx, s.db, q, keyset.ByIndexes, fn)
}

// budget holds the sizes of the steps of a list. Each step takes at most some
// milliseconds.
type budget struct {
	smallSet       int // sets of at most so many rows are read and sorted at once
	probe          int // rows read ahead to compare access paths
	minChunk       int // rows examined in the first step
	maxChunk       int // rows examined in later steps
	wordChunk      int // rows examined per step if each needs a full-text check
	sortAfter      int // rows examined before a list sorts all tickets that are not closed
	intersectAfter int // rows examined before a list intersects larger sets
	largeSet       int // size of such sets
	largeSort      int // rows sorted then
	documents      int // documents read for a search
	indexEntries   int // index entries sorted at once
	openTickets    int // open tickets examined by counts
}

func defaultBudget(postgres bool) budget {
	words := 40_000
	if postgres {
		words = 20_000
	}
	return budget{smallSet: 1500, probe: 200, minChunk: 64, maxChunk: 1024, wordChunk: 256, sortAfter: 1000, intersectAfter: 6000, largeSet: 50_000, largeSort: 10_000, documents: words, indexEntries: 20_000, openTickets: 20_000}
}

// accessPath is an index scan that yields the tickets of a filter by number.
type accessPath struct {
	from   string     // table and condition; %s stands for a key
	keys   []any      // one scan each
	unique bool       // no ticket is in two scans
	words  *wordQuery // instead of the rest: documents that match a search
}

// updatedAt writes the condition on updated_at.
func (f *ticketFinder) updatedAt(st *keyset.Statement) string {
	first, last := f.query.UpdatedAt.Micros()
	return fmt.Sprintf("updated_at BETWEEN %s AND %s", st.Arg(first), st.Arg(last))
}

// candidate is a row of the page.
type candidate struct {
	id    string
	value int64 // the sort key: number, updated_at, due_at or the priority's rank
	tie   int64 // the number, for ties of priority
}

// ticketFinder finds the tickets of one page.
type ticketFinder struct {
	ctx          context.Context
	q            db.Querier
	postgres     bool
	budget       budget
	organization string
	query        *TicketQuery
	sort         keyset.Sort
	words        *wordQuery // of query.Text; nil if it is empty
	first, last  int64      // bounds of the numbers, from created_at; inclusive
	allowed      []int64    // the only numbers that may match, ascending; nil: not restricted
	wordsChecked bool       // all allowed numbers match the search
	priority     Priority   // the priority of the present scan; empty: any
	scanned      int        // rows examined
	intersected  bool       // larger sets were intersected
	want         int
	found        []candidate
}

func (s *Service) findTickets(ctx context.Context, q db.Querier, organizationID string, query *TicketQuery) ([]Ticket, *keyset.Cursor, error) {
	f := ticketFinder{
		ctx: ctx, q: q, postgres: s.db.Postgres(), budget: s.budget, organization: organizationID, query: query, sort: byDefault(query.Sort),
		first: 1, last: maxNumber, want: query.Limit + 1,
	}
	if some, err := f.readWords(); err != nil || !some {
		return nil, nil, err
	}
	some, err := f.bounds()
	if err != nil || !some {
		return nil, nil, err
	}
	switch f.sort.Field {
	case ByUpdatedAt, ByDueAt:
		err = f.byTime()
	case ByPriority:
		err = f.byPriority()
	default:
		err = f.byNumber(query.After)
	}
	if err != nil {
		return nil, nil, err
	}
	var next *keyset.Cursor
	f.found, next = keyset.TrimPage(f.found, query.Limit, f.cursorAfter)
	tickets, err := f.loadTickets()
	return tickets, next, err
}

// maxNumber exceeds every ticket number.
const maxNumber = 1<<numberBits - 1

// cursorAfter returns the cursor after c.
func (f *ticketFinder) cursorAfter(c *candidate) *keyset.Cursor {
	switch f.sort.Field {
	case ByUpdatedAt, ByDueAt:
		return &keyset.Cursor{Value: strconv.FormatInt(c.value, 10), ID: c.id}
	case ByPriority:
		return &keyset.Cursor{Value: string(Priorities[c.value]), ID: strconv.FormatInt(c.tie, 10)}
	default:
		return &keyset.Cursor{Value: strconv.FormatInt(c.value, 10)}
	}
}

// loadTickets reads the tickets that were found.
func (f *ticketFinder) loadTickets() ([]Ticket, error) {
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

// bounds derives the range of numbers from created_at. It returns false if the list
// is empty.
func (f *ticketFinder) bounds() (bool, error) {
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

// accessPaths returns an access path for each filter that has an index.
func (f *ticketFinder) accessPaths() []accessPath {
	q := f.query
	var paths []accessPath
	if len(q.CustomerID) > 0 {
		paths = append(paths, accessPath{from: "tickets WHERE coalesce(organization_id = $1, FALSE) AND customer_id = %s", keys: distinctArgs(q.CustomerID), unique: true})
	}
	if len(q.AssigneeID) > 0 {
		paths = append(paths, accessPath{from: "tickets WHERE organization_id = $1 AND assignee_id = %s", keys: distinctArgs(q.AssigneeID), unique: true})
	}
	if len(q.Tags) > 0 {
		paths = append(paths, accessPath{from: "ticket_tags WHERE organization_id = $1 AND tag = %s", keys: distinctArgs(q.Tags), unique: len(q.Tags) == 1})
	}
	if len(q.Status) > 0 {
		paths = append(paths, accessPath{from: "tickets WHERE organization_id = $1 AND status = %s", keys: distinctArgs(q.Status), unique: true})
	}
	if wanted := f.priorities(); len(wanted) > 0 && !slices.Contains(wanted, PriorityNormal) {
		paths = append(paths, accessPath{from: "tickets WHERE organization_id = $1 AND priority = %s AND priority <> 'normal'", keys: distinctArgs(wanted), unique: true})
	}
	if len(q.Channel) > 0 {
		paths = append(paths, accessPath{from: "tickets WHERE organization_id = $1 AND channel = %s", keys: distinctArgs(q.Channel), unique: true})
	}
	if f.words != nil {
		paths = append(paths, accessPath{words: f.words})
	}
	return paths
}

// priorities returns the priorities of the present scan; none means any.
func (f *ticketFinder) priorities() []Priority {
	if f.priority != "" {
		return []Priority{f.priority}
	}
	return f.query.Priority
}

// allTickets is the access path of all tickets.
var allTickets = accessPath{from: "tickets WHERE organization_id = $1", keys: []any{nil}, unique: true}

// distinctArgs returns the distinct values of a filter as arguments; nil for an empty
// value.
func distinctArgs[T ~string](list []T) []any {
	set := slices.Clone(list)
	slices.Sort(set)
	var out []any
	for _, v := range slices.Compact(set) {
		out = append(out, db.Text(string(v)))
	}
	return out
}

// scanQuery writes a query for the next numbers and ids of w, in order.
func (f *ticketFinder) scanQuery(st *keyset.Statement, w accessPath, from, to int64, descending bool, limit int) {
	order, _ := keyset.Sort{Descending: descending}.SQL()
	id := "id"
	if strings.HasPrefix(w.from, "ticket_tags") {
		id = "ticket_id AS id"
	}
	if w.words != nil {
		w.words.scanQuery(st, from, to, order, limit)
		return
	}
	low, high := st.Arg(from), st.Arg(to)
	for i, v := range w.keys {
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
				part = fmt.Sprintf(part, st.Arg(v))
			}
		}
		st.Addf("SELECT * FROM (SELECT number, %s FROM %s AND number >= %s AND number <= %s ORDER BY number %s LIMIT %d) AS w%d",
			id, part, low, high, order, limit, i)
	}
	if len(w.keys) > 1 {
		st.Addf(" ORDER BY number %s LIMIT %d", order, limit)
	}
}

// newStatement starts a statement with the organization as $1.
func (f *ticketFinder) newStatement() *keyset.Statement {
	return &keyset.Statement{Args: []any{f.organization}}
}

// predicate writes the filters for t, a row of tickets or an index entry. For an
// entry, columns that it lacks are looked up last; a search is always last.
func (f *ticketFinder) predicate(st *keyset.Statement, entry bool) string {
	return f.entryPredicate(st) + " AND " + f.rowPredicate(st, entry) + " AND " + f.wordPredicate(st)
}

// wordPredicate is the part of the predicate for the search.
func (f *ticketFinder) wordPredicate(st *keyset.Statement) string {
	if f.words == nil || f.wordsChecked {
		return "TRUE"
	}
	return f.words.ticketCondition(st)
}

// entryPredicate is the part of the predicate that an index entry can answer.
func (f *ticketFinder) entryPredicate(st *keyset.Statement) string {
	q := f.query
	tests := []string{"TRUE"}
	addf := func(format string, args ...any) { tests = append(tests, fmt.Sprintf(format, args...)) }
	if len(q.Status) > 0 {
		addf("t.status IN (%s)", keyset.Placeholders(st, q.Status))
	}
	if wanted := f.priorities(); len(wanted) > 0 {
		addf("t.priority IN (%s)", keyset.Placeholders(st, wanted))
	}
	if len(q.Channel) > 0 {
		addf("t.channel IN (%s)", keyset.Placeholders(st, q.Channel))
	}
	if len(q.AssigneeID) > 0 {
		addf("coalesce(t.assignee_id, '') IN (%s)", keyset.Placeholders(st, q.AssigneeID))
	}
	if len(q.Number) > 0 {
		addf("t.number = ANY(%s)", st.Arg(q.Number))
	}
	if f.first > 1 {
		addf("t.number >= %s", st.Arg(f.first))
	}
	if f.last < maxNumber {
		addf("t.number <= %s", st.Arg(f.last))
	}
	if !q.UpdatedAt.Whole() {
		addf("t.%s", f.updatedAt(st))
	}
	return strings.Join(tests, " AND ")
}

// rowPredicate is the part of the predicate that needs the row.
func (f *ticketFinder) rowPredicate(st *keyset.Statement, entry bool) string {
	q := f.query
	tests := []string{"TRUE"}
	addf := func(format string, args ...any) { tests = append(tests, fmt.Sprintf(format, args...)) }
	if len(q.ExternalID) > 0 && entry {
		addf("EXISTS (SELECT 1 FROM tickets c WHERE c.id = t.id AND c.external_id = ANY(%s))", st.Arg(q.ExternalID))
	} else if len(q.ExternalID) > 0 {
		addf("t.external_id = ANY(%s)", st.Arg(q.ExternalID))
	}
	if len(q.Tags) > 0 {
		addf("EXISTS (SELECT 1 FROM ticket_tags g WHERE g.organization_id = $1 AND g.tag IN (%s) AND g.number = t.number)", keyset.Placeholders(st, q.Tags))
	}
	if len(q.CustomerID) > 0 && entry {
		addf("EXISTS (SELECT 1 FROM tickets c WHERE c.id = t.id AND c.customer_id IN (%s))", keyset.Placeholders(st, q.CustomerID))
	} else if len(q.CustomerID) > 0 {
		addf("t.customer_id IN (%s)", keyset.Placeholders(st, q.CustomerID))
	}
	return strings.Join(tests, " AND ")
}

// mostSelective returns the access path with the fewest rows just ahead of a
// number.
func (f *ticketFinder) mostSelective(paths []accessPath, from, to int64, descending bool) (accessPath, error) {
	if len(paths) == 1 {
		return paths[0], nil
	}
	var best accessPath
	var most float64
	for _, w := range paths {
		st := f.newStatement()
		st.WriteString("SELECT count(*), coalesce(min(number), 0), coalesce(max(number), 0) FROM (")
		f.scanQuery(st, w, from, to, descending, f.budget.probe)
		st.WriteString(") AS p")
		var n, low, high int64
		if err := f.q.QueryRow(f.ctx, st.String(), st.Args...).Scan(&n, &low, &high); err != nil {
			return accessPath{}, err
		}
		var advance float64
		switch {
		case n < int64(f.budget.probe):
			advance = 1e12 - float64(n) // the scan ends within the probe
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

// setLimit returns the size of sets to read at once. Searches are slow row by row,
// so for them the limit is higher.
func (f *ticketFinder) setLimit() int {
	if f.words != nil {
		return f.budget.indexEntries
	}
	return f.budget.smallSet
}

// byNumber finds tickets in the order of their numbers: by scanning the most
// selective access path and testing each row.
func (f *ticketFinder) byNumber(after *keyset.Cursor) error {
	from, to := f.first, f.last
	if after != nil {
		n, err := after.Integer()
		if err != nil {
			return err
		}
		if f.sort.Descending {
			to = min(to, n-1)
		} else {
			from = max(from, n+1)
		}
	}
	if f.hasRowFilters() || f.words != nil && len(f.accessPaths()) > 1 {
		if done, err := f.intersect(f.setLimit()); err != nil || done {
			return err
		}
	}
	if !f.query.UpdatedAt.Whole() {
		if done, err := f.sortEntries(); err != nil || done {
			return err
		}
	}
	_, err := f.scanNumbers(from, to, f.sort.Descending, 0)
	return err
}

// hasRowFilters reports whether the list has filters by number, external id or time of
// change, which no access path serves.
func (f *ticketFinder) hasRowFilters() bool {
	return len(f.query.Number) > 0 || len(f.query.ExternalID) > 0 || !f.query.UpdatedAt.Whole()
}

// scanNumbers adds the matching tickets between two numbers. rank is the sort key
// of the priority scanned. It returns true if intersect or a sort has completed the
// page instead.
func (f *ticketFinder) scanNumbers(from, to int64, descending bool, rank int64) (bool, error) {
	paths, tested := f.scanPaths()
	for chunk := f.budget.minChunk; len(f.found) < f.want && from <= to; chunk = min(4*chunk, f.budget.maxChunk) {
		if !tested && f.allowed == nil {
			chunk = f.want - len(f.found)
		}
		w, err := f.mostSelective(paths, from, to, descending)
		if err != nil {
			return false, err
		}
		if f.words != nil && !f.wordsChecked && w.words == nil {
			chunk = min(chunk, f.budget.wordChunk)
		}
		st := f.chunkQuery(w, from, to, descending, chunk, tested)
		n, err := f.readCandidates(st, rank, func(number int64) {
			if descending {
				to = number - 1
			} else {
				from = number + 1
			}
		})
		if err != nil || n < chunk {
			return false, err
		}
		if done, err := f.countScanned(n); err != nil || done {
			return done, err
		}
	}
	return false, nil
}

// scanPaths returns the access paths of a scan by number, at least one. tested reports
// whether rows of a path may not match, so that each must be tested.
func (f *ticketFinder) scanPaths() (paths []accessPath, tested bool) {
	paths = f.accessPaths()
	if f.words != nil && len(paths) > 1 && (f.wordsChecked || f.postgres) {
		paths = paths[:len(paths)-1] // on PostgreSQL the scan of a search is slow
	}
	if len(paths) == 0 {
		return []accessPath{allTickets}, f.hasRowFilters() || len(f.priorities()) > 0
	}
	return paths, len(paths) > 1 || f.hasRowFilters() || f.words != nil || slices.Contains(f.priorities(), PriorityNormal)
}

// chunkQuery returns a query of number, id and match flag for the next rows of an access
// path.
func (f *ticketFinder) chunkQuery(w accessPath, from, to int64, descending bool, chunk int, tested bool) *keyset.Statement {
	st := f.newStatement()
	if tested {
		checked := f.wordsChecked
		f.wordsChecked = checked || w.words != nil // these rows match the search
		st.WriteString("SELECT d.number, coalesce(t.id, d.id), CASE WHEN t.id IS NOT NULL AND ")
		st.WriteString(f.predicate(st, false))
		st.WriteString(" THEN 1 ELSE 0 END FROM (")
		f.wordsChecked = checked
	} else {
		st.WriteString("SELECT d.number, d.id, 1 FROM (")
	}
	f.scanQuery(st, w, from, to, descending, chunk)
	st.WriteString(") AS d")
	switch {
	case w.words != nil:
		st.WriteString(" LEFT JOIN tickets t ON t.organization_id = $1 AND t.number = d.number")
	case tested:
		st.WriteString(" LEFT JOIN tickets t ON t.id = d.id")
	}
	order, _ := keyset.Sort{Descending: descending}.SQL()
	st.Addf(" ORDER BY d.number %s", order)
	return st
}

// countScanned adds n to the rows examined. Past the budget it intersects larger
// sets, once, and returns true if that completed the page.
func (f *ticketFinder) countScanned(n int) (bool, error) {
	if f.scanned += n; f.scanned <= f.budget.intersectAfter || f.intersected || len(f.found) >= f.want {
		return false, nil
	}
	f.intersected = true
	return f.intersect(f.budget.largeSet)
}

// readCandidates runs a query of number, id and match flag, and adds matching rows.
// It calls seen with each number, and returns the number of rows.
func (f *ticketFinder) readCandidates(st *keyset.Statement, rank int64, seen func(number int64)) (int, error) {
	rows, err := f.q.Query(f.ctx, st.String(), st.Args...)
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
		if in == 0 || c.value == last || !f.isAllowed(c.value) {
			continue
		}
		last = c.value
		if f.sort.Field == ByPriority {
			c.value, c.tie = rank, c.value
		}
		if f.found = append(f.found, c); len(f.found) == f.want {
			break
		}
	}
	return n, rows.Err()
}

// isAllowed reports whether the page may have a ticket.
func (f *ticketFinder) isAllowed(number int64) bool {
	if f.allowed == nil {
		return true
	}
	_, found := slices.BinarySearch(f.allowed, number)
	return found
}

// readNumbers reads the set of numbers that write selects, in order; false if it
// exceeds limit. The engine aggregates into one text: reading rows would cost
// several times as much.
func (f *ticketFinder) readNumbers(limit int, write func(st *keyset.Statement)) ([]int64, bool, error) {
	st := f.newStatement()
	st.WriteString("SELECT count(*), coalesce(string_agg(CAST(number AS TEXT), ','), '') FROM (")
	write(st)
	st.WriteString(") AS s")
	var n int
	var text string
	if err := f.q.QueryRow(f.ctx, st.String(), st.Args...).Scan(&n, &text); err != nil || n > limit {
		return nil, false, err
	}
	numbers := make([]int64, 0, n)
	for item := range strings.SplitSeq(text, ",") {
		if number, err := strconv.ParseInt(item, 10, 64); err == nil {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers), true, nil
}

// intersect reads the filters' sets, each up to limit, and intersects them. A small
// intersection is sorted, which completes the page; then it returns true.
func (f *ticketFinder) intersect(limit int) (bool, error) {
	priority := f.priority
	f.priority = ""
	if err := f.intersectFilters(limit); err != nil {
		return false, err
	}
	if err := f.intersectSearch(); err != nil {
		return false, err
	}
	most := f.budget.smallSet
	if f.intersected {
		most = f.budget.largeSort
	}
	if f.allowed == nil || len(f.allowed) > most {
		f.priority = priority
		return false, nil
	}
	return true, f.sortCandidates(func(st *keyset.Statement) string {
		return "unnest(" + st.Arg(f.allowed) + "::bigint[]) AS l(value) CROSS JOIN tickets t WHERE t.organization_id = $1 AND t.number = l.value"
	}, false)
}

// intersectFilters restricts the numbers by the sets of the filters, except the search.
func (f *ticketFinder) intersectFilters(limit int) error {
	q := f.query
	if len(q.Number) > 0 {
		f.restrict(slices.Compact(slices.Sorted(slices.Values(q.Number))))
	}
	if len(q.ExternalID) > 0 {
		if err := f.restrictTo(keyset.MaxValues, func(st *keyset.Statement) {
			st.Addf("SELECT number FROM tickets WHERE organization_id = $1 AND external_id = ANY(%s)", st.Arg(q.ExternalID))
		}); err != nil {
			return err
		}
	}
	paths := f.accessPaths()
	if f.first > 1 || f.last < maxNumber {
		paths = slices.Insert(paths, 0, allTickets)
	}
	for _, w := range paths {
		if w.words != nil {
			continue
		}
		if err := f.restrictTo(limit, func(st *keyset.Statement) { f.scanQuery(st, w, f.first, f.last, false, limit+1) }); err != nil {
			return err
		}
	}
	if q.UpdatedAt.Whole() {
		return nil
	}
	return f.restrictTo(limit, func(st *keyset.Statement) {
		st.Addf("SELECT number FROM tickets WHERE organization_id = $1 AND %s LIMIT %d", f.updatedAt(st), limit+1)
	})
}

// intersectSearch restricts the numbers by the search, unless they are few already or the
// search matches too many documents.
func (f *ticketFinder) intersectSearch() error {
	if f.words == nil || f.wordsChecked || f.allowed != nil && len(f.allowed) <= f.budget.smallSet/3 {
		return nil
	}
	list, ok, err := f.readDocuments(f.budget.documents)
	if err != nil {
		return err
	}
	if f.wordsChecked = ok; ok {
		f.restrict(list)
	}
	return nil
}

// restrictTo restricts the numbers to those that write selects, unless they exceed limit.
func (f *ticketFinder) restrictTo(limit int, write func(st *keyset.Statement)) error {
	list, ok, err := f.readNumbers(limit, write)
	if ok {
		f.restrict(list)
	}
	return err
}

// restrict restricts the numbers to an ascending list.
func (f *ticketFinder) restrict(list []int64) {
	if f.allowed == nil {
		f.allowed = list
		return
	}
	f.allowed = slices.DeleteFunc(f.allowed, func(n int64) bool { _, found := slices.BinarySearch(list, n); return !found })
}

// priorityRank is the index of a ticket's priority in [Priorities].
const priorityRank = "CASE t.priority WHEN 'low' THEN 0 WHEN 'normal' THEN 1 WHEN 'high' THEN 2 ELSE 3 END"

// sortCandidates finds the page by sorting the rows or index entries t of from.
// Expensive conditions are evaluated last, for as many rows as needed.
func (f *ticketFinder) sortCandidates(from func(st *keyset.Statement) string, entry bool) error {
	order, later := f.sort.SQL()
	value, tie := "t.number", "t.number"
	switch f.sort.Field {
	case ByUpdatedAt:
		value, tie = "t.updated_at", "t.id"
	case ByDueAt:
		value, tie = "t.due_at", "t.id"
	case ByPriority:
		value = priorityRank
	}
	st := f.newStatement()
	st.Addf("SELECT t.rank, t.number, t.id FROM (SELECT %s AS rank, t.number, t.id FROM ", value)
	st.Addf("%s AND coalesce(%s, FALSE)", from(st), f.entryPredicate(st))
	if !entry {
		st.Addf(" AND coalesce(%s, FALSE)", f.rowPredicate(st, false))
	}
	if f.sort.Field == ByDueAt {
		st.WriteString(" AND coalesce(t.due_at, 0) > 0")
	}
	if after := f.query.After; after != nil {
		a, b, err := f.cursorValues(after)
		if err != nil {
			return err
		}
		st.Addf(" AND coalesce((%s, %s) %s (%s, %s), FALSE)", value, tie, later, st.Arg(a), st.Arg(b))
	}
	st.Addf(" ORDER BY 1 %s, %s %s LIMIT %d) AS t WHERE coalesce(%s, FALSE)", order, tie, order, maxNumber, f.wordPredicate(st))
	if entry {
		st.Addf(" AND coalesce(%s, FALSE)", f.rowPredicate(st, true))
	}
	f.found = nil
	return f.collect(st)
}

// excludesClosed reports whether the list has no closed tickets; a partial index
// has the rest.
func (f *ticketFinder) excludesClosed() bool {
	return len(f.query.Status) > 0 && !slices.Contains(f.query.Status, StatusClosed)
}

// sortEntries finds the page by sorting entries of an index that covers the
// filters, and reports whether they were few enough.
func (f *ticketFinder) sortEntries() (bool, error) {
	var froms []func(st *keyset.Statement) string
	if f.excludesClosed() {
		froms = append(froms, func(st *keyset.Statement) string {
			return "tickets t WHERE t.organization_id = $1 AND t.status <> 'closed' AND t.status IN (" + keyset.Placeholders(st, f.query.Status) + ")"
		})
	}
	if !f.query.UpdatedAt.Whole() {
		froms = append(froms, func(st *keyset.Statement) string {
			return "tickets t WHERE t.organization_id = $1 AND t." + f.updatedAt(st)
		})
	}
	for _, from := range froms {
		st := f.newStatement()
		st.Addf("SELECT count(*) FROM (SELECT 1 FROM %s LIMIT %d) AS c", from(st), f.budget.indexEntries+1)
		var n int
		if err := f.q.QueryRow(f.ctx, st.String(), st.Args...).Scan(&n); err != nil {
			return false, err
		}
		if n <= f.budget.indexEntries {
			return true, f.sortCandidates(from, true)
		}
	}
	return false, nil
}

// cursorValues returns the sort key and the tie of a cursor.
func (f *ticketFinder) cursorValues(p *keyset.Cursor) (value int64, tie any, err error) {
	if f.sort.Field == ByPriority {
		i := slices.Index(Priorities[:], Priority(p.Value))
		n, err := (&keyset.Cursor{Value: p.ID}).Integer()
		if i < 0 || err != nil {
			return 0, nil, keyset.ErrCursor
		}
		return int64(i), n, nil
	}
	n, err := p.Integer()
	if err != nil {
		return 0, nil, err
	}
	if f.sort.Field == ByUpdatedAt || f.sort.Field == ByDueAt {
		return n, p.ID, nil
	}
	return n, n, nil
}

// byPriority scans one priority after another, unless a set or the tickets that are
// not closed are few enough to sort.
func (f *ticketFinder) byPriority() error {
	if done, err := f.intersect(f.setLimit()); err != nil || done {
		return err
	}
	if done, err := f.sortEntries(); err != nil || done {
		return err
	}
	order := []int64{0, 1, 2, 3}
	if f.sort.Descending {
		slices.Reverse(order)
	}
	begin, from, to := order[0], f.first, f.last
	if after := f.query.After; after != nil {
		value, tie, err := f.cursorValues(after)
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
			f.priority = Priorities[p]
			if done, err := f.scanNumbers(from, to, f.sort.Descending, p); err != nil || done {
				return err
			}
		}
		if len(f.found) == f.want {
			break
		}
		from, to = f.first, f.last
	}
	return nil
}

// byTime finds tickets in the order of updated_at or due_at: it sorts a small set,
// else it scans an index of all tickets, or of those that are not closed, which
// covers most filters.
func (f *ticketFinder) byTime() error {
	if done, err := f.intersect(f.setLimit()); err != nil || done {
		return err
	}
	scan, err := f.newTimeScan()
	if err != nil {
		return err
	}
	sorted := f.sort.Field == ByDueAt
	for chunk := f.budget.minChunk; ; chunk = min(4*chunk, 4*f.budget.maxChunk) {
		if err := f.collect(scan.matches(chunk)); err != nil || len(f.found) == f.want {
			return err
		}
		// Few rows may match: then sorting all entries is faster.
		if f.scanned+chunk > f.budget.sortAfter && !sorted {
			sorted = true
			if done, err := f.sortEntries(); err != nil || done {
				return err
			}
		}
		if more, err := scan.skip(chunk); err != nil || !more {
			return err
		}
		if done, err := f.countScanned(chunk); err != nil || done {
			return err
		}
	}
}

// timeScan scans an index on updated_at or due_at.
type timeScan struct {
	*ticketFinder
	column   string   // the sort key; the name of the sort field
	entry    string   // the columns of the index, and others that filters need
	parts    []string // predicates of the scanned parts of the index
	from, to int64    // bounds of the sort key; inclusive
	value    int64    // the position: after this value and id
	id       string
}

func (f *ticketFinder) newTimeScan() (*timeScan, error) {
	s := &timeScan{ticketFinder: f, column: f.sort.Field, parts: []string{""}}
	s.entry = s.column + ", id, number, status, priority, channel, assignee_id"
	within := f.query.UpdatedAt
	switch {
	case f.sort.Field == ByDueAt:
		within = period.Range{}
		s.parts[0] = " AND due_at IS NOT NULL"
		if !f.query.UpdatedAt.Whole() {
			s.entry += ", updated_at" // not in the index
		}
	case f.excludesClosed():
		s.parts = nil
		for _, status := range slices.Compact(slices.Sorted(slices.Values(f.query.Status))) {
			s.parts = append(s.parts, " AND status <> 'closed' AND status = '"+string(status)+"'")
		}
	}
	s.from, s.to = within.Micros()
	s.value = s.from
	if f.sort.Descending {
		s.value, s.id = s.to, "~" // after every id
	}
	if f.query.After == nil {
		return s, nil
	}
	value, tie, err := f.cursorValues(f.query.After)
	if err != nil {
		return nil, err
	}
	s.value, s.id = value, tie.(string)
	return s, nil
}

// writeEntries writes a query for the next entries of the index.
func (s *timeScan) writeEntries(st *keyset.Statement, chunk int) {
	order, later := s.sort.SQL()
	// The range repeats the position, so that the engine starts the scan there.
	low, high := max(s.from, s.value), s.to
	if s.sort.Descending {
		low, high = s.from, min(s.to, s.value)
	}
	at := fmt.Sprintf("%s >= %s AND %s <= %s AND (%s, id) %s (%s, %s)",
		s.column, st.Arg(low), s.column, st.Arg(high), s.column, later, st.Arg(s.value), st.Arg(s.id))
	end := fmt.Sprintf("ORDER BY %s %s, id %s LIMIT %d", s.column, order, order, chunk)
	for i, part := range s.parts {
		if i > 0 {
			st.WriteString(" UNION ALL ")
		}
		st.Addf("SELECT * FROM (SELECT %s FROM tickets WHERE organization_id = $1%s AND %s %s) AS p%d", s.entry, part, at, end, i)
	}
	if len(s.parts) > 1 {
		st.WriteString(" " + end)
	}
}

// matches returns a query of the matches among the next entries, for [ticketFinder.collect].
func (s *timeScan) matches(chunk int) *keyset.Statement {
	order, _ := s.sort.SQL()
	st := s.newStatement()
	st.Addf("SELECT t.%s, t.number, t.id FROM (", s.column)
	s.writeEntries(st, chunk)
	st.Addf(") AS t WHERE coalesce(%s, FALSE) ORDER BY t.%s %s, t.id %s", s.predicate(st, true), s.column, order, order)
	return st
}

// skip moves the position to the last of the next entries; false if they are the last.
func (s *timeScan) skip(chunk int) (bool, error) {
	order, _ := s.sort.SQL()
	st := s.newStatement()
	st.Addf("SELECT t.%s, t.id FROM (", s.column)
	s.writeEntries(st, chunk)
	st.Addf(") AS t ORDER BY t.%s %s, t.id %s LIMIT 1 OFFSET %d", s.column, order, order, chunk-1)
	err := s.q.QueryRow(s.ctx, st.String(), st.Args...).Scan(&s.value, &s.id)
	if errors.Is(err, db.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// collect adds the rows of a query of sort key, number and id, up to the page size.
func (f *ticketFinder) collect(st *keyset.Statement) error {
	if f.allowed == nil {
		st.Addf(" LIMIT %d", f.want-len(f.found))
	}
	rows, err := f.q.Query(f.ctx, st.String(), st.Args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for len(f.found) < f.want && rows.Next() {
		var c candidate
		if err := rows.Scan(&c.value, &c.tie, &c.id); err != nil {
			return err
		}
		if f.isAllowed(c.tie) {
			f.found = append(f.found, c)
		}
	}
	return rows.Err()
}
