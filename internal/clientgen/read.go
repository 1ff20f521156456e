package clientgen

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Documents are the OpenAPI documents that the libraries are generated from.
type Documents struct {
	Helpdesk, Fleet, Sandbox []byte
}

// Read returns the helpdesk and the fleet, in this order. The fleet is that of the sandbox's
// document: operations that the fleet's document lacks exist in the sandbox only.
func Read(d Documents) ([]*API, error) {
	helpdesk, err := ReadDocument("helpdesk", d.Helpdesk)
	if err != nil {
		return nil, err
	}
	sandbox, err := ReadDocument("fleet", d.Sandbox)
	if err != nil {
		return nil, err
	}
	var fleet document
	if err := json.Unmarshal(d.Fleet, &fleet); err != nil {
		return nil, fmt.Errorf("read the fleet's document: %w", err)
	}
	live := map[string]bool{}
	for _, item := range fleet.Paths {
		for _, op := range item {
			live[op.ID] = true
		}
	}
	sandbox.Title = fleet.Info.Title
	for g := range sandbox.Groups {
		for o := range sandbox.Groups[g].Operations {
			op := &sandbox.Groups[g].Operations[o]
			op.Sandbox = !live[op.ID]
		}
	}
	if err := distinct(helpdesk, sandbox); err != nil {
		return nil, err
	}
	return []*API{helpdesk, sandbox}, nil
}

// document is the part of an OpenAPI document that the libraries need.
type document struct {
	Info    struct{ Title, Description, Version string }
	Servers []struct{ URL string }
	Tags    []struct{ Name, Description string }
	// Paths and webhooks have operations by method.
	Paths      map[string]map[string]operation
	Webhooks   map[string]map[string]operation
	Components struct {
		Schemas    map[string]*schema
		Parameters map[string]parameter
		Examples   map[string]namedExample
	}
}

type operation struct {
	ID          string `json:"operationId"`
	Summary     string
	Description string
	Deprecated  bool
	Tags        []string
	Parameters  []parameter
	RequestBody *struct {
		Required bool
		Content  map[string]media
	}
	Responses  map[string]response
	Permission string           `json:"x-permission"`
	Exports    map[string]media `json:"x-exports"`
	Imports    map[string]media `json:"x-imports"`
	Problems   []string         `json:"x-problems"`
}

type parameter struct {
	Ref         string `json:"$ref"`
	Name        string
	In          string
	Description string
	Required    bool
	Schema      *schema
	Example     json.RawMessage
}

type media struct {
	Schema   *schema
	Example  json.RawMessage
	Examples map[string]namedExample
}

type namedExample struct {
	Ref   string `json:"$ref"`
	Value json.RawMessage
}

type response struct {
	Description string
	Content     map[string]media
}

type schema struct {
	Ref                  string `json:"$ref"`
	Type                 types
	Format               string
	Description          string
	Enum                 []any
	Const                any
	Properties           map[string]*schema
	Required             []string
	Items                *schema
	AdditionalProperties *additional
	AnyOf, OneOf, AllOf  []*schema
	Example              json.RawMessage
	Examples             []json.RawMessage
}

// types is a type or a list of types.
type types []string

func (t *types) UnmarshalJSON(text []byte) error {
	if text[0] == '[' {
		return json.Unmarshal(text, (*[]string)(t))
	}
	*t = types{""}
	return json.Unmarshal(text, &(*t)[0])
}

// additional is a schema of additional properties, or whether there may be any.
type additional struct{ schema *schema }

func (a *additional) UnmarshalJSON(text []byte) error {
	if text[0] == '{' {
		return json.Unmarshal(text, &a.schema)
	}
	return nil
}

// reader turns one document into an API.
type reader struct {
	doc     document
	api     *API
	records map[string]*Record
	enums   map[string][]string // possible names by values, which are joined by line breaks

	inEvents bool // the schemas of events are being read
}

