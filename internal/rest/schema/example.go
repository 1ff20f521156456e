package schema

import "strings"

// Examples builds examples of records from their descriptions.
type Examples struct {
	// ID returns the id of an example record: of a "ticket", or the "assignee" of assignee_id.
	ID func(of string) string
}

// exampleTime is the time in all examples.
const exampleTime = "2026-03-14T09:26:53.250Z"

// Record returns an example of a record in an answer (""), with all members that are always
// there, or in a body ("create", "update"), with the members that are required or have an example.
func (x Examples) Record(r *Record, as string) map[string]any {
	return x.object(r.Name, r.Members, as)
}

func (x Examples) object(of string, members []Member, as string) object {
	o := object{}
	for i := range members {
		m := &members[i]
		switch {
		case as == "" && (m.WriteOnly || m.Sometimes && m.Example == nil):
		case as != "" && (m.Access.locked(as == "update") || as == "create" && m.Access == UpdateOnly):
		case as != "" && m.Example == nil && (as == "update" || !m.Access.required()):
			if nested := x.value(of, m, as); m.Type.kind == kindObject && len(nested.(object)) > 0 {
				o[m.Name] = nested
			}
		case m.Example == nil && m.Nullable:
			o[m.Name] = nil
		default:
			o[m.Name] = x.value(of, m, as)
		}
	}
	return o
}

// value returns the value of a field of the record of.
func (x Examples) value(of string, m *Member, as string) any {
	if m.Example != nil {
		return m.Example
	}
	if values := m.settable(as); values != nil {
		return values[0]
	}
	name := strings.TrimSuffix(m.Name, "_id")
	if m.Name == "id" {
		name = of
	}
	return x.of(name, &m.Type, as)
}

// of returns a value of a type.
func (x Examples) of(name string, t *Type, as string) any {
	switch t.kind {
	case kindString:
		switch {
		case t.id:
			return x.ID(strings.TrimSuffix(name, "_ids"))
		case t.format == "date-time":
			return exampleTime
		case t.format == "uuid":
			return "019aa0f2-8c1e-7d33-9a52-6f4f0c1b2d3e"
		case t.format == "uri":
			return "https://example.com/" + name
		}
		return strings.ReplaceAll(name, "_", " ")
	case kindInt, kindNumber:
		if t.bounded {
			return max(t.min, min(1, t.max))
		}
		return 1
	case kindBool:
		return true
	case kindTime:
		return exampleTime
	case kindDate:
		return "2026-03-14"
	case kindEnum:
		return t.values[0]
	case kindArray:
		return x.items(name, t.of, as)
	case kindObject:
		if as != "" {
			as = "create" // an object is replaced as a whole
		}
		if t.record != nil {
			name = t.record.Name
		}
		return x.object(name, t.members, as)
	case kindMap, kindMetadata:
		return object{}
	}
	if t.record != nil {
		return x.object(t.record.Name, t.record.Members, as)
	}
	return nil
}

// items returns a list with one example, or none of plain texts.
func (x Examples) items(name string, of *Type, as string) []any {
	if of.kind == kindString && !of.id {
		return []any{}
	}
	return []any{x.of(strings.TrimSuffix(name, "s"), of, as)}
}
