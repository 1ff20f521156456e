package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/app/apptest"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/rest/visitorapi"

	"github.com/chromedp/cdproto/network"
)

// maxExample is the documented length of the example, in lines.
const maxExample = 60

// TestContactForm runs the example of docs/channels/api.md: a visitor sends the form with a file,
// an agent answers, and the answer appears in the page.
func TestContactForm(t *testing.T) {
	t.Parallel()
	needChromium(t)
	text, err := os.ReadFile("../docs/channels/api.md")
	if err != nil {
		t.Fatal(err)
	}
	folder, lines := t.TempDir(), 0
	for name, language := range map[string]string{"main.go": "go", "index.html": "html"} {
		block := regexp.MustCompile("(?s)\n```" + language + "\n(.*?)```").FindSubmatch(text)
		if block == nil {
			t.Fatalf("the documentation has no %s", language)
		}
		lines += strings.Count(string(block[1]), "\n")
		if err := os.WriteFile(filepath.Join(folder, name), block[1], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if lines > maxExample {
		t.Errorf("the example has %d lines, want at most %d", lines, maxExample)
	}

	p := start(t)
	o, robin := p.organization("Acme Wheels")
	address := apptest.Address(t)
	c, secrets, err := p.Connections.Connect(t.Context(), connection.New{
		OrganizationID: o.ID, Channel: "api", Address: "contact-form", Settings: map[string]string{"origins": "http://" + address},
	})
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", "form", "main.go")
	build.Dir = folder
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the example: %v\n%s", err, out)
	}
	form := exec.Command("./form")
	form.Dir = folder
	form.Env = append(os.Environ(), "LISTEN="+address, "API="+p.base+visitorapi.Base, "CHANNEL="+c.ID, "SECRET="+secrets[0])
	server := apptest.StartUntil(t, form, "http://"+address+"/")
	t.Cleanup(server.Kill)

	v := p.visit(t)
	v.allow("404") // the conversation before its first message
	v.allow("another host: http://" + address)
	v.open("http://" + address + "/")
	v.fill("input[name=name]", "Ana Client")
	v.fill("textarea", "The lock does not open.")
	v.press("Send")
	v.waitText("Ana Client: The lock does not open.")

	list, _, err := p.Desk.FindTickets(t.Context(), p.DB, o.ID, desk.TicketQuery{})
	if err != nil || len(list) != 1 || list[0].Channel != "api" || list[0].Customer.Name != "Ana Client" {
		t.Fatalf("tickets %+v, %v, want one of Ana Client", list, err)
	}
	reply := func(text string) {
		t.Helper()
		says, err := p.Desk.Compose(t.Context(), o.ID, desk.Draft{Text: text})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.DB.Write(t.Context(), func(tx *db.Tx) error {
			_, err := p.Desk.ReplyTx(t.Context(), tx, o.ID, list[0].ID, desk.Reply{By: desk.Actor{ID: robin.ID, Name: robin.Name}, Content: says})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	reply("Please try it again.")
	v.waitText("Robin Berg: Please try it again.") // without a reload

	// The page opens another stream once its token has ended.
	v.allow("/events?token=")
	enable := func(on bool) {
		t.Helper()
		if err := p.Connections.SetEnabled(t.Context(), o.ID, c.ID, on); err != nil {
			t.Fatal(err)
		}
	}
	enable(false)
	p.until("another token", func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		tokens := make(map[string]bool)
		for _, r := range v.requests {
			if r.kind == network.ResourceTypeEventSource {
				tokens[r.url] = true
			}
		}
		return len(tokens) > 1
	})
	enable(true)
	v.waitLive()
	reply("Is it open now?")
	v.waitText("Robin Berg: Is it open now?")
}
