package clientgen

import (
	"fmt"
	"slices"
	"strings"
)

// rubyKeyword is a keyword argument of a method: a member of its body or a parameter of its
// query.
type rubyKeyword struct {
	Member
	wire  string // the parameter's name
	query bool
}

// parameter returns the declaration of a keyword. Without a value it is not sent.
func (k rubyKeyword) parameter() string {
	switch {
	case k.Required:
		return k.Name + ":"
	case k.query:
		return k.Name + ": nil"
	default:
		return k.Name + ": OMIT"
	}
}

// pair returns a pair of a Hash of the query.
func (k rubyKeyword) pair() string { return fmt.Sprintf("%q => %s", k.wire, k.Name) }

// bodyKeywords returns the members of an operation's body, the required ones first.
func (g rubyAPI) bodyKeywords(op *Operation) []rubyKeyword {
	if op.Body == nil {
		return nil
	}
	var keywords []rubyKeyword
	for _, m := range g.RecordNamed(op.Body.Record).Members {
		keywords = append(keywords, rubyKeyword{Member: m})
	}
	return rubyRequiredFirst(keywords)
}

// rubyQuery returns the parameters of an operation's query, with expand.
func rubyQuery(op *Operation) []rubyKeyword {
	var keywords []rubyKeyword
	for _, p := range op.Query {
		keywords = append(keywords, rubyKeyword{Member{Name: Snake(p.Name), Doc: p.Doc, Type: p.Type, Required: p.Required}, p.Name, true})
	}
	if len(op.Expand) > 0 {
		doc := "Records that are included whole: " + strings.Join(op.Expand, ", ") + "."
		keywords = append(keywords, rubyKeyword{Member{Name: "expand", Doc: doc, Type: Type{Kind: KindArray, Of: &Type{Kind: KindString}}}, "expand[]", true})
	}
	return rubyRequiredFirst(keywords)
}

func rubyRequiredFirst(keywords []rubyKeyword) []rubyKeyword {
	slices.SortStableFunc(keywords, func(a, b rubyKeyword) int {
		if a.Required == b.Required {
			return 0
		}
		if a.Required {
			return -1
		}
		return 1
	})
	return keywords
}

// rubyPaging divides the parameters of a list.
func rubyPaging(op *Operation) (paging, filters []rubyKeyword) {
	for _, k := range rubyQuery(op) {
		if op.List && (k.Name == "limit" || k.Name == "cursor") {
			paging = append(paging, k)
		} else {
			filters = append(filters, k)
		}
	}
	return paging, filters
}

// group writes the class of a group.
func (g rubyAPI) group(w *rubyWriter, group *Group) {
	w.line(`require_relative "../resource"`)
	w.line("")
	w.block("module Kickstand", func() {
		w.block("class "+g.class+" < Client", func() {
			w.doc(rubyText(rubyGroupDoc(group)))
			w.block("class "+Pascal(group.Name)+" < Resource", func() {
				if group.Modifiable() {
					w.line("include Modifiable")
					w.line("")
				}
				for i := range group.Operations {
					if i > 0 {
						w.line("")
					}
					g.operation(w, &group.Operations[i])
				}
				g.privateMethods(w, group)
			})
		})
	})
}

func rubyGroupDoc(group *Group) string {
	if group.Doc != "" {
		return group.Doc
	}
	return group.Title + "."
}

// operation writes the methods of an operation.
func (g rubyAPI) operation(w *rubyWriter, op *Operation) {
	switch {
	case op.File:
		g.file(w, op)
	case rubyFiltered(op):
		g.read(w, op)
	default:
		g.call(w, op)
	}
	if len(op.Imports) > 0 {
		g.imports(w, op)
	}
}

