package clientgen

import (
	"fmt"
	"slices"
	"strings"
)

// generateRuby returns the types and methods of clients/ruby: per API a client class, a file of
// records, one of enums and one per group; the codes of problems; the records of events; RBS
// signatures; and for its tests the method of each operation.
func generateRuby(apis []*API) ([]File, error) {
	var files []File
	for _, a := range apis {
		g := rubyAPI{API: a, class: Pascal(a.Name)}
		if err := g.check(); err != nil {
			return nil, err
		}
		folder := "ruby/lib/kickstand/" + a.Name
		files = append(files,
			rubyFile(folder+".rb", g.client),
			rubyFile(folder+"/enums.rb", g.enums),
			rubyFile(folder+"/records.rb", g.records),
			rubyFile("ruby/sig/generated/"+a.Name+".rbs", g.signatures),
		)
		for i := range a.Groups {
			group := &a.Groups[i]
			files = append(files, rubyFile(folder+"/"+group.Name+".rb", func(w *rubyWriter) { g.group(w, group) }))
		}
		files = append(files, rubyFile(folder+"/event_data.rb", g.events))
	}
	codes := rubyCodes(apis)
	return append(files,
		rubyFile("ruby/lib/kickstand/codes.rb", func(w *rubyWriter) {
			w.block("module Kickstand", func() { rubyConstants(w, codes, "The codes of problems; a newer server may have others.") })
		}),
		rubyFile("ruby/sig/generated/codes.rbs", func(w *rubyWriter) {
			w.block("module Kickstand", func() { rubyConstantTypes(w, codes) })
		}),
		rubyFile("ruby/test/operations.rb", func(w *rubyWriter) { rubyOperations(w, apis) }),
	), nil
}

// rubyAPI emits one API.
type rubyAPI struct {
	*API
	class string // "Helpdesk"
}

// check refuses names that Ruby, or the hand-written part of the library, has already.
func (g rubyAPI) check() error {
	for _, r := range g.Records {
		if slices.Contains(rubyCoreNames, Pascal(r.Name)) {
			return fmt.Errorf("the library has another Kickstand::%s", Pascal(r.Name))
		}
	}
	for _, e := range g.Enums {
		if slices.Contains(rubyCoreNames, Pascal(e.Name)) || slices.ContainsFunc(g.Records, func(r Record) bool { return r.Name == e.Name }) {
			return fmt.Errorf("the library has another Kickstand::%s", Pascal(e.Name))
		}
	}
	for _, group := range g.Groups {
		for _, op := range group.Operations {
			names := rubyPathNames(&op)
			for _, k := range slices.Concat(g.bodyKeywords(&op), rubyQuery(&op)) {
				names = append(names, k.Name)
			}
			slices.Sort(names)
			if len(slices.Compact(slices.Clone(names))) < len(names) || slices.ContainsFunc(names, func(s string) bool { return slices.Contains(rubyKeywords, s) }) {
				return fmt.Errorf("%s: a name of %q is a keyword or occurs twice", op.ID, names)
			}
		}
	}
	return nil
}

// rubyCoreNames are the constants of the hand-written part.
var rubyCoreNames = []string{
	"Attachment", "Client", "Codes", "ConnectionError", "Download", "Error", "Export", "FieldError", "Fleet", "HTTP",
	"Helpdesk", "ImportLine", "ImportResult", "ImportSummary", "Lines", "Modifiable", "Page", "Problem", "RateLimit", "Record",
	"RequestOptions", "Resource", "Response", "RetryPolicy", "Signature", "SignatureError", "Testing", "TimeoutError",
	"Transport", "Type", "Webhooks", "Wire",
}

// rubyKeywords are the reserved words that a keyword argument cannot have as its name, since
// the method could not read it.
var rubyKeywords = strings.Fields("alias and begin break case class def defined? do else elsif end ensure false for if in module next nil not or redo rescue retry return self super then true undef unless until when while yield request_options")

