package smtpd_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/smtpd"

	"github.com/emersion/go-smtp"
)

// TestDelivery: each organization gets one copy that names its own recipients only, with the trace
// fields; and a repeated mail is stored once.
func TestDelivery(t *testing.T) {
	r := start(t).listen()
	a := r.own("acme", ours, map[string]string{"aliases": "sales@acme.example"})
	b := r.connect("bolt", email.DirectName, "desk@bolt.example", true, nil)
	for range 2 {
		c, err := smtp.Dial(r.address)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SendMail("ana@client.example", []string{"Help+tag@ACME.example", "sales@acme.example", "desk@bolt.example"}, strings.NewReader(letter(1)+"\n..\n.end\n")); err != nil {
			t.Fatal(err)
		}
		c.Quit()
	}
	got := r.journal.copies()
	if len(got) != 2 || got[0].Connection.ID != a.ID || got[1].Connection.ID != b.ID {
		t.Fatalf("got %d copies, want one each for acme and bolt", len(got))
	}
	for i, want := range [][]string{{ours, "sales@acme.example"}, {"desk@bolt.example"}} {
		h := got[i].Request.Header
		if !slices.Equal(h.Values("X-Envelope-To"), want) || h.Get("X-Envelope-From") != "ana@client.example" || h.Get(email.DirectClientHeader) != "127.0.0.1" {
			t.Errorf("copy %d: got %v, want the recipients %v", i, h, want)
		}
		if body := received(t, got[i]); body != letter(1)+"\r\n..\r\n.end\r\n" {
			t.Errorf("copy %d: got %q", i, body)
		}
		head, _, _ := bytes.Cut(got[i].Request.Body, []byte("\r\nFrom: "))
		if !bytes.HasPrefix(head, []byte("Return-Path: <ana@client.example>\r\nReceived: from localhost ([127.0.0.1])\r\n\tby "+host+" with ESMTP id ")) {
			t.Errorf("copy %d: the trace fields are %q", i, head)
		}
		if bytes.Contains(head, []byte("@acme")) || bytes.Contains(head, []byte("@bolt")) {
			t.Errorf("copy %d: the trace fields name a recipient: %q", i, head)
		}
	}
	var lines []map[string]any
	for line := range strings.Lines(r.access.String()) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, one)
	}
	if len(lines) != 2 || lines[0]["result"] != "accepted" || lines[1]["result"] != "duplicate" || lines[0]["status"] != 250.0 {
		t.Errorf("the access log has %v", lines)
	}
	if strings.Contains(r.access.String(), "@") {
		t.Errorf("the access log has an address: %s", r.access.String())
	}
}

// TestRelay: no recipient leads to another server.
func TestRelay(t *testing.T) {
	r := start(t)
	r.own("acme", ours, map[string]string{"aliases": "@acme.example"})
	for _, from := range []string{"ana@client.example", ours, "", "postmaster@" + host} {
		c := r.greeted()
		for i, to := range []string{
			"<victim@relay.example>", "victim@relay.example", `<"victim@relay.example">`, `<"victim"@relay.example>`,
			"<victim%relay.example@acme.example>", "<victim%relay.example@" + host + ">", "<victim%relay.example@[127.0.0.1]>",
			"<relay.example!victim@acme.example>", "<relay.example!victim>", `<"victim@relay.example"@acme.example>`,
			`<"victim%relay.example"@acme.example>`, `<victim@relay.example@acme.example>`, "<@acme.example:victim@relay.example>",
			"<@acme.example,@" + host + ":victim@relay.example>", "<victim@relay.example:" + ours + ">", "<victim@[127.0.0.1]>",
			"<victim@127.0.0.1>", "<victim@" + host + ">", "<victim>", "<>", "<@acme.example>", "<victim@acme.example@relay.example>",
			`<"\"victim@relay.example\""@acme.example>`, "<victim@relay.example>@acme.example", `<"victim@acme.example>`, "<victim @relay.example>",
			"<victim@sub.acme.example>", "<victim@acme.example.relay.example>", "<" + strings.Repeat("x", 400) + "@acme.example>",
		} {
			if i%5 == 0 { // errors end a connection
				c = r.greeted()
				c.do("MAIL FROM:<"+from+">", 250)
			}
			c.write("RCPT TO:" + to + "\r\n")
			if code, text := c.reply(); code != 550 && code != 501 && code != 555 {
				t.Errorf("from <%s> to %s: got %q, want a refusal", from, to, text)
			}
		}
	}
	if n := len(r.journal.copies()); n != 0 {
		t.Errorf("%d mails were stored", n)
	}
	if !slices.Contains(r.journal.refused, "unknown_recipient") {
		t.Error("the refusals are not in the audit log")
	}
}

