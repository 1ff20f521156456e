package importer

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/netguard"
)

const maxRecord = 64 << 20 // bytes of a JSON record

// zendeskReader reads answers of Zendesk's API, or an export in the same form: tickets, users and
// comments.
type zendeskReader struct {
	*sourceFiles
	options  Options
	client   *http.Client
	users    map[ident]zendeskUser
	comments map[ident][]zendeskPlace // by ticket
	tickets  []zendeskPlace
}

// zendeskPlace is the place of a record.
type zendeskPlace struct {
	file           int
	offset, length int64
	id             ident
	at             int64 // creation, microseconds
}

// ident is an id: a number, or a text.
type ident string

func (i *ident) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	if text == "null" {
		text = ""
	}
	*i = ident(clip(text, 100))
	return nil
}

// Fields of the API. Unknown ones are ignored.
type (
	zendeskUser struct {
		ID        ident     `json:"id"`
		Name      string    `json:"name"`
		Email     string    `json:"email"`
		Phone     string    `json:"phone"`
		Role      string    `json:"role"` // end-user, agent, admin
		CreatedAt time.Time `json:"created_at"`
	}
	zendeskTicket struct {
		ID          ident            `json:"id"`
		Subject     string           `json:"subject"`
		RawSubject  string           `json:"raw_subject"`
		Description string           `json:"description"`
		Status      string           `json:"status"`
		Priority    string           `json:"priority"`
		Tags        []string         `json:"tags"`
		RequesterID ident            `json:"requester_id"`
		AssigneeID  ident            `json:"assignee_id"`
		CreatedAt   time.Time        `json:"created_at"`
		UpdatedAt   time.Time        `json:"updated_at"`
		Comments    []zendeskComment `json:"comments"`
		Requester   *zendeskUser     `json:"requester"` // of exports
		Assignee    *zendeskUser     `json:"assignee"`
		MetricSet   struct {
			SolvedAt time.Time `json:"solved_at"`
		} `json:"metric_set"`
	}
	zendeskComment struct {
		ID          ident               `json:"id"`
		TicketID    ident               `json:"ticket_id"` // of exports
		AuthorID    ident               `json:"author_id"`
		Public      *bool               `json:"public"`
		Body        string              `json:"body"`
		PlainBody   string              `json:"plain_body"`
		HTMLBody    string              `json:"html_body"`
		CreatedAt   time.Time           `json:"created_at"`
		Attachments []zendeskAttachment `json:"attachments"`
		Metadata    struct {
			System struct {
				MessageID string `json:"message_id"` // of mail
			} `json:"system"`
		} `json:"metadata"`
	}
	zendeskAttachment struct {
		ID          ident  `json:"id"`
		FileName    string `json:"file_name"`
		ContentURL  string `json:"content_url"`
		ContentType string `json:"content_type"`
		Inline      bool   `json:"inline"`
	}
)

// OpenZendesk opens a JSON file, or a folder of them. transport fetches files that are not on this
// machine; nil fetches none.
func OpenZendesk(path string, o Options, transport http.RoundTripper) (Reader, error) {
	s, err := openFiles(path, ".json", ".jsonl", ".ndjson")
	if err != nil {
		return nil, err
	}
	z := &zendeskReader{sourceFiles: s, options: o, users: make(map[ident]zendeskUser), comments: make(map[ident][]zendeskPlace)}
	if transport != nil {
		z.client = &http.Client{Transport: transport, Timeout: 2 * time.Minute, CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > 5 || r.URL.Scheme != "https" {
				return errors.New("the address leads elsewhere")
			}
			return nil
		}}
	}
	return z, nil
}

