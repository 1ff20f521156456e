package importer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// MaxUpload is the limit of an uploaded source, in bytes.
const MaxUpload = 32 << 20

// FileColumns are the columns with uploaded sources.
var FileColumns = []db.FileColumn{{Table: "imports", Key: "file_key", Size: "file_size"}}

// job is the payload of a job.
type job struct {
	OrganizationID string `json:"organization_id"`
	ID             string `json:"id"`
	// UserID is the member who started it, for the audit log.
	UserID string `json:"user_id,omitempty"`
	Undo   bool   `json:"undo,omitempty"`
}

// Upload stores a source and enqueues its run. Errors: Invalid, also for an empty or too large file;
// that of [desk.Service.CheckUpgraded].
func (s *Service) Upload(ctx context.Context, n New, data []byte) (Run, error) {
	if err := problem.Check(&n); err != nil {
		return Run{}, err
	}
	var v problem.Validation
	switch {
	case len(data) == 0:
		v.AddCode("required", "file", "must not be empty")
	case len(data) > MaxUpload:
		v.AddCode("too_long", "file", "must be at most %d MB; the command imports larger ones", MaxUpload>>20)
	}
	if err := v.Err(); err != nil {
		return Run{}, err
	}
	if err := s.desk.CheckUpgraded(ctx, s.db); err != nil {
		return Run{}, err
	}
	ref, err := s.blob.Put(ctx, bytes.NewReader(data))
	if err != nil {
		return Run{}, fmt.Errorf("store the file: %w", err)
	}
	var r Run
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		r = Run{
			OrganizationID: n.OrganizationID, Source: n.Source, Name: clip(n.Name, 200), State: Waiting, Dry: n.Dry, CreatedBy: n.UserID,
			options: n.Options, fileKey: ref.Key, fileSize: ref.Size,
		}
		if err := s.insert(ctx, tx, &r); err != nil {
			return err
		}
		return s.enqueue(ctx, tx, job{OrganizationID: n.OrganizationID, ID: r.ID, UserID: n.UserID})
	})
	return r, err
}

// Start enqueues the run of an uploaded source that was dry, or that failed: as a run that writes.
// Errors: NotFound; Conflict if the file is gone, or the run is not over.
func (s *Service) Start(ctx context.Context, organizationID, id, userID string) (Run, error) {
	var r Run
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		old, err := s.Get(ctx, tx, organizationID, id)
		if err != nil {
			return err
		}
		if old.fileKey == "" || old.State != Done && old.State != Failed {
			return problem.New(problem.Conflict, "the file of this import is gone, or it runs already: upload the file again")
		}
		r = old
		if !old.Dry {
			r.State, r.Error = Waiting, ""
			if err := s.save(ctx, tx, &r, old.Position, old.State); err != nil {
				return err
			}
			return s.enqueue(ctx, tx, job{OrganizationID: organizationID, ID: r.ID, UserID: userID})
		}
		r = Run{
			OrganizationID: organizationID, Source: old.Source, Name: old.Name, State: Waiting, CreatedBy: userID,
			options: old.options, fileKey: old.fileKey, fileSize: old.fileSize,
		}
		old.fileKey = ""
		if err := s.save(ctx, tx, &old, old.Position, old.State); err != nil {
			return err
		}
		if err := s.insert(ctx, tx, &r); err != nil {
			return err
		}
		return s.enqueue(ctx, tx, job{OrganizationID: organizationID, ID: r.ID, UserID: userID})
	})
	return r, err
}

func (s *Service) enqueue(ctx context.Context, tx *db.Tx, j job) error {
	payload, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return s.queue.EnqueueTx(ctx, tx, queue.New{Kind: jobKind, Lane: j.OrganizationID, Tenant: j.OrganizationID, Payload: payload})
}