// ReadDocument returns the API of one document. name is "helpdesk" or "fleet".
func ReadDocument(name string, text []byte) (*API, error) {
	r := &reader{api: &API{Name: name}, records: map[string]*Record{}, enums: map[string][]string{}}
	if err := json.Unmarshal(text, &r.doc); err != nil {
		return nil, fmt.Errorf("read the document %s: %w", name, err)
	}
	r.api.Title, r.api.Doc, r.api.Version = r.doc.Info.Title, r.doc.Info.Description, r.doc.Info.Version
	if len(r.doc.Servers) > 0 {
		r.api.Server = r.doc.Servers[0].URL
	}
	for _, tag := range r.doc.Tags {
		group := Snake(tag.Name)
		r.api.Groups = append(r.api.Groups, Group{Name: group, Singular: groupSingular(group), Title: tag.Name, Doc: tag.Description})
	}
	codes := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(r.doc.Paths)) {
		for _, method := range []string{"get", "post", "put", "delete"} {
			in, ok := r.doc.Paths[path][method]
			if !ok {
				continue
			}
			op, err := r.operation(strings.ToUpper(method), path, in)
			if err != nil {
				return nil, fmt.Errorf("%s %s of %s: %w", method, path, name, err)
			}
			for _, c := range op.Codes {
				codes[c] = true
			}
		}
	}
	r.api.Codes = slices.Sorted(maps.Keys(codes))
	if err := r.events(); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(r.records)) {
		r.api.Records = append(r.api.Records, *r.records[name])
	}
	if err := r.nameEnums(); err != nil {
		return nil, err
	}
	if name == "fleet" {
		return r.api, prefixFleet(r.api)
	}
	return r.api, nil
}

// parquet is a media type of exports without a method: the libraries' exports of other types than records
// are texts, and programs that read Parquet have clients of their own.
const parquet = "application/vnd.apache.parquet"

// exportsOf returns the media types of an operation's exports that have methods, sorted.
func exportsOf(in operation) []string {
	exports := slices.Sorted(maps.Keys(in.Exports))
	return slices.DeleteFunc(exports, func(kind string) bool { return kind == parquet })
}

// operation adds an operation to its group.
func (r *reader) operation(method, path string, in operation) (*Operation, error) {
	if len(in.Tags) != 1 {
		return nil, errors.New("the operation needs one tag")
	}
	g := slices.IndexFunc(r.api.Groups, func(g Group) bool { return g.Title == in.Tags[0] })
	if g < 0 {
		return nil, fmt.Errorf("the tag %q is not declared", in.Tags[0])
	}
	group := &r.api.Groups[g]
	op := Operation{
		ID: in.ID, Method: method, Path: path, Summary: in.Summary, Doc: in.Description, Permission: in.Permission, Deprecated: in.Deprecated,
		Name: methodName(in.ID, group.Name), Codes: in.Problems,
		Exports: exportsOf(in), Imports: slices.Sorted(maps.Keys(in.Imports)),
	}
	if group.Find(op.Name) != nil {
		return nil, fmt.Errorf("the group %s has two methods %s: add one to methods", group.Name, op.Name)
	}
	for _, p := range in.Parameters {
		if err := r.parameter(&op, group, p); err != nil {
			return nil, err
		}
	}
	if in.RequestBody != nil {
		body := in.RequestBody.Content["application/json"]
		t, _, err := r.typeOf(body.Schema, true, Snake(in.ID), in.ID)
		if err != nil {
			return nil, err
		}
		op.Body, op.BodyRequired, op.Example = &t, in.RequestBody.Required, r.example(body)
	}
	if err := r.success(&op, in); err != nil {
		return nil, err
	}
	group.Operations = append(group.Operations, op)
	return &op, nil
}

func (r *reader) parameter(op *Operation, group *Group, p parameter) error {
	if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
		p = r.doc.Components.Parameters[name]
	}
	switch p.In {
	case "header":
		switch strings.ToLower(p.Name) {
		case "idempotency-key":
			op.Idempotent = true
		case "if-match":
			op.IfMatch = true
		case "if-none-match":
			op.IfNoneMatch = true
		case "x-subaccount-id":
			op.Subaccount = true
		}
		return nil
	case "query":
		if p.Name == "expand[]" {
			for _, v := range p.Schema.Items.Enum {
				op.Expand = append(op.Expand, fmt.Sprint(v))
			}
			return nil
		}
	}
	name := group.Singular + "_" + singular(Snake(p.Name))
	t, _, err := r.typeOf(p.Schema, true, name, group.Singular+"."+p.Name)
	if err != nil {
		return fmt.Errorf("parameter %s: %w", p.Name, err)
	}
	out := Param{Name: p.Name, Doc: cmp.Or(p.Description, p.Schema.Description), Type: t, Required: p.Required, Example: p.Example}
	if out.Example == nil {
		out.Example = p.Schema.example()
	}
	if p.In == "path" {
		op.PathParams = append(op.PathParams, out)
	} else {
		op.Query = append(op.Query, out)
	}
	return nil
}

