package inbox

import (
	"bytes"
	"html/template"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
	"github.com/kickstand-dev/kickstand/internal/web"
)

const (
	// maxHTML (bytes) and maxNesting bound the HTML of a mail. Browsers are slow beyond
	// the first and fail beyond the second.
	maxHTML    = 1 << 20
	maxNesting = 100

	// mailPolicy lets a mail show its own inline images. The styles that package
	// safehtml leaves are in attributes and load nothing. Scripts don't run, and links
	// open in another tab.
	mailPolicy = "default-src 'none'; img-src 'self'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; " +
		"sandbox allow-same-origin allow-popups allow-popups-to-escape-sandbox"
)

// htmlBodyPage is the document in the frame. A mail with colours of its own is shown on
// white, any other in the user's colour scheme.
var htmlBodyPage = template.Must(template.New("mail").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{{.Title}}</title>
<base target="_blank">
<style>
:root { color-scheme: {{if .Paper}}only light{{else}}light dark{{end}}; }
body { margin: 0; padding: {{if .Paper}}12px{{else}}1px{{end}}; {{if .Paper}}background: #fff; color: #222; {{else}}background: transparent; {{end}}font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere; overflow-x: auto; }
body > :first-child { margin-top: 0; }
body > :last-child { margin-bottom: 0; }
h1, h2, h3, h4, h5, h6 { line-height: 1.25; }
img { max-width: 100%; height: auto; }
img:not([src]) { display: inline-block; max-width: 100%; padding: 0 4px; border: 1px dashed #8888; border-radius: 3px; font-size: 12px; }
img[width="1"], img[height="1"] { display: none; }
table { max-width: 100%; }
pre { white-space: pre-wrap; }
blockquote { margin: 8px 0; padding-inline-start: 12px; border-inline-start: 2px solid #8886; }
a { color: light-dark(#3f4bd1, #a5b0ff); }
.rest { margin-top: 16px; padding-top: 8px; border-top: 1px solid #8886; font-size: 12px; }
</style>
</head>
<body dir="auto">
{{.Markup}}
{{if .Rest}}<p class="rest">This mail is longer than can be shown.{{with .Text}} <a href="{{.}}">Show full text</a>.{{end}}</p>
{{end}}</body>
</html>
`))

// missing matches references to inline images that the mail does not have. The browser
// must not request them.
var missing = regexp.MustCompile(`(?i) src="cid:`)

// message returns the message in the request's path.
func (p *pages) message(r *web.Request) (desk.Message, error) {
	m, err := p.Desk.Message(r.Context(), p.DB, r.OrganizationID, r.PathValue("ticket"), r.PathValue("id"))
	if err == nil && (m.Details.Deleted || m.Details.Redacted) {
		err = problem.New(problem.NotFound, "nothing of it is left")
	}
	return m, err
}

// htmlBody serves the HTML of a mail, for a sandboxed frame.
func (p *pages) htmlBody(w http.ResponseWriter, r *web.Request) error {
	m, err := p.message(r)
	if err != nil {
		return err
	}
	if m.HTML == "" {
		return problem.New(problem.NotFound, "this message has no HTML")
	}
	markup, rest := safehtml.Excerpt(m.HTML, maxHTML, maxNesting)
	markup = missing.ReplaceAllString(markup, ` data-missing="`)
	for i := range m.Attachments {
		if m.Attachments[i].BlobKey == "" {
			markup = strings.ReplaceAll(markup, ` src="`+desk.AttachmentPath+m.Attachments[i].ID+`"`, ` data-missing=""`)
		}
	}
	if p.Pictures != nil && r.URL.Query().Has("pictures") {
		markup = safehtml.RewriteImages(markup, func(address string) string {
			id, signature := p.Pictures.Link(m.ID, address)
			return "/messages/" + m.TicketID + "/" + m.ID + "/pictures/" + id + "?sig=" + signature
		})
	}
	return writeFrame(w, mailPolicy, frame{
		"Mail from " + m.Author.Name, safehtml.SetsColors(m.HTML), rest,
		"/messages/" + m.TicketID + "/" + m.ID + "/text", template.HTML(markup),
	})
}

// frame is the body of htmlBodyPage.
type frame struct {
	Title       string
	Paper, Rest bool
	Text        string
	Markup      template.HTML // sanitized by package safehtml
}

// writeFrame writes a document for a frame.
func writeFrame(w http.ResponseWriter, policy string, f frame) error {
	var body bytes.Buffer
	if err := htmlBodyPage.Execute(&body, f); err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	_, _ = body.WriteTo(w) // fails only if the client has disconnected
	return nil
}

// inlineImage proxies a remote image of a mail, so that its sender does not see the
// user's address.
func (p *pages) inlineImage(w http.ResponseWriter, r *web.Request) error {
	if p.Pictures == nil {
		return problem.New(problem.NotFound, "pictures are not loaded here")
	}
	m, err := p.message(r)
	if err != nil {
		return err
	}
	got, content, err := p.Pictures.Open(r.Context(), &m, r.PathValue("picture"), r.URL.Query().Get("sig"))
	if err != nil {
		return err
	}
	defer content.Close()
	h := w.Header()
	h.Set("Content-Type", got.ContentType)
	h.Set("Content-Length", strconv.FormatInt(got.Size, 10))
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "private, no-store")
	_, _ = io.Copy(w, content) // fails only if the client has disconnected
	return nil
}

// fullText serves the text of a message that its page truncates.
func (p *pages) fullText(w http.ResponseWriter, r *web.Request) error {
	m, err := p.message(r)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(m.Text)))
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, m.Text)
	return nil
}
