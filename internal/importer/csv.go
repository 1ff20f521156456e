package importer

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/desk"
)

// Columns are the columns of a CSV file, in any order. A row is a message; the columns of a ticket are
// read from its first row. ticket_id and message_at are required.
var Columns = []string{
	"ticket_id", "subject", "status", "priority", "tags", "assignee_email", "customer_name", "customer_email", "customer_phone",
	"created_at", "updated_at", "resolved_at",
	"message_id", "message_at", "message_by", "author_name", "author_email", "text", "html", "files",
}

const maxRow = 16 << 20 // bytes of a row

// csvReader reads a CSV file.
type csvReader struct {
	*sourceFiles
	options Options
	own     Own
	comma   rune
	columns map[string]int
	tickets []csvTicket
}

type csvTicket struct {
	at   int64 // creation, microseconds
	rows []csvRow
}

// csvRow is the place of a row.
type csvRow struct {
	offset, length int64
	line           int
}

// OpenCSV opens a file with [Columns].
func OpenCSV(path string, o Options, own Own) (Reader, error) {
	s, err := openFiles(path, ".csv")
	if err != nil {
		return nil, err
	}
	if len(s.open) != 1 {
		return nil, errors.Join(errors.New("the folder has several files; import them one by one"), s.Close())
	}
	return &csvReader{sourceFiles: s, options: o, own: own}, nil
}

// byteOrderMark may begin a file.
const byteOrderMark = "\uFEFF"

// Index implements [Reader].
func (c *csvReader) Index(ctx context.Context, r *Report) (string, int, error) {
	in := bufio.NewReaderSize(c.reader(ctx, 0, r), 64<<10)
	skipped := int64(0)
	if mark, err := in.Peek(len(byteOrderMark)); err == nil && string(mark) == byteOrderMark {
		skipped = int64(len(mark))
		if _, err := in.Discard(len(mark)); err != nil {
			return "", 0, err
		}
	}
	head, err := in.Peek(4096)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", 0, fmt.Errorf("read %s: %w", c.names[0], err)
	}
	c.comma = separator(head)
	start := int64(0)
	rows := c.rows(&bounded{in: in, max: maxRow + 64<<10, from: func() int64 { return start }})
	header, err := rows.Read()
	if err != nil {
		return "", 0, fmt.Errorf("%s: there is no header", c.names[0])
	}
	if err := c.readHeader(header, r); err != nil {
		return "", 0, err
	}
	byID := make(map[string]int)
	for {
		start = rows.InputOffset()
		record, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, errRecord) {
			r.Addf(fmt.Sprintf("byte %d", start+skipped), "the row is larger than %d MB, or a quote is not closed; the rest of the file is unreadable", maxRow>>20)
			if _, err := io.Copy(io.Discard, in); err != nil { // the digest covers all bytes
				return "", 0, fmt.Errorf("read %s: %w", c.names[0], err)
			}
			break
		}
		if wrong, ok := errors.AsType[*csv.ParseError](err); ok {
			r.Addf(fmt.Sprintf("line %d", wrong.Line), "the row is malformed: %v", wrong.Err)
			continue
		}
		if err != nil {
			return "", 0, fmt.Errorf("read %s: %w", c.names[0], err)
		}
		line, _ := rows.FieldPos(0)
		place := csvRow{start + skipped, rows.InputOffset() - start, line}
		c.index(record, place, byID, r)
	}
	slices.SortStableFunc(c.tickets, func(a, b csvTicket) int { return cmp.Compare(a.at, b.at) })
	return c.digest(), len(c.tickets), nil
}

// rows returns a reader of rows.
func (c *csvReader) rows(in io.Reader) *csv.Reader {
	rows := csv.NewReader(in)
	rows.Comma, rows.FieldsPerRecord, rows.ReuseRecord, rows.LazyQuotes = c.comma, -1, true, true
	return rows
}

// separator returns the separator of a header: that which is there most often.
func separator(head []byte) rune {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	best, most := ',', 0
	for _, comma := range []rune{',', ';', '\t'} {
		if n := bytes.Count(line, []byte(string(comma))); n > most {
			best, most = comma, n
		}
	}
	return best
}

