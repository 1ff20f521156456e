package mail

import (
	"bytes"
	"fmt"
	"html/template"
	"strings"
)

// Notification is a mail from the program to a person: a few paragraphs and usually one action.
// It renders as text and HTML.
type Notification struct {
	Subject string
	Before  []string // paragraphs
	Action  Action   // may be zero
	After   []string // paragraphs
	// Brand is that of the sender. Without one, a mail to a member gets that of their organization from
	// the [Enqueuer], unless Unbranded is set.
	Brand     Brand
	Unbranded bool // has nothing that an organization has chosen
}

// Brand is how an organization looks in a mail. The zero value is Kickstand's look.
type Brand struct {
	Name   string // of the organization, the alternative text of its logo
	Accent string // color of the button, on which white can be read: #4f46e5; empty: the default
	Logo   string // URL of the logo; empty: none
	// Width and Height are those of the logo, in CSS pixels.
	Width, Height int
}

// Action is a link on a line of its own, or a button.
type Action struct {
	Label string // an imperative: "Sign in"
	URL   string
}

// Message returns the notification as a message to one person. Its Auto-Submitted header keeps
// programs from answering (RFC 3834).
func (l Notification) Message(from, to Address) (Message, error) {
	var text strings.Builder
	for _, p := range l.Before {
		text.WriteString(p + "\n\n")
	}
	if l.Action.URL != "" {
		fmt.Fprintf(&text, "%s:\n\n%s\n\n", l.Action.Label, l.Action.URL)
	}
	for _, p := range l.After {
		text.WriteString(p + "\n\n")
	}
	m := Message{
		From: from, To: []Address{to}, Subject: l.Subject,
		Text:    strings.TrimSpace(text.String()) + "\n",
		Headers: []Header{{Name: "Auto-Submitted", Value: "auto-generated"}},
	}
	if l.Brand == (Brand{}) && !l.Unbranded {
		m.Notification = &l
	}
	return m, m.render(l)
}

// Footer returns the HTML below a mail with the brand: its logo; empty: none.
func (b Brand) Footer() string {
	if b.Logo == "" {
		return ""
	}
	return fmt.Sprintf(`<p style="margin:24px 0 0"><img src="%s" alt="%s" width="%d" height="%d" style="padding:8px;border:0;border-radius:6px;background:#ffffff"></p>`,
		template.HTMLEscapeString(b.Logo), template.HTMLEscapeString(b.Name), b.Width, b.Height)
}

// SetBrand renders the message again with the brand of its recipient's organization, if it is a
// notification without one.
func (m *Message) SetBrand(b Brand) error {
	if m.Notification == nil || b == (Brand{}) {
		return nil
	}
	l := *m.Notification
	l.Brand = b
	return m.render(l)
}

func (m *Message) render(l Notification) error {
	var page bytes.Buffer
	if err := notificationPage.Execute(&page, l); err != nil {
		return fmt.Errorf("mail: notification %q: %w", l.Subject, err)
	}
	m.HTML = page.String()
	return nil
}

// notificationPage uses only features that mail programs support: no style sheet, no image but the
// logo, and a visible link beside its button. The logo is on white in dark mails, too.
var notificationPage = template.Must(template.New("letter").Parse(`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark"><title>{{.Subject}}</title></head>
<body style="margin:0;padding:24px;font:16px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif">
<div style="max-width:560px;margin:0 auto">
{{with .Brand}}{{if .Logo}}<p style="margin:0 0 24px"><img src="{{.Logo}}" alt="{{.Name}}" width="{{.Width}}" height="{{.Height}}" style="padding:8px;border:0;border-radius:6px;background:#ffffff;color:#111827;font-weight:600"></p>
{{end}}{{end}}{{range .Before}}<p style="margin:0 0 16px">{{.}}</p>
{{end}}{{with .Action}}{{if .URL}}<p style="margin:24px 0"><a href="{{.URL}}" style="display:inline-block;padding:10px 20px;border-radius:6px;background:{{or $.Brand.Accent "#4f46e5"}};color:#ffffff;font-weight:600;text-decoration:none">{{.Label}}</a></p>
<p style="margin:0 0 16px;font-size:13px;color:#6b7280">If the button does nothing, open this address:<br><a href="{{.URL}}" style="color:inherit;word-break:break-all">{{.URL}}</a></p>
{{end}}{{end}}{{range .After}}<p style="margin:0 0 16px;font-size:14px;color:#6b7280">{{.}}</p>
{{end}}</div>
</body>
</html>
`))
