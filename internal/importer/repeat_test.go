package importer_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/importer"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// TestRepeatedIDs: an id that is there twice costs neither the import nor another record.
func TestRepeatedIDs(t *testing.T) {
	write := func(r *rig, source string, files map[string]string) importer.Run {
		r.Helper()
		return r.run(importer.New{OrganizationID: org, Source: source, Path: folderOf(r, files)})
	}
	t.Run("deleted thread", func(t *testing.T) {
		r := newRig(t)
		const answer = "From bob@rider.example Tue May  7 12:00:00 2024\nFrom: bob@rider.example\nTo: help@acme.example\nSubject: Re: Bill\nDate: Tue, 07 May 2024 12:00:00 +0000\n" +
			"Message-ID: <b2@rider.example>\nIn-Reply-To: <b1@rider.example>\n\nAnd?\n\n"
		first := write(r, importer.Mbox, map[string]string{"a.mbox": answer})
		r.execute("DELETE FROM message_ids")
		r.execute("DELETE FROM messages")
		r.execute("DELETE FROM conversations")
		r.execute("DELETE FROM tickets")
		second := write(r, importer.Mbox, map[string]string{"a.mbox": "From bob@rider.example Tue May  7 11:00:00 2024\nFrom: bob@rider.example\nTo: help@acme.example\nSubject: Bill\nDate: Tue, 07 May 2024 11:00:00 +0000\n" +
			"Message-ID: <b1@rider.example>\n\nWhere is it?\n\n" + answer})
		if c := second.Counts; first.Counts.Messages != 1 || c.Messages != 1 || c.Known != 1 || second.State != importer.Done {
			t.Errorf("%+v, then %+v", first.Counts, second)
		}
	})
	t.Run("mail without id in two files", func(t *testing.T) {
		r := newRig(t)
		const root = "From bob@rider.example Tue May  7 11:00:00 2024\nFrom: bob@rider.example\nTo: help@acme.example\nSubject: Bill\nDate: Tue, 07 May 2024 11:00:00 +0000\nMessage-ID: <b1@rider.example>\n\nWhere is it?\n\n"
		const noID = "From bob@rider.example Tue May  7 12:00:00 2024\nFrom: bob@rider.example\nTo: help@acme.example\nSubject: Re: Bill\nDate: Tue, 07 May 2024 12:00:00 +0000\nIn-Reply-To: <b1@rider.example>\n\nAnd?\n\n"
		run := write(r, importer.Mbox, map[string]string{"a.mbox": root + noID, "b.mbox": noID})
		if c := run.Counts; c.Tickets != 1 || c.Messages != 2 || c.Known != 1 {
			t.Errorf("%+v", c)
		}
	})
	t.Run("zendesk", func(t *testing.T) {
		r := newRig(t)
		ticket := func(id, comment string) string {
			return `{"id":` + id + `,"subject":"Lock","status":"solved","requester_id":1,"created_at":"2022-05-06T08:00:00Z","comments":[` +
				`{"id":` + comment + `,"author_id":1,"body":"It stays locked.","created_at":"2022-05-06T08:00:00Z","attachments":[{"id":9,"file_name":"a.txt"}]}]}`
		}
		r.imports.SetBatch(1)
		run := write(r, importer.Zendesk, map[string]string{
			"tickets.json":           `{"tickets":[` + ticket("1", "7") + "," + ticket("2", "7") + "," + ticket("3", "8") + `],"users":[{"id":1,"name":"Ada","email":"ada@rider.example","role":"end-user"}]}`,
			"attachments/9/a.txt":    "text",
			"attachments/unused.txt": "text",
		})
		if c := run.Counts; c.Tickets != 2 || c.Messages != 2 || c.Known != 1 || c.Files != 2 {
			t.Errorf("%+v", run)
		}
		if got := r.rows("SELECT size FROM attachments"); !slices.Equal(got, []string{"4", "4"}) {
			t.Errorf("sizes of files: %q", got)
		}
	})
	t.Run("csv", func(t *testing.T) {
		r := newRig(t)
		run := write(r, importer.CSV, map[string]string{"a.csv": "ticket_id,message_id,customer_email,message_at,text\n" +
			"a/b,c,ada@rider.example,2024-05-01,One\na,b/c,ada@rider.example,2024-05-01,Two\nx,row-2,ada@rider.example,2024-05-01,Three\nx,,ada@rider.example,2024-05-02,Four\n"})
		if c := run.Counts; c.Tickets != 3 || c.Messages != 4 || c.Known != 0 || c.Problems != 0 {
			t.Errorf("%+v", run)
		}
	})
}

// TestNoSecrets: the address of a file, which may have a token, is in no row.
func TestNoSecrets(t *testing.T) {
	r := newRig(t)
	r.imports.SetPublic(files{})
	n := importer.New{OrganizationID: org, Source: importer.Zendesk, Path: folderOf(r, map[string]string{
		"tickets.json": `{"tickets":[{"id":1,"subject":"Lock","status":"solved","requester_id":1,"created_at":"2022-05-06T08:00:00Z","comments":[` +
			`{"id":7,"author_id":1,"body":"Text","created_at":"2022-05-06T08:00:00Z","attachments":[{"id":9,"file_name":"a.txt","content_url":"https://files.invalid/a.txt?token=geheim"}]}]}],` +
			`"users":[{"id":1,"name":"Ada","email":"ada@rider.example","role":"end-user"}]}`,
	})}
	run := r.run(n)
	if run.Counts.MissingFiles != 1 {
		t.Fatalf("%+v", run)
	}
	all := strings.Join(append(r.dump(), r.rows("SELECT problems FROM imports")...), "\n")
	if !strings.Contains(all, "no such host") || strings.Contains(all, "geheim") {
		t.Errorf("problems: %+v", run.Problems)
	}
}

