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
	responded []int64      // seconds from creation to the first response; -1: none
	resolved  []int64      // seconds from creation to resolution; -1: unresolved
	marks     []reportMark // by ticket
	fields    [reportFields]reportField
}

// The fields by which reports group tickets. Their order is stored.
const (
	channelField = iota
	tagField
	assigneeField
	reportFields
	noField = -1
)

// reportField has the values of a field. Each set of values is the field of one or more tickets.
type reportField struct {
	index []int64    // of sets, by ticket
	sets  [][]string // JSON is their stored form
}

// add appends the set of the next ticket. known has the index of each set by a key.
func (f *reportField) add(known map[string]int64, key string, values func() ([]string, error)) error {
	at, ok := known[key]
	if !ok {
		set, err := values()
		if err != nil {
			return err
		}
		at = int64(len(f.sets))
		known[key], f.sets = at, append(f.sets, set)
	}
	f.index = append(f.index, at)
	return nil
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
	f.numbers, f.created, f.responded, f.resolved, f.marks = f.numbers[:0], f.created[:0], f.responded[:0], f.resolved[:0], f.marks[:0]
	for i := range f.fields {
		f.fields[i] = reportField{index: f.fields[i].index[:0]}
	}
}

// unresolved returns the facts of the tickets without a resolution.
func (f *reportFacts) unresolved() *reportFacts {
	open := new(reportFacts)
	for k := range f.fields {
		open.fields[k].sets = f.fields[k].sets
	}
	index := make(map[int]int) // of tickets in open
	for i, resolved := range f.resolved {
		if resolved >= 0 {
			continue
		}
		index[i] = len(open.numbers)
		open.numbers, open.created = append(open.numbers, f.numbers[i]), append(open.created, f.created[i])
		open.responded, open.resolved = append(open.responded, f.responded[i]), append(open.resolved, resolved)
		for k := range f.fields {
			open.fields[k].index = append(open.fields[k].index, f.fields[k].index[i])
		}
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

// encode returns the stored form of facts whose numbers begin at first: the numbers of tickets and
// marks, the columns of tickets and those of marks; then of each field its sets and its column. Before
// all columns and sets stands their length.
func (f *reportFacts) encode(first int64) ([]byte, error) {
	out := binary.AppendUvarint(nil, uint64(len(f.numbers)))
	out = binary.AppendUvarint(out, uint64(len(f.marks)))
	gaps := make([]int64, len(f.numbers))
	for i, n := range f.numbers {
		gaps[i] = n - first - int64(i)
	}
	out = appendPart(out, packColumns(gaps, f.created, f.responded, f.resolved))
	kinds, after := make([]int64, len(f.marks)), make([]int64, len(f.marks))
	for i, m := range f.marks {
		kinds[i], after[i] = int64(m.ticket)*int64(markKinds)+int64(m.kind), m.after
	}
	out = appendPart(out, packColumns(kinds, after))
	for _, field := range f.fields {
		used := field.used()
		sets, err := json.Marshal(used.sets)
		if err != nil {
			return nil, err
		}
		out = appendPart(appendPart(out, sets), packColumns(used.index))
	}
	return out, nil
}

// used returns the field without sets of no ticket.
func (f *reportField) used() reportField {
	var out reportField
	index := make(map[int64]int64) // of sets in out
	for _, i := range f.index {
		at, ok := index[i]
		if !ok {
			at = int64(len(out.sets))
			index[i] = at
			out.sets = append(out.sets, f.sets[i])
		}
		out.index = append(out.index, at)
	}
	return out
}

func packColumns(columns ...[]int64) []byte {
	var text []byte
	for _, c := range columns {
		text = bitpack.Append(text, c)
	}
	return bitpack.Finish(text)
}

func appendPart(to, part []byte) []byte {
	return append(binary.AppendUvarint(to, uint64(len(part))), part...)
}

var errReportFacts = errors.New("stored facts of reports are corrupt")

// cutSize cuts a number off a stored text.
func cutSize(text []byte) (n int, rest []byte, err error) {
	v, size := binary.Uvarint(text)
	if size <= 0 || v > 1<<30 {
		return 0, nil, errReportFacts
	}
	return int(v), text[size:], nil
}

// cutPart cuts a part with its length off a stored text.
func cutPart(text []byte) (part, rest []byte, err error) {
	n, rest, err := cutSize(text)
	if err != nil || n > len(rest) {
		return nil, nil, errReportFacts
	}
	return rest[:n:n], rest[n:], nil
}

// decode replaces f by the facts of a text of encode. Of the fields it has only the given one.
func (f *reportFacts) decode(first int64, text []byte, field int) error {
	f.reset()
	tickets, text, err := cutSize(text)
	if err != nil {
		return err
	}
	marks, text, err := cutSize(text)
	if err != nil {
		return err
	}
	var parts [2 + 2*reportFields][]byte
	for i := range parts {
		if parts[i], text, err = cutPart(text); err != nil {
			return err
		}
	}
	var columns [4]bitpack.Column
	if err := bitpack.Parse(parts[0], tickets, columns[:]); err != nil {
		return err
	}
	for i := range tickets {
		f.numbers = append(f.numbers, first+int64(i)+columns[0].At(i))
		f.created = append(f.created, columns[1].At(i))
		f.responded = append(f.responded, columns[2].At(i))
		f.resolved = append(f.resolved, columns[3].At(i))
	}
	if err := bitpack.Parse(parts[1], marks, columns[:2]); err != nil {
		return err
	}
	for i := range marks {
		kind := columns[0].At(i)
		f.marks = append(f.marks, reportMark{int(kind / int64(markKinds)), markKind(kind % int64(markKinds)), columns[1].At(i)})
	}
	if field == noField {
		return nil
	}
	own := &f.fields[field]
	if err := json.Unmarshal(parts[2+2*field], &own.sets); err != nil {
		return fmt.Errorf("%w: %w", errReportFacts, err)
	}
	if err := bitpack.Parse(parts[3+2*field], tickets, columns[:1]); err != nil {
		return err
	}
	for i := range tickets {
		own.index = append(own.index, columns[0].At(i))
	}
	return nil
}

// readReportFacts reads the facts of an organization's tickets that meet a condition on their
// number, with $2 and following arguments.
func readReportFacts(ctx context.Context, q db.Querier, organizationID, where string, args ...any) (*reportFacts, error) {
	args = append([]any{organizationID}, args...)
	f := new(reportFacts)
	index := make(map[int64]int)             // of tickets by number
	var known [reportFields]map[string]int64 // sets of the fields
	for k := range known {
		known[k] = make(map[string]int64)
	}
	rows, err := q.Query(ctx, `SELECT number, created_at, channel, coalesce(assignee_id, ''), coalesce(tags, ''),
			coalesce(first_responded_at, -1), coalesce(resolved_at, -1), coalesce(sla, '')
		FROM tickets WHERE organization_id = $1 AND `+where+" ORDER BY number", args...)
	if err != nil {
		return nil, fmt.Errorf("read tickets of reports: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var number, created, responded, resolved int64
		var channel, assignee, tags, sla string
		if err := rows.Scan(&number, &created, &channel, &assignee, &tags, &responded, &resolved, &sla); err != nil {
			return nil, err
		}
		one := func(value string) func() ([]string, error) {
			return func() ([]string, error) { return []string{value}, nil }
		}
		if err := errors.Join(
			f.fields[channelField].add(known[channelField], channel, one(channel)),
			f.fields[assigneeField].add(known[assigneeField], assignee, one(assignee)),
			f.fields[tagField].add(known[tagField], tags, func() ([]string, error) { return tagValues(tags) }),
		); err != nil {
			return nil, fmt.Errorf("read tags of ticket %d: %w", number, err)
		}
		created /= second
		i := len(f.numbers)
		index[number] = i
		f.numbers, f.created = append(f.numbers, number), append(f.created, created)
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

// tagValues returns the tags of a ticket; the empty text for none.
func tagValues(stored string) ([]string, error) {
	var tags []string
	if stored != "" {
		if err := json.Unmarshal([]byte(stored), &tags); err != nil {
			return nil, err
		}
	}
	if len(tags) == 0 {
		tags = []string{""}
	}
	return tags, nil
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
