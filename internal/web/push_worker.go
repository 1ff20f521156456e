package web

import "net/http"

// pushWorkerPath is the path of the service worker. Its folder is its scope: the whole site.
const pushWorkerPath = "/push-worker.js"

// pushWorker serves the service worker that shows notices. Browsers ask for it again whenever they
// look for a newer one, so its path has no hash.
func (s *Site) pushWorker(w http.ResponseWriter, r *http.Request) {
	f := s.assets.files["push-worker.js"]
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-cache")
	_, _ = w.Write(f.content)
}
