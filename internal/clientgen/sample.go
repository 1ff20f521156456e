package clientgen

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/format"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// SampleLanguages are the languages of [API.Sample].
var SampleLanguages = []string{"curl", "typescript", "python", "ruby", "php", "go"}

// SampleAccess is the server and the key of a sample. Without a key, the sample reads it from
// the environment variable KICKSTAND_KEY.
type SampleAccess struct {
	Origin string // "https://help.example.com"
	Key    string
}

// Sample returns a program that calls an operation, with values that are examples of the
// document. Ids in paths are placeholders, such as TICKET_ID.
func (a *API) Sample(op *Operation, language string, access SampleAccess) (string, error) {
	group := a.groupOf(op)
	if group == nil {
		return "", fmt.Errorf("clientgen: %s is not an operation of %s", op.ID, a.Name)
	}
	s := &sample{api: a, group: group, op: op, access: access}
	if err := s.fill(); err != nil {
		return "", fmt.Errorf("clientgen: sample of %s: %w", op.ID, err)
	}
	switch language {
	case "curl":
		return s.curl(), nil
	case "go":
		return s.golang()
	}
	for _, l := range scripts {
		if l.name == language {
			return s.script(&l), nil
		}
	}
	return "", fmt.Errorf("clientgen: the language %q is unknown", language)
}

func (a *API) groupOf(op *Operation) *Group {
	for g := range a.Groups {
		for o := range a.Groups[g].Operations {
			if a.Groups[g].Operations[o].ID == op.ID {
				return &a.Groups[g]
			}
		}
	}
	return nil
}

// sample is a call with its values.
type sample struct {
	api    *API
	group  *Group
	op     *Operation
	access SampleAccess
	path   []string
	query  []field
	body   value
}

// value is an example of a type. One of list and fields, or text, is set.
type value struct {
	of     *Type
	text   string // of a scalar: the JSON
	list   []value
	fields []field // of a record
}

// field is a member of a record, or a parameter.
type field struct {
	name     string
	value    value
	optional bool
}

// sampleOptional is the number of optional members that a body has at most.
const sampleOptional = 4

func (s *sample) fill() error {
	for i := range s.op.PathParams {
		p := &s.op.PathParams[i]
		switch {
		case p.Type.Kind == KindEnum:
			s.path = append(s.path, p.Type.Enum[0])
		case p.Name == "id":
			s.path = append(s.path, strings.ToUpper(s.group.Singular)+"_ID")
		default:
			s.path = append(s.path, strings.ToUpper(Snake(p.Name)))
		}
	}
	if len(s.op.Imports) == 0 {
		s.fillQuery()
	}
	if s.op.Body == nil {
		return nil
	}
	var err error
	s.body, err = s.example(s.op.Body, s.op.Example, 0)
	return err
}

// fillQuery chooses the parameters that are required, and one filter of a list.
func (s *sample) fillQuery() {
	filtered := !s.op.List
	for i := range s.op.Query {
		p := &s.op.Query[i]
		filter := !filtered && p.Type.Kind == KindArray && p.Type.Of.Kind == KindEnum
		if !p.Required && !filter {
			continue
		}
		filtered = filtered || filter
		v := value{of: &p.Type, text: string(p.Example)}
		if p.Type.Kind == KindArray {
			v = value{of: &p.Type, list: []value{{of: p.Type.Of, text: quote(p.Type.Of.Enum[0])}}}
		}
		if v.text == "" && v.list == nil {
			v.text = scalar(&p.Type)
		}
		s.query = append(s.query, field{p.Name, v, !p.Required})
	}
}

// example returns an example of a type: the given one, or one made from the members' examples.
func (s *sample) example(t *Type, text json.RawMessage, depth int) (value, error) {
	switch t.Kind {
	case KindRecord:
		return s.record(t, text, depth)
	case KindArray:
		var items []json.RawMessage
		if text != nil {
			if err := json.Unmarshal(text, &items); err != nil {
				return value{}, err
			}
		} else {
			items = []json.RawMessage{nil}
		}
		v := value{of: t, list: []value{}}
		for _, item := range items {
			one, err := s.example(t.Of, item, depth+1)
			if err != nil {
				return value{}, err
			}
			v.list = append(v.list, one)
		}
		return v, nil
	}
	if text == nil {
		return value{of: t, text: scalar(t)}, nil
	}
	var compact bytes.Buffer
	err := json.Compact(&compact, text)
	return value{of: t, text: compact.String()}, err
}

