// Package gbfs serves the public feed of the fleet: GBFS 3.0 (MobilityData), and 2.3
// for older readers, made of the public reads of package fleet (fleet-api.md 9).
//
// Each subaccount with an enabled feed is a system. A file is generated on request
// and cached for half of its time to live, at most 15 seconds. A change of the subaccount
// or of a zone invalidates its files at once: each request reads the system for that, which
// is one small read, and nothing else while the file is cached.
package gbfs

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/cache"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Paths of the feeds of production and sandbox: of GBFS 3.0, and of 2.3.
const (
	basePath      = "/gbfs/"
	Path          = basePath + "v3/"
	SandboxPath   = "/sandbox" + Path
	Path23        = basePath + "2.3/"
	SandboxPath23 = "/sandbox" + Path23
)

// Feed serves the public feed of one environment. It is safe for concurrent use.
type Feed struct {
	service *fleet.Service
	prefix  string // of the paths of all versions: "/gbfs/"
	base    string // its URL without a trailing slash
	log     *slog.Logger

	editions []edition
	cache    *cache.Cache[string, *cacheEntry] // by version, system and file
}

// cacheEntry is a generated file. Its lock is held during generation, so that
// concurrent requests share one.
type cacheEntry struct {
	mu      sync.Mutex
	stamp   int64
	until   time.Time
	updated time.Time
	data    [sha256.Size]byte // digest of the content of the envelope
	body    []byte
	packed  []byte // gzip
	tag     string
}

// maxCacheBytes is the size limit of the cache.
const maxCacheBytes = 64 << 20

func (k *cacheEntry) size() int { return 1024 + len(k.body) + len(k.packed) } // with the key

// New returns the feed of one environment, in all versions. origin is the server's URL,
// "https://help.example.com", and path the one of GBFS 3.0: [Path] or [SandboxPath].
func New(service *fleet.Service, origin, path string, log *slog.Logger) *Feed {
	prefix := strings.TrimSuffix(path, "v3/")
	return &Feed{
		service: service, prefix: prefix, base: origin + strings.TrimSuffix(prefix, "/"), log: log,
		editions: editions(), cache: cache.NewSized[string](maxCacheBytes, 0, (*cacheEntry).size),
	}
}

// ServeHTTP implements [http.Handler] for the paths of all versions.
func (f *Feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		writeError(w, http.StatusMethodNotAllowed, "the feed is read with GET")
		return
	}
	got, ttl, err := f.resolve(r.Context(), strings.TrimPrefix(r.URL.Path, f.prefix))
	switch {
	case problem.Of(err) == problem.NotFound:
		writeError(w, http.StatusNotFound, "there is no such system or file; see "+f.base+"/v3/manifest.json")
		return
	case err != nil && r.Context().Err() != nil && errors.Is(err, context.Canceled):
		return // the client is gone
	case err != nil:
		level := slog.LevelError
		if problem.Of(err) == problem.Unavailable {
			level = slog.LevelDebug // logged by the database
		}
		f.log.Log(r.Context(), level, "public feed", "path", r.URL.Path, "error", err)
		w.Header().Set("Retry-After", "5")
		writeError(w, http.StatusServiceUnavailable, "the feed cannot be made right now")
		return
	}
	got.serve(w, r, ttl)
}

func writeError(w http.ResponseWriter, status int, why string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	fmt.Fprintln(w, why)
}

// resolve returns the file at a path below the prefix and its time to live in
// seconds. Error: NotFound.
func (f *Feed) resolve(ctx context.Context, path string) (*cacheEntry, int, error) {
	if path == "v3/manifest.json" {
		got, err := f.manifest(ctx)
		return got, manifestTTL, err
	}
	none := problem.New(problem.NotFound, "there is no such file")
	dir, path, _ := strings.Cut(path, "/")
	systemID, name, ok := strings.Cut(path, "/")
	name, isJSON := strings.CutSuffix(name, ".json")
	if !ok || !isJSON || strings.IndexByte(systemID, 0) >= 0 {
		return nil, 0, none
	}
	for i := range f.editions {
		e := &f.editions[i]
		if e.dir != dir {
			continue
		}
		for _, wanted := range e.files {
			if wanted.name != name {
				continue
			}
			system, err := f.service.System(ctx, systemID)
			if err != nil {
				return nil, 0, err
			}
			got, err := f.file(ctx, e, &system, wanted)
			return got, wanted.ttl, err
		}
	}
	return nil, 0, none
}

