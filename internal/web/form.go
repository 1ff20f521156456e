package web

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// maxForm is the size limit of forms, in bytes.
const maxForm = 64 << 10

// form returns the fields of a posted form, without the query. On an invalid request it
// writes the response and returns false.
func (s *Site) form(w http.ResponseWriter, r *http.Request) (url.Values, bool) {
	return s.formUpTo(w, r, maxForm)
}

// formUpTo is form with a size limit in bytes. Line breaks of values become line feeds; browsers send
// CRLF.
func (s *Site) formUpTo(w http.ResponseWriter, r *http.Request, limit int64) (url.Values, bool) {
	const again = "Go back, load the page again and send the form from there."
	if !isForm(r.Header.Get("Content-Type")) {
		s.showMessage(w, r, http.StatusUnsupportedMediaType, "Not a form", "This address accepts only the form of its page, in UTF-8.", again)
		return nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		s.showMessage(w, r, http.StatusRequestEntityTooLarge, "Too large", "The form exceeds the size limit. Nothing was changed.", again)
		return nil, false
	}
	if err != nil {
		s.showMessage(w, r, http.StatusBadRequest, "The form is incomplete", "The connection was lost during the upload. Nothing was changed.", again)
		return nil, false
	}
	values, err := url.ParseQuery(string(body))
	if err == nil && !validText(values) {
		err = errors.New("not UTF-8")
	}
	if err != nil {
		s.showMessage(w, r, http.StatusBadRequest, "The form is unreadable", "The request is not a form in UTF-8. Nothing was changed.", again)
		return nil, false
	}
	for _, list := range values {
		for i := range list {
			list[i] = LineFeeds(list[i])
		}
	}
	return values, true
}

// LineFeeds returns a text with line feeds for its line breaks: CRLF, and CR alone.
func LineFeeds(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
}

// addressable reports whether a path is valid text without NUL.
func addressable(u *url.URL) bool {
	query := u.Query()
	if !utf8.ValidString(u.Path) || strings.Contains(u.Path, "\x00") || !validText(query) {
		return false
	}
	for _, list := range query {
		if slices.ContainsFunc(list, func(v string) bool { return strings.Contains(v, "\x00") }) {
			return false
		}
	}
	return true
}

// isForm reports whether contentType is a browser's for a form without files.
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

// Field is an input of a form. The template "field" renders it.
type Field struct {
	Name         string
	Label        string
	Type         string // of the input; or "textarea", "select", "checkbox"
	Autocomplete string // value of the autocomplete attribute
	Optional     bool   // may be empty
	OneOf        bool   // exactly one of several fields is required
	Least, Most  int    // characters; 0: no limit in the browser
	Rows         int    // of a textarea
	Mode         string // inputmode: "decimal", "numeric"; empty: text
	Options      []Option
	Placeholder  string
	Help         string // empty: none
	Value        string // never a password; "on" for a checked checkbox
	Error        string // a sentence; empty: valid
	Focus        bool   // autofocus

	// FormError is an error of the form as a whole, a sentence. It is listed above the form, not
	// beside the field: any field of the form can have it.
	FormError string
}

// Option is an option of a select.
type Option struct{ Value, Label string }

// ID returns the element id of the field.
func (f Field) ID() string { return "field-" + f.Name }

// Fields are the fields of a form, in order.
type Fields []Field

// Wrong returns the fields with an error. Errors of the form as a whole are fields without a name.
func (fs Fields) Wrong() Fields {
	var wrong Fields
	for _, f := range fs {
		if f.FormError != "" {
			wrong = append(wrong, Field{Error: f.FormError})
		}
		if f.Error != "" {
			wrong = append(wrong, f)
		}
	}
	return wrong
}

// Mark sets the error of each field to its first issue. An issue without a field goes to
// the first field, so that it is visible.
func (fs Fields) Mark(issues []problem.Issue) {
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

// Focus sets the focus to the first invalid field, or to the first field.
func (fs Fields) Focus() {
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

// Fill sets the values of all fields but passwords.
func (fs Fields) Fill(typed url.Values) {
	for i := range fs {
		if fs[i].Type != "password" {
			fs[i].Value = typed.Get(fs[i].Name)
		}
	}
}

// Field returns the field name, or nil.
func (fs Fields) Field(name string) *Field {
	for i := range fs {
		if fs[i].Name == name {
			return &fs[i]
		}
	}
	return nil
}

// Refused marks the fields with the issues of err and reports whether err was about the
// input: then render the form again. Other errors are for the caller.
func (fs Fields) Refused(err error) bool {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || len(fs) == 0 {
		return false
	}
	switch {
	case p.Kind == problem.Invalid && len(p.Issues) > 0:
		fs.Mark(p.Issues)
	case p.Kind == problem.Invalid, p.Kind == problem.Conflict, p.Kind == problem.Precondition, p.Kind == problem.TooLarge:
		fs[0].Error = Sentence(p.Message)
	default:
		return false
	}
	fs.Focus()
	return true
}

// Answer marks the fields as [Fields.Refused] does, and also handles rate limits. status
// is that of the form to render again, or 0 for an error that is for the caller.
func (fs Fields) Answer(w http.ResponseWriter, err error) (status int) {
	if fs.Refused(err) {
		return http.StatusUnprocessableEntity
	}
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Kind != problem.RateLimited || len(fs) == 0 {
		return 0
	}
	fs[0].Error = Sentence(p.Message)
	fs.Focus()
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((p.RetryAfter+time.Second-1)/time.Second)))
	}
	return http.StatusTooManyRequests
}

// Sentence returns a service's message with a capital letter and a full stop. A leading
// address stays as it is.
func Sentence(text string) string {
	if text == "" {
		return text
	}
	if word, _, _ := strings.Cut(text, " "); !strings.Contains(word, "@") {
		first, size := utf8.DecodeRuneInString(text)
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	if !strings.ContainsAny(text[len(text)-1:], ".!?") {
		text += "."
	}
	return text
}
