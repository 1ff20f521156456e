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

// Paths of the identity check and of the user's factors.
const (
	ConfirmPath  = "/confirm"
	SecurityPath = "/settings/security"
)

// maxHeldForm is the size limit of a proof page's form, in bytes: a sealed form of
// maxForm bytes, in base64.
const maxHeldForm = 2*maxForm + 16<<10

// passkeyScript handles data-passkey and stores the browser's time zone.
const passkeyScript = "passkeys.js"

// Answer is a form for a proof of identity by one of several methods. The template
// "answer" renders it.
type Answer struct {
	Passkey string // argument of navigator.credentials.get; empty: no passkeys
	First   *Field // the primary field; nil: the passkey, or a mailed code
	Others  Fields // of further methods
	MailTo  string // address for a mailed code; empty: none
	Error   string
}

// newAnswer returns the form for the methods of o. sent: a code was already mailed.
func newAnswer(o factor.Options, email string, sent bool) *Answer {
	a := &Answer{Passkey: o.Passkey}
	var methods Fields
	if o.Code {
		methods = append(methods, Field{Name: "proof-code", Label: "Code from your authenticator app", Autocomplete: "one-time-code", Mode: "numeric", Most: 9})
	}
	if o.Password {
		methods = append(methods, Field{Name: "proof-password", Label: "Password", Type: "password", Autocomplete: "current-password"})
	}
	if o.Mail {
		if a.MailTo = email; sent {
			methods = append(methods, Field{Name: "proof-mailed", Label: "Code from the mail", Autocomplete: "one-time-code", Mode: "numeric", Most: 12})
		}
	}
	if o.Recovery {
		methods = append(methods, Field{Name: "proof-recovery", Label: "Recovery code", Autocomplete: "off", Most: 30, Help: "Each code works once."})
	}
	for i := range methods {
		methods[i].OneOf = true
		if methods[i].Type == "" {
			methods[i].Type = "text"
		}
	}
	if len(methods) > 0 && methods[0].Name != "proof-recovery" {
		a.First, methods = &methods[0], methods[1:]
		a.First.Focus = true
	}
	a.Others = methods
	return a
}

// readAnswer returns the answer in a posted form.
func readAnswer(form url.Values) factor.Answer {
	return factor.Answer{
		Code: form.Get("proof-code"), RecoveryCode: form.Get("proof-recovery"), Passkey: form.Get("proof-passkey"),
		Password: form.Get("proof-password"), MailedCode: form.Get("proof-mailed"),
	}
}

// refused sets the errors for err and returns the response status, or 0 if the error is
// for the caller.
func (a *Answer) refused(w http.ResponseWriter, form url.Values, err error) int {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok {
		return 0
	}
	text := Sentence(p.Message)
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
		a.Error = "Choose a method."
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

// proofPage is the identity check of a signed-in user.
type proofPage struct {
	Text   string
	Action string // path of the interrupted form
	Held   string // the interrupted form, sealed; empty: none
	Next   string // redirect target; of [ConfirmPath] only
	Answer *Answer
}

// code returns the [problem.Error.Code] of err, or "".
func code(err error) string {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return p.Code
	}
	return ""
}

// withProof calls h if the session's proof of identity is fresh. If not, it renders a
// page that requests one and carries the form; [Section.resume] then continues it.
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

// failingBody is a request body that fails with an error, or ends if it is nil.
type failingBody struct{ error }

func (f failingBody) Read([]byte) (int, error) {
	if f.error == nil {
		return 0, io.EOF
	}
	return 0, f.error
}

// resume checks the proof and then handles the interrupted form.
func (a *Section) resume(w http.ResponseWriter, r *Request, form url.Values, h Handler) error {
	s := a.site
	held, err := s.factors.OpenForm(r.Identity, r.URL.RequestURI(), form.Get("proof-form"))
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

// checkProof checks the proof in a form. If it is wrong, it renders the page again and
// returns false.
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

// renderProof renders the identity check. The status for a repeated form makes dialogs
// show it too. wrong is the reason why an answer was refused; nil at first.
func (s *Site) renderProof(w http.ResponseWriter, r *Request, held string, form url.Values, status int, wrong error) error {
	o, err := s.factors.ProofOptions(r.Context(), r.Identity)
	if err != nil {
		return err
	}
	sent := form.Get("proof-do") == "mail" && wrong == nil || form.Get("proof-mailed") != ""
	body := proofPage{Action: r.URL.RequestURI(), Held: s.factors.SealForm(r.Identity, r.URL.RequestURI(), held), Answer: newAnswer(o, r.User.Email, sent)}
	body.Text = "Confirm your identity to make this change. Your input is saved."
	if r.URL.Path == ConfirmPath {
		body.Held, body.Text, body.Next = "", "Confirm your identity to continue.", next(r.URL.Query().Get("next"))
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

// restricted handles users without the second factor that the organization requires: it
// redirects to the check, or to enrolment.
func (s *Site) restricted(w http.ResponseWriter, r *Request) {
	if r.Method == http.MethodPost {
		s.renderMessage(w, r.Request, http.StatusForbidden, "A second factor is required", messagePage{
			Text: fmt.Sprintf("%s requires a second factor of its members. Nothing was changed.", r.Organization.Name),
			Path: "/", Label: "Continue",
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

// showConfirm renders the identity check before a page.
func (s *Site) showConfirm(w http.ResponseWriter, r *http.Request) {
	s.withConfirmForm(w, r, func(req *Request) error { return s.renderProof(w, req, "", nil, http.StatusOK, nil) })
}

// submitConfirm checks the proof and redirects to the page.
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
