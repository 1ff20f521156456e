package inbox_test

import (
	"testing"

	"github.com/kickstand-dev/kickstand/internal/search"
	"github.com/kickstand-dev/kickstand/internal/web/inbox"
)

// TestSearchPage checks that one search finds records of several kinds and shows where they match.
func TestSearchPage(t *testing.T) {
	found := new(search.Service)
	h := newHarness(t, func(c *inbox.Config) { c.Search = found })
	*found = search.Service{DB: h.DB, Desk: h.desk}
	h.text("+14155550111", "SM1", "The "+evil+" lock is broken")
	if n, err := h.desk.Index(t.Context()); err != nil || n == 0 {
		t.Fatalf("indexed %d, %v", n, err)
	}
	b := h.SignIn(h.Agent)
	b.Page("/search").Want("Names, addresses, phone numbers")
	d := b.Page("/search?q=lock")
	d.Want("#1 The")
	if marks := d.All("mark"); len(marks) == 0 {
		t.Error("nothing is marked")
	}
	b.Page("/search?q=%2B14155550111").Want("+14155550111")
	b.Page("/search?q=nonsense").Want("Nothing found.")
	b.Page("/search?q=status:odd").Want("status is one of")
}
