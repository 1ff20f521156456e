package rest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/requestlog"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

// Places where a request names subaccounts (fleet-api.md 6.5).
const (
	subaccountHeader = "X-Subaccount-Id"
	subaccountMember = "subaccount_id" // query parameter and field of bodies
)

// namedSubaccounts holds the subaccounts named by a request, by place.
type namedSubaccounts struct {
	header, query []string
}

// Scope returns the subaccounts in scope: those of the key, narrowed to those that the request
// names.
func (r *Request) Scope() apikey.Scope { return r.scope }

// Covers reports whether an existing subaccount is in scope.
func (r *Request) Covers(subaccountID string) bool { return r.scope.Covers(subaccountID) }

// Within returns nil if the subaccount of a record is in scope, else 403
// subaccount_out_of_scope. Check first that the record exists: records of other organizations
// are 404.
func (r *Request) Within(subaccountID string) error {
	if r.Covers(subaccountID) {
		r.recordSubaccount = subaccountID
		return nil
	}
	return errOutOfScope(subaccountID)
}

// Subaccounts returns the subaccounts that a list is narrowed to, nil for all.
func (r *Request) Subaccounts() []string {
	if r.scope.Mode == apikey.AllSubaccounts {
		return nil
	}
	return r.scope.SubaccountIDs
}

// sole returns the subaccount of a new record: the one that the request names, or the only one
// in scope. lacks is the field error of a body that must name one.
func (r *Request) sole(ctx context.Context, scope apikey.Scope) (id string, lacks []schema.FieldError, err error) {
	if ids := scope.SubaccountIDs; len(ids) == 1 {
		return ids[0], nil, nil
	}
	if err := r.loadSubaccounts(ctx); err != nil {
		return "", nil, err
	}
	id, ok := scope.Sole(r.known)
	if !ok {
		lacks = []schema.FieldError{{Code: "required", Pointer: "#/" + subaccountMember, Detail: subaccountMember + " is required: the API key reaches several subaccounts, or none."}}
	}
	return id, lacks, nil
}

// appendMissing appends the errors of missing fields, except for fields, or bodies, that are
// invalid already.
func appendMissing(fieldErrs, lacks []schema.FieldError) []schema.FieldError {
	for _, l := range lacks {
		if len(fieldErrs) < schema.MaxFieldErrors && !slices.ContainsFunc(fieldErrs, func(f schema.FieldError) bool { return f.Pointer == l.Pointer || f.Pointer == "#" }) {
			fieldErrs = append(fieldErrs, l)
		}
	}
	return fieldErrs
}

// loadSubaccounts loads the existing subaccounts, once.
func (r *Request) loadSubaccounts(ctx context.Context) (err error) {
	if r.known != nil || r.api.c.Subaccounts == nil {
		return nil
	}
	if r.known, err = r.api.c.Subaccounts(ctx, r.Key.OrganizationID); err != nil {
		return fmt.Errorf("look up the subaccounts: %w", err)
	}
	return nil
}

// errOutOfScope returns the refusal of a subaccount; empty: of several.
func errOutOfScope(subaccountID string) *apiError {
	f := apiErrorf("subaccount_out_of_scope", "The subaccount is outside of the scope of the API key or of the request.")
	f.refusal = requestlog.Refusal{Rule: requestlog.Scope, Needed: subaccountID}
	return f
}

// reach narrows the key's scope to the subaccounts named by header and query.
func (r *Request) reach(ctx context.Context, raw url.Values) error {
	r.scope = r.Key.Scope
	if r.api.c.Subaccounts == nil {
		return nil
	}
	if lines := r.http.Header[subaccountHeader]; len(lines) > 0 {
		if len(lines) > 1 || lines[0] == "" || strings.Contains(lines[0], ",") {
			return badSubaccount(subaccountHeader, "", "The header X-Subaccount-Id names one subaccount.")
		}
		r.named.header = lines
	}
	if values := raw[subaccountMember]; len(values) == 1 && slices.ContainsFunc(r.route.Query, func(p Param) bool { return p.Name == subaccountMember && p.Kind == StringsParam }) {
		if ids := strings.Split(values[0], ","); !slices.Contains(ids, "") {
			r.named.query = ids
		}
	}
	var err error
	if r.scope, err = r.narrow(ctx, nil); err != nil {
		return err
	}
	if r.route.WholeScope && r.scope.Mode != apikey.AllSubaccounts {
		f := apiErrorf("subaccount_out_of_scope", "This needs an API key for all subaccounts, and a request that is not narrowed to one of them.")
		f.refusal = requestlog.Refusal{Rule: requestlog.Scope, Needed: "all"}
		return f
	}
	return nil
}

// narrow returns the scope narrowed to the subaccounts named by a body.
func (r *Request) narrow(ctx context.Context, body []string) (apikey.Scope, error) {
	if r.named.header == nil && r.named.query == nil && body == nil {
		return r.scope, nil
	}
	scope, err := r.Key.Scope.Narrow(r.named.header, r.named.query, body)
	if errors.Is(err, apikey.ErrScopeDiffer) {
		if r.named.header != nil {
			return scope, badSubaccount(subaccountHeader, "", "The request names different subaccounts in X-Subaccount-Id and elsewhere.")
		}
		return scope, badSubaccount("", subaccountMember, "The request names different subaccounts in its query and in its body.")
	}
	if err != nil {
		return scope, errOutOfScope("")
	}
	if err := r.loadSubaccounts(ctx); err != nil {
		return scope, err
	}
	for _, id := range scope.SubaccountIDs {
		if !slices.Contains(r.known, id) {
			return scope, errOutOfScope(id)
		}
	}
	return scope, nil
}

func badSubaccount(header, parameter, detail string) *apiError {
	return &apiError{code: "invalid_parameter", detail: detail, fieldErrs: []schema.FieldError{{Code: "conflict", Detail: detail, Header: header, Parameter: parameter}}}
}

// reachBody narrows the scope to the subaccount named by the body.
func (r *Request) reachBody(ctx context.Context) (err error) {
	if named := r.namedIn(&r.body); named != nil && r.http.Method == "POST" {
		r.scope, err = r.narrow(ctx, named)
	}
	return err
}

// namedIn returns the subaccount named by a record, if records of this route have one.
func (r *Request) namedIn(body *schema.Node) []string {
	if r.api.c.Subaccounts == nil || !r.route.Input.Has(subaccountMember) {
		return nil
	}
	if v := body.Find(subaccountMember); v != nil && v.Kind == '"' && v.Text != "" {
		return []string{v.Text}
	}
	return nil // an invalid value, reported as such
}
