package desk_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/quota/quotatest"
)

// limited gives all organizations limits, and a way to send.
func limited(limits quota.Limits) func(*desk.Config) {
	return func(c *desk.Config) {
		c.Dispatcher = dispatcher{}
		c.Quotas = quotatest.Open(c.DB, c.Queue, limits)
	}
}

func (f *fixture) tryReply(org, ticketID string, w desk.Content) error {
	return f.db.Write(f.Context(), func(tx *db.Tx) error {
		_, err := f.desk.ReplyTx(f.Context(), tx, org, ticketID, desk.Reply{By: grace, Content: w})
		return err
	})
}

func attached(sizes ...int) (list []channel.Attachment) {
	for i, n := range sizes {
		list = append(list, channel.Attachment{Name: fmt.Sprint("file-", i), ContentType: "text/plain", Data: bytes.Repeat([]byte{byte('a' + i)}, n)})
	}
	return list
}

// mailWith is a mail with files.
func mailWith(id string, sizes ...int) desk.InboundEvent {
	in := mail("ana@c.example", id)
	in.Event.Message.Attachments = attached(sizes...)
	return in
}

func wantCode(t testing.TB, what string, err error, code string) {
	t.Helper()
	if p, _ := err.(*problem.Error); p == nil || p.Code != code {
		t.Errorf("%s: got %v, want %s", what, err, code)
	}
}

