package mail

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/net/html"
)

// mailboxSize is the number of mails in a mailbox.
const mailboxSize = 500

// Mailbox stores mails in a directory instead of sending them, for development and
// demonstrations. Each is one JSON file named by a UUIDv7, so that names sort by time; the
// newest 500 remain. Files appear by renaming and are never changed, so any number of processes
// may share the directory without locks.
//
// The files and the log hold whole mails, sign-in links included: a Mailbox is not for
// deployments with a mail server.
type Mailbox struct {
	dir     string
	baseURL string
	log     *slog.Logger
}

// ErrNotFound is returned by [Mailbox.Find] for a mail that is not in the mailbox, or has been
// pruned.
var ErrNotFound = errors.New("mail: no such mail in the mailbox")

// Stored is a mail in a mailbox.
type Stored struct {
	ID           string             `json:"id"`
	From         string             `json:"from"`                  // name and address
	To           []string           `json:"to"`                    // bare addresses
	Cc           []string           `json:"cc,omitempty"`          // bare addresses
	ReplyTo      string             `json:"reply_to,omitempty"`    // bare address
	EnvelopeFrom string             `json:"envelope_from"`         // bare address, or "<>"
	Subject      string             `json:"subject"`               //
	Text         string             `json:"text"`                  //
	HTML         string             `json:"html"`                  //
	Links        []string           `json:"links"`                 // http and https, in order of appearance
	Headers      []StoredHeader     `json:"headers,omitempty"`     // further headers of the message
	Attachments  []StoredAttachment `json:"attachments,omitempty"` //
	CreatedAt    time.Time          `json:"created_at"`            // time of Send, UTC
}

// StoredHeader is a further header of a stored mail.
type StoredHeader struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// StoredAttachment describes an attachment without its content.
type StoredAttachment struct {
	Name        string `json:"name"`
	ContentType string `json:"content_type"`
	Size        int    `json:"size"` // bytes
}

// OpenMailbox opens the mailbox in dir and creates the directory if necessary. baseURL is the
// server that mounts [Mailbox.Handler], for links in the log. A nil log discards.
func OpenMailbox(dir, baseURL string, log *slog.Logger) (*Mailbox, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("mail: create mailbox: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Mailbox{dir: dir, baseURL: strings.TrimSuffix(baseURL, "/"), log: log}, nil
}

// Send implements [Sender]: it stores m and logs its text, because a developer first signs in
// by the link in the log.
func (b *Mailbox) Send(ctx context.Context, m Message) error {
	_, err := b.SendTracked(ctx, m, func() error { return nil })
	return err
}

// SendTracked implements [TrackedSender]. It returns no id.
func (b *Mailbox) SendTracked(ctx context.Context, m Message, submitting func() error) (string, error) {
	// Compose only to get its errors: a message that a server would never receive must fail in
	// development, too.
	if _, _, err := compose(m); err != nil {
		return "", err
	}
	if ctx.Err() != nil {
		return "", &Error{Op: OpStore, Temporary: true, Err: context.Cause(ctx)}
	}
	s, err := store(m)
	if err == nil {
		err = submitting()
	}
	if err == nil {
		err = submitting()
	}
	if err == nil {
		err = b.write(s)
	}
	if err != nil {
		return "", &Error{Op: OpStore, Temporary: true, Err: err}
	}
	b.log.InfoContext(ctx, "mail stored in the mailbox", "to", strings.Join(s.To, ", "), "subject", s.Subject,
		"text", cmp.Or(s.Text, s.HTML), "see", b.baseURL+"/dev/mailbox/"+s.ID)
	b.prune()
	return "", nil
}

func store(m Message) (Stored, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Stored{}, err
	}
	s := Stored{
		ID:           id.String(),
		From:         m.From.Address,
		To:           addressesOnly(m.To),
		Cc:           addressesOnly(m.Cc),
		ReplyTo:      m.ReplyTo.Address,
		EnvelopeFrom: cmp.Or(m.EnvelopeFrom, m.From.Address),
		Subject:      m.Subject,
		Text:         m.Text,
		HTML:         m.HTML,
		Links:        links(m.Text, m.HTML),
		CreatedAt:    time.Now().UTC().Truncate(time.Microsecond),
	}
	if m.From.Name != "" {
		s.From = m.From.Name + " <" + m.From.Address + ">"
	}
	for _, h := range m.Headers {
		s.Headers = append(s.Headers, StoredHeader(h))
	}
	for _, a := range m.Attachments {
		s.Attachments = append(s.Attachments, StoredAttachment{fileName(a.Name), contentType(a.ContentType), len(a.Content)})
	}
	return s, nil
}

