package desk_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/quota"
)

// addFiles adds files to a macro, whose sizes are given.
func (f *fixture) addFiles(m desk.Macro, files ...channel.Attachment) (desk.Macro, error) {
	f.Helper()
	c, err := f.desk.Compose(f.Context(), orgA, desk.Draft{Note: true, Attachments: files})
	if err != nil {
		return m, err
	}
	return write(f, func(tx *db.Tx) (desk.Macro, error) {
		return f.desk.AddMacroFilesTx(f.Context(), tx, orgA, m.OwnerID, m.ID, c)
	})
}

func (f *fixture) file(key string) bool {
	f.Helper()
	r, err := f.blob.Open(f.Context(), key)
	if err == nil {
		r.Close()
	} else if !errors.Is(err, blob.ErrNotFound) {
		f.Fatal(err)
	}
	return err == nil
}

// storedBytes returns the counted bytes of organization A.
func (f *fixture) storedBytes() (n int64) {
	f.Helper()
	err := f.db.QueryRow(f.Context(), "SELECT coalesce(sum(size), 0) FROM ("+desk.CountedFiles+") AS files").Scan(&n)
	if err != nil {
		f.Fatal(err)
	}
	return n
}

// TestMacroFiles: replies refer to the content of a macro's files, which stays as long as one of
// them has it.
func TestMacroFiles(t *testing.T) {
	onClock(t, func(t *testing.T, f *fixture) {
		ticket, _ := f.begin("It is flat.")
		m := f.macro(desk.Macro{Name: "Manual", Text: "See the file."})
		m, err := f.addFiles(m, attached(10, 20)...)
		if err != nil || len(m.Files) != 2 || m.Files[1].Name != "file-1" || m.Files[1].Size != 20 || f.storedBytes() != 30 {
			t.Fatalf("got %+v, %v, %d bytes", m.Files, err, f.storedBytes())
		}
		if list, err := f.desk.Macros(t.Context(), f.db, orgA, ""); err != nil || fmt.Sprint(list[0].Files) != fmt.Sprint(m.Files) {
			t.Errorf("listed are %+v, %v", list, err)
		}
		done, err := f.apply(desk.MacroApplication{MacroID: m.ID, TicketID: ticket, By: grace})
		if err != nil {
			t.Fatal(err)
		}
		reply, err := f.desk.Message(t.Context(), f.db, orgA, ticket, done.ReplyID)
		if err != nil || len(reply.Attachments) != 2 || reply.Attachments[0].Name != "file-0" || reply.Attachments[1].Size != 20 || f.storedBytes() != 60 {
			t.Fatalf("the reply has %+v, %v, %d bytes", reply.Attachments, err, f.storedBytes())
		}
		a, content, err := f.desk.OpenMacroFile(t.Context(), orgA, "", m.Files[1].ID)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(content)
		content.Close()
		if err != nil || a.Name != "file-1" || string(text) != strings.Repeat("b", 20) {
			t.Errorf("the file is %+v, %q, %v", a, text, err)
		}

		first, second := reply.Attachments[0].BlobKey, reply.Attachments[1].BlobKey
		remove := func(id string) error {
			return f.db.Write(t.Context(), func(tx *db.Tx) error {
				_, err := f.desk.DeleteMacroFileTx(t.Context(), tx, orgA, "", m.ID, id)
				return err
			})
		}
		if err := remove(m.Files[0].ID); err != nil {
			t.Fatal(err)
		}
		if err := remove(m.Files[0].ID); problem.Of(err) != problem.NotFound {
			t.Errorf("removed twice: %v", err)
		}
		pass(time.Minute)
		if !f.file(first) || f.storedBytes() != 50 {
			t.Errorf("a file of a message is gone, or counted wrong: %d bytes", f.storedBytes())
		}
		f.delete(ticket)
		pass(time.Minute)
		if f.file(first) || !f.file(second) || f.storedBytes() != 20 {
			t.Errorf("after the ticket was deleted: %t %t, %d bytes", f.file(first), f.file(second), f.storedBytes())
		}
		if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.DeleteMacroTx(t.Context(), tx, orgA, "", m.ID) }); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if f.file(second) || f.storedBytes() != 0 || f.count("macro_files") != 0 {
			t.Errorf("after the macro was deleted: %t, %d bytes, %d rows", f.file(second), f.storedBytes(), f.count("macro_files"))
		}
	}, limited(quota.Limits{quota.Storage: 1000}))
}