// TestRecipients: which connection receives the mail to an address.
func TestRecipients(t *testing.T) {
	r := start(t)
	acme := r.own("acme", ours, map[string]string{"aliases": "sales@acme.example, @acme.example"})
	whole := r.connect("acme", email.DirectName, "two@acme.example", false, map[string]string{"aliases": "single@acme.example"})
	if _, err := r.connections.Prove(t.Context(), "acme", whole.ID, "dns"); err != nil {
		t.Fatal(err)
	}
	r.connect("bolt", email.DirectName, "desk@bolt.example", true, map[string]string{"aliases": "@bolt.example"})
	r.connect("bolt", email.DirectName, "claimed@acme.example", false, nil)
	r.connect("bolt", email.DirectName, "claimed@other.example", false, nil)
	r.connect("bolt", "email-raw", "raw@other.example", true, nil)
	off := r.connect("bolt", email.DirectName, "off@other.example", true, nil)
	if err := r.connections.SetEnabled(t.Context(), "bolt", off.ID, false); err != nil {
		t.Fatal(err)
	}
	idn := r.connect("bolt", email.DirectName, "hilfe@bücher.example", true, nil)
	wide := r.connect("bolt", email.DirectName, "one@wide.example", false, map[string]string{"aliases": "@wide.example"})
	r.connect("bolt", email.DirectName, "one@narrow.example", false, map[string]string{"aliases": "@narrow.example"})
	for _, tt := range []struct {
		to   string
		code int
		id   string
	}{
		{"any@wide.example", 250, wide.ID}, {"any@narrow.example", 550, ""}, // the operator's list has a domain, and an address
		{ours, 250, acme.ID}, {`"help"@acme.example`, 250, acme.ID}, {"@relay.example:" + ours, 250, acme.ID}, {"HELP@Acme.Example.", 250, acme.ID},
		{"sales@acme.example", 250, acme.ID}, {"any.body@acme.example", 250, acme.ID}, {"single@acme.example", 250, whole.ID},
		{"claimed@acme.example", 250, acme.ID},                             // a stranger's claim changes nothing
		{"other@bolt.example", 550, ""},                                    // only one address of it is proven
		{"claimed@other.example", 450, ""}, {"raw@other.example", 450, ""}, // temporary: nothing is lost
		{"off@other.example", 450, ""}, {"nobody@other.example", 550, ""},
		{"hilfe@xn--bcher-kva.example", 250, idn.ID},
	} {
		before := len(r.journal.copies())
		c := r.greeted()
		c.do("MAIL FROM:<ana@client.example>", 250)
		c.do("RCPT TO:<"+tt.to+">", tt.code)
		if tt.code != 250 {
			c.do("DATA", 554)
			continue
		}
		c.do("DATA", 354)
		c.write(letter(before) + "\r\n.\r\n")
		c.want(250)
		if got := r.journal.copies(); len(got) != before+1 || got[before].Connection.ID != tt.id {
			t.Errorf("%s: not stored for its connection", tt.to)
		}
	}
	var v smtpd.Copy
	for _, v = range r.journal.copies() {
		if v.Connection.Address == "off@other.example" {
			t.Error("a disabled connection received a mail")
		}
	}
	if _, _, err := r.connections.Connect(t.Context(), connection.New{OrganizationID: "acme", Channel: email.DirectName, Address: "x@acme.example", Settings: map[string]string{"aliases": "@bolt.example"}}); err == nil {
		t.Error("an alias in another domain was accepted")
	}
}

