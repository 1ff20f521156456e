package schema

import (
	"fmt"
	"math"
	"slices"
)

type object = map[string]any

// Components collects the OpenAPI schemas of records.
type Components struct {
	Schemas object
	records map[string]*Record
}

// NewComponents returns components without schemas.
func NewComponents() *Components {
	return &Components{Schemas: object{}, records: map[string]*Record{}}
}

// Ref returns a reference to the schema of a record in an answer ("") or a body ("create",
// "update").
func (d *Components) Ref(r *Record, as string) (object, error) {
	name := r.Name
	if as != "" {
		name += "_" + as
	}
	if known, ok := d.records[r.Name]; ok && known != r {
		return nil, fmt.Errorf("there are two records with the name %s", r.Name)
	}
	d.records[r.Name] = r
	ref := object{"$ref": "#/components/schemas/" + name}
	if d.Schemas[name] != nil {
		return ref, nil
	}
	d.Schemas[name] = object{} // for recursive records
	s, err := d.Object(r.Members, as, true)
	if err != nil {
		return nil, err
	}
	if r.Doc != "" {
		s["description"] = r.Doc
	}
	d.Schemas[name] = s
	return ref, nil
}

// Object returns the schema of an object. top is set for a record, and not for an object nested
// in one.
func (d *Components) Object(members []Member, as string, top bool) (object, error) {
	properties := object{}
	var required []string
	for i := range members {
		m := &members[i]
		switch {
		case as == "" && m.WriteOnly:
			continue
		case top && as == "create" && (m.Access.locked(false) || m.Access == UpdateOnly):
			continue
		case as == "" && !m.Sometimes, as != "" && m.Access.required() && (!top || as == "create"):
			required = append(required, m.Name)
		}
		s, err := d.member(m, as, top)
		if err != nil {
			return nil, err
		}
		properties[m.Name] = s
	}
	s := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	if as != "" {
		s["additionalProperties"] = false
	}
	return s, nil
}

// member returns the schema of a field.
func (d *Components) member(m *Member, as string, top bool) (object, error) {
	s, err := d.schema(&m.Type, as)
	if err != nil {
		return nil, err
	}
	clears := as != "" && top && !m.Access.required() && (m.Type.kind == kindArray || m.Type.kind == kindMetadata)
	if m.Nullable || clears {
		s = nullable(s)
	}
	if m.Doc != "" {
		s["description"] = m.Doc
	}
	if m.Example != nil {
		s["examples"] = []any{m.Example}
	}
	if m.WriteOnly {
		s["writeOnly"] = true
	}
	if m.Access.locked(as == "update") { // a body may repeat it
		s["readOnly"] = true
	}
	return s, nil
}

func nullable(s object) object {
	switch t := s["type"].(type) {
	case string:
		s["type"] = []string{t, "null"}
		if values, ok := s["enum"].([]any); ok {
			s["enum"] = append(slices.Clone(values), nil)
		}
		return s
	default:
		if len(s) == 0 {
			return s // any value
		}
		return object{"anyOf": []object{s, {"type": "null"}}}
	}
}

// schema returns the schema of a type.
func (d *Components) schema(t *Type, as string) (object, error) {
	switch t.kind {
	case kindString:
		s := object{"type": "string"}
		if t.bounded && as != "" {
			if t.min > 0 {
				s["minLength"] = t.min
			}
			s["maxLength"] = t.max
		}
		if t.format != "" {
			s["format"] = t.format
		}
		return s, nil
	case kindInt, kindNumber:
		s := object{"type": "number"}
		if t.kind == kindInt {
			s["type"], s["format"] = "integer", "int64"
		}
		if t.bounded {
			s["minimum"], s["maximum"] = t.min, t.max
		}
		return s, nil
	case kindBool:
		return object{"type": "boolean"}, nil
	case kindTime:
		return object{"type": "string", "format": "date-time"}, nil
	case kindDate:
		return object{"type": "string", "format": "date"}, nil
	case kindEnum:
		values := make([]any, len(t.values))
		for i, v := range t.values {
			values[i] = v
		}
		return object{"type": "string", "enum": values}, nil
	case kindArray:
		of, err := d.schema(t.of, as)
		if err != nil {
			return nil, err
		}
		s := object{"type": "array", "items": of}
		if as != "" && t.max < math.MaxInt32 {
			s["maxItems"] = t.max
		}
		return s, nil
	case kindObject:
		if t.record != nil {
			return d.Ref(t.record, as)
		}
		return d.Object(t.members, as, false)
	case kindMap:
		of, err := d.schema(t.of, as)
		if err != nil {
			return nil, err
		}
		return object{"type": "object", "additionalProperties": of}, nil
	case kindMetadata:
		if as != "" {
			return object{"type": "object", "additionalProperties": object{"type": []string{"string", "null"}, "maxLength": maxMetadataValue},
				"propertyNames": object{"minLength": 1, "maxLength": maxMetadataKey}}, nil
		}
		return object{"type": "object", "additionalProperties": object{"type": "string"}}, nil
	}
	return object{}, nil
}
