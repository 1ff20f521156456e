// Package remoteimage loads the remote pictures of mails on a reader's request, so that
// the sender learns nothing about the reader.
//
// A picture is fetched once from its URL, in the name of this program: from public
// addresses only, without cookies and without any header of the reader's request.
// It is stored with the message and served from there to all readers. A response is
// never served if its bytes are no picture, or if it is too large or too slow.
// Links to pictures are signed, so only a page that shows the message causes a
// fetch.
package remoteimage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
	"github.com/kickstand-dev/kickstand/internal/seal"

	"golang.org/x/sync/singleflight"
)

const (
	// maxSize bounds a picture in bytes, maxTime its download.
	maxSize      = 5 << 20
	maxTime      = 10 * time.Second
	maxRedirects = 3
	// maxAtOnce bounds the downloads of this process.
	maxAtOnce = 32
	// userAgent identifies this program, not the reader's.
	userAgent = "Mozilla/5.0 (compatible; Kickstand)"

	purpose = "picture of a mail"
	macSize = 16 // bytes
)

// contentTypes are the formats served: those of browsers, without SVG, which can
// run scripts.
var contentTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// Config holds the parts of a [Service]. All are required.
type Config struct {
	DB   *db.DB
	Desk *desk.Service
	Blob blob.Store
	Box  *seal.Box // signs links
	// Transport must connect to public addresses only.
	Transport http.RoundTripper
	Logger    *slog.Logger
}

// Service loads pictures. It is safe for concurrent use.
type Service struct {
	c       Config
	flights singleflight.Group
	slots   chan struct{}
}

// New returns the service.
func New(c Config) *Service { return &Service{c: c, slots: make(chan struct{}, maxAtOnce)} }

// digest returns the id of a picture's URL.
func digest(address string) string {
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:])
}

// Link returns the arguments of [Service.Open] for a picture of a message: the
// digest of its URL, and the signature.
func (s *Service) Link(messageID, address string) (id, signature string) {
	id = digest(address)
	return id, hex.EncodeToString(s.c.Box.MAC(purpose, messageID, id)[:macSize])
}

// Open returns a picture of a message that the caller may read, fetching it if it
// is not stored. The caller closes the content. Errors: NotFound for a URL that the
// message does not contain, a wrong signature, and a failed picture; Unavailable if
// another process takes too long to fetch it.
func (s *Service) Open(ctx context.Context, m *desk.Message, id, signature string) (desk.Picture, io.ReadCloser, error) {
	missing := problem.New(problem.NotFound, "there is no such picture")
	mac, err := hex.DecodeString(signature)
	if err != nil || !s.c.Box.VerifyMAC(purpose, mac, macSize, m.ID, id) {
		return desk.Picture{}, nil, missing
	}
	addresses := safehtml.RemoteImages(m.HTML)
	at := slices.IndexFunc(addresses, func(address string) bool { return digest(address) == id })
	if at < 0 {
		return desk.Picture{}, nil, missing
	}
	p, err := s.load(ctx, m, id, addresses[at])
	if err != nil {
		return p, nil, err
	}
	if p.BlobKey == "" {
		return p, nil, missing
	}
	content, err := s.c.Blob.Open(ctx, p.BlobKey)
	if err != nil {
		return p, nil, fmt.Errorf("open remoteimage: %w", err)
	}
	return p, content, nil
}

// load returns a picture, fetched for the first of simultaneous requests.
func (s *Service) load(ctx context.Context, m *desk.Message, id, address string) (desk.Picture, error) {
	if p, err := s.stored(ctx, m.ID, id); err != nil || p != (desk.Picture{}) {
		return p, err
	}
	// The request may end: other requests wait for the same fetch.
	work := context.WithoutCancel(ctx)
	done := s.flights.DoChan(m.ID+" "+id, func() (any, error) { return s.loadOnce(work, m, id, address) })
	select {
	case r := <-done:
		p, _ := r.Val.(desk.Picture)
		return p, r.Err
	case <-ctx.Done():
		return desk.Picture{}, ctx.Err()
	}
}

// stored returns the result for a picture; the zero value: none yet.
func (s *Service) stored(ctx context.Context, messageID, id string) (desk.Picture, error) {
	p, err := s.c.Desk.Picture(ctx, s.c.DB, messageID, id)
	if errors.Is(err, db.ErrNoRows) {
		return desk.Picture{}, nil
	}
	if err != nil {
		return p, fmt.Errorf("look up remoteimage: %w", err)
	}
	return p, nil
}

