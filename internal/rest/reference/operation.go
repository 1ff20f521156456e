package reference

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/clientgen"
)

// group is a tag of the document with its operations.
type group struct {
	Name, Title, Path, Doc string
	Operations             []operation
}

// operation is an operation on the page of its group.
type operation struct {
	ID, Summary, Method, Needs, Status string
	Path                               string // below the base: "/rides/{id}"
	Template                           string // below the origin: "/v1/rides/{id}"
	Address                            string // with the origin
	Doc                                []string
	Deprecated, List                   bool
	Exports, Imports, Codes            []string
	Parameters, Body, Answer           []field
	Like                               *operation // the first of the page with the same Answer; nil: this one
	Samples                            []code
	Example                            *code // of the answer; nil: none

	// Of the form that runs it.
	Inputs              []input // of the path
	HasQuery            bool
	QueryText, BodyText string // of the example
}

// field is a row of a table of fields.
type field struct {
	Name, Type, Link, Note, Doc, Example string
	Values                               []string
}

// code is a block of code with a button that copies it.
type code struct {
	Label    string
	Language string // shown only while it is chosen; empty: always
	Text     string
}

// input is a parameter of the path of a request to run.
type input struct{ Name, Value string }

// language is a language of samples.
type language struct{ Name, Title string }

// languages are the languages of package clientgen.
var languages = []language{{"curl", "curl"}, {"typescript", "TypeScript"}, {"python", "Python"}, {"ruby", "Ruby"}, {"php", "PHP"}, {"go", "Go"}}

// maxDepth bounds the nesting of described objects.
const maxDepth = 4

// viewer converts the API of package clientgen into pages.
type viewer struct {
	common []string // codes that every operation may answer with
	c      Config
	api    *clientgen.API
	origin string // of the server, in samples
}

// commonCodes returns the codes that every operation may answer with.
func commonCodes(api *clientgen.API) []string {
	common := slices.Clone(api.Codes)
	for _, g := range api.Groups {
		for i := range g.Operations {
			common = slices.DeleteFunc(common, func(c string) bool { return !slices.Contains(g.Operations[i].Codes, c) })
		}
	}
	return common
}

func (v *viewer) groups() ([]group, error) {
	var out []group
	for _, g := range v.api.Groups {
		shown := group{Name: g.Name, Title: g.Title, Path: v.c.Path + "/" + g.Name, Doc: g.Doc}
		for i := range g.Operations {
			o, err := v.operation(&g.Operations[i])
			if err != nil {
				return nil, fmt.Errorf("operation %s: %w", g.Operations[i].ID, err)
			}
			if i := slices.IndexFunc(shown.Operations, func(first operation) bool {
				return len(o.Answer) > 0 && first.List == o.List && reflect.DeepEqual(first.Answer, o.Answer)
			}); i >= 0 {
				o.Like = &operation{ID: shown.Operations[i].ID, Summary: shown.Operations[i].Summary}
			}
			shown.Operations = append(shown.Operations, o)
		}
		out = append(out, shown)
	}
	return out, nil
}

func (v *viewer) operation(op *clientgen.Operation) (operation, error) {
	o := operation{
		ID: op.ID, Summary: op.Summary, Method: op.Method, Needs: op.Permission, Status: strconv.Itoa(op.Status),
		Path: op.Path, Template: v.c.Base + op.Path, Address: v.api.Server + op.Path,
		Doc: paragraphs(op.Doc), Deprecated: op.Deprecated, List: op.List, Exports: op.Exports, Imports: op.Imports, Codes: slices.DeleteFunc(slices.Clone(op.Codes), func(c string) bool { return slices.Contains(v.common, c) }),
		Parameters: v.parameters(op),
	}
	if op.Body != nil {
		o.Body = v.fields(op.Body)
	}
	if op.Answer != nil {
		o.Answer = v.fields(op.Answer)
	}
	var err error
	if o.Samples, err = v.samples(op); err != nil {
		return o, err
	}
	if op.AnswerExample != nil {
		text, err := indented(string(op.AnswerExample))
		if err != nil {
			return o, err
		}
		o.Example = &code{Label: "Answer " + o.Status, Text: text}
	}
	for _, p := range op.PathParams {
		o.Inputs = append(o.Inputs, input{p.Name, plain(p.Example)})
	}
	o.HasQuery = len(op.Query)+len(op.Expand) > 0
	query := url.Values{}
	for _, p := range op.Query {
		if p.Required {
			query.Set(p.Name, plain(p.Example))
		}
	}
	o.QueryText = query.Encode()
	if op.Body != nil {
		o.BodyText, err = indented(cmp.Or(string(op.Example), "{}"))
	}
	return o, err
}

