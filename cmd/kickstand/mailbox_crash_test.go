package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// dovecot is an IMAP server that .ci/dovecot has started.
type dovecot struct {
	t      *testing.T
	folder string
	user   string
	moved  string // the folder that receives mails
}

// newDovecot returns the server that KICKSTAND_TEST_DOVECOT names, with a mailbox of its own.
func newDovecot(t *testing.T) *dovecot {
	folder := os.Getenv("KICKSTAND_TEST_DOVECOT")
	if folder == "" {
		t.Skip("KICKSTAND_TEST_DOVECOT does not name the folder of a server started by .ci/dovecot")
	}
	t.Setenv("SSL_CERT_FILE", filepath.Join(folder, "ca.pem"))
	return &dovecot{t: t, folder: folder, user: fmt.Sprintf("box%d", time.Now().UnixNano())}
}

// url returns the address of the server.
func (d *dovecot) url() string {
	ports, err := os.ReadFile(filepath.Join(d.folder, "ports"))
	if err != nil {
		d.t.Fatal(err)
	}
	port, _, _ := strings.Cut(string(ports), "\n")
	return "imaps://localhost:" + port
}

// script runs an action of .ci/dovecot.
func (d *dovecot) script(action string) {
	d.t.Helper()
	if out, err := exec.Command("../../.ci/dovecot", action, d.folder).CombinedOutput(); err != nil {
		d.t.Fatalf("%s: %v, %s", action, err, out)
	}
}

// admin runs a command of the server's administrator.
func (d *dovecot) admin(args ...string) {
	d.t.Helper()
	args = append([]string{"-c", filepath.Join(d.folder, "dovecot.conf")}, args...)
	if out, err := exec.Command("doveadm", args...).CombinedOutput(); err != nil {
		d.t.Fatalf("doveadm %v: %v, %s", args, err, out)
	}
}

// create creates a folder, which then receives mails.
func (d *dovecot) create(folder string) {
	d.t.Helper()
	d.admin("mailbox", "create", "-u", d.user, folder)
	d.moved = folder
}

// path returns the path of the folder that receives mails.
func (d *dovecot) path() string {
	return filepath.Join(d.folder, "mail", d.user, "Maildir", "."+d.moved)
}

// deliver adds a mail, as a mail server does.
func (d *dovecot) deliver(name, raw string) {
	d.t.Helper()
	temporary := filepath.Join(d.path(), "tmp", name)
	if err := os.WriteFile(temporary, []byte(raw), 0o644); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(d.path(), "new", name)); err != nil {
		d.t.Fatal(err)
	}
}

// program runs a command as a process of its own, which reads SSL_CERT_FILE.
func (p *patient) program(args ...string) {
	p.t.Helper()
	cmd := exec.Command(os.Args[0], append(args, p.args...)...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %v, %s", args, err, out)
	}
}

// testNumber returns the number in an environment variable, or the default.
func testNumber(t *testing.T, name string, standard int) int {
	text := os.Getenv(name)
	if text == "" {
		return standard
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q", name, text)
	}
	return n
}

