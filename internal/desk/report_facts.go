package desk

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/bitpack"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// reportFacts are the facts of tickets that reports count, a column each. Times are Unix seconds.
type reportFacts struct {
	numbers   []int64 // ascending
	created   []int64
	responded []int64 // seconds from creation to the first response; -1: none
	resolved  []int64 // seconds from creation to resolution; -1: unresolved
	group     []int64 // index of groups
	groups    []reportGroup
	marks     []reportMark // by ticket
}

// reportGroup has the fields by which reports group tickets. Its JSON is stored.
type reportGroup struct {
	Channel  string   `json:"channel"`
	Assignee string   `json:"assignee,omitempty"`
	Tags     []string `json:"tags,omitempty"`
}

// reportMark is a moment of a ticket.
type reportMark struct {
	ticket int // index of the columns
	kind   markKind
	after  int64 // seconds from creation
}

// markKind is the meaning of a mark. Its values are stored.
type markKind int64

// The kinds.
const (
	markMet      markKind = iota // SLA target met
	markBreached                 // SLA target breached
	markReopened
	markKinds
)

// reset empties the facts; the memory is used again.
func (f *reportFacts) reset() {
	f.numbers, f.created, f.responded, f.resolved, f.group = f.numbers[:0], f.created[:0], f.responded[:0], f.resolved[:0], f.group[:0]
	f.groups, f.marks = nil, f.marks[:0]
}

// unresolved returns the facts of the tickets without a resolution.
func (f *reportFacts) unresolved() *reportFacts {
	open := &reportFacts{groups: f.groups}
	index := make(map[int]int) // of tickets in open
	for i, resolved := range f.resolved {
		if resolved >= 0 {
			continue
		}
		index[i] = len(open.numbers)
		open.numbers, open.created = append(open.numbers, f.numbers[i]), append(open.created, f.created[i])
		open.responded, open.resolved = append(open.responded, f.responded[i]), append(open.resolved, resolved)
		open.group = append(open.group, f.group[i])
	}
	for _, m := range f.marks {
		if i, ok := index[m.ticket]; ok {
			open.marks = append(open.marks, reportMark{i, m.kind, m.after})
		}
	}
	return open
}

// span returns the earliest creation and the latest time of the facts; 0 without tickets.
func (f *reportFacts) span() (first, last int64) {
	if len(f.created) == 0 {
		return 0, 0
	}
	first = slices.Min(f.created)
	for i, at := range f.created {
		last = max(last, at+max(f.resolved[i], 0))
	}
	for _, m := range f.marks {
		last = max(last, f.created[m.ticket]+m.after)
	}
	return first, last
}

// encode returns the stored form of facts whose numbers begin at first: the numbers of tickets,
// marks and bytes of groups; the groups; the length of the columns of tickets, these, and those of
// marks. It contains only groups in use.
func (f *reportFacts) encode(first int64) ([]byte, error) {
	gaps, group := make([]int64, len(f.numbers)), make([]int64, len(f.numbers))
	var used []reportGroup
	index := make(map[int64]int64) // of groups in used
	for i, n := range f.numbers {
		gaps[i] = n - first - int64(i)
		at, ok := index[f.group[i]]
		if !ok {
			at = int64(len(used))
			index[f.group[i]] = at
			used = append(used, f.groups[f.group[i]])
		}
		group[i] = at
	}
	names, err := json.Marshal(used)
	if err != nil {
		return nil, err
	}
	var tickets, marks []byte
	for _, column := range [...][]int64{gaps, f.created, f.responded, f.resolved, group} {
		tickets = bitpack.Append(tickets, column)
	}
	tickets = bitpack.Finish(tickets)
	kinds, after := make([]int64, len(f.marks)), make([]int64, len(f.marks))
	for i, m := range f.marks {
		kinds[i], after[i] = int64(m.ticket)*int64(markKinds)+int64(m.kind), m.after
	}
	marks = bitpack.Finish(bitpack.Append(bitpack.Append(marks, kinds), after))
	var out []byte
	for _, n := range [...]int{len(f.numbers), len(f.marks), len(names), len(tickets)} {
		out = binary.AppendUvarint(out, uint64(n))
	}
	return slices.Concat(out, names, tickets, marks), nil
}

var errReportFacts = errors.New("stored facts of reports are corrupt")

