package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/app/apptest"
	"github.com/kickstand-dev/kickstand/internal/app/doctor"
	"github.com/kickstand-dev/kickstand/internal/channel/channeltest"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

const received = "support@acme.example"

// mailServer is a program that receives mail.
type mailServer struct {
	*App
	log  *logged
	base string
}

func serveMail(t *testing.T) *mailServer {
	t.Helper()
	log := new(logged)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + ln.Addr().String()
	a, err := Open(t.Context(), Config{
		BaseURL: base, Data: t.TempDir(), DatabaseURL: dbtest.URL(t), MailFrom: "no-reply@help.example", AllowNoMail: true,
		RetryTimeScale: 1, Web: true, Worker: true, StopTimeout: 10 * time.Second,
		MailReceiver: MailReceiver{Listen: "127.0.0.1:0", Hostname: "mx.help.example", MailRate: 1 << 20},
		LookupTXT: func(_ context.Context, name string) ([]string, error) {
			return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
		},
	}, log.logger())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- a.Serve(ctx, ln, func() error { close(ready); return nil }) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Serve() = %v", err)
		}
		a.Close()
	})
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	o, err := a.Accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Connections.Connect(t.Context(), connection.New{OrganizationID: o.ID, Channel: email.DirectName, Address: received, ByOperator: true}); err != nil {
		t.Fatal(err)
	}
	return &mailServer{a, log, base}
}

// smtpClient is a client that sends mails as they are.
type smtpClient struct {
	conn net.Conn
	in   *bufio.Reader
}

func (s *mailServer) dial(t *testing.T) *smtpClient {
	t.Helper()
	conn, err := net.Dial("tcp", s.mailAddress)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &smtpClient{conn, bufio.NewReader(conn)}
	c.in.ReadString('\n')
	c.do("EHLO client.example\r\n")
	return c
}

// do sends text and returns the last line of the reply.
func (c *smtpClient) do(text string) string {
	c.conn.Write([]byte(text))
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return err.Error()
		}
		if len(line) > 3 && line[3] == ' ' {
			return line
		}
	}
}

// send sends a mail and returns the reply.
func (c *smtpClient) send(content []byte) string {
	for _, command := range []string{"MAIL FROM:<ana@client.example>\r\n", "RCPT TO:<" + received + ">\r\n", "DATA\r\n"} {
		if reply := c.do(command); reply[0] != '2' && reply[0] != '3' {
			return reply
		}
	}
	stuffed := bytes.ReplaceAll(content, []byte("\r\n."), []byte("\r\n.."))
	if bytes.HasPrefix(stuffed, []byte(".")) {
		stuffed = append([]byte("."), stuffed...)
	}
	return c.do(string(stuffed) + ".\r\n")
}

