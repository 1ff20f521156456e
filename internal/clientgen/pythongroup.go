package clientgen

import (
	"fmt"
	"slices"
	"strings"
)

// pythonResources returns a class with the methods of each group.
func pythonResources(a *API) []byte {
	f := &pythonFile{doc: "Methods of the " + a.Name + "'s client."}
	for i := range a.Groups {
		g := &a.Groups[i]
		name := pythonResource(g)
		f.exported = append(f.exported, name)
		f.line("\n\nclass " + name + ":")
		f.docstring("    ", pythonDoc(g.Doc, g.Title+"."))
		f.line("\n    def __init__(self, core: Core) -> None:")
		f.line("        self._core = core")
		for j := range g.Operations {
			op := &g.Operations[j]
			f.method(a, op)
			f.exports(op)
			f.imported(op)
		}
		if g.Modifiable() {
			f.modify(g.Find("get"), g.Find("update"))
		}
	}
	return f.module([]pythonImport{
		{"collections.abc", []string{"Callable", "Iterable", "Mapping", "Sequence"}},
		{"datetime", []string{"date", "datetime"}},
		{"typing", []string{"Any", "Literal", "overload"}},
		{},
		{".._core", []string{"CallOptions", "Core"}},
		{".._pages", []string{"Page"}},
		{".._streams", []string{"Download", "Export", "Import"}},
		{".._values", []string{"NOT_GIVEN", "AnyOf", "NotGiven", "any_of", "segment"}},
		{".types", pythonTypeNames(a)},
	})
}

// pythonArg is a keyword argument of a method.
type pythonArg struct {
	name, typ, doc string
	required       bool
	value          string // its expression in the call, if not the name
	wire           string // name in the body, the query or the headers
}

func (p pythonArg) declaration() string {
	if p.required {
		return p.name + ": " + p.typ
	}
	return p.name + ": " + p.typ + " | NotGiven = NOT_GIVEN"
}

// pythonArgs are the keyword arguments of a method by their place in the request.
type pythonArgs struct{ body, query, headers []pythonArg }

func (p pythonArgs) all() []pythonArg {
	all := slices.Concat(p.body, p.query, p.headers)
	slices.SortStableFunc(all, func(a, b pythonArg) int {
		switch {
		case a.required == b.required:
			return 0
		case a.required:
			return -1
		}
		return 1
	})
	return all
}

// keywords returns the declarations of the arguments and of the options.
func (p pythonArgs) keywords() []string {
	var list []string
	for _, arg := range p.all() {
		list = append(list, arg.declaration())
	}
	return append(list, "options: CallOptions | None = None")
}

// docs returns the part of a docstring about the arguments.
func (p pythonArgs) docs() string {
	lines := []string{"Args:"}
	for _, arg := range p.all() {
		if arg.doc != "" {
			lines = append(lines, "    "+arg.name+": "+strings.Join(strings.Fields(arg.doc), " "))
		}
	}
	if len(lines) == 1 {
		return ""
	}
	return strings.Join(lines, "\n")
}

// call returns the named arguments of the core's function.
func (p pythonArgs) call() []string {
	var items []string
	for _, part := range []struct {
		name string
		args []pythonArg
	}{{"query", p.query}, {"body", p.body}, {"headers", p.headers}} {
		if len(part.args) > 0 {
			items = append(items, pythonDict(part.name, part.args))
		}
	}
	return append(items, "options=options")
}

// pythonDict returns a named argument that is a dict of arguments.
func pythonDict(name string, args []pythonArg) string {
	entries := make([]string, len(args))
	for i, arg := range args {
		value := arg.value
		if value == "" {
			value = arg.name
		}
		entries[i] = fmt.Sprintf("%q: %s", arg.wire, value)
	}
	if one := name + "={" + strings.Join(entries, ", ") + "}"; len(one)+len("            ,") <= pythonWidth {
		return one
	}
	return name + "={\n                " + strings.Join(entries, ",\n                ") + ",\n            }"
}

func (a *API) pythonBody(op *Operation) []pythonArg {
	if op.Body == nil {
		return nil
	}
	var args []pythonArg
	for _, m := range a.RecordNamed(op.Body.Record).Members {
		args = append(args, pythonArg{name: pythonName(m.Name), wire: m.Name, typ: pythonMemberType(m, true), required: m.Required, doc: m.Doc})
	}
	return args
}