// TestCommands: commands out of order, malformed, or not supported.
func TestCommands(t *testing.T) {
	r := start(t)
	r.own("acme", ours, nil)
	const from, to = "MAIL FROM:<ana@client.example>", "RCPT TO:<" + ours + ">"
	for _, tt := range []struct {
		commands string // separated by semicolons, each with its code
	}{
		{"MAIL FROM:<>=503"}, {"EHLO=501"}, {"EHLO a b=501"}, {"HELO client=250;" + from + "=250"}, {"NOOP=250;VRFY help=252;EXPN help=502;HELP=214;QUIT=221"},
		{"EHLO c=250;AUTH PLAIN AAA=502;BDAT 3 LAST=502;ETRN x=502;FOO=500;=500"},
		{"EHLO c=250;RCPT TO:<x@y.example>=503;DATA=503"},
		{"EHLO c=250;" + from + "=250;" + from + "=503;DATA=554;RSET=250;" + from + "=250"},
		{"EHLO c=250;MAIL FROM:<>=250;" + to + "=250;DATA x=501;RSET=250;DATA=503"},
		{"EHLO c=250;MAIL FROM: <ana@client.example>  SIZE=100 BODY=8BITMIME=250"}, {"EHLO c=250;mail from:<ana@client.example> body=7bit=250"},
		{"EHLO c=250;MAIL FROM:<a@b.example> SIZE=99999999=552"}, {"EHLO c=250;MAIL FROM:<a@b.example> SIZE=99999999999999999999999=552"}, {"EHLO c=250;MAIL FROM:<a@b.example> SIZE=x=501"},
		{"EHLO c=250;MAIL FROM:<a@b.example> BODY=BINARYMIME=555"}, {"EHLO c=250;MAIL FROM:<a@b.example> RET=HDRS=555"}, {"EHLO c=250;MAIL FROM:<a@b.example> AUTH=<>=555"},
		{"EHLO c=250;" + from + "=250;" + to + " NOTIFY=NEVER=555"}, {"EHLO c=250;MAIL <a@b.example>=501"}, {"EHLO c=250;MAIL FROM:<a@b.example=501"}, {"EHLO c=250;MAIL FROM:a=501"},
		{"EHLO c=250;MAIL FROM:<ünï@client.example>=553"}, {"EHLO c=250;MAIL FROM:<ünï@client.example> SMTPUTF8=250;" + to + "=250"}, {"HELO c=250;MAIL FROM:<a@b.example> SMTPUTF8=555"},
		{"EHLO c=250;" + from + "=250;RCPT TO:<hélp@acme.example>=553"}, {"STARTTLS=502"}, {"EHLO c\x00=501"}, {"EHLO \xff=501"}, {"EHLO a\rb=501"},
		{"EHLO " + strings.Repeat("x", 300) + "=501"}, {"NOOP " + strings.Repeat("x", 5000) + "=521"},
	} {
		c := r.dial()
		c.want(220)
		for part := range strings.SplitSeq(tt.commands, ";") {
			i := strings.LastIndexByte(part, '=')
			var code int
			fmt.Sscan(part[i+1:], &code)
			c.do(part[:i], code)
		}
		c.conn.Close()
	}
	for _, bare := range []string{"NOOP\n", "EHLO c\r\n" + from + "\n" + to + "\r\n"} {
		c := r.dial()
		c.want(220)
		go c.write(bare)
		if strings.Contains(bare, "EHLO") {
			c.want(250)
		}
		c.want(521)
		if code, _ := c.reply(); code != 0 {
			t.Errorf("%q: the session goes on with %d", bare, code)
		}
	}
	c := r.greeted()
	for range 10 {
		c.do("FOO", 500)
	}
	c.do("FOO", 421)
}