// readHeader reads the names of the columns.
func (c *csvReader) readHeader(header []string, r *Report) error {
	c.columns = make(map[string]int)
	for i, name := range header {
		name = strings.ToLower(strings.TrimSpace(name))
		if !slices.Contains(Columns, name) {
			if name != "" {
				r.Addf("header", "the column %q is unknown and ignored", clip(name, 40))
			}
			continue
		}
		if _, twice := c.columns[name]; twice {
			return fmt.Errorf("%s: the column %s is there twice", c.names[0], name)
		}
		c.columns[name] = i
	}
	for _, name := range []string{"ticket_id", "message_at"} {
		if _, ok := c.columns[name]; !ok {
			return fmt.Errorf("%s: the column %s is missing; the columns are %s", c.names[0], name, strings.Join(Columns, ", "))
		}
	}
	return nil
}

// get returns a field of a row; empty if it is missing.
func (c *csvReader) get(record []string, column string) string {
	if i, ok := c.columns[column]; ok && i < len(record) {
		return strings.TrimSpace(record[i])
	}
	return ""
}

// index adds a row to its ticket.
func (c *csvReader) index(record []string, place csvRow, byID map[string]int, r *Report) {
	where := fmt.Sprintf("line %d", place.line)
	id := c.get(record, "ticket_id")
	at, ok := parseTime(c.get(record, "message_at"))
	switch {
	case len(record) == 1 && strings.TrimSpace(record[0]) == "":
		return
	case place.length > maxRow:
		r.Addf(where, "the row is larger than %d MB", maxRow>>20)
		return
	case id == "":
		r.Addf(where, "ticket_id is missing")
		return
	case !ok:
		r.Addf(where, "message_at %q is not a time such as 2024-05-01T09:30:00Z", clip(c.get(record, "message_at"), 40))
		return
	}
	i, there := byID[id]
	if !there {
		i = len(c.tickets)
		byID[strings.Clone(id)] = i
		t := csvTicket{at: at.UnixMicro()}
		if created, ok := parseTime(c.get(record, "created_at")); ok {
			t.at = created.UnixMicro()
		}
		c.tickets = append(c.tickets, t)
	}
	c.tickets[i].rows = append(c.tickets[i].rows, place)
	c.tickets[i].at = min(c.tickets[i].at, at.UnixMicro())
}

// timeLayouts are the forms of times. One without a zone is UTC.
var timeLayouts = []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05 MST", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"}

// parseTime reads a time; false if it is none, or before 1970.
func parseTime(text string) (time.Time, bool) {
	for _, layout := range timeLayouts {
		if at, err := time.Parse(layout, strings.TrimSpace(text)); err == nil && at.Year() >= 1970 && at.Year() < 10000 {
			return at.UTC(), true
		}
	}
	return time.Time{}, false
}

// Ticket implements [Reader].
func (c *csvReader) Ticket(ctx context.Context, i int, r *Report) (Ticket, error) {
	t := Ticket{Contents: make(map[string]Opener)}
	from := cmp.Or(c.options.From, CSV)
	for n, place := range c.tickets[i].rows {
		data, err := c.read(0, place.offset, place.length)
		if err != nil {
			return Ticket{}, err
		}
		record, err := c.rows(bytes.NewReader(data)).Read()
		if err != nil {
			return Ticket{}, fmt.Errorf("read line %d of %s again: %w", place.line, c.names[0], err)
		}
		where := fmt.Sprintf("line %d", place.line)
		if n == 0 {
			c.setTicket(&t, record, from, where, r)
		}
		if err := c.addMessage(ctx, &t, record, n, where, r); err != nil {
			return Ticket{}, err
		}
	}
	return t, t.complete(fmt.Sprintf("line %d", c.tickets[i].rows[0].line), r)
}

