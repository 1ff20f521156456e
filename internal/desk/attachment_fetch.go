package desk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/quota"
)

// FetchKind is the queue's kind of jobs that fetch a file after its message. A job
// has the id of the attachment, which is pending until [Service.CompleteFileTx] or
// [Service.FailFileTx].
const FetchKind = "media"

// FetchJob is the job that fetches a file after its message: the lane and payload
// of a job of kind [FetchKind], defined by its worker.
type FetchJob struct {
	Lane    string
	Payload []byte
}

// pendingRetry is the Retry-After of requests for a pending file.
const pendingRetry = 10 * time.Second

func errPending() error {
	p := problem.New(problem.NotFound, "this file is still being fetched")
	p.RetryAfter = pendingRetry
	return p
}

// enqueueFetches enqueues the fetches of a new message's pending files.
func (s *Service) enqueueFetches(ctx context.Context, tx *db.Tx, organizationID string, list []Attachment, promises []FetchJob) error {
	var jobs []queue.New
	for i := range list {
		if list[i].Pending {
			jobs = append(jobs, queue.New{ID: list[i].ID, Kind: FetchKind, Lane: promises[i].Lane, Tenant: organizationID, Payload: promises[i].Payload})
		}
	}
	if jobs == nil {
		return nil
	}
	return s.queue.EnqueueTx(ctx, tx, jobs...)
}

// FilePending reports whether an attachment exists and its file is not fetched yet.
func (s *Service) FilePending(ctx context.Context, q db.Querier, attachmentID string) (bool, error) {
	var pending bool
	err := q.QueryRow(ctx, "SELECT pending FROM attachments WHERE id = $1", attachmentID).Scan(&pending)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return false, fmt.Errorf("look up attachment: %w", err)
	}
	return pending, nil
}

// File is a fetched file.
type File struct {
	blob.Ref
	Name        string // empty: unchanged
	ContentType string
}

// CompleteFileTx stores the file of a pending attachment, in the caller's
// transaction. If the attachment was deleted meanwhile, so is the file.
func (s *Service) CompleteFileTx(ctx context.Context, tx *db.Tx, attachmentID string, f File) error {
	organizationID, ticketID, done, err := s.endFetch(ctx, tx, `UPDATE attachments SET pending = FALSE, blob_key = $2, size = $3, content_type = $4,
			name = CASE WHEN $5 = '' THEN name ELSE $5 END
		WHERE id = $1 AND pending RETURNING organization_id, ticket_id`,
		attachmentID, f.Key, f.Size, line(f.ContentType, 255), line(f.Name, 255))
	if err != nil {
		return err
	}
	if !done {
		return s.deleteUnusedBlobs(ctx, tx, []string{f.Key})
	}
	if f.Name != "" {
		if err := s.enqueueFacts(ctx, tx, organizationID, ticketID, ""); err != nil {
			return err
		}
	}
	counts, err := s.quotas.Counts(ctx, tx, organizationID, quota.Storage)
	if err != nil || !counts {
		return err
	}
	s.quotas.AddStorageTx(ctx, tx, organizationID, f.Size, quota.Counted)
	if _, err := tx.Exec(ctx, "UPDATE attachments SET counted = TRUE WHERE id = $1", attachmentID); err != nil {
		return fmt.Errorf("count attachment: %w", err)
	}
	return nil
}

// FailFileTx records why the file of a pending attachment could not be fetched, in
// words for an agent, in the caller's transaction.
func (s *Service) FailFileTx(ctx context.Context, tx *db.Tx, attachmentID, why string) error {
	_, _, _, err := s.endFetch(ctx, tx, "UPDATE attachments SET pending = FALSE, error = $2 WHERE id = $1 AND pending RETURNING organization_id, ticket_id",
		attachmentID, line(why, 500))
	return err
}

// endFetch ends the pending state of an attachment. It returns its organization and ticket, and
// whether it was pending.
func (s *Service) endFetch(ctx context.Context, tx *db.Tx, query string, args ...any) (organizationID, ticketID string, pending bool, err error) {
	err = tx.QueryRow(ctx, query, args...).Scan(&organizationID, &ticketID)
	if errors.Is(err, db.ErrNoRows) {
		return "", "", false, nil
	}
	if err != nil {
		return "", "", false, fmt.Errorf("complete attachment: %w", err)
	}
	s.notifyChanged(tx, organizationID, ticketID)
	return organizationID, ticketID, true, nil
}