// manifestTTL is the time to live of the manifest in seconds.
const manifestTTL = 300

// manifest returns the manifest, which only GBFS 3.0 has.
func (f *Feed) manifest(ctx context.Context) (*cacheEntry, error) {
	latest := &f.editions[len(f.editions)-1]
	return f.cached(latest, "manifest.json", 0, manifestTTL, f.service.RealTime(), func() (any, error) {
		systems, err := f.service.Systems(ctx)
		data := manifest{Datasets: []dataset{}}
		for _, s := range systems {
			id := s.Subaccount.PublicSystemID()
			d := dataset{SystemID: id}
			for _, e := range f.editions {
				d.Versions = append(d.Versions, link{Version: e.version, URL: f.base + "/" + e.dir + "/" + id + "/gbfs.json"})
			}
			data.Datasets = append(data.Datasets, d)
		}
		return data, err
	})
}

func (f *Feed) file(ctx context.Context, e *edition, system *fleet.System, wanted file) (*cacheEntry, error) {
	return f.cached(e, string(system.Subaccount.GBFS.SystemID)+"/"+wanted.name, system.Stamp, wanted.ttl, system.Now, func() (any, error) {
		o := &source{service: f.service, system: system, base: f.base, edition: e}
		if wanted.name == "system_information" {
			systems, err := f.service.Systems(ctx)
			if err != nil {
				return nil, err
			}
			o.several = len(systems) > 1
		}
		return wanted.data(ctx, o)
	})
}

// cached returns a cached file, generating it if necessary.
func (f *Feed) cached(e *edition, name string, stamp int64, ttl int, now time.Time, fill func() (any, error)) (*cacheEntry, error) {
	key := e.dir + "/" + name
	k, _ := f.cache.GetOrPut(key, new(cacheEntry))
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.body != nil && k.stamp == stamp && time.Now().Before(k.until) {
		return k.copy(), nil
	}
	data, err := fill()
	if err != nil {
		return nil, err
	}
	text, err := encode(data)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, err)
	}
	if digest := sha256.Sum256(text); k.body == nil || digest != k.data {
		k.data, k.updated = digest, now
	}
	if k.body, err = encode(envelope{e.updated(k.updated), ttl, e.version, text}); err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(k.body) // a buffer: cannot fail
	z.Close()
	k.packed = b.Bytes()
	sum := sha256.Sum256(k.body)
	k.tag = `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	k.stamp = stamp
	k.until = time.Now().Add(min(15*time.Second, time.Duration(ttl)*time.Second/2))
	f.cache.Put(key, k, f.cache.Start()) // with its size
	return k.copy(), nil
}

// copy returns an immutable copy to serve.
func (k *cacheEntry) copy() *cacheEntry {
	return &cacheEntry{body: k.body, packed: k.packed, tag: k.tag}
}

func (k *cacheEntry) serve(w http.ResponseWriter, r *http.Request, ttl int) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "public, max-age="+strconv.Itoa(ttl))
	h.Set("Vary", "Accept-Encoding")
	h.Set("Access-Control-Allow-Origin", "*") // all files are public
	body, tag := k.body, k.tag
	if acceptsGzip(r.Header.Values("Accept-Encoding")) {
		body, tag = k.packed, strings.TrimSuffix(k.tag, `"`)+`-gzip"`
	}
	h.Set("ETag", tag)
	for _, line := range r.Header.Values("If-None-Match") {
		for candidate := range strings.SplitSeq(line, ",") {
			candidate = strings.TrimPrefix(strings.TrimSpace(candidate), "W/")
			if candidate == "*" || candidate == tag {
				w.WriteHeader(http.StatusNotModified)
				return
			}
		}
	}
	if tag != k.tag {
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		w.Write(body)
	}
}

// acceptsGzip parses the Accept-Encoding header.
func acceptsGzip(lines []string) bool {
	for _, line := range lines {
		for part := range strings.SplitSeq(line, ",") {
			coding, params, _ := strings.Cut(part, ";")
			coding = strings.ToLower(strings.TrimSpace(coding))
			if coding != "gzip" && coding != "*" {
				continue
			}
			_, q, weighed := strings.Cut(params, "=")
			weight, err := strconv.ParseFloat(strings.TrimSpace(cmp.Or(q, "1")), 64)
			return !weighed || err == nil && weight > 0
		}
	}
	return false
}
