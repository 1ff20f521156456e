package importer

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// SetBatch sets the number of tickets of a transaction.
func (s *Service) SetBatch(n int) { s.batch = n }

// SetPublic sets the transport that fetches files.
func (s *Service) SetPublic(t http.RoundTripper) { s.public = t }

// DiscardTx ends the job of an undo for good.
func (s *Service) DiscardTx(ctx context.Context, tx *db.Tx, id string, reason error) error {
	payload, err := json.Marshal(job{ID: id, Undo: true})
	if err != nil {
		return err
	}
	return s.discardJob(ctx, tx, &queue.Job{Payload: payload}, reason)
}
