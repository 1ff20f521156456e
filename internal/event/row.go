package event

import (
	"iter"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"

	"github.com/google/uuid"
)

// Events of one change that have the same records share a row, which has the snapshot once: each
// row costs an entry in every index. The ids of such events differ in the last digit, from 0 for
// the first, which is the id of the row. The column members names them with their parts of the
// snapshot.

// MembersSince is the migration that programs must know to read rows of several events.
const MembersSince = 55

// maxMembers is the number of ids that differ in the last hexadecimal digit.
const maxMembers = 16

const digits = "0123456789abcdef"

// rowID returns the id of the row that holds an event, if the event shares it. Text that is no id
// is returned as it is.
func rowID(id string) string {
	if !isID(id) {
		return id
	}
	return id[:len(id)-1] + "0"
}

func isID(text string) bool {
	_, err := uuid.Parse(text)
	return err == nil && len(text) == 36
}

// memberID returns the id of the i-th event of a row.
func memberID(row string, i int) string { return row[:len(row)-1] + digits[i:i+1] }

// isFrequent reports whether an event is one of frequentNames. Others have rows of their own, for
// the index by name.
func (n Name) isFrequent() bool { return strings.Contains(frequentNames, "'"+string(n)+"'") }

// canShare reports whether a row can hold an event beside others.
func (e *Event) canShare() bool {
	d := &e.Data
	return e.Name.isFrequent() && d.SLA == nil && d.Changes == nil && d.Entry == nil && !d.Test
}

// add adds the records of other, and reports whether d had no different ones.
func (d *Data) add(other *Data) bool {
	all := *d
	ok := union(&all.Ticket, other.Ticket) && union(&all.Message, other.Message) && union(&all.Customer, other.Customer)
	if ok {
		*d = all
	}
	return ok
}

func union[T any](have **T, other *T) bool {
	if *have == nil {
		*have = other
	}
	return other == nil || *have == other
}

// shareRow returns how many of the first events one row can hold, and their snapshot.
func shareRow(events []Event) (n int, all Data) {
	all = events[0].Data
	if !events[0].canShare() {
		return 1, all
	}
	for n = 1; n < min(len(events), maxMembers); n++ {
		if e := &events[n]; !e.canShare() || e.Name == CustomerCreated || !all.add(&e.Data) {
			break // see listRows for customers
		}
	}
	return n, all
}

// members returns the stored form of the events of a row.
func members(events []Event) string {
	if len(events) == 1 {
		return ""
	}
	var b strings.Builder
	for i := range events {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(string(events[i].Name))
		b.WriteByte(':')
		d := &events[i].Data
		if d.Ticket != nil {
			b.WriteByte('t')
		}
		if d.Message != nil {
			b.WriteByte('m')
		}
		if d.Customer != nil {
			b.WriteByte('c')
		}
	}
	return b.String()
}

// eventRow is a stored row.
type eventRow struct {
	Event   // the first one, with the snapshot of all
	members string
}

const selectRows = "SELECT id, organization_id, name, data, created_at, members FROM events "

func scanRow(row db.Row) (r eventRow, err error) {
	err = row.Scan(&r.ID, &r.OrganizationID, &r.Name, db.IntoJSON(&r.Data), db.IntoTime(&r.At), db.IntoText(&r.members))
	return r, err
}

// events returns the events of the row, in order. They share the records of the snapshot.
func (r *eventRow) events() []Event {
	if r.members == "" {
		return []Event{r.Event}
	}
	var list []Event
	for name, parts := range eachMember(r.members) {
		e := r.Event
		e.ID, e.Name, e.Data = memberID(r.ID, len(list)), Name(name), Data{}
		for _, part := range parts {
			switch part {
			case 't':
				e.Data.Ticket = r.Data.Ticket
			case 'm':
				e.Data.Message = r.Data.Message
			case 'c':
				e.Data.Customer = r.Data.Customer
			}
		}
		list = append(list, e)
	}
	return list
}

// eachMember yields the name and parts of each event of a row.
func eachMember(members string) iter.Seq2[string, string] {
	return func(yield func(name, parts string) bool) {
		for member := range strings.FieldsSeq(members) {
			if name, parts, _ := strings.Cut(member, ":"); !yield(name, parts) {
				return
			}
		}
	}
}

// IDs returns the ids of the events of a stored row, given its columns id and members. If part is
// set, those with that part of the snapshot only: "t" for the ticket.
func IDs(row, members, part string) []string {
	if members == "" {
		return []string{row}
	}
	var ids []string
	i := 0
	for _, parts := range eachMember(members) {
		if strings.Contains(parts, part) {
			ids = append(ids, memberID(row, i))
		}
		i++
	}
	return ids
}

// expand returns the events of rows that keep accepts; nil accepts all.
func expand(rows []eventRow, keep func(*Event) bool) []Event {
	var list []Event
	for i := range rows {
		list = append(list, rows[i].events()...)
	}
	if keep != nil {
		list = slices.DeleteFunc(list, func(e Event) bool { return !keep(&e) })
	}
	return list
}

// WithRows returns ids of events with those of rows that may hold them.
func WithRows(ids []string) []string {
	all := slices.Clone(ids)
	for _, id := range ids {
		all = append(all, rowID(id))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