func addressesOnly(list []Address) []string {
	addrs := make([]string, len(list))
	for i, a := range list {
		addrs[i] = a.Address
	}
	return addrs
}

// write makes the file appear completely or not at all.
func (b *Mailbox) write(s Stored) (err error) {
	data, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(b.dir, ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), b.path(s.ID))
}

func (b *Mailbox) path(id string) string { return filepath.Join(b.dir, id+".json") }

// prune deletes the oldest mails beyond the limit. The current mail is already stored, so
// errors are only logged.
func (b *Mailbox) prune() {
	ids, err := b.ids()
	if err != nil {
		b.log.Warn("mailbox not pruned", "error", err)
		return
	}
	for _, id := range ids[min(mailboxSize, len(ids)):] {
		// Another process may prune at the same time.
		if err := os.Remove(b.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.log.Warn("mailbox not pruned", "error", err)
			return
		}
	}
}

// ids lists the mailbox, newest first.
func (b *Mailbox) ids() ([]string, error) {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(entries))
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".json"); ok && isID(id) {
			ids = append(ids, id)
		}
	}
	slices.Reverse(ids)
	return ids, nil
}

// List returns all mails, newest first.
func (b *Mailbox) List(ctx context.Context) ([]Stored, error) {
	ids, err := b.ids()
	if err != nil {
		return nil, fmt.Errorf("mail: list mailbox: %w", err)
	}
	list := make([]Stored, 0, len(ids))
	for _, id := range ids {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		s, err := b.Find(ctx, id)
		switch {
		case errors.Is(err, ErrNotFound): // pruned meanwhile
		case err != nil:
			// One damaged file must not hide the others.
			b.log.WarnContext(ctx, "mail in the mailbox is unreadable", "id", id, "error", err)
		default:
			list = append(list, s)
		}
	}
	return list, nil
}

// Find returns one mail by its id, or [ErrNotFound].
func (b *Mailbox) Find(_ context.Context, id string) (Stored, error) {
	if !isID(id) {
		return Stored{}, ErrNotFound
	}
	data, err := os.ReadFile(b.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return Stored{}, ErrNotFound
	}
	if err != nil {
		return Stored{}, fmt.Errorf("mail: read mailbox: %w", err)
	}
	var s Stored
	if err := json.Unmarshal(data, &s); err != nil {
		return Stored{}, fmt.Errorf("mail: read mailbox: %s: %w", id, err)
	}
	return s, nil
}

// isID reports whether id is a UUID, and so a file name without a path.
func isID(id string) bool {
	u, err := uuid.Parse(id)
	return err == nil && u.String() == id
}

var webLink = regexp.MustCompile(`https?://[^\s<>"]+`)

// links returns the distinct web addresses in a mail: those in the text, then those of HTML
// anchors.
func links(text, htmlBody string) []string {
	found := []string{}
	add := func(link string) {
		if !slices.Contains(found, link) {
			found = append(found, link)
		}
	}
	for _, link := range webLink.FindAllString(text, -1) {
		// Trailing punctuation belongs to the sentence.
		add(strings.TrimRight(link, ".,;:!?)]}'*"))
	}
	z := html.NewTokenizer(strings.NewReader(htmlBody))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return found
		case html.StartTagToken:
			token := z.Token()
			if token.Data != "a" {
				continue
			}
			for _, attr := range token.Attr {
				if link := strings.TrimSpace(attr.Val); attr.Key == "href" && webLink.FindString(link) == link && link != "" {
					add(link)
				}
			}
		}
	}
}
