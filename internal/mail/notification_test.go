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

// TestBrandedNotification: a notification gets the brand of its recipient's organization once it is known.
func TestBrandedNotification(t *testing.T) {
	from, to := mail.Address{Address: "no-reply@help.example.com"}, mail.Address{Address: "ada@example.com"}
	brand := mail.Brand{Name: `Acme "A"`, Accent: "#5b21b6", Logo: "https://help.example.com/brand/1.png", Width: 100, Height: 30}
	l := mail.Notification{Subject: "Done", Before: []string{"Done."}, Action: mail.Action{Label: "Open", URL: "https://help.example.com/"}}
	m, err := l.Message(from, to)
	if err != nil {
		t.Fatal(err)
	}
	plain := m.HTML
	if err := m.SetBrand(mail.Brand{}); err != nil || m.HTML != plain || strings.Contains(plain, "<img") {
		t.Errorf("without a brand: %v %s", err, m.HTML)
	}
	if err := m.SetBrand(brand); err != nil || !strings.Contains(m.HTML, "background:#5b21b6;") ||
		!strings.Contains(m.HTML, `<img src="https://help.example.com/brand/1.png" alt="Acme &#34;A&#34;" width="100" height="30"`) {
		t.Errorf("with a brand: %v %s", err, m.HTML)
	}
	for name, l := range map[string]mail.Notification{"unbranded": {Subject: "Done", Unbranded: true}, "of another brand": {Subject: "Done", Brand: mail.Brand{Accent: "#111111"}}} {
		m, err := l.Message(from, to)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.SetBrand(brand); err != nil || strings.Contains(m.HTML, "<img") {
			t.Errorf("%s: %v %s", name, err, m.HTML)
		}
	}
	if got := brand.Footer(); !strings.Contains(got, `alt="Acme &#34;A&#34;"`) || (mail.Brand{Accent: "#111111"}).Footer() != "" {
		t.Errorf("got footer %s", got)
	}
}
