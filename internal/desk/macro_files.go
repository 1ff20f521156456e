package desk

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/quota"
)

// Bounds of the files of a macro.
const (
	MaxMacroFiles = 10
	MaxMacroBytes = 10 << 20 // of all files together
)

// MacroFile is a file of a macro, for the replies that are sent with it.
type MacroFile struct {
	ID          string
	Name        string
	ContentType string // as declared; not trusted
	Size        int64  // bytes

	macroID string
	blobKey string
}

const selectMacroFile = "SELECT id, macro_id, name, content_type, size, blob_key FROM macro_files "

func scanMacroFile(row db.Row) (f MacroFile, err error) {
	err = row.Scan(&f.ID, &f.macroID, &f.Name, &f.ContentType, &f.Size, &f.blobKey)
	return f, err
}

// readMacroFiles sets the files of macros of an organization, the first added first.
func readMacroFiles(ctx context.Context, q db.Querier, organizationID string, macros ...*Macro) error {
	byID := make(map[string]*Macro, len(macros))
	ids := make([]string, len(macros))
	for i, m := range macros {
		m.Files, byID[m.ID], ids[i] = nil, m, m.ID
	}
	files, err := db.All(ctx, q, scanMacroFile, selectMacroFile+"WHERE macro_id = ANY($1) AND organization_id = $2 ORDER BY id", ids, organizationID)
	if err != nil {
		return fmt.Errorf("load files of macros: %w", err)
	}
	for _, f := range files {
		byID[f.macroID].Files = append(byID[f.macroID].Files, f)
	}
	return nil
}

