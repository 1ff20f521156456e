package desk_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

func (f *fixture) createMacro(m desk.Macro) (desk.Macro, error) {
	if m.OrganizationID == "" {
		m.OrganizationID = orgA
	}
	return write(f, func(tx *db.Tx) (desk.Macro, error) { return f.desk.CreateMacroTx(f.Context(), tx, m) })
}

// macro creates a macro of organization A.
func (f *fixture) macro(m desk.Macro) desk.Macro {
	f.Helper()
	made, err := f.createMacro(m)
	if err != nil {
		f.Fatal(err)
	}
	return made
}

func (f *fixture) apply(a desk.MacroApplication) (desk.AppliedMacro, error) {
	return write(f, func(tx *db.Tx) (desk.AppliedMacro, error) { return f.desk.ApplyMacroTx(f.Context(), tx, orgA, a) })
}

// macroNames lists the macros in reach of a member.
func (f *fixture) macroNames(org, memberID string) string {
	f.Helper()
	list, err := f.desk.Macros(f.Context(), f.db, org, memberID)
	if err != nil {
		f.Fatal(err)
	}
	var names []string
	for _, m := range list {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

func TestMacroChecks(t *testing.T) {
	f := newFixture(t)
	many := make([]string, 51)
	for i := range many {
		many[i] = fmt.Sprint("tag", i)
	}
	for what, tt := range map[string]struct {
		macro desk.Macro
		at    string // path and start of the message
	}{
		"without a name":      {desk.Macro{Text: "x"}, "name must not be empty"},
		"a long name":         {desk.Macro{Name: strings.Repeat("n", 101), Text: "x"}, "name must have at most 100"},
		"nothing":             {desk.Macro{Name: "n", Text: " \n"}, "text must be given, or a note"},
		"a long text":         {desk.Macro{Name: "n", Text: strings.Repeat("n", 5001)}, "text must have at most 5000"},
		"a long note":         {desk.Macro{Name: "n", Note: strings.Repeat("n", 2001)}, "note must have at most 2000"},
		"an unknown variable": {desk.Macro{Name: "n", Text: "Hello,\näö {{custmer.name}}"}, `text is wrong in line 2, column 4: there is no variable "custmer.name"; the variables are customer.name, customer.first_name`},
		"an empty variable":   {desk.Macro{Name: "n", Note: "{{}}"}, `note is wrong in line 1, column 1: there is no variable ""`},
		"an endless variable": {desk.Macro{Name: "n", Text: "a {{customer.name"}, "text is wrong in line 1, column 3: a variable has no end"},
		"one over two lines":  {desk.Macro{Name: "n", Text: "{{customer.name|\n}}"}, "text is wrong in line 1, column 1: a variable has no end"},
		"one within another":  {desk.Macro{Name: "n", Text: "{{customer.name|{{agent.name}}}}"}, "text is wrong in line 1, column 1: a variable has no end"},
		"an unknown status":   {desk.Macro{Name: "n", Actions: desk.MacroActions{Status: "done"}}, "status must be one of"},
		"an unknown priority": {desk.Macro{Name: "n", Actions: desk.MacroActions{Priority: "top"}}, "priority must be one of"},
		"another's member":    {desk.Macro{Name: "n", Actions: desk.MacroActions{Assignee: heidiID}}, "assignee must be me, none or a member"},
		"a long tag":          {desk.Macro{Name: "n", Actions: desk.MacroActions{AddTags: []string{"a", strings.Repeat("t", 51)}}}, "add_tags.1 must have at most 50"},
		"an empty tag":        {desk.Macro{Name: "n", Actions: desk.MacroActions{RemoveTags: []string{" "}}}, "remove_tags.0 must not be empty"},
		"many tags":           {desk.Macro{Name: "n", Actions: desk.MacroActions{AddTags: many}}, "add_tags must have at most 50 values"},
		"a tag in both":       {desk.Macro{Name: "n", Actions: desk.MacroActions{AddTags: []string{"a"}, RemoveTags: []string{"b", "a"}}}, "remove_tags.1 must not be among the added"},
		"control characters":  {desk.Macro{Name: "a\x00b", Text: "x"}, "name must not contain"},
		"a note of NUL":       {desk.Macro{Name: "n", Note: "a\x00b"}, "note must not contain"},
		"an invalid assignee": {desk.Macro{Name: "n", Actions: desk.MacroActions{Assignee: strings.Repeat("m", 1000)}}, "assignee must have at most"},
		"an unknown assignee": {desk.Macro{Name: "n", Actions: desk.MacroActions{Assignee: "nobody"}}, "assignee must be me, none or a member"},
	} {
		_, err := f.createMacro(tt.macro)
		p, ok := errors.AsType[*problem.Error](err)
		if !ok || p.Kind != problem.Invalid || !strings.HasPrefix(p.Issues[0].Path+" "+p.Issues[0].Message, tt.at) {
			t.Errorf("%s: got %v, want %s", what, err, tt.at)
		}
	}
	if n := f.count("macros"); n != 0 {
		t.Errorf("%d refused macros were stored", n)
	}
}

// TestMacroOwners: shared macros and those of a member, in each organization.
func TestMacroOwners(t *testing.T) {
	var log *audit.Log
	f := newFixture(t, func(c *desk.Config) {
		log = audittest.Open(c.DB)
		c.Audit = log
	})
	shared := f.macro(desk.Macro{Name: " Lock  stuck", Text: "a\r\nb "})
	if shared.Name != "Lock stuck" || shared.Text != "a\nb" {
		t.Errorf("got name %q, text %q", shared.Name, shared.Text)
	}
	own := f.macro(desk.Macro{Name: "lock stuck", OwnerID: graceID, Text: "mine"})
	f.macro(desk.Macro{Name: "LOCK STUCK", OwnerID: fredID, Text: "his"})
	if _, err := f.createMacro(desk.Macro{Name: "Theirs", OrganizationID: orgB, Text: "x"}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ org, member, want string }{
		{orgA, "", "Lock stuck"}, {orgA, graceID, "Lock stuck, lock stuck"}, {orgA, fredID, "Lock stuck, LOCK STUCK"}, {orgB, graceID, "Theirs"},
	} {
		if got := f.macroNames(tt.org, tt.member); got != tt.want {
			t.Errorf("%s %s: got %s, want %s", tt.org, tt.member, got, tt.want)
		}
	}
	for _, m := range []desk.Macro{{Name: "LOCK stuck", Text: "x"}, {Name: "Lock Stuck", OwnerID: graceID, Text: "x"}} {
		_, err := f.createMacro(m)
		refused(t, "a used name", err, problem.Conflict, "already_exists", "name")
	}
	change := func(m desk.Macro) error {
		_, err := write(f, func(tx *db.Tx) (desk.Macro, error) { return f.desk.UpdateMacroTx(t.Context(), tx, m) })
		return err
	}
	remove := func(org, member, id string) error {
		return f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.DeleteMacroTx(t.Context(), tx, org, member, id) })
	}
	other := f.macro(desk.Macro{Name: "Other", Text: "x"})
	other.Name = "lock STUCK"
	refused(t, "another's name", change(other), problem.Conflict, "already_exists", "name")
	// The macros of others are unknown.
	for _, who := range []struct{ org, member string }{{orgB, ""}, {orgB, graceID}, {orgA, fredID}, {orgA, ""}} {
		m := own
		m.OrganizationID, m.OwnerID = who.org, who.member
		_, err := f.desk.Macro(t.Context(), f.db, who.org, who.member, own.ID)
		for what, err := range map[string]error{"read": err, "change": change(m), "delete": remove(who.org, who.member, own.ID)} {
			if problem.Of(err) != problem.NotFound {
				t.Errorf("%s by %v: got %v", what, who, err)
			}
		}
	}
	shared.Name, shared.Note = "Lock open", "see {{ticket.number}}"
	if err := change(shared); err != nil {
		t.Fatal(err)
	}
	if err := change(shared); err != nil { // nothing
		t.Fatal(err)
	}
	own.Text = "again"
	if err := change(own); err != nil {
		t.Fatal(err)
	}
	if err := remove(orgA, graceID, other.ID); err != nil {
		t.Fatal(err)
	}
	var entries []string
	for _, e := range slices.Backward(audittest.List(t, log, orgA, audit.Query{})) {
		if e.Target.Type == "macro" {
			entries = append(entries, e.Action+" "+e.Target.Name)
		}
	}
	if got, want := strings.Join(entries, ", "), "macro.created Lock stuck, macro.created Other, macro.updated Lock open, macro.deleted Other"; got != want {
		t.Errorf("the audit log has %s, want %s", got, want)
	}

	// The member leaves.
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.UnassignTx(t.Context(), tx, orgB, graceID) }); err != nil {
		t.Fatal(err)
	}
	if got := f.macroNames(orgA, graceID); got != "Lock open, lock stuck" {
		t.Errorf("after she left another organization: %s", got)
	}
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.UnassignTx(t.Context(), tx, orgA, graceID) }); err != nil {
		t.Fatal(err)
	}
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.DeleteDraftsTx(t.Context(), tx, fredID) }); err != nil {
		t.Fatal(err)
	}
	if n := f.count("macros WHERE owner_id <> ''"); n != 0 {
		t.Errorf("%d private macros are left", n)
	}
	if got := f.macroNames(orgA, graceID); got != "Lock open" {
		t.Errorf("after she left: %s", got)
	}
}

