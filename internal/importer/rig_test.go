package importer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/importer"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

const (
	org     = "0190c0de-0000-7000-8000-00000000000a"
	graceID = "0190c0de-0000-7000-8000-0000000000d1"
)

// staff implements [desk.Directory] and [desk.Addresses]: Grace is a member of each organization.
type staff struct{}

var grace = event.Person{ID: graceID, Name: "Grace", Email: "grace@acme.example"}

func (staff) Agent(_ context.Context, _ db.Querier, _, id string) (event.Person, bool, error) {
	return grace, id == graceID, nil
}

func (staff) AgentByEmail(_ context.Context, _ db.Querier, _, email string) (event.Person, bool, error) {
	return grace, strings.EqualFold(email, grace.Email), nil
}

func (staff) Agents(context.Context, db.Querier, string) ([]event.Person, error) {
	return []event.Person{grace}, nil
}

func (staff) Preferences(context.Context, db.Querier, string, []string) (map[string]json.RawMessage, error) {
	return nil, nil
}

func (staff) Owns(_ context.Context, _ db.Querier, _, medium, address string) (bool, error) {
	return medium == "email" && address == "help@acme.example", nil
}

type rig struct {
	testing.TB
	db       *db.DB
	blob     blob.Store
	queue    *queue.Queue
	desk     *desk.Service
	imports  *importer.Service
	observer *db.Observer
	events   atomic.Int64 // emitted
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{TB: t, observer: &db.Observer{Operation: func(string, time.Duration) {}, Commit: func(int, time.Duration) {}}}
	var err error
	if r.db, err = db.Open(t.Context(), dbtest.EmptyURL(t), db.Options{Observer: r.observer}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.db.Close() })
	if _, err := r.db.Migrate(t.Context(), db.Helpdesk); err != nil {
		t.Fatal(err)
	}
	if r.blob, err = blob.Open("file:"+t.TempDir(), blob.Credentials{}); err != nil {
		t.Fatal(err)
	}
	events := new(event.Log)
	events.AfterCommit(func(e []event.Event) { r.events.Add(int64(len(e))) })
	r.queue = queue.Open(r.db, queue.Config{Lease: time.Hour, Poll: time.Hour})
	r.desk = desk.Open(desk.Config{DB: r.db, Queue: r.queue, Events: events, Blob: r.blob, Directory: staff{}, Addresses: staff{}, BaseURL: "https://desk.example"})
	r.imports = importer.Open(importer.Config{DB: r.db, Desk: r.desk, Blob: r.blob, Queue: r.queue, Audit: audittest.Open(r.db)})
	return r
}

var fixtures = map[string]string{importer.Mbox: "testdata/mbox", importer.CSV: "testdata/csv", importer.Zendesk: "testdata/zendesk"}

func imported(source, organizationID string) importer.New {
	n := importer.New{OrganizationID: organizationID, Source: source, Path: fixtures[source]}
	n.Options.Ours = []string{"old@acme.example"}
	return n
}

func (r *rig) run(n importer.New) importer.Run {
	r.Helper()
	run, err := r.imports.Run(r.Context(), n, nil)
	if err != nil {
		r.Fatal(err)
	}
	return run
}

// index indexes all that is pending.
func (r *rig) index() {
	r.Helper()
	for {
		n, err := r.desk.Index(r.Context())
		if err != nil {
			r.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
}

// folderOf writes a folder with files.
func folderOf(t testing.TB, list map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range list {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// rows returns the rows of a query as text.
func (r *rig) rows(query string, args ...any) []string {
	r.Helper()
	rows, err := r.db.Query(r.Context(), query, args...)
	if err != nil {
		r.Fatal(err)
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		columns := rows.Columns()
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			r.Fatal(err)
		}
		texts := make([]string, len(values))
		for i, v := range values {
			if b, ok := v.([]byte); ok {
				v = string(b)
			}
			texts[i] = fmt.Sprint(v)
		}
		list = append(list, strings.Join(texts, " | "))
	}
	if err := rows.Err(); err != nil {
		r.Fatal(err)
	}
	return list
}

// dump returns all rows of all tables, except those about runs.
func (r *rig) dump() []string {
	r.Helper()
	tables, err := r.db.Tables(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	var list []string
	for _, t := range tables {
		switch t.Name {
		case "imports", "audit_entries", "audit_heads":
			continue
		}
		rows := r.rows("SELECT * FROM " + db.Quote(t.Name))
		slices.Sort(rows)
		for _, row := range rows {
			list = append(list, t.Name+": "+row)
		}
	}
	return list
}

// history returns what an organization has, without ids.
func (r *rig) history(organizationID string) []string {
	r.Helper()
	var list []string
	for _, q := range []string{
		`SELECT 'ticket', t.number, t.subject, t.status, t.priority, t.channel, coalesce(t.tags, ''), coalesce(t.assignee_id, ''), coalesce(t.external_id, ''),
			t.created_at, t.updated_at, coalesce(t.first_responded_at, 0), coalesce(t.resolved_at, 0), coalesce(t.closed_at, 0), u.name, u.email, u.phone
			FROM tickets t JOIN customers u ON u.id = t.customer_id WHERE t.organization_id = $1 ORDER BY t.number`,
		`SELECT 'message', t.number, m.direction, m.author_type, m.author_name, m.kind, m.body, coalesce(m.stripped, ''), coalesce(m.external_id, ''), m.placed_by,
			coalesce(m.delivery_state, ''), m.created_at FROM messages m JOIN tickets t ON t.id = m.ticket_id WHERE t.organization_id = $1 ORDER BY t.number, m.seq`,
		`SELECT 'file', t.number, a.name, a.content_type, a.size, coalesce(a.blob_key, ''), coalesce(a.error, '') FROM attachments a JOIN tickets t ON t.id = a.ticket_id
			WHERE t.organization_id = $1 ORDER BY t.number, a.name`,
		`SELECT 'customer', name, email, phone FROM customers WHERE organization_id = $1 ORDER BY email, name`,
		`SELECT 'participant', t.number, p.email, p.name, p.role FROM participants p JOIN tickets t ON t.id = p.ticket_id WHERE t.organization_id = $1 ORDER BY t.number, p.email`,
		`SELECT 'record', kind, count(*), count(DISTINCT external_id), CASE WHEN incomplete THEN 'incomplete' ELSE '' END AS complete
			FROM import_records WHERE organization_id = $1 GROUP BY kind, 5 ORDER BY kind, complete`,
		`SELECT 'tag', tag, number FROM ticket_tags WHERE organization_id = $1 ORDER BY tag, number`,
	} {
		list = append(list, r.rows(q, organizationID)...)
	}
	return list
}

// receive receives a mail.
func (r *rig) receive(m *channel.Mail, from channel.Party, subject, text string) desk.Result {
	r.Helper()
	var res desk.Result
	if err := r.db.Write(r.Context(), func(tx *db.Tx) (err error) {
		m.Class, m.Sender = channel.ClassInbound, from
		res, err = r.desk.IngestTx(r.Context(), tx, desk.InboundEvent{
			OrganizationID: org, Channel: "email",
			Event: channel.Event{Message: &channel.Message{From: from, Subject: subject, Text: text, Mail: m, To: []channel.Party{{Email: "help@acme.example"}}}},
		})
		return err
	}); err != nil {
		r.Fatal(err)
	}
	return res
}
