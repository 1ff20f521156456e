package mail

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
)

// pageStyle is inlined, so that the mailbox needs no other route.
const pageStyle = `:root{color-scheme:light dark}
body{font:1rem/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;overflow-wrap:anywhere;background:Canvas;color:CanvasText}
table{border-collapse:collapse;width:100%}
caption{text-align:left;padding-bottom:.5rem}
th,td{text-align:left;vertical-align:top;padding:.4rem .8rem .4rem 0;border-bottom:1px solid #8886}
td{min-width:6rem;overflow-wrap:break-word}
dt{font-weight:600}
dd{margin:0 0 .5rem}
pre{white-space:pre-wrap;border:1px solid #8886;padding:1rem}
iframe{box-sizing:border-box;width:100%;height:24rem;border:1px solid #8886;background:#fff}
@media(width<40rem){thead{display:none}th,td{display:block;border:0;padding:0}tr{display:block;padding:.5rem 0;border-bottom:1px solid #8886}}
`

// The HTML part goes into srcdoc as a plain string, which the template escapes like any
// attribute. A sandbox without exceptions runs no script, submits no form and gives the mail
// its own origin; the document inherits the page's policy, which loads nothing.
var pages = template.Must(template.New("pages").Parse(`
{{define "head"}}<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.}}</title>
<link rel="icon" href="data:,">
<style>` + pageStyle + `</style>
</head>
<body>
{{end}}

{{define "list"}}{{template "head" "Mailbox"}}<main>
<h1>Mailbox</h1>
<p>No mail server is configured, so mails are kept here instead of being sent. The same list <a href="/dev/mailbox.json">as JSON</a>.</p>
{{if .}}<table>
<caption>Newest first</caption>
<thead><tr><th scope="col">Subject</th><th scope="col">To</th><th scope="col">From</th><th scope="col">Time</th></tr></thead>
<tbody>
{{range .}}<tr>
<th scope="row"><a href="/dev/mailbox/{{.ID}}">{{or .Subject "(no subject)"}}</a></th>
<td>{{range $i, $a := .To}}{{if $i}}, {{end}}{{$a}}{{end}}</td>
<td>{{.From}}</td>
<td><time datetime="{{.CreatedAt.Format "2006-01-02T15:04:05Z07:00"}}">{{.CreatedAt.Format "2006-01-02 15:04:05 MST"}}</time></td>
</tr>
{{end}}</tbody>
</table>
{{else}}<p>No mail yet.</p>
{{end}}</main>
</body>
</html>
{{end}}

{{define "mail"}}{{template "head" (or .Subject "(no subject)")}}<nav aria-label="Mailbox"><a href="/dev/mailbox">All mails</a></nav>
<main>
<h1>{{or .Subject "(no subject)"}}</h1>
<dl>
<dt>From</dt><dd>{{.From}}</dd>
<dt>To</dt>{{range .To}}<dd>{{.}}</dd>{{end}}
{{with .Cc}}<dt>Cc</dt>{{range .}}<dd>{{.}}</dd>{{end}}{{end}}
{{with .ReplyTo}}<dt>Reply-To</dt><dd>{{.}}</dd>{{end}}
<dt>Envelope sender</dt><dd>{{.EnvelopeFrom}}</dd>
<dt>Time</dt><dd><time datetime="{{.CreatedAt.Format "2006-01-02T15:04:05Z07:00"}}">{{.CreatedAt.Format "2006-01-02 15:04:05 MST"}}</time></dd>
{{range .Headers}}<dt>{{.Name}}</dt><dd>{{.Value}}</dd>
{{end}}</dl>
{{with .Links}}<h2>Links</h2>
<ul>{{range .}}<li><a href="{{.}}" rel="noreferrer noopener">{{.}}</a></li>{{end}}</ul>
{{end}}{{if or .Text (not .HTML)}}<h2>Text</h2>
<pre>{{.Text}}</pre>
{{end}}{{with .HTML}}<h2>HTML</h2>
<iframe sandbox="" title="HTML part of the mail" srcdoc="{{.}}"></iframe>
{{end}}{{with .Attachments}}<h2>Attachments</h2>
<ul>{{range .}}<li>{{.Name}} ({{.ContentType}}, {{.Size}} bytes)</li>{{end}}</ul>
{{end}}</main>
</body>
</html>
{{end}}`))

// Handler serves the mailbox as pages at /dev/mailbox and as JSON, newest first, at
// /dev/mailbox.json. It has no authentication, so it is mounted only if no mail server is
// configured.
func (b *Mailbox) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /dev/mailbox", b.serveList)
	mux.HandleFunc("GET /dev/mailbox/{id}", b.serveMail)
	mux.HandleFunc("GET /dev/mailbox.json", b.serveJSON)
	return mux
}

func (b *Mailbox) serveList(w http.ResponseWriter, r *http.Request) {
	list, err := b.List(r.Context())
	if err != nil {
		b.fail(w, r, err)
		return
	}
	digest := sha256.Sum256([]byte(pageStyle))
	b.render(w, r, "list", list, "'sha256-"+base64.StdEncoding.EncodeToString(digest[:])+"'")
}

func (b *Mailbox) serveMail(w http.ResponseWriter, r *http.Request) {
	s, err := b.Find(r.Context(), r.PathValue("id"))
	if errors.Is(err, ErrNotFound) {
		http.Error(w, "This mail is not in the mailbox, or no longer.", http.StatusNotFound)
		return
	}
	if err != nil {
		b.fail(w, r, err)
		return
	}
	// HTML mails use style attributes, and the frame has this page's policy.
	b.render(w, r, "mail", s, "'unsafe-inline'")
}

func (b *Mailbox) serveJSON(w http.ResponseWriter, r *http.Request) {
	list, err := b.List(r.Context())
	if err != nil {
		b.fail(w, r, err)
		return
	}
	body, err := json.Marshal(list)
	if err != nil {
		b.fail(w, r, err)
		return
	}
	write(w, "application/json", "default-src 'none'; frame-ancestors 'none'", body)
}

func (b *Mailbox) render(w http.ResponseWriter, r *http.Request, page string, data any, styles string) {
	var body bytes.Buffer
	if err := pages.ExecuteTemplate(&body, page, data); err != nil {
		b.fail(w, r, err)
		return
	}
	write(w, "text/html; charset=utf-8",
		"default-src 'none'; style-src "+styles+"; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		body.Bytes())
}

func write(w http.ResponseWriter, contentType, policy string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Security-Policy", policy)
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	w.Write(body)
}

func (b *Mailbox) fail(w http.ResponseWriter, r *http.Request, err error) {
	b.log.ErrorContext(r.Context(), "mailbox not shown", "path", r.URL.Path, "error", err)
	http.Error(w, "The mailbox cannot be read; the server's log has the reason.", http.StatusInternalServerError)
}
