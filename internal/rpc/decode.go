package rpc

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// encoding/json stops at the first field of the wrong type and does not detect missing
// ones, so inputs are decoded field by field here, by decoders compiled once per type.
// encoding/json decodes the leaves.

// decoder sets v from raw, which is one well-formed JSON value other than null, or adds
// issues to found. path is the value's path in the input.
type decoder func(raw json.RawMessage, v reflect.Value, path string, found *issues)

// issues collects up to [maxIssues] issues of one input.
type issues struct {
	problem.Validation
	n int
}

func (f *issues) add(path, message string) {
	if f.n < maxIssues {
		f.n++
		f.Add(path, "%s", message)
	}
}

// inputShape decodes the fields of an object into a struct.
type inputShape struct {
	fields []inputField
}

type inputField struct {
	name     string
	index    []int // for reflect.Value.FieldByIndex
	required bool
	decode   decoder
}

// decode sets *in, a pointer to a zero struct of the shape's type, from raw, which is nil
// if there is no input. Its error is a [problem.Invalid] with all issues of the input.
func (s *inputShape) decode(raw json.RawMessage, in any) error {
	var found issues
	switch {
	case len(s.fields) == 0: // input of a procedure without one is ignored
	case raw == nil:
		s.fill(nil, reflect.ValueOf(in).Elem(), "", &found)
	default:
		s.object(raw, reflect.ValueOf(in).Elem(), "", &found)
	}
	c, ok := in.(problem.Checker)
	if !ok {
		return found.Err()
	}
	if found.n == 0 {
		return problem.Check(c)
	}
	return found.merge(problem.Check(c))
}

// merge adds the issues of a check, except those of fields that are zero because they
// could not be decoded.
func (f *issues) merge(checked error) error {
	undecoded, _ := errors.AsType[*problem.Error](f.Err())
	if rules, ok := errors.AsType[*problem.Error](checked); ok {
		for _, i := range rules.Issues {
			if !slices.ContainsFunc(undecoded.Issues, func(u problem.Issue) bool { return related(u.Path, i.Path) }) {
				f.add(i.Path, i.Message)
			}
		}
	}
	return f.Err()
}

// related reports whether one path equals or contains the other.
func related(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	return a == "" || a == b || strings.HasPrefix(b, a) && b[len(a)] == '.'
}

func (s *inputShape) object(raw json.RawMessage, v reflect.Value, path string, found *issues) {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		found.add(path, "must be an object")
		return
	}
	s.fill(members, v, path, found)
}

