package desk

import (
	"context"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/quota"
)

// countedFiles is the number of attachments that are counted in one transaction.
const countedFiles = 500

// CountFiles adds an organization's stored attachments and files of macros to its use of storage, if they
// are not counted yet, in small transactions. Pictures that were loaded before are not
// counted.
func (s *Service) CountFiles(ctx context.Context, organizationID string) error {
	for _, table := range []string{"attachments", "macro_files"} {
		err := db.Steps(ctx, func() (more bool, err error) {
			err = s.db.Write(ctx, func(tx *db.Tx) error {
				sizes, err := db.All(ctx, tx, func(row db.Row) (n int64, err error) {
					err = row.Scan(&n)
					return n, err
				}, "UPDATE "+table+" SET counted = TRUE WHERE id IN (SELECT id FROM "+table+`
					WHERE organization_id = $1 AND blob_key IS NOT NULL AND NOT counted LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING size`,
					organizationID, countedFiles)
				for _, n := range sizes {
					s.quotas.AddStorageTx(ctx, tx, organizationID, n, quota.Counted)
				}
				more = len(sizes) > 0
				return err
			})
			return more, err
		})
		if err != nil {
			return fmt.Errorf("count files in %s: %w", table, err)
		}
	}
	return nil
}