// pythonQuery returns the arguments for the query, without some.
func pythonQuery(op *Operation, without ...string) []pythonArg {
	var args []pythonArg
	for _, p := range op.Query {
		if slices.Contains(without, p.Name) {
			continue
		}
		arg := pythonArg{name: pythonName(p.Name), wire: p.Name, typ: pythonType(p.Type, true), required: p.Required, doc: p.Doc}
		if (p.Name == "from" || p.Name == "to") && p.Type.Kind == KindString {
			arg.typ = "str | date" // a date or a time
		}
		if p.Type.Kind == KindArray {
			arg.typ = "AnyOf[" + pythonType(*p.Type.Of, true) + "]"
			arg.value = "any_of(" + arg.name + ")"
		}
		args = append(args, arg)
	}
	if len(op.Expand) > 0 {
		args = append(args, pythonArg{
			name: "expand", wire: "expand[]", value: "any_of(expand)", doc: "Records to have besides their ids.",
			typ: "AnyOf[" + pythonExpand(op) + "]",
		})
	}
	return args
}

// pythonHeaders returns the arguments for the headers, without some.
func pythonHeaders(op *Operation, without ...string) []pythonArg {
	var args []pythonArg
	for _, h := range []struct {
		has             bool
		name, wire, doc string
	}{
		{op.Subaccount, "subaccount", "X-Subaccount-Id", "Narrows the request to one of the subaccounts that the key reaches."},
		{op.IfMatch, "if_match", "If-Match", "The ETag that the record must still have."},
		{op.IfNoneMatch, "if_none_match", "If-None-Match", "An ETag. While the record has it, the result is None."},
		{op.Idempotent, "idempotency_key", "Idempotency-Key", "Replaces the random key that makes retries safe."},
	} {
		if h.has && !slices.Contains(without, h.name) {
			args = append(args, pythonArg{name: h.name, wire: h.wire, typ: "str", doc: h.doc})
		}
	}
	return args
}

// pythonIDs returns the positional arguments of a method.
func pythonIDs(op *Operation) []string {
	args := []string{"self"}
	for _, p := range op.PathParams {
		args = append(args, pythonName(p.Name)+": "+pythonType(p.Type, true))
	}
	return args
}

// pythonPath returns the expression of an operation's path.
func pythonPath(op *Operation) string {
	path := op.Path
	for _, p := range op.PathParams {
		path = strings.Replace(path, "{"+p.Name+"}", "{segment("+pythonName(p.Name)+")}", 1)
	}
	if path == op.Path {
		return fmt.Sprintf("%q", path)
	}
	return fmt.Sprintf("f%q", path)
}

func (f *pythonFile) signature(name string, ids, keywords []string, returns string) {
	args := append(slices.Clone(ids), "*")
	f.list("    def "+name+"(", append(args, keywords...), ") -> "+returns+":")
}

// core writes the call of the core's function.
func (f *pythonFile) core(function string, items ...string) {
	f.list("        return self._core."+function+"(", items, ")")
}

// method writes the method of an operation.
func (f *pythonFile) method(a *API, op *Operation) {
	name, ids := pythonName(op.Name), pythonIDs(op)
	args := pythonArgs{body: a.pythonBody(op), query: pythonQuery(op), headers: pythonHeaders(op)}
	path := pythonPath(op)
	answer, function, items := "None", "nothing", []string{fmt.Sprintf("%q", op.Method), path}
	if op.Answer != nil {
		record := Pascal(op.Answer.Record)
		answer, function, items = record, "record", append([]string{record}, items...)
	}
	switch {
	case op.File:
		answer, function, items = "Download", "download", []string{path}
	case op.List:
		answer, function, items = "Page["+answer+"]", "page", []string{answer, path}
	case op.IfNoneMatch:
		function, items = "changed", []string{answer, path}
	}
	doc := []string{pythonSummary(op), op.Doc, pythonNeeds(op), args.docs()}
	f.line("")
	if !op.IfNoneMatch || op.List {
		f.signature(name, ids, args.keywords(), answer)
	} else {
		f.overloads(name, ids, args, pythonSummary(op), answer)
		f.signature(name, ids, args.keywords(), answer+" | None")
	}
	f.docstring("        ", doc...)
	f.core(function, append(items, args.call()...)...)
}

