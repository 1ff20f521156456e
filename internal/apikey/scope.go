package apikey

import (
	"errors"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Mode is the kind of a scope.
type Mode string

// The modes.
const (
	AllSubaccounts      Mode = "all"      // including future ones
	SelectedSubaccounts Mode = "selected" // a fixed list
	SingleSubaccount    Mode = "single"
)

// Scope is the subaccounts that a key may reach.
type Scope struct {
	Mode          Mode     `json:"mode"`
	SubaccountIDs []string `json:"subaccount_ids,omitempty"`
}

// Refusals of [Scope.Narrow].
var (
	ErrOutOfScope  = errors.New("the subaccount is outside of the key's scope")
	ErrScopeDiffer = errors.New("the request names different subaccounts in different places")
)

// ScopeOf returns the scope of subaccounts: all if there are none.
func ScopeOf(subaccountIDs []string) Scope {
	switch len(subaccountIDs) {
	case 0:
		return Scope{Mode: AllSubaccounts}
	case 1:
		return Scope{SingleSubaccount, subaccountIDs}
	}
	return Scope{SelectedSubaccounts, subaccountIDs}
}

// Covers reports whether an existing subaccount is in scope.
func (s Scope) Covers(subaccountID string) bool {
	return s.Mode == AllSubaccounts || slices.Contains(s.SubaccountIDs, subaccountID)
}

// Narrow returns the scope of a request that names subaccounts in some places (header,
// query, body); places has the ids per place. Without any it is the whole scope. Places
// that differ are [ErrScopeDiffer] for any scope; a subaccount outside of it is
// [ErrOutOfScope]. The caller checks that subaccounts exist.
func (s Scope) Narrow(places ...[]string) (Scope, error) {
	var named []string
	for _, place := range places {
		ids := slices.Compact(slices.Sorted(slices.Values(place)))
		if len(ids) == 0 {
			continue
		}
		if named != nil && !slices.Equal(named, ids) {
			return Scope{}, ErrScopeDiffer
		}
		named = ids
	}
	if named == nil {
		return s, nil
	}
	for _, id := range named {
		if !s.Covers(id) {
			return Scope{}, ErrOutOfScope
		}
	}
	return ScopeOf(named), nil
}

// Sole returns the only existing subaccount in scope, the default for a new record; false
// if there are none or several.
func (s Scope) Sole(existing []string) (string, bool) {
	var sole string
	n := 0
	for _, id := range existing {
		if s.Covers(id) {
			sole, n = id, n+1
		}
	}
	return sole, n == 1
}

func (s Scope) check(v *problem.Validation, c Catalogue) {
	const path = "subaccount_scope"
	n := len(s.SubaccountIDs)
	switch s.Mode {
	case AllSubaccounts:
		if n > 0 {
			v.Add(path, "must not name subaccounts if it is all")
		}
		return
	case SelectedSubaccounts:
		if n < 1 || n > 1000 {
			v.Add(path, "must name from 1 to 1000 subaccounts")
		}
	case SingleSubaccount:
		if n != 1 {
			v.Add(path, "must name one subaccount")
		}
	default:
		v.Add(path, "must be all, selected or single")
		return
	}
	if !c.Subaccounts {
		v.Add(path, "must be all: this service has no subaccounts")
		return
	}
	for i, id := range s.SubaccountIDs {
		if slices.Contains(s.SubaccountIDs[:i], id) {
			v.Add(path, "names a subaccount twice")
		}
		v.Line(path, id, 1, 64)
		if v.Has(path) {
			return
		}
	}
}
