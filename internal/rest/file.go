package rest

import (
	"io"
	"mime"
	"net/http"
	"strconv"
)

// fileContent is the file of an answer.
type fileContent struct {
	name        string
	contentType string
	size        int64
	content     io.ReadCloser
}

// File answers with a file as an attachment, which no browser shows under our origin: its name
// and type may be set by untrusted users. content, of size bytes, is closed after sending. The
// route must set File.
func File(name, contentType string, size int64, content io.ReadCloser) Response {
	return Response{file: &fileContent{name, contentType, size, content}}
}

// sendFile streams a file. An error aborts the transfer.
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
	r.answerStarted = true
	r.writeStatus(w, http.StatusOK)
	if r.http.Method == http.MethodHead {
		return
	}
	out := pieceWriter{w, http.NewResponseController(w)}
	// The wrapper hides WriteTo, so that the file is copied piece by piece.
	if _, err := io.CopyBuffer(out, struct{ io.Reader }{f.content}, make([]byte, pieceSize)); err != nil {
		if r.http.Context().Err() == nil {
			a.log.ErrorContext(r.http.Context(), "file broken off", "request", r.ID, "path", r.http.URL.Path, "error", err)
		}
		panic(http.ErrAbortHandler)
	}
}
