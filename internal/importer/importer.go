package importer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// Actions in the audit log.
const (
	AuditStarted  audit.Action = "import.started"
	AuditFinished audit.Action = "import.finished"
	AuditUndone   audit.Action = "import.undone"
)

// State is the state of a run.
type State string

// The states.
const (
	Waiting State = "waiting" // for the server, with an uploaded file
	Running State = "running" // or interrupted: the next run continues it
	Done    State = "done"
	Failed  State = "failed" // ended early; the next run continues it
	Undoing State = "undoing"
	Undone  State = "undone"
)

// Counts are the figures of a run.
type Counts struct {
	desk.ImportCounts
	Skipped        int64 `json:"skipped"`         // tickets
	MissingFiles   int64 `json:"missing_files"`   // without content
	UnknownAuthors int64 `json:"unknown_authors"` // agents who are no members, by address or name
	Problems       int64 `json:"problems"`
	// Removed are the records that an undo handled.
	Removed desk.Undone `json:"removed,omitzero"`
}

// Run is a run of an import.
type Run struct {
	ID             string    `json:"id"`
	OrganizationID string    `json:"-"`
	Source         string    `json:"source"`
	Name           string    `json:"name"` // of the file or folder
	State          State     `json:"state"`
	Dry            bool      `json:"dry_run"`
	Position       int64     `json:"position"` // tickets that are done
	Total          int64     `json:"total"`    // 0 until the source has been read
	Counts         Counts    `json:"counts"`
	Problems       []Problem `json:"problems"` // the first ones
	Error          string    `json:"error,omitempty"`
	CreatedBy      string    `json:"created_by,omitempty"` // user; empty: the operator
	CreatedAt      time.Time `json:"created_at"`
	UpdatedAt      time.Time `json:"updated_at"`
	FinishedAt     time.Time `json:"finished_at,omitzero"`

	digest   string
	options  Options
	fileKey  string
	fileSize int64
}

// Stalled reports whether the run, or its undo, was interrupted, as far as at shows, or the undo failed
// for good.
func (r *Run) Stalled(at time.Time) bool {
	return (r.State == Running || r.State == Undoing) && (r.Error != "" || at.Sub(r.UpdatedAt) > 2*time.Minute)
}

// Uploaded reports whether the server has the source, so that the run can start or continue.
func (r *Run) Uploaded() bool { return r.fileKey != "" }

// Config has the parts of a [Service].
type Config struct {
	DB    *db.DB
	Desk  *desk.Service
	Blob  blob.Store
	Queue *queue.Queue
	Audit *audit.Log // nil records nothing
	// Public fetches files from public addresses. nil fetches none.
	Public http.RoundTripper
	// Folder has copies of uploaded sources while they are read; empty: the system's for temporary
	// files.
	Folder string
	// Changed is called after the commit of progress of a run. It must not block. May be nil.
	Changed func(organizationID string)
	Logger  *slog.Logger // nil discards
}

// Service runs imports. It is safe for concurrent use.
type Service struct {
	db      *db.DB
	desk    *desk.Service
	blob    blob.Store
	queue   *queue.Queue
	audit   *audit.Log
	public  http.RoundTripper
	changed func(organizationID string)
	log     *slog.Logger
	batch   int // tickets of a transaction
	folder  string
}

// jobKind is the queue's kind of jobs that run an import of an uploaded file, or undo one.
const jobKind = "import"

