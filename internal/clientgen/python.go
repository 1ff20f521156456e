package clientgen

import (
	"fmt"
	"slices"
	"strings"
)

// generatePython returns a package for each API, and the codes of both.
func generatePython(apis []*API) ([]File, error) {
	var files []File
	var codes []string
	for _, a := range apis {
		if err := checkPython(a); err != nil {
			return nil, err
		}
		codes = append(codes, a.Codes...)
		folder := "python/src/kickstand/" + a.Name + "/"
		files = append(files,
			File{folder + "__init__.py", pythonPackage(a)},
			File{folder + "client.py", pythonClient(a)},
			File{folder + "resources.py", pythonResources(a)},
			File{folder + "types.py", pythonTypes(a)},
			File{folder + "events.py", pythonEvents(a)},
		)
	}
	slices.Sort(codes)
	return append(files,
		File{"python/src/kickstand/codes.py", pythonCodes(slices.Compact(codes))},
		File{"python/tests/operations.py", pythonOperations(apis)},
	), nil
}

// checkPython refuses bodies and answers that are not records.
func checkPython(a *API) error {
	for _, g := range a.Groups {
		for _, op := range g.Operations {
			if op.Answer != nil && op.Answer.Kind != KindRecord || op.Body != nil && op.Body.Kind != KindRecord {
				return fmt.Errorf("the body and the answer of %s must be records", op.ID)
			}
		}
	}
	return nil
}

// pythonTypes returns the enums, records and bodies of an API.
func pythonTypes(a *API) []byte {
	f := &pythonFile{doc: "Enums, records and bodies of the " + a.Name + "'s API."}
	for _, e := range a.Enums {
		f.list(Pascal(e.Name)+" = Literal[", quoteAll(e.Values), "]")
	}
	for _, e := range pythonExpands(a) {
		f.list(e.Name+" = Literal[", quoteAll(e.Values), "]")
	}
	for i := range a.Records {
		switch r := &a.Records[i]; {
		case r.Input:
			f.body(r)
		case !r.Event:
			f.record(r)
		}
	}
	f.exported = pythonTypeNames(a)
	return f.module([]pythonImport{
		{"collections.abc", []string{"Mapping", "Sequence"}},
		{"dataclasses", []string{"dataclass"}},
		{"datetime", []string{"date", "datetime"}},
		{"typing", []string{"TYPE_CHECKING", "Any", "Literal", "TypedDict"}},
		{},
		{".._records", []string{"Record", "member", "secret"}},
	})
}

// record writes the class of a record in answers.
func (f *pythonFile) record(r *Record) {
	f.line("\n\n@dataclass(frozen=True, slots=True, kw_only=True)")
	f.line("class " + Pascal(r.Name) + "(Record):")
	f.docstring("    ", pythonDoc(r.Doc, "The "+strings.ReplaceAll(r.Name, "_", " ")+"."))
	if len(r.Members) > 0 {
		f.line("")
	}
	for _, m := range r.Members {
		name := pythonName(m.Name)
		value := ""
		switch {
		case name != m.Name:
			value = fmt.Sprintf(" = member(%q)", m.Name)
		case m.Type.Kind == KindString && strings.HasSuffix(m.Name, "secret"): // no repr may have it
			value = " = secret()"
		}
		f.member(name, pythonMemberType(m, false)+value)
		f.docstring("    ", m.Doc)
	}
}

// body writes the type of a body, or of a part of one. A name that is a keyword of Python needs
// the other syntax of a TypedDict.
func (f *pythonFile) body(r *Record) {
	name, doc := Pascal(r.Name), pythonDoc(r.Doc, "The members of a "+strings.ReplaceAll(r.Name, "_", " ")+".")
	keyword := slices.ContainsFunc(r.Members, func(m Member) bool { return pythonName(m.Name) != m.Name })
	if keyword {
		f.line("\n\n" + name + " = TypedDict(")
		f.line(fmt.Sprintf("    %q,\n    {", name))
	} else {
		f.line("\n\nclass " + name + "(TypedDict, total=False):")
		f.docstring("    ", doc)
		f.line("")
	}
	for _, m := range r.Members {
		text := pythonMemberType(m, true)
		if m.Required {
			f.required = true
			text = "Required[" + text + "]"
		}
		if keyword {
			f.line(fmt.Sprintf("        %q: %q,", m.Name, text))
			continue
		}
		f.member(m.Name, text)
		f.docstring("    ", m.Doc)
	}
	if keyword {
		f.line("    },\n    total=False,\n)")
		f.docstring("", doc)
	}
}

