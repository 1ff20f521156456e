package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk/query"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Reader is the one for whom filters in a search are read.
type Reader struct {
	UserID string         // whom "me" means; empty: an API key, for which it means nobody
	Zone   *time.Location // of days; nil: UTC
}

// filterFields are the fields of filters in a search for tickets.
var filterFields = []string{"status", "priority", "assignee", "channel", "tag", "customer", "number", "created", "updated"}

// ParseSearch returns the words and filters of a search for tickets, without checking the values.
func ParseSearch(text string) query.Query { return query.Parse(text, filterFields...) }

// tagFilter is a further condition on the tags of a ticket: one of tags, or none of them.
type tagFilter struct {
	tags []string
	not  bool
}

// without has values that tickets must not have.
type without struct {
	channel    []string
	assigneeID []string // an empty value: unassigned tickets
}

// filterReader moves the filters of a search into the other fields of its query.
type filterReader struct {
	*Service
	ctx            context.Context
	q              db.Querier
	organizationID string
	query          *TicketQuery
	faults         problem.Validation
	none           bool // nothing can match
}

// readFilters moves the filters of query.Text into the other fields. It returns false if nothing can
// match. Error: Invalid at q.
func (s *Service) readFilters(ctx context.Context, q db.Querier, organizationID string, t *TicketQuery) (some bool, err error) {
	parsed := ParseSearch(t.Text)
	if len(parsed.Filters) == 0 {
		return true, nil
	}
	t.Text = parsed.Words
	r := filterReader{Service: s, ctx: ctx, q: q, organizationID: organizationID, query: t}
	ignored := 0
	for i := range parsed.Filters {
		before, none := *t, r.none
		if err := r.read(&parsed.Filters[i]); err != nil {
			return false, err
		}
		if t.Faults != nil && r.faults.Err() != nil {
			*t, r.none = before, none
			if ignored++; ignored == 1 {
				*t.Faults = nil // of an attempt before
			}
			*t.Faults = append(*t.Faults, SearchFault(r.faults.Err()))
			r.faults = problem.Validation{}
		}
	}
	if ignored == len(parsed.Filters) && strings.TrimSpace(t.Text) == "" {
		return false, nil
	}
	return !r.none, r.faults.Err()
}

// nearest returns the one of names that value misspells: by at most two letters, and not all; empty if
// there is none.
func nearest(value string, names []string) string {
	best, least := "", 3
	for _, name := range names {
		if d := misspelled(value, name); d < least && d < len(value) {
			best, least = name, d
		}
	}
	return best
}

