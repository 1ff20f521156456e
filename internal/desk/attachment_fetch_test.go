package desk_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// promising is a text with a pending file, shown in its HTML.
func promising() desk.InboundEvent {
	in := text(number, "look")
	in.Event.Message.ExternalID = "SM1"
	in.Event.Message.HTML = `<p><img src="cid:a@b"></p>`
	in.Event.Message.Attachments = []channel.Attachment{{Name: "a.png", ContentType: "image/png", ContentID: "a@b", Inline: true, URL: "https://far.example/a"}}
	in.FetchJobs = []desk.FetchJob{{Lane: "far.example", Payload: []byte(`{}`)}}
	return in
}

// completeFile completes the file of an attachment.
func (f *fixture) completeFile(id string, file desk.File) {
	f.Helper()
	f.write("keep a file", func(tx *db.Tx) error { return f.desk.CompleteFileTx(f.Context(), tx, id, file) })
}

// TestPendingFile: a message with a pending file has a link that works once the
// file is fetched.
func TestPendingFile(t *testing.T) {
	var changed []string
	box := seal.New(seal.NewKey())
	f := newFixture(t, func(c *desk.Config) {
		c.Box = box
		c.Changed = func(_, ticketID string) { changed = append(changed, ticketID) }
	})
	r := f.intake(promising())
	a := f.messages(r.TicketID)[0].Attachments[0]
	if !a.Pending || a.BlobKey != "" || a.Error != "" {
		t.Fatalf("attachment %+v, want it to be pending", a)
	}
	var job string
	if err := f.db.QueryRow(t.Context(), "SELECT lane FROM jobs WHERE id = $1 AND kind = $2", a.ID, desk.FetchKind).Scan(&job); err != nil || job != "far.example" {
		t.Errorf("the job is in lane %q, %v", job, err)
	}
	var told event.Message
	for _, e := range f.log {
		if e.Name == event.MessageCreated {
			told = *e.Data.Message
		}
	}
	if len(told.Attachments) != 1 || told.Attachments[0].Size != nil || !strings.Contains(told.Attachments[0].URL, "&until=") ||
		!strings.Contains(told.HTML, a.ID+"?sig=") {
		raw, _ := json.Marshal(told)
		t.Fatalf("the event has %s, want a signed link without a size", raw)
	}
	_, query, _ := strings.Cut(told.Attachments[0].URL, "?sig=")
	sig, until, _ := strings.Cut(query, "&until=")
	missing := func(what string, retry time.Duration, err error) {
		t.Helper()
		if p, _ := err.(*problem.Error); p == nil || p.Kind != problem.NotFound || p.RetryAfter != retry {
			t.Errorf("%s: got %+v", what, err)
		}
	}
	_, _, err := f.desk.OpenShared(t.Context(), a.ID, until, sig)
	missing("the link before", 10*time.Second, err)
	_, _, err = f.desk.OpenAttachment(t.Context(), orgA, a.ID)
	missing("the file before", 10*time.Second, err)
	if same := f.intake(promising()); same.Outcome != desk.Duplicate || f.count("attachments") != 1 {
		t.Errorf("the same again is %+v", same)
	}

	f.emitted()
	changed = nil
	ref, err := f.blob.Put(t.Context(), strings.NewReader("PNG"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // like a process that died between the two
		f.completeFile(a.ID, desk.File{Ref: ref, Name: "b.png", ContentType: "image/jpeg"})
	}
	got, content, err := f.desk.OpenShared(t.Context(), a.ID, until, sig)
	if err != nil {
		t.Fatal(err)
	}
	content.Close()
	if got.Pending || got.Size != 3 || got.Name != "b.png" || got.ContentType != "image/jpeg" {
		t.Errorf("the file is %+v", got)
	}
	if len(changed) != 1 || changed[0] != r.TicketID || f.emitted() != "" {
		t.Errorf("told of %q, want the open pages to hear of it once", changed)
	}
}

// TestMissedFile: an attachment shows why its file could not be fetched, and has no
// link.
func TestMissedFile(t *testing.T) {
	f := newFixture(t)
	r := f.intake(promising())
	a := f.messages(r.TicketID)[0].Attachments[0]
	f.write("miss a file", func(tx *db.Tx) error { return f.desk.FailFileTx(t.Context(), tx, a.ID, "it is gone") })
	f.completeFile(a.ID, desk.File{Ref: blob.Ref{Key: strings.Repeat("a", 64), Size: 1}}) // too late
	got := f.messages(r.TicketID)[0].Attachments[0]
	if got.Pending || got.BlobKey != "" || got.Error != "it is gone" {
		t.Errorf("attachment %+v", got)
	}
	_, _, err := f.desk.OpenAttachment(t.Context(), orgA, a.ID)
	if p, _ := err.(*problem.Error); p == nil || p.Kind != problem.NotFound || p.RetryAfter != 0 {
		t.Errorf("got %v", err)
	}
}

// TestPendingFileMerged: a file follows its message into the survivor.
func TestPendingFileMerged(t *testing.T) {
	var changed []string
	f := newFixture(t, func(c *desk.Config) { c.Changed = func(_, ticketID string) { changed = append(changed, ticketID) } })
	r := f.intake(promising())
	a := f.messages(r.TicketID)[0].Attachments[0]
	other := f.intake(text("+4915100000009", "me, too"))
	if _, err := f.merge(orgA, r.TicketID, other.TicketID); err != nil {
		t.Fatal(err)
	}
	changed = nil
	ref, err := f.blob.Put(t.Context(), strings.NewReader("PNG"))
	if err != nil {
		t.Fatal(err)
	}
	f.completeFile(a.ID, desk.File{Ref: ref, ContentType: "image/png"})
	if len(changed) != 1 || changed[0] != other.TicketID {
		t.Errorf("told of %q, want the survivor", changed)
	}
	if n := len(f.messages(other.TicketID)); n != 2 {
		t.Errorf("%d messages", n)
	}
}

// TestSameMailWithPromises: a repeated mail is recognized whether or not its files
// are fetched.
func TestSameMailWithPromises(t *testing.T) {
	f := newFixture(t)
	ref := func(content string) blob.Ref {
		r, err := f.blob.Put(t.Context(), strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	contained, other := ref("one"), ref("two")
	first := ""
	arrive := func(files ...blob.Ref) desk.Outcome {
		in := mail("ana@c.example", "1@c.example")
		for i, r := range files {
			in.Event.Message.Attachments = append(in.Event.Message.Attachments, channel.Attachment{Name: "f", URL: "https://far.example/f"})
			in.Files = append(in.Files, r)
			in.FetchJobs = append(in.FetchJobs, desk.FetchJob{})
			if r.Key == "" {
				in.FetchJobs[i] = desk.FetchJob{Lane: "l", Payload: []byte("{}")}
			}
		}
		r := f.intake(in)
		if first == "" {
			first = r.TicketID
		}
		return r.Outcome
	}
	arrive(contained, blob.Ref{})
	if got := arrive(contained, blob.Ref{}); got != desk.Duplicate {
		t.Errorf("while the file is fetched: %s", got)
	}
	for _, a := range f.messages(first)[0].Attachments {
		if a.Pending {
			f.completeFile(a.ID, desk.File{Ref: other, ContentType: "x/y"})
		}
	}
	for _, files := range [][]blob.Ref{{contained, {}}, {other, contained}, {{}, {}}} {
		if got := arrive(files...); got != desk.Duplicate {
			t.Errorf("with %v: %s", files, got)
		}
	}
	for _, files := range [][]blob.Ref{{contained}, {contained, ref("three")}, {ref("four"), {}}} {
		if got := arrive(files...); got == desk.Duplicate {
			t.Errorf("with %v: %s, want another mail", files, got)
		}
	}
}
