package web

import (
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// attachment serves a file that came with a message, to members of the
// organization that got it. Whoever sent it chose its bytes and its type, so it
// is handed over for saving, and no browser may run it as a page of ours.
func (s *Site) attachment(w http.ResponseWriter, r *http.Request) {
	ctx, err := s.gate.Authenticate(w, r)
	if problem.Of(err) == problem.Unauthorized {
		s.message(w, r, http.StatusUnauthorized, "Sign in first", "Attachments are for the members of the organization.", "")
		return
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	id, _ := account.FromContext(ctx)
	a, content, err := s.desk.OpenAttachment(ctx, id.OrganizationID, r.PathValue("id"))
	if problem.Of(err) == problem.NotFound {
		s.notFound(w, r)
		return
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer content.Close()
	serveFile(w, &a, content, "private, max-age=31536000, immutable") // the bytes behind an id never change
}

// sharedFile serves a file to whoever has a link to it: a provider that shall hand
// it on to a customer. It may be a customer's, so nothing keeps it on the way.
func (s *Site) sharedFile(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	a, content, err := s.desk.OpenShared(r.Context(), r.PathValue("id"), q.Get("until"), q.Get("sig"))
	if problem.Of(err) == problem.NotFound {
		s.notFound(w, r)
		return
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer content.Close()
	serveFile(w, &a, content, "private, no-store")
}

// serveFile hands a file over for saving.
func serveFile(w http.ResponseWriter, a *desk.Attachment, content io.Reader, cache string) {
	disposition := mime.FormatMediaType("attachment", map[string]string{"filename": a.Name})
	if disposition == "" {
		disposition = "attachment"
	}
	h := w.Header()
	h.Set("Content-Type", a.SafeType())
	h.Set("Content-Length", strconv.FormatInt(a.Size, 10))
	h.Set("Content-Disposition", disposition)
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", cache)
	h.Set("Referrer-Policy", "no-referrer")
	_, _ = io.Copy(w, content)
}
