package shop

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

const (
	// maxMailed bounds an archive sent as an attachment, in bytes.
	maxMailed = 5 << 20
	// linkLife is the life of the link to a larger one.
	linkLife = 14 * 24 * time.Hour
)

// ExportPath is the path of archives, followed by a token.
const ExportPath = "/privacy/exports/"

// deliverExport collects a customer's data and mails it to the organization's
// administrators.
func (s *Service) deliverExport(ctx context.Context, r *Request) error {
	admins, err := s.admins.AdminAddresses(ctx, s.db, r.OrganizationID)
	if err != nil {
		return fmt.Errorf("find the administrators: %w", err)
	}
	if len(admins) == 0 {
		return errors.New("the organization has no administrator to deliver it to")
	}
	contents, err := s.collect(ctx, r)
	if err != nil {
		return err
	}
	// An earlier attempt may have stored one.
	if err := s.deleteExports(ctx, "SELECT digest, blob_key FROM privacy_exports WHERE request_id = $1", r.ID); err != nil {
		return err
	}
	m, size, err := s.exportMail(ctx, r, contents)
	if err != nil {
		return err
	}
	m.To = admins
	if err := s.mail.Send(ctx, m); err != nil {
		return fmt.Errorf("mail it to the administrators: %w", err)
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		return s.complete(ctx, tx, r, map[string]any{
			"customer_known": contents.Customer != nil, "orders": len(contents.Orders), "files": len(contents.files),
			"administrators": len(admins), "linked": len(m.Attachments) == 0, "size": size,
		})
	})
}

// writeExport records an archive and schedules its deletion.
func (s *Service) writeExport(ctx context.Context, tx *db.Tx, r *Request, token string, ref blob.Ref) error {
	until := tx.Now.Add(linkLife)
	if err := tx.Queue(ctx, "INSERT INTO privacy_exports (digest, request_id, blob_key, until) VALUES ($1, $2, $3, $4)",
		tokenDigest(token), r.ID, ref.Key, until.UnixMicro()); err != nil {
		return fmt.Errorf("record archive: %w", err)
	}
	return s.queue.EnqueueTx(ctx, tx, queue.New{Kind: expiryKind, Lane: r.ID, Payload: []byte(r.ID), RunAt: until})
}