// setTicket sets the fields of a ticket from its first row.
func (c *csvReader) setTicket(t *Ticket, record []string, from, where string, r *Report) {
	id := c.get(record, "ticket_id")
	t.ID, t.ExternalID = joinIDs(from, id), from+"-"+id
	t.Subject, t.Assignee = c.get(record, "subject"), c.get(record, "assignee_email")
	t.Customer = desk.ImportedPerson{Name: c.get(record, "customer_name"), Email: c.get(record, "customer_email"), Phone: c.get(record, "customer_phone")}
	for tag := range strings.FieldsFuncSeq(c.get(record, "tags"), func(r rune) bool { return r == ';' || r == ',' || r == '|' }) {
		t.Tags = append(t.Tags, tag)
	}
	t.Status, t.Priority = desk.StatusResolved, desk.PriorityNormal
	if text := c.get(record, "status"); text != "" {
		status, ok := statusOf(text)
		if !ok {
			r.Addf(where, "the status %q is unknown; the ticket becomes resolved", clip(text, 40))
		} else {
			t.Status = status
		}
	}
	if text := c.get(record, "priority"); text != "" {
		if p := desk.Priority(strings.ToLower(text)); slices.Contains(desk.Priorities[:], p) {
			t.Priority = p
		} else {
			r.Addf(where, "the priority %q is unknown; the ticket's becomes normal", clip(text, 40))
		}
	}
	for column, at := range map[string]*time.Time{"created_at": &t.CreatedAt, "updated_at": &t.UpdatedAt, "resolved_at": &t.ResolvedAt} {
		if text := c.get(record, column); text != "" {
			var ok bool
			if *at, ok = parseTime(text); !ok {
				r.Addf(where, "%s %q is not a time such as 2024-05-01T09:30:00Z", column, clip(text, 40))
			}
		}
	}
}

// statusOf returns the status with a name, ours or of other helpdesks.
func statusOf(name string) (desk.Status, bool) {
	switch name = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "-", "_"); name {
	case "new":
		return desk.StatusOpen, true
	case "hold", "on hold", "waiting on third party":
		return desk.StatusOnHold, true
	case "waiting on customer":
		return desk.StatusPending, true
	case "solved":
		return desk.StatusResolved, true
	}
	return desk.Status(name), slices.Contains(desk.Statuses[:], desk.Status(name))
}

// addMessage adds the message of a row. message_by is customer, agent or note; without it the address
// of the author decides.
func (c *csvReader) addMessage(ctx context.Context, t *Ticket, record []string, n int, where string, r *Report) error {
	at, _ := parseTime(c.get(record, "message_at"))
	id := t.ID + "/row/" + strconv.Itoa(n+1) // no message_id leads to this one
	if given := c.get(record, "message_id"); given != "" {
		id = t.ID + "/" + joinIDs(given)
	}
	m := desk.ImportedMessage{
		ID: id, At: at,
		Text: c.get(record, "text"), HTML: c.get(record, "html"), Subject: t.Subject,
		Author: desk.ImportedPerson{Name: c.get(record, "author_name"), Email: c.get(record, "author_email")},
	}
	switch by := strings.ToLower(c.get(record, "message_by")); by {
	case "customer":
	case "agent":
		m.Agent = true
	case "note":
		m.Agent, m.Note = true, true
	case "":
		if m.Author.Email != "" && !strings.EqualFold(m.Author.Email, t.Customer.Email) {
			own, err := c.own(ctx, m.Author.Email)
			if err != nil {
				return err
			}
			m.Agent = own || c.options.isOurs(m.Author.Email)
		}
	default:
		r.Addf(where, "message_by %q is not customer, agent or note", clip(by, 40))
		return nil
	}
	if slices.ContainsFunc(t.Messages, func(other desk.ImportedMessage) bool { return other.ID == m.ID }) {
		r.Addf(where, "the message_id is there twice in the ticket")
		return nil
	}
	if !m.Agent && m.Author == (desk.ImportedPerson{}) {
		m.Author = t.Customer
	}
	for name := range strings.SplitSeq(c.get(record, "files"), "|") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		f := desk.ImportedFile{ID: m.ID + "/" + joinIDs(name), Name: path.Base(filepath.ToSlash(name)), ContentType: contentTypeOf(name)}
		if slices.ContainsFunc(m.Files, func(other desk.ImportedFile) bool { return other.ID == f.ID }) {
			continue
		}
		folder := cmp.Or(c.options.Files, c.dir)
		t.Contents[f.ID] = Opener{Open: func(context.Context) (io.ReadCloser, error) { return openLocal(folder, name) }}
		m.Files = append(m.Files, f)
	}
	if m.Text == "" && m.HTML == "" && len(m.Files) == 0 {
		r.Addf(where, "the row has no text, html or files")
		return nil
	}
	if m.Agent {
		m.To = []channel.Party{{Name: t.Customer.Name, Email: t.Customer.Email}}
	}
	t.Messages = append(t.Messages, m)
	return nil
}