func (s *sample) record(t *Type, text json.RawMessage, depth int) (value, error) {
	record := s.api.RecordNamed(t.Record)
	var given map[string]json.RawMessage
	if text != nil {
		if err := json.Unmarshal(text, &given); err != nil {
			return value{}, err
		}
	}
	v := value{of: t}
	left := sampleOptional
	members := slices.Clone(record.Members)
	slices.SortStableFunc(members, func(a, b Member) int { return cmp.Compare(boolRank(b.Required), boolRank(a.Required)) })
	for i := range members {
		m := &members[i]
		example, has := m.Example, m.Required
		if given != nil {
			example, has = given[m.Name], given[m.Name] != nil
		} else if !has && left > 0 && (example != nil || depth == 0 && s.hasExamples(&m.Type)) {
			has = true
			left--
		}
		if !has {
			continue
		}
		one, err := s.example(&m.Type, example, depth+1)
		if err != nil {
			return value{}, err
		}
		v.fields = append(v.fields, field{m.Name, one, !m.Required || m.Nullable})
	}
	if v.fields == nil && depth == 0 {
		v.fields = s.anyMember(record)
	}
	return v, nil
}

// boolRank is 1 for true.
func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}

// hasExamples reports whether a type is a record with an example of a member.
func (s *sample) hasExamples(t *Type) bool {
	return t.Kind == KindRecord && slices.ContainsFunc(s.api.RecordNamed(t.Record).Members, func(m Member) bool { return m.Example != nil })
}

// anyMember returns a member of a body that has neither required ones nor examples: an enum, or
// else the first other scalar.
func (s *sample) anyMember(r *Record) []field {
	for _, kinds := range [][]Kind{{KindEnum}, {KindString, KindInteger, KindNumber, KindBoolean, KindTime, KindDate}} {
		for i := range r.Members {
			if m := &r.Members[i]; slices.Contains(kinds, m.Type.Kind) {
				return []field{{m.Name, value{of: &m.Type, text: scalar(&m.Type)}, true}}
			}
		}
	}
	return nil
}

// scalar returns an example of a type without one, as JSON.
func scalar(t *Type) string {
	switch t.Kind {
	case KindInteger, KindNumber:
		return "1"
	case KindBoolean:
		return "true"
	case KindTime:
		return `"2026-11-21T09:00:00Z"`
	case KindDate:
		return `"2026-11-21"`
	case KindBytes:
		return `"aGVsbG8="`
	case KindMap, KindAny:
		return "{}"
	}
	if len(t.Enum) > 0 {
		return quote(t.Enum[0])
	}
	return `"…"`
}

// quote returns a string as JSON, without escapes of HTML.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}

// unquote returns the string that a JSON text encodes.
func unquote(text string) string {
	var s string
	if json.Unmarshal([]byte(text), &s) != nil {
		return text
	}
	return s
}

