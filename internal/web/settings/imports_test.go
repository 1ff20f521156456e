package settings_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/importer"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// ended waits until the import at a path is over.
func (h *harness) ended(t *testing.T, path string) importer.Run {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := h.imports.Get(t.Context(), h.DB, h.Organization.ID, path[strings.LastIndexByte(path, '/')+1:])
		if err != nil {
			t.Fatal(err)
		}
		switch r.State {
		case importer.Done, importer.Failed, importer.Undone:
			return r
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the import is %s", r.State)
		}
	}
}

// TestImport: an admin uploads a file, sees the report of the dry run, imports, and undoes it.
func TestImport(t *testing.T) {
	const path = "/settings/import"
	h := newHarness(t)
	if err := h.queue.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.queue.Stop(context.Background()) })
	admin, agent := h.SignIn(h.Admin), h.SignIn(h.Agent)
	agent.WantRefused(agent.Get(path), http.StatusForbidden)
	admin.Page(path).Want("No imports yet.", "At most 32 MB.", "kickstand import mbox ./mail --org")

	form := url.Values{"source": {importer.CSV}, "dry": {"on"}, "ours": {"old@acme.example"}}
	if w := admin.PostFiles(path, form); w.Code != http.StatusConflict && w.Code != http.StatusUnprocessableEntity {
		t.Errorf("without a file: got %d", w.Code)
	}
	file := web.File{Name: "tickets.csv", ContentType: "text/csv", Data: []byte("ticket_id,subject,customer_email,message_at,text\n" +
		"1,Lock,ada@rider.example,2024-05-01,It stays locked.\n2,Bill,bob@rider.example,yesterday,Where is it?\n")}
	w := admin.PostFiles(path, form, file)
	dry := w.Header().Get("Location")
	if w.Code != http.StatusSeeOther || !strings.HasPrefix(dry, path+"/") {
		t.Fatalf("got %d to %q: %s", w.Code, dry, w.Body)
	}
	if r := h.ended(t, dry); r.State != importer.Done || !r.Dry || r.Counts.Tickets != 1 {
		t.Fatalf("dry run: %+v", r)
	}
	admin.Page(dry).Want("Dry run: done", "A dry run writes nothing.", "line 3", "yesterday")
	agent.WantRefused(agent.Post(dry, nil), http.StatusForbidden)

	w = admin.Post(dry, nil)
	real := w.Header().Get("Location")
	if r := h.ended(t, real); r.State != importer.Done || r.Dry || r.Counts.Tickets != 1 || r.Uploaded() {
		t.Fatalf("import: %+v", r)
	}
	admin.Page(real).Want("Done", "tickets.csv", "Undo import")
	admin.Page(path).Want("tickets.csv", "Done")
	if w := admin.Post(dry, nil); w.Header().Get("Location") != dry {
		t.Errorf("a second start: got %d to %q", w.Code, w.Header().Get("Location"))
	}

	admin.Page(real + "/undo").Want("Tickets with later messages stay.")
	admin.Post(real+"/undo", nil)
	if r := h.ended(t, real); r.State != importer.Undone || r.Counts.Removed.Tickets != 1 {
		t.Fatalf("undo: %+v", r)
	}
	admin.Page(real).Want("Undone", "Deleted tickets")
	// An undo that failed for good offers the button again.
	if err := h.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE imports SET state = 'undoing', error = 'the database is damaged' WHERE id = $1", real[strings.LastIndexByte(real, '/')+1:])
		return err
	}); err != nil {
		t.Fatal(err)
	}
	admin.Page(real).Want("the database is damaged", "Undo import")
	admin.Post(real+"/undo", nil)
	if r := h.ended(t, real); r.State != importer.Undone || r.Error != "" {
		t.Fatalf("undo again: %+v", r)
	}

	// What is no source fails with a reason.
	w = admin.PostFiles(path, url.Values{"source": {importer.CSV}}, web.File{Name: "bill.csv", ContentType: "text/csv", Data: []byte("a,b\n1,2\n")})
	if r := h.ended(t, w.Header().Get("Location")); r.State != importer.Failed {
		t.Fatalf("a file without tickets: %+v", r)
	}
	admin.Page(w.Header().Get("Location")).Want("Failed", "the column ticket_id is missing", "Continue")
	other := url.Values{"source": {"fax"}}
	if w := admin.PostFiles(path, other, file); w.Code != http.StatusUnprocessableEntity {
		t.Errorf("an unknown source: got %d", w.Code)
	}
}
