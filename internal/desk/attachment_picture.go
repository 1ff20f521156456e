package desk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/quota"
)

// Picture is a remote picture in a message's HTML that a member has loaded. The
// zero value is being loaded, or its process died.
type Picture struct {
	BlobKey     string // empty: there is no file
	Size        int64  // bytes
	ContentType string // of the bytes, not as declared
	Error       string // why there never will be a file
}

// claimLife is the duration of a claim of [Service.ClaimPictureTx].
const claimLife = time.Minute

// Picture returns the record of a message's picture by the digest of its address;
// [db.ErrNoRows] if it was never requested.
func (s *Service) Picture(ctx context.Context, q db.Querier, messageID, digest string) (Picture, error) {
	return db.One(ctx, q, func(row db.Row) (p Picture, err error) {
		err = row.Scan(db.IntoText(&p.BlobKey), &p.Size, db.IntoText(&p.ContentType), db.IntoText(&p.Error))
		return p, err
	}, "SELECT blob_key, coalesce(size, 0), content_type, error FROM letter_pictures WHERE message_id = $1 AND digest = $2", messageID, digest)
}

// ClaimPictureTx claims the loading of a picture, in the caller's transaction. It returns
// false while another process has a claim, and once there is a result.
func (s *Service) ClaimPictureTx(ctx context.Context, tx *db.Tx, messageID, digest string) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO letter_pictures (message_id, digest, claimed_at) VALUES ($1, $2, $3)
		ON CONFLICT (message_id, digest) DO UPDATE SET claimed_at = excluded.claimed_at
		WHERE letter_pictures.blob_key IS NULL AND letter_pictures.error IS NULL AND letter_pictures.claimed_at < $4`,
		messageID, digest, tx.Now.UnixMicro(), tx.Now.Add(-claimLife).UnixMicro())
	if err != nil {
		return false, fmt.Errorf("claim picture: %w", err)
	}
	return n > 0, nil
}

// CompletePictureTx records the result of a claim of a picture of m, in the caller's
// transaction. If the message was deleted meanwhile, so is the file.
func (s *Service) CompletePictureTx(ctx context.Context, tx *db.Tx, m *Message, digest string, p Picture) error {
	organizationID := ""
	if p.BlobKey != "" {
		err := tx.QueryRow(ctx, "SELECT organization_id FROM tickets WHERE id = $1", m.TicketID).Scan(&organizationID)
		if err != nil && !errors.Is(err, db.ErrNoRows) { // the message may have left a deleted ticket
			return fmt.Errorf("find the organization of a picture: %w", err)
		}
	}
	counts, err := s.quotas.Counts(ctx, tx, organizationID, quota.Storage)
	if err != nil {
		return err
	}
	// A repeated claim may have completed it.
	n, err := tx.Exec(ctx, `UPDATE letter_pictures SET blob_key = $3, size = $4, content_type = $5, error = $6, counted = $7
		WHERE message_id = $1 AND digest = $2 AND blob_key IS NULL AND error IS NULL`,
		m.ID, digest, db.Text(p.BlobKey), p.Size, db.Text(p.ContentType), db.Text(line(p.Error, 500)), counts)
	if err != nil {
		return fmt.Errorf("record picture: %w", err)
	}
	switch {
	case p.BlobKey == "":
		return nil
	case n == 0:
		return s.deleteUnusedBlobs(ctx, tx, []string{p.BlobKey})
	case counts:
		s.quotas.AddStorageTx(ctx, tx, organizationID, p.Size, quota.Counted)
	}
	return nil
}

// ReleasePictureTx ends a claim without a result, so that the picture can be loaded again.
func (s *Service) ReleasePictureTx(ctx context.Context, tx *db.Tx, messageID, digest string) error {
	if err := tx.Queue(ctx, "DELETE FROM letter_pictures WHERE message_id = $1 AND digest = $2 AND blob_key IS NULL AND error IS NULL", messageID, digest); err != nil {
		return fmt.Errorf("release picture: %w", err)
	}
	return nil
}
