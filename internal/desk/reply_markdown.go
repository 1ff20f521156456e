package desk

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/markdown"
)

// renderMarkdown sets the HTML of the text for mail, in which the pictures that the text places are
// inline. A text whose HTML would be too large has none.
func (s *Service) renderMarkdown(w *Content) {
	w.inline = slices.Clone(w.attachments)
	markup := markdown.Render(w.text, func(name string) string {
		i := slices.IndexFunc(w.inline, func(a channel.Attachment) bool { return a.Name == name && isPicture(a.ContentType) })
		if i < 0 {
			return ""
		}
		a := &w.inline[i]
		if !a.Inline {
			a.Inline, a.ContentID = true, newID()+"@picture"
		}
		return "cid:" + a.ContentID
	})
	w.markup = s.sanitizer.Sanitize(markup)
	if len(w.markup) > maxHTML {
		w.markup = ""
	}
}

// isPicture reports whether mail programs and browsers show files of a type in a text.
func isPicture(contentType string) bool {
	kind, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	return slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, strings.TrimSpace(kind))
}

// plainText returns the text of a message that was written in Markdown, for readers of plain text.
// describe leaves the descriptions of the pictures in it.
func plainText(text string, files []Attachment, describe bool) string {
	return markdown.WithoutPictures(text, describe, func(name string) bool {
		return slices.ContainsFunc(files, func(a Attachment) bool { return a.Name == name && isPicture(a.ContentType) })
	})
}

// signature is what follows the text of a mail; the zero value is none.
type signature struct{ text, html string }

// loadSignature returns the signature of a mail by an agent: the member's, then the connection's.
func (s *Service) loadSignature(ctx context.Context, q db.Querier, organizationID string, by event.Author, ofConnection string) (signature, error) {
	var agent event.Person
	var own string
	if by.ID != "" {
		stored, err := s.directory.Preferences(ctx, q, organizationID, []string{by.ID})
		if err != nil {
			return signature{}, fmt.Errorf("load signature: %w", err)
		}
		if object, isMember := stored[by.ID]; isMember {
			agent.Name = by.Name
			own = signaturePreference(object)
		}
	}
	return s.newSignature(agent, own, ofConnection), nil
}

// signaturePreference returns the signature in a member's preferences.
func signaturePreference(object json.RawMessage) string {
	var has struct {
		Signature string `json:"signature"`
	}
	if json.Unmarshal(object, &has) != nil { // of another client, with another type
		return ""
	}
	return has.Signature
}

// newSignature joins the signatures of a member and a connection.
func (s *Service) newSignature(agent event.Person, own, ofConnection string) signature {
	var parts []string
	for _, part := range []string{own, ofConnection} {
		if part = fillSignature(clean(part), agent); part != "" {
			parts = append(parts, part)
		}
	}
	text := strings.Join(parts, "\n\n")
	if text == "" {
		return signature{}
	}
	return signature{text, s.sanitizer.Sanitize(markdown.Render(text, func(string) string { return "" }))}
}

// fillSignature fills the variables of the agent in a signature, with nothing for an API key.
func fillSignature(text string, agent event.Person) string {
	values := map[string]string{"agent.name": agent.Name, "agent.first_name": firstName(agent.Name)}
	var out strings.Builder
	for _, p := range parseMacro(text, func(string, string) {}) {
		switch value, known := values[p.variable]; {
		case !known:
			out.WriteString(p.source)
		case value != "":
			out.WriteString(value)
		default:
			out.WriteString(p.fallback)
		}
	}
	return strings.TrimSpace(out.String())
}

// appendTo appends the signature to a mail that is about to leave.
func (g signature) appendTo(out *channel.Outgoing) {
	if g.text == "" {
		return
	}
	out.Text += "\n\n-- \n" + g.text
	if out.HTML != "" {
		out.HTML += "<div>-- </div>" + g.html
	}
}

// inlinePictures makes the HTML of a mail refer to its own inline files.
func inlinePictures(out *channel.Outgoing, files []Attachment) {
	for i := range files {
		a := &files[i]
		if path := `="` + AttachmentPath + a.ID + `"`; a.Inline && a.ContentID != "" && strings.Contains(out.HTML, path) {
			out.HTML = strings.ReplaceAll(out.HTML, path, `="cid:`+html.EscapeString(a.ContentID)+`"`)
			out.Files[i].ContentID = a.ContentID
		}
	}
}

// ReplyPreview is how a reply will look.
type ReplyPreview struct {
	Channel string
	// HTML is sanitized; pictures that the text places have src="cid:<id>" and are Pictures. Empty:
	// the channel sends Text.
	HTML     string
	Text     string
	Pictures map[string]string // file names of pictures by content id
}

// PreviewReply returns how a member's reply with a text and files would look in a conversation.
// The files need no content. Errors: those of [Service.Compose] and NotFound.
func (s *Service) PreviewReply(ctx context.Context, q db.Querier, organizationID, ticketID, conversationID string, by Actor, d Draft) (ReplyPreview, error) {
	if err := checkDraft(&d); err != nil {
		return ReplyPreview{}, err
	}
	options, err := s.ReplyOptions(ctx, q, organizationID, ticketID)
	if err != nil {
		return ReplyPreview{}, err
	}
	at := slices.IndexFunc(options, func(o ReplyOption) bool { return o.ConversationID == conversationID })
	if at < 0 {
		at = slices.IndexFunc(options, func(o ReplyOption) bool { return o.Refusal == "" })
	}
	w := Content{text: draftText(d.Text), attachments: d.Attachments}
	p := ReplyPreview{Channel: ChannelAPI}
	if at >= 0 {
		p.Channel = options[at].Channel
	}
	m := Message{Channel: p.Channel, Kind: KindReply, Direction: DirectionOutbound}
	s.renderMarkdown(&w)
	if p.Channel != channelEmail {
		s.setContent(&m, &w)
		p.Text = m.Text
		return p, nil
	}
	out := channel.Outgoing{Text: w.text, HTML: w.markup}
	g, err := s.loadSignature(ctx, q, organizationID, by.author(), options[at].Signature)
	if err != nil {
		return ReplyPreview{}, err
	}
	g.appendTo(&out)
	p.HTML, p.Text, p.Pictures = out.HTML, out.Text, make(map[string]string)
	for _, a := range w.inline {
		if a.Inline {
			p.Pictures[a.ContentID] = a.Name
		}
	}
	return p, nil
}
