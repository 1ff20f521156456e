package clientgen

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// phpMethod is a method of a group while it is written.
type phpMethod struct {
	doc      string
	name     string
	params   []phpParam
	returns  string // of PHP
	returned string // of PHPDoc, if it differs
	body     string // after "return ", or the statement of a method that returns nothing
}

// phpParam is a parameter. Its documented type may be more exact than that of PHP, which has
// no nullable mark yet.
type phpParam struct {
	name, native, doc, comment string
	optional                   bool
}

// group writes the class of a group.
func (p *phpWriter) group(g *Group) {
	class := Pascal(g.Name)
	p.constant = map[string]string{}
	var methods []string
	names := map[string]bool{}
	add := func(m phpMethod) {
		if names[m.name] {
			p.fail("the group %s has two methods named %s", g.Name, m.name)
		}
		names[m.name] = true
		methods = append(methods, p.method(&m))
	}
	for i := range g.Operations {
		op := &g.Operations[i]
		add(p.call(op))
		for _, media := range op.Exports {
			add(p.export(op, media))
		}
		if slices.Contains(op.Imports, "application/x-ndjson") {
			add(p.importer(op))
		}
	}
	if g.Modifiable() {
		add(p.modify(g))
	}
	doc := phpSentence(g.Doc)
	if doc == "" {
		doc = g.Title + "."
	}
	var code strings.Builder
	code.WriteString(phpDoc("", doc) + "final class " + class + "\n{\n")
	if len(p.constant) > 0 {
		code.WriteString("    // The objects within bodies, for Json::encode().\n")
		for _, name := range slices.Sorted(maps.Keys(p.constant)) {
			code.WriteString("    private const " + name + " = " + p.constant[name] + ";\n")
		}
		code.WriteString("\n")
	}
	code.WriteString("    /** @internal */\n    public function __construct(private readonly Connection $connection)\n    {\n    }\n\n" +
		strings.Join(methods, "\n") + "}\n")
	namespace := "Kickstand\\" + Pascal(p.api.Name)
	p.file("src/"+Pascal(p.api.Name)+"/"+class, namespace, []string{
		"Kickstand\\Download", "Kickstand\\Enum", "Kickstand\\Exception\\KickstandException", "Kickstand\\Import",
		"Kickstand\\Internal\\Connection", "Kickstand\\Internal\\Json", "Kickstand\\Model", "Kickstand\\Page",
		"Kickstand\\Record", "Kickstand\\RequestOptions",
	}, code.String())
}

// method writes a method. Its last parameter is always the options.
func (p *phpWriter) method(m *phpMethod) string {
	m.params = append(m.params, phpParam{name: "options", native: "RequestOptions", optional: true})
	slices.SortStableFunc(m.params, func(a, b phpParam) int {
		switch {
		case a.optional == b.optional:
			return 0
		case b.optional:
			return -1
		}
		return 1
	})
	var tags, params []string
	seen := map[string]bool{}
	for _, a := range m.params {
		if seen[a.name] {
			p.fail("the method %s has two parameters named %s", m.name, a.name)
		}
		seen[a.name] = true
		native, suffix := a.native, ""
		if a.optional {
			native, suffix = "?"+native, " = null"
		}
		params = append(params, native+" $"+a.name+suffix)
		if a.doc == "" && a.comment == "" {
			continue
		}
		doc := a.doc
		if doc == "" {
			doc = a.native
		}
		if a.optional {
			doc += "|null"
		}
		tags = append(tags, phpParamTag(doc, a.name, a.comment))
	}
	if m.returned != "" {
		tags = append(tags, "@return "+m.returned)
	}
	tags = append(tags, "@throws KickstandException")
	signature := fmt.Sprintf("    public function %s(%s): %s\n    {\n", m.name, strings.Join(params, ", "), m.returns)
	if len(signature) > 127 || len(params) > 4 {
		signature = fmt.Sprintf("    public function %s(\n        %s,\n    ): %s {\n",
			m.name, strings.Join(params, ",\n        "), m.returns)
	}
	keyword := "return "
	if m.returns == "void" {
		keyword = ""
	}
	return phpDoc("    ", m.doc, tags...) + signature + "        " + keyword + m.body + ";\n    }\n"
}

