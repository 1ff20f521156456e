package blobtest

import (
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// S3 is a bucket in memory.
type S3 struct {
	URL string // of the store, with credentials

	mu      sync.Mutex
	objects map[string][]byte // by key
	puts    int
	away    bool
}

// NewS3 starts a server with one bucket, closed at the end of the test.
func NewS3(t testing.TB) *S3 {
	s := &S3{objects: make(map[string][]byte)}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = "s3://access:secret@bucket?prefix=kickstand/&endpoint=" + server.URL
	return s
}

// SetAway has the server end every connection without an answer, or answer again.
func (s *S3) SetAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// Puts returns the number of stored objects, repeated ones included.
func (s *S3) Puts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.puts
}

// Keys returns the keys of all objects, sorted.
func (s *S3) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// Delete removes an object.
func (s *S3) Delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, key)
}

// ServeHTTP implements [http.Handler].
func (s *S3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		panic(http.ErrAbortHandler)
	}
	key, ok := strings.CutPrefix(r.URL.Path, "/bucket/")
	switch {
	case !ok || err != nil:
		w.WriteHeader(http.StatusBadRequest)
	case key == "":
		s.list(w, r.FormValue("prefix"))
	case r.Method == http.MethodPut:
		s.objects[key] = body
		s.puts++
		w.Header().Set("ETag", `"etag"`)
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case s.objects[key] == nil:
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, "<Error><Code>NoSuchKey</Code></Error>")
	default: // GET, HEAD
		w.Header().Set("ETag", `"etag"`)
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		w.Header().Set("Content-Length", strconv.Itoa(len(s.objects[key])))
		if r.Method == http.MethodGet {
			w.Write(s.objects[key])
		}
	}
}

func (s *S3) list(w http.ResponseWriter, prefix string) {
	type content struct {
		Key  string
		Size int
	}
	result := struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Contents []content
	}{}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasPrefix(key, prefix) {
			result.Contents = append(result.Contents, content{key, len(s.objects[key])})
		}
	}
	w.Header().Set("Content-Type", "application/xml")
	xml.NewEncoder(w).Encode(result)
}
