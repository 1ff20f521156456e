package inbox

import (
	"encoding/base64"
	"html/template"
	"mime"
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// previewPolicy is mailPolicy with the pictures of the form, which have no address yet.
var previewPolicy = strings.Replace(mailPolicy, "img-src 'self'", "img-src data:", 1)

// previewReply shows a reply as it would leave, as a document for a frame or a tab. It changes
// nothing.
func (p *pages) previewReply(w http.ResponseWriter, r *web.Request, t *desk.Ticket, form web.Upload) error {
	d := desk.Draft{Text: form.Get("reply")}
	for _, f := range form.Files {
		d.Attachments = append(d.Attachments, channel.Attachment{Name: f.Name, ContentType: f.ContentType})
	}
	shown, err := p.Desk.PreviewReply(r.Context(), p.DB, r.OrganizationID, t.ID, form.Get("conversation"), actor(r), d)
	if e, isProblem := submitError(err); isProblem {
		text := e.Message
		if len(e.Issues) > 0 {
			text = issueText(e.Issues[0])
		}
		return writeFrame(w, previewPolicy, frame{Title: "Preview", Markup: paragraph(asSentence(text))})
	} else if err != nil {
		return err
	}
	body := frame{Title: "Preview", Markup: template.HTML(shown.HTML)} // sanitized by the desk
	switch {
	case strings.TrimSpace(d.Text) == "":
		body.Markup = paragraph("There is nothing written yet.")
	case shown.HTML == "":
		body.Markup = paragraph(shown.Text)
	}
	for id, name := range shown.Pictures {
		body.Markup = template.HTML(strings.ReplaceAll(string(body.Markup), `"cid:`+id+`"`, `"`+dataURL(form.Files, name)+`"`))
	}
	if left := desk.UnfilledVariables(d.Text); len(left) > 0 {
		body.Markup += paragraph("The text still has " + left[0] + ". Write the value in its place.")
	}
	return writeFrame(w, previewPolicy, body)
}

// paragraph returns text as HTML that shows its line breaks.
func paragraph(text string) template.HTML {
	return template.HTML(`<p style="white-space: pre-wrap">` + template.HTMLEscapeString(text) + "</p>")
}

// dataURL returns the content of the first file with a name as a URL.
func dataURL(files []web.File, name string) string {
	for _, f := range files {
		if kind, _, err := mime.ParseMediaType(f.ContentType); f.Name == name && err == nil {
			return template.HTMLEscapeString("data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(f.Data))
		}
	}
	return ""
}
