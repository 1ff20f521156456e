package settings_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

func (h *harness) macros(t *testing.T, memberID string) []desk.Macro {
	t.Helper()
	list, err := h.desk.Macros(t.Context(), h.DB, h.Organization.ID, memberID)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestMacros(t *testing.T) {
	const path = "/settings/macros"
	h := newHarness(t)
	admin, agent := h.SignIn(h.Admin), h.SignIn(h.Agent)
	agent.Page(path).Want("No shared macros yet. Admins create them.", "No macros of your own yet.")

	// An admin shares a macro; an agent's is their own, whatever the form says.
	shared := url.Values{
		"owner": {"shared"}, "name": {"Lock <b>"}, "text": {"Hi {{customer.first_name|there}},\r\ntry it again."}, "note": {"#{{ticket.number}}"},
		"status": {"on_hold"}, "priority": {"high"}, "assignee": {"me"}, "add_tags": {"lock, app ,"}, "remove_tags": {"new"},
	}
	d, notice := admin.Follow(admin.Post(path+"/new", shared))
	d.Want("Lock <b>", "Hi {{customer.first_name|there}}, try it again.", "Add note, set status to on hold, set priority to high, assign to whoever applies it, add tags lock, app, remove tag new", "Never")
	if notice != "Macro saved." {
		t.Errorf("got notice %q", notice)
	}
	agent.Follow(agent.Post(path+"/new", url.Values{"owner": {"shared"}, "name": {"Mine"}, "text": {"Yours, {{agent.name}}"}, "assignee": {h.Admin.ID}}))
	ours, theirs := h.macros(t, h.Agent.ID), h.macros(t, "")
	if len(ours) != 2 || ours[1].OwnerID != h.Agent.ID || len(theirs) != 1 || theirs[0].OwnerID != "" {
		t.Fatalf("got %+v", ours)
	}
	if m := theirs[0]; m.Text != "Hi {{customer.first_name|there}},\ntry it again." || strings.Join(m.Actions.AddTags, "+") != "lock+app" {
		t.Errorf("got %+v", m)
	}
	lock, mine := path+"/"+theirs[0].ID, path+"/"+ours[1].ID
	d = agent.Page(path)
	d.Want("Mine", "Assign to "+h.Admin.Name)
	if len(d.WithAttr("href", lock)) != 0 || len(d.WithAttr("href", mine)) != 1 {
		t.Error("an agent may change a shared macro, or not their own")
	}
	if len(agent.Page(path+"/new").WithAttr("name", "owner")) != 0 {
		t.Error("an agent may share a macro")
	}
	for _, p := range []string{lock, lock + "/delete"} {
		agent.WantRefused(agent.Get(p), http.StatusForbidden)
		agent.WantRefused(agent.Post(p, shared), http.StatusForbidden)
		// A member's own are unknown to admins, too.
		p = strings.Replace(p, theirs[0].ID, ours[1].ID, 1)
		admin.WantRefused(admin.Get(p), http.StatusNotFound)
		admin.WantRefused(admin.Post(p, shared), http.StatusNotFound)
	}

	// Errors, with the values kept.
	for _, tt := range []struct{ name, value, field, says string }{
		{"name", "", "name", "Name must not be empty."},
		{"name", "LOCK <B>", "name", "There is a shared macro with this name already."},
		{"text", "a\r\n{{custmer.name}}", "text", `Reply is wrong in line 2, column 1: there is no variable "custmer.name"`},
		{"assignee", "nobody", "assignee", "Assignee must be me, none or a member"},
		{"remove_tags", "lock", "remove_tags", "Remove tags must not be among the added tags."},
	} {
		form := url.Values{}
		maps.Copy(form, shared)
		if form.Set(tt.name, tt.value); tt.name != "name" {
			form.Set("name", "Another")
		}
		d := admin.WantRefused(admin.Post(path+"/new", form), 422)
		if said := strings.Join(d.DescribedBy(tt.field), " "); !strings.Contains(said, tt.says) {
			t.Errorf("%s %q: said %q, alert %q", tt.name, tt.value, said, d.Alert())
		}
		if got := webtest.Attr(d.Field("add_tags"), "value"); got != "lock, app ," {
			t.Errorf("the tags became %q", got)
		}
	}

	// The preview stores nothing.
	if err := h.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := h.desk.CreateTicketTx(t.Context(), tx, h.Organization.ID, desk.NewTicket{Subject: "Flat tyre", Customer: &desk.Person{Name: "Ana Lind", Email: "ana@example.com"}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	shared.Set("do", "preview")
	for ticket, says := range map[string]string{"": "must be the number", "#7": "must be the number", "x": "must be the number"} {
		shared.Set("ticket", ticket)
		admin.WantRefused(admin.Post(lock, shared), 422).Want(says)
	}
	shared.Set("ticket", "#1")
	shared.Set("text", "Hi {{customer.first_name}}. {{agent.name}}, {{organization.name}}")
	d = admin.WantRefused(admin.Post(lock, shared), 200)
	d.Want("Preview for ticket #1 (not saved)", "Hi Ana. "+h.Admin.Name+", "+h.Organization.Name, "Note: #1", "Set status to on hold")
	if strings.Contains(webtest.Text(d.Root), "No value for") || h.macros(t, "")[0].Text != theirs[0].Text {
		t.Error("the preview misses a value, or was stored")
	}

	shared.Del("do")
	shared.Set("text", "Hi.")
	admin.Follow(admin.Post(lock, shared))
	if got := h.macros(t, "")[0]; got.Text != "Hi." || got.ID != theirs[0].ID {
		t.Errorf("got %+v", got)
	}
	agent.Page(mine + "/delete").Want("Only you can see “Mine”.")
	agent.Follow(agent.Post(mine+"/delete", nil))
	admin.Page(lock + "/delete").Want("is deleted for all members")
	admin.Follow(admin.Post(lock+"/delete", nil))
	if got := h.macros(t, h.Agent.ID); len(got) != 0 {
		t.Errorf("left are %+v", got)
	}
}

func TestMacroFilesForm(t *testing.T) {
	const path = "/settings/macros"
	h := newHarness(t)
	b, admin := h.SignIn(h.Agent), h.SignIn(h.Admin)
	file := func(name, text string) web.File {
		return web.File{Name: name, ContentType: "text/plain", Data: []byte(text)}
	}
	form := url.Values{"name": {"Manual"}, "text": {"See the file."}}
	d, notice := b.Follow(b.PostFiles(path+"/new", form, file("a <b>.txt", "one"), file("b.txt", "two")))
	d.Want("Attach 2 files")
	if notice != "Macro saved." {
		t.Errorf("got notice %q", notice)
	}
	read := func() desk.Macro { return h.macros(t, h.Agent.ID)[0] }
	m := read()
	at := path + "/" + m.ID
	link := at + "/files/" + m.Files[0].ID
	if d := b.Page(at); len(d.WithAttr("href", link)) != 1 || !strings.Contains(webtest.Text(d.Root), "a <b>.txt") {
		t.Error("the form does not list the files")
	}
	if w := b.Get(link); w.Code != http.StatusOK || w.Body.String() != "one" || !strings.HasPrefix(w.Header().Get("Content-Disposition"), "attachment") {
		t.Errorf("the file is answered %d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := admin.Get(link); w.Code != http.StatusNotFound {
		t.Errorf("a file of a private macro is answered %d", w.Code)
	}
	// One goes, another comes; a refused form changes neither.
	form.Set("remove", m.Files[0].ID)
	form.Set("text", "{{nobody}}")
	b.WantRefused(b.PostFiles(at, form, file("c.txt", "three")), http.StatusUnprocessableEntity)
	large := b.WantRefused(b.PostFiles(at, url.Values{"name": {"Manual"}, "text": {"x"}}, file("d.txt", strings.Repeat("x", 10<<20+1))), http.StatusUnprocessableEntity)
	large.Want("New files lead to more than 10 MB of files of the macro.")
	if got := read(); len(got.Files) != 2 || got.Text != "See the file." {
		t.Errorf("refused forms made it %+v", got)
	}
	form.Set("text", "See the files.")
	b.Follow(b.PostFiles(at, form, file("c.txt", "three")))
	if got := read(); len(got.Files) != 2 || got.Files[0].Name != "b.txt" || got.Files[1].Name != "c.txt" || got.Text != "See the files." {
		t.Errorf("the macro is %+v", got)
	}
	form.Del("remove")
	var many []web.File
	for i := range 9 {
		many = append(many, file(string(rune('a'+i)), "x"))
	}
	b.WantRefused(b.PostFiles(at, form, many...), http.StatusUnprocessableEntity).Want("New files lead to more than 10 files of the macro.")
}