// json returns the value as JSON.
func (v *value) json() string {
	switch {
	case v.list != nil:
		return "[" + joinValues(v.list, func(one *value) string { return one.json() }) + "]"
	case v.of != nil && v.of.Kind == KindRecord:
		parts := make([]string, len(v.fields))
		for i := range v.fields {
			parts[i] = quote(v.fields[i].name) + ":" + v.fields[i].value.json()
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	return v.text
}

func joinValues(list []value, text func(*value) string) string {
	parts := make([]string, len(list))
	for i := range list {
		parts[i] = text(&list[i])
	}
	return strings.Join(parts, ", ")
}

// curl returns a command for a POSIX shell.
func (s *sample) curl() string {
	key := s.access.Key
	if key == "" {
		key = "$KICKSTAND_KEY"
	}
	var address strings.Builder
	address.WriteString(s.access.Origin + s.base())
	path := s.op.Path
	for _, id := range s.path {
		before, rest, _ := strings.Cut(path, "{")
		_, after, _ := strings.Cut(rest, "}")
		path = before + id + after
	}
	address.WriteString(path)
	sep := "?"
	for i := range s.query {
		f := &s.query[i]
		text := unquote(f.value.text)
		if f.value.list != nil {
			text = unquote(f.value.list[0].text)
		}
		address.WriteString(sep + f.name + "=" + url.QueryEscape(text))
		sep = "&"
	}
	var b strings.Builder
	b.WriteString("curl -sS")
	if s.op.Method != "GET" && (s.op.Method != "POST" || s.op.Body == nil) {
		b.WriteString(" -X " + s.op.Method)
	}
	fmt.Fprintf(&b, " %s \\\n  -H \"Authorization: Bearer %s\"", shellQuote(address.String()), key)
	if s.op.File {
		b.WriteString(" \\\n  -o file")
	}
	if s.op.Body != nil {
		fmt.Fprintf(&b, " \\\n  -H 'Content-Type: application/json' \\\n  -d %s", shellQuote(s.body.json()))
	}
	return b.String() + "\n"
}

// base returns the path of the API's server.
func (s *sample) base() string {
	u, err := url.Parse(s.api.Server)
	if err != nil {
		return ""
	}
	return u.Path
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// scriptSyntax is the syntax of a language without types.
type scriptSyntax struct {
	name     string
	client   string                   // the expression of a client with its options
	option   func(name string) string // of the client: "baseUrl: "
	variable string                   // "$%s"
	dot      string                   // between a client, its groups and methods
	method   func(string) string
	literal  func(t *Type, text string) string
	object   [2]string // brackets of an object within a value
	list     [2]string
	key      func(string) string // of an object's member, with the separator from the value
	// named calls pass a body's members and parameters as arguments by name; argument returns the
	// name of one. Others pass one object.
	namedBody, namedQuery bool
	argument              func(string) string
	indent                string
	end                   string // of a statement
	show                  string // prints the variable %s
	each                  string // a loop over %[1]s with the variable %[2]s
	save                  string // writes the file %s
	await                 string
	imports               func(text, class string) string
}

func quotedKey(open, close string) func(string) string {
	return func(name string) string { return open + name + close }
}

var scripts = []scriptSyntax{
	{
		name: "typescript", indent: "  ", client: "new %s(%s)", option: func(n string) string { return Camel(n) + ": " }, variable: "%s", dot: ".", method: Camel,
		literal: func(_ *Type, text string) string { return text }, object: [2]string{"{ ", " }"}, list: [2]string{"[", "]"},
		key: quotedKey("", ": "), end: ";", show: "console.log(%s);", each: "for await (const %[2]s of %[1]s) {\n  console.log(%[2]s);\n}",
		save: "await writeFile(\"file\", %s);", await: "await ",
		imports: func(text, class string) string {
			head := fmt.Sprintf("import { %s } from \"@kickstand/client\";\n", class)
			if strings.Contains(text, "writeFile") {
				head = "import { writeFile } from \"node:fs/promises\";\n" + head
			}
			return head
		},
	},
	{
		name: "python", indent: "    ", client: "%s(%s)", option: func(n string) string { return n + "=" }, variable: "%s", dot: ".", method: Snake,
		literal: pythonLiteral, object: [2]string{"{", "}"}, list: [2]string{"[", "]"}, key: quotedKey(`"`, `": `),
		namedBody: true, namedQuery: true, argument: func(n string) string { return pythonName(Snake(n)) + "=" }, show: "print(%s)",
		each: "for %[2]s in %[1]s:\n    print(%[2]s)", save: "with open(\"file\", \"wb\") as out:\n    out.writelines(%s)",
		imports: func(text, class string) string {
			head := fmt.Sprintf("from kickstand import %s\n", class)
			if strings.Contains(text, "datetime.") {
				head = "from datetime import datetime\n\n" + head
			}
			return head
		},
	},
	{
		name: "ruby", indent: "  ", client: "Kickstand::%s.new(%s)", option: func(n string) string { return n + ": " }, variable: "%s", dot: ".", method: Snake,
		literal: func(t *Type, text string) string {
			if t.Kind == KindTime {
				return "Time.iso8601(" + text + ")"
			}
			if !strings.HasPrefix(text, `"`) {
				text = strings.ReplaceAll(text, "null", "nil")
			}
			return strings.ReplaceAll(text, "#", `\#`)
		},
		object: [2]string{"{ ", " }"}, list: [2]string{"[", "]"}, key: quotedKey("", ": "), namedBody: true, namedQuery: true,
		argument: func(n string) string { return Snake(n) + ": " }, show: "puts %s.inspect",
		each: "%[1]s.each do |%[2]s|\n  puts %[2]s.inspect\nend", save: "File.binwrite(\"file\", %s.read)",
		imports: func(text, _ string) string {
			if strings.Contains(text, "Time.iso8601") {
				return "require \"kickstand\"\nrequire \"time\"\n"
			}
			return "require \"kickstand\"\n"
		},
	},
	{
		name: "php", indent: "    ", client: "new %s(%s)", option: func(n string) string { return Camel(n) + ": " }, variable: "$%s", dot: "->", method: Camel,
		literal: phpLiteral, object: [2]string{"[", "]"}, list: [2]string{"[", "]"}, key: quotedKey("'", "' => "),
		namedQuery: true, argument: func(n string) string { return Camel(n) + ": " }, end: ";", show: "print_r(%s->toArray());",
		each: "foreach (%[1]s as %[2]s) {\n    print_r(%[2]s->toArray());\n}", save: "foreach (%s as $piece) {\n    echo $piece;\n}",
		imports: func(_, class string) string {
			return fmt.Sprintf("<?php\n\nrequire 'vendor/autoload.php';\n\nuse Kickstand\\%s;\n", class)
		},
	},
}

func pythonLiteral(t *Type, text string) string {
	switch {
	case t.Kind == KindTime:
		return "datetime.fromisoformat(" + strings.Replace(text, `Z"`, `+00:00"`, 1) + ")"
	case t.Kind == KindAny || t.Kind == KindMap:
		return strings.NewReplacer("true", "True", "false", "False", "null", "None").Replace(text)
	case text == "true" || text == "false":
		return strings.ToUpper(text[:1]) + text[1:]
	}
	return text
}

func phpLiteral(t *Type, text string) string {
	switch {
	case t.Kind == KindTime:
		return "new \\DateTimeImmutable(" + phpLiteral(&Type{Kind: KindString}, text) + ")"
	case strings.HasPrefix(text, `"`):
		return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(unquote(text)) + "'"
	case strings.HasPrefix(text, "{") || strings.HasPrefix(text, "["):
		return "json_decode(" + phpLiteral(&Type{Kind: KindString}, quote(text)) + ", true)"
	}
	return text
}

// render returns a value in the syntax of a script.
func (l *scriptSyntax) render(v *value) string {
	switch {
	case v.list != nil:
		return l.list[0] + joinValues(v.list, l.render) + l.list[1]
	case v.of.Kind == KindRecord:
		return l.object[0] + l.members(v.fields, l.key) + l.object[1]
	}
	return l.literal(v.of, v.text)
}

func (l *scriptSyntax) members(fields []field, key func(string) string) string {
	return strings.Join(l.parts(fields, key), ", ")
}

func (l *scriptSyntax) parts(fields []field, key func(string) string) []string {
	parts := make([]string, len(fields))
	for i := range fields {
		parts[i] = key(fields[i].name) + l.render(&fields[i].value)
	}
	return parts
}

// script returns a program in a language without types.
func (s *sample) script(l *scriptSyntax) string {
	class := Pascal(s.api.Name)
	client := fmt.Sprintf(l.variable, s.api.Name)
	call := client + l.dot + l.method(s.group.Name) + l.dot + l.method(s.op.Name) + "(" + s.arguments(l) + ")"
	text := fmt.Sprintf("%s = %s%s\n", client, fmt.Sprintf(l.client, class, s.options(l)), l.end)
	result := fmt.Sprintf(l.variable, l.method(s.noun()))
	declare := ""
	if l.name == "typescript" {
		text = "const " + text
		declare = "const "
	}
	switch {
	case s.op.List:
		text += fmt.Sprintf(l.each, call, result) + "\n"
	case s.op.File:
		text += declare + result + " = " + call + l.end + "\n" + fmt.Sprintf(l.save, result) + "\n"
	case s.op.Answer != nil:
		text += declare + result + " = " + l.await + call + l.end + "\n" + fmt.Sprintf(l.show, result) + "\n"
	default:
		text += l.await + call + l.end + "\n"
	}
	return l.imports(text, class) + "\n" + text
}

// sampleWidth is the width from which the arguments of a call have a line each.
const sampleWidth = 60

// arguments returns the arguments of the call.
func (s *sample) arguments(l *scriptSyntax) string {
	var args []string
	for _, id := range s.path {
		args = append(args, l.literal(&Type{Kind: KindString}, quote(id)))
	}
	fields, named := s.query, l.namedQuery
	if s.op.Body != nil {
		fields, named = s.body.fields, l.namedBody
	}
	if named {
		args = append(args, l.parts(fields, l.argument)...)
		return breakLong("", args, "", l.indent)
	}
	if len(fields) > 0 || s.op.Body != nil {
		key := l.key
		if l.name == "typescript" {
			key = func(n string) string { return Snake(n) + ": " }
		}
		args = append(args, breakLong(l.object[0], l.parts(fields, key), l.object[1], l.indent))
	}
	return strings.Join(args, ", ")
}

// breakLong joins parts in one line, or in a line each if they are long.
func breakLong(open string, parts []string, end, indent string) string {
	if line := open + strings.Join(parts, ", ") + end; len(line) <= sampleWidth {
		return line
	}
	return strings.TrimSpace(open) + "\n" + indent + strings.Join(parts, ",\n"+indent) + ",\n" + strings.TrimSpace(end)
}

// options returns the options of the client.
func (s *sample) options(l *scriptSyntax) string {
	var parts []string
	for _, o := range [][2]string{{"key", s.access.Key}, {"base_url", s.access.Origin}} {
		if o[1] != "" {
			parts = append(parts, l.option(o[0])+l.literal(&Type{Kind: KindString}, quote(o[1])))
		}
	}
	text := strings.Join(parts, ", ")
	if l.name == "typescript" && text != "" {
		return "{ " + text + " }"
	}
	return text
}

// noun returns the name of the answer's variable.
func (s *sample) noun() string {
	if s.op.File {
		return "file"
	}
	if s.op.Answer == nil {
		return ""
	}
	return cmp.Or(strings.TrimPrefix(s.op.Answer.Record, "fleet_"), "answer")
}

// goFailed ends a program with an error.
const goFailed = "\tif err != nil {\n\t\tlog.Fatal(err)\n\t}\n"

// golang returns a Go program.
func (s *sample) golang() (string, error) {
	var options []string
	for _, o := range [][2]string{{"Key", s.access.Key}, {"BaseURL", s.access.Origin}} {
		if o[1] != "" {
			options = append(options, o[0]+": "+quote(o[1]))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\tctx := context.Background()\n\t%s, err := kickstand.New%s(kickstand.Options{%s})\n%s",
		s.api.Name, goName(s.api.Name), strings.Join(options, ", "), goFailed)
	call, noun := s.goCall(), goLocal(cmp.Or(s.noun(), "answer"))
	switch {
	case s.op.List:
		fmt.Fprintf(&b, "\tpage, err := %s\n%s\tfor %s, err := range page.All(ctx) {\n%s", call, goFailed, noun, goFailed)
		fmt.Fprintf(&b, "\t\tfmt.Printf(\"%%s\\n\", %s.Raw())\n\t}\n", noun)
	case s.op.File:
		fmt.Fprintf(&b, "\tfile, err := %s\n%s\tdefer file.Close()\n\t_, err = io.Copy(os.Stdout, file)\n%s", call, goFailed, goFailed)
	case s.op.Answer != nil:
		fmt.Fprintf(&b, "\t%s, err := %s\n%s\tfmt.Printf(\"%%s\\n\", %s.Raw())\n", noun, call, goFailed, noun)
	default:
		fmt.Fprintf(&b, "\terr = %s\n%s", call, goFailed)
	}
	text, err := format.Source([]byte("package main\n\nimport (\n" + goSampleImports(b.String()) + ")\n\nfunc main() {\n" + b.String() + "}\n"))
	return string(text), err
}

// goCall returns the call of the method.
func (s *sample) goCall() string {
	w := &goWriter{api: s.api}
	args := []string{"ctx"}
	for _, id := range s.path {
		args = append(args, quote(id))
	}
	if len(s.op.Query) > 0 && len(s.op.Imports) == 0 {
		params := make([]string, len(s.query))
		for i := range s.query {
			params[i] = goName(s.query[i].name) + ": " + goValueOf(w, &s.query[i].value)
		}
		args = append(args, "kickstand."+w.paramsName(s.group, s.op)+"{"+strings.Join(params, ", ")+"}")
	}
	if s.op.Body != nil {
		args = append(args, goValueOf(w, &s.body))
	}
	return fmt.Sprintf("%s.%s.%s(%s)", s.api.Name, goName(s.group.Name), goName(s.op.Name), strings.Join(args, ", "))
}

// goSampleImports returns the imports of a program.
func goSampleImports(body string) string {
	var text strings.Builder
	for _, p := range []string{"context", "encoding/json", "fmt", "io", "log", "os", "time"} {
		// As a word: "helpdesk.Macros.List" has no "os".
		if regexp.MustCompile(`\b` + p[strings.LastIndexByte(p, '/')+1:] + `\.`).MatchString(body) {
			text.WriteString(fmt.Sprintf("\t%q\n", p))
		}
	}
	return text.String() + "\n\tkickstand \"github.com/kickstand-dev/kickstand/clients/go\"\n"
}

// goValueOf returns a value in Go.
func goValueOf(w *goWriter, v *value) string {
	switch {
	case v.list != nil:
		return qualified(w.typeOf(v.of, true)) + "{" + joinValues(v.list, func(one *value) string { return goValueOf(w, one) }) + "}"
	case v.of.Kind == KindRecord:
		var parts []string
		for i := range v.fields {
			f := &v.fields[i]
			text := goValueOf(w, &f.value)
			if f.optional {
				text = some(f.value.of, text)
			}
			parts = append(parts, goName(f.name)+": "+text)
		}
		text := strings.Join(parts, ", ")
		if len(text) > sampleWidth {
			text = "\n" + strings.Join(parts, ",\n") + ",\n"
		}
		return "kickstand." + goName(v.of.Record) + "{" + text + "}"
	case v.of.Kind == KindEnum:
		return "kickstand." + goName(v.of.EnumName) + goValue(unquote(v.text))
	case v.of.Kind == KindTime:
		at, err := time.Parse(time.RFC3339, unquote(v.text))
		if err != nil {
			return "time.Now()"
		}
		at = at.UTC()
		return fmt.Sprintf("time.Date(%d, %d, %d, %d, %d, %d, 0, time.UTC)", at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second())
	case v.of.Kind == KindBytes:
		return "[]byte(\"hello\")"
	case v.of.Kind == KindAny:
		return "json.RawMessage(`" + v.text + "`)"
	case v.of.Kind == KindMap:
		return qualified(w.typeOf(v.of, true)) + "{}"
	}
	return v.text
}

// some wraps a value of an optional member.
func some(t *Type, text string) string {
	switch t.Kind {
	case KindInteger:
		return "kickstand.Some[int64](" + text + ")"
	case KindNumber:
		return "kickstand.Some[float64](" + text + ")"
	case KindAny:
		return "kickstand.Some[any](" + text + ")"
	}
	return "kickstand.Some(" + text + ")"
}

// qualified returns a type with the package's name.
func qualified(t string) string {
	for _, prefix := range []string{"[]", "map[string]", "*"} {
		if rest, ok := strings.CutPrefix(t, prefix); ok {
			return prefix + qualified(rest)
		}
	}
	if t[0] >= 'A' && t[0] <= 'Z' {
		return "kickstand." + t
	}
	return t
}
