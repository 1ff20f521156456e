package schema

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

type object = map[string]any

// Components collects the OpenAPI schemas of records. A record has a schema for answers, with its
// name, and others for bodies, which list only the members that a client can set: "ticket",
// "ticket_create", "ticket_update"; a record that is only a body has only that one, with its name.
// Objects nested in records have schemas too: "ticket_assignee",
// "position", and in bodies "position_input".
type Components struct {
	Schemas object
	owners  map[string]string // of nested objects: the member each schema is named for
	records map[string]*Record
	added   map[string][]Member // expansions in answers, by record
	answers map[*Record]bool
}

// NewComponents returns components without schemas, for an API that answers with these records.
func NewComponents(answers ...*Record) *Components {
	d := &Components{Schemas: object{}, owners: map[string]string{}, records: map[string]*Record{}, added: map[string][]Member{}, answers: map[*Record]bool{}}
	for _, r := range answers {
		d.answers[r] = true
	}
	return d
}

// Expand adds the optional member of an expansion to the answers with r: the record by. A member
// that r has already is always there, and gets the type. Call it before [Components.Ref].
func (d *Components) Expand(r *Record, name string, by *Record) {
	m := Member{Name: name, Nullable: true, Sometimes: true, Doc: "Present when expanded."}
	if own := findMember(r.Members, name); own != nil {
		m = *own
	}
	m.Type = Nested(by)
	if !slices.ContainsFunc(d.added[r.Name], func(other Member) bool { return other.Name == name }) {
		d.added[r.Name] = append(d.added[r.Name], m)
	}
}

// SchemaName returns the name of a record's schema. Dots would need escapes in generated clients.
func (r *Record) SchemaName() string { return strings.ReplaceAll(r.Name, ".", "_") }

// Ref returns a reference to the schema of a record in an answer (""), in a body ("create",
// "update"), or nested in a body ("input").
func (d *Components) Ref(r *Record, as string) (object, error) {
	if known, ok := d.records[r.Name]; ok && known != r {
		return nil, fmt.Errorf("there are two records with the name %s", r.Name)
	}
	d.records[r.Name] = r
	members := r.Members
	if as == "" {
		members = slices.Clone(members)
		for _, m := range d.added[r.Name] {
			members = append(slices.DeleteFunc(members, func(own Member) bool { return own.Name == m.Name }), m)
		}
	}
	o := objectSchema{name: r.SchemaName(), base: r.SchemaName(), owner: r.Name, doc: r.Doc, members: members, as: as}
	if as == "input" || as != "" && d.answers[r] {
		o.name += "_" + as
	}
	return d.object(o)
}

// objectSchema is an object that gets a schema.
type objectSchema struct {
	name    string // of the schema
	base    string // begins the names of objects nested in it
	owner   string // what it is named for
	doc     string
	members []Member
	as      string // as in [Components.Ref]
}

// object returns a reference to the schema of an object.
func (d *Components) object(o objectSchema) (object, error) {
	ref := object{"$ref": "#/components/schemas/" + o.name}
	if d.Schemas[o.name] != nil {
		if d.owners[o.name] != o.owner {
			return nil, fmt.Errorf("%s and %s have the same schema name %s", d.owners[o.name], o.owner, o.name)
		}
		return ref, nil
	}
	d.Schemas[o.name], d.owners[o.name] = object{}, o.owner // for recursive records
	s, err := d.fields(o)
	if err != nil {
		return nil, err
	}
	if o.doc != "" {
		s["description"] = o.doc
	}
	d.Schemas[o.name] = s
	return ref, nil
}

// fields returns the schema of an object.
func (d *Components) fields(o objectSchema) (object, error) {
	as := o.as
	properties := object{}
	var required []string
	for i := range o.members {
		m := &o.members[i]
		switch {
		case as == "" && m.WriteOnly:
			continue
		case as != "" && m.Access.locked(as == "update"), as == "create" && m.Access == UpdateOnly:
			continue
		case as == "" && !m.Sometimes, as != "" && as != "update" && m.Access.required():
			required = append(required, m.Name)
		}
		s, err := d.member(m, o.base, as)
		if err != nil {
			return nil, err
		}
		properties[m.Name] = s
	}
	s := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	if as == "create" { // elsewhere a client may repeat members that it cannot set
		s["additionalProperties"] = false
	}
	return s, nil
}

// member returns the schema of a field of the object with the schema name parent.
func (d *Components) member(m *Member, parent, as string) (object, error) {
	s, err := d.schema(&m.Type, parent+"_"+m.Name, as)
	if err != nil {
		return nil, err
	}
	if values := m.settable(as); values != nil {
		s["enum"] = anys(values)
	}
	top := as == "create" || as == "update"
	clears := top && !m.Access.required() && (m.Type.kind == kindArray || m.Type.kind == kindMetadata)
	if m.Nullable || clears {
		s = nullable(s)
	}
	if m.Doc != "" {
		s["description"] = m.Doc
	}
	if m.Example != nil {
		s["examples"] = []any{m.Example}
	}
	return s, nil
}

// nullable returns the schema of a value or null. An enum becomes one of two schemas, because
// generated clients would make a constant of a null in the list.
func nullable(s object) object {
	t, plain := s["type"].(string)
	switch {
	case len(s) == 0:
		return s // any value
	case plain && s["enum"] == nil:
		s["type"] = []string{t, "null"}
		return s
	default:
		return object{"anyOf": []object{s, {"type": "null"}}}
	}
}

// schema returns the schema of a type. name is the one of an object in it that has no own.
func (d *Components) schema(t *Type, name, as string) (object, error) {
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
		return object{"type": "string", "enum": anys(t.values)}, nil
	case kindArray:
		of, err := d.schema(t.of, singular(name), as)
		if err != nil {
			return nil, err
		}
		s := object{"type": "array", "items": of}
		if as != "" && t.max < math.MaxInt32 {
			s["maxItems"] = t.max
		}
		return s, nil
	case kindObject:
		o := objectSchema{name: name, base: name, owner: name, members: t.members, as: as}
		if as != "" {
			o.as = "input"
			o.name += "_input"
		}
		if t.record != nil {
			return d.Ref(t.record, o.as)
		}
		return d.object(o)
	case kindMap:
		of, err := d.schema(t.of, singular(name), as)
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
	if t.record != nil {
		return d.Ref(t.record, as)
	}
	return object{}, nil
}

func anys(values []string) []any {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	return list
}

// singular returns the name of one item of a list.
func singular(name string) string {
	if stem, ok := strings.CutSuffix(name, "ies"); ok {
		return stem + "y"
	}
	return strings.TrimSuffix(name, "s")
}