// TestMessageQuota: of simultaneous replies as many are written as the day has left, with their
// events and jobs. Customers' messages, automatic replies and notes go on.
func TestMessageQuota(t *testing.T) {
	f := newFixture(t, limited(quota.Limits{quota.Messages: 10}))
	var tickets []string
	for n := range 4 {
		tickets = append(tickets, f.intake(text(fmt.Sprintf("+491511234567%d", n), "hello")).TicketID)
	}
	says := f.compose(desk.Draft{Text: "x"})
	var wg sync.WaitGroup
	var mu sync.Mutex
	sent := 0
	for n := range 24 {
		wg.Go(func() {
			if f.tryReply(orgA, tickets[n%len(tickets)], says) == nil {
				mu.Lock()
				sent++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if sent != 6 || f.count("outbox") != 6 || f.count("messages") != 10 || quotatest.Messages(t, f.db, orgA) != 10 {
		t.Fatalf("%d of 6 replies were sent, %d in the outbox, %d messages, %d counted", sent, f.count("outbox"), f.count("messages"), quotatest.Messages(t, f.db, orgA))
	}
	wantCode(t, "a reply", f.tryReply(orgA, tickets[0], says), quota.CodeDailyExceeded)
	_, err := f.desk.Compose(t.Context(), orgA, desk.Draft{Text: "x"})
	wantCode(t, "before the reply", err, quota.CodeDailyExceeded)
	n := desk.NewTicket{Subject: "s", Customer: &desk.Person{Email: "bo@c.example"}, By: grace, Content: says}
	_, err = f.create(orgA, n)
	wantCode(t, "a ticket with a message", err, quota.CodeDailyExceeded)
	n.Content = desk.Content{}
	if _, err := f.create(orgA, n); err != nil {
		t.Errorf("a ticket without a message: %v", err)
	}
	if _, err := f.note(orgA, tickets[0], grace, desk.Draft{Text: "a note", Note: true}); err != nil {
		t.Errorf("a note: %v", err)
	}
	if r := f.intake(text("+4915112345670", "hello?")); r.Outcome != desk.Appended {
		t.Errorf("a customer's message: %+v", r)
	}
	if r := f.intake(text("+4915112345670", "hello?")); r.Outcome != desk.Duplicate {
		t.Errorf("again: %+v", r)
	}
	if r, answered := f.acknowledge(mail("ana@c.example", "a1@c.example")); r.Outcome != desk.TicketCreated || !answered {
		t.Errorf("a customer's mail: %+v, answered %v", r, answered)
	}
	if n := quotatest.Messages(t, f.db, orgA); n != 13 {
		t.Errorf("counted %d messages, want 13", n)
	}

	other := text(number, "of B")
	other.OrganizationID, other.ConnectionID = orgB, smsB
	r := f.intake(other)
	if err := f.tryReply(orgB, r.TicketID, says); err != nil || quotatest.Messages(t, f.db, orgB) != 2 {
		t.Errorf("the other organization: %v, %d messages", err, quotatest.Messages(t, f.db, orgB))
	}
	f.wantInvariants(t)
}

// TestStorageQuota: files of customers are stored beyond the limit, those of members are refused
// before they are stored, and deletion gives back what was counted.
func TestStorageQuota(t *testing.T) {
	folder := t.TempDir()
	f := newFixture(t, limited(quota.Limits{quota.Storage: 1000}), func(c *desk.Config) { c.Blob = openFolder(t, folder) })
	want := func(what string, bytes int64) {
		t.Helper()
		if got := quotatest.Storage(t, f.db, orgA); got != bytes {
			t.Errorf("%s: counted %d bytes, want %d", what, got, bytes)
		}
		quotatest.WantSums(t, f.db, desk.CountedFiles)
	}
	first := f.intake(mailWith("a1@c.example", 300, 200))
	f.intake(mailWith("a1@c.example", 300, 200))
	want("a mail, twice", 500)
	if err := f.tryReply(orgA, first.TicketID, f.compose(desk.Draft{Text: "x", Attachments: attached(400)})); err != nil {
		t.Fatal(err)
	}
	want("a reply", 900)

	// Just below the limit, both pass the check before, and only one is written.
	fits := f.compose(desk.Draft{Note: true, Attachments: attached(80)})
	var wg sync.WaitGroup
	var mu sync.Mutex
	added := 0
	for range 8 {
		wg.Go(func() {
			if _, err := write(f, func(tx *db.Tx) (desk.Message, error) {
				return f.desk.AddNoteTx(t.Context(), tx, orgA, first.TicketID, grace, fits)
			}); err == nil {
				mu.Lock()
				added++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if added != 1 {
		t.Errorf("added %d notes, want 1", added)
	}
	want("simultaneous notes", 980)
	before := len(storedFiles(t, folder))
	_, err := f.note(orgA, first.TicketID, grace, desk.Draft{Text: "see", Note: true, Attachments: attached(0, 0, 21)})
	wantCode(t, "a note with a file", err, quota.CodeExceeded)
	if _, err := f.note(orgA, first.TicketID, grace, desk.Draft{Text: "no file", Note: true}); err != nil {
		t.Errorf("a note: %v", err)
	}
	if now := len(storedFiles(t, folder)); now != before {
		t.Errorf("a refused file is stored: %d files before, %d now", before, now)
	}

	second := f.intake(mailWith("a2@c.example", 5000))
	want("a mail beyond the limit", 5980)
	if m := f.messages(second.TicketID); len(m) != 1 || m[0].Attachments[0].BlobKey == "" {
		t.Errorf("a mail beyond the limit: %+v", m)
	}
	moved := f.messages(first.TicketID)
	apart, err := f.split(orgA, first.TicketID, moved[1].ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.merge(orgA, apart.ID, second.TicketID); err != nil {
		t.Fatal(err)
	}
	want("a split and a merge", 5980)
	f.delete(second.TicketID)
	want("a deletion", 580)
	if err := f.desk.Redact(t.Context(), orgA, first.CustomerID); err != nil {
		t.Fatal(err)
	}
	want("a redaction", 0)
	if n := quotatest.Storage(t, f.db, orgB); n != 0 {
		t.Errorf("the other organization has %d bytes", n)
	}
}

func openFolder(t testing.TB, path string) blob.Store {
	t.Helper()
	s, err := blob.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// storedFiles lists the files of a store.
func storedFiles(t testing.TB, folder string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(folder, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestFetchedFilesAreCounted: files behind links and pictures of mails are counted once they are
// stored.
func TestFetchedFilesAreCounted(t *testing.T) {
	f := newFixture(t, limited(quota.Limits{quota.Storage: 10}))
	want := func(what string, bytes int64) {
		t.Helper()
		if got := quotatest.Storage(t, f.db, orgA); got != bytes {
			t.Errorf("%s: counted %d bytes, want %d", what, got, bytes)
		}
		quotatest.WantSums(t, f.db, desk.CountedFiles)
	}
	ref, err := f.blob.Put(t.Context(), strings.NewReader("a fetched file"))
	if err != nil {
		t.Fatal(err)
	}
	r := f.intake(promising())
	want("pending", 0)
	m := f.messages(r.TicketID)[0]
	f.completeFile(m.Attachments[0].ID, desk.File{Ref: ref})
	f.completeFile(m.Attachments[0].ID, desk.File{Ref: ref})
	want("fetched", 14)
	for range 2 { // the second one was slower than the claim
		f.write("load a picture", func(tx *db.Tx) error {
			if _, err := f.desk.ClaimPictureTx(t.Context(), tx, m.ID, "digest"); err != nil {
				return err
			}
			return f.desk.CompletePictureTx(t.Context(), tx, &m, "digest", desk.Picture{BlobKey: ref.Key, Size: ref.Size, ContentType: "image/png"})
		})
	}
	f.write("fail to load a picture", func(tx *db.Tx) error {
		if _, err := f.desk.ClaimPictureTx(t.Context(), tx, m.ID, "other"); err != nil {
			return err
		}
		return f.desk.CompletePictureTx(t.Context(), tx, &m, "other", desk.Picture{Error: "it is not a picture"})
	})
	want("a picture", 28)
	f.delete(r.TicketID)
	want("deleted", 0)
}

// TestCountFiles: files from before the limit, and of a previous version of the program, are
// counted later, beside writers, and only of organizations with a limit.
func TestCountFiles(t *testing.T) {
	d := dbtest.New(t)
	before := fixtureOn(t, d)
	var tickets []string
	for n := range 30 {
		tickets = append(tickets, before.intake(mailWith(fmt.Sprintf("a%d@c.example", n), 10, 20)).TicketID)
	}
	other := mailWith("b@c.example", 99)
	other.OrganizationID, other.ConnectionID = orgB, mailB
	before.intake(other)
	if n := before.count("quotas"); n != 0 {
		t.Fatalf("%d rows without a limit", n)
	}

	f := fixtureOn(t, d, limited(quota.Limits{quota.Storage: 1 << 30}))
	f.delete(tickets[0]) // uncounted, so it gives nothing back
	if n := quotatest.Storage(t, d, orgA); n != 0 {
		t.Errorf("deleting an uncounted file: %d bytes", n)
	}
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			if err := f.desk.CountFiles(t.Context(), orgA); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if err := f.tryDelete(orgA, tickets[1+n]); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if _, err := f.tryIntake(mailWith(fmt.Sprintf("c%d@c.example", n), 1)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := quotatest.Storage(t, d, orgA); n != 25*30+4 {
		t.Errorf("counted %d bytes, want %d", n, 25*30+4)
	}
	quotatest.WantSums(t, d, desk.CountedFiles)
	if n := quotatest.Storage(t, d, orgB); n != 0 {
		t.Errorf("counted %d bytes of the other organization", n)
	}
	// The program of before goes on beside this one.
	before.intake(mailWith("d@c.example", 500))
	quotatest.WantSums(t, d, desk.CountedFiles)
	if err := f.desk.CountFiles(t.Context(), orgA); err != nil || quotatest.Storage(t, d, orgA) != 25*30+504 {
		t.Errorf("counted %d bytes, %v, want %d", quotatest.Storage(t, d, orgA), err, 25*30+504)
	}
}

// TestDeletedTicketLeavesNoFiles: the files of a deleted ticket leave the store, unless another
// ticket has them too.
func TestDeletedTicketLeavesNoFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		f := fixtureOn(t, dbtest.NewSQLite(t), func(c *desk.Config) { c.Blob = openFolder(t, folder) })
		if err := f.queue.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.queue.Stop(context.Background())
		one := f.intake(mailWith("a1@c.example", 10, 20)).TicketID
		two := f.intake(mailWith("a2@c.example", 10)).TicketID
		for _, tt := range []struct {
			id   string
			left int
		}{{one, 1}, {two, 0}} {
			f.delete(tt.id)
			synctest.Wait()
			if list := storedFiles(t, folder); len(list) != tt.left {
				t.Errorf("got files %v, want %d", list, tt.left)
			}
		}
	})
}
