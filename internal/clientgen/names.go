package clientgen

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// nouns are the nouns of groups that differ from their tags.
var nouns = map[string]string{
	"analytics": "analytics",
	"api_key":   "key",
	"pricing":   "pricing_plan",
	"sandbox":   "sandbox",
	"settings":  "settings",
}

// methods are the names of operations that the rule in methodName makes unreadable.
var methods = map[string]string{
	"getTicketAnalytics":     "tickets",
	"getRideAnalytics":       "rides",
	"getRevenueAnalytics":    "revenue",
	"getVehicleAnalytics":    "vehicles",
	"listUpcomingDeliveries": "list_upcoming",
}

// fleetNames are the fleet's records and enums that have the prefix "fleet_", since the helpdesk
// has others of the same name, or may have one later for the data of an event. The list is explicit
// so that a new record of one API never renames a published type: Read refuses a name that both have
// and that is not here.
var fleetNames = []string{
	"analytics_granularity", "analytics_group_by", "api_key", "audit_entry", "customer", "event", "request", "settings_sort",
}

// eventType returns the name of the type of an event, in snake case and unique in both APIs:
// "ticket_created", "fleet_ride_started". Both have an event customer.created.
func (a *API) eventType(event string) string {
	if a.Name == "fleet" {
		return "fleet_" + Snake(event)
	}
	return Snake(event)
}

// publishedEnums are enums that keep their name though a newer record has the same values
// under a shorter one.
var publishedEnums = []string{"pricing_plan_sort", "settings_sort", "ticket_priority", "ticket_status"}

// publishedValues says which of several enums that could have a name keeps it: the one with this
// value.
var publishedValues = map[string]string{"analytics_group_by": "start_zone_id"}

// sharedGroups are the groups that both APIs have.
var sharedGroups = []string{"analytics", "api_key", "customers", "settings"}

// splitWords splits a name of the document into lower-case words: "listSLAPolicies" has list,
// sla and policies.
func splitWords(s string) []string {
	var words []string
	runes := []rune(s)
	start := 0
	flush := func(end int) {
		if end > start {
			words = append(words, strings.ToLower(string(runes[start:end])))
		}
		start = end
	}
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			flush(i)
			start = i + 1
		case unicode.IsUpper(r) && i > 0:
			ends := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if !unicode.IsUpper(runes[i-1]) || ends {
				flush(i)
			}
		}
	}
	flush(len(runes))
	return words
}

// Snake returns a name in snake case: "created_at[gte]" becomes "created_at_gte".
func Snake(s string) string { return strings.Join(splitWords(s), "_") }

// Camel returns a name in camel case, with an initial lower-case letter.
func Camel(s string) string {
	p := []rune(Pascal(s))
	if len(p) > 0 {
		p[0] = unicode.ToLower(p[0])
	}
	return string(p)
}

// Pascal returns a name in camel case, with an initial upper-case letter: "SlaPolicy".
func Pascal(s string) string {
	var b strings.Builder
	for _, w := range splitWords(s) {
		b.WriteString(strings.ToUpper(w[:1]) + w[1:])
	}
	return b.String()
}

// singular returns the singular of an English noun in snake case.
func singular(s string) string {
	switch {
	case slices.Contains([]string{"analytics", "settings", "sandbox", "gbfs", "mds", "status", "address"}, s):
		return s
	case strings.HasSuffix(s, "ies"):
		return strings.TrimSuffix(s, "ies") + "y"
	case strings.HasSuffix(s, "ss") || strings.HasSuffix(s, "us") || strings.HasSuffix(s, "is"):
		return s
	case strings.HasSuffix(s, "sses") || strings.HasSuffix(s, "xes"):
		return strings.TrimSuffix(s, "es")
	default:
		return strings.TrimSuffix(s, "s")
	}
}

// methodName returns the name of an operation within its group. The group's noun goes, in the
// singular or plural: listTickets is list. Other nouns stay: listConversations of messages is
// list_conversations.
func methodName(id, group string) string {
	if name, ok := methods[id]; ok {
		return name
	}
	noun, ok := nouns[group]
	if !ok {
		noun = singular(group)
	}
	words := splitWords(id)
	parts := strings.Split(noun, "_")
	for i := 1; i+len(parts) <= len(words); i++ {
		if singular(strings.Join(words[i:i+len(parts)], "_")) == singular(noun) {
			words = slices.Delete(words, i, i+len(parts))
			break
		}
	}
	return strings.Join(words, "_")
}

// groupSingular returns the singular of a group's noun.
func groupSingular(group string) string {
	if n, ok := nouns[group]; ok && group != "api_key" {
		return singular(n)
	}
	return singular(group)
}

// fill breaks the words of a text into lines of at most width characters, unless a word is
// longer. The first line and the others have their own prefixes. Without words it returns the
// first prefix.
func fill(first, rest, text string, width int) []string {
	var lines []string
	line, empty := first, true
	for word := range strings.FieldsSeq(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	return append(lines, line)
}

// quoteAll returns string literals of values, in double quotes.
func quoteAll(values []string) []string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = strconv.Quote(v)
	}
	return quoted
}
