package desk

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// MacroVariable is a variable in the texts of macros.
type MacroVariable struct {
	Name string // "customer.name", written {{customer.name}}
	Doc  string
}

// MacroVariables lists all variables. {{customer.first_name|there}} has the fallback
// "there" for a ticket without a value; it may be empty.
var MacroVariables = [...]MacroVariable{
	{"customer.name", "the customer’s name"},
	{"customer.first_name", "its first word"},
	{"customer.email", "the customer’s e-mail address"},
	{"ticket.number", "the ticket’s number"},
	{"ticket.subject", "the ticket’s subject"},
	{"agent.name", "the name of the member who applies the macro"},
	{"agent.first_name", "its first word"},
	{"organization.name", "the organization’s name"},
	{"ride.number", "the number of the ride in question, which the ticket shows beside the messages: your own id of the ride, or else its id"},
	{"ride.vehicle", "the code of its vehicle"},
	{"ride.start", "when it began"},
	{"ride.end", "when it ended"},
	{"ride.price", "its price"},
}

// ridePrefix begins the names of the variables of a ride.
const ridePrefix = "ride."

// UsesRide reports whether a text of the macro has a variable of a ride: see [MacroApplication].
func (m *Macro) UsesRide() bool {
	uses := func(p macroPart) bool { return strings.HasPrefix(p.variable, ridePrefix) }
	ignore := func(string, string) {}
	return slices.ContainsFunc(parseMacro(m.Text, ignore), uses) || slices.ContainsFunc(parseMacro(m.Note, ignore), uses)
}

// macroPart is a piece of a macro's text: literal, or a variable.
type macroPart struct {
	source      string // as written
	variable    string // empty: literal
	fallback    string
	hasFallback bool
}

// parseMacro splits a macro's text. It calls fault for each mistake, with its place and
// a message.
func parseMacro(text string, fault func(place, message string)) []macroPart {
	var parts []macroPart
	for at := 0; at < len(text); {
		open := strings.Index(text[at:], "{{")
		if open < 0 {
			return append(parts, macroPart{source: text[at:]})
		}
		if open += at; open > at {
			parts = append(parts, macroPart{source: text[at:open]})
		}
		inner, _, closed := strings.Cut(text[open+2:], "}}")
		if !closed || strings.ContainsAny(inner, "\n{") {
			fault(placeIn(text, open), "a variable has no end: write {{customer.name}}")
			return append(parts, macroPart{source: text[open:]})
		}
		at = open + len(inner) + 4
		name, fallback, hasFallback := strings.Cut(inner, "|")
		p := macroPart{source: text[open:at], variable: strings.TrimSpace(name), fallback: strings.TrimSpace(fallback), hasFallback: hasFallback}
		if !slices.ContainsFunc(MacroVariables[:], func(v MacroVariable) bool { return v.Name == p.variable }) {
			fault(placeIn(text, open), fmt.Sprintf("there is no variable %.60q", p.variable))
		}
		parts = append(parts, p)
	}
	return parts
}

// placeIn returns the place of a byte in a text, for people.
func placeIn(text string, at int) string {
	before := text[:at]
	start := strings.LastIndexByte(before, '\n') + 1
	return fmt.Sprintf("line %d, column %d", strings.Count(before, "\n")+1, utf8.RuneCountInString(before[start:])+1)
}

// checkMacroTemplate records the mistakes in a macro's text.
func checkMacroTemplate(v *problem.Validation, path, text string) {
	parseMacro(text, func(place, message string) {
		names := make([]string, len(MacroVariables))
		for i, known := range MacroVariables {
			names[i] = known.Name
		}
		v.Add(path, "is wrong in %s: %s; the variables are %s", place, message, strings.Join(names, ", "))
	})
}

// UnfilledVariables returns the variables of macros that stand in a message, as
// written.
func UnfilledVariables(text string) []string {
	var unfilled []string
	for rest := text; ; {
		_, after, ok := strings.Cut(rest, "{{")
		if !ok {
			return unfilled
		}
		inner, _, closed := strings.Cut(after, "}}")
		rest = after
		name, _, _ := strings.Cut(inner, "|")
		known := slices.ContainsFunc(MacroVariables[:], func(v MacroVariable) bool { return v.Name == strings.TrimSpace(name) })
		if closed && known {
			unfilled = append(unfilled, "{{"+inner+"}}")
		}
	}
}

// macroValues returns the values of variables; empty ones have none.
func macroValues(t *Ticket, agent event.Person, a *MacroApplication) map[string]string {
	values := map[string]string{
		"customer.name": t.Customer.Name, "customer.first_name": firstName(t.Customer.Name), "customer.email": t.Customer.Email,
		"ticket.number": strconv.FormatInt(t.Number, 10), "ticket.subject": t.Subject,
		"agent.name": agent.Name, "agent.first_name": firstName(agent.Name), "organization.name": a.OrganizationName,
	}
	maps.Copy(values, a.Ride)
	return values
}

// firstName returns the first word of a name.
func firstName(name string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(name), " ")
	return first
}

// renderMacro fills the variables of a macro's text. Those without a value and a
// fallback stay as written and are added to missing, each once.
func renderMacro(text string, values map[string]string, missing []string) (string, []string) {
	var out strings.Builder
	for _, p := range parseMacro(text, func(string, string) {}) {
		value := strings.TrimSpace(values[p.variable])
		switch {
		case p.variable == "":
			out.WriteString(p.source)
		case value != "":
			out.WriteString(value)
		case p.hasFallback:
			out.WriteString(p.fallback)
		default:
			out.WriteString(p.source)
			if !slices.Contains(missing, p.variable) {
				missing = append(missing, p.variable)
			}
		}
	}
	return strings.TrimSpace(out.String()), missing
}
