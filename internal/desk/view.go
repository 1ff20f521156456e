package desk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Column is a part of a row in the list of a view. Customer and subject are always shown.
type Column string

// The columns.
const (
	ColumnStatus   Column = "status"
	ColumnPriority Column = "priority"
	ColumnDue      Column = "due"
	ColumnTags     Column = "tags"
	ColumnAssignee Column = "assignee"
	ColumnChannel  Column = "channel"
	ColumnCreated  Column = "created"
	ColumnUpdated  Column = "updated"
)

// Columns are all columns.
var Columns = []Column{ColumnStatus, ColumnPriority, ColumnDue, ColumnTags, ColumnAssignee, ColumnChannel, ColumnCreated, ColumnUpdated}

// DefaultColumns are the columns of views that have no others.
var DefaultColumns = []Column{ColumnStatus, ColumnPriority, ColumnDue, ColumnTags, ColumnAssignee, ColumnChannel, ColumnUpdated}

// TicketSorts are the sort fields of lists of tickets.
var TicketSorts = []string{ByCreatedAt, ByUpdatedAt, ByPriority, ByNumber, ByDueAt}

// Bounds of views. MaxViews is the maximum of shared views of an organization, and of own views of
// a member.
const (
	MaxViews     = 100
	MaxViewQuery = 400 // characters
	maxViewName  = 80
)

// View is a saved list of tickets.
type View struct {
	ID             string
	OrganizationID string
	OwnerID        string // the member who alone sees it; empty: shared with the organization
	Name           string
	Query          string      // of [TicketQuery.Text]
	Sort           keyset.Sort // one of [TicketSorts]
	Columns        []Column    // in order
	Position       int         // from 1, among the shared views or those of the owner
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// Check implements [problem.Checker].
func (w View) Check(v *problem.Validation) {
	v.Line("name", w.Name, 1, maxViewName)
	v.Line("query", w.Query, 0, MaxViewQuery)
	if !slices.Contains(TicketSorts, w.Sort.Field) {
		v.Add("sort", "must be one of %s", strings.Join(TicketSorts, ", "))
	}
	for i, c := range w.Columns {
		if !slices.Contains(Columns, c) {
			v.Add("columns", "must be of %s", joinColumns(Columns))
			return
		}
		if slices.Contains(w.Columns[:i], c) {
			v.Add("columns", "must not have %s twice", c)
			return
		}
	}
}

func joinColumns(list []Column) string {
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = string(c)
	}
	return strings.Join(names, ", ")
}

// NewView describes a new view.
type NewView struct {
	OwnerID  string // empty: shared
	Name     string
	Query    string
	Sort     keyset.Sort // zero: the newest activity first
	Columns  []Column    // nil: [DefaultColumns]
	Position int         // 0: the last
}

// ViewUpdate describes a change of a view; nil fields stay.
type ViewUpdate struct {
	OwnerID  *string // empty: shared. In the other list the view is the last.
	Name     *string
	Query    *string
	Sort     *keyset.Sort
	Columns  *[]Column
	Position *int // beyond the last: the last
}

const selectView = "SELECT id, organization_id, user_id, name, query, sort, descending, columns, position, created_at, updated_at FROM ticket_views "

func scanView(row db.Row) (View, error) {
	var w View
	err := row.Scan(&w.ID, &w.OrganizationID, db.IntoText(&w.OwnerID), &w.Name, &w.Query, &w.Sort.Field, &w.Sort.Descending,
		db.IntoJSON(&w.Columns), &w.Position, db.IntoTime(&w.CreatedAt), db.IntoTime(&w.UpdatedAt))
	return w, err
}

// Views returns the views that a member sees: their own by position, then the shared ones. An empty
// userID selects the shared ones only.
func (s *Service) Views(ctx context.Context, q db.Querier, organizationID, userID string) ([]View, error) {
	list, err := db.All(ctx, q, scanView, selectView+"WHERE organization_id = $1 AND (user_id IS NULL OR user_id = $2)", organizationID, userID)
	if err != nil {
		return nil, fmt.Errorf("load views: %w", err)
	}
	slices.SortFunc(list, func(a, b View) int {
		if own := a.OwnerID != ""; own != (b.OwnerID != "") {
			return strings.Compare(b.OwnerID, a.OwnerID) // the empty one last
		}
		return cmp.Or(a.Position-b.Position, strings.Compare(a.ID, b.ID))
	})
	return list, nil
}

// View returns a view that a member sees; with an empty userID a shared one. Error: NotFound.
func (s *Service) View(ctx context.Context, q db.Querier, organizationID, userID, id string) (View, error) {
	w, err := db.One(ctx, q, scanView, selectView+"WHERE id = $1 AND organization_id = $2 AND (user_id IS NULL OR user_id = $3)", id, organizationID, userID)
	return w, notFound(err, "view")
}

