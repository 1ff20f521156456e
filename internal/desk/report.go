package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// ReportBy is the field by which a report groups tickets, with the value that a ticket has now.
type ReportBy string

// The fields. A ticket with several tags counts in the group of each.
const (
	ByChannel  ReportBy = "channel"
	ByTag      ReportBy = "tag"
	ByAssignee ReportBy = "assignee"
)

// ReportQuery describes a report.
type ReportQuery struct {
	From, To    time.Time // from From, before To; whole seconds
	Previous    time.Time // the comparison is from here to From; zero: none
	Granularity period.Granularity
	Location    *time.Location // of the periods
	By          ReportBy       // empty: no groups
}

// ReportFigures are the figures of a set of tickets in a time range. They count like
// [TicketFigures]: by the present state of the tickets, without deleted ones.
type ReportFigures struct {
	Created       int64
	Resolved      int64     // resolved or closed in the range, and not reopened since
	Reopened      int64     // changes from resolved or closed in the range
	Backlog       int64     // created before the end of the range, and not resolved before it
	FirstResponse Durations // from creation, of the tickets created in the range and answered by now
	Resolution    Durations // from creation, pauses included, of the resolved ones
	SLAMet        int64     // SLA targets met in the range
	SLABreached   int64     // SLA targets breached in the range
}

// Durations describes a set of durations, in seconds. Each is the difference of times that are
// truncated to seconds.
type Durations struct {
	Count        int64
	Median       int64 // of an even count: the mean of the middle two, rounded half up; 0 without any
	Percentile90 int64 // the least that is not exceeded by 90 % of them; 0 without any
}

// ReportPeriod has the figures of a period.
type ReportPeriod struct {
	period.Period
	ReportFigures
}

// ReportGroup has the figures of a group in the whole range.
type ReportGroup struct {
	Value string // empty: tickets without a tag or an assignee
	ReportFigures
}

// Report is the result of [Service.Report].
type Report struct {
	At       time.Time      // every change before it is counted
	Waiting  int64          // tickets that must be packed first; unless it is 0, there are no figures
	Periods  []ReportPeriod // in order
	Groups   []ReportGroup  // those with figures, the largest volume first
	Totals   ReportFigures
	Previous ReportFigures // of the comparison
}

// maxUnpacked bounds the tickets that a report reads one by one.
const maxUnpacked = 50_000

// Report counts an organization's tickets by period and group, from packed facts and, where these
// are outdated, the tickets themselves.
//
// Errors: Invalid, with code range_too_large for more than 5,000 periods.
func (s *Service) Report(ctx context.Context, organizationID string, query ReportQuery) (Report, error) {
	c, err := newReportCounter(query)
	if err != nil {
		return Report{}, err
	}
	out := Report{At: s.db.Now()}
	err = keyset.Snapshot(ctx, s.db, s.db, keyset.ByIndexes, func(q db.Querier) error {
		covered, last, err := coveredNumbers(ctx, q, organizationID)
		if err != nil {
			return err
		}
		changed, err := db.All(ctx, q, scanInteger, "SELECT number FROM report_changes WHERE organization_id = $1 AND number <= $2 LIMIT $3", organizationID, covered, maxUnpacked)
		if err != nil {
			return fmt.Errorf("read changes: %w", err)
		}
		if waiting := last - covered + int64(len(changed)); waiting >= maxUnpacked {
			out.Waiting = waiting
			return nil
		}
		slices.Sort(changed)
		changed = slices.Compact(changed)
		if err := c.addChunks(ctx, q, organizationID, changed); err != nil {
			return err
		}
		return c.addUnpacked(ctx, q, organizationID, covered, changed)
	})
	if err != nil {
		return Report{}, fmt.Errorf("count tickets: %w", err)
	}
	if out.Waiting == 0 {
		c.result(&out)
	}
	return out, nil
}

func scanInteger(row db.Row) (n int64, err error) {
	err = row.Scan(&n)
	return n, err
}

// reportSums collects the figures of a row.
type reportSums struct {
	created, resolved, reopened, backlog, met, breached int64
	responses, resolutions                              []uint32 // seconds
}

// reportCounter counts tickets. Its rows are the comparison, if there is one, and the periods.
type reportCounter struct {
	field   int // of the groups, or noField
	periods []period.Period
	start   int          // index of the first period's row
	edges   []int64      // starts of the rows, and the end; seconds
	rows    []reportSums // without backlog
	backlog int64        // before the first row
	groups  map[string]*reportSums
}

