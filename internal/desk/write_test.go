package desk_test

import (
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// grace is a member of organization A.
var grace = desk.Actor{ID: graceID, Name: "Grace"}

// write runs fn in a transaction of its own.
func write[T any](f *fixture, fn func(tx *db.Tx) (T, error)) (out T, err error) {
	err = f.db.Write(f.Context(), func(tx *db.Tx) error {
		out, err = fn(tx)
		return err
	})
	return out, err
}

func (f *fixture) update(org, ticketID string, u desk.Update) (desk.Ticket, error) {
	return write(f, func(tx *db.Tx) (desk.Ticket, error) { return f.desk.UpdateTx(f.Context(), tx, org, ticketID, u) })
}

func (f *fixture) tryDelete(org, ticketID string) error {
	return f.db.Write(f.Context(), func(tx *db.Tx) error { return f.desk.DeleteTx(f.Context(), tx, org, ticketID) })
}

func (f *fixture) compose(d desk.Draft) desk.Content {
	f.Helper()
	w, err := f.desk.Compose(f.Context(), orgA, d)
	if err != nil {
		f.Fatal(err)
	}
	return w
}

func (f *fixture) note(org, ticketID string, by desk.Actor, d desk.Draft) (desk.Message, error) {
	w, err := f.desk.Compose(f.Context(), org, d)
	if err != nil {
		return desk.Message{}, err
	}
	return write(f, func(tx *db.Tx) (desk.Message, error) { return f.desk.AddNoteTx(f.Context(), tx, org, ticketID, by, w) })
}

// refused asserts that err is a problem of a kind, with a code at a path for
// invalid input, else of the whole.
func refused(t testing.TB, what string, err error, kind problem.Kind, code, path string) {
	t.Helper()
	p, _ := err.(*problem.Error)
	if p == nil || p.Kind != kind {
		t.Errorf("%s: got %v, want %s", what, err, kind)
		return
	}
	if kind != problem.Invalid {
		if member, _ := p.Details["member"].(string); p.Code != code || member != path {
			t.Errorf("%s: got code %s and member %q, want %s and %q", what, p.Code, member, code, path)
		}
		return
	}
	for _, i := range p.Issues {
		if i.Code == code && i.Path == path {
			return
		}
	}
	t.Errorf("%s: got issues %+v, want %s at %s", what, p.Issues, code, path)
}

// White space counts as empty, and does not replace the text of the HTML.
func TestComposeSpaces(t *testing.T) {
	f := newFixture(t)
	ticket := f.intake(text("+4915112345678", "hello")).TicketID
	_, err := f.note(orgA, ticket, grace, desk.Draft{Text: " \n\t"})
	refused(t, "spaces", err, problem.Invalid, "required", "text")
	m, err := f.note(orgA, ticket, grace, desk.Draft{Text: " ", HTML: "<p>a</p>"})
	if err != nil || m.Text != "a" {
		t.Errorf("got %q, %v, want the text of the HTML", m.Text, err)
	}
}
