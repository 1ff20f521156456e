package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
)

// New describes an import to run.
type New struct {
	OrganizationID string
	Source         string
	Path           string // of the file or folder
	Name           string // shown; empty: Path
	Options        Options
	Dry            bool // count and report, write no records
	UserID         string
}

// Check implements [problem.Checker].
func (n *New) Check(v *problem.Validation) {
	switch n.Source {
	case Mbox, CSV, Zendesk:
	default:
		v.Add("source", "must be mbox, csv or zendesk")
	}
	switch n.Options.Status {
	case "", desk.StatusOpen, desk.StatusPending, desk.StatusResolved, desk.StatusClosed:
	default:
		v.Add("status", "must be open, pending, resolved or closed")
	}
	v.Line("from", n.Options.From, 0, 40)
	for _, address := range n.Options.Ours {
		if !strings.Contains(address, "@") || len(address) > 254 {
			v.Add("ours", "must be mail addresses, or domains such as @example.com")
			break
		}
	}
}

// Progress is called during a run: with the bytes of the source that are read, then with its tickets.
type Progress func(what string, done, total int64)

// Run runs an import until it is done. If a run of the same content was interrupted or failed, it
// continues that one. It returns the run also with an error, if there is one.
//
// Errors: Invalid; those of the source; the quota of storage; Conflict if another process works at
// the same run.
func (s *Service) Run(ctx context.Context, n New, progress Progress) (Run, error) {
	if err := problem.Check(&n); err != nil {
		return Run{}, err
	}
	r := n.run()
	reader, err := s.open(&r, n.Path)
	if err != nil {
		return Run{}, err
	}
	defer reader.Close()
	return s.runReader(ctx, r, reader, progress)
}

// RunReader is Run with a reader of the caller's. n.Source names its kind.
func (s *Service) RunReader(ctx context.Context, n New, reader Reader, progress Progress) (Run, error) {
	return s.runReader(ctx, n.run(), reader, progress)
}

// run returns the run of a new import.
func (n *New) run() Run {
	return Run{OrganizationID: n.OrganizationID, Source: n.Source, Name: clip(cmp.Or(n.Name, n.Path), 200), State: Running, Dry: n.Dry, CreatedBy: n.UserID, options: n.Options}
}

func (s *Service) runReader(ctx context.Context, r Run, reader Reader, progress Progress) (Run, error) {
	w := &work{s: s, reader: reader, progress: progress, run: r, authors: make(map[string]bool)}
	err := w.do(ctx)
	return w.run, err
}

// open opens the reader of a source.
func (s *Service) open(r *Run, path string) (Reader, error) {
	own := func(ctx context.Context, address string) (bool, error) {
		_, own, err := s.desk.OwnAddress(ctx, s.db, r.OrganizationID, address)
		return own, err
	}
	known := make(map[string]bool)
	remembered := func(ctx context.Context, address string) (bool, error) {
		address = strings.ToLower(address)
		yes, ok := known[address]
		if ok {
			return yes, nil
		}
		yes, err := own(ctx, address)
		if err == nil && len(known) < 100_000 {
			known[address] = yes
		}
		return yes, err
	}
	switch r.Source {
	case Mbox:
		return OpenMbox(path, r.options, remembered)
	case CSV:
		return OpenCSV(path, r.options, remembered)
	default:
		return OpenZendesk(path, r.options, s.public)
	}
}

// work is a run in progress.
type work struct {
	s        *Service
	reader   Reader
	progress Progress
	run      Run
	authors  map[string]bool // agents, by address or name: whether they are unknown
}

// ticketsAtOnce is the number of tickets of a transaction on SQLite. On PostgreSQL it is one: a
// transaction that has taken a ticket's number must not wait for the customers of the next.
const ticketsAtOnce = 20

// do runs the import.
func (w *work) do(ctx context.Context) error {
	index := &Report{Progress: func(done, total int64) { w.report("bytes read", done, total) }}
	digest, total, err := w.reader.Index(ctx, index)
	if err != nil {
		return w.fail(ctx, err)
	}
	if err := w.begin(ctx, digest, total, index); err != nil {
		return err
	}
	if err := w.tickets(ctx); err != nil {
		return w.fail(ctx, err)
	}
	return w.end(ctx)
}

func (w *work) report(what string, done, total int64) {
	if w.progress != nil {
		w.progress(what, done, total)
	}
}

