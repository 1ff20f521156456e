package web

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// attachment serves a message's file to members of its organization and to holders of a
// signed link. The sender chose its bytes and type, so it is always a download that no
// browser renders on our origin.
func (s *Site) attachment(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("sig") {
		s.sharedFile(w, r)
		return
	}
	ctx, err := s.gate.Authenticate(w, r)
	if problem.Of(err) == problem.Unauthorized || code(err) == account.SecondFactorSetupRequired {
		s.showMessage(w, r, http.StatusUnauthorized, "Sign in first", "Attachments are visible to members of the organization only.", "")
		return
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	id, _ := account.FromContext(ctx)
	a, content, err := s.desk.OpenAttachment(ctx, id.OrganizationID, r.PathValue("id"))
	s.serveFile(w, r, &a, content, err)
}

// sharedFile serves a file by its signed link: to a provider that forwards it to a
// customer, or to a webhook receiver.
func (s *Site) sharedFile(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	a, content, err := s.desk.OpenShared(r.Context(), r.PathValue("id"), q.Get("until"), q.Get("sig"))
	s.serveFile(w, r, &a, content, err)
}

// File serves a file to a member as a download, or the reason why it could not be opened: err.
func (a *Section) File(w http.ResponseWriter, r *Request, f *desk.Attachment, content io.ReadCloser, err error) {
	a.site.serveFile(w, r.Request, f, content, err)
}

// serveFile serves a file as a download, or the reason why it could not be opened. It forbids
// caching: the file may be a customer's passport on a shared computer.
func (s *Site) serveFile(w http.ResponseWriter, r *http.Request, a *desk.Attachment, content io.ReadCloser, err error) {
	e, ok := errors.AsType[*problem.Error](err)
	switch {
	case ok && e.Kind == problem.NotFound && e.RetryAfter > 0:
		w.Header().Set("Retry-After", strconv.Itoa(int(e.RetryAfter.Seconds())))
		s.showMessage(w, r, http.StatusNotFound, "Not here yet", "This file is still being fetched from where it was sent.", "Try again in a moment.")
		return
	case ok && e.Kind == problem.NotFound:
		s.notFound(w, r)
		return
	case err != nil:
		s.fail(w, r, err)
		return
	}
	defer content.Close()
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
	h.Set("Cache-Control", "private, no-store")
	h.Set("Referrer-Policy", "no-referrer")
	_, _ = io.Copy(w, content)
}