// overloads writes the two forms of a method, without and with if_none_match.
func (f *pythonFile) overloads(name string, ids []string, args pythonArgs, doc, answer string) {
	plain := args
	plain.headers = slices.DeleteFunc(slices.Clone(args.headers), func(p pythonArg) bool { return p.name == "if_none_match" })
	f.line("    @overload")
	f.signature(name, ids, plain.keywords(), answer)
	f.docstring("        ", doc)
	conditional := args
	conditional.headers = slices.Clone(args.headers)
	for i := range conditional.headers {
		if conditional.headers[i].name == "if_none_match" {
			conditional.headers[i].required = true
		}
	}
	f.line("\n    @overload")
	f.signature(name, ids, conditional.keywords(), answer+" | None")
	f.docstring("        ", doc+" Or return None, while it has the ETag.")
	f.line("")
}

func pythonSummary(op *Operation) string { return strings.TrimSuffix(op.Summary, ".") + "." }

// pythonNeeds returns the permission and the environment that an operation needs.
func pythonNeeds(op *Operation) string {
	var needs []string
	if op.Permission != "" {
		needs = append(needs, "Needs the permission "+op.Permission+".")
	}
	if op.Sandbox {
		needs = append(needs, "Only in the sandbox.")
	}
	return strings.Join(needs, " ")
}

// pythonBulk returns the name of an export or import: export, export_conversations.
func pythonBulk(verb, name, plain string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, plain), "_")
	if name == "" {
		return pythonName(verb)
	}
	return verb + "_" + name
}

// exports writes the methods that export a list as records and as CSV.
func (f *pythonFile) exports(op *Operation) {
	name, ids := pythonBulk("export", op.Name, "list"), pythonIDs(op)
	args := pythonArgs{query: pythonQuery(op, "limit", "cursor"), headers: pythonHeaders(op, "if_none_match")}
	if slices.Contains(op.Exports, "application/x-ndjson") {
		row := Pascal(op.Row.Record)
		f.line("")
		f.signature(name, ids, args.keywords(), "Export["+row+"]")
		f.docstring("        ", "Export the records of "+pythonName(op.Name)+"() one by one, from one consistent snapshot.",
			"It has the arguments of "+pythonName(op.Name)+"(), without cursor and limit.")
		f.core("export", append([]string{row, pythonPath(op)}, args.call()...)...)
	}
	if slices.Contains(op.Exports, "text/csv") {
		f.line("")
		f.signature(name+"_csv", ids, args.keywords(), "Download")
		f.docstring("        ", "Export the records of "+pythonName(op.Name)+"() as CSV with a header row.",
			"It has the arguments of "+pythonName(op.Name)+"(), without cursor and limit.")
		f.core("export_csv", append([]string{pythonPath(op)}, args.call()...)...)
	}
}

// imported writes the method that creates many records.
func (f *pythonFile) imported(op *Operation) {
	if !slices.Contains(op.Imports, "application/x-ndjson") {
		return
	}
	args := pythonArgs{query: pythonQuery(op), headers: pythonHeaders(op)}
	ids := append(pythonIDs(op), "records: Iterable["+Pascal(op.Body.Record)+" | "+Pascal(op.Answer.Record)+" | Mapping[str, Any]]")
	f.line("")
	f.signature(pythonBulk("import", op.Name, "create"), ids, args.keywords(), "Import")
	f.docstring("        ", "Create many records, and return the result of each and a summary.",
		"It is sent once: after a lost answer, find out which records exist.", args.docs())
	f.core("import_records", append([]string{pythonPath(op), "records"}, args.call()...)...)
}

// modify writes the method that gets and updates a record under its ETag.
func (f *pythonFile) modify(get, update *Operation) {
	record, changes := Pascal(update.Answer.Record), Pascal(update.Body.Record)
	args := pythonArgs{headers: pythonHeaders(update, "if_match", "idempotency_key")}
	headers := append(slices.Clone(args.headers), pythonArg{wire: "If-Match", value: "etag"})
	ids := append(pythonIDs(update), "change: Callable[["+record+"], "+changes+" | None]")
	f.line("")
	f.signature("modify", ids, args.keywords(), record)
	f.docstring("        ", "Get a record and update it with the changes that change returns.",
		"If it was changed in between, both are repeated, four times at most. Without changes it is not updated.", args.docs())
	f.line("")
	f.line("        def get() -> " + record + ":")
	f.list("            return self._core.record(", append([]string{record, `"GET"`, pythonPath(get)}, args.call()...), ")")
	f.line("")
	f.line("        def update(changes: " + changes + ", etag: str) -> " + record + ":")
	f.list("            return self._core.record(", []string{
		record, `"PUT"`, pythonPath(update), "body=changes",
		pythonDict("headers", headers), "options=options",
	}, ")")
	f.line("")
	f.core("modify", "get", "change", "update")
}