// call writes a method that sends one request.
func (g rubyAPI) call(w *rubyWriter, op *Operation) {
	body := g.bodyKeywords(op)
	query := rubyQuery(op)
	if len(op.Imports) > 0 {
		query = nil // those of imports
	}
	keywords := rubyRequiredFirst(slices.Concat(body, query))
	w.doc(rubyDocs(op)...)
	w.line("#")
	g.paramTags(w, op, keywords)
	g.returnTag(w, op)
	g.define(w, op.Name, rubyPathNames(op), keywords, nil, func() {
		arguments := []string{fmt.Sprintf("%q", op.Method), rubyPath(op.Path)}
		if op.Answer != nil {
			arguments = append(arguments, g.constant(op.Answer.Record))
		}
		if len(query) > 0 {
			w.hash("query", query, rubyKeyword.pair)
			arguments = append(arguments, "query:")
		}
		if op.Body != nil {
			w.hash("body", body, func(k rubyKeyword) string { return k.Name + ":" })
			arguments = append(arguments, "body:")
		}
		w.list("call(", append(arguments, "options: request_options"), ")")
	})
}

// hash writes the assignment of a Hash.
func (w *rubyWriter) hash(name string, keywords []rubyKeyword, pair func(rubyKeyword) string) {
	var pairs []string
	for _, k := range keywords {
		pairs = append(pairs, pair(k))
	}
	w.list(name+" = { ", pairs, " }")
}

// file writes a method that returns bytes.
func (g rubyAPI) file(w *rubyWriter, op *Operation) {
	w.doc(rubyDocs(op)...)
	w.line("#")
	g.paramTags(w, op, nil)
	w.tag("@return [Download]", "the bytes, read while they arrive.")
	g.define(w, op.Name, rubyPathNames(op), nil, nil, func() {
		w.linef(`download(%s, "*/*", options: request_options)`, rubyPath(op.Path))
	})
}

// rubyFiltered reports whether an operation reads records by filters.
func rubyFiltered(op *Operation) bool { return op.List || len(op.Exports) > 0 }

// read writes a method that reads records by filters, and its exports, which have the same.
func (g rubyAPI) read(w *rubyWriter, op *Operation) {
	paging, filters := rubyPaging(op)
	query := fmt.Sprintf("query: %s(**filters)", rubyFilters(op))
	arguments := []string{rubyPath(op.Path), g.constant(op.Answer.Record), query}
	w.doc(rubyDocs(op)...)
	w.line("#")
	g.paramTags(w, op, paging)
	g.filterTags(w, filters)
	if op.List {
		w.tag("@return [Page<" + g.constant(op.Answer.Record) + ">]")
	} else {
		g.returnTag(w, op)
	}
	g.define(w, op.Name, rubyPathNames(op), paging, []string{"**filters"}, func() {
		if op.List {
			w.list("list_page(", append(arguments, "limit:", "cursor:", "options: request_options"), ")")
		} else {
			w.list("call(", slices.Concat([]string{`"GET"`}, arguments, []string{"options: request_options"}), ")")
		}
	})
	for _, media := range op.Exports {
		w.line("")
		g.export(w, op, media, query)
	}
}

// ndjson is the media type of records; the others are texts.
const ndjson = "application/x-ndjson"

// rubyMedia has the end of a method's name, and the name of the format, by media type.
var rubyMedia = map[string][2]string{ndjson: {"", "records"}, "text/csv": {"_csv", "CSV"}, "application/geo+json": {"_geojson", "GeoJSON"}}

// rubyExport returns the method of an export: export_csv, export_conversations.
func rubyExport(op *Operation, media string) string {
	name := "export"
	if op.Name != "list" {
		name += "_" + strings.TrimPrefix(op.Name, "list_")
	}
	return name + rubyMedia[media][0]
}

// rubyFilters returns the private method that builds the query of a list and its exports.
func rubyFilters(op *Operation) string { return op.Name + "_filters" }

