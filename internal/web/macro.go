package web

import (
	"strings"

	"github.com/kickstand-dev/kickstand/internal/desk"
)

// MacroEffects describes what a macro does besides its reply: "Add note, set status to
// pending". member returns the name of a member's id, me stands for the member who
// applies it. Empty: nothing.
func MacroEffects(m *desk.Macro, member func(id string) string, me string) string {
	var effects []string
	if m.Note != "" {
		effects = append(effects, "add note")
	}
	a := &m.Actions
	if a.Status != "" {
		effects = append(effects, "set status to "+strings.ReplaceAll(string(a.Status), "_", " "))
	}
	if a.Priority != "" {
		effects = append(effects, "set priority to "+string(a.Priority))
	}
	switch a.Assignee {
	case "":
	case desk.AssigneeNone:
		effects = append(effects, "unassign")
	case desk.AssigneeMe:
		effects = append(effects, "assign to "+me)
	default:
		effects = append(effects, "assign to "+member(a.Assignee))
	}
	if n := len(a.AddTags); n > 0 {
		effects = append(effects, Count(n, "add tag ", "add tags ")+strings.Join(a.AddTags, ", "))
	}
	if n := len(a.RemoveTags); n > 0 {
		effects = append(effects, Count(n, "remove tag ", "remove tags ")+strings.Join(a.RemoveTags, ", "))
	}
	if n := len(m.Files); n > 0 {
		effects = append(effects, Count(n, "attach 1 file", "attach %d files"))
	}
	text := strings.Join(effects, ", ")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