// Index implements [Reader].
func (z *zendeskReader) Index(ctx context.Context, r *Report) (string, int, error) {
	for i := range z.open {
		if err := z.indexFile(ctx, i, r); err != nil {
			return "", 0, err
		}
	}
	seen := make(map[ident]int)
	var list []zendeskPlace
	for _, t := range z.tickets { // an incremental export repeats tickets: the last one counts
		if i, there := seen[t.id]; there {
			list[i] = t
			continue
		}
		seen[t.id] = len(list)
		list = append(list, t)
	}
	for _, id := range slices.Sorted(maps.Keys(z.comments)) {
		if _, there := seen[id]; !there {
			r.Addf("ticket "+string(id), "there are comments of the ticket, but not the ticket")
		}
	}
	slices.SortStableFunc(list, func(a, b zendeskPlace) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(len(a.id), len(b.id)), cmp.Compare(a.id, b.id))
	})
	z.tickets = list
	return z.digest(), len(z.tickets), nil
}

// indexFile reads a file: pages of the API, or a record per line.
func (z *zendeskReader) indexFile(ctx context.Context, file int, r *Report) error {
	in := bufio.NewReaderSize(z.reader(ctx, file, r), 64<<10)
	name := z.names[file]
	limited := &bounded{in: in, max: maxRecord}
	dec := json.NewDecoder(limited)
	limited.from = dec.InputOffset
	x := &zendeskIndex{z: z, file: file, name: name, dec: dec, report: r, ticket: ticketOfFile(name)}
	var err error
	if ending := strings.ToLower(filepath.Ext(name)); ending == ".jsonl" || ending == ".ndjson" {
		err = x.lines(in)
	} else {
		err = x.values()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		r.Addf(fmt.Sprintf("%s, byte %d", name, dec.InputOffset()), "the rest of the file is unreadable: %v", err)
	}
	// The digest covers all bytes, read or not.
	if _, err := io.Copy(io.Discard, in); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

var fileTicket = regexp.MustCompile(`(?i)(?:^|[/_.-])(?:tickets?|comments?)[/_-]?(\d+)(?:[/_.-]|$)`)

// ticketOfFile returns the ticket of a file of comments, from its path: comments/123.json or
// tickets/123/comments.json.
func ticketOfFile(name string) ident {
	match := fileTicket.FindAllStringSubmatch(filepath.ToSlash(name), -1)
	if match == nil {
		return ""
	}
	return ident(match[len(match)-1][1])
}

// zendeskIndex indexes one file.
type zendeskIndex struct {
	z      *zendeskReader
	file   int
	name   string
	dec    *json.Decoder
	report *Report
	ticket ident // of its comments
}

// values reads the values of the file.
func (x *zendeskIndex) values() error {
	for {
		token, err := x.dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('['):
			err = x.list("")
		case json.Delim('{'):
			err = x.object()
		default:
			return errors.New("it is not JSON of tickets, users or comments")
		}
		if err != nil {
			return err
		}
	}
}