// misspelled returns the number of letters to insert, delete or replace to make a of b.
func misspelled(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// noSuch records that a filter has an unknown value, with the one that it misspells or with all.
func (r *filterReader) noSuch(f *query.Filter, value string, names []string) {
	if name := nearest(strings.ToLower(value), names); name != "" {
		r.faults.Add("q", "no such %s: %s; did you mean %s?", f.Field, value, name)
		return
	}
	r.faults.Add("q", "%s: %s is one of %s", f.Text, f.Field, strings.Join(names, ", "))
}

// SearchFault returns the fault that a list found in the filters of its search; empty for other errors.
func SearchFault(err error) string {
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.Invalid && len(p.Issues) > 0 && p.Issues[0].Path == "q" {
		return p.Issues[0].Message
	}
	return ""
}

func (r *filterReader) read(f *query.Filter) error {
	if f.Field == "created" || f.Field == "updated" {
		r.readTime(f)
		return nil
	}
	switch {
	case f.Op != query.Is:
		r.faults.Add("q", "%s: %s has values, and no order: use %[2]s:value, or %[2]s:one,another", f.Text, f.Field)
		return nil
	case len(f.Values) == 0:
		r.faults.Add("q", "%s: a value must follow the colon", f.Text)
		return nil
	}
	switch f.Field {
	case "status":
		readNames(r, f, &r.query.Status, Statuses[:])
	case "priority":
		readNames(r, f, &r.query.Priority, Priorities[:])
	case "channel":
		r.readChannel(f)
	case "tag":
		for i, tag := range f.Values {
			f.Values[i] = strings.TrimSpace(tag)
		}
		if !f.Not && len(r.query.Tags) == 0 {
			r.query.Tags = f.Values
		} else {
			r.query.tagged = append(r.query.tagged, tagFilter{f.Values, f.Not})
		}
	case "number":
		r.readNumber(f)
	case "assignee":
		return r.readAssignee(f)
	case "customer":
		return r.readCustomer(f)
	}
	return nil
}

// readNames reads a filter of a field with few values.
func readNames[T ~string](r *filterReader, f *query.Filter, have *[]T, all []T) {
	var given []T
	for _, value := range f.Values {
		name := T(strings.ToLower(value))
		if !slices.Contains(all, name) {
			names := make([]string, len(all))
			for i, n := range all {
				names[i] = string(n)
			}
			r.noSuch(f, value, names)
			return
		}
		given = append(given, name)
	}
	if f.Not {
		given = slices.DeleteFunc(slices.Clone(all), func(name T) bool { return slices.Contains(given, name) })
	}
	narrow(r, have, given)
}

// narrow restricts a list of values to given ones.
func narrow[T comparable](r *filterReader, have *[]T, given []T) {
	if len(*have) > 0 {
		given = slices.DeleteFunc(slices.Clone(given), func(value T) bool { return !slices.Contains(*have, value) })
	}
	*have = given
	r.none = r.none || len(given) == 0
}

func (r *filterReader) readChannel(f *query.Filter) {
	var given []string
	for _, value := range f.Values {
		name := channel.TicketChannelName(strings.ToLower(value))
		if !slices.Contains(channel.TicketChannels, name) {
			r.noSuch(f, value, channel.TicketChannels)
			return
		}
		given = append(given, name)
	}
	r.restrict(f, &r.query.Channel, &r.query.without.channel, given)
}

// restrict adds the values of a filter to those that tickets must have, or must not.
func (r *filterReader) restrict(f *query.Filter, have, without *[]string, given []string) {
	if f.Not {
		*without = append(*without, given...)
	} else {
		narrow(r, have, given)
	}
}

func (r *filterReader) readNumber(f *query.Filter) {
	var given []int64
	for _, value := range f.Values {
		n, err := strconv.ParseInt(strings.TrimPrefix(value, "#"), 10, 64)
		if err != nil || f.Not {
			r.faults.Add("q", "%s: use number:6, or number:6,7", f.Text)
			return
		}
		given = append(given, n)
	}
	narrow(r, &r.query.Number, given)
}

func (r *filterReader) readAssignee(f *query.Filter) error {
	var given []string
	for _, value := range f.Values {
		switch {
		case strings.EqualFold(value, "none"):
			given = append(given, "")
		case strings.EqualFold(value, "me") && r.query.Reader.UserID == "":
			r.faults.Add("q", "%s: an API key is no member; give a member's e-mail address or id", f.Text)
		case strings.EqualFold(value, "me"):
			given = append(given, r.query.Reader.UserID)
		case strings.Contains(value, "@"):
			p, ok, err := r.directory.AgentByEmail(r.ctx, r.q, r.organizationID, value)
			if err != nil {
				return fmt.Errorf("look up assignee: %w", err)
			}
			if !ok {
				r.faults.Add("q", "%s: no member has this e-mail address", f.Text)
			}
			given = append(given, p.ID)
		default:
			given = append(given, value)
		}
	}
	r.restrict(f, &r.query.AssigneeID, &r.query.without.assigneeID, given)
	return nil
}

// readCustomer reads customers by e-mail address, phone number or id.
func (r *filterReader) readCustomer(f *query.Filter) error {
	if f.Not {
		r.faults.Add("q", "%s: customers cannot be excluded", f.Text)
		return nil
	}
	var given []string
	for _, value := range f.Values {
		key := ""
		switch number := e164(value); {
		case strings.Contains(value, "@"):
			key = emailKey(value)
		case number != "":
			key = phoneKey(number)
		default:
			given = append(given, value)
			continue
		}
		var id string
		err := r.q.QueryRow(r.ctx, "SELECT customer_id FROM contact_points WHERE value = $1 AND scope = $2 AND customer_id IS NOT NULL", key, r.organizationID).Scan(&id)
		if errors.Is(err, db.ErrNoRows) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look up customer: %w", err)
		}
		given = append(given, id)
	}
	narrow(r, &r.query.CustomerID, given)
	return nil
}

// readTime reads a range of days or times.
func (r *filterReader) readTime(f *query.Filter) {
	to := &r.query.CreatedAt
	if f.Field == "updated" {
		to = &r.query.UpdatedAt
	}
	moments := make([]moment, len(f.Values))
	ok := !f.Not && (len(f.Values) == 1 || f.Op == query.Between)
	for i, value := range f.Values {
		var is bool
		moments[i], is = r.moment(value)
		ok = ok && is
	}
	if !ok {
		r.faults.Add("q", "%s: use %s:2026-01-31, %[2]s:>2026-01-31, or %[2]s:2026-01-01..2026-01-31; a time is written as 2026-01-31T09:30:00Z", f.Text, f.Field)
		return
	}
	low, high := moments[0], moments[len(moments)-1]
	switch f.Op {
	case query.After:
		raiseLow(to, low.end, low.start.Equal(low.end))
	case query.From:
		raiseLow(to, low.start, false)
	case query.Before:
		lowerHigh(to, high.start, true)
	case query.To:
		lowerHigh(to, high.end, !high.start.Equal(high.end))
	default:
		raiseLow(to, low.start, false)
		lowerHigh(to, high.end, !high.start.Equal(high.end))
	}
}

// moment is a day, without its end, or a time, which is both.
type moment struct{ start, end time.Time }

// moment reads a day or a time; false if the text is neither.
func (r *filterReader) moment(text string) (moment, bool) {
	zone := r.query.Reader.Zone
	if zone == nil {
		zone = time.UTC
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		y, m, d := day.Date()
		return moment{period.StartOf(y, m, d, zone), period.StartOf(y, m, d+1, zone)}, true
	}
	at, err := time.Parse(time.RFC3339, strings.ToUpper(text))
	return moment{at, at}, err == nil
}

// raiseLow and lowerHigh narrow a range.
func raiseLow(r *period.Range, at time.Time, open bool) {
	if r.Low == nil || at.After(*r.Low) || at.Equal(*r.Low) && open {
		r.Low, r.LowOpen = &at, open
	}
}

func lowerHigh(r *period.Range, at time.Time, open bool) {
	if r.High == nil || at.Before(*r.High) || at.Equal(*r.High) && open {
		r.High, r.HighOpen = &at, open
	}
}