func tokenDigest(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// expire deletes a request's expired archives.
func (s *Service) expire(ctx context.Context, j *queue.Job) error {
	return s.deleteExports(ctx, "SELECT digest, blob_key FROM privacy_exports WHERE request_id = $1 AND until <= $2",
		string(j.Payload), s.db.Now().UnixMicro())
}

// OpenExport returns the archive of a link's token, for the caller to close. Error:
// NotFound, also after expiry.
func (s *Service) OpenExport(ctx context.Context, token string) (io.ReadCloser, error) {
	gone := problem.New(problem.NotFound, "there is no such archive, or its link has expired: links are valid for %d days", int(linkLife/(24*time.Hour)))
	var key, requestID, organizationID string
	err := s.db.QueryRow(ctx, `SELECT e.blob_key, r.id, r.organization_id FROM privacy_exports e JOIN privacy_requests r ON r.id = e.request_id
		WHERE e.digest = $1 AND e.until > $2`, tokenDigest(token), s.db.Now().UnixMicro()).Scan(&key, &requestID, &organizationID)
	if errors.Is(err, db.ErrNoRows) {
		return nil, gone
	}
	if err != nil {
		return nil, fmt.Errorf("find archive: %w", err)
	}
	r, err := s.blob.Open(ctx, key)
	if errors.Is(err, blob.ErrNotFound) {
		return nil, gone.Because(err)
	}
	if err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	if err := s.audit.Record(ctx, privacyEntry(AuditArchiveFetched, organizationID, requestID, nil)); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// contents are the contents of an archive.
type contents struct {
	Request  requestSummary  `json:"request"`
	Customer json.RawMessage `json:"customer"` // null: unknown
	Orders   []Order         `json:"orders"`

	files []File
}

// requestSummary describes the request in the archive.
type requestSummary struct {
	ID         string    `json:"id"`
	Shop       string    `json:"shop"`
	CustomerID string    `json:"customer_id"` // the shop's
	Email      string    `json:"email,omitempty"`
	Phone      string    `json:"phone,omitempty"`
	OrderIDs   []string  `json:"orders_requested,omitempty"`
	ReceivedAt time.Time `json:"received_at"`
	DueAt      time.Time `json:"due_at"`
}

// collect collects all data of the person of a request.
func (s *Service) collect(ctx context.Context, r *Request) (*contents, error) {
	p, err := s.findPerson(ctx, r)
	if err != nil {
		return nil, err
	}
	c := &contents{
		Request: requestSummary{r.ID, r.Shop, r.Subject, r.details.Email, r.details.Phone, r.details.OrderIDs, r.ReceivedAt, r.DueAt},
		Orders:  []Order{},
	}
	seen := make(map[[2]string]bool)
	add := func(list []Order) {
		for _, o := range list {
			if key := [2]string{o.place, o.ExternalID}; !seen[key] {
				seen[key] = true
				c.Orders = append(c.Orders, o)
			}
		}
	}
	if p.CustomerID != "" {
		d, err := s.desk.ExportCustomer(ctx, s.db, r.OrganizationID, p.CustomerID)
		if err != nil {
			return nil, fmt.Errorf("collect customer data: %w", err)
		}
		c.Customer, c.files = d.Record, d.Files
		list, err := orders(ctx, s.db, "customer_id = $1 AND organization_id = $2 ORDER BY placed_at, external_id", p.CustomerID, r.OrganizationID)
		if err != nil {
			return nil, err
		}
		add(list)
	}
	list, err := orders(ctx, s.db, "place = ANY($1) AND external_id = ANY($2) ORDER BY placed_at, external_id", p.Places, append([]string{}, r.details.OrderIDs...))
	if err != nil {
		return nil, err
	}
	add(list)
	return c, nil
}

// storeArchive writes the archive to the blob store. The token makes its content
// unique.
func (s *Service) storeArchive(ctx context.Context, token string, c *contents) (blob.Ref, error) {
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(s.archive(ctx, w, token, c))
	}()
	ref, err := s.blob.Put(ctx, r)
	r.CloseWithError(err) // unblocks the writer
	<-done
	return ref, err
}

// archive writes a ZIP file with the data as JSON and as text, and the files.
func (s *Service) archive(ctx context.Context, w io.Writer, token string, c *contents) error {
	z := zip.NewWriter(w)
	sum := sha256.Sum256([]byte("archive " + token))
	if err := z.SetComment(fmt.Sprintf("%x", sum[:8])); err != nil {
		return err
	}
	plain, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	text, err := readable(plain)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name    string
		content io.Reader
	}{{"customer.json", bytes.NewReader(plain)}, {"customer.txt", strings.NewReader(text)}} {
		if err := addFile(z, f.name, f.content); err != nil {
			return err
		}
	}
	for _, f := range c.files {
		content, err := s.blob.Open(ctx, f.BlobKey)
		if errors.Is(err, blob.ErrNotFound) {
			continue // the record mentions it, but the content is lost
		}
		if err != nil {
			return fmt.Errorf("open file: %w", err)
		}
		err = addFile(z, "files/"+f.Name, content)
		content.Close()
		if err != nil {
			return err
		}
	}
	return z.Close()
}

func addFile(z *zip.Writer, name string, content io.Reader) error {
	w, err := z.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, content)
	return err
}

// readable formats JSON for people: one line per value, indented below field names.
// Empty fields are left out.
func readable(plain []byte) (string, error) {
	d := json.NewDecoder(bytes.NewReader(plain))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	var b strings.Builder
	outline(&b, v, 0)
	return b.String(), nil
}