// Open returns the service and registers its worker with the queue.
func Open(c Config) *Service {
	s := &Service{db: c.DB, desk: c.Desk, blob: c.Blob, queue: c.Queue, audit: c.Audit, public: c.Public, changed: c.Changed, log: c.Logger, batch: ticketsAtOnce, folder: cmp.Or(c.Folder, os.TempDir())}
	if c.DB.Postgres() {
		s.batch = 1
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	c.Queue.Handle(queue.Worker{Kind: jobKind, Concurrency: 2, Run: s.runJob, Discard: s.discardJob})
	return s
}

const runColumns = `id, organization_id, source, name, digest, state, dry, options, file_key, file_size, position, total, counts, problems, error,
	created_by, created_at, updated_at, finished_at`

func scanRun(row db.Row) (Run, error) {
	r := Run{Problems: []Problem{}}
	err := row.Scan(&r.ID, &r.OrganizationID, &r.Source, &r.Name, &r.digest, (*string)(&r.State), &r.Dry, db.IntoJSON(&r.options), db.IntoText(&r.fileKey), &r.fileSize,
		&r.Position, &r.Total, db.IntoJSON(&r.Counts), db.IntoJSON(&r.Problems), db.IntoText(&r.Error), db.IntoText(&r.CreatedBy),
		db.IntoTime(&r.CreatedAt), db.IntoTime(&r.UpdatedAt), db.IntoTime(&r.FinishedAt))
	return r, err
}

// List returns the runs of an organization, the newest first, at most limit.
func (s *Service) List(ctx context.Context, q db.Querier, organizationID string, limit int) ([]Run, error) {
	list, err := db.All(ctx, q, scanRun, "SELECT "+runColumns+" FROM imports WHERE organization_id = $1 ORDER BY id DESC LIMIT $2", organizationID, limit)
	if err != nil {
		return nil, fmt.Errorf("list imports: %w", err)
	}
	return list, nil
}

// Get returns a run. Error: NotFound.
func (s *Service) Get(ctx context.Context, q db.Querier, organizationID, id string) (Run, error) {
	r, err := db.One(ctx, q, scanRun, "SELECT "+runColumns+" FROM imports WHERE organization_id = $1 AND id = $2", organizationID, id)
	if errors.Is(err, db.ErrNoRows) {
		return Run{}, problem.New(problem.NotFound, "there is no such import")
	}
	return r, err
}

// insert writes a new run.
func (s *Service) insert(ctx context.Context, tx *db.Tx, r *Run) error {
	r.ID, r.CreatedAt, r.UpdatedAt, r.Problems = tx.NewID(), tx.Now, tx.Now, []Problem{}
	if err := tx.Queue(ctx, "INSERT INTO imports ("+runColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`,
		r.ID, r.OrganizationID, r.Source, r.Name, r.digest, string(r.State), r.Dry, db.JSON(r.options), db.Text(r.fileKey), r.fileSize,
		r.Position, r.Total, db.JSON(r.Counts), db.JSON(r.Problems), db.Text(r.Error), db.Text(r.CreatedBy),
		r.CreatedAt.UnixMicro(), r.UpdatedAt.UnixMicro(), db.Time(r.FinishedAt)); err != nil {
		return fmt.Errorf("write import: %w", err)
	}
	s.notify(tx, r.OrganizationID)
	return nil
}

// errTaken reports that another process works at the run.
var errTaken = problem.New(problem.Conflict, "another process works at this import")

// save writes the progress of a run that was at the position before. Error: errTaken.
func (s *Service) save(ctx context.Context, tx *db.Tx, r *Run, before int64, from State) error {
	r.UpdatedAt = tx.Now
	n, err := tx.Exec(ctx, `UPDATE imports SET state = $4, digest = $5, position = $6, total = $7, counts = $8, problems = $9, error = $10, updated_at = $11,
			finished_at = $12, file_key = $13
		WHERE id = $1 AND position = $2 AND state = $3`,
		r.ID, before, string(from), string(r.State), r.digest, r.Position, r.Total, db.JSON(r.Counts), db.JSON(r.Problems), db.Text(r.Error),
		r.UpdatedAt.UnixMicro(), db.Time(r.FinishedAt), db.Text(r.fileKey))
	if err != nil {
		return fmt.Errorf("write progress of import: %w", err)
	}
	if n == 0 {
		return errTaken
	}
	s.notify(tx, r.OrganizationID)
	return nil
}

func (s *Service) notify(tx *db.Tx, organizationID string) {
	if s.changed != nil {
		tx.AfterCommit(func() { s.changed(organizationID) })
	}
}

// record writes an entry of the audit log about a run.
func (s *Service) record(ctx context.Context, tx *db.Tx, a audit.Action, r *Run) error {
	counts, err := json.Marshal(r.Counts)
	if err != nil {
		return err
	}
	details := make(map[string]any)
	if err := json.Unmarshal(counts, &details); err != nil {
		return err
	}
	details["source"] = r.Source
	return s.audit.RecordTx(ctx, tx, audit.Entry{
		OrganizationID: r.OrganizationID, Action: a, Target: audit.Target{Type: "import", ID: r.ID, Name: r.Name}, Details: details,
	})
}
