package inbox_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// macro creates a macro.
func (h *harness) macro(m desk.Macro) desk.Macro {
	h.t.Helper()
	m.OrganizationID = h.Organization.ID
	h.write(func(tx *db.Tx) (err error) {
		m, err = h.desk.CreateMacroTx(h.t.Context(), tx, m)
		return err
	})
	return m
}

func (h *harness) uses(id string) int64 {
	h.t.Helper()
	m, err := h.desk.Macro(h.t.Context(), h.DB, h.Organization.ID, h.Agent.ID, id)
	if err != nil {
		h.t.Fatal(err)
	}
	return m.Uses
}

// TestMacroWithoutScripts: the button keeps the draft and leads to the list, whose links
// lead back to the ticket with the macro's text.
func TestMacroWithoutScripts(t *testing.T) {
	h := newHarness(t)
	h.mail("ana@example.com", "m1", func(m *channel.Message) { m.From.Name = "Ana Lind" })
	lock := h.macro(desk.Macro{Name: "Lock <b>", Text: "Hi {{customer.first_name}}, try again. " + evil, Note: "Asked #{{ticket.number}}", Actions: desk.MacroActions{Status: desk.StatusPending, Assignee: desk.AssigneeMe, AddTags: []string{"lock"}}})
	h.macro(desk.Macro{Name: "Theirs", OwnerID: h.Admin.ID, Text: "x"})
	own := h.macro(desk.Macro{Name: "Mine", OwnerID: h.Agent.ID, Note: "A note"})
	b := h.SignIn(h.Agent)
	const path = "/tickets/1"
	w := b.Post(path+"/write?in=mine", url.Values{"kind": {"reply"}, "reply": {"Begun."}, "do": {"macros"}})
	if to := w.Header().Get("Location"); to != path+"/macros?in=mine" {
		t.Fatalf("led to %q", to)
	}
	d := b.Page(path + "/macros?in=mine")
	d.Want(lock.Name, "Mine", "Private", "Hi {{customer.first_name}}, try again.", "Add note")
	if strings.Contains(webtest.Text(d.Root), "Theirs") {
		t.Error("another's macro is listed")
	}
	link := path + "?in=mine&macro=" + lock.ID
	if len(d.WithAttr("href", link)) != 1 {
		t.Fatal("no link to the ticket with the macro")
	}
	d = b.Page(link)
	if got := value(d, "reply"); strings.TrimPrefix(got, "\n") != "Begun.\n\nHi Ana, try again. "+evil {
		t.Errorf("the reply is %q", got)
	}
	d.Want("Macro " + lock.Name + ": Add note, set status to pending, assign to you, add tag lock")
	if got := value(d, "macro"); got != lock.ID {
		t.Errorf("the form has macro %q", got)
	}

	d, notice := b.Follow(b.Post(path+"/write?in=mine", url.Values{"kind": {"reply"}, "reply": {"Hi Ana!"}, "note": {"Begun, too."}, "macro": {lock.ID}, "do": {"send"}, "once": {"1"}}))
	if want := "Reply sent. Status set to pending. Ticket assigned. Tags updated."; !strings.HasPrefix(notice, want) {
		t.Errorf("got notice %q, want %q", notice, want)
	}
	if len(d.WithAttr("name", "macro")) != 0 {
		t.Error("the macro is still in the composer")
	}
	if got := strings.TrimSpace(value(d, "note")); got != "Begun, too." {
		t.Errorf("the draft of a note became %q", got)
	}
	ticket, messages := h.ticket(1), h.messages(h.ticket(1).ID)
	if ticket.Status != desk.StatusPending || ticket.AssigneeID != h.Agent.ID || strings.Join(ticket.Tags, "+") != "lock" || len(messages) != 3 ||
		messages[1].Text != "Hi Ana!" || messages[2].Kind != desk.KindNote || messages[2].Text != "Asked #1" || h.uses(lock.ID) != 1 {
		t.Errorf("got %+v, %+v", ticket, messages)
	}
	// The undo reverts all changes of the ticket.
	undo(t, b, d)
	if ticket := h.ticket(1); ticket.Status != desk.StatusOpen || ticket.AssigneeID != "" || len(ticket.Tags) != 0 {
		t.Errorf("after the undo the ticket is %+v", ticket)
	}

	// A message with a pressed status, and none at all.
	_, notice = b.Follow(b.Post(path+"/write", url.Values{"kind": {"note"}, "note": {"Done."}, "macro": {lock.ID}, "do": {"resolved"}, "once": {"2"}}))
	if !strings.HasPrefix(notice, "Note added. Only your team can see it. Status set to resolved. Ticket assigned.") || h.ticket(1).Status != desk.StatusResolved || len(h.messages(ticket.ID)) != 4 {
		t.Errorf("got notice %q, %d messages", notice, len(h.messages(ticket.ID)))
	}
	_, notice = b.Follow(b.Post(path+"/write", url.Values{"kind": {"reply"}, "reply": {""}, "macro": {own.ID}, "do": {"send"}, "once": {"3"}}))
	if messages := h.messages(ticket.ID); notice != "Macro applied." || len(messages) != 5 || messages[4].Text != "A note" || h.uses(own.ID) != 1 {
		t.Errorf("got notice %q, %+v", notice, messages)
	}
}

