package schema

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// WithValues returns a description with the values of an enum.
func WithValues(doc string, values []string) string {
	return strings.TrimSpace(doc + " One of " + strings.Join(values, ", ") + ".")
}

// FieldDoc is a row in a table of fields or parameters.
type FieldDoc struct{ Name, Type, Note, Doc, Example string }

// Describe returns the rows of the record's fields. as is its use: an answer (""), or a body
// ("create", "update").
func (r *Record) Describe(as string) []FieldDoc { return showMembers(nil, "", r.Members, as) }

// showMembers adds rows for members; nested fields follow their object.
func showMembers(rows []FieldDoc, prefix string, members []Member, as string) []FieldDoc {
	for i := range members {
		m := &members[i]
		locked := m.Access.locked(as == "update") || as == "create" && prefix == "" && m.Access == UpdateOnly
		if as == "" && m.WriteOnly || as != "" && locked {
			continue
		}
		row := FieldDoc{Name: prefix + m.Name, Type: m.Type.show(), Doc: m.Doc}
		switch {
		case as == "create" && m.Access.required():
			row.Note = "required"
		case m.Nullable:
			row.Note = "or null"
		}
		if m.Type.kind == kindEnum && len(m.Type.values) > 1 {
			values := m.Type.values
			if some := m.settable(as); some != nil && prefix == "" {
				values = some
			}
			row.Doc = WithValues(row.Doc, values)
		}
		if m.Example != nil {
			if text, err := json.Marshal(m.Example); err == nil {
				row.Example = string(text)
			}
		}
		rows = append(rows, row)
		switch {
		case strings.Count(prefix, ".") >= 3: // recursive records
		case m.Type.kind == kindObject:
			rows = showMembers(rows, prefix+m.Name+".", m.Type.members, as)
		case m.Type.kind == kindArray && m.Type.of.kind == kindObject:
			rows = showMembers(rows, prefix+m.Name+"[].", m.Type.of.members, as)
		}
	}
	return rows
}

// show describes the type in words.
func (t *Type) show() string {
	switch t.kind {
	case kindString:
		if t.format != "" {
			return t.format
		}
		if t.bounded && t.max > 0 {
			return fmt.Sprintf("string, %d to %d", t.min, t.max)
		}
		return "string"
	case kindInt:
		if t.bounded {
			return fmt.Sprintf("integer, %d to %d", t.min, t.max)
		}
		return "integer"
	case kindNumber:
		return "number"
	case kindBool:
		return "boolean"
	case kindTime:
		return "time"
	case kindDate:
		return "date"
	case kindEnum:
		if len(t.values) == 1 {
			return strconv.Quote(t.values[0])
		}
		return "string"
	case kindArray:
		return "array of " + t.of.show()
	case kindObject:
		return "object"
	case kindMap, kindMetadata:
		return "map"
	}
	return "any"
}
