package inbox

import (
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// customerMergePage is the body of the page that merges a customer with another one.
type customerMergePage struct {
	ID, Called string
	Search     string
	Found      []mergeCandidate // matches of the search, or customers of the same name
	Same       bool             // Found has customers of the same name
	Preview    *mergePreview    // nil: no other customer is selected
}

// mergeCandidate is a customer to merge with.
type mergeCandidate struct {
	desk.Customer
	Called string
	Path   string // of the preview
}

// mergePreview shows a merge side by side: the customer that goes, the one that stays, and the result.
type mergePreview struct {
	Merged, Survivor, Result mergeSide
	Tickets                  string // that move
	Swap                     string // path of the preview of the reverse merge
}

// mergeSide is a column of the preview.
type mergeSide struct {
	desk.Customer
	Called string
}

// showMergeCustomer lists customers to merge with, or shows the merge with a selected one.
func (p *pages) showMergeCustomer(w http.ResponseWriter, r *web.Request) error {
	asked := r.URL.Query()
	b := customerMergePage{Search: strings.TrimSpace(asked.Get("find"))}
	err := p.DB.Read(r.Context(), func(tx *db.Tx) error {
		c, err := p.Desk.Customer(r.Context(), tx, r.OrganizationID, r.PathValue("id"))
		if err != nil {
			return err
		}
		b.ID, b.Called = c.ID, displayName(&c)
		if other := asked.Get("with"); other != "" {
			return p.previewMerge(r, tx, &b, other, asked.Get("keep") == "other")
		}
		return p.findMergeCandidates(r, tx, &b, &c)
	})
	if err != nil {
		return err
	}
	return p.Render(w, r, "customermerge", web.Page{Title: "Merge " + b.Called, At: "/customers", Body: b})
}

// previewMerge sets the preview of the merge with another customer. The page's customer stays, unless
// keepOther is set.
func (p *pages) previewMerge(r *web.Request, tx *db.Tx, b *customerMergePage, other string, keepOther bool) error {
	from, into, swap := other, b.ID, "&keep=other"
	if keepOther {
		from, into, swap = b.ID, other, ""
	}
	m, err := p.Desk.PreviewCustomerMerge(r.Context(), tx, r.OrganizationID, from, into)
	if problem.Of(err) == problem.Invalid {
		return problem.New(problem.NotFound, "The selected customer no longer exists.")
	}
	if err != nil {
		return err
	}
	side := func(c desk.Customer) mergeSide { return mergeSide{c, displayName(&c)} }
	b.Preview = &mergePreview{
		Merged: side(m.Merged), Survivor: side(m.Survivor), Result: side(m.Result),
		Tickets: web.Count(m.Tickets, "%d ticket", "%d tickets"), Swap: "/customers/" + b.ID + "/merge?with=" + other + swap,
	}
	return nil
}

// findMergeCandidates lists the matches of the search; without one, the customers of the same name.
// An address or a number never belongs to two customers.
func (p *pages) findMergeCandidates(r *web.Request, tx *db.Tx, b *customerMergePage, c *desk.Customer) error {
	query := customerQuery(b.Search)
	query.Limit = maxCandidates
	if b.Search == "" {
		if c.Name == "" {
			return nil
		}
		b.Same = true
		query = desk.CustomerQuery{Name: c.Name, Limit: maxCandidates, Sort: keyset.Sort{Field: desk.ByUpdatedAt, Descending: true}}
	}
	list, _, err := p.Desk.FindCustomers(r.Context(), tx, r.OrganizationID, query)
	if problem.Of(err) == problem.Invalid { // a search that no customer can match
		list, err = nil, nil
	}
	if err != nil {
		return err
	}
	if b.Search != "" {
		if list, err = p.addByWords(r, tx, list, b.Search); err != nil {
			return err
		}
	}
	for i := range list {
		if o := &list[i]; o.ID != c.ID && (!b.Same || strings.EqualFold(o.Name, c.Name)) {
			b.Found = append(b.Found, mergeCandidate{*o, displayName(o), "/customers/" + c.ID + "/merge?with=" + o.ID})
		}
	}
	b.Same = b.Same && len(b.Found) > 0
	return nil
}

// mergeCustomer merges the customer of the path into the one of the form.
func (p *pages) mergeCustomer(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	id := r.PathValue("id")
	var survivor desk.Customer
	err := p.DB.Write(r.Context(), func(tx *db.Tx) (err error) {
		survivor, err = p.Desk.MergeCustomersTx(r.Context(), tx, r.OrganizationID, id, form.Get("into"))
		return err
	})
	if problem.Of(err) == problem.Invalid {
		return problem.New(problem.Conflict, "The selected customer no longer exists.")
	}
	if err != nil {
		return err
	}
	return p.Redirect(w, "/customers/"+survivor.ID, web.Notice{Text: "Customers merged.", Undo: "/customers/" + id + "/unmerge"})
}

// unmergeCustomer undoes the merge of the customer of the path.
func (p *pages) unmergeCustomer(w http.ResponseWriter, r *web.Request) error {
	if _, ok := p.Form(w, r); !ok {
		return nil
	}
	var c desk.Customer
	err := p.DB.Write(r.Context(), func(tx *db.Tx) (err error) {
		c, err = p.Desk.UnmergeCustomerTx(r.Context(), tx, r.OrganizationID, r.PathValue("id"))
		return err
	})
	if err != nil {
		return err
	}
	return p.Redirect(w, "/customers/"+c.ID, web.Notice{Text: "Merge undone. This customer has its records back."})
}