// call returns the method of an operation itself.
func (p *phpWriter) call(op *Operation) phpMethod {
	m := phpMethod{doc: phpOperationDoc(op), name: Camel(op.Name), params: p.pathParams(op)}
	if op.Body != nil {
		m.params = append(m.params, p.bodyParam(op))
	}
	ids, query := phpIDs(op), "[]"
	if len(op.Imports) == 0 { // the query of an import is not that of a single record
		m.params = append(m.params, p.queryParams(op, false)...)
		query = p.query(op, false)
	}
	switch {
	case op.List:
		class := Pascal(op.Answer.Record)
		m.returns, m.returned = "Page", "Page<Model\\"+class+">"
		m.body = phpCall("page", "Model\\"+class+"::class", phpString(op.Path), ids, query, "$options")
	case op.File:
		m.returns = "Download"
		m.body = phpCall("download", phpString(op.Path), ids, query, "$options")
	case op.Answer == nil:
		m.returns = "void"
		m.body = phpCall("call", phpString(op.Method), phpString(op.Path), ids, query, p.body(op), "$options")
	case op.Answer.Kind == KindRecord:
		class := "Model\\" + Pascal(op.Answer.Record)
		m.returns = class
		m.body = phpCall("record", class+"::class", phpString(op.Method), phpString(op.Path), ids, query, p.body(op), "$options")
	default:
		p.fail("the answer of %s is no record", op.ID)
	}
	if op.IfNoneMatch {
		m.returned = "($options is null ? " + m.returns + " : " + m.returns + "|null)\n    null if the record still has the ETag of ifNoneMatch"
		m.returns = "?" + m.returns
		m.body = strings.Replace(m.body, "->record(", "->recordIfChanged(", 1)
	}
	return m
}

// export returns the method that exports an operation's records in a media type.
func (p *phpWriter) export(op *Operation, media string) phpMethod {
	m := phpMethod{name: Camel(phpBulkName(op)), params: append(p.pathParams(op), p.queryParams(op, true)...)}
	args := []string{phpString(op.Path), phpIDs(op), p.query(op, true), "$options"}
	m.returns = "\\Generator"
	if media == "application/x-ndjson" {
		if op.Row == nil || op.Row.Kind != KindRecord {
			p.fail("the rows of %s are no records", op.ID)
			return m
		}
		class := "Model\\" + Pascal(op.Row.Record)
		m.doc = "Exports all records of " + Camel(op.Name) + "(), from one snapshot. They arrive one by one; an export that is cut short throws."
		m.returned = "\\Generator<int, " + class + ">"
		m.body = phpCall("export", append([]string{class + "::class"}, args...)...)
		return m
	}
	format, ok := map[string]string{"text/csv": "Csv", "application/geo+json": "GeoJson"}[media]
	if !ok {
		p.fail("the export of %s as %s has no name", op.ID, media)
	}
	m.name += format
	m.doc = "Exports all records of " + Camel(op.Name) + "() as " + media + "."
	m.returned = "\\Generator<int, string> the pieces of the text"
	m.body = phpCall("exportText", append([]string{phpString(media)}, args...)...)
	return m
}

// importer returns the method that imports many records.
func (p *phpWriter) importer(op *Operation) phpMethod {
	records := phpParam{
		name: "records", native: "iterable", doc: "iterable<array<string, mixed>|Record>",
		comment: "bodies as for " + Camel(op.Name) + "(), which may have an id, or records of an export",
	}
	m := phpMethod{
		doc: "Imports records, as many as there are. They are sent once, as they come, without retries. " +
			"A record that fails does not stop the others, unless atomic is true.",
		name: Camel(phpBulkName(op)), params: append([]phpParam{records}, p.queryParams(op, true)...), returns: "Import",
	}
	m.body = phpCall("import", phpString(op.Path), p.query(op, true), "$records", p.objectsConstant(op.Body.Record), "$options")
	return m
}

// modify returns the method that reads a record and updates it under its ETag.
func (p *phpWriter) modify(g *Group) phpMethod {
	get, update := g.Find("get"), g.Find("update")
	class := "Model\\" + Pascal(get.Answer.Record)
	change := phpParam{
		name: "change", native: "callable", doc: "callable(" + class + "): array<string, mixed>",
		comment: "returns the changes of a record, as for update()",
	}
	return phpMethod{
		doc:  "Gets a record and updates it, unless it has changed meanwhile: then again with the new one, five times at most.",
		name: "modify", params: append(p.pathParams(get), change), returns: class,
		body: phpCall("modify", class+"::class", phpString(get.Path), phpIDs(get), "$change", p.objectsConstant(update.Body.Record), "$options"),
	}
}

