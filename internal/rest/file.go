package rest

import (
	"io"
	"mime"
	"net/http"
	"strconv"
)

// fileContent is what a file is answered with.
type fileContent struct {
	name        string
	contentType string
	size        int64
	content     io.ReadCloser
}

// File answers with a file, for saving: no browser shows it as a page of ours. Its
// name and type may be a stranger's choice; content, of size bytes, is closed when
// it was sent. The route must say File.
func File(name, contentType string, size int64, content io.ReadCloser) Response {
	return Response{file: &fileContent{name, contentType, size, content}}
}

// sendFile streams a file. A failure cuts the transfer off.
func (a *API) sendFile(w http.ResponseWriter, r *Request, f *fileContent) {
	defer f.content.Close()
	disposition := mime.FormatMediaType("attachment", map[string]string{"filename": f.name})
	if disposition == "" {
		disposition = "attachment"
	}
	h := w.Header()
	h["Content-Type"] = []string{f.contentType}
	h["Content-Length"] = []string{strconv.FormatInt(f.size, 10)}
	h["Content-Disposition"] = []string{disposition}
	h["Content-Security-Policy"] = []string{"default-src 'none'; sandbox"}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	r.begun = true
	w.WriteHeader(http.StatusOK)
	if r.http.Method == http.MethodHead {
		return
	}
	out := pieceWriter{w, http.NewResponseController(w)}
	// Hidden, so that it is copied piece by piece.
	if _, err := io.CopyBuffer(out, struct{ io.Reader }{f.content}, make([]byte, pieceSize)); err != nil {
		if r.http.Context().Err() == nil {
			a.log.ErrorContext(r.http.Context(), "file broken off", "request", r.ID, "path", r.http.URL.Path, "error", err)
		}
		panic(http.ErrAbortHandler)
	}
}
