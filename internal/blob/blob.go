// Package blob keeps files that never change: attachments, raw mails, recordings.
//
// A file is known by the SHA-256 of its content, so storing the same content twice
// stores it once, an interrupted write can simply be repeated, and a key says what
// must be found under it. A file is durable before [Store.Put] returns, so a
// database row may refer to it from then on; until such a row is committed the file
// is an orphan that costs space and nothing else.
//
// There are two stores: a folder and an S3 bucket. [Open] picks one by URL, and
// blobtest holds what both promise.
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

// Ref is what to remember of a stored file.
type Ref struct {
	Key  string // SHA-256 of the content, 64 lower-case hex digits
	Size int64  // bytes
}

// Store holds files by the digest of their content. It is safe for concurrent use,
// also by several processes.
//
// A store that cannot do its work (the disk is full, the bucket does not answer or
// refuses us) returns an error of kind [problem.Unavailable].
type Store interface {
	// Put reads r to its end and stores what it read. The file is complete and
	// durable once Put returns without error, and not there to be found unless
	// it was before when Put returns with one, except that an S3 server may
	// have accepted a file whose answer was lost. An error of r is wrapped.
	Put(ctx context.Context, r io.Reader) (Ref, error)

	// Open returns the content stored under key, for the caller to close, or
	// ErrNotFound, also for a key that no content can have. A read fails
	// rather than end early. Where the content can be sought it is an
	// [io.Seeker].
	Open(ctx context.Context, key string) (io.ReadCloser, error)

	// Delete removes what is stored under key; if there is nothing, that is no
	// error. As content is shared, the caller must know that no other record
	// refers to it, and that no Put of the same content is under way.
	Delete(ctx context.Context, key string) error
}

// Credentials sign requests to S3.
type Credentials struct {
	AccessKey    string
	SecretKey    string
	SessionToken string // of temporary credentials
}

// Open returns the store that a URL names:
//
//	file:PATH
//	s3://BUCKET?endpoint=HOST&region=REGION&prefix=PREFIX
//
// A folder is made if it is missing. For S3, endpoint is a host with an optional
// port, for https, or a URL of scheme http or https; without it, it is Amazon's.
// Keys begin with prefix, taken as it is. Credentials in the URL
// (s3://ACCESS:SECRET@BUCKET) win over those given, usually the AWS_ variables. The
// bucket is not contacted. Errors do not repeat the URL.
func Open(rawURL string, aws Credentials) (Store, error) {
	if path, ok := strings.CutPrefix(rawURL, "file:"); ok {
		if rest, ok := strings.CutPrefix(path, "//"); ok {
			if !strings.HasPrefix(rest, "/") {
				return nil, errors.New("blob store: a file URL has no host: write file:PATH or file:///PATH")
			}
			path = rest
		}
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

// validKey reports whether some content could have key.
func validKey(key string) bool {
	return len(key) == 64 && strings.Trim(key, "0123456789abcdef") == ""
}

// source reads what is to be stored. It fails once its context has ended, so that
// storing a long stream ends with the request that wanted it, and remembers its
// failure, which is none of the store's.
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

// opened is stored content. A read that fails is a failure of the store.
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

// faultOf is [fault] for a Put: the failure of what was to be stored is not the
// store's.
func faultOf(s *source, err error) error {
	if s.failed != nil {
		return err
	}
	return fault(s.ctx, err)
}
