package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// GroupFields lists the fields that [Service.TicketAnalytics] groups by, with the
// values that a ticket has now.
var GroupFields = [...]string{"status", "priority", "channel", "assignee_id"}

// maxGroupBy bounds the fields of one grouping.
const maxGroupBy = 2

// TicketFigures are the figures of a set of tickets in a time range. First
// responses count in the range in which the ticket was created, resolutions in the
// range in which they happened. Deleted tickets are not counted.
type TicketFigures struct {
	CreatedCount       int64 `json:"created_count"`        // created in the range
	ResolvedCount      int64 `json:"resolved_count"`       // resolved or closed in the range, and not reopened since
	FirstResponseCount int64 `json:"first_response_count"` // created in the range and answered by now
	SLABreachedCount   int64 `json:"sla_breached_count"`   // SLA targets breached in the range, at most two per ticket at a time
	// From creation to the first response, over FirstResponseCount; nil if that is 0.
	// Rounded to seconds, half up. The median of an even count is the mean of the
	// middle two.
	AverageFirstResponseSeconds *int64 `json:"average_first_response_seconds"`
	MedianFirstResponseSeconds  *int64 `json:"median_first_response_seconds"`
	// From creation to resolution, pauses included, over ResolvedCount.
	AverageResolutionSeconds *int64 `json:"average_resolution_seconds"`
	MedianResolutionSeconds  *int64 `json:"median_resolution_seconds"`
}

// TicketRow has the figures of a period, or of one group in it.
type TicketRow struct {
	Period period.Period
	Group  []string // the values of the grouping fields; an empty assignee is nobody
	TicketFigures
}

// TicketAnalytics is the result of [Service.TicketAnalytics].
type TicketAnalytics struct {
	GeneratedAt time.Time
	Rows        []TicketRow // by period, then by group
	Totals      TicketFigures
}

// figureSums collects the figures of one row.
type figureSums struct {
	created, breached   int64
	responses, resolved []int64 // microseconds
}

func (f *figureSums) add(o *figureSums) {
	f.created += o.created
	f.breached += o.breached
	f.responses = append(f.responses, o.responses...)
	f.resolved = append(f.resolved, o.resolved...)
}

func (f *figureSums) figures() TicketFigures {
	out := TicketFigures{
		CreatedCount: f.created, SLABreachedCount: f.breached,
		FirstResponseCount: int64(len(f.responses)), ResolvedCount: int64(len(f.resolved)),
	}
	out.AverageFirstResponseSeconds, out.MedianFirstResponseSeconds = averages(f.responses)
	out.AverageResolutionSeconds, out.MedianResolutionSeconds = averages(f.resolved)
	return out
}

// averages returns the mean and the median, in seconds, of a list of microseconds.
// It sorts the list.
func averages(list []int64) (mean, median *int64) {
	if len(list) == 0 {
		return nil, nil
	}
	slices.Sort(list)
	var sum int64 // in milliseconds: microseconds of a million centuries would overflow
	for _, v := range list {
		sum += v / 1000
	}
	middle := list[len(list)/2]
	if len(list)%2 == 0 {
		middle = (middle + list[len(list)/2-1]) / 2
	}
	half := func(v, unit int64) *int64 { return new((v + unit/2) / unit) }
	return half(sum, 1000*int64(len(list))), half(middle, 1_000_000)
}

// AnalyticsQuery describes the periods and groups of [Service.TicketAnalytics].
type AnalyticsQuery struct {
	From, To    time.Time // from From, before To
	Granularity period.Granularity
	Location    *time.Location // of the periods
	GroupBy     []string       // up to two of [GroupFields]
}

// TicketAnalytics counts an organization's tickets by period and group. Without a
// grouping, every period has a row; with one, only groups with figures do.
//
// Errors: Invalid, with code range_too_large for more than 5,000 periods.
func (s *Service) TicketAnalytics(ctx context.Context, q db.Querier, organizationID string, query AnalyticsQuery) (TicketAnalytics, error) {
	var v problem.Validation
	for i, field := range query.GroupBy {
		if !slices.Contains(GroupFields[:], field) {
			v.Add("group_by", "must be of status, priority, channel, assignee_id")
		} else if slices.Contains(query.GroupBy[:i], field) {
			v.Add("group_by", "must not repeat a field")
		}
	}
	if len(query.GroupBy) > maxGroupBy {
		v.Add("group_by", "must have at most %d values", maxGroupBy)
	}
	periods, err := period.Split(query.From, query.To, query.Granularity, query.Location)
	switch {
	case errors.Is(err, period.ErrTooMany):
		v.AddCode("range_too_large", "to", "%v", err)
	case errors.Is(err, period.ErrUnknown):
		v.Add("granularity", "%v", err)
	case err != nil:
		v.Add("to", "%v", err)
	}
	if err := v.Err(); err != nil {
		return TicketAnalytics{}, err
	}
	c := counter{now: s.db.Now(), organization: organizationID, groupBy: query.GroupBy, periods: periods, rows: make(map[rowKey]*figureSums)}
	err = s.snapshot(ctx, q, func(q db.Querier) error {
		c.ctx, c.q = ctx, q
		return c.count(query.From.UnixMicro(), query.To.UnixMicro())
	})
	if err != nil {
		return TicketAnalytics{}, fmt.Errorf("count tickets: %w", err)
	}
	return c.result(), nil
}

