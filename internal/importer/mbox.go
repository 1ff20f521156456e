package importer

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/mail"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mailparse"
)

const (
	maxMail   = 64 << 20  // bytes of a mail
	maxHeader = 256 << 10 // bytes of a mail's header that are read for the index
)

// mboxReader reads mailboxes. A thread of mails is a ticket.
type mboxReader struct {
	*sourceFiles
	options Options
	own     Own
	parser  *email.Parser
	threads [][]mboxMail // each in the order of time
}

// mboxMail is the place of a mail.
type mboxMail struct {
	file           int32
	offset, length int64
	at             int64 // microseconds
	node           int32 // in the graph of ids
}

// OpenMbox opens a mailbox in the format mbox, or a folder of them. Mails that reference each other by
// Message-ID are one ticket.
func OpenMbox(path string, o Options, own Own) (Reader, error) {
	s, err := openFiles(path, ".mbox", ".mbx")
	if err != nil {
		return nil, err
	}
	return &mboxReader{sourceFiles: s, options: o, own: own, parser: email.NewParser(email.Config{})}, nil
}

// idKey stands for a Message-ID, in little memory.
type idKey [16]byte

func keyOf(id string) idKey {
	sum := sha256.Sum256([]byte(strings.ToLower(id)))
	return idKey(sum[:16])
}

// idGraph groups ids that mails connect.
type idGraph struct {
	nodes  map[idKey]int32
	parent []int32
	mail   []bool // whether the node is a mail's own id
}

// node returns the node of an id.
func (g *idGraph) node(id string) int32 {
	key := keyOf(id)
	n, ok := g.nodes[key]
	if !ok {
		n = g.anonymous()
		g.nodes[key] = n
	}
	return n
}

// anonymous returns a new node.
func (g *idGraph) anonymous() int32 {
	n := int32(len(g.parent))
	g.parent, g.mail = append(g.parent, n), append(g.mail, false)
	return n
}

func (g *idGraph) root(n int32) int32 {
	for g.parent[n] != n {
		g.parent[n] = g.parent[g.parent[n]]
		n = g.parent[n]
	}
	return n
}

func (g *idGraph) join(a, b int32) { g.parent[g.root(a)] = g.root(b) }

// Index implements [Reader].
func (m *mboxReader) Index(ctx context.Context, r *Report) (string, int, error) {
	g := &idGraph{nodes: make(map[idKey]int32)}
	var mails []mboxMail
	for i := range m.open {
		s := &mboxScanner{in: bufio.NewReaderSize(m.reader(ctx, i, r), 64<<10)}
		found := 0
		for s.next() {
			found++
			where := fmt.Sprintf("%s, mail %d at byte %d", m.names[i], found, s.start)
			if s.length > maxMail {
				r.Addf(where, "the mail is larger than %d MB", maxMail>>20)
				continue
			}
			h := mailparse.Header(s.header)
			if skippedLabel(h.Get("X-Gmail-Labels")) {
				continue
			}
			at := m.time(h.Get("Date"), s.fromLine)
			if at.IsZero() {
				r.Addf(where, "the mail has no date")
				continue
			}
			id := mailparse.MessageID(h)
			node := int32(0)
			if id == "" {
				node = g.anonymous()
			} else if node = g.node(id); g.mail[node] {
				continue // another copy
			}
			g.mail[node] = true
			references := append(mailparse.IDs(h.Values("References")), mailparse.IDs(h.Values("In-Reply-To"))...)
			for _, ref := range references[max(0, len(references)-100):] {
				g.join(node, g.node(ref))
			}
			mails = append(mails, mboxMail{int32(i), s.start, s.length, at.UnixMicro(), node})
		}
		if s.err != nil {
			return "", 0, fmt.Errorf("read %s: %w", m.names[i], s.err)
		}
		if found == 0 && m.sizes[i] > 0 {
			r.Addf(m.names[i], "the file is no mailbox: there is no line that begins with \"From \"")
		}
	}
	byRoot := make(map[int32][]mboxMail)
	for _, mail := range mails {
		root := g.root(mail.node)
		byRoot[root] = append(byRoot[root], mail)
	}
	order := func(a, b mboxMail) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.file, b.file), cmp.Compare(a.offset, b.offset))
	}
	for _, thread := range byRoot {
		slices.SortFunc(thread, order)
		m.threads = append(m.threads, thread)
	}
	slices.SortFunc(m.threads, func(a, b []mboxMail) int { return order(a[0], b[0]) })
	return m.digest(), len(m.threads), nil
}