func (s *inputShape) fill(members map[string]json.RawMessage, v reflect.Value, path string, found *issues) {
	for i := range s.fields {
		f := &s.fields[i]
		raw := members[f.name]
		if !isNull(raw) {
			f.decode(raw, v.FieldByIndex(f.index), join(path, f.name), found)
		} else if f.required {
			found.add(join(path, f.name), "is required")
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func compileInput(t reflect.Type) (*inputShape, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%v is not a struct", t)
	}
	return compileStruct(t, nil)
}

// compileStruct refuses a struct that contains itself; outer has the enclosing types.
func compileStruct(t reflect.Type, outer []reflect.Type) (*inputShape, error) {
	if slices.Contains(outer, t) {
		return nil, fmt.Errorf("%v holds itself", t)
	}
	outer = append(slices.Clip(outer), t)
	s := new(inputShape)
	for _, f := range reflect.VisibleFields(t) {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || tag == "-" && options == "" || flattened(f) || !promoted(t, f.Index) {
			continue
		}
		decode, err := compile(f.Type, outer)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		name := tag
		if name == "" {
			name = f.Name
		}
		if slices.ContainsFunc(s.fields, func(o inputField) bool { return o.name == name }) {
			return nil, fmt.Errorf("%v has two members %q", t, name)
		}
		optional := f.Type.Kind() == reflect.Pointer
		for option := range strings.SplitSeq(options, ",") {
			switch option {
			case "omitempty", "omitzero":
				optional = true
			case "string":
				return nil, fmt.Errorf("%s: the string option is not supported", f.Name)
			}
		}
		s.fields = append(s.fields, inputField{name: name, index: f.Index, required: !optional, decode: decode})
	}
	return s, nil
}

// flattened reports whether encoding/json promotes the fields of f's struct to the
// embedding struct.
func flattened(f reflect.StructField) bool {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct
}

// promoted reports whether the field of t at index is a field of t's JSON object itself.
func promoted(t reflect.Type, index []int) bool {
	for _, i := range index[:len(index)-1] {
		f := t.Field(i)
		if !flattened(f) {
			return false
		}
		t = f.Type
	}
	return true
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func compile(t reflect.Type, outer []reflect.Type) (decoder, error) {
	switch p := reflect.PointerTo(t); {
	case t == reflect.TypeFor[time.Time]():
		return leaf("must be an ISO 8601 timestamp"), nil
	case p.Implements(jsonUnmarshaler), p.Implements(textUnmarshaler):
		return leaf("is not valid"), nil
	}
	switch t.Kind() {
	case reflect.String:
		return decodeString, nil
	case reflect.Bool:
		return leaf("must be a boolean"), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if t.Bits() == 64 {
			return leaf("must be an integer"), nil
		}
		last := int64(1)<<(t.Bits()-1) - 1
		return leaf(fmt.Sprintf("must be an integer from %d to %d", -last-1, last)), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return leaf(fmt.Sprintf("must be an integer from 0 to %d", ^uint64(0)>>(64-t.Bits()))), nil
	case reflect.Float32, reflect.Float64:
		return leaf("must be a number"), nil
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return leaf("is not valid"), nil
		}
	case reflect.Struct:
		s, err := compileStruct(t, outer)
		if err != nil {
			return nil, err
		}
		return s.object, nil
	case reflect.Pointer:
		elem, err := compile(t.Elem(), outer)
		if err != nil {
			return nil, err
		}
		return func(raw json.RawMessage, v reflect.Value, path string, found *issues) {
			v.Set(reflect.New(t.Elem()))
			elem(raw, v.Elem(), path, found)
		}, nil
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return leaf("must be a base64 string"), nil
		}
		return compileSlice(t, outer)
	case reflect.Map:
		if t.Key().Kind() == reflect.String && !reflect.PointerTo(t.Key()).Implements(textUnmarshaler) {
			return compileMap(t, outer)
		}
	}
	return nil, fmt.Errorf("cannot decode into %v", t)
}

// leaf decodes by encoding/json; any error is an issue with message.
func leaf(message string) decoder {
	return func(raw json.RawMessage, v reflect.Value, path string, found *issues) {
		if json.Unmarshal(raw, v.Addr().Interface()) != nil {
			found.add(path, message)
		}
	}
}

// decodeString also refuses NUL, which neither database stores: once here instead of in
// each rule.
func decodeString(raw json.RawMessage, v reflect.Value, path string, found *issues) {
	if json.Unmarshal(raw, v.Addr().Interface()) != nil {
		found.add(path, "must be a string")
	} else if strings.ContainsRune(v.String(), 0) {
		found.add(path, "must not contain NUL characters")
	}
}

func compileSlice(t reflect.Type, outer []reflect.Type) (decoder, error) {
	elem, err := compile(t.Elem(), outer)
	if err != nil {
		return nil, err
	}
	return func(raw json.RawMessage, v reflect.Value, path string, found *issues) {
		var elems []json.RawMessage
		if json.Unmarshal(raw, &elems) != nil {
			found.add(path, "must be an array")
			return
		}
		v.Set(reflect.MakeSlice(t, len(elems), len(elems)))
		for i, raw := range elems {
			if at := join(path, strconv.Itoa(i)); isNull(raw) {
				decodeNull(v.Index(i), at, found)
			} else {
				elem(raw, v.Index(i), at, found)
			}
		}
	}, nil
}

func compileMap(t reflect.Type, outer []reflect.Type) (decoder, error) {
	elem, err := compile(t.Elem(), outer)
	if err != nil {
		return nil, err
	}
	return func(raw json.RawMessage, v reflect.Value, path string, found *issues) {
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil {
			found.add(path, "must be an object")
			return
		}
		v.Set(reflect.MakeMapWithSize(t, len(members)))
		for _, name := range slices.Sorted(maps.Keys(members)) { // sorted, so that issues have a fixed order
			value, at := reflect.New(t.Elem()).Elem(), join(path, name)
			if raw := members[name]; isNull(raw) {
				decodeNull(value, at, found)
			} else {
				elem(raw, value, at, found)
			}
			v.SetMapIndex(reflect.ValueOf(name).Convert(t.Key()), value)
		}
	}, nil
}

// decodeNull handles a null that cannot mean a missing field. v is zero.
func decodeNull(v reflect.Value, path string, found *issues) {
	if v.Kind() != reflect.Pointer && v.Kind() != reflect.Interface {
		found.add(path, "must not be null")
	}
}
