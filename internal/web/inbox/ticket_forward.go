package inbox

import (
	"context"
	"crypto/rand"
	"net/http"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// forwardPage is the body of the page that forwards messages.
type forwardPage struct {
	desk.Ticket
	Path, In string
	Once     string       // idempotency key of the form
	From     []web.Option // mail channels, if there are several
	Messages []web.Option // to choose one of; the first is all
	Form     forwardForm
	MaxMB    int
	Wrong    string
}

// forwardForm is the posted form.
type forwardForm struct {
	To, Message, From, Text string
	WithoutFiles            bool
}

func (p *pages) showForwardForm(w http.ResponseWriter, r *web.Request) error {
	t, err := p.found(r, p.DB)
	if err != nil {
		return err
	}
	return p.renderForward(w, r, t, forwardForm{Message: r.URL.Query().Get("message")}, "")
}

func (p *pages) renderForward(w http.ResponseWriter, r *web.Request, t desk.Ticket, form forwardForm, wrong string) error {
	b := forwardPage{Ticket: t, Path: ticketPath(t.Number), In: listQuery(r), Once: rand.Text(), Form: form, MaxMB: maxAttached >> 20, Wrong: wrong}
	messages, _, err := p.Desk.FindMessages(r.Context(), p.DB, r.OrganizationID, t.ID, desk.MessageQuery{Kind: []string{desk.KindReply, desk.KindForward}, Limit: messagesOfPage})
	if err != nil {
		return err
	}
	b.Messages = []web.Option{{Label: "All messages with the customer"}}
	for i := range messages {
		c := newSplitChoice(r, &t, &messages[i])
		b.Messages = append(b.Messages, web.Option{Value: c.ID, Label: c.Sender + ", " + c.At.Exact() + ": " + c.Text})
	}
	if b.From, err = p.mailChannels(r); err != nil {
		return err
	}
	page := web.Page{Title: "Forward ticket #" + strconv.FormatInt(t.Number, 10), At: "/inbox", Body: b}
	if wrong != "" {
		page.Status = http.StatusUnprocessableEntity
	}
	return p.Render(w, r, "forward", page)
}

// mailChannels returns the organization's mail channels to choose from; nil if there is no choice.
func (p *pages) mailChannels(r *web.Request) ([]web.Option, error) {
	if p.Connections == nil {
		return nil, nil
	}
	all, err := p.Connections.List(r.Context(), r.OrganizationID)
	if err != nil {
		return nil, err
	}
	list := []web.Option{{Label: "The ticket’s mail channel"}}
	for _, c := range all {
		if c.Enabled && sendsMail(c.Channel) {
			list = append(list, web.Option{Value: c.ID, Label: c.Address})
		}
	}
	if len(list) < 3 {
		return nil, nil
	}
	return list, nil
}

func (p *pages) forward(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Upload(w, r, maxAttached)
	if !ok {
		return nil
	}
	t, err := p.found(r, p.DB)
	if err != nil {
		return err
	}
	f := forwardForm{strings.TrimSpace(form.Get("to")), form.Get("message"), form.Get("from"), form.Get("text"), form.Has("without_files")}
	if form.TooLarge {
		return p.renderForward(w, r, t, f, web.Sprintf("The files are larger than %d MB in total. Nothing was sent.", maxAttached>>20))
	}
	key := submissionKey(r, form.Values)
	back := ticketPath(t.Number) + listQuery(r)
	if key != "" && !p.isFirst(key) {
		return p.Redirect(w, back, web.Notice{})
	}
	if err := p.sendForward(r, f, form.Files); err != nil {
		p.submitted.Delete(key)
		e, ok := submitError(err)
		if !ok {
			return err
		}
		wrong := asSentence(e.Message)
		if len(e.Issues) > 0 {
			wrong = asSentence(forwardIssue(e.Issues[0]))
		}
		return p.renderForward(w, r, t, f, wrong+" Nothing was sent.")
	}
	return p.Redirect(w, back, web.Notice{Text: "Forwarded to " + f.To + "."})
}

func (p *pages) sendForward(r *web.Request, f forwardForm, files []web.File) error {
	d := desk.Draft{Text: f.Text}
	for _, file := range files {
		d.Attachments = append(d.Attachments, channel.Attachment{Name: file.Name, ContentType: file.ContentType, Data: file.Data})
	}
	content, err := p.Desk.Compose(r.Context(), r.OrganizationID, d)
	if err != nil {
		return err
	}
	return p.inTransaction(r, func(ctx context.Context, tx *db.Tx, t desk.Ticket) error {
		_, err := p.Desk.ForwardTx(ctx, tx, r.OrganizationID, t.ID, desk.Forward{
			By: actor(r), To: f.To, Content: content, MessageID: f.Message, WithoutFiles: f.WithoutFiles, ConnectionID: f.From,
		})
		return err
	})
}

// forwardIssue returns the message for an issue of the form.
func forwardIssue(i problem.Issue) string {
	switch i.Path {
	case "to":
		return "the address " + i.Message
	case "message_id":
		return "the message is not in this ticket any more; choose another one"
	case "channel_id":
		return "the mail channel " + i.Message
	}
	return issueText(i)
}

// sendsMail reports whether replies on a channel are mails.
func sendsMail(channel string) bool {
	return channel == email.MailboxName || strings.HasPrefix(channel, "email-")
}
