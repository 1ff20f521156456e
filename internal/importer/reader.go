// Package importer reads the history of another helpdesk and writes it by package desk: people,
// tickets, messages, notes, files and tags, with the times as they were.
//
// A [Reader] knows one format. [Service.Run] writes what it reads, in transactions of a few tickets,
// which also store the position of the run: a run that was interrupted continues there. The ids of
// the source are stored with the records, so that nothing is written twice, by whichever run.
package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/desk"
)

// The sources.
const (
	Mbox    = "mbox"
	CSV     = "csv"
	Zendesk = "zendesk"
)

// Sources lists the sources.
var Sources = [...]string{Mbox, CSV, Zendesk}

// Reader reads a source. Its methods are called by one goroutine.
type Reader interface {
	// Index reads the whole source once and reports what cannot be imported. It returns a digest of
	// the content and the number of tickets.
	Index(ctx context.Context, r *Report) (digest string, tickets int, err error)
	// Ticket returns a ticket by its index in the order of creation, which is the same for the same
	// content. Error: ErrSkipped, after it reported why.
	Ticket(ctx context.Context, i int, r *Report) (Ticket, error)
	Close() error
}

// ErrSkipped is returned for a ticket that cannot be imported.
var ErrSkipped = errors.New("importer: the ticket is skipped")

// Ticket is a ticket of a source.
type Ticket struct {
	desk.ImportedTicket
	// Contents open the files of its messages, by their ids. A file without an opener has no
	// content. An error of an opener is for the report.
	Contents map[string]Opener
}

// complete sets a missing customer to the first author who is one. Error: ErrSkipped if there is none.
func (t *Ticket) complete(where string, r *Report) error {
	if t.Customer.Name != "" || t.Customer.Email != "" || t.Customer.Phone != "" {
		return nil
	}
	for i := range t.Messages {
		if m := &t.Messages[i]; !m.Agent && (m.Author.Name != "" || m.Author.Email != "") {
			t.Customer = m.Author
			return nil
		}
	}
	r.Addf(where, "the ticket has no customer")
	return ErrSkipped
}

// Opener opens the content of a file. remote reports that it is not on this machine.
type Opener struct {
	Remote bool
	Open   func(ctx context.Context) (io.ReadCloser, error)
}

// Problem is a part of a source that cannot be imported, or only partly.
type Problem struct {
	Where  string `json:"where"` // such as "line 12"
	Reason string `json:"reason"`
}

// maxProblems bounds the stored problems of a run. All are counted.
const maxProblems = 200

// Report collects the problems of a run.
type Report struct {
	Problems []Problem
	Count    int64
	// Progress is called with the bytes that are indexed, and all bytes. May be nil.
	Progress func(done, total int64)
}

// Addf adds a problem.
func (r *Report) Addf(where, format string, args ...any) {
	r.Count++
	if len(r.Problems) < maxProblems {
		reason := fmt.Sprintf(format, args...)
		r.Problems = append(r.Problems, Problem{clip(where, 200), clip(reason, 300)})
	}
}

func (r *Report) progress(done, total int64) {
	if r.Progress != nil {
		r.Progress(done, total)
	}
}

// clip returns text on one line, in at most max bytes.
func clip(text string, max int) string {
	text = strings.Join(strings.Fields(strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")), " ")
	if len(text) > max {
		text = strings.ToValidUTF8(text[:max], "") + "…"
	}
	return text
}

// joinIDs joins ids of the source to one that no others lead to.
func joinIDs(ids ...string) string {
	for i := range ids {
		ids[i] = url.PathEscape(ids[i])
	}
	return strings.Join(ids, "/")
}

// Options are the choices of an import.
type Options struct {
	// Ours are mail addresses, and domains as @example.com, of agents, beside those of members and
	// channels: mail from them was sent by agents.
	Ours []string `json:"ours,omitempty"`
	// Status of the tickets of a mailbox; empty: resolved.
	Status desk.Status `json:"status,omitempty"`
	// From names the helpdesk of a CSV file. Its ids of tickets are unique within the name.
	From string `json:"from,omitempty"`
	// Files is the folder with the files of messages; empty: beside the source.
	Files string `json:"files,omitempty"`
}

// Own reports whether a mail address is an agent's.
type Own func(ctx context.Context, address string) (bool, error)

// isOurs reports whether the options name an address.
func (o *Options) isOurs(address string) bool {
	address = strings.ToLower(strings.TrimSpace(address))
	_, domain, _ := strings.Cut(address, "@")
	return slices.ContainsFunc(o.Ours, func(ours string) bool {
		ours = strings.ToLower(strings.TrimSpace(ours))
		if after, ok := strings.CutPrefix(ours, "@"); ok {
			return after == domain
		}
		return ours == address
	})
}
