package web

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/factor"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Where people prove their identity before a page, and look after their factors.
const (
	ConfirmPath  = "/confirm"
	SecurityPath = "/settings/security"
)

// maxHeldForm is the largest form that a proof page carries, in bytes: the largest
// form there is, sealed.
const maxHeldForm = 2*maxForm + 16<<10

// passkeyScript reads data-passkey, and keeps the browser's time zone.
const passkeyScript = "passkeys.js"

// Answer asks for a proof of identity, by any of several ways. The template
// "answer" shows it, within a form.
type Answer struct {
	Passkey string // the argument of navigator.credentials.get; empty: no passkeys
	First   *Field // the way that is at hand; nil: the passkey, or a mailed code
	Others  Fields // ways that are one step away
	MailTo  string // where a code can be mailed; empty: nowhere
	Error   string
}

// newAnswer asks for what o offers. sent says that a code was mailed already.
func newAnswer(o factor.Options, email string, sent bool) *Answer {
	a := &Answer{Passkey: o.Passkey}
	var ways Fields
	if o.Code {
		ways = append(ways, Field{Name: "proof-code", Label: "Code of your authenticator app", Autocomplete: "one-time-code", Mode: "numeric", Most: 9})
	}
	if o.Password {
		ways = append(ways, Field{Name: "proof-password", Label: "Password", Type: "password", Autocomplete: "current-password"})
	}
	if o.Mail {
		if a.MailTo = email; sent {
			ways = append(ways, Field{Name: "proof-mailed", Label: "Code from the mail", Autocomplete: "one-time-code", Mode: "numeric", Most: 12})
		}
	}
	if o.Recovery {
		ways = append(ways, Field{Name: "proof-recovery", Label: "Recovery code", Autocomplete: "off", Most: 30, Help: "It works once."})
	}
	for i := range ways {
		ways[i].OneOf = true
		if ways[i].Type == "" {
			ways[i].Type = "text"
		}
	}
	if len(ways) > 0 && ways[0].Name != "proof-recovery" {
		a.First, ways = &ways[0], ways[1:]
		a.First.Focus = true
	}
	a.Others = ways
	return a
}

// readAnswer reads the answer of a form.
func readAnswer(form url.Values) factor.Answer {
	return factor.Answer{
		Code: form.Get("proof-code"), RecoveryCode: form.Get("proof-recovery"), Passkey: form.Get("proof-passkey"),
		Password: form.Get("proof-password"), MailedCode: form.Get("proof-mailed"),
	}
}

// refused notes in a why an answer was refused, and returns the status; 0 for an
// error that is for the caller.
func (a *Answer) refused(w http.ResponseWriter, form url.Values, err error) int {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok {
		return 0
	}
	text := sentence(p.Message)
	switch p.Kind {
	case problem.RateLimited:
		fs := Fields{{}}
		status := fs.Answer(w, err)
		a.Error = fs[0].Error
		return status
	case problem.Unauthorized, problem.Invalid, problem.Precondition, problem.Forbidden:
	default:
		return 0
	}
	for _, f := range append(a.Others, fieldOrNone(a.First)...) {
		if form.Get(f.Name) != "" && form.Get("proof-passkey") == "" {
			a.mark(f.Name, text)
			return http.StatusUnprocessableEntity
		}
	}
	if a.Error = text; readAnswer(form) == (factor.Answer{}) {
		a.Error = "Choose one of these ways."
	}
	return http.StatusUnprocessableEntity
}

func fieldOrNone(f *Field) Fields {
	if f == nil {
		return nil
	}
	return Fields{*f}
}

func (a *Answer) mark(name, text string) {
	if a.First != nil && a.First.Name == name {
		a.First.Error = text
		return
	}
	f := a.Others.Field(name)
	f.Error = text
	if a.First != nil {
		a.First.Focus = false
	}
	f.Focus = true
}

// proofPage asks somebody who is signed in to prove their identity.
type proofPage struct {
	Text   string
	Action string // where the form leads: the interrupted one's address
	Held   string // the interrupted form, sealed; empty: none
	Next   string // where to go on; of [ConfirmPath] only
	Answer *Answer
}

// code returns the [problem.Error.Code] of err; empty for none.
func code(err error) string {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return p.Code
	}
	return ""
}

// withProof runs a form that needs a fresh proof of identity. Without one it asks on
// a page that carries the form, and runs it once that is answered.
func (a *Section) withProof(w http.ResponseWriter, r *Request, h Handler) error {
	s := a.site
	if s.factors == nil || !isForm(r.Header.Get("Content-Type")) {
		return h(w, r)
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxHeldForm))
	form, perr := url.ParseQuery(string(raw))
	answered := err == nil && perr == nil && form.Get("proof-form") != ""
	switch {
	case answered:
		return a.resume(w, r, form, h)
	case err == nil && perr == nil && len(raw) <= maxForm && !s.factors.Fresh(r.Identity):
		return s.renderProof(w, r, string(raw), nil, 0, nil)
	}
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(raw), failingBody{err}))
	if err = h(w, r); code(err) == account.FreshProofRequired {
		return s.renderProof(w, r, string(raw), nil, 0, nil)
	}
	return err
}