// pythonCodes returns the module of the problems' codes.
func pythonCodes(codes []string) []byte {
	f := &pythonFile{doc: "Codes of problems: values of ProblemError.code. The server adds some over time."}
	f.list("ProblemCode = Literal[", quoteAll(codes), "]")
	f.line("")
	for _, c := range codes {
		f.line(fmt.Sprintf("%s: Final = %q", strings.ToUpper(Snake(c)), c))
	}
	return f.module([]pythonImport{{"typing", []string{"Final", "Literal"}}})
}

// pythonOperations returns the table with which tests find the method of an operation: group,
// method, and the method that exports or imports.
func pythonOperations(apis []*API) []byte {
	f := &pythonFile{doc: "The group, the method, and the export or import of each operation."}
	f.line("OPERATIONS = {")
	for _, a := range apis {
		f.line(fmt.Sprintf("    %q: {", a.Name))
		for _, g := range a.Groups {
			for _, op := range g.Operations {
				bulk := ""
				switch {
				case len(op.Exports) > 0:
					bulk = pythonBulk("export", op.Name, "list")
				case len(op.Imports) > 0:
					bulk = pythonBulk("import", op.Name, "create")
				}
				f.line(fmt.Sprintf("        %q: (%q, %q, %q),", op.ID, pythonName(g.Name), pythonName(op.Name), bulk))
			}
		}
		f.line("    },")
	}
	f.line("}")
	return f.module(nil)
}

// pythonEvents returns a class for each event of webhooks, and for the records of their data. Events
// that the package does not have are of one class for both APIs.
func pythonEvents(a *API) []byte {
	f := &pythonFile{doc: "Events of the " + a.Name + "'s webhooks."}
	anyEvent, others := "AnyEvent", []string{"FlatEvent", "UnknownEvent"}
	exported := []string{"EVENTS", "FlatEvent", "UnknownEvent", "AnyEvent"}
	if a.Name == "fleet" {
		anyEvent, others = "AnyFleetEvent", []string{"UnknownEvent"}
		exported = []string{"EVENTS", "AnyFleetEvent"}
	}
	for i := range a.Records {
		if r := &a.Records[i]; r.Event {
			exported = append(exported, Pascal(r.Name))
			f.record(r)
		}
	}
	var names []string
	for _, e := range a.Events {
		name := Pascal(a.eventType(e.Name)) + "Event"
		names = append(names, name)
		f.event(name, strings.TrimSuffix(pythonDoc(e.Doc, "The event "+e.Name), ".")+".", fmt.Sprintf("Literal[%q]", e.Name), "created_at", pythonType(e.Data, false))
	}
	if a.Name == "helpdesk" {
		f.event("UnknownEvent", "An event that this version of the package does not have.", "str", "created_at", "dict[str, Any]")
		f.event("FlatEvent", "An event in payload form A. The id is that of the header Webhook-Id.", "str", "timestamp", "dict[str, Any]")
	}
	f.line("")
	f.line("")
	f.list(anyEvent+" = Union[", append(slices.Clone(names), others...), "]")
	f.line("")
	classes := make([]string, len(names))
	for i, e := range a.Events {
		classes[i] = fmt.Sprintf("%q: %s", e.Name, names[i])
	}
	f.list("EVENTS: Final[dict[str, type["+anyEvent+"]]] = {", classes, "}")
	f.line(`"""The classes of events in form B by their names."""`)
	f.exported = append(exported, names...)
	var unknown []string // imported
	if a.Name == "fleet" {
		unknown = others
	}
	return f.module([]pythonImport{
		{"dataclasses", []string{"dataclass"}},
		{"datetime", []string{"date", "datetime"}},
		{"typing", []string{"Any", "Final", "Literal", "Union"}},
		{},
		{".._records", []string{"Record", "member", "secret"}},
		{"..helpdesk.events", unknown},
		{".types", pythonTypeNames(a)},
	})
}

// event writes the class of an event.
func (f *pythonFile) event(class, doc, event, at, data string) {
	f.line("\n\n@dataclass(frozen=True, slots=True, kw_only=True)")
	f.line("class " + class + "(Record):")
	f.docstring("    ", doc)
	f.line("")
	f.member("id", "str")
	f.member("event", event)
	f.member(at, "datetime")
	f.member("data", data)
}