// success reads the status and the answer of success.
func (r *reader) success(op *Operation, in operation) error {
	for status, res := range in.Responses {
		if status[0] != '2' {
			continue
		}
		if op.Status != 0 {
			return errors.New("the operation has two answers of success")
		}
		var err error
		if op.Status, err = strconv.Atoi(status); err != nil {
			return fmt.Errorf("status %q: %w", status, err)
		}
		content, isJSON := res.Content["application/json"]
		op.File = !isJSON && len(res.Content) > 0
		if !isJSON {
			continue
		}
		op.AnswerExample = r.example(content)
		if err := r.answer(op, content.Schema); err != nil {
			return err
		}
	}
	rows := in.Exports["application/x-ndjson"].Schema
	if rows == nil {
		return nil
	}
	row, _, err := r.typeOf(rows, false, Snake(op.ID)+"_row", op.ID+".row")
	op.Row = &row
	return err
}

func (r *reader) answer(op *Operation, s *schema) error {
	flat, err := r.flat(s)
	if err != nil {
		return err
	}
	if data := flat.Properties["data"]; data != nil && flat.Properties["has_more"] != nil {
		op.List = true
		s = data.Items
	}
	t, _, err := r.typeOf(s, false, Snake(op.ID), op.ID)
	op.Answer = &t
	return err
}

// typeOf returns the type of a schema and whether it may be null. Records and enums that the
// document does not name are called name; a record's place in the document is path.
func (r *reader) typeOf(s *schema, input bool, name, path string) (Type, bool, error) {
	s, nullable := r.withoutNull(s)
	if ref, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		target := r.doc.Components.Schemas[ref]
		if target == nil {
			return Type{}, false, fmt.Errorf("no schema %s", ref)
		}
		t, n, err := r.typeOf(target, input, Snake(ref), ref)
		return t, n || nullable, err
	}
	kinds := slices.DeleteFunc(slices.Clone(s.Type), func(t string) bool { return t == "null" })
	if len(kinds) < len(s.Type) {
		nullable = true
	}
	if len(s.AllOf) > 0 {
		kinds = []string{"object"}
	}
	if len(kinds) != 1 {
		return Type{Kind: KindAny}, nullable, nil
	}
	switch kinds[0] {
	case "string":
		t := stringType(s)
		if t.Kind == KindEnum {
			nullable = nullable || slices.Contains(s.Enum, any(nil))
			r.enum(name, t.Enum)
		}
		return t, nullable, nil
	case "integer":
		return Type{Kind: KindInteger, Format: s.Format}, nullable, nil
	case "number":
		return Type{Kind: KindNumber, Format: s.Format}, nullable, nil
	case "boolean":
		return Type{Kind: KindBoolean}, nullable, nil
	case "array":
		of, n, err := r.typeOf(s.Items, input, singularLast(name), path)
		of.Nullable = n
		return Type{Kind: KindArray, Of: &of}, nullable, err
	case "object":
		flat, err := r.flat(s)
		if err != nil {
			return Type{}, false, err
		}
		if len(flat.Properties) == 0 {
			t, err := r.mapType(s, input, name, path)
			return t, nullable, err
		}
		t, err := r.record(flat, input, name, path)
		return t, nullable, err
	}
	return Type{}, false, fmt.Errorf("the type %s is unknown", kinds[0])
}

// withoutNull returns the alternative of a schema that is not null.
func (r *reader) withoutNull(s *schema) (*schema, bool) {
	for _, of := range [][]*schema{s.AnyOf, s.OneOf} {
		if len(of) == 2 && len(of[1].Type) == 1 && of[1].Type[0] == "null" {
			return of[0], true
		}
	}
	return s, false
}

// stringType returns the type of a string. An enum with one value is a string that has it.
func stringType(s *schema) Type {
	t := Type{Kind: KindString, Format: s.Format}
	switch s.Format {
	case "date-time":
		t.Kind = KindTime
	case "date":
		t.Kind = KindDate
	case "byte":
		t.Kind = KindBytes
	}
	for _, v := range s.Enum {
		if v != nil {
			t.Enum = append(t.Enum, fmt.Sprint(v))
		}
	}
	if s.Const != nil {
		t.Enum = []string{fmt.Sprint(s.Const)}
	}
	if len(t.Enum) > 1 {
		t.Kind = KindEnum
	}
	return t
}

func (r *reader) mapType(s *schema, input bool, name, path string) (Type, error) {
	of := Type{Kind: KindAny}
	if s.AdditionalProperties != nil && s.AdditionalProperties.schema != nil {
		t, nullable, err := r.typeOf(s.AdditionalProperties.schema, input, singularLast(name), path)
		if err != nil {
			return Type{}, err
		}
		t.Nullable = nullable
		of = t
	}
	return Type{Kind: KindMap, Of: &of}, nil
}

