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
	Text       string // words and filters, see the package comment
	Reader     Reader // for whom filters of Text are read
	// Faults makes a list ignore the faulty filters of Text, which are described here; if nothing else is
	// in Text, it is empty. nil: they are an error.
	Faults *[]string
	Sort   keyset.Sort // by created_at, updated_at, priority, number or due_at
	After  *keyset.Cursor
	Limit  int // 0: 30; at most 200

	tagged  []tagFilter // beside Tags, all of them
	without without
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
	keyset.CheckPage(v, q.Sort, q.After, q.Limit, maxPage, TicketSorts...)
}

// FindTickets returns a page of tickets, and the cursor of the next page; nil after
// the last. A page is consistent. A ticket that matches while all pages are read is
// on exactly one of them, unless its sort value changes: then its position does
// too. Errors: Invalid; Precondition with code range_too_large for a list that exceeds the
// limits.
func (s *Service) FindTickets(ctx context.Context, q db.Querier, organizationID string, query TicketQuery) ([]Ticket, *keyset.Cursor, error) {
	if err := problem.Check(query); err != nil {
		return nil, nil, err
	}
	query.Limit = cmp.Or(query.Limit, defaultPage)
	return findPage(ctx, s, q, "tickets", func(q db.Querier) ([]Ticket, *keyset.Cursor, error) {
		return s.findTickets(ctx, q, organizationID, &query, false)
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
			return s.findTickets(ctx, q, organizationID, &query, true)
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

// limits bound the work of a page of a list, so that it takes at most some tens of milliseconds.
type limits struct {
	walk      int // index entries in the first step
	work      int // index entries walked in all steps, counted, or sorted
	documents int // documents of a search that are read before the tickets
	searched  int // tickets that are tested for a search one by one
	open      int // open tickets examined by counts
	customers int // customers sorted
	changes   int // of tickets since they were packed for reports, before these are packed again
}

var defaultLimits = limits{walk: 4000, work: 140_000, documents: 50_000, searched: 1000, open: 20_000, customers: 1500, changes: 1000}

// The costs of reading a row, of looking one up by its id for a test, and of looking up a tag, in index
// entries.
const (
	rowCost    = 12
	lookupCost = 20
	tagCost    = 2
)

// errTooBroad reports a list that exceeds the limits.
func errTooBroad() error {
	return &problem.Error{Kind: problem.Precondition, Code: "range_too_large",
		Message: "few of very many tickets match: add a range of created_at with fewer tickets, such as a month, or another filter"}
}

// candidate is a row of the page.
type candidate struct {
	id     string
	value  int64 // the sort key: number, created_at, updated_at, due_at or the priority's rank
	number int64
}

// ticketFinder finds the tickets of one page. It walks the index of the sort key, which has the
// columns that most filters test. If few entries match, it sorts the tickets of the filter with the fewest.
type ticketFinder struct {
	ctx          context.Context
	q            db.Querier
	postgres     bool
	limits       limits
	organization string
	query        *TicketQuery
	sort         keyset.Sort
	words        *wordQuery // of query.Text; nil if it is empty
	first, last  int64      // bounds of the numbers, from created_at; inclusive
	unordered    bool       // numbers and times of creation differ in their order
	value        int64      // of the cursor: see candidate
	tie          any        // of the cursor: a number or an id
	want         int
	found        []candidate
	searchDone   bool // the set has only tickets that match the search
	untested     bool // tickets may be missing: too many would have been tested for the search
}

// newFinder returns the finder of a page.
func (s *Service) newFinder(ctx context.Context, q db.Querier, organizationID string, query *TicketQuery) *ticketFinder {
	return &ticketFinder{
		ctx: ctx, q: q, postgres: s.db.Postgres(), limits: s.limits, organization: organizationID, query: query, sort: byDefault(query.Sort),
		first: 1, last: maxNumber, want: query.Limit + 1,
	}
}

// prepare reads the parts of the query. It returns false if nothing can match.
func (f *ticketFinder) prepare(s *Service) (some bool, err error) {
	if some, err := s.readFilters(f.ctx, f.q, f.organization, f.query); err != nil || !some {
		return false, err
	}
	if f.query.CustomerID, err = survivorIDs(f.ctx, f.q, f.organization, f.query.CustomerID); err != nil {
		return false, err
	}
	if err := f.readOrder(); err != nil {
		return false, err
	}
	if err := f.readCursor(); err != nil {
		return false, err
	}
	if some, err := f.bounds(); err != nil || !some {
		return false, err
	}
	return f.readWords()
}

// findTickets finds a page; without limits if it is of an export.
func (s *Service) findTickets(ctx context.Context, q db.Querier, organizationID string, query *TicketQuery, export bool) ([]Ticket, *keyset.Cursor, error) {
	f := s.newFinder(ctx, q, organizationID, query)
	if export {
		f.limits.walk, f.limits.work, f.limits.searched = 25*f.limits.walk, maxNumber, maxNumber
	}
	if some, err := f.prepare(s); err != nil || !some {
		return nil, nil, err
	}
	if err := f.find(); err != nil {
		return nil, nil, err
	}
	var next *keyset.Cursor
	f.found, next = keyset.TrimPage(f.found, query.Limit, f.cursorAfter)
	tickets, err := f.loadTickets()
	return tickets, next, err
}

// find finds the page. Steps of the walk grow, so that it costs at most a few times as much as the
// set would have, and conversely.
func (f *ticketFinder) find() error {
	walks, step, walked := f.walks(), f.limits.walk, 0
	narrow := f.isNarrow()
	if narrow {
		if f.words != nil && f.postgres {
			step = max(step, f.words.documents/2) // each statement reads them
		}
	} else {
		if done, err := f.walk(&walks, step); err != nil || done {
			return err
		}
		walked = step
	}
	set, cost, err := f.cheapestSet()
	if err != nil {
		return err
	}
	for !f.untested && walked < f.limits.work && (set == nil || !set.ordered || step == f.limits.walk && !narrow) {
		step = min(8*step, f.limits.work-walked)
		if walked += step; walked >= cost {
			break
		}
		if done, err := f.walk(&walks, step); err != nil || done {
			return err
		}
	}
	if set == nil {
		return errTooBroad()
	}
	f.found, f.untested = nil, false
	if set.ordered {
		return f.readOrdered(set, cost)
	}
	return f.sortSet(set, "")
}

// isNarrow reports whether a set is likely to be better than a short walk.
func (f *ticketFinder) isNarrow() bool {
	q := f.query
	return len(q.Number) > 0 || len(q.ExternalID) > 0 || len(q.CustomerID) > 0 || !q.UpdatedAt.Whole() && f.sort.Field != ByUpdatedAt ||
		f.words != nil && (f.words.documents <= f.limits.walk || f.postgres && !f.words.oneByOne && !f.byNumber())
}

// byNumber reports whether the list is in the order of the numbers.
func (f *ticketFinder) byNumber() bool {
	return f.sort.Field == ByCreatedAt && !f.unordered || f.sort.Field == ByNumber
}

// byTime reports whether the list is in the order of the times of creation, which is not that of
// the numbers.
func (f *ticketFinder) byTime() bool { return f.sort.Field == ByCreatedAt && f.unordered }

// readOrder reads whether imported tickets are out of order, if the list depends on it.
func (f *ticketFinder) readOrder() error {
	if !f.byNumber() && f.query.CreatedAt.Whole() {
		return nil
	}
	err := f.q.QueryRow(f.ctx, "SELECT unordered FROM ticket_numbers WHERE organization_id = $1", f.organization).Scan(&f.unordered)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	return err
}

// entryCost is the cost of testing an entry of the walked index, in entries that are tested
// within the index.
func (f *ticketFinder) entryCost() int {
	q := f.query
	switch {
	case len(q.CustomerID) > 0 || len(q.ExternalID) > 0 || !q.UpdatedAt.Whole() && f.sort.Field != ByUpdatedAt:
		return lookupCost
	case len(q.Tags) > 0 || len(q.tagged) > 0:
		return tagCost * max(1, len(q.tagged))
	default:
		return 1
	}
}

// maxNumber exceeds every ticket number.
const maxNumber = 1<<numberBits - 1

// cursorAfter returns the cursor after c.
func (f *ticketFinder) cursorAfter(c *candidate) *keyset.Cursor {
	switch f.sort.Field {
	case ByUpdatedAt, ByDueAt:
		return &keyset.Cursor{Value: strconv.FormatInt(c.value, 10), ID: c.id}
	case ByPriority:
		return &keyset.Cursor{Value: string(Priorities[c.value]), ID: strconv.FormatInt(c.number, 10)}
	case ByCreatedAt:
		if f.unordered {
			return &keyset.Cursor{Value: strconv.FormatInt(c.value, 10), ID: strconv.FormatInt(c.number, 10)}
		}
		fallthrough
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

// bounds derives the range of numbers from created_at, and from the cursor of a list by number. It
// returns false if the list is empty.
func (f *ticketFinder) bounds() (bool, error) {
	if f.query.After != nil && f.byNumber() {
		if f.sort.Descending {
			f.last = min(f.last, f.value-1)
		} else {
			f.first = max(f.first, f.value+1)
		}
	}
	r := f.query.CreatedAt
	if r.Whole() || f.unordered {
		return f.first <= f.last, nil
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
	f.first, f.last = max(f.first, *low), min(f.last, *high)
	return f.first <= f.last, nil
}

// indexWalk is a scan of an index in the order of the list.
type indexWalk struct {
	key       string   // the column that orders the entries: number, created_at, updated_at or due_at
	priority  Priority // of its entries; empty: all
	low, high int64    // bounds of the key; inclusive
	within    bool     // the position of the cursor is in the scan
}

// walks returns the scans that yield the list, one after another.
func (f *ticketFinder) walks() []indexWalk {
	switch after := f.query.After != nil; f.sort.Field {
	case ByUpdatedAt:
		w := indexWalk{key: ByUpdatedAt, within: after}
		w.low, w.high = f.query.UpdatedAt.Micros()
		return []indexWalk{w}
	case ByDueAt:
		w := indexWalk{key: ByDueAt, within: after}
		w.low, w.high = period.Range{}.Micros()
		return []indexWalk{w}
	case ByPriority:
		var list []indexWalk
		for rank, p := range Priorities {
			r := int64(rank)
			passed := after && (r < f.value && !f.sort.Descending || r > f.value && f.sort.Descending)
			if wanted := f.query.Priority; !passed && (len(wanted) == 0 || slices.Contains(wanted, p)) {
				list = append(list, indexWalk{key: ByNumber, priority: p, low: f.first, high: f.last, within: after && r == f.value})
			}
		}
		if f.sort.Descending {
			slices.Reverse(list)
		}
		return list
	case ByCreatedAt:
		if f.unordered {
			w := indexWalk{key: ByCreatedAt, within: f.query.After != nil}
			w.low, w.high = f.query.CreatedAt.Micros()
			return []indexWalk{w}
		}
	}
	w := indexWalk{key: ByNumber, low: f.first, high: f.last}
	if f.walksPriority() {
		w.priority = f.query.Priority[0]
	}
	return []indexWalk{w}
}

// walksPriority reports whether a list in the order of numbers walks the index of priorities, for its only one. Not
// for a search, which reads the documents of all numbers between those that it scans.
func (f *ticketFinder) walksPriority() bool {
	return f.byNumber() && len(f.query.Priority) == 1 && f.words == nil
}

// walk continues the scans by at most about limit entries' worth of work, and removes the scanned
// ones. It returns true if the page is complete.
func (f *ticketFinder) walk(walks *[]indexWalk, limit int) (done bool, err error) {
	limit /= f.entryCost()
	for first := true; len(*walks) > 0 && limit > 0; first = false {
		if f.readsDocuments() {
			n, more, err := f.walkDocuments(&(*walks)[0], limit)
			switch {
			case err != nil:
				return false, err
			case len(f.found) == f.want:
				return true, nil
			case more:
				return false, nil
			}
			*walks, limit = (*walks)[1:], limit-n
			continue
		}
		w := (*walks)[0]
		byNumbers := first && w.key == ByNumber && w.priority == ""
		rest, divided, err := f.shorten(&w, limit, byNumbers)
		if err != nil {
			return false, err
		}
		err = f.read(func(st *keyset.Statement) string { return "tickets t WHERE " + f.indexRange(st, w) }, f.order(&w), &w)
		switch {
		case err != nil || f.untested:
			return false, err
		case len(f.found) == f.want:
			return true, nil
		case divided:
			(*walks)[0] = rest
			if !byNumbers {
				return false, nil
			}
		default:
			*walks = (*walks)[1:]
		}
		if len(*walks) > 0 {
			n, err := f.entries(&w, limit+1)
			if err != nil {
				return false, err
			}
			limit -= n
		}
	}
	return len(*walks) == 0, nil
}

// readsDocuments reports whether the walk tests its entries for the search here, with the documents of all scans: SQLite
// takes three times as long for an entry. In the order of numbers it is enough to read the documents of the scanned ones.
func (f *ticketFinder) readsDocuments() bool {
	return f.words != nil && !f.words.oneByOne && !f.postgres && !f.byNumber()
}

// walkDocuments continues one scan by about limit entries, and shortens it by them. It returns how many there
// were, and whether there are more.
func (f *ticketFinder) walkDocuments(w *indexWalk, limit int) (entries int, more bool, err error) {
	documented, err := f.words.readTickets(f.ctx, f.q)
	if err != nil {
		return 0, false, err
	}
	f.searchDone = true // for the predicate
	defer func() { f.searchDone = false }()
	value, tie := f.walkKey(w)
	st := f.newStatement()
	st.Addf("SELECT t.%s, CASE WHEN %s%s THEN t.number ELSE 0 END", w.key, f.predicate(st, w), f.afterCursor(st, value, tie))
	st.Addf(" FROM tickets t WHERE %s ORDER BY %s", f.indexRange(st, *w), f.order(w))
	rows, err := f.q.Query(f.ctx, st.String(), st.Args...)
	if err != nil {
		return 0, false, err
	}
	defer rows.Close()
	var numbers []int64
	var key, number, last int64 // number 0: it does not match; last: key
	into := []any{&key, &number}
	for len(f.found)+len(numbers) < f.want && rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return 0, false, err
		}
		if more = entries >= limit && key != last; more {
			break
		}
		if _, ok := documented[number]; ok {
			numbers = append(numbers, number)
		}
		entries, last = entries+1, key
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return 0, false, err
	}
	if more {
		w.passed(last, f.sort.Descending)
	}
	if len(numbers) == 0 {
		return entries, more, nil
	}
	return entries, more, f.readNumbers(numbers, value)
}

// passed shortens the scan by its entries up to a key.
func (w *indexWalk) passed(key int64, descending bool) {
	w.within = false
	if descending {
		w.high = key - 1
	} else {
		w.low = key + 1
	}
}

// shorten divides a scan of more than limit entries after about the limit. It returns false if the
// scan has no more. byNumbers divides one of numbers by them instead of a count of its entries, which
// are fewer where tickets were deleted.
func (f *ticketFinder) shorten(w *indexWalk, limit int, byNumbers bool) (rest indexWalk, divided bool, err error) {
	offset := limit
	if byNumbers {
		offset = 0
	}
	st := f.newStatement()
	st.Addf("SELECT t.%s FROM tickets t WHERE %s ORDER BY %s LIMIT 1 OFFSET %d", w.key, f.indexRange(st, *w), f.order(w), offset)
	var key int64
	if err := f.q.QueryRow(f.ctx, st.String(), st.Args...).Scan(&key); errors.Is(err, db.ErrNoRows) {
		return rest, false, nil
	} else if err != nil {
		return rest, false, err
	}
	rest = *w
	if byNumbers && f.sort.Descending {
		key = max(w.low, key-int64(limit))
	} else if byNumbers {
		key = min(w.high, key+int64(limit))
	}
	rest.passed(key, f.sort.Descending)
	if f.sort.Descending {
		w.low = key
	} else {
		w.high = key
	}
	return rest, rest.low <= rest.high, nil
}

// entries returns the number of entries of a scan, of which there are at most so many.
func (f *ticketFinder) entries(w *indexWalk, most int) (n int, err error) {
	st := f.newStatement()
	st.Addf("SELECT count(*) FROM (SELECT 1 FROM tickets t WHERE %s LIMIT %d) AS e", f.indexRange(st, *w), most)
	err = f.q.QueryRow(f.ctx, st.String(), st.Args...).Scan(&n)
	return n, err
}

// order returns the order of the list within the scan.
func (f *ticketFinder) order(w *indexWalk) string {
	order, _ := f.sort.SQL()
	switch {
	case w.key == ByUpdatedAt || w.key == ByDueAt:
		return fmt.Sprintf("t.%s %s, t.id %[2]s", w.key, order)
	case w.priority != "" || w.key == ByNumber && f.unordered:
		return "t.number " + order
	default:
		return fmt.Sprintf("t.created_at %s, t.number %[1]s", order)
	}
}

// indexRange writes the condition of a scan. An engine cannot use the other conditions for an
// index, so that it takes the one with the order.
func (f *ticketFinder) indexRange(st *keyset.Statement, w indexWalk) string {
	where := "t.organization_id = $1"
	switch {
	case w.priority != "":
		where += " AND t.priority = " + st.Arg(string(w.priority))
		if w.within {
			w.low, w.high = f.fromCursor(w, f.tie.(int64))
		}
	case w.key == ByNumber && !f.unordered:
		return f.createdRange(st, w.low, w.high)
	case w.key == ByDueAt:
		where += " AND t.due_at IS NOT NULL"
	case w.key == ByUpdatedAt && len(f.query.Status) == 1 && f.query.Status[0] != StatusClosed:
		where += " AND t.status <> 'closed' AND t.status = '" + string(f.query.Status[0]) + "'"
	}
	if w.key != ByNumber && w.within {
		_, later := f.sort.SQL()
		w.low, w.high = f.fromCursor(w, f.value)
		_, tie := f.sortKey()
		where += fmt.Sprintf(" AND (t.%s, %s) %s (%s, %s)", w.key, tie, later, st.Arg(f.value), st.Arg(f.tie))
	}
	return fmt.Sprintf("%s AND t.%s >= %s AND t.%[2]s <= %[4]s", where, w.key, st.Arg(w.low), st.Arg(w.high))
}

// fromCursor returns the bounds of a scan from the key of the cursor.
func (f *ticketFinder) fromCursor(w indexWalk, at int64) (low, high int64) {
	if f.sort.Descending {
		return w.low, min(w.high, at)
	}
	return max(w.low, at), w.high
}

// createdRange writes the condition of a range of numbers by times of creation, which have the
// same order; their index has the columns of most filters.
func (f *ticketFinder) createdRange(st *keyset.Statement, low, high int64) string {
	where := "t.organization_id = $1"
	const at = "((SELECT created_at FROM tickets WHERE organization_id = $1 AND number %s ORDER BY number %s LIMIT 1), %s)"
	if low > 1 {
		n := st.Arg(low)
		where += " AND (t.created_at, t.number) >= " + fmt.Sprintf(at, ">= "+n, "ASC", n)
	}
	if high < maxNumber {
		n := st.Arg(high)
		where += " AND (t.created_at, t.number) <= " + fmt.Sprintf(at, "<= "+n, "DESC", n)
	}
	return where
}

// filterSet is the tickets that one filter selects by an index.
type filterSet struct {
	from func(st *keyset.Statement) string // its entries t: table and condition; nil: the documents of the search
	id   string                            // the column of an entry with the ticket's id; empty: no row is read
	// The index has them in the order of numbers. So a list in this order reads a part of the set.
	ordered bool
}

// cost is that of an entry of a set. A row is read unless its number has failed a test.
func (f *ticketFinder) cost(s *filterSet) int {
	switch {
	case s.from != nil && s.id == "":
		return 1
	case s.id == "t.id" && len(f.query.Tags) > 0:
		return tagCost + 1
	case s.id == "t.id" && f.words != nil && !f.words.oneByOne:
		return 1
	default:
		return rowCost
	}
}

// filterSets returns the sets of the filters that have an index, the small ones first as a rule: the
// least that was seen ends the counting of others.
func (f *ticketFinder) filterSets() (sets []filterSet) {
	q := f.query
	add := func(id string, from func(st *keyset.Statement) string) {
		sets = append(sets, filterSet{from: from, id: id})
	}
	addOrdered := func(id string, values int, from func(st *keyset.Statement) string) {
		sets = append(sets, filterSet{from: from, id: id, ordered: values == 1 && f.byNumber()})
	}
	const tickets, id = "tickets t WHERE t.organization_id = $1 AND ", "t.id"
	if len(q.Number) > 0 {
		add(id, func(st *keyset.Statement) string { return tickets + "t.number = ANY(" + st.Arg(q.Number) + ")" })
	}
	if len(q.ExternalID) > 0 {
		add(id, func(st *keyset.Statement) string {
			return tickets + "t.external_id = ANY(" + st.Arg(q.ExternalID) + ")"
		})
	}
	if len(q.CustomerID) > 0 {
		addOrdered(id, len(q.CustomerID), func(st *keyset.Statement) string {
			// Within the index; PostgreSQL must know the type of $1.
			return "tickets t WHERE CAST($1 AS TEXT) IS NOT NULL AND t.customer_id IN (" + keyset.Placeholders(st, q.CustomerID) + ")" + f.numberRange(st)
		})
	}
	if f.words != nil {
		sets = append(sets, filterSet{ordered: f.byNumber() && !f.words.oneByOne && !f.postgres}) // PostgreSQL's number of documents is an estimate
	}
	live := len(q.Status) > 0 && !slices.Contains(q.Status, StatusClosed)
	liveStatus := func(st *keyset.Statement) string {
		return tickets + "t.status <> 'closed' AND t.status IN (" + keyset.Placeholders(st, q.Status) + ")"
	}
	if live && len(q.AssigneeID) > 0 {
		add(id, func(st *keyset.Statement) string { return liveStatus(st) + " AND " + f.assignee(st) })
	}
	if len(q.AssigneeID) > 0 {
		addOrdered(id, len(q.AssigneeID), func(st *keyset.Statement) string { return tickets + f.assignee(st) + f.numberRange(st) })
	}
	if len(q.Tags) > 0 {
		id := "t.ticket_id"
		if len(q.Tags) > 1 {
			id = "DISTINCT t.ticket_id"
		}
		addOrdered(id, len(q.Tags), func(st *keyset.Statement) string {
			return "ticket_tags t WHERE t.organization_id = $1 AND t.tag IN (" + keyset.Placeholders(st, q.Tags) + ")" + f.numberRange(st)
		})
	}
	entries := "" // the columns of these indexes suffice
	if f.sort.Field == ByDueAt {
		entries = id
	}
	if live {
		add(entries, liveStatus)
	}
	if !q.UpdatedAt.Whole() && f.sort.Field != ByUpdatedAt { // else the walk has this range
		add(entries, func(st *keyset.Statement) string { return tickets + "t." + f.updatedAt(st) })
	}
	if f.sort.Field == ByUpdatedAt || !q.UpdatedAt.Whole() {
		entries = id // the others lack updated_at
	}
	if !q.CreatedAt.Whole() && (f.unordered || f.last-f.first <= int64(f.limits.work)) { // there are no more tickets than numbers
		add(entries, func(st *keyset.Statement) string {
			if f.unordered {
				return tickets + "t." + f.createdAt(st)
			}
			return "tickets t WHERE " + f.createdRange(st, f.first, f.last)
		})
	}
	if len(q.Priority) > 0 && !f.walksPriority() {
		add(entries, func(st *keyset.Statement) string {
			return tickets + "t.priority IN (" + keyset.Placeholders(st, q.Priority) + ")" + f.numberRange(st)
		})
	}
	if len(q.Channel) > 0 {
		addOrdered(id, len(q.Channel), func(st *keyset.Statement) string {
			return tickets + "t.channel IN (" + keyset.Placeholders(st, q.Channel) + ")" + f.numberRange(st)
		})
	}
	return sets
}

// assignee writes the condition on the assignee, for its index.
func (f *ticketFinder) assignee(st *keyset.Statement) string {
	ids := slices.DeleteFunc(slices.Clone(f.query.AssigneeID), func(id string) bool { return id == "" })
	switch {
	case len(ids) == 0:
		return "t.assignee_id IS NULL"
	case len(ids) == len(f.query.AssigneeID):
		return "t.assignee_id IN (" + keyset.Placeholders(st, ids) + ")"
	default:
		return "(t.assignee_id IS NULL OR t.assignee_id IN (" + keyset.Placeholders(st, ids) + "))"
	}
}

// numberRange writes the bounds of the numbers, if there are any, after another condition.
func (f *ticketFinder) numberRange(st *keyset.Statement) string {
	if f.first == 1 && f.last == maxNumber {
		return ""
	}
	return fmt.Sprintf(" AND t.number >= %s AND t.number <= %s", st.Arg(f.first), st.Arg(f.last))
}

// cheapestSet returns the set that costs least to read; nil and more than the limit if each exceeds
// it.
func (f *ticketFinder) cheapestSet() (cheapest *filterSet, least int, err error) {
	least = f.limits.work + 1
	for _, set := range f.filterSets() {
		n := 0
		if set.from == nil {
			n = f.words.documents
		} else {
			st := f.newStatement()
			st.Addf("SELECT count(*) FROM (SELECT 1 FROM %s LIMIT %d) AS c", set.from(st), least/f.cost(&set)+1)
			if err := f.q.QueryRow(f.ctx, st.String(), st.Args...).Scan(&n); err != nil {
				return nil, 0, err
			}
		}
		if cost := n * f.cost(&set); cost < least || set.ordered && cheapest == nil {
			cheapest, least = &set, min(least, cost)
		}
		if least <= f.limits.walk {
			break
		}
	}
	return cheapest, least, nil
}

// readOrdered reads the page from the beginning of an ordered set, in parts that grow while few match.
func (f *ticketFinder) readOrdered(set *filterSet, cost int) error {
	order, _ := f.sort.SQL()
	most := f.limits.work / f.cost(set)
	for done, n := 0, f.want; ; n *= 4 {
		n = min(n, most-done)
		if err := f.sortSet(set, fmt.Sprintf(" ORDER BY number %s LIMIT %d OFFSET %d", order, n, done)); err != nil || len(f.found) == f.want {
			return err
		}
		if done += n; done*f.cost(set) >= cost {
			return nil
		}
		if done == most {
			return errTooBroad()
		}
	}
}

// sortSet reads the page from a set, or a part of it, which it sorts.
func (f *ticketFinder) sortSet(set *filterSet, part string) error {
	order, _ := f.sort.SQL()
	value, tie := f.sortKey()
	f.searchDone = false
	from := set.from
	switch {
	case set.from == nil:
		f.searchDone = true
		from = func(st *keyset.Statement) string {
			return "(SELECT DISTINCT " + f.words.numbers(st) + part + ") AS s CROSS JOIN tickets t WHERE t.organization_id = $1 AND t.number = s.number"
		}
	case set.id != "":
		from = func(st *keyset.Statement) string {
			entries := "(SELECT " + set.id + " AS id, t.number FROM " + set.from(st) + part + ") AS t WHERE " + unindexed("TRUE"+f.numberRange(st)+f.numberPredicate(st))
			f.searchDone = f.words != nil && !f.words.oneByOne
			return "(SELECT t.id FROM " + entries + ") AS s CROSS JOIN tickets t WHERE t.id = s.id AND coalesce(t.organization_id = $1, FALSE)"
		}
	}
	// Not the bare columns, so that the engine does not take their index instead.
	err := f.read(from, fmt.Sprintf("coalesce(%s, 0) %s, %s %[2]s", value, order, tie), nil)
	if err == nil && f.untested {
		return errTooBroad()
	}
	return err
}

// priorityRank is the index of a ticket's priority in [Priorities].
const priorityRank = "CASE t.priority WHEN 'low' THEN 0 WHEN 'normal' THEN 1 WHEN 'high' THEN 2 ELSE 3 END"

// sortKey returns the expressions of the sort key and its tie.
func (f *ticketFinder) sortKey() (value, tie string) {
	switch f.sort.Field {
	case ByUpdatedAt:
		return "t.updated_at", "t.id"
	case ByDueAt:
		return "t.due_at", "t.id"
	case ByPriority:
		return priorityRank, "t.number"
	case ByCreatedAt:
		if f.unordered {
			return "t.created_at", "t.number"
		}
	}
	return "t.number", "t.number"
}

// afterCursor writes that the sort key comes after the cursor, if there is one, after another condition.
func (f *ticketFinder) afterCursor(st *keyset.Statement, value, tie string) string {
	if f.query.After == nil || f.byNumber() { // the bounds of the numbers
		return ""
	}
	_, later := f.sort.SQL()
	return fmt.Sprintf(" AND coalesce((%s, %s) %s (%s, %s), FALSE)", value, tie, later, st.Arg(f.value), st.Arg(f.tie))
}

// readNumbers adds the tickets with the numbers, in this order.
func (f *ticketFinder) readNumbers(numbers []int64, value string) error {
	place := make(map[int64]int, len(numbers))
	for i, n := range numbers {
		place[n] = i
	}
	list, err := db.All(f.ctx, f.q, func(row db.Row) (c candidate, err error) {
		err = row.Scan(&c.value, &c.number, &c.id)
		return c, err
	}, "SELECT "+value+", t.number, t.id FROM unnest($2::bigint[]) AS n(value) CROSS JOIN tickets t WHERE t.organization_id = $1 AND t.number = n.value", f.organization, numbers)
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b candidate) int { return place[a.number] - place[b.number] })
	f.found = append(f.found, list...)
	return nil
}

// walkKey returns the expressions of the sort key and its tie for a scan.
func (f *ticketFinder) walkKey(w *indexWalk) (value, tie string) {
	value, tie = f.sortKey()
	if w != nil && f.sort.Field == ByPriority {
		value = strconv.Itoa(slices.Index(Priorities[:], w.priority))
	}
	return value, tie
}

// read adds the matching tickets t of a table with a condition, in order, up to the page size. w is the
// walk, if it is one.
func (f *ticketFinder) read(from func(st *keyset.Statement) string, order string, w *indexWalk) error {
	value, tie := f.walkKey(w)
	if w != nil && f.words != nil && f.byNumber() {
		all := f.words
		f.words = all.among(w.low, w.high)
		defer func() { f.words = all }()
	}
	most, match := f.want-len(f.found), "1"
	st := f.newStatement()
	if f.words != nil && !f.searchDone && f.words.oneByOne {
		most = f.limits.searched
		match = "CASE WHEN " + f.words.ticketCondition(st) + " THEN 1 ELSE 0 END"
	}
	st.Addf("SELECT t.value, t.number, t.id, %s FROM (SELECT %s AS value, t.number, t.id FROM ", match, value)
	st.Addf("%s AND %s%s", from(st), unindexed(f.predicate(st, w)), f.afterCursor(st, value, tie))
	// The condition outside stops SQLite from testing for the search before it sorts.
	st.Addf(" ORDER BY %s LIMIT %d) AS t WHERE t.number > 0", order, most)
	rows, err := f.q.Query(f.ctx, st.String(), st.Args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	n := 0
	for ; len(f.found) < f.want && rows.Next(); n++ {
		var c candidate
		var matches int64
		if err := rows.Scan(&c.value, &c.number, &c.id, &matches); err != nil {
			return err
		}
		if matches == 1 {
			f.found = append(f.found, c)
		}
	}
	f.untested = n == most && len(f.found) < f.want
	return rows.Err()
}

// newStatement starts a statement with the organization as $1.
func (f *ticketFinder) newStatement() *keyset.Statement {
	return &keyset.Statement{Args: []any{f.organization}}
}

// unindexed writes tests for which the engine does not look for an index, and stops at the first that fails:
// SQLite evaluates all of them in any other expression, such as coalesce(…, FALSE).
func unindexed(tests string) string { return "CASE WHEN " + tests + " THEN TRUE ELSE FALSE END" }

// predicate writes the filters for t, first those that few tickets match. For an index entry, a column that it lacks is
// looked up.
func (f *ticketFinder) predicate(st *keyset.Statement, w *indexWalk) string {
	entry := w != nil && w.key != ByUpdatedAt
	q := f.query
	tests := "TRUE"
	addf := func(format string, args ...any) { tests += " AND " + fmt.Sprintf(format, args...) }
	if len(q.AssigneeID) > 0 {
		addf("coalesce(t.assignee_id, '') IN (%s)", keyset.Placeholders(st, q.AssigneeID))
	}
	if len(q.Priority) > 0 {
		addf("t.priority IN (%s)", keyset.Placeholders(st, q.Priority))
	}
	if len(q.Channel) > 0 {
		addf("t.channel IN (%s)", keyset.Placeholders(st, q.Channel))
	}
	if len(q.Status) > 0 {
		addf("t.status IN (%s)", keyset.Placeholders(st, q.Status))
	}
	if len(q.without.channel) > 0 {
		addf("t.channel NOT IN (%s)", keyset.Placeholders(st, q.without.channel))
	}
	if len(q.without.assigneeID) > 0 {
		addf("coalesce(t.assignee_id, '') NOT IN (%s)", keyset.Placeholders(st, q.without.assigneeID))
	}
	if f.sort.Field == ByDueAt {
		addf("coalesce(t.due_at, 0) > 0")
	}
	if !q.UpdatedAt.Whole() && entry {
		addf("EXISTS (SELECT 1 FROM tickets c WHERE c.id = t.id AND c.%s)", f.updatedAt(st))
	} else if !q.UpdatedAt.Whole() {
		addf("t.%s", f.updatedAt(st))
	}
	if f.unordered && !q.CreatedAt.Whole() {
		addf("EXISTS (SELECT 1 FROM tickets c WHERE c.id = t.id AND c.%s)", f.createdAt(st))
	}
	if len(q.ExternalID) > 0 {
		addf("EXISTS (SELECT 1 FROM tickets c WHERE c.id = t.id AND c.external_id = ANY(%s))", st.Arg(q.ExternalID))
	}
	if len(q.CustomerID) > 0 {
		addf("EXISTS (SELECT 1 FROM tickets c WHERE c.id = t.id AND c.customer_id IN (%s))", keyset.Placeholders(st, q.CustomerID))
	}
	if w == nil || w.key != ByNumber { // else the scan is within them
		tests += f.numberRange(st)
	}
	return tests + f.numberPredicate(st)
}

// numberPredicate writes the filters for t that need its number only, the search last, unless
// tickets are tested for it one by one.
func (f *ticketFinder) numberPredicate(st *keyset.Statement) string {
	q := f.query
	var tests strings.Builder
	if len(q.Number) > 0 {
		tests.WriteString(" AND t.number = ANY(" + st.Arg(q.Number) + ")")
	}
	if len(q.Tags) > 0 {
		tests.WriteString(" AND EXISTS (SELECT 1 FROM ticket_tags g WHERE g.organization_id = $1 AND g.tag IN (" + keyset.Placeholders(st, q.Tags) + ") AND g.number = t.number)")
	}
	for _, tags := range q.tagged {
		not := ""
		if tags.not {
			not = "NOT "
		}
		tests.WriteString(" AND " + not + "EXISTS (SELECT 1 FROM ticket_tags g WHERE g.organization_id = $1 AND g.tag IN (" + keyset.Placeholders(st, tags.tags) + ") AND g.number = t.number)")
	}
	if f.words != nil && !f.words.oneByOne && !f.searchDone {
		tests.WriteString(" AND t.number IN (SELECT " + f.words.numbers(st) + ")")
	}
	return tests.String()
}

// updatedAt writes the condition on updated_at.
func (f *ticketFinder) updatedAt(st *keyset.Statement) string {
	first, last := f.query.UpdatedAt.Micros()
	return fmt.Sprintf("updated_at BETWEEN %s AND %s", st.Arg(first), st.Arg(last))
}

// createdAt writes the condition on created_at, where numbers do not have its order.
func (f *ticketFinder) createdAt(st *keyset.Statement) string {
	first, last := f.query.CreatedAt.Micros()
	return fmt.Sprintf("created_at BETWEEN %s AND %s", st.Arg(first), st.Arg(last))
}

// readCursor reads the position of the cursor.
func (f *ticketFinder) readCursor() error {
	p := f.query.After
	if p == nil {
		return nil
	}
	if f.sort.Field == ByPriority {
		i := slices.Index(Priorities[:], Priority(p.Value))
		n, err := (&keyset.Cursor{Value: p.ID}).Integer()
		if i < 0 || err != nil {
			return keyset.ErrCursor
		}
		f.value, f.tie = int64(i), n
		return nil
	}
	n, err := p.Integer()
	if err != nil {
		return err
	}
	f.value, f.tie = n, n
	switch {
	case f.sort.Field == ByUpdatedAt || f.sort.Field == ByDueAt:
		f.tie = p.ID
	case f.byTime() && p.ID == "": // from before the tickets were out of order
		err := f.q.QueryRow(f.ctx, "SELECT created_at FROM tickets WHERE organization_id = $1 AND number = $2", f.organization, n).Scan(&f.value)
		if errors.Is(err, db.ErrNoRows) {
			return keyset.ErrCursor
		}
		return err
	case f.byTime():
		f.tie, err = (&keyset.Cursor{Value: p.ID}).Integer()
		return err
	case f.sort.Field == ByCreatedAt && p.ID != "": // the ticket out of order is gone
		n, err = (&keyset.Cursor{Value: p.ID}).Integer()
		f.value, f.tie = n, n
		return err
	}
	return nil
}