// LockViewTx is [Service.View]. The views of the organization are locked until the caller's
// transaction ends.
func (s *Service) LockViewTx(ctx context.Context, tx *db.Tx, organizationID, userID, id string) (View, error) {
	if err := lockViews(ctx, tx, organizationID); err != nil {
		return View{}, err
	}
	return s.View(ctx, tx, organizationID, userID, id)
}

func lockViews(ctx context.Context, tx *db.Tx, organizationID string) error {
	return tx.Lock(ctx, "views/"+organizationID)
}

// CreateViewTx saves a view in the caller's transaction. Errors: Invalid, also for a query whose
// filters have faults; Precondition if there are [MaxViews].
func (s *Service) CreateViewTx(ctx context.Context, tx *db.Tx, organizationID string, n NewView) (View, error) {
	w := View{
		ID: newID(), OrganizationID: organizationID, OwnerID: n.OwnerID, Name: strings.TrimSpace(n.Name), Query: strings.TrimSpace(n.Query),
		Sort: n.Sort, Columns: n.Columns, CreatedAt: tx.Now, UpdatedAt: tx.Now,
	}
	if w.Sort.Field == "" {
		w.Sort = keyset.Sort{Field: ByUpdatedAt, Descending: true}
	}
	if w.Columns == nil {
		w.Columns = DefaultColumns
	}
	if err := s.checkView(ctx, tx, &w); err != nil {
		return View{}, err
	}
	if err := lockViews(ctx, tx, organizationID); err != nil {
		return View{}, err
	}
	if err := insertInto(ctx, tx, &w, cmp.Or(n.Position, MaxViews)); err != nil {
		return View{}, err
	}
	if err := tx.Queue(ctx, `INSERT INTO ticket_views (id, organization_id, user_id, name, query, sort, descending, columns, position, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`, w.ID, w.OrganizationID, db.Text(w.OwnerID), w.Name, w.Query, w.Sort.Field, w.Sort.Descending,
		db.JSON(w.Columns), w.Position, w.CreatedAt.UnixMicro(), w.UpdatedAt.UnixMicro()); err != nil {
		return View{}, fmt.Errorf("write view: %w", err)
	}
	return w, s.recordViewTx(ctx, tx, AuditViewCreated, View{}, w)
}

// UpdateViewTx changes a view that a member sees, or with an empty userID a shared one, in the
// caller's transaction. Errors: NotFound; those of [Service.CreateViewTx].
func (s *Service) UpdateViewTx(ctx context.Context, tx *db.Tx, organizationID, userID, id string, u ViewUpdate) (View, error) {
	before, err := s.LockViewTx(ctx, tx, organizationID, userID, id)
	if err != nil {
		return View{}, err
	}
	w := before
	w.Columns = slices.Clone(before.Columns)
	set(&w.OwnerID, u.OwnerID)
	set(&w.Name, u.Name)
	set(&w.Query, u.Query)
	set(&w.Sort, u.Sort)
	set(&w.Columns, u.Columns)
	set(&w.Position, u.Position)
	w.Name, w.Query = strings.TrimSpace(w.Name), strings.TrimSpace(w.Query)
	if err := s.checkView(ctx, tx, &w); err != nil {
		return View{}, err
	}
	switch {
	case w.OwnerID != before.OwnerID:
		if err := removeFrom(ctx, tx, &before); err != nil {
			return View{}, err
		}
		err = insertInto(ctx, tx, &w, MaxViews)
	case w.Position != before.Position:
		err = insertInto(ctx, tx, &w, w.Position)
	}
	if err != nil {
		return View{}, err
	}
	if sameView(&before, &w) {
		return before, nil
	}
	w.UpdatedAt = tx.Now
	if err := tx.Queue(ctx, `UPDATE ticket_views SET user_id = $2, name = $3, query = $4, sort = $5, descending = $6, columns = $7, position = $8, updated_at = $9 WHERE id = $1`,
		w.ID, db.Text(w.OwnerID), w.Name, w.Query, w.Sort.Field, w.Sort.Descending, db.JSON(w.Columns), w.Position, w.UpdatedAt.UnixMicro()); err != nil {
		return View{}, fmt.Errorf("write view: %w", err)
	}
	return w, s.recordViewTx(ctx, tx, AuditViewUpdated, before, w)
}

// DeleteViewTx deletes a view that a member sees, or with an empty userID a shared one, in the
// caller's transaction, and returns it. Error: NotFound.
func (s *Service) DeleteViewTx(ctx context.Context, tx *db.Tx, organizationID, userID, id string) (View, error) {
	w, err := s.LockViewTx(ctx, tx, organizationID, userID, id)
	if err != nil {
		return View{}, err
	}
	if err := tx.Queue(ctx, "DELETE FROM ticket_views WHERE id = $1", w.ID); err != nil {
		return View{}, fmt.Errorf("delete view: %w", err)
	}
	if err := removeFrom(ctx, tx, &w); err != nil {
		return View{}, err
	}
	return w, s.recordViewTx(ctx, tx, AuditViewDeleted, w, View{})
}

