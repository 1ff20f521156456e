package app

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/gbfs"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/deskapi"

	"github.com/klauspost/compress/zstd"
)

// unpacked returns the decompressed body of a response.
func unpacked(t *testing.T, w *httptest.ResponseRecorder) []byte {
	t.Helper()
	var from io.Reader = bytes.NewReader(w.Body.Bytes())
	switch coding := w.Header().Get("Content-Encoding"); coding {
	case "":
	case "gzip":
		packed, err := gzip.NewReader(from)
		if err != nil {
			t.Fatal(err)
		}
		from = packed
	case "zstd":
		packed, err := zstd.NewReader(from)
		if err != nil {
			t.Fatal(err)
		}
		defer packed.Close()
		from = packed
	default:
		t.Fatalf("Content-Encoding %q", coding)
	}
	body, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// exchange sends a request with headers to a handler.
func exchange(h http.Handler, method, path string, header map[string]string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost:8080"+path, nil)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestCompressedSurfaces: pages, assets, JSON of both kinds of API and feeds are
// compressed as the client prefers, without loss.
func TestCompressedSurfaces(t *testing.T) {
	s := openStrict(t)
	if err := s.Fleet.Seed(t.Context(), fleet.Organization{ID: s.org.ID, Name: s.org.Name}); err != nil {
		t.Fatal(err)
	}
	_, key, err := s.Keys.Create(t.Context(), apikey.New{
		OrganizationID: s.org.ID, Service: apikey.Fleet, Environment: apikey.Live, Name: "Test", Permissions: apikey.Permissions{Level: apikey.Admin},
	})
	if err != nil {
		t.Fatal(err)
	}
	session := map[string]string{"Cookie": browser.AccessCookie + "=" + s.signIn(s.ada).Tokens.Access, "Sec-Fetch-Site": "same-origin"}
	bearer := map[string]string{"Authorization": "Bearer " + key.Reveal()}
	page := exchange(s.handler, "GET", "/inbox", session).Body.String()
	_, rest, _ := strings.Cut(page, `<link rel="stylesheet" href="`)
	style, _, _ := strings.Cut(rest, `"`)
	manifest := exchange(s.handler, "GET", gbfs.Path+"manifest.json", nil).Body.String()
	feed := regexp.MustCompile(gbfs.Path+`\w+/`).FindString(manifest) + "vehicle_status.json"
	for _, tt := range []struct {
		path   string
		header map[string]string
	}{
		{"/fleet/vehicles", session},
		{style, nil},
		{deskDocs, nil},
		{deskapi.Base + "/openapi.json", nil},
		{"/v1/vehicles?limit=20", bearer},
		{feed, nil},
	} {
		identity := exchange(s.handler, "GET", tt.path, tt.header)
		for _, accept := range []string{"", "gzip", "zstd", "gzip, zstd", "zstd;q=0, gzip", "br", "identity"} {
			if strings.HasPrefix(tt.path, gbfs.Path) && accept == "gzip, zstd" {
				continue // its cache has gzip
			}
			header := map[string]string{"Accept-Encoding": accept}
			maps.Copy(header, tt.header)
			w := exchange(s.handler, "GET", tt.path, header)
			want := map[string]string{"gzip": "gzip", "zstd": "zstd", "gzip, zstd": "zstd", "zstd;q=0, gzip": "gzip"}[accept]
			if got := w.Header().Get("Content-Encoding"); w.Code != 200 || got != want {
				t.Errorf("%s, accepting %q: %d, Content-Encoding %q, want %q", tt.path, accept, w.Code, got, want)
				continue
			}
			if !strings.Contains(strings.Join(w.Header().Values("Vary"), ","), "Accept-Encoding") {
				t.Errorf("%s, accepting %q: Vary is %q", tt.path, accept, w.Header().Values("Vary"))
			}
			if length := w.Header().Get("Content-Length"); length != "" && length != strconv.Itoa(w.Body.Len()) {
				t.Errorf("%s, accepting %q: %d bytes, Content-Length %s", tt.path, accept, w.Body.Len(), length)
			}
			if want != "" && w.Body.Len() > identity.Body.Len()/2 {
				t.Errorf("%s, accepting %q: %d bytes of %d are left", tt.path, accept, w.Body.Len(), identity.Body.Len())
			}
			if body := unpacked(t, w); len(body) != identity.Body.Len() {
				t.Errorf("%s, accepting %q: %d bytes come out, want %d", tt.path, accept, len(body), identity.Body.Len())
			}
		}
	}
}

// TestAgencyDataIsCompressed: JSON and reports for agencies, with the version in their types.
func TestAgencyDataIsCompressed(t *testing.T) {
	for _, kind := range []string{"application/vnd.mds+json;version=2.0", "text/vnd.mds+csv;version=2.0"} {
		h, err := compressed(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			io.WriteString(w, strings.Repeat("0,", 4*minCompressed))
		}))
		if err != nil {
			t.Fatal(err)
		}
		w := exchange(h, "GET", "/mds/v2/vehicles", map[string]string{"Accept-Encoding": "gzip"})
		if got := w.Header().Get("Content-Encoding"); got != "gzip" || w.Header().Get("Content-Type") != kind || len(unpacked(t, w)) != 8*minCompressed {
			t.Errorf("%s: got %q, %d bytes of %s", kind, got, w.Body.Len(), w.Header().Get("Content-Type"))
		}
	}
}