// phpBulkName returns the name of the export or the import of an operation: "export" for list,
// "export_conversations" for list_conversations, "import" for create.
func phpBulkName(op *Operation) string {
	verb, own := "export", "list"
	if len(op.Imports) > 0 {
		verb, own = "import", "create"
	}
	switch rest, found := strings.CutPrefix(op.Name, own); {
	case found && rest == "":
		return verb
	case found && rest[0] == '_':
		return verb + rest
	}
	return verb + "_" + op.Name
}

// phpOperationDoc returns the description of an operation.
func phpOperationDoc(op *Operation) string {
	doc := phpSentence(op.Summary) + "\n\n" + phpSentence(op.Doc)
	if op.Sandbox {
		doc += "\n\nThe sandbox only."
	}
	if op.Permission != "" {
		doc += "\n\nPermission: " + op.Permission + "."
	}
	return doc
}

// phpCall returns a call of the connection, on one line or on several.
func phpCall(method string, args ...string) string {
	line := "$this->connection->" + method + "(" + strings.Join(args, ", ") + ")"
	if len(line) <= 99 && !strings.Contains(line, "\n") {
		return line
	}
	return "$this->connection->" + method + "(\n            " + strings.Join(args, ",\n            ") + ",\n        )"
}

// phpIDs returns the array literal of the path's parameters.
func phpIDs(op *Operation) string {
	var parts []string
	for _, a := range op.PathParams {
		parts = append(parts, phpString(a.Name)+" => $"+Camel(a.Name))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func (p *phpWriter) pathParams(op *Operation) []phpParam {
	var params []phpParam
	for _, a := range op.PathParams {
		param := phpParam{name: Camel(a.Name), native: "string", comment: a.Doc}
		if a.Type.Kind == KindEnum {
			param.doc = "Enum\\" + Pascal(a.Type.EnumName) + "::*"
		}
		params = append(params, param)
	}
	return params
}

// phpQuery returns the parameters of the query. An export or import has no cursor and no limit.
func phpQuery(op *Operation, bulk bool) []Param {
	return slices.DeleteFunc(slices.Clone(op.Query), func(a Param) bool {
		return bulk && (a.Name == "cursor" || a.Name == "limit")
	})
}

func (p *phpWriter) queryParams(op *Operation, bulk bool) []phpParam {
	var params []phpParam
	for _, a := range phpQuery(op, bulk) {
		param := phpParam{name: Camel(a.Name), native: p.nativeType(&a.Type), optional: !a.Required}
		if !bulk || len(op.Imports) > 0 { // an export has the parameters of its list
			param.comment = a.Doc
		}
		switch a.Type.Kind {
		case KindTime:
			param.native = "\\DateTimeInterface"
		case KindArray, KindEnum:
			param.doc = p.shape(&a.Type, "", nil)
		}
		params = append(params, param)
	}
	if len(op.Expand) > 0 {
		var names []string
		for _, name := range op.Expand {
			names = append(names, phpString(name))
		}
		params = append(params, phpParam{
			name: "expand", native: "array", doc: "list<" + strings.Join(names, "|") + ">",
			comment: "records to add besides their ids", optional: true,
		})
	}
	return params
}

// query returns the array literal of the query.
func (p *phpWriter) query(op *Operation, bulk bool) string {
	var parts []string
	for _, a := range phpQuery(op, bulk) {
		parts = append(parts, phpString(a.Name)+" => $"+Camel(a.Name))
	}
	if len(op.Expand) > 0 {
		parts = append(parts, "'expand[]' => $expand")
	}
	line := "[" + strings.Join(parts, ", ") + "]"
	if len(parts) < 2 || len(line) <= 40 {
		return line
	}
	return "[\n                " + strings.Join(parts, ",\n                ") + ",\n            ]"
}

// bodyParam returns the parameter of the body, with an array shape and the members' meanings.
func (p *phpWriter) bodyParam(op *Operation) phpParam {
	var notes []string
	if op.Body.Kind != KindRecord {
		p.fail("the body of %s is no record", op.ID)
		return phpParam{}
	}
	for _, m := range p.api.RecordNamed(op.Body.Record).Members {
		if m.Doc != "" {
			notes = append(notes, "`"+m.Name+"`: "+phpSentence(m.Doc))
		}
	}
	return phpParam{
		name: "body", native: "array", doc: p.shape(op.Body, "", nil),
		comment: strings.Join(notes, "\n"), optional: !op.BodyRequired,
	}
}

// body returns the expression of the encoded body.
func (p *phpWriter) body(op *Operation) string {
	if op.Body == nil {
		return "null"
	}
	encode := "Json::encode($body, " + p.objectsConstant(op.Body.Record) + ")"
	if op.BodyRequired {
		return encode
	}
	return "$body === null ? null : " + encode
}
