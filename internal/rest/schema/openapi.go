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
	required := []string{}
	for i := range members {
		m := &members[i]
		if as == "" && m.WriteOnly {
			continue
		}
		s, err := d.schema(&m.Type, as)
		if err != nil {
			return nil, err
		}
		clears := as != "" && top && !m.Nullable && m.Access != Required && m.Access != CreateRequired &&
			(m.Type.kind == kindArray || m.Type.kind == kindMetadata)
		if m.Nullable || clears {
			s = nullable(s)
		}
		if m.Doc != "" {
			s["description"] = m.Doc
		}
		if m.Example != nil {
			s["examples"] = []any{m.Example}
		}
		if as == "" {
			if m.Access == ReadOnly {
				s["readOnly"] = true
			}
			if !m.Sometimes {
				required = append(required, m.Name)
			}
		} else {
			if m.WriteOnly {
				s["writeOnly"] = true
			}
			// A body may repeat a read-only field.
			locked := m.Access == ReadOnly || as == "update" && (m.Access == CreateOnly || m.Access == CreateRequired)
			if top && as == "create" && (locked || m.Access == UpdateOnly) {
				continue
			}
			if locked {
				s["readOnly"] = true
			}
			if (m.Access == Required || m.Access == CreateRequired) && (!top || as == "create") {
				required = append(required, m.Name)
			}
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
		if t.bounded {
			if t.min > 0 && as != "" {
				s["minLength"] = t.min
			}
			if as != "" {
				s["maxLength"] = t.max
			}
		}
		if t.format != "" {
			s["format"] = t.format
		}
		return s, nil
	case kindInt:
		s := object{"type": "integer", "format": "int64"}
		if t.bounded {
			s["minimum"], s["maximum"] = t.min, t.max
		}
		return s, nil
	case kindNumber:
		s := object{"type": "number"}
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