// TestSecretsAreNotCompressed: pages of sign-in, pages that show a secret, and responses
// to cross-site requests are not compressed.
func TestSecretsAreNotCompressed(t *testing.T) {
	s := openStrict(t)
	cookie := browser.AccessCookie + "=" + s.signIn(s.ada).Tokens.Access
	for _, tt := range []struct {
		path, cookie, site string
		packed             bool
	}{
		{"/inbox", cookie, "same-origin", true},
		{"/inbox", cookie, "none", true},
		{"/inbox", cookie, "same-site", false},
		{"/inbox", cookie, "cross-site", false},
		{"/inbox", cookie, "", false},
		{"/settings/security", cookie, "same-origin", true},
		{"/settings/security/totp", cookie, "same-origin", false},
		{"/sign-in", "", "same-origin", false},
		{"/sign-up?next=/tickets/0123456789abcdef", "", "none", false}, // longer than minCompressed
		{deskDocs, "", "cross-site", true},                             // public content
	} {
		header := map[string]string{"Accept-Encoding": "gzip, zstd"}
		if tt.cookie != "" {
			header["Cookie"] = tt.cookie
		}
		if tt.site != "" {
			header["Sec-Fetch-Site"] = tt.site
		}
		w := exchange(s.handler, "GET", tt.path, header)
		if got := w.Header().Get("Content-Encoding") != ""; w.Code != 200 || got != tt.packed || w.Body.Len() < minCompressed && !got {
			t.Errorf("%s from %q: %d, compressed: %t, want %t (%d bytes)", tt.path, tt.site, w.Code, got, tt.packed, w.Body.Len())
		}
	}
}