func TestMacroBounds(t *testing.T) {
	f := newFixture(t)
	for _, tt := range []struct {
		owner string
		most  int
	}{{"", desk.MaxSharedMacros}, {graceID, desk.MaxPrivateMacros}} {
		if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
			for i := range tt.most {
				if _, err := f.desk.CreateMacroTx(t.Context(), tx, desk.Macro{OrganizationID: orgA, OwnerID: tt.owner, Name: fmt.Sprint(i), Text: "x"}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		_, err := f.createMacro(desk.Macro{OwnerID: tt.owner, Name: "one more", Text: "x"})
		refused(t, "one more", err, problem.Precondition, "", "")
	}
	f.macro(desk.Macro{OwnerID: fredID, Name: "another's", Text: "x"})
}

func TestPreviewMacro(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = new(messageRecorder) })
	anonymous := f.intake(text("+4915112345671", "Hello")).TicketID
	in := text("+4915112345672", "Hello again")
	in.Event.Message.From.Name = "Ana Lind"
	named := f.intake(in).TicketID
	all := f.macro(desk.Macro{
		Name: "All", Text: "Hi {{customer.first_name|there}} / {{ customer.name }}, #{{ticket.number}} {{ticket.subject|}}, {{agent.first_name | us}} of {{organization.name}} {not {a} variable}",
		Note: "{{customer.name}} {{customer.email}}", Actions: desk.MacroActions{Status: desk.StatusPending, Priority: desk.PriorityNormal, Assignee: desk.AssigneeMe, AddTags: []string{"b", "a"}, RemoveTags: []string{"c"}},
	})
	if _, err := f.update(orgA, named, desk.Update{Tags: &[]string{"a", "c"}}); err != nil {
		t.Fatal(err)
	}
	f.emitted()
	got, err := f.desk.PreviewMacro(t.Context(), f.db, orgA, desk.MacroApplication{MacroID: all.ID, TicketID: named, AgentID: graceID, OrganizationName: "Acme"})
	if err != nil {
		t.Fatal(err)
	}
	subject := f.ticket(named).Subject
	if want := "Hi Ana / Ana Lind, #2 " + subject + ", Grace of Acme {not {a} variable}"; got.Text != want {
		t.Errorf("got text %q, want %q", got.Text, want)
	}
	if fmt.Sprint(got.Missing) != "[customer.email]" || got.Note != "Ana Lind {{customer.email}}" {
		t.Errorf("got note %q, missing %v", got.Note, got.Missing)
	}
	if got := fmt.Sprint(got.Changes); got != "map[assignee_id:{<nil> "+graceID+"} status:{open pending} tags:{[a c] [a b]}]" {
		t.Errorf("got changes %s", got)
	}
	got, err = f.desk.PreviewMacro(t.Context(), f.db, orgA, desk.MacroApplication{MacroID: all.ID, TicketID: anonymous, AgentID: graceID, WithoutNote: true})
	if err != nil || fmt.Sprint(got.Missing) != "[customer.name organization.name]" || !strings.HasPrefix(got.Text, "Hi there / {{ customer.name }}, #1") || got.Note != "" {
		t.Errorf("anonymous: got %q %q, missing %v, %v", got.Text, got.Note, got.Missing, err)
	}
	if left := desk.UnfilledVariables(got.Text); fmt.Sprint(left) != "[{{ customer.name }} {{organization.name}}]" {
		t.Errorf("left are %v", left)
	}
	if left := desk.UnfilledVariables("{{ {{x}} {{customer.name {{"); left != nil {
		t.Errorf("left are %v", left)
	}
	for what, a := range map[string]desk.MacroApplication{
		"no member for me": {MacroID: all.ID, TicketID: named},
		"another's member": {MacroID: all.ID, TicketID: named, AgentID: heidiID},
	} {
		_, err := f.desk.PreviewMacro(t.Context(), f.db, orgA, a)
		if p, ok := errors.AsType[*problem.Error](err); !ok || p.Kind != problem.Invalid || p.Issues[0].Path != "agent_id" {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if names := f.emitted(); names != "" || f.ticket(named).Status != desk.StatusOpen {
		t.Errorf("a preview emitted %s", names)
	}
}

func TestApplyMacro(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = new(messageRecorder) })
	id := f.intake(text("+4915112345671", "Hello")).TicketID
	m := f.macro(desk.Macro{
		Name: "Lock", Text: "Hi {{customer.first_name|there}}.", Note: "Asked about #{{ticket.number}}.",
		Actions: desk.MacroActions{Status: desk.StatusPending, Priority: desk.PriorityHigh, Assignee: graceID, AddTags: []string{"lock"}},
	})
	f.emitted()
	use := desk.MacroApplication{MacroID: m.ID, TicketID: id, ViewerID: graceID, AgentID: graceID, By: grace}
	done, err := f.apply(use)
	if err != nil {
		t.Fatal(err)
	}
	if names, want := f.emitted(), "conversation.created message.created message.agent_reply ticket.updated ticket.status_changed ticket.assigned ticket.priority_changed"; names != want {
		t.Errorf("emitted %s, want %s", names, want)
	}
	ticket := f.ticket(id)
	if ticket.Status != desk.StatusPending || ticket.Priority != desk.PriorityHigh || ticket.AssigneeID != graceID || fmt.Sprint(ticket.Tags) != "[lock]" ||
		done.Before.Status != desk.StatusOpen || done.After.Status != desk.StatusPending {
		t.Errorf("got %+v", ticket)
	}
	messages := f.messages(id)
	if len(messages) != 3 || messages[1].ID != done.ReplyID || messages[1].Text != "Hi there." || messages[1].Author.ID != graceID ||
		messages[2].ID != done.NoteID || messages[2].Kind != desk.KindNote || messages[2].Text != "Asked about #1." {
		t.Errorf("got %+v", messages)
	}
	if got := f.waiting(done.ReplyID); got.TicketID != id {
		t.Errorf("the outbox has %+v", got)
	}

	// The author has written the reply; another status replaces the macro's.
	use.WithoutReply, use.WithoutNote, use.Status = true, true, desk.StatusResolved
	if done, err = f.apply(use); err != nil || done.ReplyID != "" || done.NoteID != "" || len(done.Changes) != 1 || done.After.Status != desk.StatusResolved {
		t.Errorf("got %+v, %v", done, err)
	}
	if done, err = f.apply(use); err != nil || len(done.Changes) != 0 {
		t.Errorf("again: got %+v, %v", done, err)
	}
	used, err := f.desk.Macro(t.Context(), f.db, orgA, "", m.ID)
	if err != nil || used.Uses != 3 || used.UsedAt.IsZero() || !used.UpdatedAt.Equal(m.UpdatedAt) {
		t.Errorf("got %+v, %v", used, err)
	}
	// A change keeps the count.
	used.Text = "Hi."
	if used, err = write(f, func(tx *db.Tx) (desk.Macro, error) { return f.desk.UpdateMacroTx(t.Context(), tx, used) }); err != nil || used.Uses != 3 {
		t.Errorf("got %+v, %v", used, err)
	}
}

