package clientgen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// record writes the class of a record of answers.
func (p *phpWriter) record(r *Record) {
	class := Pascal(r.Name)
	var params, args strings.Builder
	whole := "source" // the parameter of the whole record
	if slices.ContainsFunc(r.Members, func(m Member) bool { return Camel(m.Name) == whole }) {
		whole = "stored"
	}
	seen := map[string]bool{whole: true, "json": true, "read": true}
	for _, m := range r.Members {
		name := Camel(m.Name)
		if seen[name] {
			p.fail("the record %s has two members named %s", r.Name, name)
		}
		seen[name] = true
		nullable := m.Nullable || !m.Required
		params.WriteString(p.property(&m, name, nullable))
		args.WriteString(phpArgument(name, p.read("$read", phpString(m.Name), &m.Type, nullable)))
	}
	doc := phpSentence(r.Doc)
	if doc == "" {
		doc = "The schema `" + cmp.Or(r.Schema, r.Name) + "` of the API."
	}
	code := phpDoc("", doc) + "final class " + class + " extends Record\n{\n" +
		"    private function __construct(\n" + params.String() + "        \\stdClass $" + whole + ",\n    ) {\n" +
		"        parent::__construct($" + whole + ");\n    }\n\n" +
		"    public static function fromJson(\\stdClass $json): static\n    {\n"
	if len(r.Members) > 0 {
		code += fmt.Sprintf("        $read = new Reader($json, %s);\n", phpString(strings.ReplaceAll(r.Name, "_", " ")))
	}
	code += "        return new self(\n" + args.String() + "            " + whole + ": $json,\n        );\n    }\n}\n"
	p.file("src/Model/"+class, "Kickstand\\Model",
		[]string{"Kickstand\\Enum", "Kickstand\\Internal\\Reader", "Kickstand\\Record"}, code)
}

// property returns a promoted parameter of a record's constructor.
func (p *phpWriter) property(m *Member, name string, nullable bool) string {
	native := p.nativeType(&m.Type)
	doc := phpSentence(m.Doc)
	if enum := innerEnum(&m.Type); enum != "" {
		doc = phpSentence(doc, "See {@see Enum\\"+Pascal(enum)+"}")
	}
	if m.Type.Kind == KindArray || m.Type.Kind == KindMap {
		typ := p.docType(&m.Type)
		if nullable {
			typ += "|null"
		}
		doc = "@var " + typ + " " + doc
	}
	if nullable && m.Type.Kind != KindAny {
		native = "?" + native
	}
	return phpDoc("        ", doc) + fmt.Sprintf("        public readonly %s $%s,\n", native, name)
}

// phpArgument returns a named argument on a line, or on two if it is long.
func phpArgument(name, value string) string {
	line := fmt.Sprintf("            %s: %s,\n", name, value)
	if len(line) <= 121 {
		return line
	}
	open := strings.Index(value, ", fn (")
	if open < 0 {
		return line
	}
	call := strings.Index(value, "(")
	return fmt.Sprintf("            %s: %s(\n                %s,\n                %s\n            ),\n",
		name, value[:call], value[call+1:open], strings.TrimSuffix(value[open+2:], ")"))
}

// innerEnum returns the name of the enum that a value, its items or its values have.
func innerEnum(t *Type) string {
	for ; t != nil; t = t.Of {
		if t.Kind == KindEnum {
			return t.EnumName
		}
	}
	return ""
}

// read returns the expression that reads a member. key is the expression of its name.
func (p *phpWriter) read(reader, key string, t *Type, nullable bool) string {
	suffix := ""
	if nullable {
		suffix = "OrNull"
	}
	call := func(method, args string) string { return reader + "->" + method + suffix + "(" + key + args + ")" }
	switch t.Kind {
	case KindAny:
		return reader + "->any(" + key + ")"
	case KindInteger:
		return call("int", "")
	case KindNumber:
		return call("float", "")
	case KindBoolean:
		return call("bool", "")
	case KindTime:
		return call("time", "")
	case KindRecord:
		return call("record", ", "+Pascal(t.Record)+"::class")
	case KindArray, KindMap:
		method := "list"
		if t.Kind == KindMap {
			method = "map"
		}
		return call(method, ", fn (Reader $in, string $key) => "+p.read("$in", "$key", t.Of, t.Of.Nullable))
	}
	return call("string", "")
}