func outline(b *strings.Builder, v any, depth int) {
	indent := strings.Repeat("  ", depth)
	switch v := v.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			title := strings.ReplaceAll(name, "_", " ")
			switch value := v[name].(type) {
			case nil:
			case map[string]any:
				if len(value) > 0 {
					fmt.Fprintf(b, "%s%s:\n", indent, title)
					outline(b, value, depth+1)
				}
			case []any:
				if len(value) > 0 {
					fmt.Fprintf(b, "%s%s:\n", indent, title)
					outline(b, value, depth+1)
				}
			case string:
				if value != "" {
					fmt.Fprintf(b, "%s%s: %s\n", indent, title, strings.ReplaceAll(value, "\n", "\n"+indent+"  "))
				}
			default:
				fmt.Fprintf(b, "%s%s: %v\n", indent, title, value)
			}
		}
	case []any:
		for i, value := range v {
			switch value.(type) {
			case map[string]any, []any:
				fmt.Fprintf(b, "%s%d.\n", indent, i+1)
				outline(b, value, depth+1)
			default:
				fmt.Fprintf(b, "%s- %v\n", indent, value)
			}
		}
	default:
		fmt.Fprintf(b, "%s%v\n", indent, v)
	}
}

// exportMail returns the mail with the archive, or with a link to it, and the
// archive's size.
func (s *Service) exportMail(ctx context.Context, r *Request, c *contents) (m mail.Message, size int64, err error) {
	customer := "a customer"
	if r.Subject != "" {
		customer = "the customer " + r.Subject
	}
	l := mail.Notification{
		Subject: "Data of a customer of " + r.Shop,
		Before: []string{
			"Hello,",
			fmt.Sprintf("On %s the shop %s forwarded a request of %s for access to their data. The law gives you until %s to answer.",
				r.ReceivedAt.UTC().Format("2 January 2006"), r.Shop, customer, r.DueAt.UTC().Format("2 January 2006")),
		},
		After: []string{"Request: " + r.ID},
	}
	if c.Customer == nil && len(c.Orders) == 0 {
		l.Before = append(l.Before, "Kickstand has no data of this person: no customer record, no tickets, no orders. The archive states this.")
	} else {
		l.Before = append(l.Before, "The archive has all data of this person: the customer record, tickets, messages, files and orders, as text and as JSON. "+
			"Review it before you send it to the customer, since it also has your agents' notes and replies.")
	}
	token := rand.Text()
	small := limitedBuffer{most: maxMailed}
	err = s.archive(ctx, &small, token, c)
	switch {
	case err == nil:
		size = int64(small.Len())
	case errors.Is(err, errTooLarge):
		ref, err := s.storeArchive(ctx, token, c)
		if err != nil {
			return m, 0, fmt.Errorf("store the archive: %w", err)
		}
		if err := s.db.Write(ctx, func(tx *db.Tx) error { return s.writeExport(ctx, tx, r, token, ref) }); err != nil {
			return m, 0, err
		}
		size = ref.Size
		l.Action = mail.Action{Label: "Download the archive", URL: s.baseURL + ExportPath + token}
		l.After = append([]string{fmt.Sprintf("Anybody with the link can download the archive, for %d days.", int(linkLife/(24*time.Hour)))}, l.After...)
	default:
		return m, 0, fmt.Errorf("write the archive: %w", err)
	}
	if m, err = l.Message(s.mailFrom, mail.Address{}); err != nil {
		return m, 0, err
	}
	if l.Action.URL == "" {
		m.Attachments = []mail.Attachment{{Name: "customer-" + r.ID + ".zip", ContentType: "application/zip", Content: small.Bytes()}}
	}
	return m, size, nil
}

var errTooLarge = errors.New("the archive is too large for a mail")

// limitedBuffer is a buffer with a maximum size.
type limitedBuffer struct {
	bytes.Buffer
	most int
}

// Write implements [io.Writer].
func (l *limitedBuffer) Write(p []byte) (int, error) {
	if l.Len()+len(p) > l.most {
		return 0, errTooLarge
	}
	return l.Buffer.Write(p)
}