// flat returns a schema with the members of its reference and its parts.
func (r *reader) flat(s *schema) (*schema, error) {
	s, _ = r.withoutNull(s)
	if ref, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		target := r.doc.Components.Schemas[ref]
		if target == nil {
			return nil, fmt.Errorf("no schema %s", ref)
		}
		return r.flat(target)
	}
	if len(s.AllOf) == 0 {
		return s, nil
	}
	out := &schema{Type: types{"object"}, Description: s.Description, Properties: maps.Clone(s.Properties), Required: s.Required}
	if out.Properties == nil {
		out.Properties = map[string]*schema{}
	}
	for _, part := range s.AllOf {
		flat, err := r.flat(part)
		if err != nil {
			return nil, err
		}
		maps.Copy(out.Properties, flat.Properties)
		out.Required = append(slices.Clone(out.Required), flat.Required...)
		out.Description = cmp.Or(out.Description, flat.Description)
	}
	return out, nil
}

// record adds a record, unless it exists, and returns its type.
func (r *reader) record(s *schema, input bool, name, path string) (Type, error) {
	t := Type{Kind: KindRecord, Record: name}
	if known := r.records[name]; known != nil {
		if known.Schema != path || known.Input != input {
			return t, fmt.Errorf("%s and %s have the same name %s", path, known.Schema, name)
		}
		return t, nil
	}
	out := &Record{Name: name, Schema: path, Doc: s.Description, Input: input, Event: r.inEvents}
	r.records[name] = out
	for _, member := range slices.Sorted(maps.Keys(s.Properties)) {
		m := s.Properties[member]
		mt, nullable, err := r.typeOf(m, input, name+"_"+Snake(member), path+"."+member)
		if err != nil {
			return t, fmt.Errorf("%s.%s: %w", path, member, err)
		}
		out.Members = append(out.Members, Member{
			Name: member, Doc: m.Description, Type: mt, Required: slices.Contains(s.Required, member), Nullable: nullable, Example: m.example(),
		})
	}
	return t, nil
}

// enum records a possible name of a list of values.
func (r *reader) enum(name string, values []string) {
	key := strings.Join(values, "\n")
	if !slices.Contains(r.enums[key], name) {
		r.enums[key] = append(r.enums[key], name)
	}
}

// nameEnums lists the enums and enters their names wherever they occur. Equal lists are one
// enum. It has its published name, or else the shortest of its possible names that is free;
// lists with few choose first. Names of events come last, since their data repeat lists of other
// records.
func (r *reader) nameEnums() error {
	keys := slices.Collect(maps.Keys(r.enums))
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(r.enums[a]), len(r.enums[b])), cmp.Compare(a, b))
	})
	taken, names := map[string]bool{}, map[string]string{}
	for _, key := range keys {
		slices.SortFunc(r.enums[key], func(a, b string) int {
			return cmp.Or(unpublished(a)-unpublished(b), ofEvent(a)-ofEvent(b), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
		})
		i := slices.IndexFunc(r.enums[key], func(n string) bool { return !taken[n] && r.records[n] == nil && !r.published(n, key) })
		if i < 0 {
			return fmt.Errorf("the enum %q of %s has no name of its own: %s are taken", key, r.api.Name, r.enums[key])
		}
		names[key] = r.enums[key][i]
		taken[names[key]] = true
		r.api.Enums = append(r.api.Enums, Enum{Name: names[key], Values: strings.Split(key, "\n")})
	}
	slices.SortFunc(r.api.Enums, func(a, b Enum) int { return cmp.Compare(a.Name, b.Name) })
	r.api.eachType(func(t *Type) {
		if t.Kind == KindEnum {
			t.EnumName = names[strings.Join(t.Enum, "\n")]
		}
	})
	return nil
}

// published reports whether another list of values than key keeps an enum's name.
func (r *reader) published(name, key string) bool {
	value := publishedValues[name]
	has := func(key string) bool { return slices.Contains(strings.Split(key, "\n"), value) }
	if value == "" || has(key) {
		return false
	}
	for other, names := range r.enums {
		if has(other) && slices.Contains(names, name) {
			return true
		}
	}
	return false
}

// unpublished is 0 for the names in publishedEnums, else 1.
func unpublished(name string) int {
	if slices.Contains(publishedEnums, name) {
		return 0
	}
	return 1
}

// ofEvent is 1 for the name of an enum in the data of events: "event_sla_metric", but not
// "event_sort".
func ofEvent(name string) int {
	if strings.HasPrefix(name, "event_") && strings.Count(name, "_") > 1 {
		return 1
	}
	return 0
}