// TestMacroRefused: a message that its macro refuses is rendered again, with the macro.
func TestMacroRefused(t *testing.T) {
	h := newHarness(t)
	h.text("+14155550111", "SM1", "Hello?")
	m := h.macro(desk.Macro{Name: "Greeting", Text: "Hi {{customer.name}}", Note: "{{customer.email}}", Actions: desk.MacroActions{Priority: desk.PriorityHigh}})
	b := h.SignIn(h.Agent)
	const path = "/tickets/1"
	d := b.Page(path + "?macro=" + m.ID)
	d.Want("No value for {{customer.name}}. Complete the text before you send it.")
	for text, says := range map[string]string{
		"Hi {{customer.name}}": "The text still has {{customer.name}}. Write the value in its place. Nothing was sent.",
		"Hi.":                  "The macro needs customer.email, which has no value here",
	} {
		d := b.WantRefused(b.Post(path+"/write", url.Values{"kind": {"reply"}, "reply": {text}, "macro": {m.ID}, "do": {"send"}}), http.StatusUnprocessableEntity)
		d.Want(says, "Macro Greeting: Add note, set priority to high")
		if got := strings.TrimSpace(value(d, "reply")); got != text {
			t.Errorf("the reply became %q", got)
		}
	}
	gone := url.Values{"kind": {"reply"}, "reply": {"Hi."}, "macro": {"0190c0de-0000-7000-8000-00000000000a"}, "do": {"send"}}
	b.WantRefused(b.Post(path+"/write", gone), http.StatusUnprocessableEntity).Want("The macro no longer exists.")
	if n, ticket := len(h.messages(h.ticket(1).ID)), h.ticket(1); n != 1 || ticket.Priority != desk.PriorityNormal || h.uses(m.ID) != 0 {
		t.Errorf("got %d messages, %+v", n, ticket)
	}
	b.Page(path + "?macro=unknown").Want("The macro no longer exists.")

	// For the script.
	options := b.Get(path + "/macros?part=options").Body.String()
	if !strings.Contains(options, `data-id="`+m.ID+`"`) || strings.Contains(options, "<html") {
		t.Errorf("got options %s", options)
	}
	for kind, text := range map[string]string{"reply": "Hi {{customer.name}}", "note": "{{customer.email}}"} {
		if chip := b.Get(path + "/macros/" + m.ID + "?kind=" + kind).Body.String(); !strings.Contains(chip, `data-text="`+text+`" data-missing="{{customer.`) {
			t.Errorf("%s: got %s", kind, chip)
		}
	}
	b.WantRefused(b.Get(path+"/macros/unknown"), http.StatusNotFound)
	b.WantRefused(b.Get("/tickets/2/macros"), http.StatusNotFound)
}

// TestUndoMacro: undoing a held reply reverts the changes of its macro, except those that
// were changed since.
func TestUndoMacro(t *testing.T) {
	h := newHarness(t)
	h.text("+14155550111", "SM1", "Hello?")
	h.Prefer(h.Agent, `{"undo_send_seconds":30}`)
	m := h.macro(desk.Macro{Name: "Lock", Text: "Hi", Actions: desk.MacroActions{Status: desk.StatusPending, Priority: desk.PriorityHigh, Assignee: desk.AssigneeMe, AddTags: []string{"lock"}}})
	b := h.SignIn(h.Agent)
	d, notice := b.Follow(b.Post("/tickets/1/write", url.Values{"kind": {"reply"}, "reply": {"Hi Ana!"}, "macro": {m.ID}, "do": {"send"}}))
	if !strings.HasPrefix(notice, "Reply sent. Status set to pending. Priority set to high. Ticket assigned. Tags updated.") {
		t.Errorf("got notice %q", notice)
	}
	h.write(func(tx *db.Tx) error {
		_, err := h.desk.UpdateTx(t.Context(), tx, h.Organization.ID, h.ticket(1).ID, desk.Update{Priority: new(desk.PriorityUrgent), Tags: &[]string{"lock", "vip"}})
		return err
	})
	d, _ = undo(t, b, d)
	ticket := h.ticket(1)
	if ticket.Status != desk.StatusOpen || ticket.Priority != desk.PriorityUrgent || ticket.AssigneeID != "" || strings.Join(ticket.Tags, "+") != "vip" {
		t.Errorf("got %+v", ticket)
	}
	if got := strings.TrimSpace(value(d, "reply")); got != "Hi Ana!" || len(h.messages(ticket.ID)) != 1 {
		t.Errorf("the reply field has %q", got)
	}
}