// begin starts the run, or continues the last one of the same content.
func (w *work) begin(ctx context.Context, digest string, total int, index *Report) error {
	mine := w.run
	return w.s.db.Write(ctx, func(tx *db.Tx) error {
		w.run = mine
		if w.run.ID == "" && !w.run.Dry {
			before, err := db.One(ctx, tx, scanRun, "SELECT "+runColumns+` FROM imports WHERE organization_id = $1 AND source = $2 AND digest = $3
				AND NOT dry AND file_key IS NULL AND state IN ('running', 'failed') AND total = $4 ORDER BY id DESC LIMIT 1`, mine.OrganizationID, mine.Source, digest, int64(total))
			if err == nil {
				if slices.Equal(before.options.Ours, mine.options.Ours) && before.options.Status == mine.options.Status && before.options.From == mine.options.From {
					w.run = before
				}
			} else if !errors.Is(err, db.ErrNoRows) {
				return fmt.Errorf("look for an earlier run: %w", err)
			}
		}
		from := w.run.State
		w.run.State, w.run.Error = Running, ""
		if w.run.ID != "" && w.run.digest == digest && w.run.Total == int64(total) { // continues
			return w.s.save(ctx, tx, &w.run, w.run.Position, from)
		}
		w.run.digest, w.run.Total = digest, int64(total)
		position := w.run.Position
		w.run.Position, w.run.Counts = 0, Counts{}
		if w.run.ID == "" {
			if err := w.s.insert(ctx, tx, &w.run); err != nil {
				return err
			}
		}
		w.run.Problems, w.run.Counts.Problems = append([]Problem{}, index.Problems...), index.Count
		if err := w.s.save(ctx, tx, &w.run, position, cmp.Or(from, Running)); err != nil || w.run.Dry {
			return err
		}
		return w.s.record(ctx, tx, AuditStarted, &w.run)
	})
}

// tickets writes the tickets from the run's position on.
func (w *work) tickets(ctx context.Context) error {
	most := w.s.batch
	for w.run.Position < w.run.Total {
		next := w.run // after the batch
		next.Problems = append([]Problem{}, w.run.Problems...)
		report := &Report{Problems: next.Problems, Count: next.Counts.Problems}
		var batch []Ticket
		for len(batch) < most && next.Position < next.Total {
			t, err := w.reader.Ticket(ctx, int(next.Position), report)
			next.Position++
			if errors.Is(err, ErrSkipped) {
				next.Counts.Skipped++
				continue
			}
			if err != nil {
				return err
			}
			if err := w.prepare(ctx, &t, &next, report); err != nil {
				return err
			}
			batch = append(batch, t)
		}
		next.Problems, next.Counts.Problems = report.Problems, report.Count
		err := w.write(ctx, next, batch)
		if isRefusal(err) && most > 1 {
			most = 1 // find the ticket
			continue
		}
		if isRefusal(err) {
			report.Addf("ticket "+cmp.Or(batch[0].ExternalID, batch[0].ID), "%v", err)
			next.Counts.Skipped++
			next.Problems, next.Counts.Problems = report.Problems, report.Count
			err = w.write(ctx, next, nil)
		}
		if err != nil {
			return err
		}
		w.report("tickets", w.run.Position, w.run.Total)
	}
	return nil
}

// isRefusal reports whether err refuses one ticket.
func isRefusal(err error) bool { return err != nil && problem.Of(err) == problem.Invalid }

// maxText bounds the text of a message, in bytes.
const maxText = 2 << 20

