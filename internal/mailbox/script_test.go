package mailbox_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mailbox"
)

// oddServer is an IMAP server with the faults of real ones, or of an attacker.
type oddServer struct {
	mu      sync.Mutex
	folders map[string]*oddFolder
	// answers replaces the answer to commands that begin with a text: untagged lines, and the tagged
	// one without its tag. An empty answer is the usual one.
	answers  func(command string) string
	uidLast  bool  // content precedes the UID
	hangUp   bool  // IDLE ends the connection
	restless bool  // IDLE reports mails at once
	size     int64 // that each mail is said to have; 0: its own
	commands []string
	heard    chan struct{} // closed at the next command
}

type oddFolder struct {
	validity, next uint32 // a next of 0 is not sent
	mails          []oddMail
}

type oddMail struct {
	uid      uint32
	raw      string // empty: it is not delivered
	arrived  time.Time
	withheld bool
}

// odd has the house connect to an odd server.
func (h *house) odd(folders map[string]*oddFolder) *oddServer {
	h.t.Helper()
	s := &oddServer{folders: folders, heard: make(chan struct{})}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", h.serverTLS)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { ln.Close() })
	h.addr = ln.Addr().String()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

func (s *oddServer) set(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// answerBy sets oddServer.answers.
func (s *oddServer) answerBy(answers func(command string) string) {
	s.set(func() { s.answers = answers })
}

// count returns the number of commands with a text.
func (s *oddServer) count(text string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.commands {
		if strings.Contains(c, text) {
			n++
		}
	}
	return n
}

// hear waits until a number of commands have a text.
func (h *house) hear(s *oddServer, text string, n int) {
	h.t.Helper()
	limit := time.After(patience)
	for {
		s.mu.Lock()
		heard := s.heard
		s.mu.Unlock()
		if s.count(text) >= n {
			return
		}
		select {
		case <-heard:
		case <-limit:
			h.t.Fatalf("the server has heard %s %d times, want %d", text, s.count(text), n)
		}
	}
}

// deliver adds a mail at the next UID.
func (s *oddServer) deliver(folder, subject string, arrived time.Time) {
	s.set(func() {
		f := s.folders[folder]
		uid := f.next
		if uid == 0 {
			uid = 1
			if n := len(f.mails); n > 0 {
				uid = f.mails[n-1].uid + 1
			}
		} else {
			f.next++
		}
		f.mails = append(f.mails, oddMail{uid: uid, raw: mailText(subject, subject), arrived: arrived})
	})
}

func (s *oddServer) serve(conn net.Conn) {
	defer conn.Close()
	lines := make(chan string)
	go func() {
		defer close(lines)
		in := bufio.NewReader(conn)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			lines <- strings.TrimRight(line, "\r\n")
		}
	}()
	defer func() {
		for range lines {
		}
	}()
	defer conn.Close()
	io.WriteString(conn, "* OK hello\r\n")
	at, seen := "", 0 // mails that the client knows of
	for line := range lines {
		tag, command, _ := strings.Cut(line, " ")
		s.mu.Lock()
		hangUp, idles, restless := s.hangUp, s.answers == nil, s.restless
		s.mu.Unlock()
		if command == "IDLE" && hangUp {
			return
		}
		if command == "IDLE" && idles {
			io.WriteString(conn, "+ idling\r\n")
			seen = s.idle(conn, lines, at, seen, restless)
			io.WriteString(conn, tag+" OK done\r\n")
			continue
		}
		var answer string
		answer, at = s.answer(command, at)
		if _, exists, ok := strings.Cut(answer, "* "); ok && strings.Contains(exists, " EXISTS") {
			fmt.Sscan(exists, &seen)
		}
		n := strings.LastIndex(strings.TrimSuffix(answer, "\r\n"), "\n") + 1
		io.WriteString(conn, answer[:n]+tag+" "+answer[n:]+"\r\n")
	}
}

// idle reports new mails until the client ends the command.
func (s *oddServer) idle(w io.Writer, lines <-chan string, at string, seen int, restless bool) int {
	for {
		s.mu.Lock()
		n := len(s.folders[at].mails)
		s.mu.Unlock()
		if n != seen || restless {
			fmt.Fprintf(w, "* %d EXISTS\r\n", n)
		}
		seen = n
		select {
		case <-lines:
			return seen
		case <-time.After(5 * time.Millisecond):
		}
	}
}

var oddSet = regexp.MustCompile(`(?:FETCH|MOVE|STORE|SEARCH UID) ([0-9:*,]+)`)

// in reports whether a number is in the set of a command.
func in(command string, number uint32) bool {
	found := oddSet.FindStringSubmatch(command)
	if found == nil {
		return true
	}
	for part := range strings.SplitSeq(found[1], ",") {
		from, to, ranged := strings.Cut(part, ":")
		low, _ := strconv.ParseUint(from, 10, 32)
		high := low
		if ranged {
			high, _ = strconv.ParseUint(strings.Replace(to, "*", "4294967295", 1), 10, 32)
		}
		if uint64(number) >= low && uint64(number) <= high {
			return true
		}
	}
	return false
}

// answer answers a command in a selected folder, and returns the one selected then.
func (s *oddServer) answer(command, at string) (answer, now string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands = append(s.commands, command)
	close(s.heard)
	s.heard = make(chan struct{})
	if s.answers != nil {
		if special := s.answers(command); special != "" {
			return special, at
		}
	}
	verb, rest, _ := strings.Cut(strings.TrimPrefix(command, "UID "), " ")
	var out strings.Builder
	switch f := s.folders[at]; verb {
	case "CAPABILITY":
		return "* CAPABILITY IMAP4rev1 IDLE MOVE UIDPLUS AUTH=XOAUTH2\r\nOK done", at
	case "EXAMINE", "SELECT":
		at = strings.Trim(rest, `"`)
		if f = s.folders[at]; f == nil {
			return "NO there is no such folder", at
		}
		fmt.Fprintf(&out, "* %d EXISTS\r\n* OK [UIDVALIDITY %d]\r\n", len(f.mails), f.validity)
		if f.next > 0 {
			fmt.Fprintf(&out, "* OK [UIDNEXT %d]\r\n", f.next)
		}
	case "LIST":
		for name := range s.folders {
			fmt.Fprintf(&out, "* LIST () \"/\" %s\r\n", name)
		}
	case "SEARCH":
		out.WriteString("* SEARCH")
		for _, m := range f.mails {
			if in(command, m.uid) && !m.arrived.Before(since(command)) {
				fmt.Fprintf(&out, " %d", m.uid)
			}
		}
		out.WriteString("\r\n")
	case "FETCH":
		for i, m := range f.mails {
			number := m.uid
			if !strings.HasPrefix(command, "UID ") {
				number = uint32(i + 1)
			}
			if !in(command, number) || m.withheld && strings.Contains(command, "BODY") {
				continue
			}
			out.WriteString(s.mail(command, i+1, m))
		}
	case "MOVE":
		f.mails = slices.DeleteFunc(f.mails, func(m oddMail) bool { return in(command, m.uid) })
	}
	return out.String() + "OK done", at
}

var oddSince = regexp.MustCompile(`SINCE "(.*?)"`)

// since returns the day of a search; zero: all days.
func since(command string) (day time.Time) {
	if found := oddSince.FindStringSubmatch(command); found != nil {
		day, _ = time.Parse("_2-Jan-2006", found[1])
	}
	return day
}

func (s *oddServer) mail(command string, number int, m oddMail) string {
	size := int64(len(m.raw))
	if s.size != 0 {
		size = s.size
	}
	uid := fmt.Sprintf("UID %d", m.uid)
	items := fmt.Sprintf("RFC822.SIZE %d INTERNALDATE \"%s\"", size, m.arrived.Format("_2-Jan-2006 15:04:05 -0700"))
	if strings.Contains(command, "BODY") {
		raw := m.raw
		if _, partial, ok := strings.Cut(command, "]<0."); ok {
			n, _ := strconv.Atoi(partial[:strings.IndexByte(partial, '>')])
			raw = raw[:min(n, len(raw))]
		}
		items = fmt.Sprintf("BODY[] {%d}\r\n%s", len(raw), raw)
	}
	if s.uidLast {
		return fmt.Sprintf("* %d FETCH (%s %s)\r\n", number, items, uid)
	}
	return fmt.Sprintf("* %d FETCH (%s %s)\r\n", number, uid, items)
}

func inbox() map[string]*oddFolder { return map[string]*oddFolder{"INBOX": {validity: 7, next: 1}} }

// TestSearchAnswers: UIDs that are none, or more than memory holds, are a failure of the mailbox.
func TestSearchAnswers(t *testing.T) {
	for answer, want := range map[string]string{
		"* SEARCH 0":                                   "invalid answer",
		"* ESEARCH  ALL 1:3":                           "invalid answer",
		"* ESEARCH  UID ALL 1:4294967295":              "sends more than was asked for",
		"* ESEARCH  UID ALL 1:3000000,5000000:9000000": "sends more than was asked for",
	} {
		t.Run(answer, func(t *testing.T) {
			h := start(t)
			h.odd(inbox()).answerBy(func(command string) string {
				if strings.HasPrefix(command, "UID SEARCH") {
					return answer + "\r\nOK done"
				}
				return ""
			})
			c := h.connect(nil)
			h.run()
			s := h.status(c.ID, func(s mailbox.Status) bool { return s.State == mailbox.Failing })
			if !strings.Contains(s.Error, want) {
				t.Errorf("the error is %q, want %q", s.Error, want)
			}
		})
	}
}

// TestNoNextUID: of a server that does not say the next UID, no mail from before the connection is
// collected.
func TestNoNextUID(t *testing.T) {
	h := start(t)
	server := h.odd(map[string]*oddFolder{"INBOX": {validity: 7}})
	for _, subject := range []string{"old", "older"} {
		server.deliver("INBOX", subject, time.Now().AddDate(-1, 0, 0))
	}
	c := h.connect(nil)
	h.run()
	h.reading(c.ID)
	server.deliver("INBOX", "new", time.Now())
	h.want("new")
}

// TestContentBeforeUID: a mail is collected whatever the order of the items in a response.
func TestContentBeforeUID(t *testing.T) {
	h := start(t)
	server := h.odd(inbox())
	server.set(func() { server.uidLast = true })
	h.connect(nil)
	server.deliver("INBOX", "one", time.Now())
	server.deliver("INBOX", "two", time.Now())
	h.run()
	h.want("one", "two")
}

// TestWithheld: a mail that the server lists and does not deliver is stored as unreadable, after an
// attempt to get it alone, and holds up no others.
func TestWithheld(t *testing.T) {
	t.Parallel()
	h := start(t)
	server := h.odd(inbox())
	c := h.connect(nil)
	for _, subject := range []string{"one", "two", "three"} {
		server.deliver("INBOX", subject, time.Now())
	}
	server.set(func() { server.folders["INBOX"].mails[1].withheld = true })
	h.run()
	h.want("one", "", "three")
	if r := h.journal.stored[1]; len(r.Body) > 0 || !strings.HasSuffix(r.URL, ";UID=2") {
		t.Errorf("in its place %+v is stored", r)
	}
	h.reading(c.ID)
}

// TestWrongSizes: mails are collected whatever size the server announces.
func TestWrongSizes(t *testing.T) {
	t.Parallel()
	h := start(t)
	server := h.odd(inbox())
	server.set(func() { server.size = 100 })
	c := h.connect(nil)
	server.deliver("INBOX", "one", time.Now())
	server.deliver("INBOX", "large", time.Now())
	server.set(func() { server.folders["INBOX"].mails[1].raw += strings.Repeat("The lock does not open.\r\n", 150_000) })
	server.deliver("INBOX", "three", time.Now())
	h.run()
	h.want("one", "large", "three")
	h.reading(c.ID)
}

// TestRefusedFolder: a server that refuses a folder for a while leads to no second reading of it.
func TestRefusedFolder(t *testing.T) {
	h := start(t)
	server := h.odd(inbox())
	c := h.connect(nil)
	server.deliver("INBOX", "one", time.Now())
	h.run()
	h.want("one")
	h.reading(c.ID)
	h.stop()
	server.set(func() {
		server.answers = func(command string) string {
			if strings.HasPrefix(command, "EXAMINE") {
				return "NO [LIMIT] Request is throttled"
			}
			return ""
		}
	})
	h.run()
	s := h.status(c.ID, func(s mailbox.Status) bool { return s.State == mailbox.Failing })
	if !strings.Contains(s.Error, "refuses to open the folder INBOX: Request is throttled") {
		t.Errorf("the error is %q", s.Error)
	}
	h.stop()
	server.set(func() { server.answers, server.commands = nil, nil })
	h.run()
	h.reading(c.ID)
	server.deliver("INBOX", "two", time.Now())
	h.want("one", "two")
	if n := server.count("UID FETCH 1 "); n > 0 {
		t.Errorf("the first mail was fetched %d times again", n)
	}
}

// TestRestored: mails of a folder that was restored from a backup are collected although their UIDs
// were in use before, and the UIDVALIDITY is the same.
func TestRestored(t *testing.T) {
	h := start(t)
	server := h.odd(inbox())
	c := h.connect(nil)
	for _, subject := range []string{"one", "two", "three"} {
		server.deliver("INBOX", subject, time.Now())
	}
	h.run()
	h.want("one", "two", "three")
	h.reading(c.ID)
	h.stop()
	server.set(func() {
		f := server.folders["INBOX"]
		f.mails, f.next = f.mails[:1], 2
	})
	server.deliver("INBOX", "four", time.Now())
	h.run()
	h.want("one", "two", "three", "four")
	h.reading(c.ID)
}

// TestSharedValidity: a UIDVALIDITY is unique within one folder only, so a mail of another folder with
// the UID of a collected one is not moved.
func TestSharedValidity(t *testing.T) {
	t.Parallel()
	h := start(t)
	server := h.odd(map[string]*oddFolder{"INBOX": {validity: 7, next: 1}, "Sales": {validity: 7, next: 1}, "Done": {validity: 7, next: 1}})
	server.answerBy(func(command string) string {
		if strings.HasPrefix(command, "UID MOVE") {
			return "NO the folder is full"
		}
		return ""
	})
	server.deliver("INBOX", "of a person", time.Now().AddDate(-1, 0, 0))
	c := h.connect(map[string]string{email.SettingFolders: "INBOX, Sales", email.SettingMoveTo: "Done"})
	server.deliver("Sales", "one", time.Now())
	h.run()
	h.want("one")
	s := h.status(c.ID, func(s mailbox.Status) bool { return s.State == mailbox.Failing })
	if !strings.Contains(s.Error, "refuses to move mails to Done: the folder is full") {
		t.Errorf("the error is %q", s.Error)
	}
	server.set(func() { server.answers = nil })
	h.reading(c.ID)
	server.set(func() {
		if n, m := len(server.folders["INBOX"].mails), len(server.folders["Sales"].mails); n != 1 || m != 0 {
			t.Errorf("INBOX has %d mails and Sales %d, want 1 and 0", n, m)
		}
	})
}

// TestMoveRefused: mails that cannot be moved do not hold up other folders.
func TestMoveRefused(t *testing.T) {
	h := start(t)
	server := h.odd(map[string]*oddFolder{"INBOX": {validity: 7, next: 1}, "Sales": {validity: 8, next: 1}})
	server.answerBy(func(command string) string {
		if strings.HasPrefix(command, "UID MOVE") {
			return "NO the folder is full"
		}
		return ""
	})
	h.connect(map[string]string{email.SettingFolders: "INBOX, Sales", email.SettingMoveTo: "Done"})
	server.deliver("INBOX", "one", time.Now())
	server.deliver("Sales", "two", time.Now())
	h.run()
	h.want("one", "two")
}

// TestIdleRefused: a server that offers IDLE and refuses it is polled.
func TestIdleRefused(t *testing.T) {
	h := start(t)
	server := h.odd(inbox())
	server.answerBy(func(command string) string {
		if command == "IDLE" {
			return "NO not now"
		}
		return ""
	})
	c := h.connect(nil)
	h.run()
	h.reading(c.ID)
	h.hear(server, "IDLE", 1)
	if s, _, err := h.Status(t.Context(), h.db, c.ID); err != nil || s.State != mailbox.Reading {
		t.Errorf("the status is %+v, %v", s, err)
	}
}

// TestQuotedPassword: a server that quotes the login in its answer reveals it to nobody.
func TestQuotedPassword(t *testing.T) {
	h := start(t)
	server := h.odd(inbox())
	server.answerBy(func(command string) string {
		if strings.HasPrefix(command, "LOGIN") {
			return "BAD unknown command: " + command
		}
		return ""
	})
	n := h.connectable(nil)
	const secret = `back\slash "quoted"  spaces`
	n.Credentials[email.CredentialPassword] = secret
	c, _, err := h.connections.Connect(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	h.run()
	s := h.status(c.ID, func(s mailbox.Status) bool { return s.State == mailbox.Failing })
	for _, text := range []string{s.Error, h.log.String()} {
		if strings.Contains(text, "slash") || strings.Contains(text, "quoted") {
			t.Errorf("the password is in %q", text)
		}
	}
	if !strings.Contains(s.Error, "[redacted]") {
		t.Errorf("the error is %q", s.Error)
	}
}

// TestReplacedReader: a process that loses the lease of a mailbox and takes it again has one reader,
// which follows the configuration.
func TestReplacedReader(t *testing.T) {
	h := start(t)
	c := h.connect(nil)
	h.run()
	h.reading(c.ID)
	held, hold := make(chan struct{}), make(chan struct{})
	h.journal.hold = func() {
		close(held)
		<-hold
	}
	h.deliver("INBOX", "one")
	<-held // the first reader does not notice the loss
	err := h.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE mailboxes SET lease_until = 1")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// A connection that is not read has the service look for mailboxes.
	_, _, err = h.connections.Connect(t.Context(), connection.New{
		OrganizationID: "org-1", Channel: email.MailboxName, Address: "other@acme.example",
		Credentials: map[string]string{email.CredentialServer: "smtps://user:secret@127.0.0.1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; {
		var fence int
		if err := h.db.QueryRow(t.Context(), "SELECT fence FROM mailboxes").Scan(&fence); err != nil {
			t.Fatal(err)
		}
		if fence > 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the mailbox is not read again")
		}
	}
	h.want("one")
	close(hold)
	if n := h.Readers(); n != 1 {
		t.Errorf("there are %d readers, want 1", n)
	}
	if err := h.connections.SetEnabled(t.Context(), "org-1", c.ID, false); err != nil {
		t.Fatal(err)
	}
	h.status(c.ID, func(s mailbox.Status) bool { return s.Reader == "" })
}

// TestTurns: a process that reads as many mailboxes as it can reads the others in turn.
func TestTurns(t *testing.T) {
	t.Parallel()
	h := start(t, func(h *house) { h.maxReaders = 1 })
	first := h.connect(nil)
	n := h.connectable(nil)
	n.Address, n.Credentials[email.CredentialUser] = "sales@acme.example", user
	second, _, err := h.connections.Connect(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	h.run()
	h.reading(first.ID)
	h.reading(second.ID)
	if n := h.Readers(); n > 1 {
		t.Errorf("there are %d readers, want 1", n)
	}
}

// TestRestlessServer: a server that reports new mails without end is read now and then.
func TestRestlessServer(t *testing.T) {
	t.Parallel()
	h := start(t, func(h *house) { h.scale = .1 })
	server := h.odd(inbox())
	server.set(func() { server.restless = true })
	h.connect(nil)
	begin := time.Now()
	h.run()
	h.hear(server, "UID SEARCH", 4)
	if took := time.Since(begin); took < 250*time.Millisecond {
		t.Errorf("the mailbox was read four times in %s", took)
	}
}

// TestBusyServer: a refusal for a while is no refused login, and what Exchange says of a mailbox
// without access is explained.
func TestBusyServer(t *testing.T) {
	for _, tt := range []struct{ command, answer, want, not string }{
		{"LOGIN", "NO [LIMIT] Rate limit hit", "does not complete the login of " + user + ": Rate limit hit", "app password"},
		{"LOGIN", "NO [ALERT] Too many simultaneous connections. (Failure)", "does not complete the login", "app password"},
		{"LOGIN", "NO [AUTHENTICATIONFAILED] Invalid credentials", "rejects the login of " + user + ": Invalid credentials. Check user and password", "complete"},
		{"EXAMINE", "BAD User is authenticated but not connected.", "full access", "refuses"},
	} {
		t.Run(tt.answer, func(t *testing.T) {
			h := start(t)
			h.odd(inbox()).answerBy(func(command string) string {
				if strings.HasPrefix(command, tt.command) {
					return tt.answer
				}
				return ""
			})
			c := h.connect(nil)
			h.run()
			s := h.status(c.ID, func(s mailbox.Status) bool { return s.State == mailbox.Failing })
			if !strings.Contains(s.Error, tt.want) || strings.Contains(s.Error, tt.not) {
				t.Errorf("the error is %q", s.Error)
			}
		})
	}
}

// TestEndedConnection: that a server ends the connection to a mailbox that was read is no failure of it.
func TestEndedConnection(t *testing.T) {
	t.Parallel()
	h := start(t)
	server := h.odd(inbox())
	server.set(func() { server.hangUp = true })
	c := h.connect(nil)
	h.run()
	h.reading(c.ID)
	h.hear(server, "LOGIN", 2)
	if s, _, err := h.Status(t.Context(), h.db, c.ID); err != nil || s.State != mailbox.Reading {
		t.Fatalf("the status is %+v, %v", s, err)
	}
	server.deliver("INBOX", "one", time.Now())
	h.want("one")
}