// pythonClient returns the module of the client's class.
func pythonClient(a *API) []byte {
	f := &pythonFile{doc: "The client of the " + a.Name + "'s API."}
	resources := []string{}
	prefix := `"/api/v1"`
	if a.Name == "fleet" {
		prefix = `"/sandbox/v1" if key.startswith("sk_test_") else "/v1"`
	}
	f.line("\n\nclass " + Pascal(a.Name) + "(Client):")
	f.docstring("    ", "Client of the "+a.Title+" API, version "+a.Version+". "+
		map[string]string{"fleet": "A key that begins with sk_test_ uses the sandbox."}[a.Name], "See Client for the arguments.")
	f.line("")
	f.line("    @staticmethod")
	f.line("    def _prefix(key: str) -> str:")
	f.line("        return " + prefix)
	for _, g := range a.Groups {
		name := pythonResource(&g)
		resources = append(resources, name)
		f.line("")
		f.line("    @cached_property")
		f.line("    def " + pythonName(g.Name) + "(self) -> " + name + ":")
		f.docstring("        ", pythonDoc(g.Doc, g.Title+"."))
		f.line("        return " + name + "(self._core)")
	}
	f.exported = []string{Pascal(a.Name)}
	return f.module([]pythonImport{
		{"functools", []string{"cached_property"}},
		{},
		{".._client", []string{"Client"}},
		{".resources", resources},
	})
}

// pythonPackage returns the module that exports everything of an API except events, which only
// receivers of webhooks import.
func pythonPackage(a *API) []byte {
	f := &pythonFile{doc: "The " + a.Name + "'s API."}
	imports := []pythonImport{{".client", []string{Pascal(a.Name)}}}
	var resources []string
	for i := range a.Groups {
		resources = append(resources, pythonResource(&a.Groups[i]))
	}
	types := pythonTypeNames(a)
	imports = append(imports, pythonImport{".resources", resources}, pythonImport{".types", types})
	f.exported = slices.Concat([]string{Pascal(a.Name)}, resources, types)
	return f.module(imports)
}

func pythonResource(g *Group) string { return Pascal(g.Name) + "Resource" }

// pythonTypeNames returns the names in the module types.
func pythonTypeNames(a *API) []string {
	var names []string
	for _, e := range a.Enums {
		names = append(names, Pascal(e.Name))
	}
	for _, e := range pythonExpands(a) {
		names = append(names, e.Name)
	}
	for _, r := range a.Records {
		if !r.Event {
			names = append(names, Pascal(r.Name))
		}
	}
	return names
}

// pythonExpands returns the types of the arguments expand.
func pythonExpands(a *API) []Enum {
	var expands []Enum
	for _, g := range a.Groups {
		for i := range g.Operations {
			op := &g.Operations[i]
			if len(op.Expand) == 0 {
				continue
			}
			e := Enum{pythonExpand(op), op.Expand}
			if !slices.ContainsFunc(expands, func(other Enum) bool { return other.Name == e.Name }) {
				expands = append(expands, e)
			}
		}
	}
	return expands
}

func pythonExpand(op *Operation) string { return Pascal(op.Answer.Record) + "Expand" }

var pythonKeywords = strings.Fields(`and as assert async await break class continue def del elif else except
	finally for from global if import in is lambda nonlocal not or pass raise return try while with yield`)

// pythonName returns the name of a parameter, an attribute or a method.
func pythonName(name string) string {
	name = Snake(name)
	if slices.Contains(pythonKeywords, name) {
		return name + "_"
	}
	return name
}

// pythonType returns the type of a value: of a request, or of an answer.
func pythonType(t Type, request bool) string {
	list, mapping := "list", "dict"
	if request {
		list, mapping = "Sequence", "Mapping"
	}
	text := "Any"
	switch t.Kind {
	case KindString, KindBytes:
		text = "str"
		if len(t.Enum) == 1 {
			text = fmt.Sprintf("Literal[%q]", t.Enum[0])
		}
	case KindInteger:
		text = "int"
	case KindNumber:
		text = "float"
	case KindBoolean:
		text = "bool"
	case KindTime:
		text = "datetime"
	case KindDate:
		text = "date"
	case KindEnum:
		text = Pascal(t.EnumName)
	case KindRecord:
		text = Pascal(t.Record)
	case KindArray:
		text = list + "[" + pythonType(*t.Of, request) + "]"
	case KindMap:
		text = mapping + "[str, " + pythonType(*t.Of, request) + "]"
	}
	if t.Nullable && text != "Any" {
		text += " | None"
	}
	return text
}

// pythonMemberType returns the type of a member. One that an answer may lack is None then.
func pythonMemberType(m Member, request bool) string {
	text := pythonType(m.Type, request)
	if (m.Nullable || !m.Required && !request) && text != "Any" {
		text += " | None"
	}
	return text
}

// pythonDoc returns a description, or another text if there is none.
func pythonDoc(doc, other string) string {
	if strings.TrimSpace(doc) == "" {
		return other
	}
	return doc
}