// TestCrashMailbox kills the server, and the IMAP server, at random times while a mailbox is read.
// In between the folder's UIDVALIDITY changes, and it is renamed. Each mail must be exactly one
// message. KICKSTAND_TEST_KILLS and KICKSTAND_TEST_MAILS set the numbers; the IMAP server is
// killed at every fifth kill.
func TestCrashMailbox(t *testing.T) {
	d := newDovecot(t)
	kills, mails := testNumber(t, "KICKSTAND_TEST_KILLS", 6), testNumber(t, "KICKSTAND_TEST_MAILS", 600)
	d.create("Support")
	p := newPatient(t)
	p.program("org", "create", "--name=Crash")
	p.program("channel", "connect", "mailbox", "--org=crash", "--address="+p.mailbox, "--imap="+d.url(), "--user="+d.user, "--password=secret", "--setting=folders=Support")
	p.start()
	reader, delivered, serverKills, restored := "", 0, 0, -1 // restored: the kill after which the UIDVALIDITY changed
	folders := func() []string { return p.column("SELECT folder || ' from ' || source FROM mailbox_folders") }
	validity := func() string { return fmt.Sprint(p.column("SELECT CAST(uid_validity AS TEXT) FROM mailbox_folders")) }
	var former string
	for kill := range kills {
		for range min((mails+kills-1)/kills, mails-delivered) {
			d.deliver(fmt.Sprintf("%d.crash", delivered), fmt.Sprintf(
				"From: Ana <ana%d@client.example>\r\nTo: %s\r\nSubject: Mail %[3]d\r\nMessage-ID: <%[3]d@client.example>\r\n\r\n%s\r\n",
				delivered%50, p.mailbox, delivered, strings.Repeat("The lock does not open.\r\n", 1+delivered%7*30)))
			delivered++
		}
		reader = p.readBy(reader)
		if restored >= 0 && d.moved == "Support" { // a folder whose name and UIDVALIDITY are both new is another one
			for range poll(t, time.Minute) {
				if validity() != former {
					break
				}
			}
		}
		pause(400 * time.Millisecond)
		if kill%5 == 2 {
			d.script("kill")
			serverKills++
			if restored < 0 && kill >= kills/3 {
				former = validity()
				d.restore()
				restored = kill
			}
			pause(200 * time.Millisecond)
			d.script("again")
		}
		p.kill()
		if d.moved == "Support" && restored >= 0 && kill > restored && kill >= 2*kills/3 {
			d.admin("mailbox", "rename", "-u", d.user, "Support", "Helpdesk")
			d.moved = "Helpdesk"
		}
		p.start()
	}
	for range poll(t, 3*time.Minute) {
		if n := len(p.column("SELECT organization_id FROM mailbox_mails")); n >= mails && p.settled() && slices.Equal(folders(), []string{"Helpdesk from Support"}) {
			break
		}
	}
	p.kill()

	count := make(map[string]int)
	for _, id := range p.column("SELECT external_id FROM messages") {
		count[id]++
	}
	for i := range mails {
		if n := count[fmt.Sprintf("%d@client.example", i)]; n != 1 {
			t.Errorf("mail %d is %d messages", i, n)
		}
	}
	if len(count) != mails {
		t.Errorf("%d mails are messages, want %d", len(count), mails)
	}
	var events, results int
	if err := p.watch.QueryRow(t.Context(), "SELECT count(*), count(CASE WHEN state = 'processed' THEN 1 END) FROM inbound_events").Scan(&events, &results); err != nil {
		t.Fatal(err)
	}
	if events != mails || results != mails {
		t.Errorf("%d events, %d of them processed, want %d", events, results, mails)
	}
	if list := folders(); len(list) != 1 || list[0] != "Helpdesk from Support" {
		t.Errorf("the folders are %q", list)
	}
	p.command("verify", "--blobs")
	t.Logf("%d kills, %d of the IMAP server, %d mails, folders %q", kills, serverKills, mails, folders())
}

// restore has the folder lose its UIDs, as if it was restored from a copy: it gets another
// UIDVALIDITY. The server must not run.
func (d *dovecot) restore() {
	d.t.Helper()
	found, err := filepath.Glob(filepath.Join(d.path(), "dovecot*"))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, name := range found {
		if err := os.Remove(name); err != nil {
			d.t.Fatal(err)
		}
	}
}

// readBy waits until another process than one reads the mailbox, and returns its id.
func (p *patient) readBy(before string) string {
	p.t.Helper()
	for range poll(p.t, time.Minute) {
		holder, err := db.One(context.Background(), p.watch, func(row db.Row) (s string, err error) { err = row.Scan(&s); return s, err }, "SELECT holder FROM mailboxes")
		if err == nil && holder != "" && holder != before {
			return holder
		}
	}
	p.t.Fatal("nobody reads the mailbox")
	return ""
}
