package app

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/app/doctor"
)

// forwardedLife is the time for which a recorded request causes a warning.
const forwardedLife = 7 * 24 * time.Hour

// forwardedPath is the file in which the server records such requests for the command
// `doctor`.
func (c Config) forwardedPath() string { return filepath.Join(c.Data, "forwarded.json") }

// proxyMonitor counts requests with X-Forwarded-For from peers that are not trusted
// proxies: all clients behind an unlisted proxy share its limits.
type proxyMonitor struct {
	trusted []netip.Prefix
	path    string
	log     *slog.Logger

	mu   sync.Mutex
	seen doctor.Forwarded
	next int64 // count at which to write the file
}

// watch counts requests to next. It logs the first one and writes the file at each power
// of ten.
func (f *proxyMonitor) watch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header["X-Forwarded-For"]) > 0 {
			if peer := browser.ClientIP(r, nil); !slices.ContainsFunc(f.trusted, func(p netip.Prefix) bool { return p.Contains(peer) }) {
				f.count(r, peer)
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (f *proxyMonitor) count(r *http.Request, peer netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen.Count++
	if f.seen.Count < f.next {
		return
	}
	f.next = max(f.seen.Count, 1) * 10
	f.seen.Peer, f.seen.At = peer, time.Now()
	if f.seen.Count == 1 {
		f.log.WarnContext(r.Context(), "a request with X-Forwarded-For came from an address that is not in trusted-proxies: if that is a proxy, all clients share its limits",
			"event", "proxy.untrusted", "address", peer.String())
	}
	text, err := json.Marshal(f.seen)
	if err == nil {
		err = os.WriteFile(f.path, append(text, '\n'), 0o600)
	}
	if err != nil {
		f.log.WarnContext(r.Context(), "note of an untrusted proxy not written", "error", err)
	}
}

// forwarded returns the recorded requests, unless they are old or their peer is trusted
// now.
func (c Config) forwarded() doctor.Forwarded {
	var seen doctor.Forwarded
	text, err := os.ReadFile(c.forwardedPath())
	if err != nil || json.Unmarshal(text, &seen) != nil || time.Since(seen.At) > forwardedLife ||
		slices.ContainsFunc(c.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(seen.Peer) }) {
		return doctor.Forwarded{}
	}
	return seen
}