func newReportCounter(query ReportQuery) (*reportCounter, error) {
	var v problem.Validation
	periods, err := period.Split(query.From, query.To, query.Granularity, query.Location)
	switch {
	case errors.Is(err, period.ErrTooMany):
		v.AddCode("range_too_large", "to", "%v", err)
	case errors.Is(err, period.ErrUnknown):
		v.Add("granularity", "%v", err)
	case err != nil:
		v.Add("to", "%v", err)
	}
	if query.From.Nanosecond() != 0 || query.To.Nanosecond() != 0 || query.Previous.Nanosecond() != 0 {
		v.Add("from", "must be a whole second, as must be to")
	}
	if !query.Previous.IsZero() && !query.Previous.Before(query.From) {
		v.Add("previous", "must be before from")
	}
	field, ok := map[ReportBy]int{"": noField, ByChannel: channelField, ByTag: tagField, ByAssignee: assigneeField}[query.By]
	if !ok {
		v.Add("by", "must be channel, tag or assignee")
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	c := &reportCounter{field: field, periods: periods, groups: make(map[string]*reportSums)}
	if !query.Previous.IsZero() {
		c.start = 1
		c.edges = append(c.edges, query.Previous.Unix())
	}
	for _, p := range periods {
		c.edges = append(c.edges, p.Start.Unix())
	}
	c.edges = append(c.edges, query.To.Unix())
	c.rows = make([]reportSums, len(c.edges)-1)
	return c, nil
}

// end returns the end of the range.
func (c *reportCounter) end() int64 { return c.edges[len(c.edges)-1] }

// row returns the index of the row of a time; -1: none. It is fastest near the row guess.
func (c *reportCounter) row(at int64, guess int) int {
	if at < c.edges[0] || at >= c.end() {
		return -1
	}
	if guess >= 0 && c.edges[guess] <= at && at < c.edges[guess+1] {
		return guess
	}
	i, found := slices.BinarySearch(c.edges, at)
	if !found {
		i--
	}
	return i
}

// addChunks counts packed tickets, except changed ones, which are sorted. Of chunks in which nothing
// happened since the first row, only the unresolved tickets count.
func (c *reportCounter) addChunks(ctx context.Context, q db.Querier, organizationID string, changed []int64) error {
	rows, err := q.Query(ctx, `SELECT first, CASE WHEN last_at >= $2 THEN facts ELSE unresolved END
		FROM report_chunks WHERE organization_id = $1 AND first_at < $3 ORDER BY first`, organizationID, c.edges[0], c.end())
	if err != nil {
		return fmt.Errorf("read chunks: %w", err)
	}
	defer rows.Close()
	var facts reportFacts
	for rows.Next() {
		var first int64
		var text []byte
		if err := rows.Scan(&first, &text); err != nil {
			return err
		}
		if err := facts.decode(first, text, c.field); err != nil {
			return fmt.Errorf("chunk %d: %w", first, err)
		}
		skip := changed
		for len(skip) > 0 && skip[0] < first {
			skip = skip[1:]
		}
		changed = skip
		for len(changed) > 0 && changed[0] < first+reportChunk {
			changed = changed[1:]
		}
		c.add(&facts, skip[:len(skip)-len(changed)])
	}
	return rows.Err()
}

// addUnpacked counts changed tickets, and those after the last chunk.
func (c *reportCounter) addUnpacked(ctx context.Context, q db.Querier, organizationID string, covered int64, changed []int64) error {
	for list := range slices.Chunk(changed, reportChunk) {
		facts, err := readReportFacts(ctx, q, organizationID, "number = ANY($2)", list)
		if err != nil {
			return err
		}
		c.add(facts, nil)
	}
	facts, err := readReportFacts(ctx, q, organizationID, "number > $2", covered)
	if err != nil {
		return err
	}
	c.add(facts, nil)
	return nil
}

// add counts facts, except those of the numbers in skip, which are sorted.
func (c *reportCounter) add(f *reportFacts, skip []int64) {
	var groups [][]*reportSums // by set
	var sets []int64           // by ticket
	if c.field != noField {
		groups, sets = c.groupSums(f.fields[c.field].sets), f.fields[c.field].index
	}
	start, end, main := c.edges[0], c.end(), c.edges[c.start]
	marks := f.marks
	row := 0 // of the last creation
	for i, created := range f.created {
		mine := 0
		for mine < len(marks) && marks[mine].ticket == i {
			mine++
		}
		own := marks[:mine]
		marks = marks[mine:]
		for len(skip) > 0 && skip[0] < f.numbers[i] {
			skip = skip[1:]
		}
		if created >= end || len(skip) > 0 && skip[0] == f.numbers[i] {
			continue
		}
		var of []*reportSums
		if sets != nil {
			of = groups[sets[i]]
		}
		if row = c.row(created, row); row >= 0 {
			c.rows[row].created++
			if after := f.responded[i]; after >= 0 {
				c.rows[row].responses = append(c.rows[row].responses, uint32(after))
			}
		}
		resolved := f.resolved[i]
		if row < 0 && (resolved < 0 || created+resolved >= start) {
			c.backlog++
		}
		closed := -1 // row
		if resolved >= 0 {
			if closed = c.row(created+resolved, row); closed >= 0 {
				c.rows[closed].resolved++
				c.rows[closed].resolutions = append(c.rows[closed].resolutions, uint32(resolved))
			}
		}
		for _, g := range of {
			if created >= main {
				g.created++
				if after := f.responded[i]; after >= 0 {
					g.responses = append(g.responses, uint32(after))
				}
			}
			if closed >= c.start {
				g.resolved++
				g.resolutions = append(g.resolutions, uint32(resolved))
			}
			if resolved < 0 || created+resolved >= end {
				g.backlog++
			}
		}
		for _, m := range own {
			at := c.row(created+m.after, row)
			if at < 0 {
				continue
			}
			c.rows[at].mark(m.kind)
			if at >= c.start {
				for _, g := range of {
					g.mark(m.kind)
				}
			}
		}
	}
}

func (s *reportSums) mark(kind markKind) {
	switch kind {
	case markMet:
		s.met++
	case markBreached:
		s.breached++
	case markReopened:
		s.reopened++
	}
}

// groupSums returns the rows in which tickets of each set of values count.
func (c *reportCounter) groupSums(sets [][]string) [][]*reportSums {
	out := make([][]*reportSums, len(sets))
	for i, values := range sets {
		for _, value := range values {
			sums := c.groups[value]
			if sums == nil {
				sums = new(reportSums)
				c.groups[value] = sums
			}
			out[i] = append(out[i], sums)
		}
	}
	return out
}

// result writes the figures.
func (c *reportCounter) result(out *Report) {
	backlog := c.backlog
	for i := range c.rows {
		backlog += c.rows[i].created - c.rows[i].resolved
		c.rows[i].backlog = backlog
	}
	if c.start > 0 {
		out.Previous = reportFigures(c.rows[:c.start])
	}
	for i, p := range c.periods {
		out.Periods = append(out.Periods, ReportPeriod{p, reportFigures(c.rows[c.start+i : c.start+i+1])})
	}
	out.Totals = reportFigures(c.rows[c.start:])
	for value, sums := range c.groups {
		f := reportFigures([]reportSums{*sums})
		if f != (ReportFigures{}) {
			out.Groups = append(out.Groups, ReportGroup{value, f})
		}
	}
	slices.SortFunc(out.Groups, func(a, b ReportGroup) int {
		return cmp.Or(cmp.Compare(b.Created, a.Created), strings.Compare(a.Value, b.Value))
	})
}

// reportFigures returns the figures of consecutive rows.
func reportFigures(rows []reportSums) ReportFigures {
	var f ReportFigures
	var responses, resolutions [][]uint32
	for i := range rows {
		r := &rows[i]
		f.Created += r.created
		f.Resolved += r.resolved
		f.Reopened += r.reopened
		f.SLAMet += r.met
		f.SLABreached += r.breached
		f.Backlog = r.backlog
		responses, resolutions = append(responses, r.responses), append(resolutions, r.resolutions)
	}
	f.FirstResponse, f.Resolution = durations(responses), durations(resolutions)
	return f
}

// durations describes the values of lists.
func durations(lists [][]uint32) Durations {
	n := 0
	for _, list := range lists {
		n += len(list)
	}
	if n == 0 {
		return Durations{}
	}
	low := orderStatistic(lists, (n-1)/2)
	high := low
	if n%2 == 0 {
		high = orderStatistic(lists, n/2)
	}
	return Durations{Count: int64(n), Median: (low + high + 1) / 2, Percentile90: orderStatistic(lists, (9*n+9)/10-1)}
}

// fewDurations are sorted; more are narrowed down by counts of equal parts of their range.
const fewDurations = 100

// orderStatistic returns the k-th smallest of the values of lists, from 0 on. They have at least
// k+1 values.
func orderStatistic(lists [][]uint32, k int) int64 {
	for {
		n, low, high := 0, uint32(math.MaxUint32), uint32(0)
		for _, list := range lists {
			n += len(list)
			for _, v := range list {
				low, high = min(low, v), max(high, v)
			}
		}
		switch {
		case low == high:
			return int64(low)
		case n <= fewDurations:
			return int64(slices.Sorted(slices.Values(slices.Concat(lists...)))[k])
		}
		var counts [1 << 12]int
		shift := max(0, bits.Len32(high-low)-12)
		for _, list := range lists {
			for _, v := range list {
				counts[(v-low)>>shift]++
			}
		}
		part := uint32(0) // that has the k-th smallest
		for ; k >= counts[part]; part++ {
			k -= counts[part]
		}
		narrowed := make([]uint32, 0, counts[part])
		for _, list := range lists {
			for _, v := range list {
				if (v-low)>>shift == part {
					narrowed = append(narrowed, v)
				}
			}
		}
		lists = [][]uint32{narrowed}
	}
}