// lines reads a record per line. A broken line is reported, and the next one read.
func (x *zendeskIndex) lines(in *bufio.Reader) error {
	for offset := int64(0); ; {
		line, length, err := readLine(in, maxRecord)
		where := fmt.Sprintf("%s, byte %d", x.name, offset)
		switch {
		case length > maxRecord:
			x.report.Addf(where, "the record is larger than %d MB", maxRecord>>20)
		case len(bytes.TrimSpace(line)) > 0:
			x.add("", bytes.TrimRight(line, "\r\n"), offset)
		}
		offset += length
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readLine reads a line, and returns at most about max bytes of it with its length.
func readLine(in *bufio.Reader, max int64) (line []byte, length int64, err error) {
	for {
		part, err := in.ReadSlice('\n')
		length += int64(len(part))
		if length <= max {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, length, err
		}
	}
}

// listed are the fields of pages that hold records.
var listed = []string{"tickets", "users", "comments"}

// object reads an object whose brace has been read: a page, or a record.
func (x *zendeskIndex) object() error {
	begin := x.dec.InputOffset() - 1
	page, isRecord := false, false
	for x.dec.More() {
		key, err := x.dec.Token()
		if err != nil {
			return err
		}
		field, _ := key.(string)
		switch {
		case !isRecord && slices.Contains(listed, field):
			if err := x.expect('['); err != nil {
				return err
			}
			page = true
			if err := x.list(field); err != nil {
				return err
			}
		case !isRecord && (field == "ticket" || field == "user"):
			page = true
			if err := x.record(field + "s"); err != nil {
				return err
			}
		default:
			isRecord = isRecord || !page && field == "id"
			var skipped json.RawMessage
			if err := x.dec.Decode(&skipped); err != nil {
				return err
			}
		}
	}
	if err := x.expect('}'); err != nil {
		return err
	}
	if !isRecord {
		return nil
	}
	return x.recordAt(begin, x.dec.InputOffset())
}

// expect reads a delimiter.
func (x *zendeskIndex) expect(delim json.Delim) error {
	token, err := x.dec.Token()
	if err == nil && token != delim {
		err = fmt.Errorf("%q is expected", delim.String())
	}
	return err
}

// list reads the records of a list whose bracket has been read.
func (x *zendeskIndex) list(field string) error {
	for x.dec.More() {
		if err := x.record(field); err != nil {
			return err
		}
	}
	return x.expect(']')
}

// record reads a record of a page.
func (x *zendeskIndex) record(field string) error {
	var raw json.RawMessage
	if err := x.dec.Decode(&raw); err != nil {
		return err
	}
	end := x.dec.InputOffset()
	x.add(field, raw, end-int64(len(raw)))
	return nil
}

// recordAt reads a record that has been passed.
func (x *zendeskIndex) recordAt(begin, end int64) error {
	if end-begin > maxRecord {
		x.report.Addf(fmt.Sprintf("%s, byte %d", x.name, begin), "the record is larger than %d MB", maxRecord>>20)
		return nil
	}
	raw, err := x.z.read(x.file, begin, end-begin)
	if err != nil {
		return err
	}
	x.add("", raw, begin)
	return nil
}

// add indexes a record. Without the field of its page, its own fields decide.
func (x *zendeskIndex) add(field string, raw json.RawMessage, offset int64) {
	where := fmt.Sprintf("%s, byte %d", x.name, offset)
	var of struct {
		ID          ident            `json:"id"`
		TicketID    ident            `json:"ticket_id"`
		CreatedAt   time.Time        `json:"created_at"`
		AuthorID    ident            `json:"author_id"`
		RequesterID ident            `json:"requester_id"`
		Requester   *json.RawMessage `json:"requester"`
		Status      string           `json:"status"`
		Role        string           `json:"role"`
	}
	if err := json.Unmarshal(raw, &of); err != nil {
		x.report.Addf(where, "the record is unreadable: %v", err)
		return
	}
	if field == "" {
		switch {
		case of.AuthorID != "":
			field = "comments"
		case of.RequesterID != "" || of.Requester != nil:
			field = "tickets"
		case of.Role != "":
			field = "users"
		default:
			x.report.Addf(where, "the record is no ticket, user or comment")
			return
		}
	}
	place := zendeskPlace{x.file, offset, int64(len(raw)), of.ID, of.CreatedAt.UnixMicro()}
	switch {
	case of.ID == "":
		x.report.Addf(where, "the record has no id")
	case field == "users":
		var u zendeskUser
		if err := json.Unmarshal(raw, &u); err != nil {
			x.report.Addf(where, "the user is unreadable: %v", err)
			return
		}
		x.z.users[u.ID] = u
	case field == "comments":
		id := cmp.Or(of.TicketID, x.ticket)
		if id == "" {
			x.report.Addf(where, "the comment %s does not name its ticket: put the comments of ticket 123 into comments/123.json", of.ID)
			return
		}
		x.z.comments[id] = append(x.z.comments[id], place)
	case of.Status == "deleted":
	case of.CreatedAt.Year() < 1970:
		x.report.Addf(where, "the ticket %s has no created_at", of.ID)
	default:
		x.z.tickets = append(x.z.tickets, place)
	}
}

// Ticket implements [Reader].
func (z *zendeskReader) Ticket(_ context.Context, i int, r *Report) (Ticket, error) {
	var in zendeskTicket
	where := "ticket " + string(z.tickets[i].id)
	if ok, err := z.load(z.tickets[i], &in, where, r); err != nil || !ok {
		return Ticket{}, errors.Join(err, ErrSkipped)
	}
	comments := in.Comments
	for _, place := range z.comments[in.ID] {
		var c zendeskComment
		ok, err := z.load(place, &c, where, r)
		if err != nil {
			return Ticket{}, err
		}
		if ok {
			comments = append(comments, c)
		}
	}
	t := Ticket{Contents: make(map[string]Opener)}
	t.ID, t.ExternalID, t.Subject = string(in.ID), "zendesk-"+string(in.ID), cmp.Or(in.RawSubject, in.Subject)
	t.Tags, t.CreatedAt, t.UpdatedAt, t.ResolvedAt = in.Tags, in.CreatedAt, in.UpdatedAt, in.MetricSet.SolvedAt
	if t.Priority = desk.Priority(in.Priority); !slices.Contains(desk.Priorities[:], t.Priority) {
		t.Priority = desk.PriorityNormal
	}
	var ok bool
	if t.Status, ok = statusOf(in.Status); !ok {
		r.Addf(where, "the status %q is unknown; the ticket becomes resolved", clip(in.Status, 40))
		t.Status = desk.StatusResolved
	}
	requester, known := z.user(in.RequesterID, in.Requester)
	if !known {
		r.Addf(where, "the requester %s is not among the users", cmp.Or(in.RequesterID, "(none)"))
	}
	t.Customer = requester.person()
	if assignee, known := z.user(in.AssigneeID, in.Assignee); known {
		t.Assignee = assignee.Email
	}
	if len(comments) == 0 && in.Description != "" {
		r.Addf(where, "there are no comments of the ticket: only its description is imported")
		comments = []zendeskComment{{ID: "description-" + in.ID, AuthorID: in.RequesterID, Body: in.Description, CreatedAt: in.CreatedAt}}
	}
	seen := make(map[ident]bool)
	for i := range comments {
		if c := &comments[i]; !seen[c.ID] {
			seen[c.ID] = true
			z.addComment(&t, &in, c, where, r)
		}
	}
	return t, t.complete(where, r)
}

// load reads a record again. It returns false for one that it has reported.
func (z *zendeskReader) load(place zendeskPlace, v any, where string, r *Report) (bool, error) {
	raw, err := z.read(place.file, place.offset, place.length)
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		r.Addf(where, "the record %s is unreadable: %v", place.id, err)
		return false, nil
	}
	return true, nil
}

// user returns a user by id, or the one inside of the record.
func (z *zendeskReader) user(id ident, inside *zendeskUser) (zendeskUser, bool) {
	if inside != nil && inside.ID != "" {
		return *inside, true
	}
	u, ok := z.users[id]
	if !ok {
		u.ID = id
		if id != "" {
			u.Name = "Zendesk user " + string(id)
		}
	}
	return u, ok
}

func (u *zendeskUser) person() desk.ImportedPerson {
	p := desk.ImportedPerson{Name: u.Name, Email: u.Email, Phone: u.Phone, CreatedAt: u.CreatedAt}
	if u.ID != "" {
		p.ID = "zendesk/" + string(u.ID)
	}
	return p
}

// addComment adds a comment as a message, or as a note.
func (z *zendeskReader) addComment(t *Ticket, in *zendeskTicket, c *zendeskComment, where string, r *Report) {
	if c.ID == "" || c.CreatedAt.Year() < 1970 {
		r.Addf(where, "a comment has no id, or no created_at")
		return
	}
	inside := in.Requester
	if inside != nil && inside.ID != c.AuthorID {
		inside = nil
	}
	author, known := z.user(c.AuthorID, inside)
	if !known && c.AuthorID != in.RequesterID {
		r.Addf(where, "the author %s of comment %s is not among the users", cmp.Or(c.AuthorID, "(none)"), c.ID)
	}
	m := desk.ImportedMessage{
		ID: string(c.ID), At: c.CreatedAt, Text: cmp.Or(strings.ReplaceAll(c.PlainBody, "&nbsp;", " "), c.Body), HTML: c.HTMLBody, Subject: t.Subject,
		Note: c.Public != nil && !*c.Public, MessageID: strings.Trim(strings.TrimSpace(c.Metadata.System.MessageID), "<>"),
		Agent: c.AuthorID != in.RequesterID && author.Role != "end-user" && (known || author.ID == "-1"),
	}
	m.Author = author.person()
	if author.ID == "-1" {
		m.Author.Name = "Zendesk"
	}
	if m.Note {
		m.Agent = true
	}
	if m.Agent && !m.Note {
		m.To = []channel.Party{{Name: t.Customer.Name, Email: t.Customer.Email}}
	}
	for i := range c.Attachments {
		a := &c.Attachments[i]
		f := desk.ImportedFile{ID: joinIDs(string(c.ID), string(a.ID)), Name: a.FileName, ContentType: cmp.Or(a.ContentType, contentTypeOf(a.FileName)), Inline: a.Inline}
		if a.ID == "" {
			r.Addf(where, "a file of comment %s has no id", c.ID)
			continue
		}
		if _, twice := t.Contents[f.ID]; twice {
			continue
		}
		t.Contents[f.ID] = z.opener(a)
		m.Files = append(m.Files, f)
	}
	if m.Text == "" && m.HTML == "" && len(m.Files) == 0 {
		return
	}
	t.Messages = append(t.Messages, m)
}

// opener returns the opener of a file: in the folder of attachments, else at its address.
func (z *zendeskReader) opener(a *zendeskAttachment) Opener {
	folder := cmp.Or(z.options.Files, filepath.Join(z.dir, attachmentFolder))
	name := path.Base(filepath.ToSlash(a.FileName))
	id := strings.ReplaceAll(string(a.ID), "/", "_")
	for _, candidate := range []string{id + "/" + name, id + "-" + name, id + "_" + name, id} {
		f, err := openLocal(folder, candidate)
		if err == nil {
			f.Close() // opened again when it is read
		}
		if err == nil || errors.Is(err, errTooLarge) {
			return Opener{Open: func(context.Context) (io.ReadCloser, error) { return openLocal(folder, candidate) }}
		}
	}
	return Opener{Remote: true, Open: func(ctx context.Context) (io.ReadCloser, error) { return z.fetch(ctx, a.ContentURL) }}
}

// fetch fetches a file from a public address.
func (z *zendeskReader) fetch(ctx context.Context, address string) (io.ReadCloser, error) {
	if z.client == nil {
		return nil, errNoFile
	}
	if _, err := netguard.CheckURL(address, false); err != nil {
		return nil, fmt.Errorf("content_url: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	res, err := z.client.Do(req)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return nil, wrapped.Err // without the address, which may have a token
	}
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK || res.ContentLength > maxFile {
		err := fmt.Errorf("content_url answers %s", res.Status)
		if res.StatusCode == http.StatusOK {
			err = errTooLarge
		}
		return nil, errors.Join(err, res.Body.Close())
	}
	return res.Body, nil
}

// contentTypeOf returns the content type for a file name.
func contentTypeOf(name string) string {
	return cmp.Or(mime.TypeByExtension(strings.ToLower(path.Ext(name))), "application/octet-stream")
}
