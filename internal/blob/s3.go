package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// S3 is a store in a bucket of Amazon S3 or a compatible server.
type S3 struct {
	client minio.Core
	bucket string
	prefix string
}

const (
	// s3Attempts is the number of attempts per request, with pauses that double from 0.2 s.
	// Further retries are up to the caller.
	s3Attempts = 4

	// inMemory is the size in bytes up to which content is buffered in memory, rather than on
	// disk, until its digest is known.
	inMemory = 1 << 20
)

// openS3 returns the store of u; see [Open].
func openS3(u *url.URL, creds Credentials) (*S3, error) {
	if u.Path != "" && u.Path != "/" {
		return nil, errors.New("blob store: an s3 URL has no path: write s3://BUCKET?prefix=PATH/")
	}
	bucket := u.Host
	if err := s3utils.CheckValidBucketName(bucket); err != nil {
		return nil, fmt.Errorf("blob store: bucket %q: %w", bucket, err)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("blob store: s3 URL: %w", err)
	}
	for name := range query {
		switch name {
		case "endpoint", "region", "prefix":
		default:
			return nil, fmt.Errorf("blob store: s3 URL: unknown parameter %q", name)
		}
	}
	if u.User != nil {
		secret, _ := u.User.Password()
		creds = Credentials{AccessKey: u.User.Username(), SecretKey: secret}
	}
	if creds.AccessKey == "" || creds.SecretKey == "" {
		return nil, errors.New("blob store: s3 needs an access key and a secret key, in the URL or as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}

	endpoint, region := query.Get("endpoint"), query.Get("region")
	if endpoint == "" {
		endpoint = "s3.amazonaws.com" // global endpoint that reports a bucket's region
	} else if region == "" {
		region = "us-east-1" // expected by servers without regions
	}
	secure := true
	if rest, ok := strings.CutPrefix(endpoint, "http://"); ok {
		endpoint, secure = rest, false
	}
	endpoint = strings.TrimSuffix(strings.TrimPrefix(endpoint, "https://"), "/")

	client, err := minio.NewCore(endpoint, &minio.Options{
		Creds:      credentials.NewStaticV4(creds.AccessKey, creds.SecretKey, creds.SessionToken),
		Secure:     secure,
		Region:     region,
		MaxRetries: s3Attempts,
	})
	if err != nil {
		return nil, fmt.Errorf("blob store: endpoint: %w", err)
	}
	return &S3{client: *client, bucket: bucket, prefix: query.Get("prefix")}, nil
}

// Put implements [Store]. The server checks the content against the digest.
func (s *S3) Put(ctx context.Context, r io.Reader) (Ref, error) {
	from := &source{ctx: ctx, r: r}
	content, ref, cleanUp, err := spool(from)
	if err != nil {
		return Ref{}, fmt.Errorf("store blob: %w", faultOf(from, err))
	}
	defer cleanUp()
	_, err = s.client.PutObject(ctx, s.bucket, s.prefix+ref.Key, content, ref.Size, "", ref.Key, minio.PutObjectOptions{
		ContentType: "application/octet-stream", // content types are in the database
		// This enables the chunked signature, for content without a known digest.
		DisableContentSha256: true,
	})
	if err != nil {
		return Ref{}, fmt.Errorf("store blob %s: %w", ref.Key, fault(ctx, err))
	}
	return ref, nil
}

// spool reads r to its end and returns its content from the start, seekable for retries. The
// content is valid until cleanUp, which is nil only after an error.
func spool(r io.Reader) (content io.ReadSeeker, ref Ref, cleanUp func(), err error) {
	digest := sha256.New()
	var head bytes.Buffer
	size, err := io.Copy(io.MultiWriter(&head, digest), io.LimitReader(r, inMemory))
	if err != nil {
		return nil, Ref{}, nil, err
	}
	if size < inMemory {
		return bytes.NewReader(head.Bytes()), Ref{hex.EncodeToString(digest.Sum(nil)), size}, func() {}, nil
	}

	f, err := os.CreateTemp("", "kickstand-blob-*")
	if err != nil {
		return nil, Ref{}, nil, err
	}
	cleanUp = func() {
		f.Close()
		os.Remove(f.Name())
	}
	if _, err = f.Write(head.Bytes()); err == nil {
		var rest int64
		rest, err = io.Copy(io.MultiWriter(f, digest), r)
		size += rest
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		cleanUp()
		return nil, Ref{}, nil, err
	}
	return f, Ref{hex.EncodeToString(digest.Sum(nil)), size}, cleanUp, nil
}

// Open implements [Store].
func (s *S3) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	if !validKey(key) {
		return nil, ErrNotFound
	}
	content, _, _, err := s.client.GetObject(ctx, s.bucket, s.prefix+key, minio.GetObjectOptions{})
	if err != nil {
		if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
			return nil, ErrNotFound
		}
		return nil, fmt.Errorf("open blob: %w", fault(ctx, err))
	}
	return opened{content, ctx}, nil
}

// Delete implements [Store].
func (s *S3) Delete(ctx context.Context, key string) error {
	if !validKey(key) {
		return nil
	}
	err := s.client.RemoveObject(ctx, s.bucket, s.prefix+key, minio.RemoveObjectOptions{})
	if err != nil && minio.ToErrorResponse(err).Code != minio.NoSuchKey {
		return fmt.Errorf("delete blob: %w", fault(ctx, err))
	}
	return nil
}