// TestPipelining: the replies to commands that travel together are in order.
func TestPipelining(t *testing.T) {
	r := start(t).listen()
	r.own("acme", ours, nil)
	c := r.greeted()
	c.write("MAIL FROM:<ana@client.example>\r\nRCPT TO:<nobody@acme.example>\r\nRCPT TO:<" + ours + ">\r\nDATA\r\n")
	for _, code := range []int{250, 550, 250, 354} {
		c.want(code)
	}
	c.write(letter(1) + "\r\n.\r\nMAIL FROM:<>\r\nQUIT\r\n")
	for _, code := range []int{250, 250, 221} {
		c.want(code)
	}
	if n := len(r.journal.copies()); n != 1 {
		t.Errorf("%d mails were stored, want 1", n)
	}
}

// TestSmuggling: only CRLF.CRLF ends a mail, and everything before it is content.
func TestSmuggling(t *testing.T) {
	r := start(t).listen()
	r.own("acme", ours, nil)
	const inner = "MAIL FROM:<evil@client.example>\r\nRCPT TO:<" + ours + ">\r\nDATA\r\nFrom: boss@acme.example\r\n\r\nPay"
	for i, end := range []string{"\n.\n", "\r.\r", "\n.\r\n", "\r\n.\n", "\r\n.\r", "\r\n\x00.\r\n", "\n.\r\r\n", "\r\r.\r\r\n", "\r\n.\r\r", "\x85.\x85", "\r\n..\r\n", "\r\n.\x00\r\n"} {
		c := r.greeted()
		content := letter(i) + end + inner
		c.send("ana@client.example", ours, content, 250)
		c.do("NOOP", 250)
		got := r.journal.copies()
		if len(got) != i+1 {
			t.Fatalf("%q: %d mails were stored, want %d", end, len(got), i+1)
		}
		want := content + "\r\n"
		if end == "\r\n..\r\n" || strings.HasPrefix(end, "\r\n.") {
			want = strings.Replace(want, "\r\n.", "\r\n", 1) // the client's dot
		}
		if body := received(t, got[i]); body != want {
			t.Errorf("%q: got %q, want %q", end, body, want)
		}
	}
	c := r.greeted()
	c.send("ana@client.example", ours, letter(100)+"\r", 250) // CR CR LF . CR LF is an end
	c.do("QUIT", 221)
}

// certificate writes a certificate for a serial number.
func certificate(t *testing.T, dir string, serial int64) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(time.Duration(serial) * time.Minute) // clocks of files are coarse
		if err := os.Chtimes(name, later, later); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// secure starts TLS and returns the serial number of the certificate.
