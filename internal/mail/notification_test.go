package mail_test

import (
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/mail"
)

func TestLetter(t *testing.T) {
	l := mail.Notification{
		Subject: "Join <Acme>",
		Before:  []string{`Robin <script>alert(1)</script> invites you.`, "Second."},
		Action:  mail.Action{Label: "Join", URL: "https://help.example.com/invitation?token=a&b=c"},
		After:   []string{"It works for 7 days."},
	}
	m, err := l.Message(mail.Address{Address: "no-reply@help.example.com"}, mail.Address{Address: "ada@example.com"})
	if err != nil {
		t.Fatal(err)
	}
	const text = "Robin <script>alert(1)</script> invites you.\n\nSecond.\n\nJoin:\n\nhttps://help.example.com/invitation?token=a&b=c\n\nIt works for 7 days.\n"
	if m.Text != text {
		t.Errorf("got text %q, want %q", m.Text, text)
	}
	for _, want := range []string{
		"<title>Join &lt;Acme&gt;</title>", "Robin &lt;script&gt;alert(1)&lt;/script&gt; invites you.",
		`<a href="https://help.example.com/invitation?token=a&amp;b=c"`, ">Join</a>", "It works for 7 days.",
	} {
		if !strings.Contains(m.HTML, want) {
			t.Errorf("HTML lacks %q:\n%s", want, m.HTML)
		}
	}
	if _, err := mail.Compose(m); err != nil {
		t.Errorf("not sendable: %v", err)
	}

	m, err = mail.Notification{Subject: "Done", Before: []string{"Your password was changed."}}.Message(m.From, m.To[0])
	if err != nil {
		t.Fatal(err)
	}
	if m.Text != "Your password was changed.\n" || strings.Contains(m.HTML, "<a ") {
		t.Errorf("a letter without an action: %q\n%s", m.Text, m.HTML)
	}
}