// TestRefusedMacro: a macro that cannot be applied changes nothing.
func TestRefusedMacro(t *testing.T) {
	f := newFixture(t, func(c *desk.Config) { c.Dispatcher = new(messageRecorder) })
	id := f.intake(text("+4915112345671", "Hello")).TicketID
	merged := f.intake(text("+4915112345672", "Hello again")).TicketID
	if _, err := f.merge(orgA, merged, id); err != nil {
		t.Fatal(err)
	}
	plain := desk.MacroActions{Status: desk.StatusPending}
	missing := f.macro(desk.Macro{Name: "Missing", Text: "Hi", Note: "{{customer.email}} {{customer.name|}}", Actions: plain})
	full := f.macro(desk.Macro{Name: "Full", Text: "Hi", Actions: desk.MacroActions{Status: desk.StatusPending, AddTags: []string{"x"}}})
	private := f.macro(desk.Macro{Name: "Private", OwnerID: fredID, Text: "Hi"})
	foreign, err := f.createMacro(desk.Macro{Name: "Foreign", OrganizationID: orgB, Text: "Hi"})
	if err != nil {
		t.Fatal(err)
	}
	var tags []string
	for i := range 50 {
		tags = append(tags, fmt.Sprint("tag", i))
	}
	if _, err := f.update(orgA, id, desk.Update{Tags: &tags}); err != nil {
		t.Fatal(err)
	}
	f.emitted()
	before, messages := f.ticket(id), len(f.messages(id))
	for what, tt := range map[string]struct {
		macro, ticket string
		kind          problem.Kind
		says          string
	}{
		"a missing value":           {missing.ID, id, problem.Precondition, "the macro needs customer.email, which has no value here"},
		"too many tags":             {full.ID, id, problem.Precondition, "the macro cannot change this ticket: tags must have at most 50"},
		"a merged ticket":           {full.ID, merged, problem.Conflict, "ticket #2 is merged"},
		"an unknown ticket":         {full.ID, full.ID, problem.NotFound, "there is no such ticket"},
		"an unknown macro":          {id, id, problem.NotFound, "there is no such macro"},
		"another's macro":           {private.ID, id, problem.NotFound, "there is no such macro"},
		"another organization's":    {foreign.ID, id, problem.NotFound, "there is no such macro"},
		"a conversation of another": {full.ID, id, problem.Invalid, "conversation_id must be"},
	} {
		a := desk.MacroApplication{MacroID: tt.macro, TicketID: tt.ticket, ViewerID: graceID, AgentID: graceID, By: grace}
		if tt.kind == problem.Invalid {
			a.ConversationID = "another"
		}
		_, err := f.apply(a)
		if p, ok := errors.AsType[*problem.Error](err); !ok || p.Kind != tt.kind || !strings.HasPrefix(p.Message, tt.says) {
			t.Errorf("%s: got %v, want %s", what, err, tt.says)
		}
	}
	if after := f.ticket(id); after.Status != before.Status || !after.UpdatedAt.Equal(before.UpdatedAt) || len(f.messages(id)) != messages || f.emitted() != "" {
		t.Errorf("got %+v", after)
	}
	if n := f.count("macros WHERE uses > 0"); n != 0 {
		t.Errorf("%d uses were counted", n)
	}
	if got, _ := f.desk.Macro(t.Context(), f.db, orgA, "", full.ID); !got.UsedAt.Equal(time.Time{}) {
		t.Errorf("used at %v", got.UsedAt)
	}
}