// kinds serves kinds of responses by path.
func kinds(t *testing.T) http.Handler {
	t.Helper()
	body := []byte(strings.Repeat("all work and no play ", 1000))
	answer := func(header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.Write(body)
		}
	}
	mux := http.NewServeMux()
	const json = "application/json"
	mux.Handle("/json", answer("Content-Type", json, "Content-Length", strconv.Itoa(len(body))))
	mux.Handle("/api", answer("Content-Type", json, "Content-Disposition", rest.Disposition))
	mux.Handle("/download", answer("Content-Type", json, "Content-Disposition", `attachment; filename="fleet.json"`))
	mux.Handle("/cookie", answer("Content-Type", "text/html", "Set-Cookie", "a=b"))
	mux.Handle("/secret", answer("Content-Type", "text/html", "Cache-Control", "no-store, no-transform"))
	mux.Handle("/ranges", answer("Content-Type", "text/html", "Accept-Ranges", "bytes"))
	mux.Handle("/part", answer("Content-Type", "text/html", "Content-Range", "bytes 0-9/10"))
	mux.Handle("/picture", answer("Content-Type", "image/png"))
	mux.Handle("/lines", answer("Content-Type", "application/x-ndjson"))
	mux.Handle("/packed", answer("Content-Type", json, "Content-Encoding", "gzip"))
	mux.Handle("/events", answer("Content-Type", "text/event-stream"))
	mux.Handle("/small", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", json)
		w.Write(body[:minCompressed-1])
	}))
	mux.Handle("/tagged", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		if r.Header.Get("If-None-Match") == `"v1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		if match := r.Header.Get("If-Match"); match != "" && match != `"v1"` {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		answer("Content-Type", json)(w, r)
	}))
	h, err := compressed(mux)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestCompressedKinds covers compressed and uncompressed responses.
func TestCompressedKinds(t *testing.T) {
	h := kinds(t)
	packed := map[string]bool{"/json": true, "/api": true, "/tagged": true}
	for _, path := range []string{"/json", "/api", "/download", "/cookie", "/secret", "/ranges", "/part", "/picture", "/lines", "/packed", "/events", "/small", "/tagged"} {
		plain := exchange(h, "GET", path, nil)
		for _, coding := range []string{"gzip", "zstd"} {
			w := exchange(h, "GET", path, map[string]string{"Accept-Encoding": coding})
			if got := w.Header().Get("Content-Encoding") == coding && path != "/packed"; got != packed[path] {
				t.Errorf("%s by %s: compressed: %t, want %t", path, coding, got, packed[path])
			}
			if !packed[path] && !bytes.Equal(w.Body.Bytes(), plain.Body.Bytes()) || packed[path] && !bytes.Equal(unpacked(t, w), plain.Body.Bytes()) {
				t.Errorf("%s by %s is another body", path, coding)
			}
			if w.Header().Get("No-Gzip-Compression") != "" {
				t.Errorf("%s by %s shows a header that is for the library", path, coding)
			}
		}
		if w := exchange(h, "POST", path, map[string]string{"Accept-Encoding": "gzip"}); !bytes.Equal(w.Body.Bytes(), plain.Body.Bytes()) {
			t.Errorf("POST %s is another body", path)
		}
	}
	if w := exchange(h, "GET", "/json", map[string]string{"Accept-Encoding": "gzip", "Range": "bytes=0-9"}); w.Header().Get("Content-Encoding") != "" {
		t.Error("the answer to a request for a range is compressed")
	}
}

// TestCompressedHead: a HEAD response has the headers of the GET, without a length that
// is unknown, and without a body, from which net/http would take one.
func TestCompressedHead(t *testing.T) {
	h := kinds(t)
	for accept, length := range map[string]string{"gzip": "", "": "21000"} {
		w := exchange(h, "HEAD", "/json", map[string]string{"Accept-Encoding": accept})
		if got := w.Header().Get("Content-Length"); got != length || w.Header().Get("Content-Encoding") != "" || w.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("accepting %q: Content-Length %q, want %q; header %v", accept, got, length, w.Header())
		}
		if accept != "" && w.Body.Len() > 0 {
			t.Errorf("accepting %q: a body of %d bytes is written", accept, w.Body.Len())
		}
	}
}

// TestCompressedTags: a compressed body has its own tag, which works for conditional
// requests.
func TestCompressedTags(t *testing.T) {
	h := kinds(t)
	for _, coding := range []string{"gzip", "zstd"} {
		tag := exchange(h, "GET", "/tagged", map[string]string{"Accept-Encoding": coding}).Header().Get("ETag")
		if tag == `"v1"` || !strings.Contains(tag, coding) {
			t.Errorf("%s has the tag %s", coding, tag)
		}
		again := exchange(h, "GET", "/tagged", map[string]string{"Accept-Encoding": coding, "If-None-Match": tag})
		if again.Code != http.StatusNotModified || again.Header().Get("ETag") != tag || again.Header().Get("Content-Encoding") != "" || again.Body.Len() > 0 {
			t.Errorf("%s: %d with %v", tag, again.Code, again.Header())
		}
		if w := exchange(h, "PUT", "/tagged", map[string]string{"If-Match": tag}); w.Code != http.StatusOK {
			t.Errorf("If-Match: %s is answered %d", tag, w.Code)
		}
	}
	if w := exchange(h, "PUT", "/tagged", map[string]string{"If-Match": `"v0-c-gzip"`}); w.Code != http.StatusPreconditionFailed {
		t.Errorf("a wrong tag is answered %d", w.Code)
	}
}

// TestCompressedLengthVaries: the length of a compressed body reveals less of its
// content.
func TestCompressedLengthVaries(t *testing.T) {
	h := kinds(t)
	for _, coding := range []string{"gzip", "zstd"} {
		lengths := map[int]bool{}
		for range 50 {
			lengths[exchange(h, "GET", "/json", map[string]string{"Accept-Encoding": coding}).Body.Len()] = true
		}
		if len(lengths) < 10 {
			t.Errorf("%s: only the lengths %v", coding, lengths)
		}
	}
}

// TestCompressedFlush: a flush reaches the client at once, compressed or not.
func TestCompressedFlush(t *testing.T) {
	for _, kind := range []string{"application/json", "application/x-ndjson", "text/event-stream"} {
		step := make(chan struct{})
		h, err := compressed(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			io.WriteString(w, "first\n")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			<-step
			io.WriteString(w, "second\n")
		}))
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(h)
		r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultTransport.RoundTrip(r) // requests gzip and decompresses it
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, 6)
		if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first\n" {
			t.Errorf("%s: got %q, %v before the end", kind, first, err)
		}
		close(step)
		if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "second\n" {
			t.Errorf("%s: got %q, %v at the end", kind, rest, err)
		}
		resp.Body.Close()
		server.Close()
	}
}

// TestCompressedAbort: an aborted response is recognizably incomplete.
func TestCompressedAbort(t *testing.T) {
	noise := make([]byte, 100_000)
	for i := range noise {
		noise[i] = byte(rand.IntN(256))
	}
	h, err := compressed(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(noise)
		panic(http.ErrAbortHandler)
	}))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	resp, err := http.Get(server.URL)
	if err == nil {
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
	}
	if err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the client sees %v, want a broken connection", err)
	}
}