// failingBody is a body that broke off with an error; nil: that has ended.
type failingBody struct{ error }

func (f failingBody) Read([]byte) (int, error) {
	if f.error == nil {
		return 0, io.EOF
	}
	return 0, f.error
}

// resume checks an answer and then runs the form that it interrupted.
func (a *Section) resume(w http.ResponseWriter, r *Request, form url.Values, h Handler) error {
	s := a.site
	held, err := s.factors.HeldForm(r.Identity, r.URL.RequestURI(), form.Get("proof-form"))
	if err != nil {
		return err
	}
	if done, err := s.checkProof(w, r, held, form); !done || err != nil {
		return err
	}
	id, err := s.authenticate(w, r.Request)
	if err != nil {
		return err
	}
	r.Identity = id.Identity
	r.Body = io.NopCloser(bytes.NewReader([]byte(held)))
	r.ContentLength = int64(len(held))
	return h(w, r)
}

// checkProof checks the answer in a form. When it does not hold, the page is shown
// again.
func (s *Site) checkProof(w http.ResponseWriter, r *Request, held string, form url.Values) (bool, error) {
	if form.Get("proof-do") == "mail" {
		err := s.factors.MailCode(r.Context(), r.Identity)
		return false, s.renderProof(w, r, held, form, http.StatusUnprocessableEntity, err)
	}
	err := s.factors.Prove(r.Context(), r.Identity, readAnswer(form))
	if err == nil {
		return true, nil
	}
	return false, s.renderProof(w, r, held, form, http.StatusUnprocessableEntity, err)
}

// renderProof shows the page that asks for a proof of identity. The status of a form
// that is shown again has dialogs show it as well. wrong is why an answer was
// refused.
func (s *Site) renderProof(w http.ResponseWriter, r *Request, held string, form url.Values, status int, wrong error) error {
	o, err := s.factors.ProofOptions(r.Context(), r.Identity)
	if err != nil {
		return err
	}
	sent := form.Get("proof-do") == "mail" && wrong == nil || form.Get("proof-mailed") != ""
	body := proofPage{Action: r.URL.RequestURI(), Held: s.factors.HoldForm(r.Identity, r.URL.RequestURI(), held), Answer: newAnswer(o, r.User.Email, sent)}
	body.Text = "This change needs a fresh proof of your identity. What you typed is kept."
	if r.URL.Path == ConfirmPath {
		body.Held, body.Text, body.Next = "", "Before you go on, prove your identity once more.", next(r.URL.Query().Get("next"))
	}
	if status == 0 {
		status = http.StatusUnprocessableEntity
	}
	if wrong != nil {
		if status = body.Answer.refused(w, form, wrong); status == 0 {
			return wrong
		}
	}
	s.render(w, r.Request, status, "proof", page{Title: "Confirm your identity", Posts: true, Script: passkeyScript, Body: body})
	return nil
}

// restricted answers somebody whose organization requires a second factor that
// their session lacks: it leads to where they prove theirs, or add one.
func (s *Site) restricted(w http.ResponseWriter, r *Request) {
	if r.Method == http.MethodPost {
		s.renderMessage(w, r.Request, http.StatusForbidden, "A second factor is required", message{
			Text: fmt.Sprintf("%s requires a second factor of its members. Nothing was changed.", r.Organization.Name),
			Path: "/", Label: "Go on",
		})
		return
	}
	to := SecurityPath
	if s.factors != nil {
		st, err := s.factors.State(r.Context(), r.UserID)
		if err != nil {
			s.fail(w, r.Request, err)
			return
		}
		if st.Second() {
			to = ConfirmPath + "?next=" + url.QueryEscape(r.URL.RequestURI())
		}
	}
	seeOther(w, to)
}

// showConfirm asks for a proof of identity before a page.
func (s *Site) showConfirm(w http.ResponseWriter, r *http.Request) {
	s.withConfirmForm(w, r, func(req *Request) error { return s.renderProof(w, req, "", nil, http.StatusOK, nil) })
}

// submitConfirm checks the proof and goes on to that page.
func (s *Site) submitConfirm(w http.ResponseWriter, r *http.Request) {
	s.withConfirmForm(w, r, func(req *Request) error {
		form, ok := s.form(w, r)
		if !ok {
			return nil
		}
		done, err := s.checkProof(w, req, "", form)
		if done && err == nil {
			to := next(r.URL.Query().Get("next"))
			if to == "" {
				to = "/"
			}
			seeOther(w, to)
		}
		return err
	})
}

func (s *Site) withConfirmForm(w http.ResponseWriter, r *http.Request, fn func(*Request) error) {
	req, err := s.authenticate(w, r)
	if problem.Of(err) == problem.Unauthorized {
		s.redirectToSignIn(w, r)
		return
	}
	if err == nil {
		err = fn(req)
	}
	if err != nil {
		s.fail(w, r, err)
	}
}
