package app

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/rest"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
)

const (
	// minCompressed is the minimum size in bytes for compression: less fits into one
	// packet.
	minCompressed = 1024
	// padding is the maximum number of random bytes added to a compressed body, so that
	// its length reveals less of its content (BREACH).
	padding = 64
	// tagSuffix is inserted into entity tags of compressed bodies before the library's
	// "-gzip" or "-zstd": they are different representations (RFC 9110, section 8.8.3.3).
	tagSuffix = "-c"
)

// compressible lists the types of pages, assets, JSON, feeds and data for agencies. Exports,
// event streams and attachments are not compressed.
var compressible = []string{
	"text/html", "text/css", "text/javascript", "application/json", "application/problem+json", "image/svg+xml",
	"application/vnd.mds+json", "text/vnd.mds+csv",
}

// compressed compresses responses to GET by gzip or zstd, as the client prefers. It
// leaves a response unchanged if it is marked no-transform, because it shows a secret or
// belongs to a sign-in, or if it sets a cookie; if it is a file or a range; and if the
// request has cookies and may come from another site, which could infer content from the
// length.
func compressed(next http.Handler) (http.Handler, error) {
	wrap, err := gzhttp.NewWrapper(
		gzhttp.MinSize(minCompressed), gzhttp.ContentTypeFilter(isCompressible), gzhttp.SuffixETag(tagSuffix),
		gzhttp.RandomJitter(padding, -1, false), gzhttp.SetContentType(false),
		// A list of 100 records takes half the time of the default level, and a tenth more bytes.
		gzhttp.CompressionLevel(gzip.BestSpeed),
	)
	if err != nil {
		return nil, fmt.Errorf("compression: %w", err)
	}
	packing := wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&compressWriter{ResponseWriter: w, request: r, suffix: withoutSuffix(r.Header)}, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		safe := r.Method == http.MethodGet || r.Method == http.MethodHead
		if !safe || r.Header.Get("Range") != "" || strings.Contains(r.Header.Get("Accept"), "text/event-stream") || maybeCrossSite(r) {
			withoutSuffix(r.Header)
			next.ServeHTTP(w, r)
			return
		}
		packing.ServeHTTP(w, r)
	}), nil
}

func isCompressible(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return slices.Contains(compressible, kind)
}

// maybeCrossSite reports whether a request has cookies and no proof of being same-site.
func maybeCrossSite(r *http.Request) bool {
	if r.Header.Get("Cookie") == "" {
		return false
	}
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "same-origin" && site != "none"
}

// withoutSuffix removes the suffix of compression from the tags of If-Match and
// If-None-Match, and returns it; empty: none.
func withoutSuffix(h http.Header) string {
	found := ""
	for _, name := range []string{"If-Match", "If-None-Match"} {
		for i, line := range h[name] {
			for _, suffix := range []string{tagSuffix + "-gzip", tagSuffix + "-zstd"} {
				if plain := strings.ReplaceAll(line, suffix+`"`, `"`); plain != line {
					line, found = plain, suffix
				}
			}
			h[name][i] = line
		}
	}
	return found
}

// compressWriter decides by the header of a response whether to compress it. It wraps the
// writer below [gzhttp.GzipResponseWriter] and controls it by a header, which it removes.
type compressWriter struct {
	http.ResponseWriter
	request *http.Request
	suffix  string // of the client's tag; empty: none
	decided bool
	empty   bool // discards the body: a response to HEAD
}

// Unwrap supports [http.ResponseController].
func (j *compressWriter) Unwrap() http.ResponseWriter { return j.ResponseWriter }

func (j *compressWriter) WriteHeader(status int) {
	if status >= 200 && !j.decided {
		j.decided = true
		j.decide(status)
	}
	j.ResponseWriter.WriteHeader(status)
}

func (j *compressWriter) Write(b []byte) (int, error) {
	if !j.decided {
		j.WriteHeader(http.StatusOK)
	}
	if j.empty {
		return len(b), nil
	}
	return j.ResponseWriter.Write(b)
}

func (j *compressWriter) decide(status int) {
	h := j.Header()
	disposition := h.Get("Content-Disposition")
	switch {
	case status == http.StatusNotModified:
		// The tag of the representation that the client has.
		if tag, ok := strings.CutSuffix(h.Get("ETag"), `"`); ok && j.suffix != "" {
			h.Set("ETag", tag+j.suffix+`"`)
		}
	case len(h["Set-Cookie"]) > 0, strings.Contains(h.Get("Cache-Control"), "no-transform"), disposition != "" && disposition != rest.Disposition, h.Get("Accept-Ranges") != "":
		h.Set(gzhttp.HeaderNoCompression, "1")
	case j.request.Method == http.MethodHead && j.request.Header.Get("Accept-Encoding") != "" && isCompressible(h.Get("Content-Type")):
		// The length of the compressed GET response is unknown.
		j.empty = true
		if n, err := strconv.Atoi(h.Get("Content-Length")); err == nil && n >= minCompressed {
			h.Del("Content-Length")
		}
	}
}