// TestMacroByMail: a macro's reply by mail is rendered and signed like another one, and has the
// macro's files; a picture is where the text places it.
func TestMacroByMail(t *testing.T) {
	f, _ := signed(t, "*Grace*", "")
	one := f.intake(mail("ana@c.example", "m1@c.example"))
	m := f.macro(desk.Macro{Name: "Manual", Text: "See **it**: ![map](attachment:map.png)"})
	m, err := f.addFiles(m, channel.Attachment{Name: "a.txt", Data: []byte("a")}, channel.Attachment{Name: "map.png", ContentType: "image/png", Data: []byte("map")})
	if err != nil {
		t.Fatal(err)
	}
	check := func(what, id string) {
		t.Helper()
		got, w := f.last(one.TicketID), f.waiting(id)
		if got.ID != id || len(got.Attachments) != 2 || !got.Details.Markdown || !strings.Contains(got.HTML, "<strong>it</strong>") {
			t.Fatalf("%s is %q with %+v", what, got.HTML, got.Attachments)
		}
		if len(w.Files) != 2 || f.content(w.File(0)) != "a" || f.content(w.File(1)) != "map" || w.Files[1].ContentID == "" || !strings.Contains(w.HTML, `src="cid:`+w.Files[1].ContentID+`"`) {
			t.Errorf("%s leaves as %q with %+v", what, w.HTML, w.Files)
		}
		if !strings.HasSuffix(w.Text, "-- \n*Grace*") || !strings.Contains(w.HTML, "<em>Grace</em>") {
			t.Errorf("%s is signed %q, %q", what, w.Text, w.HTML)
		}
	}
	done, err := f.apply(desk.MacroApplication{MacroID: m.ID, TicketID: one.TicketID, By: grace})
	if err != nil {
		t.Fatal(err)
	}
	check("the macro's reply", done.ReplyID)
	// As a dashboard does: the member's text with the files.
	content := f.compose(desk.Draft{Text: m.Text})
	reply, err := write(f, func(tx *db.Tx) (desk.Message, error) {
		content := content
		if err := f.desk.AttachMacroFilesTx(t.Context(), tx, orgA, "", m.ID, []string{m.Files[0].ID, m.Files[1].ID}, &content); err != nil {
			return desk.Message{}, err
		}
		return f.desk.ReplyTx(t.Context(), tx, orgA, one.TicketID, desk.Reply{By: grace, Content: content})
	})
	if err != nil {
		t.Fatal(err)
	}
	check("the composed reply", reply.ID)
}

func TestMacroFileLimits(t *testing.T) {
	f := newFixture(t, limited(quota.Limits{quota.Storage: 15 << 20}))
	m := f.macro(desk.Macro{Name: "Manual", Text: "See the file."})
	wrong := func(what string, err error) {
		t.Helper()
		if p, _ := errors.AsType[*problem.Error](err); p == nil || p.Kind != problem.Invalid || len(p.Issues) != 1 || p.Issues[0].Path != "attachments" {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := f.addFiles(m, attached(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)...)
	wrong("eleven files", err)
	_, err = f.addFiles(m, attached(6<<20, 5<<20)...)
	wrong("too many bytes", err)
	if m, err = f.addFiles(m, attached(6<<20)...); err != nil {
		t.Fatal(err)
	}
	_, err = f.addFiles(m, attached(5<<20)...)
	wrong("too many bytes with those that are there", err)
	_, err = f.addFiles(f.macro(desk.Macro{Name: "Other", Text: "x"}), attached(10<<20)...)
	wantCode(t, "beyond the quota", err, quota.CodeExceeded)
	if n := f.storedBytes(); n != 6<<20 || f.count("macro_files") != 1 {
		t.Errorf("stored are %d bytes in %d files", n, f.count("macro_files"))
	}
}

// TestPrivateMacroFiles: files of a member's own macro are theirs alone, and go with the member.
func TestPrivateMacroFiles(t *testing.T) {
	f := newFixture(t, limited(quota.Limits{quota.Storage: 1000}))
	own := f.macro(desk.Macro{Name: "Own", OwnerID: graceID, Text: "x"})
	own, err := f.addFiles(own, attached(10)...)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := f.addFiles(f.macro(desk.Macro{Name: "Shared", Text: "x"}), attached(20)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []struct {
		org, member string
		own, shared bool
	}{{orgA, graceID, true, true}, {orgA, fredID, false, true}, {orgA, "", false, true}, {orgB, graceID, false, false}, {orgB, "", false, false}} {
		for _, m := range []struct {
			macro desk.Macro
			ok    bool
		}{{own, who.own}, {shared, who.shared}} {
			_, content, err := f.desk.OpenMacroFile(t.Context(), who.org, who.member, m.macro.Files[0].ID)
			if err == nil {
				content.Close()
			}
			attach := f.db.Write(t.Context(), func(tx *db.Tx) error {
				var c desk.Content
				return f.desk.AttachMacroFilesTx(t.Context(), tx, who.org, who.member, m.macro.ID, []string{m.macro.Files[0].ID}, &c)
			})
			if (err == nil) != m.ok || (attach == nil) != m.ok || !m.ok && (problem.Of(err) != problem.NotFound || problem.Of(attach) != problem.NotFound) {
				t.Errorf("%s for %v: read %v, attached %v", m.macro.Name, who, err, attach)
			}
		}
	}
	// Files of another macro are not attached.
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		var c desk.Content
		err := f.desk.AttachMacroFilesTx(t.Context(), tx, orgA, graceID, shared.ID, []string{own.Files[0].ID}, &c)
		if !c.Empty() {
			t.Error("a file of another macro was attached")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error { return f.desk.UnassignTx(t.Context(), tx, orgA, graceID) }); err != nil {
		t.Fatal(err)
	}
	if n := f.storedBytes(); n != 20 || f.count("macro_files") != 1 {
		t.Errorf("after she left: %d bytes in %d files", n, f.count("macro_files"))
	}
}