// TestMacroWithFiles: the composer offers the files of a macro, and the reply has the chosen ones.
func TestMacroWithFiles(t *testing.T) {
	h := newHarness(t)
	r := h.text("+14155550111", "SM1", "Hello?")
	m := h.macro(desk.Macro{Name: "Manual", Text: "See the files."})
	content, err := h.desk.Compose(t.Context(), h.Organization.ID, desk.Draft{Note: true, Attachments: []channel.Attachment{
		{Name: "a <b>.txt", Data: []byte("a")}, {Name: "b.txt", Data: []byte("b")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	h.write(func(tx *db.Tx) error {
		m, err = h.desk.AddMacroFilesTx(t.Context(), tx, h.Organization.ID, "", m.ID, content)
		return err
	})
	b := h.SignIn(h.Agent)
	const path = "/tickets/1"
	d := b.Page(path + "?macro=" + m.ID)
	if boxes := d.WithAttr("name", "macro_file"); len(boxes) != 2 || webtest.Attr(boxes[0], "value") != m.Files[0].ID || !strings.Contains(webtest.Text(d.WithAttr("id", "composer")[0]), "a <b>.txt") {
		t.Fatalf("%d files are offered", len(boxes))
	}
	if w := b.Get(path + "/macros/" + m.ID + "?kind=reply"); strings.Count(w.Body.String(), `name="macro_file"`) != 2 {
		t.Errorf("the script gets %s", w.Body)
	}
	// A refused form keeps the choice.
	form := url.Values{"kind": {"reply"}, "reply": {"{{agent.name}}"}, "macro": {m.ID}, "macro_file": {m.Files[1].ID}, "do": {"send"}, "once": {"1"}}
	d = b.WantRefused(b.Post(path+"/write", form), http.StatusUnprocessableEntity)
	for i, box := range d.WithAttr("name", "macro_file") {
		if checked := webtest.Attr(box, "checked") != "" || strings.Contains(webtest.Attr(box, "value"), m.Files[1].ID); checked != (i == 1) {
			t.Errorf("file %d is checked: %t", i, checked)
		}
	}
	form.Set("reply", "See the file.")
	b.Follow(b.Post(path+"/write", form))
	messages := h.messages(r.TicketID)
	if last := messages[len(messages)-1]; last.Text != "See the file." || len(last.Attachments) != 1 || last.Attachments[0].Name != "b.txt" || h.uses(m.ID) != 1 {
		t.Errorf("sent is %+v", last)
	}
	// A note has none, and neither has a reply without the macro.
	b.Follow(b.Post(path+"/write", url.Values{"kind": {"note"}, "note": {"Seen."}, "macro": {m.ID}, "macro_file": {m.Files[0].ID}, "once": {"2"}}))
	b.Follow(b.Post(path+"/write", url.Values{"kind": {"reply"}, "reply": {"Alone."}, "macro_file": {m.Files[0].ID}, "do": {"send"}, "once": {"3"}}))
	for _, last := range h.messages(r.TicketID)[len(messages):] {
		if len(last.Attachments) != 0 {
			t.Errorf("%q has %+v", last.Text, last.Attachments)
		}
	}
}

// TestMacroFilesByMail: a reply by mail has the files of a macro, too.
func TestMacroFilesByMail(t *testing.T) {
	h := newHarness(t)
	r := h.mail("ana@c.example", "m1@c.example")
	m := h.macro(desk.Macro{Name: "Manual", Text: "See the file."})
	content, err := h.desk.Compose(t.Context(), h.Organization.ID, desk.Draft{Note: true, Attachments: []channel.Attachment{{Name: "a.txt", Data: []byte("a")}}})
	if err != nil {
		t.Fatal(err)
	}
	h.write(func(tx *db.Tx) error {
		m, err = h.desk.AddMacroFilesTx(t.Context(), tx, h.Organization.ID, "", m.ID, content)
		return err
	})
	b := h.SignIn(h.Agent)
	b.Follow(b.Post("/tickets/1/write", url.Values{
		"kind": {"reply"}, "reply": {"See **the** file."}, "macro": {m.ID}, "macro_file": {m.Files[0].ID}, "conversation": {r.ConversationID}, "do": {"send"}, "once": {"1"},
	}))
	messages := h.messages(r.TicketID)
	if last := messages[len(messages)-1]; !last.Details.Markdown || len(last.Attachments) != 1 || last.Attachments[0].Name != "a.txt" {
		t.Errorf("sent is %+v", last)
	}
}
