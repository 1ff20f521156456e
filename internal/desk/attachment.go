package desk

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"io"
	"mime"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/quota"
)

// Attachment is a file of a message.
type Attachment struct {
	ID          string    `json:"id"`
	TicketID    string    `json:"-"`
	MessageID   string    `json:"-"`
	Name        string    `json:"name"`
	ContentType string    `json:"content_type"` // as declared or sniffed; not trusted
	ContentID   string    `json:"-"`
	Inline      bool      `json:"inline"`            // shown within the message
	Size        int64     `json:"size"`              // bytes
	BlobKey     string    `json:"-"`                 // empty: no content, or not yet
	Pending     bool      `json:"pending,omitempty"` // the content is being fetched
	Error       string    `json:"error,omitempty"`   // the reason why there is no content
	URL         string    `json:"url"`
	CreatedAt   time.Time `json:"-"`
}

// AttachmentPath is the path of attachments below the base URL, followed by an id.
// Access needs a member's session, an API key that may read messages, or a signed
// link.
const AttachmentPath = "/attachments/"

const attachmentColumns = "id, ticket_id, message_id, name, content_type, content_id, inline, size, blob_key, pending, error, created_at"

func (s *Service) scanAttachment(row db.Row) (Attachment, error) {
	var a Attachment
	err := row.Scan(&a.ID, &a.TicketID, &a.MessageID, &a.Name, &a.ContentType, db.IntoText(&a.ContentID), &a.Inline, &a.Size,
		db.IntoText(&a.BlobKey), &a.Pending, db.IntoText(&a.Error), db.IntoTime(&a.CreatedAt))
	a.URL = s.baseURL + AttachmentPath + a.ID
	return a, err
}

// Attachment returns an attachment by id, or a NotFound problem.
func (s *Service) Attachment(ctx context.Context, q db.Querier, organizationID, id string) (Attachment, error) {
	a, err := db.One(ctx, q, s.scanAttachment, "SELECT "+attachmentColumns+" FROM attachments WHERE id = $1 AND organization_id = $2", id, organizationID)
	return a, notFound(err, "attachment")
}

// SafeType returns the declared content type if it is well formed and browsers do
// not execute it, else application/octet-stream.
func (a *Attachment) SafeType() string {
	const unknown = "application/octet-stream"
	t, _, err := mime.ParseMediaType(a.ContentType)
	if err != nil {
		return unknown
	}
	switch t {
	case "text/html", "application/xhtml+xml", "image/svg+xml", "text/xml", "application/xml", "text/javascript", "application/javascript":
		return unknown
	}
	return t
}

// OpenAttachment returns an attachment with its content, which the caller closes.
// Errors: NotFound if the organization has no such attachment or it has no content;
// with RetryAfter while the content is being fetched.
func (s *Service) OpenAttachment(ctx context.Context, organizationID, id string) (Attachment, io.ReadCloser, error) {
	a, err := s.Attachment(ctx, s.db, organizationID, id)
	if err != nil {
		return a, nil, err
	}
	if a.Pending {
		return a, nil, errPending()
	}
	if a.BlobKey == "" {
		return a, nil, problem.New(problem.NotFound, "the content of this attachment could not be fetched: %s", a.Error)
	}
	content, err := s.blob.Open(ctx, a.BlobKey)
	if err != nil {
		return a, nil, fmt.Errorf("open attachment: %w", err)
	}
	return a, content, nil
}

// StoreFiles stores the contents of a message's attachments ahead of the
// transaction of [Service.IngestTx]. It returns one reference per attachment for
// Inbound.Files, zero for attachments without content, and nil for a nil message.
// It is idempotent.
func (s *Service) StoreFiles(ctx context.Context, m *channel.Message) ([]blob.Ref, error) {
	if m == nil || len(m.Attachments) == 0 {
		return nil, nil
	}
	files := make([]blob.Ref, len(m.Attachments))
	for i, a := range m.Attachments {
		if a.Data == nil {
			continue
		}
		var err error
		if files[i], err = s.blob.Put(ctx, bytes.NewReader(a.Data)); err != nil {
			return nil, fmt.Errorf("store attachment %d: %w", i+1, err)
		}
	}
	return files, nil
}

// attach adds the attachments from to m, and points the cid: links of its HTML at
// them.
func (s *Service) attach(m *Message, from []channel.Attachment, files []blob.Ref, promises []FetchJob) {
	links := make(map[string]string)
	for i, a := range from {
		id := newID()
		out := Attachment{
			ID: id, TicketID: m.TicketID, MessageID: m.ID,
			Name: line(a.Name, 255), ContentType: line(a.ContentType, 255), ContentID: line(a.ContentID, 255),
			Inline: a.Inline, Error: line(a.Error, 500), URL: s.baseURL + AttachmentPath + id, CreatedAt: m.CreatedAt,
		}
		if i < len(files) {
			out.BlobKey, out.Size = files[i].Key, files[i].Size
		}
		out.Pending = out.BlobKey == "" && out.Error == "" && i < len(promises) && promises[i].Payload != nil
		if out.BlobKey == "" && out.Error == "" && !out.Pending {
			out.Error = "the content is missing"
		}
		if out.Name == "" {
			out.Name = fmt.Sprintf("attachment-%d", i+1)
		}
		if out.ContentType == "" {
			out.ContentType = "application/octet-stream"
		}
		if a.ContentID != "" {
			links[a.ContentID] = AttachmentPath + id
		}
		m.Attachments = append(m.Attachments, out)
	}
	m.HTML = rewriteCID(m.HTML, links)
}

// insertAttachments writes the attachments of m and counts their files.
func (s *Service) insertAttachments(ctx context.Context, tx *db.Tx, organizationID string, m *Message, mode quota.Mode) error {
	if len(m.Attachments) == 0 {
		return nil
	}
	counts, err := s.quotas.Counts(ctx, tx, organizationID, quota.Storage)
	if err != nil {
		return err
	}
	for i := range m.Attachments {
		a := &m.Attachments[i]
		counted := counts && a.BlobKey != ""
		if err := tx.Queue(ctx, `INSERT INTO attachments (id, organization_id, ticket_id, message_id, name, content_type,
				content_id, inline, size, blob_key, pending, error, created_at, counted)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
			a.ID, organizationID, a.TicketID, a.MessageID, a.Name, a.ContentType,
			db.Text(a.ContentID), a.Inline, a.Size, db.Text(a.BlobKey), a.Pending, db.Text(a.Error), a.CreatedAt.UnixMicro(), counted); err != nil {
			return fmt.Errorf("write attachment: %w", err)
		}
		if counted {
			s.quotas.AddStorageTx(ctx, tx, organizationID, a.Size, mode)
		}
	}
	return nil
}

var cidLink = regexp.MustCompile(`="cid:([^"]*)"`)

// rewriteCID points the cid: links of sanitized HTML (RFC 2392) at attachments.
// Links to missing parts stay as they are.
func rewriteCID(text string, links map[string]string) string {
	if len(links) == 0 || !strings.Contains(text, `="cid:`) {
		return text
	}
	return cidLink.ReplaceAllStringFunc(text, func(link string) string {
		id := html.UnescapeString(link[len(`="cid:`) : len(link)-1])
		if to, ok := links[id]; ok {
			return `="` + to + `"`
		}
		if plain, err := url.PathUnescape(id); err == nil {
			if to, ok := links[plain]; ok {
				return `="` + to + `"`
			}
		}
		return link
	})
}