// export writes the export in one format.
func (g rubyAPI) export(w *rubyWriter, op *Operation, media, query string) {
	returned := "Download"
	arguments := []string{rubyPath(op.Path), fmt.Sprintf("%q", media)}
	if media == ndjson {
		returned = "Export<" + g.constant(op.Row.Record) + ">"
		arguments[1] = g.constant(op.Row.Record)
	}
	w.doc(fmt.Sprintf("Exports everything that {#%s} has as %s, from one consistent snapshot.", op.Name, rubyMedia[media][1]))
	w.line("#")
	g.paramTags(w, op, nil)
	w.tag("@param filters [Hash]", "those of {#"+op.Name+"}")
	w.tag("@return [" + returned + "]")
	g.define(w, rubyExport(op, media), rubyPathNames(op), nil, []string{"**filters"}, func() {
		method := "download("
		if media == ndjson {
			method = "export_records("
		}
		w.list(method, append(arguments, query, "options: request_options"), ")")
	})
}

// imports writes the imports of a create.
func (g rubyAPI) imports(w *rubyWriter, op *Operation) {
	query := rubyQuery(op)
	for _, media := range op.Imports {
		w.line("")
		name, format := "import"+rubyMedia[media][0], rubyMedia[media][1]
		w.doc("Imports many records as " + format + ". An import is not repeated by itself.")
		w.line("#")
		input := "text"
		if media == ndjson {
			input = "records"
			w.tag("@param records [Enumerable<Hash, Record>]", "each as the keywords of {#"+op.Name+"}")
		} else {
			w.tag("@param text [String]")
		}
		g.keywordTags(w, query)
		w.tag("@yieldparam line [ImportLine]", "the result of one record, as it arrives")
		w.tag("@return [ImportResult]")
		g.define(w, name, []string{input}, query, []string{"&block"}, func() {
			w.hash("query", query, rubyKeyword.pair)
			arguments := []string{rubyPath(op.Path), input}
			if media != ndjson {
				arguments = append(arguments, fmt.Sprintf("%q", media))
			}
			w.list("import_"+input+"(", append(arguments, "query:", "options: request_options", "&block"), ")")
		})
	}
}

// privateMethods writes the methods that build the queries of lists and exports.
func (g rubyAPI) privateMethods(w *rubyWriter, group *Group) {
	first := true
	for i := range group.Operations {
		op := &group.Operations[i]
		if !rubyFiltered(op) {
			continue
		}
		w.line("")
		if first {
			w.line("private")
			w.line("")
		}
		first = false
		_, filters := rubyPaging(op)
		if len(filters) == 0 {
			w.line("def " + rubyFilters(op) + " = {}")
			continue
		}
		var parameters, pairs []string
		for _, k := range filters {
			parameters = append(parameters, k.parameter())
			pairs = append(pairs, k.pair())
		}
		w.list("def "+rubyFilters(op)+"(", parameters, ")")
		w.indent++
		w.list("{ ", pairs, " }")
		w.indent--
		w.line("end")
	}
}

// define writes a method.
func (g rubyAPI) define(w *rubyWriter, name string, positional []string, keywords []rubyKeyword, last []string, body func()) {
	parameters := slices.Clone(positional)
	for _, k := range keywords {
		parameters = append(parameters, k.parameter())
	}
	parameters = append(append(parameters, "request_options: {}"), last...)
	w.list("def "+name+"(", parameters, ")")
	w.indent++
	body()
	w.indent--
	w.line("end")
}

func rubyPathNames(op *Operation) []string {
	var names []string
	for _, p := range op.PathParams {
		names = append(names, Snake(p.Name))
	}
	return names
}

// rubyPath returns the expression of a path.
func rubyPath(path string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(path, "{") {
		name, rest, found := strings.Cut(part, "}")
		if !found {
			b.WriteString(part)
			continue
		}
		b.WriteString("#{segment(" + Snake(name) + ")}" + rest)
	}
	return `"` + b.String() + `"`
}

