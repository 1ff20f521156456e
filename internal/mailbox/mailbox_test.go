package mailbox_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"
	"github.com/kickstand-dev/kickstand/internal/mailbox"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/seal"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"
	"github.com/emersion/go-imap/v2/imapserver/imapmemserver"
)

const (
	user     = "help@acme.example"
	password = "correct horse battery"
)

// house is a mailbox at an IMAP server in this process, and the service that reads it.
type house struct {
	*mailbox.Service
	t           *testing.T
	db          *db.DB
	connections *connection.Service
	journal     *journal
	box         *imapmemserver.User
	addr        string
	tls         *tls.Config
	serverTLS   *tls.Config
	certificate *x509.Certificate
	guard       netguard.Guard
	caps        imap.CapSet
	starttls    bool
	sealing     *seal.Box
	grantor     *grantor // nil: no tokens
	clients     map[string]mailbox.OAuthClient
	log         lockedBuffer
	maxReaders  int
	scale       float64 // of times; 0: a thousandth
	stop        func()  // of Run
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// journal stores in memory what commits.
type journal struct {
	db *db.DB

	mu       sync.Mutex
	stored   []*channel.Request
	arrived  chan struct{}
	failures []error // of the next transactions, at their end
	hold     func()  // called once, before a transaction
}

// Collect implements [mailbox.Journal].
func (j *journal) Collect(ctx context.Context, _ *connection.Connection, requests []*channel.Request, record func(ctx context.Context, tx *db.Tx) ([]bool, error)) error {
	j.mu.Lock()
	hold := j.hold
	j.hold = nil
	j.mu.Unlock()
	if hold != nil {
		hold()
	}
	return j.db.Write(ctx, func(tx *db.Tx) error {
		wanted, err := record(ctx, tx)
		if err != nil {
			return err
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		if len(j.failures) > 0 {
			err, j.failures = j.failures[0], j.failures[1:]
			return err
		}
		tx.AfterCommit(func() {
			j.mu.Lock()
			defer j.mu.Unlock()
			for i, r := range requests {
				if wanted[i] {
					j.stored = append(j.stored, r)
				}
			}
			close(j.arrived)
			j.arrived = make(chan struct{})
		})
		return nil
	})
}

// subjects returns the subjects of the stored mails, in order.
func (j *journal) subjects() (list []string, changed <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.stored {
		_, after, _ := strings.Cut(string(r.Body), "Subject: ")
		subject, _, _ := strings.Cut(after, "\r\n")
		list = append(list, subject)
	}
	return list, j.arrived
}

func start(t *testing.T, change ...func(*house)) *house {
	t.Helper()
	h := &house{t: t, db: dbtest.New(t), guard: netguard.Guard{AllowPrivate: true}, box: imapmemserver.NewUser(user, password), stop: func() {}}
	h.caps = imap.CapSet{imap.CapIMAP4rev1: {}, imap.CapIdle: {}, imap.CapUIDPlus: {}, imap.CapMove: {}}
	for _, fn := range change {
		fn(h)
	}
	h.create("INBOX")
	h.serve()
	h.sealing = seal.New(seal.NewKey())
	h.connections = connection.Open(h.db, h.sealing, []channel.Adapter{email.NewMailbox(email.Config{})})
	h.journal = &journal{db: h.db, arrived: make(chan struct{})}
	h.Service = h.open()
	t.Cleanup(func() {
		h.stop()
		if t.Failed() {
			t.Log(h.log.String())
		}
		if strings.Contains(h.log.String(), password) {
			t.Error("the log has the password")
		}
	})
	return h
}

// open returns a further process's service.
func (h *house) open() *mailbox.Service {
	return mailbox.Open(mailbox.Config{
		DB: h.db, Connections: h.connections, Journal: h.journal, Guard: h.guard, TLS: h.tls, RetryTimeScale: cmp.Or(h.scale, .001), MaxReaders: h.maxReaders,
		Box: h.sealing, OAuth: h.clients, HTTP: http.DefaultTransport, BaseURL: "https://help.example",
		Logger: slog.New(slog.NewTextHandler(&h.log, nil)),
	})
}

// serve starts the IMAP server.
func (h *house) serve() {
	h.t.Helper()
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	roots := x509.NewCertPool()
	h.certificate = certified.Certificate()
	roots.AddCert(h.certificate)
	h.tls = &tls.Config{RootCAs: roots}
	server := &tls.Config{Certificates: certified.TLS.Certificates}
	h.serverTLS = server
	options := &imapserver.Options{
		NewSession: func(*imapserver.Conn) (imapserver.Session, *imapserver.GreetingData, error) {
			return &testSession{house: h}, nil, nil
		},
		Caps: h.caps, Logger: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo), InsecureAuth: true,
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	h.addr = ln.Addr().String()
	if h.starttls {
		options.TLSConfig, options.InsecureAuth = server, false
	} else {
		ln = tls.NewListener(ln, server)
	}
	s := imapserver.New(options)
	go s.Serve(ln)
	h.t.Cleanup(func() { s.Close() })
}

// testSession is a session at the server.
type testSession struct {
	*imapmemserver.UserSession
	house *house
}

// Login implements [imapserver.Session].
func (s *testSession) Login(name, secret string) error {
	if err := s.house.box.Login(name, secret); err != nil {
		return err
	}
	s.UserSession = imapmemserver.NewUserSession(s.house.box)
	return nil
}

// Close implements [imapserver.Session].
func (s *testSession) Close() error {
	if s.UserSession == nil {
		return nil
	}
	return s.UserSession.Close()
}

// Idle implements [imapserver.Session]. Unlike the embedded one, it also reports what has arrived
// before.
func (s *testSession) Idle(w *imapserver.UpdateWriter, stop <-chan struct{}) error {
	for {
		if err := s.Poll(w, true); err != nil {
			return err
		}
		select {
		case <-stop:
			return nil
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (h *house) create(folder string) {
	h.t.Helper()
	if err := h.box.Create(folder, nil); err != nil {
		h.t.Fatal(err)
	}
}

type literal struct{ *strings.Reader }

func (l literal) Size() int64 { return l.Reader.Size() }

// mail returns a mail with a subject, and with the Message-ID of that or another subject.
func mailText(subject, id string) string {
	return fmt.Sprintf("From: Ana <ana@client.example>\r\nTo: %s\r\nSubject: %s\r\nMessage-ID: <%s@client.example>\r\n\r\nHello\r\n", user, subject, id)
}

// deliver adds mails to a folder by their subjects.
func (h *house) deliver(folder string, subjects ...string) {
	h.t.Helper()
	for _, s := range subjects {
		h.append(folder, mailText(s, s), time.Time{})
	}
}

func (h *house) append(folder, raw string, at time.Time) {
	h.t.Helper()
	if _, err := h.box.Append(folder, literal{strings.NewReader(raw)}, &imap.AppendOptions{Time: at}); err != nil {
		h.t.Fatal(err)
	}
}

// connect connects the mailbox with further settings.
func (h *house) connect(settings map[string]string) connection.Connection {
	h.t.Helper()
	c, _, err := h.connections.Connect(h.t.Context(), h.connectable(settings))
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

func (h *house) connectable(settings map[string]string) connection.New {
	scheme := "imaps"
	if h.starttls {
		scheme = "imap"
	}
	return connection.New{
		OrganizationID: "org-1", Channel: email.MailboxName, Address: user, Settings: settings,
		Credentials: map[string]string{email.CredentialIMAP: scheme + "://" + h.addr, email.CredentialPassword: password},
	}
}

// run runs the service until the end of the test or of stop.
func (h *house) run() {
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.Run(ctx)
	}()
	h.stop = func() {
		cancel()
		<-done
	}
}

// patience bounds the wait for what other goroutines do.
const patience = 20 * time.Second

// want waits until exactly these mails are stored, in order.
func (h *house) want(subjects ...string) {
	h.t.Helper()
	limit := time.After(patience)
	for {
		got, changed := h.journal.subjects()
		if slices.Equal(got, subjects) {
			return
		}
		if len(got) > len(subjects) {
			h.t.Fatalf("stored %q, want %q", got, subjects)
		}
		select {
		case <-changed:
		case <-limit:
			h.t.Fatalf("stored %d mails %.500q, want %d %.500q", len(got), got, len(subjects), subjects)
		}
	}
}

// status waits until the mailbox has a status.
func (h *house) status(id string, ok func(mailbox.Status) bool) mailbox.Status {
	h.t.Helper()
	var s mailbox.Status
	for end := time.Now().Add(patience); time.Now().Before(end); {
		var err error
		if s, _, err = h.Status(h.t.Context(), h.db, id); err != nil {
			h.t.Fatal(err)
		}
		if ok(s) {
			return s
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-h.t.Context().Done():
		}
	}
	h.t.Fatalf("the status remains %+v", s)
	return s
}

func (h *house) reading(id string) mailbox.Status {
	h.t.Helper()
	return h.status(id, func(s mailbox.Status) bool { return s.State == mailbox.Reading })
}

func TestCollect(t *testing.T) {
	for _, starttls := range []bool{false, true} {
		t.Run(fmt.Sprintf("STARTTLS %t", starttls), func(t *testing.T) {
			h := start(t, func(h *house) { h.starttls = starttls })
			h.append("INBOX", mailText("old", "old"), time.Now().Add(-time.Hour))
			c := h.connect(map[string]string{email.SettingAliases: "sales@acme.example, @acme.org"})
			h.run()
			h.reading(c.ID)
			h.deliver("INBOX", "one", "two")
			h.want("one", "two")
			h.append("INBOX", strings.Replace(mailText("three", "three"), user, "anyone@acme.org", 1), time.Time{})
			h.want("one", "two", "three")
			for i, to := range []string{user, user, "anyone@acme.org"} {
				if got := h.journal.stored[i].Header.Get("X-Envelope-To"); got != to {
					t.Errorf("mail %d is for %s, want %s", i, got, to)
				}
			}
			if got, want := h.journal.stored[0].URL, "imap://127.0.0.1/INBOX;UIDVALIDITY=1/;UID=2"; got != want {
				t.Errorf("the URL is %s, want %s", got, want)
			}
			s := h.status(c.ID, func(s mailbox.Status) bool { return s.Collected == 3 })
			if s.Error != "" || s.LastMailAt.IsZero() || s.CheckedAt.IsZero() || s.Reader == "" {
				t.Errorf("the status is %+v", s)
			}
			h.stop()
			h.deliver("INBOX", "four")
			h.run()
			h.want("one", "two", "three", "four")
		})
	}
}

// TestPolling: a server without IDLE is read when the process starts, and then every 30 seconds.
func TestPolling(t *testing.T) {
	h := start(t, func(h *house) { delete(h.caps, imap.CapIdle) })
	c := h.connect(nil)
	h.deliver("INBOX", "one")
	h.run()
	h.want("one")
	h.reading(c.ID)
}

func TestImport(t *testing.T) {
	h := start(t)
	now := time.Now()
	h.append("INBOX", mailText("a month", "1"), now.AddDate(0, 0, -30))
	h.append("INBOX", mailText("two days", "2"), now.AddDate(0, 0, -2))
	h.append("INBOX", mailText("a week", "3"), now.AddDate(0, 0, -7).Add(-time.Hour))
	h.append("INBOX", mailText("an hour", "4"), now.Add(-time.Hour))
	h.connect(map[string]string{email.SettingImportDays: "7"})
	h.run()
	h.want("two days", "an hour")
	h.append("INBOX", mailText("moved here", "5"), now.AddDate(0, 0, -40)) // new in the folder
	h.want("two days", "an hour", "moved here")
}

// TestValidityChanges: after a change of the UIDVALIDITY, as by a restored mailbox, every mail is
// collected once.
func TestValidityChanges(t *testing.T) {
	h := start(t)
	h.create("Support")
	c := h.connect(map[string]string{email.SettingFolders: "Support"})
	h.run()
	h.reading(c.ID)
	h.deliver("Support", "one", "two")
	h.want("one", "two")
	h.stop()
	if err := h.box.Delete("Support"); err != nil {
		t.Fatal(err)
	}
	h.create("Support")
	h.append("Support", mailText("before", "0"), time.Now().AddDate(0, 0, -5)) // from before the connection
	h.deliver("Support", "two", "three", "one")
	h.run()
	h.want("one", "two", "three")
}

// TestRename: a renamed folder is followed, and a new one of its name is read, too.
func TestRename(t *testing.T) {
	h := start(t)
	h.create("Support")
	c := h.connect(map[string]string{email.SettingFolders: "Support"})
	h.run()
	h.reading(c.ID)
	h.deliver("Support", "one")
	h.want("one")
	h.stop()
	h.deliver("Support", "two")
	if err := h.box.Rename("Support", "Helpdesk", nil); err != nil {
		t.Fatal(err)
	}
	h.run()
	h.want("one", "two")
	h.deliver("Helpdesk", "three")
	h.want("one", "two", "three")
	h.stop()
	h.create("Support")
	h.deliver("Support", "four", "one") // moved back
	h.run()
	h.want("one", "two", "three", "four")
	h.reading(c.ID)
	h.stop()
	if err := h.box.Delete("Helpdesk"); err != nil {
		t.Fatal(err)
	}
	if err := h.box.Delete("Support"); err != nil {
		t.Fatal(err)
	}
	h.run()
	s := h.status(c.ID, func(s mailbox.Status) bool { return s.State == mailbox.Failing })
	if !strings.Contains(s.Error, "the folder Support does not exist") {
		t.Errorf("the error is %q", s.Error)
	}
}

// TestSameMessageID: mails with one Message-ID are different mails if their contents differ; a
// copy in another folder is the same.
func TestSameMessageID(t *testing.T) {
	h := start(t)
	h.create("Sales")
	c := h.connect(map[string]string{email.SettingFolders: "INBOX, Sales"})
	h.append("INBOX", mailText("one", "same"), time.Time{})
	h.append("INBOX", mailText("two", "same"), time.Time{})
	h.append("Sales", mailText("one", "same"), time.Time{})
	h.append("Sales", mailText("three", "same"), time.Time{})
	h.run()
	h.want("one", "two", "three")
	h.reading(c.ID)
}

// TestFailedTransaction: a transaction that fails stores nothing, and is repeated.
func TestFailedTransaction(t *testing.T) {
	t.Parallel()
	h := start(t)
	c := h.connect(nil)
	h.journal.failures = []error{problem.New(problem.Unavailable, "the disk is full"), io.ErrUnexpectedEOF}
	h.deliver("INBOX", "one", "two")
	h.run()
	h.want("one", "two")
	if s := h.reading(c.ID); s.Collected != 2 {
		t.Errorf("%d mails are counted, want 2", s.Collected)
	}
}

// TestLease: a mailbox has one reader. A process that has lost the lease changes nothing, also if
// it does not notice.
func TestLease(t *testing.T) {
	h := start(t)
	c := h.connect(nil)
	h.run()
	h.reading(c.ID)
	first := h.stop
	// Another process takes over.
	err := h.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE mailboxes SET holder = 'other', fence = fence + 1, lease_until = $1", tx.Now.Add(time.Hour).UnixMicro())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	h.deliver("INBOX", "one")
	// The reader sees the mail at once, and notices the lost lease in its transaction or before.
	for end := time.Now().Add(patience); ; {
		var n int
		if err := h.db.QueryRow(t.Context(), "SELECT count(*) FROM mailbox_mails").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			t.Fatal("a reader without a lease has recorded a mail")
		}
		if strings.Contains(h.log.String(), "lease") || time.Now().After(end) || h.idle() {
			break
		}
	}
	first()
	h.stop = func() {}
	err = h.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE mailboxes SET lease_until = $1", tx.Now.UnixMicro()) // the other process dies
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Service = h.open()
	h.run()
	h.want("one")
	s := h.reading(c.ID)
	if s.Reader == "other" || s.Reader == "" {
		t.Errorf("the reader is %q", s.Reader)
	}
}

// idle reports whether the service reads nothing.
func (h *house) idle() bool { return h.Readers() == 0 }

func TestMarkAndMove(t *testing.T) {
	h := start(t)
	c := h.connect(map[string]string{email.SettingMarkSeen: "true", email.SettingMoveTo: "Done"})
	h.create("Done")
	h.append("INBOX", mailText("old", "old"), time.Now().Add(-time.Hour))
	h.deliver("INBOX", "one", "two")
	h.run()
	h.want("one", "two")
	h.reading(c.ID)
	for folder, want := range map[string]uint32{"INBOX": 1, "Done": 2} {
		s, err := h.box.Status(folder, &imap.StatusOptions{NumMessages: true, NumUnseen: true})
		if err != nil || *s.NumMessages != want {
			t.Errorf("%s has %d mails, want %d, %v", folder, *s.NumMessages, want, err)
		}
		if folder == "Done" && *s.NumUnseen != 0 {
			t.Errorf("%d moved mails are not marked as seen", *s.NumUnseen)
		}
	}
}

// TestRefusedLogin: the error says what to do, admins get a notice, and the attempts are rare. It
// ends when the password is corrected.
func TestRefusedLogin(t *testing.T) {
	h := start(t)
	n := h.connectable(nil)
	n.Credentials[email.CredentialPassword] = "wrong password"
	if _, err := h.Probe(t.Context(), &n); err == nil || !strings.Contains(err.Error(), "rejects the login of "+user) || strings.Contains(err.Error(), "wrong password") {
		t.Errorf("the probe returns %v", err)
	}
	c, _, err := h.connections.Connect(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	h.run()
	s := h.status(c.ID, func(s mailbox.Status) bool { return s.State == mailbox.Failing })
	if !strings.Contains(s.Error, "Check user and password") || strings.Contains(s.Error, "wrong password") || s.FailingSince.IsZero() || s.RetryAt.IsZero() {
		t.Errorf("the status is %+v", s)
	}
	found, err := h.connections.Find(t.Context(), c.ID)
	if err != nil || found.Notice == nil || !strings.Contains(found.Notice.Text, "rejects the login") {
		t.Errorf("the notice is %+v, %v", found.Notice, err)
	}
	n = h.connectable(nil)
	err = h.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := h.connections.UpdateTx(t.Context(), tx, "org-1", c.ID, connection.Change{Credentials: n.Credentials})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	h.deliver("INBOX", "one")
	h.want("one")
	h.reading(c.ID)
	if found, err = h.connections.Find(t.Context(), c.ID); err != nil || found.Notice != nil {
		t.Errorf("the notice is %+v, %v", found.Notice, err)
	}
}

// TestAliases: aliases and domains are the organization's own addresses, as long as the connection
// has them.
func TestAliases(t *testing.T) {
	h := start(t)
	c := h.connect(map[string]string{email.SettingAliases: "sales@acme.example, @acme.org"})
	owned := func() (list []string) {
		t.Helper()
		for _, address := range []string{user, "sales@acme.example", "any@acme.org", "any@other.org", "any@acme.example"} {
			for _, organization := range []string{"org-1", "org-2"} {
				ok, err := h.connections.Owns(t.Context(), h.db, organization, "email", address)
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					list = append(list, organization+" "+address)
				}
			}
		}
		return list
	}
	if got, want := owned(), []string{"org-1 " + user, "org-1 sales@acme.example", "org-1 any@acme.org"}; !slices.Equal(got, want) {
		t.Errorf("owned are %q, want %q", got, want)
	}
	err := h.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := h.connections.UpdateTx(t.Context(), tx, "org-1", c.ID, connection.Change{Settings: map[string]string{email.SettingAliases: "@other.org"}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := owned(), []string{"org-1 " + user, "org-1 any@other.org"}; !slices.Equal(got, want) {
		t.Errorf("owned are %q, want %q", got, want)
	}
	err = h.db.Write(t.Context(), func(tx *db.Tx) error { return h.connections.DeleteTx(t.Context(), tx, "org-1", c.ID) })
	if err != nil {
		t.Fatal(err)
	}
	if got := owned(); len(got) > 0 {
		t.Errorf("owned are %q", got)
	}
}

// TestSentFolder: a reply is filed once in the folder of sent mail.
func TestSentFolder(t *testing.T) {
	server := mailtest.NewServer(t, mailtest.ServerConfig{ImplicitTLS: true, User: user, Password: password})
	h := start(t)
	h.create("Sent")
	// One pool for both servers.
	h.tls.RootCAs = server.ClientTLS.RootCAs
	h.tls.RootCAs.AddCert(h.certificate)
	h.Service = h.open()
	n := h.connectable(map[string]string{email.SettingSent: "auto"})
	n.Credentials[email.CredentialServer] = "smtps://" + server.URL[strings.Index(server.URL, "@")+1:]
	if p, err := h.Probe(t.Context(), &n); err != nil || !p.Sends {
		t.Errorf("the probe returns %+v, %v", p, err)
	}
	c, _, err := h.connections.Connect(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	h.run()
	h.reading(c.ID)
	sender, err := h.Sender(&c)
	if err != nil {
		t.Fatal(err)
	}
	m := mail.Message{From: mail.Address{Address: user}, To: []mail.Address{{Address: "ana@client.example"}}, Subject: "Re: Lock", Text: "Press it twice.", MessageID: "1@acme.example"}
	for range 2 { // the second time as if the provider had filed it
		if _, err := sender.SendTracked(t.Context(), m, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		h.inFolder("Sent", 1)
	}
	m.MessageID = "2@acme.example"
	if _, err := sender.SendTracked(t.Context(), m, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	h.inFolder("Sent", 2)
	if d := server.Deliveries(); len(d) != 3 || !d[0].TLS || d[0].User != user {
		t.Errorf("the SMTP server has %d mails", len(d))
	}
}

// inFolder waits until a folder has a number of mails.
func (h *house) inFolder(folder string, want uint32) {
	h.t.Helper()
	for end := time.Now().Add(patience); ; {
		s, err := h.box.Status(folder, &imap.StatusOptions{NumMessages: true})
		if err != nil {
			h.t.Fatal(err)
		}
		if *s.NumMessages == want {
			return
		}
		if time.Now().After(end) {
			h.t.Fatalf("%s has %d mails, want %d", folder, *s.NumMessages, want)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-h.t.Context().Done():
		}
	}
}

func TestDisabled(t *testing.T) {
	h := start(t)
	c := h.connect(nil)
	h.run()
	h.reading(c.ID)
	if err := h.connections.SetEnabled(t.Context(), "org-1", c.ID, false); err != nil {
		t.Fatal(err)
	}
	h.status(c.ID, func(s mailbox.Status) bool { return s.Reader == "" })
	h.deliver("INBOX", "one")
	if err := h.connections.SetEnabled(t.Context(), "org-1", c.ID, true); err != nil {
		t.Fatal(err)
	}
	h.want("one")
	err := h.db.Write(t.Context(), func(tx *db.Tx) error { return h.connections.DeleteTx(t.Context(), tx, "org-1", c.ID) })
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"mailboxes", "mailbox_folders", "mailbox_mails"} {
		var n int
		if err := h.db.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s has %d rows, %v", table, n, err)
		}
	}
}

// TestPrivateAddress: an organization cannot have the server connect to its own network.
func TestPrivateAddress(t *testing.T) {
	h := start(t, func(h *house) { h.guard = netguard.Guard{} })
	n := h.connectable(nil)
	_, err := h.Probe(t.Context(), &n)
	if problem.Of(err) != problem.Invalid || !strings.Contains(err.Error(), "not a public address") {
		t.Errorf("got %v", err)
	}
}

// TestHostileServer: a server that is not an IMAP server, has no TLS, or sends without end fails the probe.
func TestHostileServer(t *testing.T) {
	h := start(t)
	for _, tt := range []struct {
		name, says string
		scheme     string
		endless    bool
		want       string
	}{
		{"no TLS", "* OK hello\r\n", "imaps", false, "does not begin with TLS"},
		{"no STARTTLS", "* OK [CAPABILITY IMAP4rev1] hello\r\nT1 BAD what\r\nT2 BAD what\r\n", "imap", false, "STARTTLS"},
		{"endless", "* OK ", "imap", true, "TLS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			go func() {
				for {
					conn, err := ln.Accept()
					if err != nil {
						return
					}
					go func() {
						defer conn.Close()
						io.WriteString(conn, tt.says)
						for tt.endless {
							if _, err := conn.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
								return
							}
						}
						io.Copy(io.Discard, conn)
					}()
				}
			}()
			n := h.connectable(nil)
			n.Credentials[email.CredentialIMAP] = tt.scheme + "://" + ln.Addr().String()
			if _, err := h.Probe(t.Context(), &n); problem.Of(err) != problem.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestProbe(t *testing.T) {
	h := start(t)
	h.deliver("INBOX", "one", "two")
	n := h.connectable(nil)
	p, err := h.Probe(t.Context(), &n)
	if err != nil || p.Sends || !slices.Equal(p.Folders, []mailbox.ProbedFolder{{Name: "INBOX", Mails: 2}}) {
		t.Errorf("got %+v, %v", p, err)
	}
	n = h.connectable(map[string]string{email.SettingFolders: "INBOX, Support"})
	if _, err := h.Probe(t.Context(), &n); problem.Of(err) != problem.Invalid || !strings.Contains(err.Error(), "Support") {
		t.Errorf("a missing folder: got %v", err)
	}
	n = h.connectable(nil)
	n.Credentials[email.CredentialServer] = "smtps://" + h.addr
	if _, err := h.Probe(t.Context(), &n); problem.Of(err) != problem.Invalid || !strings.Contains(err.Error(), "SMTP server") {
		t.Errorf("an IMAP server for SMTP: got %v", err)
	}
	for range 20 {
		_, err = h.Probe(t.Context(), &n)
	}
	if problem.Of(err) != problem.RateLimited {
		t.Errorf("many attempts: got %v", err)
	}
}

// TestSignIn tests a connected mailbox as its page does.
func TestSignIn(t *testing.T) {
	h := start(t)
	c := h.connect(nil)
	if err := h.Test(t.Context(), &c); err != nil {
		t.Errorf("a mailbox: got %v", err)
	}
	missing := c
	missing.Settings = map[string]string{email.SettingFolders: "Support"}
	if err := h.Test(t.Context(), &missing); err == nil || !strings.Contains(err.Error(), "Support is no folder") {
		t.Errorf("a missing folder: got %v", err)
	}
	var changed connection.Connection
	if err := h.db.Write(t.Context(), func(tx *db.Tx) (err error) {
		changed, err = h.connections.UpdateTx(t.Context(), tx, "org-1", c.ID, connection.Change{Credentials: map[string]string{
			email.CredentialIMAP: "imaps://" + h.addr, email.CredentialPassword: "of another person",
		}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := h.Test(t.Context(), &changed); err == nil || strings.Contains(err.Error(), "another person") {
		t.Errorf("a wrong password: got %v", err)
	}
}

// TestManyMails: batches have every mail once, also large ones.
func TestManyMails(t *testing.T) {
	h := start(t)
	h.connect(nil)
	var want []string
	for i := range 700 {
		subject := fmt.Sprint("mail ", i)
		raw := mailText(subject, subject)
		if i%100 == 99 {
			raw += strings.Repeat("The lock does not open.\r\n", 150_000) // 3.7 MB
		}
		h.append("INBOX", raw, time.Time{})
		want = append(want, subject)
	}
	h.run()
	h.want(want...)
}

// TestTooLarge: of a mail above the limit the beginning is stored, with its size.
func TestTooLarge(t *testing.T) {
	h := start(t)
	h.connect(nil)
	h.append("INBOX", mailText("large", "large")+strings.Repeat("The lock does not open.\r\n", 1_500_000), time.Time{})
	h.deliver("INBOX", "small")
	h.run()
	h.want("large", "small")
	r := h.journal.stored[0]
	if len(r.Body) != 256<<10 || r.Header.Get(email.MailboxSizeHeader) == "" {
		t.Errorf("%d bytes are stored, with %v", len(r.Body), r.Header)
	}
	a := email.NewMailbox(email.Config{})
	parts, err := a.Split(r)
	if err != nil {
		t.Fatal(err)
	}
	e, err := a.Parse(r, parts[0])
	if err != nil || !strings.Contains(e.Message.Text, "Only the beginning of this mail is here: it has 35 MB") {
		t.Errorf("got %v", err)
	}
}