// AddMacroFilesTx adds the files of a composed draft to a macro that is shared or the member's own,
// in the caller's transaction. Errors: NotFound; Invalid at attachments beyond [MaxMacroFiles] and
// [MaxMacroBytes]; those of quotas; that of [Service.CheckUpgraded].
func (s *Service) AddMacroFilesTx(ctx context.Context, tx *db.Tx, organizationID, memberID, id string, c Content) (Macro, error) {
	m, err := s.LockMacroTx(ctx, tx, organizationID, memberID, id)
	if err != nil || len(c.files) == 0 {
		return m, err
	}
	if err := s.CheckUpgraded(ctx, tx); err != nil {
		return Macro{}, err
	}
	before := m.settings()
	var total int64
	for _, f := range m.Files {
		total += f.Size
	}
	for _, f := range c.files {
		total += f.Size
	}
	var v problem.Validation
	if n := len(m.Files) + len(c.files); n > MaxMacroFiles {
		v.AddCode("too_long", "attachments", "lead to more than %d files of the macro", MaxMacroFiles)
	} else if total > MaxMacroBytes {
		v.AddCode("too_large", "attachments", "lead to more than %d MB of files of the macro", MaxMacroBytes>>20)
	}
	if err := v.Err(); err != nil {
		return Macro{}, err
	}
	counted, err := s.quotas.Counts(ctx, tx, organizationID, quota.Storage)
	if err != nil {
		return Macro{}, err
	}
	for i, a := range c.attachments {
		f := MacroFile{ID: newID(), Name: line(a.Name, 255), ContentType: line(a.ContentType, 255), Size: c.files[i].Size, macroID: m.ID, blobKey: c.files[i].Key}
		if f.ContentType == "" {
			f.ContentType = "application/octet-stream"
		}
		if err := tx.Queue(ctx, `INSERT INTO macro_files (id, organization_id, macro_id, name, content_type, size, blob_key, counted, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			f.ID, organizationID, m.ID, f.Name, f.ContentType, f.Size, f.blobKey, counted, tx.Now.UnixMicro()); err != nil {
			return Macro{}, fmt.Errorf("write file of macro: %w", err)
		}
		if counted {
			s.quotas.AddStorageTx(ctx, tx, organizationID, f.Size, quota.Enforced)
		}
		m.Files = append(m.Files, f)
	}
	return m, s.macroFilesChanged(ctx, tx, &m, before)
}

// DeleteMacroFileTx deletes a file of a macro that is shared or the member's own, in the caller's
// transaction. Messages that were sent with it have it still. Error: NotFound.
func (s *Service) DeleteMacroFileTx(ctx context.Context, tx *db.Tx, organizationID, memberID, id, fileID string) (Macro, error) {
	m, err := s.LockMacroTx(ctx, tx, organizationID, memberID, id)
	if err != nil {
		return Macro{}, err
	}
	before := m.settings()
	i := slices.IndexFunc(m.Files, func(f MacroFile) bool { return f.ID == fileID })
	if i < 0 {
		return Macro{}, problem.New(problem.NotFound, "the macro has no such file")
	}
	m.Files = slices.Delete(slices.Clone(m.Files), i, i+1)
	if err := s.deleteMacroFiles(ctx, tx, "id = $1", fileID); err != nil {
		return Macro{}, err
	}
	return m, s.macroFilesChanged(ctx, tx, &m, before)
}

// macroFilesChanged records a change of a macro's files.
func (s *Service) macroFilesChanged(ctx context.Context, tx *db.Tx, m *Macro, before macroSettings) error {
	m.UpdatedAt = tx.Now
	if err := tx.Queue(ctx, "UPDATE macros SET updated_at = $2 WHERE id = $1", m.ID, tx.Now.UnixMicro()); err != nil {
		return fmt.Errorf("write macro: %w", err)
	}
	return s.recordMacroTx(ctx, tx, AuditMacroUpdated, m, before, m.settings())
}

// deleteMacroFiles deletes files of macros by a condition, returns their bytes to the quota, and
// enqueues the deletion of content that nothing else uses.
func (s *Service) deleteMacroFiles(ctx context.Context, tx *db.Tx, condition string, args ...any) error {
	type deleted struct {
		key, organizationID string
		bytes               int64 // counted
	}
	list, err := db.All(ctx, tx, func(row db.Row) (d deleted, err error) {
		err = row.Scan(&d.key, &d.organizationID, &d.bytes)
		return d, err
	}, "DELETE FROM macro_files WHERE "+condition+" RETURNING blob_key, organization_id, CASE WHEN counted THEN size ELSE 0 END", args...)
	if err != nil {
		return fmt.Errorf("delete files of macros: %w", err)
	}
	var keys []string
	for _, d := range list {
		keys = append(keys, d.key)
		s.quotas.AddStorageTx(ctx, tx, d.organizationID, -d.bytes, quota.Counted)
	}
	return s.deleteUnusedBlobs(ctx, tx, keys)
}

// AttachMacroFilesTx adds files of a macro to the content of a message that the caller's transaction
// writes. Unknown ids are skipped: the files may be gone since the message was begun. Errors:
// NotFound; Invalid at attachments if the message has too many.
func (s *Service) AttachMacroFilesTx(ctx context.Context, tx *db.Tx, organizationID, memberID, id string, fileIDs []string, c *Content) error {
	m, err := s.LockMacroTx(ctx, tx, organizationID, memberID, id) // its files stay until the message refers to them
	if err != nil {
		return err
	}
	m.Files = slices.DeleteFunc(m.Files, func(f MacroFile) bool { return !slices.Contains(fileIDs, f.ID) })
	if err := c.attach(m.Files); err != nil {
		return err
	}
	if c.composed && c.html == "" { // the text may place the files
		s.renderMarkdown(c)
	}
	return nil
}

// fileIDs returns the ids of m's files.
func (m *Macro) fileIDs() []string {
	ids := make([]string, len(m.Files))
	for i := range m.Files {
		ids[i] = m.Files[i].ID
	}
	return ids
}

// attach adds files of a macro.
func (w *Content) attach(files []MacroFile) error {
	if len(w.attachments)+len(files) > maxFiles {
		var v problem.Validation
		v.AddCode("too_long", "attachments", "must have at most %d files", maxFiles)
		return v.Err()
	}
	w.attachments, w.files = slices.Clone(w.attachments), slices.Clone(w.files)
	for _, f := range files {
		w.attachments = append(w.attachments, channel.Attachment{Name: f.Name, ContentType: f.ContentType})
		w.files = append(w.files, blob.Ref{Key: f.blobKey, Size: f.Size})
	}
	return nil
}

// OpenMacroFile returns a file of a macro that is shared or the member's own as an attachment, with
// its content, which the caller closes. Error: NotFound.
func (s *Service) OpenMacroFile(ctx context.Context, organizationID, memberID, id string) (Attachment, io.ReadCloser, error) {
	f, err := db.One(ctx, s.db, scanMacroFile, selectMacroFile+`WHERE id = $1 AND organization_id = $2
		AND EXISTS (SELECT 1 FROM macros m WHERE m.id = macro_files.macro_id AND m.owner_id IN ('', $3))`, id, organizationID, memberID)
	if err != nil {
		return Attachment{}, nil, notFound(err, "attachment")
	}
	content, err := s.blob.Open(ctx, f.blobKey)
	if err != nil {
		return Attachment{}, nil, fmt.Errorf("open file of macro: %w", err)
	}
	return Attachment{ID: f.ID, Name: f.Name, ContentType: f.ContentType, Size: f.Size, BlobKey: f.blobKey}, content, nil
}
