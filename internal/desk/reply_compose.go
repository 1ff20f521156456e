package desk

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
)

// Actor is the member or the API key behind a change. The surface has authenticated
// it.
type Actor struct {
	ID   string // of the member or the key
	Name string
}

func (a Actor) author() event.Author {
	return event.Author{Type: AuthorAgent, ID: a.ID, Name: line(a.Name, maxName)}
}

// Draft is the raw input of a message.
type Draft struct {
	Note        bool
	Text        string // empty: derived from HTML
	HTML        string // empty: Text only; need not be sanitized
	Attachments []channel.Attachment
}

// Content is a [Draft] prepared by [Service.Compose]: its HTML is sanitized and its
// files are stored. The zero value is empty.
type Content struct {
	text, html  string
	attachments []channel.Attachment
	files       []blob.Ref
	// Of a reply: markup is the text rendered for mail, with inline as its attachments.
	composed bool
	markup   string
	inline   []channel.Attachment
}

// Bounds of a draft: characters, characters and files.
const (
	maxText  = 100_000
	maxHTML  = 500_000
	maxFiles = 50
)

// Empty reports whether there is neither text nor a file.
func (w *Content) Empty() bool { return w.text == "" && len(w.attachments) == 0 }

// Compose validates a draft, sanitizes its HTML, derives the text if there is only
// HTML, and stores the files. The text of a reply without HTML is Markdown for mail; see
// package markdown. It is idempotent. Errors: Invalid, with paths such as
// text, html, attachments.N.name; those of [quota.Service.Check].
func (s *Service) Compose(ctx context.Context, organizationID string, d Draft) (Content, error) {
	if err := checkDraft(&d); err != nil {
		return Content{}, err
	}
	w := Content{text: draftText(d.Text), attachments: d.Attachments, composed: !d.Note}
	if d.HTML != "" {
		w.html = s.sanitizer.Sanitize(d.HTML)
		if w.text == "" {
			w.text = safehtml.Text(w.html, 4*maxText)
		}
	} else if !d.Note {
		s.renderMarkdown(&w)
	}
	if err := s.checkQuotas(ctx, organizationID, &w, d.Note); err != nil {
		return Content{}, err
	}
	for i, a := range d.Attachments {
		ref, err := s.blob.Put(ctx, bytes.NewReader(a.Data))
		if err != nil {
			return Content{}, fmt.Errorf("store attachment %d: %w", i+1, err)
		}
		w.files = append(w.files, ref)
	}
	return w, nil
}

func checkDraft(d *Draft) error {
	var v problem.Validation
	v.Length("text", d.Text, 0, maxText)
	v.Length("html", d.HTML, 0, maxHTML)
	if len(d.Attachments) > maxFiles {
		v.AddCode("too_long", "attachments", "must have at most %d files", maxFiles)
	}
	for i, a := range d.Attachments {
		path := "attachments." + strconv.Itoa(i)
		v.Line(path+".name", a.Name, 1, 255)
		v.Line(path+".content_type", a.ContentType, 0, 255)
	}
	return v.Err()
}

// draftText returns the text of a draft as stored; empty for a blank one.
func draftText(text string) string {
	if text = safehtml.Clean(text); strings.TrimSpace(text) == "" {
		return ""
	}
	return text
}

// checkQuotas refuses a message that exceeds a quota, before its files are stored.
func (s *Service) checkQuotas(ctx context.Context, organizationID string, w *Content, note bool) error {
	if w.Empty() {
		return nil
	}
	var size int64
	for _, a := range w.attachments {
		size += int64(len(a.Data))
	}
	return s.quotas.Check(ctx, organizationID, size, note)
}

// setContent sets the text, HTML and attachments of m, which has its ticket, id, channel and kind
// already.
func (s *Service) setContent(m *Message, w *Content) {
	m.Text, m.HTML, m.Attachments = w.text, w.html, []Attachment{}
	files := w.attachments
	if m.Channel == channelEmail && m.Kind != KindNote && w.markup != "" {
		m.HTML, files, m.Details.Markdown = w.markup, w.inline, true
	}
	s.attach(m, files, w.files, nil)
	if m.Channel != channelEmail && m.Channel != ChannelAPI && m.Kind != KindNote {
		m.Text = plainText(m.Text, m.Attachments, false)
	}
}