// skippedLabel reports whether a mail is spam, deleted or a draft, by the labels of its service.
func skippedLabel(labels string) bool {
	for label := range strings.SplitSeq(labels, ",") {
		switch strings.ToLower(strings.TrimSpace(label)) {
		case "spam", "trash", "drafts", "draft", "chat":
			return true
		}
	}
	return false
}

// time returns the time of a mail: of its header, or of the line before it.
func (m *mboxReader) time(date, fromLine string) time.Time {
	if at, err := mail.ParseDate(mailparse.Text(clip(date, 200))); err == nil && at.Year() >= 1970 && at.Year() < 10000 {
		return at.UTC()
	}
	_, rest, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(fromLine, "From ")), " ")
	rest = strings.Join(strings.Fields(rest), " ")
	for _, layout := range []string{"Mon Jan 2 15:04:05 2006", "Mon Jan 2 15:04:05 -0700 2006", "Mon Jan 2 15:04:05 MST 2006"} {
		if at, err := time.Parse(layout, rest); err == nil && at.Year() >= 1970 {
			return at.UTC()
		}
	}
	return time.Time{}
}

// Ticket implements [Reader].
func (m *mboxReader) Ticket(ctx context.Context, i int, r *Report) (Ticket, error) {
	t := Ticket{Contents: make(map[string]Opener)}
	t.Joins, t.Status = true, cmp.Or(m.options.Status, desk.StatusResolved)
	t.Priority = desk.PriorityNormal
	for _, place := range m.threads[i] {
		message, err := m.message(ctx, &t, place)
		if errors.Is(err, channel.ErrUnreadable) {
			r.Addf(fmt.Sprintf("%s, byte %d", m.names[place.file], place.offset), "the mail is unreadable")
			continue
		}
		if err != nil {
			return Ticket{}, err
		}
		t.Messages = append(t.Messages, message)
	}
	if len(t.Messages) == 0 {
		return Ticket{}, ErrSkipped
	}
	first := &t.Messages[0]
	t.ID, t.Subject = "thread:"+first.ID, first.Subject
	if err := m.setCustomer(ctx, &t); err != nil {
		return Ticket{}, err
	}
	if t.Customer.Email == "" && t.Customer.Name == "" {
		place := m.threads[i][0]
		r.Addf(fmt.Sprintf("%s, byte %d", m.names[place.file], place.offset), "no customer takes part in the thread %q: there are no senders or recipients beside your own addresses", clip(first.Subject, 80))
		return Ticket{}, ErrSkipped
	}
	return t, nil
}

// setCustomer sets the customer of a thread: the first sender who is no agent, or the first recipient.
func (m *mboxReader) setCustomer(ctx context.Context, t *Ticket) error {
	for i := range t.Messages {
		if in := &t.Messages[i]; !in.Agent && !in.Automatic {
			t.Customer = in.Author
			return nil
		}
	}
	for i := range t.Messages {
		in := &t.Messages[i]
		if !in.Agent {
			t.Customer = in.Author
			return nil
		}
		for _, p := range slices.Concat(in.To, in.Cc) {
			own, err := m.isOwn(ctx, p.Email)
			if err != nil {
				return err
			}
			if !own && p.Email != "" {
				t.Customer = desk.ImportedPerson{Name: p.Name, Email: p.Email}
				return nil
			}
		}
	}
	return nil
}

func (m *mboxReader) isOwn(ctx context.Context, address string) (bool, error) {
	if address == "" {
		return false, nil
	}
	if m.options.isOurs(address) {
		return true, nil
	}
	return m.own(ctx, address)
}