// rowKey identifies a row.
type rowKey struct {
	period int
	group  string // values, each followed by |
}

// counter counts tickets.
type counter struct {
	ctx          context.Context
	q            db.Querier
	now          time.Time
	organization string
	groupBy      []string
	periods      []period.Period
	rows         map[rowKey]*figureSums
}

func (c *counter) result() TicketAnalytics {
	out := TicketAnalytics{GeneratedAt: c.now}
	if len(c.groupBy) == 0 {
		for i := range c.periods {
			c.row(rowKey{period: i})
		}
	}
	keys := make([]rowKey, 0, len(c.rows))
	for key := range c.rows {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b rowKey) int {
		return cmp.Or(cmp.Compare(a.period, b.period), strings.Compare(a.group, b.group))
	})
	var total figureSums
	for _, key := range keys {
		row := TicketRow{Period: c.periods[key.period], TicketFigures: c.rows[key].figures()}
		if len(c.groupBy) > 0 {
			row.Group = strings.Split(strings.TrimSuffix(key.group, "|"), "|")
		}
		out.Rows = append(out.Rows, row)
		total.add(c.rows[key])
	}
	out.Totals = total.figures()
	return out
}

func (c *counter) row(p rowKey) *figureSums {
	sums := c.rows[p]
	if sums == nil {
		sums = new(figureSums)
		c.rows[p] = sums
	}
	return sums
}

// group returns an SQL expression for the grouping values of ticket t, each
// followed by |.
func (c *counter) group() string {
	var text strings.Builder
	text.WriteString("''")
	for _, field := range c.groupBy {
		text.WriteString(" || coalesce(t." + field + ", '') || '|'")
	}
	return text.String()
}

func (c *counter) count(from, to int64) error {
	for i := range c.periods {
		begin, end := max(c.periods[i].Start.UnixMicro(), from), to
		if i+1 < len(c.periods) {
			end = c.periods[i+1].Start.UnixMicro()
		}
		err := c.readPeriod(i, "created_at", "first_responded_at", begin, end, func(sums *figureSums, value string) error {
			sums.created++
			return appendMicros(&sums.responses, value)
		})
		if err != nil {
			return err
		}
		err = c.readPeriod(i, "resolved_at", "resolved_at", begin, end, func(sums *figureSums, value string) error {
			return appendMicros(&sums.resolved, value)
		})
		if err != nil {
			return err
		}
	}
	return c.breaches(from, to)
}

func appendMicros(list *[]int64, value string) error {
	if value == "" {
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	*list = append(*list, max(n, 0)) // a reply may be older than the ticket's first event
	return err
}

// readPeriod calls count for each ticket with a time in column within the i-th
// period, with the microseconds from creation to the time in the column until;
// empty if that is null. An index covers the query, and the engine aggregates into
// one text: reading rows would cost several times as much.
func (c *counter) readPeriod(i int, column, until string, begin, end int64, count func(sums *figureSums, value string) error) error {
	value := "coalesce(CAST(t." + until + " - t.created_at AS TEXT), '')"
	if len(c.groupBy) > 0 {
		value += " || ',' || " + c.group()
	}
	var n int
	var text string
	err := c.q.QueryRow(c.ctx, fmt.Sprintf(`SELECT count(*), coalesce(string_agg(%[2]s, ';'), '')
		FROM tickets t WHERE t.organization_id = $1 AND t.%[1]s >= $2 AND t.%[1]s < $3 AND t.%[1]s IS NOT NULL`, column, value),
		c.organization, begin, end).Scan(&n, &text)
	if err != nil || n == 0 {
		return err
	}
	var sums *figureSums
	var last string
	for item := range strings.SplitSeq(text, ";") {
		value, group, _ := strings.Cut(item, ",")
		if sums == nil || group != last {
			sums, last = c.row(rowKey{i, group}), group
		}
		if err := count(sums, value); err != nil {
			return err
		}
	}
	return nil
}

// period returns the index of the period that contains a time.
func (c *counter) period(micros int64) int {
	i, found := slices.BinarySearchFunc(c.periods, micros, func(p period.Period, micros int64) int {
		return cmp.Compare(p.Start.UnixMicro(), micros)
	})
	if !found {
		i--
	}
	return i
}

// breaches counts breached SLA targets.
func (c *counter) breaches(from, to int64) error {
	rows, err := c.q.Query(c.ctx, `SELECT b.breached_at, `+c.group()+` FROM sla_breaches b JOIN tickets t ON t.id = b.ticket_id
		WHERE b.organization_id = $1 AND b.breached_at >= $2 AND b.breached_at < $3`, c.organization, from, to)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var at int64
		var group string
		if err := rows.Scan(&at, &group); err != nil {
			return err
		}
		c.row(rowKey{c.period(at), group}).breached++
	}
	return rows.Err()
}