func (c *client) secure() (serial int64) {
	c.t.Helper()
	c.do("STARTTLS", 220)
	conn := tls.Client(c.conn, &tls.Config{InsecureSkipVerify: true})
	if err := conn.Handshake(); err != nil {
		c.t.Fatal(err)
	}
	c.conn = conn
	c.in.Reset(conn)
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// TestTLS: mail arrives by TLS, and a new certificate needs no restart.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := certificate(t, dir, 1)
	r := start(t, func(r *rig) {
		var err error
		if r.config.Certificate, err = smtpd.OpenCertificate(certFile, keyFile, r.config.Logger); err != nil {
			t.Fatal(err)
		}
	}).listen()
	r.own("acme", ours, nil)
	c := r.greeted()
	c.do("MAIL FROM:<injected@client.example>", 250)
	if serial := c.secure(); serial != 1 {
		t.Errorf("got certificate %d, want 1", serial)
	}
	c.do("MAIL FROM:<>", 503) // the state before TLS is void
	if text := c.do("EHLO client.example", 250); strings.Contains(text, "STARTTLS") {
		t.Errorf("STARTTLS is offered twice: %q", text)
	}
	c.do("STARTTLS", 503)
	c.send("ana@client.example", ours, letter(1), 250)
	one := r.journal.copies()[0]
	if got := one.Request.Header.Get(email.DirectTLSHeader); !strings.HasPrefix(got, "TLS 1.3 TLS_") {
		t.Errorf("the stored TLS version is %q", got)
	}
	if !bytes.Contains(one.Request.Body, []byte("with ESMTPS id")) {
		t.Errorf("the trace fields are %q", one.Request.Body[:200])
	}

	certificate(t, dir, 2)
	if serial := r.greeted().secure(); serial != 2 {
		t.Errorf("got certificate %d after the renewal, want 2", serial)
	}
	if err := os.WriteFile(certFile, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if serial := r.greeted().secure(); serial != 2 {
		t.Errorf("got certificate %d during a renewal, want 2", serial)
	}

	c = r.greeted()
	c.write("STARTTLS\r\nMAIL FROM:<injected@client.example>\r\n")
	c.want(521)
	if code, _ := c.reply(); code != 0 {
		t.Errorf("the session goes on with %d", code)
	}
	c = r.greeted()
	c.do("STARTTLS", 220)
	c.write("this is no TLS\r\nMAIL FROM:<>\r\n")
	if data, _ := io.ReadAll(c.in); bytes.Contains(data, []byte("250")) {
		t.Errorf("the session goes on with %q", data)
	}
}

// TestLimits: what is too much is refused, and for now where it can be repeated.
func TestLimits(t *testing.T) {
	t.Run("size", func(t *testing.T) {
		r := start(t, func(r *rig) { r.config.MaxSize = 400_000 }).listen()
		r.own("acme", ours, nil)
		c := r.greeted()
		c.send("ana@client.example", ours, letter(1)+"\r\n\r\n"+strings.Repeat("x\r\n", 150_000), 552)
		c.send("ana@client.example", ours, letter(2)+"\r\n\r\n"+strings.Repeat("y\r\n", 120_000), 250) // in a file
		got := r.journal.copies()
		if len(got) != 1 || received(t, got[0]) != letter(2)+"\r\n\r\n"+strings.Repeat("y\r\n", 120_000)+"\r\n" {
			t.Error("the large mail is not stored as sent")
		}
		c.do("MAIL FROM:<ana@client.example>", 250)
		c.do("RCPT TO:<"+ours+">", 250)
		c.do("DATA", 354)
		go c.write(strings.Repeat("z", 900_000)) // without an end
		c.want(552)
		if code, text := c.reply(); code != 0 {
			t.Errorf("after an endless mail the session goes on with %q", text)
		}
		if files, err := os.ReadDir(r.config.SpoolDir); err != nil || len(files) > 0 {
			t.Errorf("%d files stay behind (%v)", len(files), err)
		}
	})
	t.Run("recipients", func(t *testing.T) {
		r := start(t)
		r.own("acme", ours, nil)
		c := r.greeted()
		c.do("MAIL FROM:<>", 250)
		for range smtpd.MaxRecipients {
			c.do("RCPT TO:<"+ours+">", 250)
		}
		c.do("RCPT TO:<"+ours+">", 452)
		c.do("DATA", 354)
		c.write(letter(1) + "\r\n.\r\n")
		c.want(250)
	})
	t.Run("mails", func(t *testing.T) {
		r := start(t, func(r *rig) { r.config.Mails = &limiter{left: 2} })
		c := r.greeted()
		for _, code := range []int{250, 250, 450} {
			c.do("MAIL FROM:<>", code)
			c.do("RSET", 250)
		}
	})
	t.Run("refusals", func(t *testing.T) {
		r := start(t, func(r *rig) { r.config.Refusals = &limiter{left: 2} })
		c := r.greeted()
		c.do("MAIL FROM:<>", 250)
		for _, code := range []int{550, 550, 421} {
			c.do("RCPT TO:<guess@acme.example>", code)
		}
		r.dial().want(421)
	})
	t.Run("connections", func(t *testing.T) {
		r := start(t, func(r *rig) { r.config.MaxConnections, r.config.MaxPerClient = 3, 2 })
		first := r.dial()
		first.want(220)
		r.dial().want(220)
		r.dial().want(421)
		first.do("QUIT", 221)
		if code, _ := first.reply(); code != 0 {
			t.Errorf("the session goes on with %d", code)
		}
		r.dial().want(220)
	})
	t.Run("idle commands", func(t *testing.T) {
		r := start(t)
		r.own("acme", ours, nil)
		c := r.greeted()
		for range 99 {
			c.do("NOOP", 250)
		}
		c.send("ana@client.example", ours, letter(1), 250)
		for range 100 {
			c.do("RSET", 250)
		}
		c.do("RSET", 421)
	})
	t.Run("loop", func(t *testing.T) {
		r := start(t)
		r.own("acme", ours, nil)
		c := r.greeted()
		c.send("ana@client.example", ours, strings.Repeat("Received: by x; now\r\n", 50)+letter(1), 250)
		c.send("ana@client.example", ours, strings.Repeat("Received: by x; now\r\n", 51)+letter(2), 554)
	})
}

// TestTemporaryFailure: a failure of ours is temporary, and the repeated mail is stored once.
func TestTemporaryFailure(t *testing.T) {
	d := dbtest.NewSQLite(t)
	r := startOn(t, d)
	r.own("acme", ours, nil)
	r.journal.fail = errors.New("the disk is full")
	c := r.greeted()
	c.send("ana@client.example", ours, letter(1), 451)
	if len(r.journal.copies()) != 0 {
		t.Error("a mail was stored")
	}
	r.journal.fail = nil
	c.send("ana@client.example", ours, letter(1), 250)
	c.send("ana@client.example", ours, letter(1), 250)
	if n := len(r.journal.copies()); n != 1 {
		t.Errorf("%d mails were stored, want 1", n)
	}
	d.Close()
	c.do("MAIL FROM:<ana@client.example>", 250)
	c.do("RCPT TO:<other@acme.example>", 451)
}

// TestMoved: a mail is not stored for a connection that has lost its address meanwhile.
func TestMoved(t *testing.T) {
	r := start(t)
	c := r.own("acme", ours, nil)
	s := r.greeted()
	s.do("MAIL FROM:<ana@client.example>", 250)
	s.do("RCPT TO:<"+ours+">", 250)
	s.do("DATA", 354)
	if err := r.connections.SetEnabled(t.Context(), "acme", c.ID, false); err != nil {
		t.Fatal(err)
	}
	s.write(letter(1) + "\r\n.\r\n")
	s.want(451)
	if len(r.journal.copies()) != 0 {
		t.Error("a mail was stored")
	}
}

// TestSPF: the result of SPF is stored outside of the mail.
func TestSPF(t *testing.T) {
	names := &resolver{txt: map[string]string{"good.example": "v=spf1 ip4:127.0.0.0/8 -all", "bad.example": "v=spf1 -all", "odd.example": "v=spf1 nonsense", "client.good.example": "v=spf1 ip4:127.0.0.1 -all"}}
	r := start(t, func(r *rig) { r.config.Resolver = names }).listen()
	r.own("acme", ours, nil)
	for i, tt := range []struct{ from, helo, value, domain string }{
		{"a@good.example", "x.example", "pass", "good.example"},
		{"a@bad.example", "x.example", "fail", "bad.example"},
		{"a@none.example", "x.example", "none", "none.example"},
		{"a@odd.example", "x.example", "permerror", "odd.example"},
		{`"a@good.example"@bad.example`, "x.example", "fail", "bad.example"},
		{"", "client.good.example", "pass", "client.good.example"},
		{"", "[127.0.0.1]", "none", "[127.0.0.1]"},
	} {
		c := r.dial()
		c.want(220)
		c.do("EHLO "+tt.helo, 250)
		c.send(tt.from, ours, "X-Smtp-Spf: pass\r\nReceived-SPF: pass\r\nAuthentication-Results: "+host+"; spf=pass; dmarc=pass\r\n"+letter(i), 250)
		h := r.journal.copies()[i].Request.Header
		if h.Get(email.DirectSPFHeader) != tt.value || h.Get(email.DirectSPFDomainHeader) != tt.domain {
			t.Errorf("%+v: got %q of %q", tt, h.Get(email.DirectSPFHeader), h.Get(email.DirectSPFDomainHeader))
		}
	}
	names.odd = true
	r.greeted().send("a@good.example", ours, letter(100), 250)
	all := r.journal.copies()
	if got := all[len(all)-1].Request.Header.Get(email.DirectSPFHeader); got != "temperror" || !strings.Contains(r.log.String(), "panic in the evaluation of SPF") {
		t.Errorf("after a panic the result is %q, the log %s", got, r.log.String())
	}
}

// TestForgedResults: a mail's own Authentication-Results never prove it.
func TestForgedResults(t *testing.T) {
	for value, want := range map[string]string{"pass": "proven", "fail": "failed", "": "unproven"} {
		r := start(t)
		r.own("acme", ours, nil)
		r.greeted().send("a@client.example", ours, "Authentication-Results: mx.trusted.example; dmarc=pass header.from=client.example\r\n"+letter(1), 250)
		req := r.journal.copies()[0].Request
		if value != "" {
			req.Header.Set(email.DirectSPFHeader, value)
			req.Header.Set(email.DirectSPFDomainHeader, "client.example")
		}
		req.TXT = map[string][]string{"_dmarc.client.example": {"v=DMARC1; p=reject"}}
		a := email.NewDirect(email.Config{TrustedAuthServers: []string{"mx.trusted.example", host}})
		parts, err := a.Split(req)
		if err != nil {
			t.Fatal(err)
		}
		e, err := a.Parse(req, parts[0])
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Message.Mail.Proof; string(got.Verdict) != want {
			t.Errorf("SPF %q: got %s (%s), want %s", value, got.Verdict, got.Reason, want)
		}
		if value == "pass" && !strings.Contains(e.Message.Mail.Proof.Reason, "this server reports") {
			t.Errorf("the reason is %q", e.Message.Mail.Proof.Reason)
		}
	}
}

// TestSlow: clients that wait end, and slow ones are served.
func TestSlow(t *testing.T) {
	inBubble := func(name string, f func(t *testing.T, r *rig)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := startOn(t, dbtest.NewSQLite(t))
				r.own("acme", ours, nil)
				f(t, r)
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				r.Stop(ctx)
			})
		})
	}
	inBubble("silent", func(t *testing.T, r *rig) {
		c, begin := r.greeted(), time.Now()
		c.want(421)
		if waited := time.Since(begin); waited != 5*time.Minute {
			t.Errorf("a silent client ends after %s", waited)
		}
	})
	inBubble("slow command", func(t *testing.T, r *rig) {
		c, begin := r.greeted(), time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 10 {
				time.Sleep(time.Minute)
				if _, err := c.conn.Write([]byte("N")); err != nil {
					return
				}
			}
		}()
		c.want(421)
		if waited := time.Since(begin); waited != 5*time.Minute {
			t.Errorf("a slow command ends after %s", waited)
		}
		c.conn.Close()
		<-done
	})
	inBubble("old session", func(t *testing.T, r *rig) {
		c := r.greeted()
		for range 16 {
			c.do("NOOP", 250)
			time.Sleep(4 * time.Minute)
		}
		c.do("NOOP", 250)
		c.want(421)
	})
	inBubble("slow mail", func(t *testing.T, r *rig) {
		c := r.greeted()
		c.do("MAIL FROM:<>", 250)
		c.do("RCPT TO:<"+ours+">", 250)
		c.do("DATA", 354)
		for line := range strings.Lines(letter(1) + "\r\n.\r\n") {
			time.Sleep(2 * time.Minute)
			c.write(line)
		}
		c.want(250)
	})
	inBubble("stalled mail", func(t *testing.T, r *rig) {
		c := r.greeted()
		c.do("MAIL FROM:<>", 250)
		c.do("RCPT TO:<"+ours+">", 250)
		c.do("DATA", 354)
		c.write("From: a@client.example\r\n")
		begin := time.Now()
		c.want(421)
		if waited := time.Since(begin); waited != 3*time.Minute {
			t.Errorf("a stalled mail ends after %s", waited)
		}
		if len(r.journal.copies()) != 0 {
			t.Error("a part of a mail was stored")
		}
	})
	inBubble("endless mail", func(t *testing.T, r *rig) {
		c := r.greeted()
		c.do("MAIL FROM:<>", 250)
		c.do("RCPT TO:<"+ours+">", 250)
		c.do("DATA", 354)
		begin := time.Now()
		done := make(chan struct{})
		go func() {
			for {
				if _, err := c.conn.Write([]byte("x\r\n")); err != nil {
					close(done)
					return
				}
				time.Sleep(time.Minute)
			}
		}()
		c.want(421)
		if waited := time.Since(begin); waited != 30*time.Minute {
			t.Errorf("an endless mail ends after %s", waited)
		}
		c.conn.Close()
		<-done
	})
	inBubble("deaf client", func(t *testing.T, r *rig) {
		c, begin := r.greeted(), time.Now()
		c.write("NOOP\r\n") // and never reads
		for r.OpenConnections() > 0 {
			time.Sleep(time.Second)
		}
		if waited := time.Since(begin); waited > 2*time.Minute {
			t.Errorf("a deaf client ends after %s", waited)
		}
	})
	inBubble("slow DNS", func(t *testing.T, r *rig) {
		c := r.greeted()
		c.send("a@client.example", ours, letter(1), 250)
	})
}