// prepare looks at the authors of a ticket and stores the files that are not there yet.
func (w *work) prepare(ctx context.Context, t *Ticket, next *Run, r *Report) error {
	var ids []string
	for i := range t.Messages {
		m := &t.Messages[i]
		if len(m.Text) > maxText || len(m.HTML) > maxText {
			r.Addf("ticket "+cmp.Or(t.ExternalID, t.ID), "a message is cut after %d MB", maxText>>20)
			m.Text, m.Stripped, m.HTML = safehtml.Clip(m.Text, maxText), "", ""
		}
		if m.Agent {
			if err := w.noteAuthor(ctx, m, next); err != nil {
				return err
			}
		}
		for _, f := range m.Files {
			ids = append(ids, f.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	known, err := w.s.desk.ImportedIDs(ctx, w.s.db, w.run.OrganizationID, w.run.Source, "file", ids)
	if err != nil {
		return err
	}
	for i := range t.Messages {
		m := &t.Messages[i]
		for k := range m.Files {
			f := &m.Files[k]
			content, ok := t.Contents[f.ID]
			if known[f.ID] || !ok && f.Error != "" {
				continue
			}
			if err := w.store(ctx, f, content); err != nil {
				if ctx.Err() != nil || problem.Of(err) == problem.Unavailable {
					return err
				}
				f.Error = clip(err.Error(), 300)
				next.Counts.MissingFiles++
				r.Addf("file "+f.Name, "of ticket %s: %v", cmp.Or(t.ExternalID, clip(t.Subject, 60)), err)
			}
		}
	}
	return nil
}

// noteAuthor counts an agent who is no member.
func (w *work) noteAuthor(ctx context.Context, m *desk.ImportedMessage, next *Run) error {
	key := strings.ToLower(cmp.Or(m.Author.Email, m.Author.Name))
	if _, seen := w.authors[key]; seen || key == "" {
		return nil
	}
	member, _, err := w.s.desk.OwnAddress(ctx, w.s.db, w.run.OrganizationID, m.Author.Email)
	if err != nil {
		return err
	}
	unknown := member.ID == ""
	w.authors[key] = unknown
	if unknown {
		next.Counts.UnknownAuthors++
	}
	return nil
}

// store stores the content of a file. In a dry run it only opens what is on this machine.
func (w *work) store(ctx context.Context, f *desk.ImportedFile, o Opener) error {
	if o.Open == nil {
		return errors.New("the content is missing")
	}
	if w.run.Dry && o.Remote {
		return nil
	}
	content, err := o.Open(ctx)
	if err != nil {
		return err
	}
	defer content.Close()
	if w.run.Dry {
		return nil
	}
	limited := &io.LimitedReader{R: content, N: maxFile + 1}
	var ref blob.Ref
	if ref, err = w.s.blob.Put(ctx, limited); err != nil {
		return err
	}
	if ref.Size > maxFile {
		return errTooLarge
	}
	f.Ref = ref
	return nil
}

// write writes a batch with the progress of the run.
func (w *work) write(ctx context.Context, next Run, batch []Ticket) error {
	before := w.run
	var after Run
	err := w.s.db.Write(ctx, func(tx *db.Tx) error {
		after = next
		after.Problems = append([]Problem{}, next.Problems...)
		for i := range batch {
			if next.Dry {
				after.Counts.count(&batch[i])
				continue
			}
			done, err := w.s.desk.ImportTicketTx(ctx, tx, desk.Import{ID: before.ID, OrganizationID: before.OrganizationID, Source: before.Source}, batch[i].ImportedTicket)
			if err != nil {
				return fmt.Errorf("ticket %s: %w", cmp.Or(batch[i].ExternalID, batch[i].ID), err)
			}
			after.Counts.Add(done)
		}
		return w.s.save(ctx, tx, &after, before.Position, Running)
	})
	if err == nil {
		w.run = after
	}
	return err
}

// count counts the records of a ticket.
func (c *Counts) count(t *Ticket) {
	c.Tickets++
	for i := range t.Messages {
		if m := &t.Messages[i]; m.Note || m.Automatic {
			c.Notes++
		} else {
			c.Messages++
		}
		c.Files += int64(len(t.Messages[i].Files))
	}
}

// end finishes the run.
func (w *work) end(ctx context.Context) error {
	var after Run
	err := w.s.db.Write(ctx, func(tx *db.Tx) error {
		after = w.run
		after.State, after.FinishedAt = Done, tx.Now
		if err := w.s.dropFile(ctx, tx, &after); err != nil {
			return err
		}
		if err := w.s.save(ctx, tx, &after, w.run.Position, Running); err != nil || w.run.Dry {
			return err
		}
		return w.s.record(ctx, tx, AuditFinished, &after)
	})
	if err == nil {
		w.run = after
	}
	return err
}

// fail stores why the run ended early, unless it was interrupted, and returns the reason.
func (w *work) fail(ctx context.Context, reason error) error {
	if ctx.Err() != nil || w.run.ID == "" || errors.Is(reason, errTaken) || problem.Of(reason) == problem.Unavailable {
		return reason
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var after Run
	err := w.s.db.Write(ctx, func(tx *db.Tx) error {
		after = w.run
		after.State, after.Error = Failed, clip(reason.Error(), 500)
		return w.s.save(ctx, tx, &after, w.run.Position, w.run.State)
	})
	if err == nil {
		w.run = after
	}
	return errors.Join(reason, err)
}