// events reads the webhooks of the document.
func (r *reader) events() error {
	r.inEvents = true
	for _, name := range slices.Sorted(maps.Keys(r.doc.Webhooks)) {
		if strings.HasSuffix(name, ".a") {
			continue // payload form A: the libraries return its data without types
		}
		post := r.doc.Webhooks[name]["post"]
		if post.RequestBody == nil {
			return fmt.Errorf("the webhook %s has no body", name)
		}
		body := post.RequestBody.Content["application/json"]
		flat, err := r.flat(body.Schema)
		if err != nil {
			return fmt.Errorf("webhook %s: %w", name, err)
		}
		e := Event{Name: name, Doc: cmp.Or(post.Summary, post.Description), Data: Type{Kind: KindAny}, Example: r.example(body)}
		if data := flat.Properties["data"]; data != nil {
			e.Data, _, err = r.typeOf(data, false, Snake(name)+"_data", name)
			if err != nil {
				return fmt.Errorf("webhook %s: %w", name, err)
			}
		}
		r.api.Events = append(r.api.Events, e)
	}
	return nil
}

// eachType calls f with every type of the API.
func (a *API) eachType(f func(*Type)) {
	var walk func(*Type)
	walk = func(t *Type) {
		if t != nil {
			f(t)
			walk(t.Of)
		}
	}
	for g := range a.Groups {
		for o := range a.Groups[g].Operations {
			op := &a.Groups[g].Operations[o]
			for _, params := range [][]Param{op.PathParams, op.Query} {
				for i := range params {
					walk(&params[i].Type)
				}
			}
			walk(op.Body)
			walk(op.Answer)
			if op.Row != op.Answer {
				walk(op.Row)
			}
		}
	}
	for i := range a.Records {
		for m := range a.Records[i].Members {
			walk(&a.Records[i].Members[m].Type)
		}
	}
	for i := range a.Events {
		walk(&a.Events[i].Data)
	}
}

// prefixFleet gives the fleet's records and enums in fleetNames their prefix. An entry that is
// not needed is an error.
func prefixFleet(fleet *API) error {
	used := map[string]bool{}
	rename := func(name *string) {
		i := slices.IndexFunc(fleetNames, func(n string) bool { return *name == n || strings.HasPrefix(*name, n+"_") })
		if i >= 0 {
			used[fleetNames[i]] = true
			*name = "fleet_" + *name
		}
	}
	fleet.eachType(func(t *Type) {
		rename(&t.Record)
		rename(&t.EnumName)
	})
	for i := range fleet.Records {
		rename(&fleet.Records[i].Name)
	}
	for i := range fleet.Enums {
		rename(&fleet.Enums[i].Name)
	}
	slices.SortFunc(fleet.Records, func(a, b Record) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(fleet.Enums, func(a, b Enum) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range fleetNames {
		if !used[n] {
			return fmt.Errorf("fleetNames has %s, which is not a name of the fleet", n)
		}
	}
	return nil
}

// distinct refuses names of records, enums and groups that both APIs have.
func distinct(helpdesk, fleet *API) error {
	names := func(a *API) (list []string) {
		for i := range a.Records {
			list = append(list, a.Records[i].Name)
		}
		for _, e := range a.Enums {
			list = append(list, e.Name)
		}
		for _, g := range a.Groups {
			if !slices.Contains(sharedGroups, g.Name) {
				list = append(list, g.Name)
			}
		}
		return list
	}
	taken := names(helpdesk)
	wrong := slices.DeleteFunc(names(fleet), func(n string) bool { return !slices.Contains(taken, n) })
	if slices.Sort(wrong); len(wrong) > 0 {
		return fmt.Errorf("both APIs have the names %s: add them to fleetNames or sharedGroups", strings.Join(wrong, ", "))
	}
	return nil
}

// example returns an example of a body, or nil.
func (r *reader) example(m media) json.RawMessage {
	if m.Example != nil {
		return m.Example
	}
	if names := slices.Sorted(maps.Keys(m.Examples)); len(names) > 0 {
		e := m.Examples[names[0]]
		if ref, ok := strings.CutPrefix(e.Ref, "#/components/examples/"); ok {
			e = r.doc.Components.Examples[ref]
		}
		return e.Value
	}
	if m.Schema == nil {
		return nil
	}
	return m.Schema.example()
}

func (s *schema) example() json.RawMessage {
	if s.Example != nil {
		return s.Example
	}
	if len(s.Examples) > 0 {
		return s.Examples[0]
	}
	return nil
}

// singularLast returns a name in snake case with its last word in the singular.
func singularLast(name string) string {
	i := strings.LastIndexByte(name, '_') + 1
	return name[:i] + singular(name[i:])
}
