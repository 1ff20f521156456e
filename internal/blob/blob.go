// Package blob stores immutable files: attachments, raw mails, recordings.
//
// A file is identified by the SHA-256 of its content, so equal contents are stored once, an
// interrupted write can be repeated, and a key proves its content. A file is durable before
// [Store.Put] returns, so that a database row may then refer to it; until such a row is
// committed the file is an orphan that only costs space.
//
// There are two stores: a folder and an S3 bucket. [Open] selects one by URL, and blobtest
// tests their common contract.
package blob

import (
	"context"
	"errors"
	"io"
	"net/url"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// ErrNotFound means that a store has no file under a key.
var ErrNotFound = errors.New("blob not found")

// Ref identifies a stored file.
type Ref struct {
	Key  string // SHA-256 of the content, 64 lower-case hex digits
	Size int64  // bytes
}

// Store holds files by the digest of their content. It is safe for concurrent use, also by
// several processes.
//
// A store that fails (disk full, bucket unreachable or access denied) returns an error of kind
// [problem.Unavailable].
type Store interface {
	// Put stores all of r. The file is complete and durable once Put returns without an error.
	// After an error it does not exist unless it did before, except that an S3 server may have
	// accepted a file and lost the response. An error of r is wrapped.
	Put(ctx context.Context, r io.Reader) (Ref, error)

	// Open returns the content stored under key, for the caller to close, or ErrNotFound, also
	// for an invalid key. Truncated content is a read error. Seekable content implements
	// [io.Seeker].
	Open(ctx context.Context, key string) (io.ReadCloser, error)

	// Delete deletes the content of key; a missing one is no error. Content is shared, so the
	// caller must know that no other record refers to it, and that no Put of the same content
	// is in progress.
	Delete(ctx context.Context, key string) error
}

// Credentials sign requests to S3.
type Credentials struct {
	AccessKey    string
	SecretKey    string
	SessionToken string // for temporary credentials
}

// Open returns the store of a URL:
//
//	file:PATH
//	s3://BUCKET?endpoint=HOST&region=REGION&prefix=PREFIX
//
// A missing folder is created. For S3, endpoint is a host with an optional port, for https, or
// an http or https URL; the default is Amazon's. prefix is prepended to keys unchanged.
// Credentials in the URL (s3://ACCESS:SECRET@BUCKET) override aws. The bucket is not contacted.
// Errors do not repeat the URL.
func Open(rawURL string, aws Credentials) (Store, error) {
	path, isFolder, err := folderOf(rawURL)
	if err != nil {
		return nil, err
	}
	if isFolder {
		d, err := OpenDir(path)
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "s3" {
		return nil, errors.New("blob store: the URL must be file:PATH or s3://BUCKET?endpoint=…") // err quotes a secret
	}
	s, err := openS3(u, aws)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// folderOf returns the folder of a store's URL; false if the URL is of another kind.
func folderOf(rawURL string) (path string, isFolder bool, err error) {
	path, isFolder = strings.CutPrefix(rawURL, "file:")
	if rest, ok := strings.CutPrefix(path, "//"); isFolder && ok {
		if !strings.HasPrefix(rest, "/") {
			return "", true, errors.New("blob store: a file URL has no host: write file:PATH or file:///PATH")
		}
		path = rest
	}
	return path, isFolder, nil
}

// validKey reports whether key has the form of a digest.
func validKey(key string) bool {
	return len(key) == 64 && strings.Trim(key, "0123456789abcdef") == ""
}

// source reads the content for Put. It fails once its context has ended, so that storing a long
// stream ends with its request, and records its own failure, which is not the store's.
type source struct {
	ctx    context.Context
	r      io.Reader
	failed error
}

func (s *source) Read(p []byte) (n int, err error) {
	if err = s.ctx.Err(); err == nil {
		n, err = s.r.Read(p)
	}
	if err != nil && err != io.EOF {
		s.failed = err
	}
	return n, err
}

// opened is stored content. A failed read is a failure of the store.
type opened struct {
	io.ReadCloser
	ctx context.Context
}

func (o opened) Read(p []byte) (int, error) {
	n, err := o.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = fault(o.ctx, err)
	}
	return n, err
}

// fault returns err as a failure of the store, unless the context has ended.
func fault(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	return problem.New(problem.Unavailable, "files cannot be stored or read right now; try again").Because(err)
}

// faultOf is [fault] for a Put: a failure of the source is not the store's.
func faultOf(s *source, err error) error {
	if s.failed != nil {
		return err
	}
	return fault(s.ctx, err)
}