// set assigns a value that is given.
func set[T any](to, given *T) {
	if given != nil {
		*to = *given
	}
}

func sameView(a, b *View) bool {
	return a.OwnerID == b.OwnerID && a.Name == b.Name && a.Query == b.Query && a.Sort == b.Sort && slices.Equal(a.Columns, b.Columns) && a.Position == b.Position
}

// checkView checks a view, and its query as a search does. In a shared view "me" is each reader.
func (s *Service) checkView(ctx context.Context, tx *db.Tx, w *View) error {
	var v problem.Validation
	w.Check(&v)
	if !v.Has("query") {
		t := TicketQuery{Text: w.Query, Reader: Reader{UserID: cmp.Or(w.OwnerID, "each")}}
		_, err := s.readFilters(ctx, tx, w.OrganizationID, &t)
		if fault := SearchFault(err); fault != "" {
			v.Add("query", "has a fault: %s", fault)
		} else if err != nil {
			return err
		}
	}
	return v.Err()
}

// neighbours returns the ids of the other views in the view's list, in order.
func neighbours(ctx context.Context, tx *db.Tx, w *View) ([]string, error) {
	ids, err := db.All(ctx, tx, scanText, `SELECT id FROM ticket_views WHERE organization_id = $1 AND coalesce(user_id, '') = $2 AND id <> $3
		ORDER BY position, id`, w.OrganizationID, w.OwnerID, w.ID)
	if err != nil {
		return nil, fmt.Errorf("load views: %w", err)
	}
	return ids, nil
}

// insertInto gives the view a position in its list, and moves the others. Error: Precondition if
// the list is full.
func insertInto(ctx context.Context, tx *db.Tx, w *View, position int) error {
	ids, err := neighbours(ctx, tx, w)
	if err != nil {
		return err
	}
	if len(ids) >= MaxViews {
		kind := "shared views"
		if w.OwnerID != "" {
			kind = "own views"
		}
		return &problem.Error{Kind: problem.Precondition, Code: "invalid_transition", Message: fmt.Sprintf("there are %d %s already, the maximum: delete one first", len(ids), kind)}
	}
	w.Position = min(max(position, 1), len(ids)+1)
	return number(ctx, tx, slices.Insert(ids, w.Position-1, w.ID))
}

// removeFrom closes the gap that a view leaves in its list.
func removeFrom(ctx context.Context, tx *db.Tx, w *View) error {
	ids, err := neighbours(ctx, tx, w)
	if err != nil {
		return err
	}
	return number(ctx, tx, ids)
}

// number stores the positions of views in this order.
func number(ctx context.Context, tx *db.Tx, ids []string) error {
	for i, id := range ids {
		if err := tx.Queue(ctx, "UPDATE ticket_views SET position = $2 WHERE id = $1 AND position <> $2", id, i+1); err != nil {
			return fmt.Errorf("order views: %w", err)
		}
	}
	return nil
}

// deleteViews deletes the own views of a member who leaves.
func deleteViews(ctx context.Context, tx *db.Tx, organizationID, userID string) error {
	if err := tx.Queue(ctx, "DELETE FROM ticket_views WHERE organization_id = $1 AND user_id = $2", organizationID, userID); err != nil {
		return fmt.Errorf("delete views: %w", err)
	}
	return nil
}

// viewSettings are the fields of a shared view that the audit log compares.
type viewSettings struct {
	Name     string   `json:"name"`
	Query    string   `json:"query"`
	Sort     string   `json:"sort"`
	Columns  []Column `json:"columns"`
	Position int      `json:"position"`
	Shared   bool     `json:"shared"`
}

// recordViewTx records a change of a shared view; the zero view stands for none. Own views are
// nobody else's business.
func (s *Service) recordViewTx(ctx context.Context, tx *db.Tx, a audit.Action, before, after View) error {
	of := func(w View) viewSettings {
		if w.ID == "" {
			return viewSettings{}
		}
		return viewSettings{w.Name, w.Query, SortText(w.Sort), w.Columns, w.Position, w.OwnerID == ""}
	}
	w := after
	if w.ID == "" {
		w = before
	}
	if !of(before).Shared && !of(after).Shared {
		return nil
	}
	e := audit.Entry{OrganizationID: w.OrganizationID, Action: a, Target: audit.Target{Type: "view", ID: w.ID, Name: w.Name}}
	return s.audit.RecordChangeTx(ctx, tx, e, of(before), of(after))
}

// SortText returns a sort as its field, with a minus before it if it is descending.
func SortText(s keyset.Sort) string {
	if s.Descending {
		return "-" + s.Field
	}
	return s.Field
}

// ParseSort reads [SortText]. It does not check the field.
func ParseSort(text string) keyset.Sort {
	field, descending := strings.CutPrefix(text, "-")
	return keyset.Sort{Field: field, Descending: descending}
}