// rubyObjectMethods are methods of Object and Record that a reader must not replace.
var rubyObjectMethods = strings.Fields("class clone dup eql? equal? extend freeze frozen? hash inspect itself member_value method methods plain_value raw send tap then to_h to_json to_s")

// rubyReader returns the reader of a member: "hash" is read by hash_value.
func rubyReader(name string) string {
	if slices.Contains(rubyObjectMethods, name) {
		return name + "_value"
	}
	return name
}

// rubyCodes returns the codes of problems of all APIs, sorted.
func rubyCodes(apis []*API) Enum {
	var codes []string
	for _, a := range apis {
		codes = append(codes, a.Codes...)
	}
	slices.Sort(codes)
	return Enum{Name: "codes", Values: slices.Compact(codes)}
}

// rubyConstant returns the constant of a value: "ticket.created" is TICKET_CREATED, "-name" is
// NAME_DESCENDING.
func rubyConstant(value string) string {
	if value == "*" {
		return "ANY"
	}
	name := strings.ToUpper(Snake(value))
	if strings.HasPrefix(value, "-") {
		name += "_DESCENDING"
	}
	if name == "" || name[0] < 'A' || name[0] > 'Z' {
		name = "VALUE_" + name
	}
	return name
}

// rubyConstants writes a module of constants.
func rubyConstants(w *rubyWriter, e Enum, doc string) {
	w.doc(doc)
	w.block("module "+Pascal(e.Name), func() {
		var names []string
		for _, v := range e.Values {
			w.linef("%s = %q", rubyConstant(v), v)
			names = append(names, rubyConstant(v))
		}
		w.line("")
		w.list("VALUES = [", names, "].freeze")
	})
}

func (g rubyAPI) enums(w *rubyWriter) {
	w.block("module Kickstand", func() {
		for i, e := range g.Enums {
			if i > 0 {
				w.line("")
			}
			rubyConstants(w, e, "The values that this version knows; a newer server may have others.")
		}
	})
}

func (g rubyAPI) client(w *rubyWriter) {
	w.linef("require_relative %q", "client")
	for _, part := range []string{"enums", "records", "event_data"} {
		w.linef("require_relative %q", g.Name+"/"+part)
	}
	for _, group := range g.Groups {
		w.linef("require_relative %q", g.Name+"/"+group.Name)
	}
	w.line("")
	w.block("module Kickstand", func() {
		w.doc(rubyClientDocs[g.Name])
		w.block("class "+g.class+" < Client", func() {
			for _, group := range g.Groups {
				w.linef("# @return [%s]", Pascal(group.Name))
				w.linef("attr_reader :%s", group.Name)
			}
			w.line("")
			w.line("# @param options [Hash] those of {Client#initialize}")
			w.block("def initialize(**options)", func() {
				w.line("super")
				for _, group := range g.Groups {
					w.linef("@%s = %s.new(@http)", group.Name, Pascal(group.Name))
				}
			})
			w.line("")
			w.line("private")
			w.line("")
			w.line(rubyPaths[g.Name])
		})
	})
}

// rubyClientDocs describe the client of each API.
var rubyClientDocs = map[string]string{
	"helpdesk": "The helpdesk: tickets, messages, customers, webhooks and channels.",
	"fleet":    "The fleet: vehicles, rides, zones and prices. A key that begins with sk_test_ uses the sandbox.",
}

// rubyPaths are the methods that return the path of each API.
var rubyPaths = map[string]string{
	"helpdesk": `def path(_key) = "/api/v1"`,
	"fleet":    `def path(key) = key.start_with?("sk_test_") ? "/sandbox/v1" : "/v1"`,
}

