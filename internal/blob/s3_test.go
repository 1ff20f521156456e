package blob_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/blob/blobtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// fakeS3 serves the object requests of one bucket from memory.
type fakeS3 struct {
	t *testing.T

	mu       sync.Mutex
	objects  map[string][]byte // by path
	requests int
	fail     []string // error codes for the next requests
	cutShort bool     // truncate contents
}

func newFakeS3(t *testing.T) (*fakeS3, *httptest.Server) {
	f := &fakeS3{t: t, objects: make(map[string][]byte)}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	return f, srv
}

func (f *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if !strings.Contains(r.Header.Get("Authorization"), "Credential=access/") {
		f.t.Errorf("%s %s is signed by %q", r.Method, r.URL, r.Header.Get("Authorization"))
	}
	if len(f.fail) > 0 {
		code := f.fail[0]
		f.fail = f.fail[1:]
		s3Error(w, code)
		return
	}
	if !strings.HasPrefix(r.URL.Path, "/attachments/") {
		s3Error(w, "NoSuchBucket")
		return
	}
	switch r.Method {
	case http.MethodPut:
		digest := sha256.Sum256(body)
		if err != nil || r.Header.Get("X-Amz-Content-Sha256") != hex.EncodeToString(digest[:]) {
			s3Error(w, "XAmzContentSHA256Mismatch")
			return
		}
		f.objects[r.URL.Path] = body
		w.Header().Set("ETag", `"etag"`)
	case http.MethodGet:
		content, ok := f.objects[r.URL.Path]
		if !ok {
			s3Error(w, "NoSuchKey")
			return
		}
		w.Header().Set("ETag", `"etag"`)
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		if f.cutShort {
			content = content[:len(content)/2]
		}
		w.Write(content)
	case http.MethodDelete:
		delete(f.objects, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	default:
		f.t.Errorf("unexpected %s %s", r.Method, r.URL)
	}
}

func s3Error(w http.ResponseWriter, code string) {
	status := map[string]int{
		"NoSuchKey": 404, "NoSuchBucket": 404, "AccessDenied": 403, "SlowDown": 503, "XAmzContentSHA256Mismatch": 400,
	}[code]
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>refused</Message></Error>", code)
}

func openS3(t *testing.T, rawURL string) blob.Store {
	t.Helper()
	s, err := blob.Open(rawURL, blob.Credentials{AccessKey: "access", SecretKey: "geheim"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestS3(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store {
		_, srv := newFakeS3(t)
		return openS3(t, "s3://attachments?endpoint="+srv.URL)
	})
}

func TestS3Keys(t *testing.T) {
	f, srv := newFakeS3(t)
	s := openS3(t, "s3://attachments?region=eu-central-1&prefix=kickstand/live-&endpoint="+srv.URL)
	if _, err := s.Put(t.Context(), strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	const want = "/attachments/kickstand/live-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	if got := slices.Collect(maps.Keys(f.objects)); len(got) != 1 || got[0] != want {
		t.Errorf("objects are %q, want %q", got, want)
	}
}

func TestS3Failures(t *testing.T) {
	const content = "some content"
	setUp := func(t *testing.T) (*fakeS3, blob.Store, blob.Ref) {
		f, srv := newFakeS3(t)
		s := openS3(t, "s3://attachments?endpoint="+srv.URL)
		ref, err := s.Put(t.Context(), strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		f.requests = 0
		return f, s, ref
	}

	t.Run("a busy server is asked again", func(t *testing.T) {
		f, s, ref := setUp(t)
		for _, size := range []int{20, 3 << 20} {
			f.fail = []string{"SlowDown"}
			big := strings.Repeat("x", size)
			stored, err := s.Put(t.Context(), strings.NewReader(big))
			if err != nil || stored.Size != int64(size) || string(f.objects["/attachments/"+stored.Key]) != big {
				t.Errorf("Put of %d bytes = %+v, %v", size, stored, err)
			}
		}
		f.fail = []string{"SlowDown"}
		r, err := s.Open(t.Context(), ref.Key)
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
	})
	t.Run("a refusal is not a missing file", func(t *testing.T) {
		f, s, _ := setUp(t)
		for _, code := range []string{"AccessDenied", "NoSuchBucket"} {
			f.fail = []string{code, code, code}
			blobtest.WantFault(t, s)
		}
		if f.requests != 6 {
			t.Errorf("%d requests, want 6: nothing is asked again", f.requests)
		}
	})
	t.Run("a broken connection is not the end of the file", func(t *testing.T) {
		f, s, ref := setUp(t)
		f.cutShort = true
		r, err := s.Open(t.Context(), ref.Key)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if got, err := io.ReadAll(r); problem.Of(err) != problem.Unavailable {
			t.Errorf("read %q and %v, want the kind Unavailable", got, err)
		}
	})
	t.Run("nothing is left on disk", func(t *testing.T) {
		tmp := t.TempDir()
		t.Setenv("TMPDIR", tmp)
		f, s, _ := setUp(t)
		big := strings.Repeat("x", 3<<20)
		if _, err := s.Put(t.Context(), strings.NewReader(big)); err != nil {
			t.Error(err)
		}
		f.fail = []string{"AccessDenied"}
		if _, err := s.Put(t.Context(), strings.NewReader(big)); err == nil {
			t.Error("Put succeeded")
		}
		if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
	})
}

func TestOpen(t *testing.T) {
	t.Chdir(t.TempDir())
	abs := t.TempDir()
	none, some := blob.Credentials{}, blob.Credentials{AccessKey: "access", SecretKey: "geheim"}
	tests := []struct {
		url   string
		creds blob.Credentials
		want  string // type, or error
	}{
		{"file:blobs", none, "*blob.Dir"},
		{"file:./sub/blobs", none, "*blob.Dir"},
		{"file:" + abs, none, "*blob.Dir"},
		{"file://" + abs, none, "*blob.Dir"},
		{"s3://bucket", some, "*blob.S3"},
		{"s3://bucket/", some, "*blob.S3"},
		{"s3://bucket?endpoint=minio.example:9000", some, "*blob.S3"},
		{"s3://bucket?endpoint=https://minio.example/&region=auto&prefix=a/b/", some, "*blob.S3"},
		{"s3://a:b%2F@bucket", none, "*blob.S3"},

		{"", none, "must be file:PATH or s3://"},
		{"blobs", none, "must be file:PATH or s3://"},
		{"gs://bucket", some, "must be file:PATH or s3://"},
		{"s3://a:geheim%zz@bucket", none, "must be file:PATH or s3://"},
		{"file:", none, "no folder given"},
		{"file://host/path", none, "a file URL has no host"},
		{"s3://bucket", none, "needs an access key and a secret key"},
		{"s3://onlyaccess@bucket", some, "needs an access key and a secret key"},
		{"s3://bucket/path", some, "an s3 URL has no path"},
		{"s3://", some, "bucket"},
		{"s3://b", some, "bucket"},
		{"s3://bucket?endpont=x", some, `unknown parameter "endpont"`},
		{"s3://bucket?endpoint=http://minio.example/path", some, "endpoint"},
	}
	for _, tt := range tests {
		s, err := blob.Open(tt.url, tt.creds)
		if d, ok := s.(*blob.Dir); ok {
			d.Close()
		}
		got := fmt.Sprintf("%T", s)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tt.want) || err != nil && strings.Contains(got, "geheim") {
			t.Errorf("Open(%q) = %s, want %s", tt.url, got, tt.want)
		}
	}
}