// decode replaces f by the facts of a text of encode.
func (f *reportFacts) decode(first int64, text []byte) error {
	f.reset()
	var sizes [4]int // see encode
	for i := range sizes {
		n, size := binary.Uvarint(text)
		if size <= 0 || n > uint64(len(text))*64 {
			return errReportFacts
		}
		sizes[i], text = int(n), text[size:]
	}
	tickets, marks, names, length := sizes[0], sizes[1], sizes[2], sizes[3]
	if names+length > len(text) {
		return errReportFacts
	}
	if err := json.Unmarshal(text[:names], &f.groups); err != nil {
		return fmt.Errorf("%w: %w", errReportFacts, err)
	}
	var columns [5]bitpack.Column
	if err := bitpack.Parse(text[names:names+length], tickets, columns[:]); err != nil {
		return err
	}
	for i := range tickets {
		f.numbers = append(f.numbers, first+int64(i)+columns[0].At(i))
		f.created = append(f.created, columns[1].At(i))
		f.responded = append(f.responded, columns[2].At(i))
		f.resolved = append(f.resolved, columns[3].At(i))
		f.group = append(f.group, columns[4].At(i))
	}
	if err := bitpack.Parse(text[names+length:], marks, columns[:2]); err != nil {
		return err
	}
	for i := range marks {
		kind := columns[0].At(i)
		f.marks = append(f.marks, reportMark{int(kind / int64(markKinds)), markKind(kind % int64(markKinds)), columns[1].At(i)})
	}
	return nil
}

// readReportFacts reads the facts of an organization's tickets that meet a condition on their
// number, with $2 and following arguments.
func readReportFacts(ctx context.Context, q db.Querier, organizationID, where string, args ...any) (*reportFacts, error) {
	args = append([]any{organizationID}, args...)
	f := new(reportFacts)
	index := make(map[int64]int)     // of tickets by number
	groups := make(map[string]int64) // by their fields
	rows, err := q.Query(ctx, `SELECT number, created_at, channel, coalesce(assignee_id, ''), coalesce(tags, ''),
			coalesce(first_responded_at, -1), coalesce(resolved_at, -1), coalesce(sla, '')
		FROM tickets WHERE organization_id = $1 AND `+where+" ORDER BY number", args...)
	if err != nil {
		return nil, fmt.Errorf("read tickets of reports: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var number, created, responded, resolved int64
		var g reportGroup
		var tags, sla string
		if err := rows.Scan(&number, &created, &g.Channel, &g.Assignee, &tags, &responded, &resolved, &sla); err != nil {
			return nil, err
		}
		key := g.Channel + "\x00" + g.Assignee + "\x00" + tags
		at, ok := groups[key]
		if !ok {
			if tags != "" {
				if err := json.Unmarshal([]byte(tags), &g.Tags); err != nil {
					return nil, fmt.Errorf("read tags of ticket %d: %w", number, err)
				}
			}
			at = int64(len(f.groups))
			groups[key], f.groups = at, append(f.groups, g)
		}
		created /= second
		i := len(f.numbers)
		index[number] = i
		f.numbers, f.created, f.group = append(f.numbers, number), append(f.created, created), append(f.group, at)
		f.responded, f.resolved = append(f.responded, secondsAfter(created, responded)), append(f.resolved, secondsAfter(created, resolved))
		if err := f.addClocks(i, sla); err != nil {
			return nil, fmt.Errorf("read SLA of ticket %d: %w", number, err)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	reopened, err := q.Query(ctx, "SELECT number, reopened_at FROM ticket_reopenings WHERE organization_id = $1 AND "+where, args...)
	if err != nil {
		return nil, fmt.Errorf("read reopenings: %w", err)
	}
	defer reopened.Close()
	for reopened.Next() {
		var number, at int64
		if err := reopened.Scan(&number, &at); err != nil {
			return nil, err
		}
		if i, ok := index[number]; ok {
			f.marks = append(f.marks, reportMark{i, markReopened, at/second - f.created[i]})
		}
	}
	slices.SortStableFunc(f.marks, func(a, b reportMark) int { return a.ticket - b.ticket })
	return f, reopened.Err()
}

// second is one in microseconds.
const second = 1_000_000

// secondsAfter returns the seconds from a creation to a time in microseconds; -1 for a time of -1.
// A reply can be older than its ticket's first event: that is 0.
func secondsAfter(created, at int64) int64 {
	if at == -1 {
		return -1
	}
	return max(at/second-created, 0)
}

// addClocks adds the ends of the SLA clocks of ticket i.
func (f *reportFacts) addClocks(i int, sla string) error {
	if sla == "" {
		return nil
	}
	var clocks []clock
	if err := json.Unmarshal([]byte(sla), &clocks); err != nil {
		return err
	}
	for _, c := range clocks {
		switch c.state() {
		case SLAMet:
			f.marks = append(f.marks, reportMark{i, markMet, c.MetAt/second - f.created[i]})
		case SLABreached:
			f.marks = append(f.marks, reportMark{i, markBreached, c.BreachedAt/second - f.created[i]})
		}
	}
	return nil
}