// TestRecordsHaveNoAddresses: the records of an import have no personal data.
func TestRecordsHaveNoAddresses(t *testing.T) {
	r := newRig(t)
	r.run(imported(importer.Mbox, org))
	if got := r.rows("SELECT external_id FROM import_records WHERE external_id LIKE '%@%'"); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// TestMergedTwice: a person at the source whose customer was merged, and the survivor too, is the last
// survivor.
func TestMergedTwice(t *testing.T) {
	r := newRig(t)
	ticket := func(id string) importer.New {
		return importer.New{OrganizationID: org, Source: importer.Zendesk, Path: folderOf(r, map[string]string{
			"tickets.json": `{"tickets":[{"id":` + id + `,"subject":"Lock","status":"solved","requester_id":1,"created_at":"2022-05-06T08:00:00Z","comments":[` +
				`{"id":` + id + `,"author_id":1,"body":"Text","created_at":"2022-05-06T08:00:00Z"}]}],"users":[{"id":1,"name":"Ada","role":"end-user"}]}`,
		})}
	}
	r.run(ticket("1"))
	last := r.rows("SELECT id FROM customers")[0]
	for _, address := range []string{"b@rider.example", "c@rider.example"} {
		next := r.receive(&channel.Mail{MessageID: address}, channel.Party{Email: address}, "Live", "Text").CustomerID
		if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := r.desk.MergeCustomersTx(t.Context(), tx, org, last, next)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		last = next
	}
	run := r.run(ticket("2"))
	if got := r.rows("SELECT DISTINCT customer_id FROM tickets"); !slices.Equal(got, []string{last}) || run.Counts.Customers != 0 {
		t.Errorf("customers %q, want %q; %+v", got, last, run.Counts)
	}
}

// TestErasure: the erasure of a customer leaves nothing of it in the records and reports of imports.
func TestErasure(t *testing.T) {
	r := newRig(t)
	r.run(imported(importer.Mbox, org))
	ada := r.rows("SELECT id FROM customers WHERE email = 'ada@rider.example'")[0]
	r.execute(`UPDATE imports SET error = 'ticket zendesk-1: ada@rider.example is wrong', problems = '[{"where":"line 3","reason":"the author Ada Rider is unknown"},
		{"where":"file lock.png","reason":"of ticket The lock does not open: it is missing"},{"where":"line 9","reason":"ticket_id is missing"}]'`)
	if err := r.desk.Redact(t.Context(), org, ada); err != nil {
		t.Fatal(err)
	}
	if got := r.rows("SELECT error, problems FROM imports"); !slices.Equal(got, []string{`(redacted) | [{"where":"line 9","reason":"ticket_id is missing"}]`}) {
		t.Errorf("imports %q", got)
	}
	if got := r.rows("SELECT external_id FROM import_records WHERE record_id = $1", ada); len(got) > 0 {
		t.Errorf("records %q", got)
	}
	before := r.rows("SELECT id, body FROM messages ORDER BY id")
	r.run(imported(importer.Mbox, org))
	if after := r.rows("SELECT id, body FROM messages ORDER BY id"); !slices.Equal(before, after) {
		t.Errorf("a further run brought messages back: %q", difference(before, after))
	}
}

// TestUploadBesideOlderPrograms: an upload is refused while a program may be running that would delete
// its content.
func TestUploadBesideOlderPrograms(t *testing.T) {
	r := newRig(t)
	if !r.db.Postgres() {
		t.Skip("SQLite has one server, so no older program runs beside it")
	}
	r.execute("UPDATE schema_floor SET version = 73")
	n := importer.New{OrganizationID: org, Source: importer.CSV, Dry: true}
	if _, err := r.imports.Upload(t.Context(), n, []byte("ticket_id,message_at\n")); problem.Of(err) != problem.Conflict || len(r.rows("SELECT id FROM imports")) > 0 {
		t.Errorf("got %v", err)
	}
	r.execute("UPDATE schema_floor SET version = 74")
	if _, err := r.imports.Upload(t.Context(), n, []byte("ticket_id,message_at\n")); err != nil {
		t.Error(err)
	}
}

// TestOldUploads: the upload of a dry run waits a week, then its content is deleted.
func TestOldUploads(t *testing.T) {
	r := newRig(t)
	run, err := r.imports.Upload(t.Context(), importer.New{OrganizationID: org, Source: importer.CSV, Dry: true}, []byte("ticket_id,message_at\n"))
	if err != nil {
		t.Fatal(err)
	}
	key := r.rows("SELECT file_key FROM imports")[0]
	stored := func() bool {
		t.Helper()
		if err := r.imports.PurgeUploads(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := r.imports.Get(t.Context(), r.db, org, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got.Uploaded()
	}
	age := func(days int) {
		r.execute("UPDATE imports SET state = 'done', updated_at = $1", r.db.Now().AddDate(0, 0, -days).UnixMicro())
	}
	if age(6); !stored() {
		t.Error("deleted after six days")
	}
	if age(8); stored() {
		t.Error("there after eight days")
	}
	if jobs := r.rows("SELECT payload FROM jobs WHERE kind = 'desk.forget'"); len(jobs) != 1 || !strings.Contains(jobs[0], key) {
		t.Errorf("jobs %q do not delete %s", jobs, key)
	}
	if _, err := r.imports.Start(t.Context(), org, run.ID, graceID); problem.Of(err) != problem.Conflict {
		t.Errorf("started without a file: %v", err)
	}
}