func (g rubyAPI) events(w *rubyWriter) {
	w.line(`require_relative "../webhooks"`)
	w.line("")
	w.block("module Kickstand", func() {
		w.block("module Webhooks", func() {
			name := "DATA"
			if g.Name == "fleet" {
				name = "FLEET_DATA"
			}
			w.doc("The records of the member data in form B by the name of the " + g.Name + "'s event.")
			w.line("# @api private")
			w.linef("%s = {", name)
			for i, e := range g.Events {
				comma := ","
				if i == len(g.Events)-1 {
					comma = ""
				}
				w.linef("  %q => :%s%s", e.Name, Pascal(e.Data.Record), comma)
			}
			w.line("}.freeze")
		})
	})
}

func (g rubyAPI) records(w *rubyWriter) {
	w.line(`require_relative "../record"`)
	w.line("")
	w.block("module Kickstand", func() {
		first := true
		for _, r := range g.Records {
			if r.Input {
				continue // a Hash
			}
			if !first {
				w.line("")
			}
			first = false
			w.doc(rubyText(r.Doc))
			w.block("class "+Pascal(r.Name)+" < Record", func() {
				for _, m := range r.Members {
					w.tag("@return ["+g.yardMember(m)+"]", rubyText(m.Doc), g.values(m.Type))
					reader := ""
					if name := rubyReader(m.Name); name != m.Name {
						reader = ", reader: :" + name
					}
					conversion := g.conversion(m.Type)
					if conversion != "" {
						conversion = ", " + conversion
					}
					w.linef("member :%s%s%s", m.Name, conversion, reader)
				}
			})
		}
	})
}

// conversion returns the constant that converts a JSON value; empty if it stays as it is.
func (g rubyAPI) conversion(t Type) string {
	item := func(method string) string {
		if of := g.conversion(*t.Of); of != "" {
			return "Type." + method + "(" + of + ")"
		}
		return ""
	}
	switch t.Kind {
	case KindTime:
		return "Type::TIME"
	case KindDate:
		return "Type::DATE"
	case KindRecord:
		return "Type.record(:" + Pascal(t.Record) + ")"
	case KindArray:
		return item("list")
	case KindMap:
		return item("map")
	default:
		return ""
	}
}

// yardMember returns the type of a reader for YARD.
func (g rubyAPI) yardMember(m Member) string {
	t := g.yard(m.Type)
	if (m.Nullable || !m.Required) && t != "Object" {
		t += ", nil"
	}
	return t
}

// yard returns the type of an answer's value for YARD.
func (g rubyAPI) yard(t Type) string {
	switch t.Kind {
	case KindInteger:
		return "Integer"
	case KindNumber:
		return "Float, Integer"
	case KindBoolean:
		return "Boolean"
	case KindTime:
		return "Time"
	case KindDate:
		return "Date"
	case KindArray:
		return "Array<" + g.yard(*t.Of) + ">"
	case KindMap:
		return "Hash{String => " + g.yard(*t.Of) + "}"
	case KindRecord:
		return Pascal(t.Record)
	case KindAny:
		return "Object"
	default:
		return "String"
	}
}

// values returns a reference to the values of an enum, or nothing.
func (g rubyAPI) values(t Type) string {
	switch {
	case t.Kind == KindEnum && t.EnumName != "":
		return "One of {" + Pascal(t.EnumName) + "}."
	case t.Kind == KindArray && t.Of.Kind == KindEnum && t.Of.EnumName != "":
		return "Each one of {" + Pascal(t.Of.EnumName) + "}."
	case t.Kind == KindBytes:
		return "In base64."
	default:
		return ""
	}
}

// rubyOperations writes a table for the tests.
func rubyOperations(w *rubyWriter, apis []*API) {
	w.line("# The method of each operation of the documents.")
	w.line("OPERATIONS = Hash.new { |apis, name| apis[name] = {} }")
	for _, a := range apis {
		for _, group := range a.Groups {
			for _, op := range group.Operations {
				w.linef("OPERATIONS[%q][%q] = %%i[%s %s]", a.Name, op.ID, group.Name, op.Name)
			}
		}
	}
}
