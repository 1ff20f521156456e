package desk

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/quota"
)

// blobDeletionKind is the queue's kind of jobs that delete unused files.
const blobDeletionKind = "desk.forget"

// deleteFiles deletes the attachments and pictures of messages of a ticket, and
// enqueues the deletion of content that nothing else uses.
func (s *Service) deleteFiles(ctx context.Context, tx *db.Tx, t *Ticket, messageIDs []string) error {
	return s.deleteFileRows(ctx, tx, t, []string{
		"DELETE FROM attachments WHERE ticket_id = $1 AND message_id = ANY($2)",
		"DELETE FROM letter_pictures WHERE message_id = ANY($2) AND (SELECT count(*) FROM messages m WHERE m.ticket_id = $1 AND m.id = message_id) > 0",
	}, t.ID, messageIDs)
}

// deleteTicketFiles is [Service.deleteFiles] for all messages of a ticket.
func (s *Service) deleteTicketFiles(ctx context.Context, tx *db.Tx, t *Ticket) error {
	return s.deleteFileRows(ctx, tx, t, []string{
		"DELETE FROM attachments WHERE ticket_id = $1",
		"DELETE FROM letter_pictures WHERE message_id IN (SELECT id FROM messages WHERE ticket_id = $1)",
	}, t.ID)
}

// deleteFileRows deletes rows of files, returns their bytes to the quota, and enqueues
// the deletion of content that nothing else uses.
func (s *Service) deleteFileRows(ctx context.Context, tx *db.Tx, t *Ticket, statements []string, args ...any) error {
	type deleted struct {
		key   string
		bytes int64 // counted
	}
	var keys []string
	for _, statement := range statements {
		list, err := db.All(ctx, tx, func(row db.Row) (d deleted, err error) {
			err = row.Scan(db.IntoText(&d.key), &d.bytes)
			return d, err
		}, statement+" RETURNING blob_key, CASE WHEN counted THEN size ELSE 0 END", args...)
		if err != nil {
			return fmt.Errorf("remove files: %w", err)
		}
		for _, d := range list {
			keys = append(keys, d.key)
			s.quotas.AddStorageTx(ctx, tx, t.OrganizationID, -d.bytes, quota.Counted)
		}
	}
	return s.deleteUnusedBlobs(ctx, tx, keys)
}

// deleteUnusedBlobs enqueues the deletion of blobs that nothing else uses. Empty
// keys are skipped.
func (s *Service) deleteUnusedBlobs(ctx context.Context, tx *db.Tx, keys []string) error {
	keys = slices.DeleteFunc(keys, func(key string) bool { return key == "" })
	if len(keys) == 0 {
		return nil
	}
	slices.Sort(keys)
	payload, err := json.Marshal(slices.Compact(keys))
	if err != nil {
		return err
	}
	return s.queue.EnqueueTx(ctx, tx, queue.New{Kind: blobDeletionKind, Payload: payload})
}

// DeleteUnusedFilesTx deletes files after the commit, unless something else uses them.
func (s *Service) DeleteUnusedFilesTx(ctx context.Context, tx *db.Tx, keys ...string) error {
	return s.deleteUnusedBlobs(ctx, tx, keys)
}

// runBlobDeletion deletes the unused blobs of a job. A message that is being
// received with an identical file at this moment would lose it and show it as
// missing.
func (s *Service) runBlobDeletion(ctx context.Context, j *queue.Job) error {
	var keys []string
	if err := json.Unmarshal(j.Payload, &keys); err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	for _, key := range keys {
		var used bool
		if err := s.db.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM attachments WHERE blob_key = $1)
			OR EXISTS (SELECT 1 FROM letter_pictures WHERE blob_key = $1) OR EXISTS (SELECT 1 FROM imports WHERE file_key = $1)
			OR EXISTS (SELECT 1 FROM macro_files WHERE blob_key = $1)`, key).Scan(&used); err != nil {
			return fmt.Errorf("check use of file: %w", err)
		}
		if used {
			continue
		}
		if err := s.blob.Delete(ctx, key); err != nil {
			return fmt.Errorf("delete file: %w", err)
		}
	}
	return nil
}
