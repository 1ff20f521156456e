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

// maxForm is the largest form that is read, in bytes.
const maxForm = 64 << 10

// form reads what a form of ours posts; the query is no part of it. What is no
// such thing it answers with a page, and reports false.
func (s *Site) form(w http.ResponseWriter, r *http.Request) (url.Values, bool) {
	const again = "Go back, load the page again and send the form from there."
	if !isForm(r.Header.Get("Content-Type")) {
		s.showMessage(w, r, http.StatusUnsupportedMediaType, "This is not a form", "This address takes what the form of its page sends, in UTF-8.", again)
		return nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxForm))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		s.showMessage(w, r, http.StatusRequestEntityTooLarge, "This is too much", "What was sent is larger than any of our forms. Nothing was changed.", again)
		return nil, false
	}
	if err != nil {
		s.showMessage(w, r, http.StatusBadRequest, "The form did not arrive whole", "The connection broke while it was sent. Nothing was changed.", again)
		return nil, false
	}
	values, err := url.ParseQuery(string(body))
	if err == nil && !validText(values) {
		err = errors.New("not UTF-8")
	}
	if err != nil {
		s.showMessage(w, r, http.StatusBadRequest, "The form cannot be read", "What was sent is not a form in UTF-8. Nothing was changed.", again)
		return nil, false
	}
	return values, true
}

// addressable reports whether an address can be one of ours: it is text, without
// NUL, which is in no record.
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

// Field is one input that a person fills in. The template "field" shows it.
type Field struct {
	Name         string
	Label        string
	Type         string // of the input; or "textarea", "select", "checkbox"
	Autocomplete string // what password managers and browsers may fill in
	Optional     bool   // it may be left empty
	OneOf        bool   // one of several fields, of which one is filled in
	Least, Most  int    // characters; 0 when the browser need not count
	Rows         int    // of a textarea
	Mode         string // which keyboard a telephone shows: "decimal", "numeric"; empty for letters
	Options      []Option
	Placeholder  string
	Help         string // empty for none
	Value        string // never that of a password; "on" for a checkbox that is set
	Error        string // what is wrong with the value, as a sentence; empty if nothing is
	Focus        bool   // whether typing begins here
}

// Option is one choice of a select.
type Option struct{ Value, Label string }

// ID names the field within the page.
func (f Field) ID() string { return "field-" + f.Name }

// Fields are those of one form, in order.
type Fields []Field

// Wrong returns those that have to be changed.
func (fs Fields) Wrong() Fields {
	var wrong Fields
	for _, f := range fs {
		if f.Error != "" {
			wrong = append(wrong, f)
		}
	}
	return wrong
}

// Mark notes each issue with its field, the first of each counts. An issue with
// something that is no field goes to the first one, to be seen at all.
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

// Focus has typing begin at the first field that has to be changed, or at the
// first one.
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

// Fill puts what was typed into the fields, passwords aside.
func (fs Fields) Fill(typed url.Values) {
	for i := range fs {
		if fs[i].Type != "password" {
			fs[i].Value = typed.Get(fs[i].Name)
		}
	}
}

// Field returns the one with a name; nil when there is none.
func (fs Fields) Field(name string) *Field {
	for i := range fs {
		if fs[i].Name == name {
			return &fs[i]
		}
	}
	return nil
}

// Refused marks what err says of the fields, and reports whether it is about what
// was typed: then the form is shown again. Any other error is for the caller.
func (fs Fields) Refused(err error) bool {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || len(fs) == 0 {
		return false
	}
	switch {
	case p.Kind == problem.Invalid && len(p.Issues) > 0:
		fs.Mark(p.Issues)
	case p.Kind == problem.Invalid, p.Kind == problem.Conflict, p.Kind == problem.Precondition, p.Kind == problem.TooLarge:
		fs[0].Error = sentence(p.Message)
	default:
		return false
	}
	fs.Focus()
	return true
}

// Answer marks what err says of the fields, as [Fields.Refused] does, and also
// that it was tried too often. The form is shown again with the status; it is 0
// for an error that is for the caller.
func (fs Fields) Answer(w http.ResponseWriter, err error) (status int) {
	if fs.Refused(err) {
		return http.StatusUnprocessableEntity
	}
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Kind != problem.RateLimited || len(fs) == 0 {
		return 0
	}
	fs[0].Error = sentence(p.Message)
	fs.Focus()
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((p.RetryAfter+time.Second-1)/time.Second)))
	}
	return http.StatusTooManyRequests
}

// sentence is what a service says as a person writes it. Addresses stay as they are.
func sentence(text string) string {
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
