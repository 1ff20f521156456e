package desk

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

const (
	sharePurpose = "shared file"
	shareSize    = 16 // bytes of the MAC
	// shareLife is the least life of a link. It expires at the end of a day, so that a
	// repeated call returns the same link.
	shareLife = 7 * 24 * time.Hour
)

// shareFile returns a signed link to an attachment, for people and systems without
// an account; empty without a box.
func (s *Service) shareFile(id string, now time.Time) string {
	if s.box == nil {
		return ""
	}
	until := strconv.FormatInt(now.UTC().Truncate(24*time.Hour).Add(shareLife+24*time.Hour).Unix(), 10)
	return s.baseURL + AttachmentPath + id + "?" + url.Values{
		"until": {until}, "sig": {hex.EncodeToString(s.box.MAC(sharePurpose, id, until)[:shareSize])},
	}.Encode()
}

// OpenShared returns the attachment of a signed link with its content, which the
// caller closes. A forged or expired link and a deleted attachment are the same
// NotFound problem; a pending file is one with RetryAfter.
func (s *Service) OpenShared(ctx context.Context, id, until, signature string) (Attachment, io.ReadCloser, error) {
	missing := problem.New(problem.NotFound, "there is no such file")
	mac, err := hex.DecodeString(signature)
	if err != nil || s.box == nil || !s.box.VerifyMAC(sharePurpose, mac, shareSize, id, until) {
		return Attachment{}, nil, missing
	}
	// The signature is valid, so it is a number.
	if seconds, err := strconv.ParseInt(until, 10, 64); err != nil || s.db.Now().Unix() >= seconds {
		return Attachment{}, nil, missing
	}
	a, err := db.One(ctx, s.db, s.scanAttachment, "SELECT "+attachmentColumns+" FROM attachments WHERE id = $1", id)
	if err != nil {
		return Attachment{}, nil, notFound(err, "file")
	}
	if a.Pending {
		return Attachment{}, nil, errPending()
	}
	if a.BlobKey == "" {
		return Attachment{}, nil, missing
	}
	content, err := s.blob.Open(ctx, a.BlobKey)
	if errors.Is(err, blob.ErrNotFound) {
		return Attachment{}, nil, missing
	}
	if err != nil {
		return Attachment{}, nil, fmt.Errorf("open attachment: %w", err)
	}
	return a, content, nil
}