// message reads a mail. Error: [channel.ErrUnreadable].
func (m *mboxReader) message(ctx context.Context, t *Ticket, place mboxMail) (desk.ImportedMessage, error) {
	quoted, err := m.read(int(place.file), place.offset, place.length)
	if err != nil {
		return desk.ImportedMessage{}, err
	}
	raw := unquoteFrom(quoted)
	parsed, err := m.parser.ParseRaw(raw, email.Envelope{})
	if err != nil {
		return desk.ImportedMessage{}, err
	}
	d := parsed.Mail
	out := desk.ImportedMessage{
		ID: d.MessageID, At: time.UnixMicro(place.at).UTC(), Text: parsed.Text, Stripped: parsed.Stripped, HTML: parsed.HTML, Subject: parsed.Subject,
		MessageID: d.MessageID, References: append(slices.Clone(d.References), d.InReplyTo...), To: parsed.To, Cc: parsed.Cc,
		Author:    desk.ImportedPerson{Name: d.Sender.Name, Email: d.Sender.Email},
		Automatic: d.Class == channel.ClassAutoReply || d.Class == channel.ClassBounce,
	}
	if out.ID == "" {
		sum := sha256.Sum256(raw)
		out.ID = "sha256:" + hex.EncodeToString(sum[:])
	}
	if out.Agent, err = m.isOwn(ctx, d.Sender.Email); err != nil {
		return desk.ImportedMessage{}, err
	}
	for i, a := range parsed.Attachments {
		f := desk.ImportedFile{ID: fmt.Sprintf("%s/%d", out.ID, i+1), Name: a.Name, ContentType: a.ContentType, ContentID: a.ContentID, Inline: a.Inline, Error: a.Error}
		if a.Data != nil {
			t.Contents[f.ID] = Opener{Open: func(context.Context) (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(a.Data)), nil
			}}
		}
		out.Files = append(out.Files, f)
	}
	return out, nil
}

// fromLine matches the line before a mail: sender and date. Many programs leave lines of a text that
// begin with "From " as they are.
var fromLine = regexp.MustCompile(`^From (\S+ )?.*\d{1,2}:\d{2}.*\d{4}`)

// mboxScanner finds the mails of a mailbox, whatever their size.
type mboxScanner struct {
	in            *bufio.Reader
	start, length int64 // of the current mail
	header        []byte
	fromLine      string
	err           error

	offset  int64  // of the next line
	pending string // the From line of the next mail
}

// next reads the next mail, and reports whether there is one.
func (s *mboxScanner) next() bool {
	for s.pending == "" {
		line, ok := s.line()
		if !ok {
			return false
		}
		if fromLine.Match(line) {
			s.pending = string(line)
		}
	}
	s.fromLine, s.pending = s.pending, ""
	s.start, s.header = s.offset, nil
	blank, inHeader := false, true
	for {
		at := s.offset
		line, ok := s.line()
		if !ok {
			s.length = s.offset - s.start
			return s.err == nil
		}
		if blank && fromLine.Match(line) || at == s.start && fromLine.Match(line) {
			s.pending, s.length = string(line), at-s.start
			return true
		}
		blank = len(bytes.TrimRight(line, "\r\n")) == 0
		if inHeader = inHeader && !blank; inHeader && len(s.header) < maxHeader {
			s.header = append(s.header, line...)
		}
	}
}

// line reads a line. Of a very long one it returns the beginning.
func (s *mboxScanner) line() (line []byte, ok bool) {
	line, err := s.in.ReadSlice('\n')
	s.offset += int64(len(line))
	if errors.Is(err, bufio.ErrBufferFull) {
		line = slices.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) {
			var more []byte
			more, err = s.in.ReadSlice('\n')
			s.offset += int64(len(more))
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
		return nil, false
	}
	return line, len(line) > 0
}

// unquoteFrom removes a ">" from each line that begins with ">From ", or with more of them, which
// mailboxes add, and the blank line at the end.
func unquoteFrom(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for line := range bytes.Lines(raw) {
		if len(line) > 0 && line[0] == '>' && bytes.HasPrefix(bytes.TrimLeft(line, ">"), []byte("From ")) {
			line = line[1:]
		}
		out = append(out, line...)
	}
	if trimmed, ok := bytes.CutSuffix(out, []byte("\r\n\r\n")); ok {
		return append(trimmed, "\r\n"...)
	}
	if trimmed, ok := bytes.CutSuffix(out, []byte("\n\n")); ok {
		return append(trimmed, '\n')
	}
	return out
}
