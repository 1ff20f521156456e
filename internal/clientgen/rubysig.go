package clientgen

import (
	"fmt"
	"strings"
)

// signatures writes the RBS of an API.
func (g rubyAPI) signatures(w *rubyWriter) {
	w.block("module Kickstand", func() {
		for _, e := range g.Enums {
			rubyConstantTypes(w, e)
			w.line("")
		}
		for _, r := range g.Records {
			if r.Input {
				g.inputType(w, r)
			} else {
				g.recordType(w, r)
			}
			w.line("")
		}
		w.block("class "+g.class+" < Client", func() {
			for _, group := range g.Groups {
				w.linef("attr_reader %s: %s", group.Name, Pascal(group.Name))
			}
			for i := range g.Groups {
				w.line("")
				g.groupType(w, &g.Groups[i])
			}
		})
	})
}

func rubyConstantTypes(w *rubyWriter, e Enum) {
	w.block("module "+Pascal(e.Name), func() {
		for _, v := range e.Values {
			w.linef("%s: %q", rubyConstant(v), v)
		}
		w.line("VALUES: Array[String]")
	})
}

// inputType writes the type of a nested object of bodies. RBS has no optional keys of a Hash,
// so that a comment lists them.
func (g rubyAPI) inputType(w *rubyWriter, r Record) {
	w.doc("Keys, ! for required ones:")
	for _, m := range r.Members {
		required := ""
		if m.Required {
			required = "!"
		}
		w.linef("#   %s%s: %s", m.Name, required, g.sigInput(m))
	}
	w.linef("type %s = Hash[Symbol, untyped]", r.Name)
}

func (g rubyAPI) recordType(w *rubyWriter, r Record) {
	w.block("class "+Pascal(r.Name)+" < Record", func() {
		for _, m := range r.Members {
			optional := ""
			if t := g.sig(m.Type); t != "untyped" && (m.Nullable || !m.Required) {
				optional = "?"
			}
			w.linef("def %s: () -> %s%s", rubyReader(m.Name), g.sig(m.Type), optional)
		}
	})
}

// sig returns the type of an answer's value.
func (g rubyAPI) sig(t Type) string {
	switch t.Kind {
	case KindInteger:
		return "Integer"
	case KindNumber:
		return "(Float | Integer)"
	case KindBoolean:
		return "bool"
	case KindTime:
		return "Time"
	case KindDate:
		return "Date"
	case KindArray:
		return "Array[" + g.sig(*t.Of) + rubyNullable(t.Of) + "]"
	case KindMap:
		return "Hash[String, " + g.sig(*t.Of) + rubyNullable(t.Of) + "]"
	case KindRecord:
		return Pascal(t.Record)
	case KindAny:
		return "untyped"
	default:
		return "String"
	}
}

func rubyNullable(t *Type) string {
	if t.Nullable && t.Kind != KindAny {
		return "?"
	}
	return ""
}

// sigInput returns the type of an argument.
func (g rubyAPI) sigInput(m Member) string {
	t := g.sigValue(m.Type)
	if m.Nullable && t != "untyped" {
		t += "?"
	}
	return t
}

// sigValue returns the type of a sent value.
func (g rubyAPI) sigValue(t Type) string {
	switch t.Kind {
	case KindNumber:
		return "Numeric"
	case KindTime:
		return "time"
	case KindDate:
		return "date"
	case KindArray:
		return "Array[" + g.sigValue(*t.Of) + rubyNullable(t.Of) + "]"
	case KindMap:
		return "Hash[String | Symbol, " + g.sigValue(*t.Of) + rubyNullable(t.Of) + "]"
	case KindRecord:
		if g.isFile(t.Record) {
			return "(Attachment | " + t.Record + ")"
		}
		return "(Record | " + t.Record + ")"
	case KindEnum:
		return "text"
	default:
		return g.sig(t)
	}
}

// sigQuery returns the type of a query's argument, which may be nil. A text may stand for a
// time or a date.
func (g rubyAPI) sigQuery(t Type) string {
	switch t.Kind {
	case KindArray:
		return "list[" + g.sigValue(*t.Of) + "]?"
	case KindString:
		return "(text | time | date)?"
	default:
		return g.sigValue(t) + "?"
	}
}

func (g rubyAPI) groupType(w *rubyWriter, group *Group) {
	w.block("class "+Pascal(group.Name)+" < Resource", func() {
		if group.Modifiable() {
			w.linef("include Modifiable[%s]", g.constant(group.Find("get").Answer.Record))
			w.line("")
		}
		for i := range group.Operations {
			g.operationType(w, &group.Operations[i])
		}
	})
}

func (g rubyAPI) operationType(w *rubyWriter, op *Operation) {
	paging, filters := rubyPaging(op)
	switch {
	case op.File:
		g.methodType(w, op.Name, rubyPathTypes(op), nil, "Download")
	case rubyFiltered(op):
		answer := g.sigAnswer(op)
		if op.List {
			answer = "Page[" + g.constant(op.Answer.Record) + "]"
		}
		g.methodType(w, op.Name, rubyPathTypes(op), append(paging, filters...), answer)
		for _, media := range op.Exports {
			returned := "Download"
			if media == ndjson {
				returned = "Export[" + g.constant(op.Row.Record) + "]"
			}
			g.methodType(w, rubyExport(op, media), rubyPathTypes(op), filters, returned)
		}
	default:
		keywords := g.bodyKeywords(op)
		if len(op.Imports) == 0 {
			keywords = append(keywords, filters...)
		}
		g.methodType(w, op.Name, rubyPathTypes(op), rubyRequiredFirst(keywords), g.sigAnswer(op))
	}
	for _, media := range op.Imports {
		input := "String text"
		if media == ndjson {
			input = "_Each[Record | Hash[Symbol, untyped]] records"
		}
		g.methodType(w, "import"+rubyMedia[media][0], []string{input}, filters, "ImportResult", "?{ (ImportLine line) -> void }")
	}
}

func rubyPathTypes(op *Operation) []string {
	var types []string
	for _, name := range rubyPathNames(op) {
		types = append(types, "id "+name)
	}
	return types
}

func (g rubyAPI) sigAnswer(op *Operation) string {
	switch {
	case op.Answer == nil:
		return "nil"
	case op.IfNoneMatch:
		return g.constant(op.Answer.Record) + "?"
	default:
		return g.constant(op.Answer.Record)
	}
}

func (g rubyAPI) methodType(w *rubyWriter, name string, positional []string, keywords []rubyKeyword, answer string, block ...string) {
	parameters := positional
	for _, k := range keywords {
		t := g.sigInput(k.Member)
		if k.query {
			t = g.sigQuery(k.Type)
		}
		optional := "?"
		if k.Required {
			optional, t = "", strings.TrimSuffix(t, "?")
			if k.Nullable {
				t += "?"
			}
		}
		parameters = append(parameters, fmt.Sprintf("%s%s: %s", optional, k.Name, t))
	}
	parameters = append(parameters, "?request_options: options")
	tail := ") " + strings.Join(append(block, "-> "+answer), " ")
	w.list("def "+name+": (", parameters, tail)
}
