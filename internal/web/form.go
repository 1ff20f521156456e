package web

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// maxForm is the largest form that is read, in bytes.
const maxForm = 64 << 10

// form reads what a form of ours posts; the query is no part of it. What is no
// such thing it answers with a page, and reports false.
func (s *site) form(w http.ResponseWriter, r *http.Request) (url.Values, bool) {
	const again = "Go back, load the page again and send the form from there."
	if !isForm(r.Header.Get("Content-Type")) {
		s.message(w, r, http.StatusUnsupportedMediaType, "This is not a form", "This address takes what the form of its page sends, in UTF-8.", again)
		return nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxForm))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		s.message(w, r, http.StatusRequestEntityTooLarge, "This is too much", "What was sent is larger than any of our forms. Nothing was changed.", again)
		return nil, false
	}
	if err != nil {
		s.message(w, r, http.StatusBadRequest, "The form did not arrive whole", "The connection broke while it was sent. Nothing was changed.", again)
		return nil, false
	}
	values, err := url.ParseQuery(string(body))
	if err == nil && !validText(values) {
		err = errors.New("not UTF-8")
	}
	if err != nil {
		s.message(w, r, http.StatusBadRequest, "The form cannot be read", "What was sent is not a form in UTF-8. Nothing was changed.", again)
		return nil, false
	}
	return values, true
}

// isForm reports whether a body of this type is what browsers send for a form
// without files.
func isForm(contentType string) bool {
	t, params, err := mime.ParseMediaType(contentType)
	if err != nil || t != "application/x-www-form-urlencoded" {
		return false
	}
	charset, given := params["charset"]
	return !given || strings.EqualFold(charset, "utf-8")
}

func validText(values url.Values) bool {
	for name, list := range values {
		if !utf8.ValidString(name) {
			return false
		}
		for _, v := range list {
			if !utf8.ValidString(v) {
				return false
			}
		}
	}
	return true
}

// field is one input that a person fills in.
type field struct {
	Name         string
	Label        string
	Type         string // of the input
	Autocomplete string // what password managers and browsers may fill in
	Least        int    // characters; 0 when the browser need not count
	Help         string // empty for none
	Value        string // never that of a password
	Error        string // what is wrong with the value, as a sentence; empty if nothing is
	Focus        bool   // whether typing begins here
}

// ID names the field within the page.
func (f field) ID() string { return "field-" + f.Name }

// fields are those of one form, in order.
type fields []field

// Wrong returns those that have to be changed.
func (fs fields) Wrong() fields {
	var wrong fields
	for _, f := range fs {
		if f.Error != "" {
			wrong = append(wrong, f)
		}
	}
	return wrong
}

// mark notes each issue with its field, the first of each counts. An issue with
// something that is no field goes to the first one, to be seen at all.
func (fs fields) mark(issues []problem.Issue) {
	for _, issue := range issues {
		at := 0
		for i := range fs {
			if fs[i].Name == issue.Path {
				at = i
			}
		}
		if fs[at].Error == "" {
			fs[at].Error = fs[at].Label + " " + issue.Message + "."
		}
	}
}

// focus has typing begin at the first field that has to be changed, or at the
// first one.
func (fs fields) focus() {
	for i := range fs {
		if fs[i].Error != "" {
			fs[i].Focus = true
			return
		}
	}
	if len(fs) > 0 {
		fs[0].Focus = true
	}
}