// rubyDocs returns the paragraphs of an operation's comment.
func rubyDocs(op *Operation) []string {
	docs := []string{rubySentence(op.Summary), op.Doc}
	if op.Sandbox {
		docs = append(docs, "Only in the sandbox.")
	}
	if op.Permission != "" {
		docs = append(docs, "Permission: "+op.Permission+".")
	}
	for i := range docs {
		docs[i] = rubyText(docs[i])
	}
	return docs
}

// rubySentence ends a text with a period.
func rubySentence(s string) string {
	if s == "" || strings.HasSuffix(s, ".") {
		return s
	}
	return s + "."
}

// rubyAnswer returns the type of an operation's result for YARD.
func (g rubyAPI) answer(op *Operation) string {
	class := ""
	if op.Answer != nil {
		class = g.constant(op.Answer.Record)
	}
	switch {
	case op.Answer == nil:
		return "nil"
	case op.IfNoneMatch:
		return class + ", nil"
	default:
		return class
	}
}

func (g rubyAPI) returnTag(w *rubyWriter, op *Operation) {
	when := ""
	if op.Answer != nil && op.IfNoneMatch {
		when = "nil while the record has the ETag if_none_match"
	}
	w.tag("@return ["+g.answer(op)+"]", when)
}

// constant returns the class of a record within a client's class, where a group can have the
// same name.
func (g rubyAPI) constant(record string) string {
	name := Pascal(record)
	if slices.ContainsFunc(g.Groups, func(group Group) bool { return Pascal(group.Name) == name }) {
		return "Kickstand::" + name
	}
	return name
}

// paramTags writes the tags of a method's arguments.
func (g rubyAPI) paramTags(w *rubyWriter, op *Operation, keywords []rubyKeyword) {
	for _, p := range op.PathParams {
		w.tag("@param "+Snake(p.Name)+" [String]", rubyText(p.Doc))
	}
	g.keywordTags(w, keywords)
	w.tag("@param request_options [RequestOptions, Hash]")
}

func (g rubyAPI) keywordTags(w *rubyWriter, keywords []rubyKeyword) {
	for _, k := range keywords {
		w.tag("@param "+k.Name+" ["+g.yardInput(k.Member)+"]", rubyText(k.Doc), g.values(k.Type))
		if k.Type.Kind == KindRecord {
			for _, m := range g.RecordNamed(k.Type.Record).Members {
				w.tag("@option "+k.Name+" ["+g.yardInput(m)+"] :"+m.Name, rubyText(m.Doc), g.values(m.Type))
			}
		}
	}
}

func (g rubyAPI) filterTags(w *rubyWriter, filters []rubyKeyword) {
	for _, k := range filters {
		w.tag("@option filters ["+g.yardInput(k.Member)+"] :"+k.Name, rubyText(k.Doc), g.values(k.Type))
	}
}

// yardInput returns the type of an argument for YARD.
func (g rubyAPI) yardInput(m Member) string {
	t := g.yardValue(m.Type)
	if m.Nullable {
		t += ", nil"
	}
	return t
}

// yardValue returns the type of a sent value for YARD.
func (g rubyAPI) yardValue(t Type) string {
	switch t.Kind {
	case KindTime:
		return "Time, String"
	case KindDate:
		return "Date, String"
	case KindArray:
		return "Array<" + g.yardValue(*t.Of) + ">"
	case KindMap:
		return "Hash{String => " + g.yardValue(*t.Of) + "}"
	case KindRecord:
		if g.isFile(t.Record) {
			return "Attachment, Hash"
		}
		return "Hash, Record"
	default:
		return g.yard(t)
	}
}

// isFile reports whether an input record has bytes, so that an Attachment can be passed.
func (g rubyAPI) isFile(record string) bool {
	return slices.ContainsFunc(g.RecordNamed(record).Members, func(m Member) bool { return m.Type.Kind == KindBytes })
}