// hostileMails returns the mails and the requests of all tests of mail, as they are, with line ends
// of mail, and damaged, as mails that end with CRLF.
func hostileMails(t *testing.T) (list [][]byte) {
	t.Helper()
	seen := make(map[string]bool)
	add := func(content []byte) {
		if !bytes.HasSuffix(content, []byte("\r\n")) {
			content = append(bytes.Clone(content), "\r\n"...)
		}
		if !seen[string(content)] {
			seen[string(content)] = true
			list = append(list, content)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	const folder = "../channel/email/testdata"
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".txtar") {
			content = channeltest.Load(t, path).Body
		}
		add(content)
		mailed := bytes.ReplaceAll(bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
		add(mailed)
		for range 6 {
			damaged := bytes.Clone(mailed)
			for range 1 + random.IntN(8) {
				if len(damaged) < 2 {
					break
				}
				at := random.IntN(len(damaged))
				switch random.IntN(5) {
				case 0:
					damaged[at] = byte(random.IntN(256))
				case 1:
					damaged = append(damaged[:at:at], damaged[min(len(damaged), at+random.IntN(40)):]...)
				case 2:
					damaged = damaged[:at]
				case 3:
					end := min(len(damaged), at+random.IntN(200))
					damaged = append(damaged[:end:end], damaged[at:]...)
				default:
					odd := []string{"\r", "\n", "\x00", "\r\n.\r\n", "\n.\n", "\r\r\n", "\r\n\r\n", "=?utf-8?B?=?=", "boundary=", "\xff\xfe", "--", ";", `"`, "From: x@y.example\r\n"}
					damaged = append(damaged[:at:at], append([]byte(odd[random.IntN(len(odd))]), damaged[at:]...)...)
				}
			}
			add(damaged)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{
		"", ".", "\r\n", "\r\n\r\n", "no header at all", "From: a@b\n\n", "\x00\x00\x00", strings.Repeat("x", 3<<20), strings.Repeat("Subject: a\r\n", 50_000),
		"From: " + strings.Repeat("(", 100_000) + "\r\n\r\nx", "From: a@b.example\r\nContent-Type: multipart/mixed; boundary=\"\"\r\n\r\n--\r\n\r\n----\r\n",
		"From: a@b.example\r\nContent-Type: text/html; charset=utf-7\r\n\r\n+ADw-script+AD4-", "From: a@b.example\r\n\r\n" + strings.Repeat("é\xff\r\n", 100_000),
		"Content-Type: multipart/mixed; boundary=a\r\n\r\n" + strings.Repeat("--a\r\nContent-Type: multipart/mixed; boundary=a\r\n\r\n", 5000),
		"DKIM-Signature: " + strings.Repeat("v=1; a=rsa-sha256; d=b.example; s=x; ", 3000) + "\r\nFrom: a@b.example\r\n\r\nx",
	} {
		add([]byte(content))
	}
	return list
}

// TestHostileMails sends the mails of all tests by SMTP, each twice: each is stored once, byte for
// byte, and processed.
func TestHostileMails(t *testing.T) {
	s := serveMail(t)
	mails := hostileMails(t)
	work := make(chan []byte)
	var sending sync.WaitGroup
	for range 4 {
		c := s.dial(t)
		sending.Go(func() {
			for content := range work {
				for range 2 {
					if reply := c.send(content); !strings.HasPrefix(reply, "250 ") {
						t.Errorf("%.200q is answered %q", content, reply)
					}
				}
			}
		})
	}
	for _, content := range mails {
		work <- content
	}
	close(work)
	sending.Wait()

	jobs := func() (n int) {
		t.Helper()
		if err := s.DB.QueryRow(t.Context(), "SELECT count(*) FROM jobs WHERE kind = 'inbound/email-smtp'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for range apptest.Poll(t, time.Minute) {
		if jobs() == 0 {
			break
		}
	}
	states, err := db.All(t.Context(), s.DB, func(row db.Row) (one string, err error) {
		var n int
		err = row.Scan(&one, &n)
		return fmt.Sprintf("%s %d", one, n), err
	}, "SELECT state, count(*) FROM inbound_events WHERE channel = 'email-smtp' GROUP BY state ORDER BY state")
	if err != nil {
		t.Fatal(err)
	}
	total, blank := 0, 0
	for _, content := range mails {
		if len(bytes.TrimSpace(content)) == 0 {
			blank++
		}
	}
	for _, one := range states {
		var state string
		var n int
		fmt.Sscan(one, &state, &n)
		total += n
		if state == "rejected" && n == blank || state == "processed" {
			continue
		}
		t.Errorf("%d mails are %s, and %d are blank", n, state, blank)
	}
	if total != len(mails) {
		t.Errorf("%d mails were stored, want %d", total, len(mails))
	}
	s.checkBodies(t, mails)
	t.Logf("%d mails, each sent twice: %v", len(mails), states)
	if strings.Contains(s.log.String(), "panic") {
		t.Errorf("something panicked: %s", s.log.String())
	}
	if findings, _ := brokenRules(t, s.App, true); len(findings) > 0 {
		t.Errorf("verify finds %v", findings)
	}
}

// checkBodies checks that the bodies in the database are mails as they were sent.
func (s *mailServer) checkBodies(t *testing.T, mails [][]byte) {
	t.Helper()
	sent := make(map[string]bool)
	for _, content := range mails {
		sent[string(content)] = true
	}
	bodies, err := db.All(t.Context(), s.DB, func(row db.Row) (body []byte, err error) {
		var header string
		if err = row.Scan(&header, &body); err != nil {
			return nil, err
		}
		_, value, _ := strings.Cut(header, email.DirectTraceHeader+": ")
		n := 0
		fmt.Sscan(value, &n)
		return body[n:], nil
	}, "SELECT headers, body FROM inbound_events WHERE channel = 'email-smtp' AND body_key IS NULL")
	if err != nil {
		t.Fatal(err)
	}
	if len(bodies) < len(mails)/2 {
		t.Errorf("only %d bodies are in the database", len(bodies))
	}
	for _, body := range bodies {
		if !sent[string(body)] {
			t.Errorf("%.200q is stored and was not sent", body)
		}
	}
}

// TestMailBecomesTicket follows a mail to its ticket, with the metrics, the readiness and the
// audit log of the receiver.
func TestMailBecomesTicket(t *testing.T) {
	s := serveMail(t)
	c := s.dial(t)
	if reply := c.send([]byte("From: Ana <ana@client.example>\r\nSubject: Lock\r\nMessage-ID: <1@client.example>\r\n\r\nIt does not open.\r\n")); !strings.HasPrefix(reply, "250 ") {
		t.Fatal(reply)
	}
	c.do("MAIL FROM:<>\r\n")
	if reply := c.do("RCPT TO:<nobody@acme.example>\r\n"); !strings.HasPrefix(reply, "550 5.1.1 ") {
		t.Errorf("an unknown recipient is answered %q", reply)
	}
	count := func(query string) (n int) {
		t.Helper()
		if err := s.DB.QueryRow(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for range apptest.Poll(t, 20*time.Second) {
		if count("SELECT count(*) FROM messages WHERE external_id = '1@client.example'") == 1 {
			break
		}
	}
	for range apptest.Poll(t, 20*time.Second) {
		if count("SELECT count(*) FROM audit_entries WHERE action = 'inbound.refused'") == 1 {
			break
		}
	}
	resp, err := http.Get(s.base + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var ready report
	if err := json.NewDecoder(resp.Body).Decode(&ready); err != nil || ready.Parts["smtp"].Status != partOK {
		t.Errorf("/readyz has %+v, %v", ready, err)
	}
	families, err := s.metrics.Gather().Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bool)
	for _, f := range families {
		found[f.GetName()] = true
	}
	for _, name := range []string{"kickstand_smtp_mail_duration_seconds", "kickstand_smtp_refusals_total", "kickstand_smtp_connections"} {
		if !found[name] {
			t.Errorf("there is no metric %s", name)
		}
	}
	if !strings.Contains(s.MailAdvice(&connection.Connection{Address: received}), "acme.example. MX 10 mx.help.example.") {
		t.Errorf("the advice is %q", s.MailAdvice(&connection.Connection{Address: received}))
	}
}

func TestCheckMailReceiver(t *testing.T) {
	for _, tt := range []struct {
		r  MailReceiver
		ok bool
	}{
		{MailReceiver{}, true}, {MailReceiver{Listen: ":25", Hostname: "mx.example.com"}, true}, {MailReceiver{Listen: SocketActivation}, true},
		{MailReceiver{Listen: "25"}, false}, {MailReceiver{Listen: ":25", Hostname: "mx example"}, false}, {MailReceiver{Certificate: "c.pem"}, false},
		{MailReceiver{Connections: -1}, false},
	} {
		if err := (Config{MailReceiver: tt.r}).CheckMailReceiver(); (err == nil) != tt.ok {
			t.Errorf("%+v: got %v", tt.r, err)
		}
	}
	for base, want := range map[string]string{"https://Help.example.com": "help.example.com", "http://127.0.0.1:8080": "127.0.0.1", "http://[::1]:8080": "::1"} {
		if got := (Config{BaseURL: base, MailReceiver: MailReceiver{Listen: ":25"}}).mailHost(); got != want {
			t.Errorf("%s: got %q, want %q", base, got, want)
		}
	}
	if got := (Config{BaseURL: "https://help.example.com"}).mailHost(); got != "" {
		t.Errorf("without a listener: got %q", got)
	}
}

// fakeMX has the MX records of one domain.
type fakeMX map[string]string

func (f fakeMX) LookupMX(_ context.Context, name string) ([]*net.MX, error) {
	if f[name] == "" {
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	}
	return []*net.MX{{Host: f[name], Pref: 10}}, nil
}

func (f fakeMX) LookupHost(_ context.Context, name string) ([]string, error) {
	if f["host"] != name {
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	}
	return []string{"192.0.2.1"}, nil
}

func TestMailRecords(t *testing.T) {
	const host = "mx.example.com"
	for _, tt := range []struct {
		dns     fakeMX
		domains []string
		status  doctor.Status
	}{
		{fakeMX{}, nil, doctor.OK},
		{fakeMX{"host": host, "a.example": "MX.example.com."}, []string{"a.example"}, doctor.OK},
		{fakeMX{"host": host, "a.example": host}, []string{"a.example", "b.example"}, doctor.Warn},
		{fakeMX{"a.example": host}, []string{"a.example"}, doctor.Fail},
	} {
		if f := doctor.MailRecords(t.Context(), host, tt.domains, tt.dns, nil); f.Status != tt.status {
			t.Errorf("%v: got %+v, want %s", tt.dns, f, tt.status)
		}
	}
	if f := doctor.MailCertificate("", "", host); f.Status != doctor.Warn {
		t.Errorf("no certificate: got %+v", f)
	}
	if f := doctor.MailCertificate("missing.pem", "missing.pem", host); f.Status != doctor.Fail {
		t.Errorf("a missing certificate: got %+v", f)
	}
}