// dropFile removes the uploaded source of a run that is over. That of a dry run stays for the real one.
func (s *Service) dropFile(ctx context.Context, tx *db.Tx, r *Run) error {
	if r.fileKey == "" || r.Dry {
		return nil
	}
	key := r.fileKey
	r.fileKey = ""
	return s.desk.DeleteUnusedFilesTx(ctx, tx, key)
}

// uploadRetention is how long the source of a run that is over waits to be started, or continued.
const uploadRetention = 7 * 24 * time.Hour

// PurgeUploads deletes the uploaded sources of runs that ended 7 days ago, dry ones too.
func (s *Service) PurgeUploads(ctx context.Context) error {
	before := s.db.Now().Add(-uploadRetention)
	for {
		n := 0
		err := s.db.Write(ctx, func(tx *db.Tx) error {
			var ids, keys []string
			list, err := db.All(ctx, tx, scanRun, "SELECT "+runColumns+` FROM imports WHERE file_key IS NOT NULL AND state IN ('done', 'failed', 'undone')
				AND updated_at < $1 ORDER BY id LIMIT 100 FOR UPDATE`, before.UnixMicro())
			if err != nil {
				return fmt.Errorf("find old uploads: %w", err)
			}
			for i := range list {
				ids, keys = append(ids, list[i].ID), append(keys, list[i].fileKey)
			}
			n = len(ids)
			if err := tx.Queue(ctx, "UPDATE imports SET file_key = NULL WHERE id = ANY($1)", ids); err != nil {
				return fmt.Errorf("delete old uploads: %w", err)
			}
			return s.desk.DeleteUnusedFilesTx(ctx, tx, keys...)
		})
		if err != nil || n == 0 {
			return err
		}
	}
}

// runJob runs the import of a job, or undoes it. What was interrupted goes on where it was.
func (s *Service) runJob(ctx context.Context, q *queue.Job) error {
	var j job
	if err := json.Unmarshal(q.Payload, &j); err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	if j.UserID != "" {
		ctx = audit.WithSource(ctx, audit.Source{Actor: audit.Actor{Type: audit.User, ID: j.UserID}, Surface: audit.Web})
	}
	r, err := s.Get(ctx, s.db, j.OrganizationID, j.ID)
	if err != nil {
		if problem.Of(err) == problem.NotFound {
			return nil
		}
		return err
	}
	if j.Undo {
		_, err := s.undo(ctx, r, nil)
		return err
	}
	if r.State != Waiting && r.State != Running || r.fileKey == "" {
		return nil
	}
	err = s.runUpload(ctx, r)
	if err != nil && ctx.Err() == nil && problem.Of(err) != problem.Unavailable {
		s.log.WarnContext(ctx, "an import failed", "import", r.ID, "organization", r.OrganizationID, "error", err)
		return nil // the run says why
	}
	return err
}

// runUpload runs an import from a copy of its uploaded source, alone in a folder. A process that died
// left the folder; the next one replaces it.
func (s *Service) runUpload(ctx context.Context, r Run) error {
	w := &work{s: s, run: r, authors: make(map[string]bool)}
	folder := filepath.Join(s.folder, "import-"+r.ID)
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, map[string]string{Mbox: "upload.mbox", CSV: "upload.csv", Zendesk: "upload.json"}[r.Source])
	if err := s.copyFile(ctx, r.fileKey, path); err != nil {
		return w.fail(ctx, err)
	}
	var err error
	if w.reader, err = s.open(&r, path); err != nil {
		return w.fail(ctx, err)
	}
	defer w.reader.Close()
	return w.do(ctx)
}