// loadOnce fetches a picture, or waits for the process that does.
func (s *Service) loadOnce(ctx context.Context, m *desk.Message, id, address string) (desk.Picture, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*maxTime)
	defer cancel()
	for ctx.Err() == nil {
		p, claimed, err := s.claim(ctx, m.ID, id)
		switch {
		case claimed:
			return s.fetchClaimed(ctx, m, id, address)
		case err != nil && ctx.Err() == nil, p != (desk.Picture{}):
			return p, err
		}
		loop.Pause(ctx, 200*time.Millisecond)
	}
	return desk.Picture{}, problem.New(problem.Unavailable, "the picture is still being loaded")
}

// claim claims a picture for this process, or returns the stored result.
func (s *Service) claim(ctx context.Context, messageID, id string) (p desk.Picture, claimed bool, err error) {
	err = s.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
		claimed, err = s.c.Desk.ClaimPictureTx(ctx, tx, messageID, id)
		return err
	})
	if err != nil || claimed {
		return p, claimed && err == nil, err
	}
	p, err = s.stored(ctx, messageID, id)
	return p, false, err
}

// fetchClaimed fetches a claimed picture and records the result.
func (s *Service) fetchClaimed(ctx context.Context, m *desk.Message, id, address string) (desk.Picture, error) {
	p, err := s.fetch(ctx, address)
	ctx = context.WithoutCancel(ctx) // record a late result too
	if err == nil {
		return p, s.c.DB.Write(ctx, func(tx *db.Tx) error { return s.c.Desk.CompletePictureTx(ctx, tx, m, id, p) })
	}
	refused, theirs := errors.AsType[*refusal](err)
	if theirs && refused.final {
		p = desk.Picture{Error: refused.why}
		return p, s.c.DB.Write(ctx, func(tx *db.Tx) error { return s.c.Desk.CompletePictureTx(ctx, tx, m, id, p) })
	}
	if released := s.c.DB.Write(ctx, func(tx *db.Tx) error { return s.c.Desk.ReleasePictureTx(ctx, tx, m.ID, id) }); released != nil {
		s.c.Logger.WarnContext(ctx, "a picture's claim is not released; it ends by itself", "message", m.ID, "error", released)
	}
	if theirs {
		s.c.Logger.InfoContext(ctx, "a picture of a mail was not loaded", "message", m.ID, "why", refused.why)
		return desk.Picture{}, nil
	}
	return desk.Picture{}, err
}

// refusal is a failure of the picture's host or content. The reason does not
// contain the URL.
type refusal struct {
	why   string
	final bool // a retry would fail too
}

func (r *refusal) Error() string { return r.why }

// fetch downloads and stores a picture. An error that is no [*refusal] is our own.
func (s *Service) fetch(ctx context.Context, address string) (desk.Picture, error) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return desk.Picture{}, &refusal{why: "too many pictures are loaded at once"}
	}
	limited, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	content, err := s.download(limited, address)
	if err != nil {
		return desk.Picture{}, err
	}
	kind := http.DetectContentType(content)
	if !slices.Contains(contentTypes, kind) {
		return desk.Picture{}, &refusal{why: "it is not a picture", final: true}
	}
	ref, err := s.c.Blob.Put(ctx, bytes.NewReader(content))
	if err != nil {
		return desk.Picture{}, fmt.Errorf("store remoteimage: %w", err)
	}
	return desk.Picture{BlobKey: ref.Key, Size: ref.Size, ContentType: kind}, nil
}

func (s *Service) download(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil || !isPlainURL(req.URL) {
		return nil, &refusal{why: "its URL is not allowed", final: true}
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept", strings.Join(contentTypes, ", "))
	client := http.Client{
		Transport: s.c.Transport,
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			next.Header.Del("Referer")
			if len(via) > maxRedirects || !isPlainURL(next.URL) {
				return &refusal{why: "too many redirects, or a redirect to a URL that is not allowed", final: true}
			}
			return nil
		},
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, refusalOf(err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return nil, &refusal{why: "its host answered " + resp.Status}
	case resp.StatusCode != http.StatusOK:
		return nil, &refusal{why: "its host answered " + resp.Status, final: true}
	case resp.ContentLength > maxSize:
		return nil, &refusal{why: "it is too large", final: true}
	}
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxSize+1))
	switch {
	case err != nil:
		return nil, refusalOf(err)
	case len(content) > maxSize:
		return nil, &refusal{why: "it is too large", final: true}
	}
	return content, nil
}

// refusalOf maps the error of a request to a refusal.
func refusalOf(err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	if _, ok := errors.AsType[*netguard.AddressError](err); ok {
		return &refusal{why: "its address is not public", final: true}
	}
	return &refusal{why: "its host could not be reached in time"}
}

// isPlainURL reports whether a URL may be fetched: HTTP on a standard port, without
// credentials.
func isPlainURL(u *url.URL) bool {
	return (u.Scheme == "https" || u.Scheme == "http") && u.User == nil && u.Hostname() != "" && slices.Contains([]string{"", "80", "443"}, u.Port())
}
