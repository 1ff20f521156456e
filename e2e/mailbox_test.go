package e2e

import (
	"crypto/tls"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"
)

// TestMailbox connects a mailbox at Dovecot and an SMTP server with TLS on the page, after a
// wrong password, and answers its first mail.
func TestMailbox(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("KICKSTAND_TEST_DOVECOT")
	if folder == "" {
		t.Skip("KICKSTAND_TEST_DOVECOT does not name the folder of a server started by .ci/dovecot")
	}
	needChromium(t)
	ports, err := os.ReadFile(filepath.Join(folder, "ports"))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(filepath.Join(folder, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	port, _, _ := strings.Cut(string(ports), "\n")
	user := fmt.Sprintf("page%d", time.Now().UnixNano())
	server := mailtest.NewServer(t, mailtest.ServerConfig{ImplicitTLS: true, User: user, Password: "secret"})
	server.ClientTLS.RootCAs.AppendCertsFromPEM(authority)
	p := start(t, func(c *app.Config) { c.MailboxTLS = &tls.Config{RootCAs: server.ClientTLS.RootCAs} })
	o, robin := p.organization("Acme Wheels")
	v := p.as(t, robin)
	begin := time.Now()
	v.open("/settings/channels")
	v.click(`a[href="/settings/connect/mailbox"]`)
	v.at("/settings/connect/mailbox")
	v.checkLayout()
	v.checkAccess()
	v.allow("422")
	fill := func(password string) {
		v.fill("input[name=address]", "help@acme-wheels.example")
		v.fill(`input[name="credentials.username"]`, user)
		v.fill(`input[name="credentials.imap_url"]`, "imaps://localhost:"+port)
		v.fill(`input[name="credentials.smtp_url"]`, server.URL[:strings.Index(server.URL, "//")+2]+server.URL[strings.Index(server.URL, "@")+1:])
		v.fill(`input[name="credentials.password"]`, password)
		v.press("Connect")
	}
	fill("wrong")
	v.waitText("the IMAP server localhost rejects the login of "+user, "Check user and password")
	v.checkLayout()
	v.checkAccess()
	fill("secret")
	v.waitText("The mailbox is connected.", "Reading")
	v.checkLayout()
	v.checkAccess()

	save := exec.Command("doveadm", "-c", filepath.Join(folder, "dovecot.conf"), "save", "-u", user, "-m", "INBOX")
	save.Stdin = strings.NewReader("From: Ana <ana@client.example>\r\nTo: help@acme-wheels.example\r\nSubject: The lock does not open\r\nMessage-ID: <lock@client.example>\r\n\r\nHello?\r\n")
	if out, err := save.CombinedOutput(); err != nil {
		t.Fatalf("deliver: %v, %s", err, out)
	}
	v.open("/inbox")
	v.waitText("The lock does not open")
	var number int64
	p.until("the ticket", func() bool {
		number = p.number(o.ID, "The lock does not open")
		return number != 0
	})
	v.open(fmt.Sprintf("/tickets/%d", number))
	v.fill("textarea[name=reply]", "Press it twice.")
	v.press("Send")
	p.until("the answer at the SMTP server", func() bool {
		for _, m := range server.Deliveries() {
			if m.TLS && m.User == user && len(m.To) == 1 && m.To[0] == "ana@client.example" && strings.Contains(string(m.Raw), "Press it twice.") {
				return true
			}
		}
		return false
	})
	t.Logf("from the page of the channels to the first answered mail in %s", time.Since(begin).Round(time.Second))
}