func (s *Service) copyFile(ctx context.Context, key, path string) error {
	in, err := s.blob.Open(ctx, key)
	if err != nil {
		return fmt.Errorf("open the file: %w", err)
	}
	defer in.Close()
	if err := errors.Join(os.RemoveAll(filepath.Dir(path)), os.MkdirAll(filepath.Dir(path), 0o700)); err != nil {
		return fmt.Errorf("copy the file: %w", err)
	}
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("copy the file: %w", err)
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// discardJob records that the run of a job failed for good. An undo remains one, with the reason.
func (s *Service) discardJob(ctx context.Context, tx *db.Tx, q *queue.Job, reason error) error {
	var j job
	if err := json.Unmarshal(q.Payload, &j); err != nil {
		return nil
	}
	change := "UPDATE imports SET state = 'failed', error = $2 WHERE id = $1 AND state IN ('waiting', 'running')"
	if j.Undo {
		change = "UPDATE imports SET error = $2 WHERE id = $1 AND state = 'undoing'"
	}
	_, err := tx.Exec(ctx, change, j.ID, clip(reason.Error(), 500))
	return err
}

// Undo deletes what a run wrote; see [desk.Service.UndoImportTx]. It continues an undo that was
// interrupted. Errors: NotFound; Conflict for a run in progress, or one that wrote nothing.
func (s *Service) Undo(ctx context.Context, organizationID, id string, progress Progress) (Run, error) {
	r, err := s.Get(ctx, s.db, organizationID, id)
	if err != nil {
		return Run{}, err
	}
	if err := s.checkUndo(&r); err != nil {
		return Run{}, err
	}
	return s.undo(ctx, r, progress)
}

func (s *Service) checkUndo(r *Run) error {
	switch {
	case r.Dry:
		return problem.New(problem.Conflict, "a dry run wrote nothing")
	case r.State == Waiting, r.State == Running && !r.Stalled(s.db.Now()):
		return problem.New(problem.Conflict, "the import is running; wait until it is done")
	case r.State == Undone:
		return problem.New(problem.Conflict, "the import was undone before")
	}
	return nil
}

// StartUndo enqueues the undo of a run. Errors as of [Service.Undo].
func (s *Service) StartUndo(ctx context.Context, organizationID, id, userID string) (Run, error) {
	var r Run
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		var err error
		if r, err = s.Get(ctx, tx, organizationID, id); err != nil {
			return err
		}
		if err := s.checkUndo(&r); err != nil {
			return err
		}
		if r.State == Undoing && !r.Stalled(tx.Now) {
			return nil
		}
		from := r.State
		if r.FinishedAt.IsZero() {
			r.FinishedAt = r.UpdatedAt
		}
		r.State, r.Error = Undoing, ""
		if err := s.save(ctx, tx, &r, r.Position, from); err != nil {
			return err
		}
		return s.enqueue(ctx, tx, job{OrganizationID: organizationID, ID: id, UserID: userID, Undo: true})
	})
	return r, err
}

// undo deletes the records of a run, some per transaction.
func (s *Service) undo(ctx context.Context, r Run, progress Progress) (Run, error) {
	if r.FinishedAt.IsZero() {
		r.FinishedAt = r.UpdatedAt
	}
	for {
		var after Run
		more := false
		err := s.db.Write(ctx, func(tx *db.Tx) error {
			after = r
			done, left, err := s.desk.UndoImportTx(ctx, tx, desk.Import{ID: r.ID, OrganizationID: r.OrganizationID, Source: r.Source, EndedAt: r.FinishedAt})
			if err != nil {
				return err
			}
			more = left
			after.Counts.Removed.Add(done)
			after.State, after.Error = Undoing, ""
			if !left {
				after.State, after.FinishedAt = Undone, tx.Now
				if err := s.dropFile(ctx, tx, &after); err != nil {
					return err
				}
				if err := s.record(ctx, tx, AuditUndone, &after); err != nil {
					return err
				}
			}
			return s.save(ctx, tx, &after, r.Position, r.State)
		})
		if err != nil {
			return r, err
		}
		r = after
		if progress != nil {
			progress("tickets deleted", r.Counts.Removed.Tickets, r.Counts.Tickets)
		}
		if !more {
			return r, nil
		}
	}
}
