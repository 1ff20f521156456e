package app

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/rest"

	"github.com/klauspost/compress/gzhttp"
)

const (
	// minCompressed is the size in bytes from which a body is compressed: less fits
	// into one packet anyway.
	minCompressed = 1024
	// padding is how many random bytes are added to a compressed body, at most, so that
	// its length says less about what is in it (BREACH).
	padding = 64
	// tagSuffix is put into entity tags of compressed bodies, in front of the library's
	// "-gzip" or "-zstd": they are other representations (RFC 9110, section 8.8.3.3).
	tagSuffix = "-c"
)

// compressible are the types of pages, their assets, JSON and feeds. Exports, streams
// of events and files of others are none of them.
var compressible = []string{"text/html", "text/css", "text/javascript", "application/json", "application/problem+json", "image/svg+xml"}

// compressed has answers to GET compressed by gzip or zstd, as the client prefers.
// An answer is left alone if it says no-transform, because it shows a secret or is part
// of signing in, or sets a cookie; if it is a file or a part of one; and if the request
// has cookies and may come from another site, which could infer the content from the
// length.
func compressed(next http.Handler) (http.Handler, error) {
	wrap, err := gzhttp.NewWrapper(
		gzhttp.MinSize(minCompressed), gzhttp.ContentTypeFilter(isCompressible), gzhttp.SuffixETag(tagSuffix),
		gzhttp.RandomJitter(padding, -1, false), gzhttp.SetContentType(false),
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

// maybeCrossSite reports whether a request has cookies, and nothing says that no page of
// another site made it.
func maybeCrossSite(r *http.Request) bool {
	if r.Header.Get("Cookie") == "" {
		return false
	}
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "same-origin" && site != "none"
}

// withoutSuffix takes what compression added off the tags of If-Match and
// If-None-Match, and returns what it was; empty: nothing.
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

// compressWriter decides by the header of an answer whether it may be compressed. It is below
// [gzhttp.GzipResponseWriter], which is told by a header that it removes.
type compressWriter struct {
	http.ResponseWriter
	request *http.Request
	suffix  string // of the tag that the client has; empty: none
	decided bool
	empty   bool // what is written is left out: it is the answer to a HEAD
}

// Unwrap is for [http.ResponseController].
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
		// A GET would be answered with another length, which is not known.
		j.empty = true
		if n, err := strconv.Atoi(h.Get("Content-Length")); err == nil && n >= minCompressed {
			h.Del("Content-Length")
		}
	}
}