// TestStop: idle sessions end, and a mail that is being received is stored.
func TestStop(t *testing.T) {
	r := start(t).listen()
	r.own("acme", ours, nil)
	idle, busy := r.greeted(), r.greeted()
	busy.do("MAIL FROM:<>", 250)
	busy.do("RCPT TO:<"+ours+">", 250)
	busy.do("DATA", 354)
	stopped := make(chan struct{})
	go func() {
		r.Stop(context.Background())
		close(stopped)
	}()
	idle.want(421)
	busy.write(letter(1) + "\r\n.\r\n")
	busy.want(250)
	busy.want(421)
	<-stopped
	if n := len(r.journal.copies()); n != 1 {
		t.Errorf("%d mails were stored, want 1", n)
	}
}

// TestStopInTime: a mail that cannot be stored in time is not acknowledged.
func TestStopInTime(t *testing.T) {
	r := start(t).listen()
	r.own("acme", ours, nil)
	r.journal.hold = make(chan struct{})
	c := r.greeted()
	c.do("MAIL FROM:<>", 250)
	c.do("RCPT TO:<"+ours+">", 250)
	c.do("DATA", 354)
	c.write(letter(1) + "\r\n.\r\n")
	<-r.journal.hold
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Stop(ctx)
	if code, text := c.reply(); code/100 == 2 {
		t.Errorf("the mail is acknowledged: %q", text)
	}
}

// TestBrokenOff: a mail without its end is not stored, and its rest is never read as commands.
func TestBrokenOff(t *testing.T) {
	r := start(t).listen()
	r.own("acme", ours, nil)
	c := r.greeted()
	c.do("MAIL FROM:<>", 250)
	c.do("RCPT TO:<"+ours+">", 250)
	c.do("DATA", 354)
	c.write(letter(1))
	c.conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r.Stop(ctx)
	if n := len(r.journal.copies()); n != 0 {
		t.Errorf("%d mails were stored, want none", n)
	}
}
