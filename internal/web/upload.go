package web

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
)

const (
	// maxTyped is the size limit of the text fields of a form with files, in bytes.
	maxTyped = 2 << 20
	// maxUpload is the size up to which a request is read, in bytes, so that a form that
	// is too large gets a page. A closed connection would show none.
	maxUpload = 128 << 20
	// maxParts is the limit of parts of a form.
	maxParts = 200
)

// File is a file of a form.
type File struct {
	Name        string
	ContentType string // as the browser guesses it
	Data        []byte
}

// Upload is a form with files.
type Upload struct {
	url.Values
	Files []File
	// TooLarge reports that the files exceed the limit. Files is then empty, but the
	// fields are set, so that the form can be rendered again.
	TooLarge bool
}

// Upload returns a posted form with files (multipart/form-data) of at most limit bytes in
// total; without files it is [Section.Form]. On an invalid request it writes the response
// and returns false.
func (a *Section) Upload(w http.ResponseWriter, r *Request, limit int64) (Upload, bool) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "multipart/form-data" {
		form, ok := a.Form(w, r)
		return Upload{Values: form}, ok
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxUpload)
	form, err := readUpload(r.Request, limit)
	const again = "Go back, load the page again and send the form from there."
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case err == nil:
		return form, true
	case large, errors.Is(err, errTooLarge):
		a.site.showMessage(w, r.Request, http.StatusRequestEntityTooLarge, "Too large", "The form exceeds the size limit. Nothing was changed.", again)
	default:
		a.site.showMessage(w, r.Request, http.StatusBadRequest, "The form is unreadable", "The form is incomplete, or not in UTF-8. Nothing was changed.", again)
	}
	return Upload{}, false
}

var errTooLarge = errors.New("web: more than a form has")

func readUpload(r *http.Request, limit int64) (Upload, error) {
	form := Upload{Values: make(url.Values)}
	parts, err := r.MultipartReader()
	if err != nil {
		return form, err
	}
	typed := int64(maxTyped)
	for range maxParts {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			if !validText(form.Values) {
				return form, errors.New("web: not UTF-8")
			}
			return form, nil
		}
		if err != nil {
			return form, err
		}
		if part.FileName() == "" {
			text, err := io.ReadAll(io.LimitReader(part, typed+1))
			if err != nil {
				return form, err
			}
			if typed -= int64(len(text)); typed < 0 {
				return form, errTooLarge
			}
			form.Add(part.FormName(), LineFeeds(string(text)))
			continue
		}
		if form.TooLarge { // NextPart skips the rest of a part
			continue
		}
		f := File{Name: part.FileName(), ContentType: part.Header.Get("Content-Type")}
		if f.Data, err = io.ReadAll(io.LimitReader(part, limit+1)); err != nil {
			return form, err
		}
		if limit -= int64(len(f.Data)); limit < 0 {
			form.TooLarge, form.Files = true, nil
			continue
		}
		form.Files = append(form.Files, f)
	}
	return form, errTooLarge
}
