package clientgen

import (
	"fmt"
	"slices"
	"strings"
)

// phpWidth is the longest line of a generated comment, without the indentation of a tag.
const phpWidth = 108

// phpWrap breaks a text into lines. The first and the others have their own prefixes.
func phpWrap(first, rest, text string) []string {
	text = strings.ReplaceAll(text, "*/", "* /")
	var lines []string
	if i := strings.LastIndex(first, "\n"); i >= 0 { // the end of an array shape
		lines, first = append(lines, first[:i]), first[i+1:]
	}
	return append(lines, fill(first, rest, text, phpWidth)...)
}

// phpDoc returns a comment before a class, method or property: paragraphs, then tags.
func phpDoc(indent, text string, tags ...string) string {
	prefix := indent + " * "
	var lines []string
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if strings.TrimSpace(paragraph) == "" {
			continue
		}
		if i > 0 {
			lines = append(lines, indent+" *")
		}
		lines = append(lines, phpWrap(prefix, prefix, paragraph)...)
	}
	if len(lines) > 0 && len(tags) > 0 {
		lines = append(lines, indent+" *")
	}
	for _, tag := range tags {
		for line := range strings.SplitSeq(tag, "\n") {
			lines = append(lines, strings.TrimRight(prefix+line, " "))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	if one := strings.TrimPrefix(lines[0], prefix); len(lines) == 1 && len(indent)+len(one)+7 <= phpWidth {
		return indent + "/** " + one + " */\n"
	}
	return indent + "/**\n" + strings.Join(lines, "\n") + "\n" + indent + " */\n"
}

// phpString returns a string literal.
func phpString(s string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), "'", `\'`) + "'"
}

// phpParamTag returns a tag @param. Each line of its comment is wrapped by itself, on indented
// lines; several are a list.
func phpParamTag(typ, name, comment string) string {
	first := "@param " + typ + " $" + name + " "
	if !strings.Contains(comment, "\n") {
		return strings.Join(phpWrap(first, "    ", comment), "\n")
	}
	lines := []string{first}
	for line := range strings.SplitSeq(comment, "\n") {
		lines = append(lines, phpWrap("    - ", "      ", line)...)
	}
	return strings.Join(lines, "\n")
}

// phpSentence returns the parts that are not empty as sentences of one text.
func phpSentence(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(" ")
		}
		b.WriteString(part)
		if !strings.ContainsAny(part[len(part)-1:], ".!?:") {
			b.WriteString(".")
		}
	}
	return b.String()
}

// nativeType returns the type of a value in PHP itself.
func (p *phpWriter) nativeType(t *Type) string {
	switch t.Kind {
	case KindString, KindDate, KindEnum, KindBytes:
		return "string"
	case KindInteger:
		return "int"
	case KindNumber:
		return "float"
	case KindBoolean:
		return "bool"
	case KindTime:
		return "\\DateTimeImmutable"
	case KindArray, KindMap:
		return "array"
	case KindRecord:
		return Pascal(t.Record)
	case KindAny:
		return "mixed"
	}
	p.fail("the kind %q has no type in PHP", t.Kind)
	return "mixed"
}

// docType returns the type of a value of an answer in PHPDoc.
func (p *phpWriter) docType(t *Type) string {
	typ := p.nativeType(t)
	switch t.Kind {
	case KindArray:
		typ = "list<" + p.docType(t.Of) + ">"
	case KindMap:
		typ = "array<string, " + p.docType(t.Of) + ">"
	}
	if t.Nullable && t.Kind != KindAny {
		typ += "|null"
	}
	return typ
}

// shape returns the type of a value of a body in PHPDoc. Records are array shapes; indent is that
// of their lines. open are the records that contain the value.
func (p *phpWriter) shape(t *Type, indent string, open []string) string {
	var typ string
	switch t.Kind {
	case KindTime:
		typ = "\\DateTimeInterface|string"
	case KindEnum:
		typ = "Enum\\" + Pascal(t.EnumName) + "::*"
	case KindArray:
		typ = "list<" + p.shape(t.Of, indent, open) + ">"
	case KindMap:
		typ = "array<string, " + p.shape(t.Of, indent, open) + ">"
	case KindInteger, KindBoolean, KindAny, KindString, KindDate, KindBytes:
		typ = p.nativeType(t)
	case KindNumber:
		typ = "float|int"
	case KindRecord:
		typ = p.recordShape(t.Record, indent, open)
		if len(open) > 0 {
			typ += "|Record" // such as one of an answer
		}
	}
	if t.Nullable && t.Kind != KindAny {
		typ += "|null"
	}
	return typ
}

func (p *phpWriter) recordShape(name, indent string, open []string) string {
	if slices.Contains(open, name) {
		return "array<string, mixed>" // a record within itself
	}
	var b strings.Builder
	b.WriteString("array{\n")
	for _, m := range p.api.RecordNamed(name).Members {
		mark := "?"
		if m.Required {
			mark = ""
		}
		typ := p.shape(&m.Type, indent+"    ", append(open, name))
		if m.Nullable && m.Type.Kind != KindAny {
			typ += "|null"
		}
		fmt.Fprintf(&b, "%s    %s%s: %s,\n", indent, m.Name, mark, typ)
	}
	b.WriteString(indent + "}")
	return b.String()
}

// phpObject names an object within a body: a member, or the items of a list as "[]", or the
// values of a map as "{}". Its own objects are inside.
type phpObject struct {
	name   string
	inside []phpObject
}

// objects returns the objects within a record. open are the records that contain it.
func (p *phpWriter) objects(name string, open []string) []phpObject {
	var objects []phpObject
	for _, m := range p.api.RecordNamed(name).Members {
		if inside, ok := p.objectsOf(&m.Type, append(open, name)); ok {
			objects = append(objects, phpObject{m.Name, inside})
		}
	}
	return objects
}

// objectsOf returns the objects within a value, and whether it is or has any.
func (p *phpWriter) objectsOf(t *Type, open []string) ([]phpObject, bool) {
	switch t.Kind {
	case KindRecord:
		if slices.Contains(open, t.Record) {
			return nil, true
		}
		return p.objects(t.Record, open), true
	case KindArray:
		if inside, ok := p.objectsOf(t.Of, open); ok {
			return []phpObject{{"[]", inside}}, true
		}
	case KindMap:
		if inside, ok := p.objectsOf(t.Of, open); ok {
			return []phpObject{{"{}", inside}}, true
		}
		return nil, true
	}
	return nil, false
}

// phpObjects returns objects as an array literal, on one line if it is short.
func phpObjects(objects []phpObject, indent string) string {
	line, lines := "", ""
	for i, o := range objects {
		if i > 0 {
			line += ", "
		}
		line += phpString(o.name) + " => " + phpObjects(o.inside, "")
		lines += indent + "    " + phpString(o.name) + " => " + phpObjects(o.inside, indent+"    ") + ",\n"
	}
	if indent == "" || len(indent)+len(line) < 80 {
		return "[" + line + "]"
	}
	return "[\n" + lines + indent + "]"
}

// objectsConstant returns the expression for the objects of a body: a constant of the group's
// class, unless there are none.
func (p *phpWriter) objectsConstant(record string) string {
	objects := p.objects(record, nil)
	if len(objects) == 0 {
		return "[]"
	}
	name := strings.ToUpper(record)
	p.constant[name] = phpObjects(objects, "    ")
	return "self::" + name
}