// samples returns a request in every language.
func (v *viewer) samples(op *clientgen.Operation) ([]code, error) {
	var out []code
	for _, l := range languages {
		text, err := v.api.Sample(op, l.Name, clientgen.SampleAccess{Origin: v.origin, Key: v.c.Key})
		if err != nil {
			return nil, fmt.Errorf("sample in %s: %w", l.Title, err)
		}
		out = append(out, code{Label: l.Title, Language: l.Name, Text: text})
	}
	return out, nil
}

// parameters returns the query parameters and headers of an operation.
func (v *viewer) parameters(op *clientgen.Operation) []field {
	var out []field
	for _, p := range op.PathParams {
		out = append(out, field{Name: p.Name, Type: typeName(&p.Type), Note: "in the path", Doc: p.Doc})
	}
	for _, p := range op.Query {
		if name, bound, ok := strings.Cut(p.Name, "["); ok && bound != "gte]" && strings.HasSuffix(bound, "]") && bound != "]" {
			continue // described with the first bound
		} else if ok && bound == "gte]" {
			p.Name = name + "[gte], [gt], [lte], [lt]"
		}
		f := field{Name: p.Name, Type: typeName(&p.Type), Doc: p.Doc, Values: values(&p.Type), Example: plain(p.Example)}
		if p.Required {
			f.Note = "required"
		}
		out = append(out, f)
	}
	if len(op.Expand) > 0 {
		out = append(out, field{Name: "expand[]", Type: "list", Doc: "Records to include beside their ids.", Values: op.Expand})
	}
	for _, h := range []struct {
		accepted  bool
		name, doc string
	}{
		{op.Subaccount, "X-Subaccount-Id", "Narrows the request to one of the subaccounts that the key reaches."},
		{op.Idempotent, "Idempotency-Key", "Makes a retry safe: the same key and request get the same answer for 24 hours."},
		{op.IfMatch, "If-Match", "The ETag that the record must still have."},
		{op.IfNoneMatch, "If-None-Match", "ETags that the client has already; 304 if the record has one of them."},
	} {
		if h.accepted {
			out = append(out, field{Name: h.name, Type: "string", Note: "header", Doc: h.doc})
		}
	}
	return out
}

// fields returns the fields of a record, of nested objects with dots: "location.lat".
func (v *viewer) fields(t *clientgen.Type) []field {
	if t.Kind != clientgen.KindRecord {
		return nil
	}
	var out []field
	v.addFields(&out, "", v.api.RecordNamed(t.Record), 0)
	return out
}

func (v *viewer) addFields(out *[]field, prefix string, r *clientgen.Record, depth int) {
	for i := range r.Members {
		m := &r.Members[i]
		f := field{Name: prefix + m.Name, Type: typeName(&m.Type), Doc: m.Doc, Values: values(&m.Type), Example: plain(m.Example)}
		switch {
		case r.Input && m.Required:
			f.Note = "required"
		case !r.Input && !m.Required:
			f.Note = "not always"
		}
		if m.Nullable {
			f.Type += " or null"
		}
		*out = append(*out, f)
		nested, suffix := &m.Type, "."
		if nested.Kind == clientgen.KindArray {
			nested, suffix = nested.Of, "[]."
		}
		if nested.Kind != clientgen.KindRecord || depth >= maxDepth {
			continue
		}
		if sub := v.api.RecordNamed(nested.Record); !whole(sub) {
			v.addFields(out, prefix+m.Name+suffix, sub, depth+1)
		}
	}
}

// whole reports whether a record is one that the API has at an address of its own, and so is
// described there.
func whole(r *clientgen.Record) bool {
	for i := range r.Members {
		if r.Members[i].Name == "object" {
			return true
		}
	}
	return false
}

// typeName returns the name of a type for people.
func typeName(t *clientgen.Type) string {
	switch t.Kind {
	case clientgen.KindArray:
		return "list of " + typeName(t.Of)
	case clientgen.KindMap:
		return "map of " + typeName(t.Of)
	case clientgen.KindRecord:
		return "object"
	case clientgen.KindEnum:
		return "string"
	case clientgen.KindAny:
		return "any value"
	case clientgen.KindBytes:
		return "string (base64)"
	default:
		return string(t.Kind)
	}
}

// values returns the values of an enum, or of a list of them.
func values(t *clientgen.Type) []string {
	if t.Kind == clientgen.KindArray {
		t = t.Of
	}
	return t.Enum
}

// plain returns a JSON value as people write it: a string without quotes.
func plain(text json.RawMessage) string {
	var s string
	if json.Unmarshal(text, &s) == nil {
		return s
	}
	return string(text)
}

// indented returns JSON with a line for each member.
func indented(text string) (string, error) {
	var b bytes.Buffer
	err := json.Indent(&b, []byte(text), "", "  ")
	return b.String(), err
}
