package fleet

import (
	"bytes"
	"context"
	"fmt"
	"image"
	_ "image/jpeg" // format of photos
	_ "image/png"  // format of photos
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"

	_ "golang.org/x/image/webp" // format of photos
)

// TaskPhoto describes a photo of a task. Its content is stored apart.
type TaskPhoto struct {
	ID          string       `json:"id"`
	ContentType string       `json:"content_type"`
	Size        int64        `json:"size"` // bytes
	Width       int64        `json:"width"`
	Height      int64        `json:"height"`
	CreatedAt   rfc3339.Time `json:"created_at"`
	CreatedBy   Actor        `json:"created_by"`
}

// FileName is a name for downloads.
func (p *TaskPhoto) FileName() string {
	return p.ID + "." + strings.TrimPrefix(p.ContentType, "image/")
}

// MaxPhotoFile is the size limit of a photo in bytes.
const MaxPhotoFile = 4 << 20

const (
	maxPhotos      = 10      // of a task
	maxPhotoPixels = 1 << 26 // which browsers display without trouble
)

// photoTypes are the permitted content types by the decoder's name of the format.
var photoTypes = map[string]string{"jpeg": "image/jpeg", "png": "image/png", "webp": "image/webp"}

// AddTaskPhotoTx adds a photo to a task that [Service.LockTaskTx] locked in the caller's
// transaction: a JPEG, PNG or WebP by its content, of at most [MaxPhotoFile]. Errors: Invalid for
// the field photo, also of one photo too many.
func (s *Service) AddTaskPhotoTx(ctx context.Context, tx *db.Tx, organizationID string, t Task, file []byte, by Actor) (Task, error) {
	a, err := s.reuseOrgContext(ctx, tx, t.org, organizationID)
	if err != nil {
		return t, err
	}
	photo, err := describePhoto(file)
	if err != nil {
		return t, err
	}
	if len(t.Photos) >= maxPhotos {
		var v problem.Validation
		v.AddCode("too_long", "photo", "must be one of at most %d photos of the task", maxPhotos)
		return t, v.Err()
	}
	photo.ID, photo.CreatedAt, photo.CreatedBy = newID(photoPrefix, a.now, s.entropy), rfc3339.Time(a.now.Truncate(time.Millisecond)), by
	_, err = tx.Exec(ctx, "INSERT INTO task_photos (organization_id, task_id, id, content) VALUES ($1, $2, $3, $4)", a.id, t.ID, photo.ID, file)
	if err != nil {
		return t, fmt.Errorf("insert a photo: %w", err)
	}
	before := t
	t.Photos = append(slices.Clone(t.Photos), photo)
	return t, s.saveTask(ctx, tx, a, &before, &t, by)
}

// describePhoto checks a file by its header, which its declared type does not matter for.
func describePhoto(file []byte) (TaskPhoto, error) {
	var v problem.Validation
	config, format, err := image.DecodeConfig(bytes.NewReader(file))
	kind := photoTypes[format]
	switch {
	case len(file) > MaxPhotoFile:
		v.AddCode("too_large", "photo", "must have at most %d MB", MaxPhotoFile>>20)
	case err != nil || kind == "":
		v.AddCode("invalid_format", "photo", "must be a JPEG, PNG or WebP")
	case config.Width < 1 || config.Height < 1 || config.Width > maxPhotoPixels/config.Height:
		v.AddCode("too_large", "photo", "must have at most %d million pixels", maxPhotoPixels/1_000_000)
	}
	return TaskPhoto{ContentType: kind, Size: int64(len(file)), Width: int64(config.Width), Height: int64(config.Height)}, v.Err()
}

// TaskPhoto returns a photo of a task and its content. Error: NotFound.
func (s *Service) TaskPhoto(ctx context.Context, q db.Querier, organizationID string, t *Task, photoID string) (TaskPhoto, []byte, error) {
	at := slices.IndexFunc(t.Photos, func(p TaskPhoto) bool { return p.ID == photoID })
	if at < 0 {
		return TaskPhoto{}, nil, notFoundError("photo")
	}
	var content []byte
	err := q.QueryRow(ctx, "SELECT content FROM task_photos WHERE organization_id = $1 AND task_id = $2 AND id = $3", organizationID, t.ID, photoID).Scan(&content)
	return t.Photos[at], content, wrapReadError(err, "photo")
}

// DeleteTaskPhotoTx deletes a photo of a task that [Service.LockTaskTx] locked in the caller's
// transaction. Error: NotFound.
func (s *Service) DeleteTaskPhotoTx(ctx context.Context, tx *db.Tx, organizationID string, t Task, photoID string, by Actor) (Task, error) {
	a, err := s.reuseOrgContext(ctx, tx, t.org, organizationID)
	if err != nil {
		return t, err
	}
	n, err := tx.Exec(ctx, "DELETE FROM task_photos WHERE organization_id = $1 AND task_id = $2 AND id = $3", a.id, t.ID, photoID)
	if err != nil {
		return t, fmt.Errorf("delete a photo: %w", err)
	}
	if n == 0 {
		return t, notFoundError("photo")
	}
	before := t
	t.Photos = slices.DeleteFunc(slices.Clone(t.Photos), func(p TaskPhoto) bool { return p.ID == photoID })
	return t, s.saveTask(ctx, tx, a, &before, &t, by)
}

// PhotoBytes returns the size of all photos of an organization.
func (s *Service) PhotoBytes(ctx context.Context, q db.Querier, organizationID string) (n int64, err error) {
	err = q.QueryRow(ctx, "SELECT coalesce(sum(length(content)), 0) FROM task_photos WHERE organization_id = $1", organizationID).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("sum up photos: %w", err)
	}
	return n, nil
}
