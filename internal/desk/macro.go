package desk

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Macro is a saved reply, with changes of the ticket that are made when it is sent.
type Macro struct {
	ID             string
	OrganizationID string
	OwnerID        string // the only member who sees it; empty: shared with the organization
	Name           string // unique among the owner's, or the shared ones, regardless of case
	Text           string // of the reply, with variables; see [MacroVariables]
	Note           string // likewise, of an internal note
	Actions        MacroActions
	Files          []MacroFile // of the reply
	Uses           int64
	UsedAt         time.Time // zero: never
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// MacroActions are the changes of a ticket by a macro. Empty fields stay.
type MacroActions struct {
	Status     Status   `json:"status,omitempty"`
	Priority   Priority `json:"priority,omitempty"`
	Assignee   string   `json:"assignee,omitempty"` // [AssigneeMe], [AssigneeNone] or a member's id
	AddTags    []string `json:"add_tags,omitempty"`
	RemoveTags []string `json:"remove_tags,omitempty"`
}

// The assignees of [MacroActions] that are not a member's id.
const (
	AssigneeMe   = "me"   // the member who applies the macro
	AssigneeNone = "none" // nobody
)

// Bounds of macros.
const (
	maxMacroName     = 100
	maxMacroText     = 5000
	maxMacroNote     = 2000
	MaxSharedMacros  = 500 // of an organization
	MaxPrivateMacros = 100 // of a member in an organization
)

// Check implements [problem.Checker].
func (m Macro) Check(v *problem.Validation) {
	v.Line("name", m.Name, 1, maxMacroName)
	v.Length("text", m.Text, 0, maxMacroText)
	v.Length("note", m.Note, 0, maxMacroNote)
	checkMacroTemplate(v, "text", m.Text)
	checkMacroTemplate(v, "note", m.Note)
	a := &m.Actions
	if a.Status != "" {
		checkStatus(v, a.Status)
	}
	if a.Priority != "" {
		checkPriority(v, a.Priority)
	}
	v.Length("assignee", a.Assignee, 0, maxKey)
	checkMacroTags(v, "add_tags", a.AddTags)
	checkMacroTags(v, "remove_tags", a.RemoveTags)
	for i, tag := range a.RemoveTags {
		if slices.Contains(a.AddTags, tag) {
			v.AddCode("conflict", "remove_tags."+strconv.Itoa(i), "must not be among the added tags")
		}
	}
	if m.Text == "" && m.Note == "" && a.empty() {
		v.AddCode("required", "text", "must be given, or a note or a change of the ticket")
	}
}

func checkMacroTags(v *problem.Validation, path string, tags []string) {
	if len(tags) > maxTags {
		v.AddCode("too_long", path, "must have at most %d values", maxTags)
	}
	for i, tag := range tags {
		v.Length(path+"."+strconv.Itoa(i), tag, 1, maxTag)
	}
}

func (a *MacroActions) empty() bool {
	return a.Status == "" && a.Priority == "" && a.Assignee == "" && len(a.AddTags) == 0 && len(a.RemoveTags) == 0
}

// normalize trims the fields of m and unifies line ends.
func (m *Macro) normalize() {
	m.Name = strings.Join(strings.Fields(m.Name), " ")
	trim := func(text string) string {
		return strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
	}
	m.Text, m.Note = trim(m.Text), trim(m.Note)
	m.Actions.AddTags, m.Actions.RemoveTags = tagSet(m.Actions.AddTags), tagSet(m.Actions.RemoveTags)
}

const selectMacro = `SELECT id, organization_id, owner_id, name, body, note, actions, uses, used_at, created_at, updated_at FROM macros `

func scanMacro(row db.Row) (Macro, error) {
	var m Macro
	err := row.Scan(&m.ID, &m.OrganizationID, &m.OwnerID, &m.Name, &m.Text, &m.Note, db.IntoJSON(&m.Actions),
		&m.Uses, db.IntoTime(&m.UsedAt), db.IntoTime(&m.CreatedAt), db.IntoTime(&m.UpdatedAt))
	return m, err
}

// Macros returns the shared macros and a member's own, by name. An empty memberID
// stands for no member.
func (s *Service) Macros(ctx context.Context, q db.Querier, organizationID, memberID string) ([]Macro, error) {
	list, err := db.All(ctx, q, scanMacro, selectMacro+"WHERE organization_id = $1 AND owner_id IN ('', $2) ORDER BY name_key, id",
		organizationID, memberID)
	if err != nil {
		return nil, fmt.Errorf("list macros: %w", err)
	}
	macros := make([]*Macro, len(list))
	for i := range list {
		macros[i] = &list[i]
	}
	return list, readMacroFiles(ctx, q, organizationID, macros...)
}

// Macro returns a macro that is shared or the member's own, or a NotFound problem.
func (s *Service) Macro(ctx context.Context, q db.Querier, organizationID, memberID, id string) (Macro, error) {
	m, err := db.One(ctx, q, scanMacro, selectMacro+"WHERE id = $1 AND organization_id = $2 AND owner_id IN ('', $3)", id, organizationID, memberID)
	if err != nil {
		return m, notFound(err, "macro")
	}
	return m, readMacroFiles(ctx, q, organizationID, &m)
}

// LockMacroTx is [Service.Macro] with a lock until the caller's transaction ends.
func (s *Service) LockMacroTx(ctx context.Context, tx *db.Tx, organizationID, memberID, id string) (Macro, error) {
	m, err := db.One(ctx, tx, scanMacro, selectMacro+"WHERE id = $1 AND organization_id = $2 AND owner_id IN ('', $3) FOR UPDATE",
		id, organizationID, memberID)
	if err != nil {
		return m, notFound(err, "macro")
	}
	return m, readMacroFiles(ctx, tx, organizationID, &m)
}

// CreateMacroTx creates a macro of m's organization and owner, in the caller's
// transaction. It ignores the id, files, uses and times of m. Errors: Invalid; Conflict
// already_exists for a name in use; Precondition if there are too many.
func (s *Service) CreateMacroTx(ctx context.Context, tx *db.Tx, m Macro) (Macro, error) {
	if err := s.checkMacro(ctx, tx, &m); err != nil {
		return Macro{}, err
	}
	if err := tx.Lock(ctx, "macros/"+m.OrganizationID+"/"+m.OwnerID); err != nil {
		return Macro{}, err
	}
	var n int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM macros WHERE organization_id = $1 AND owner_id = $2", m.OrganizationID, m.OwnerID).Scan(&n); err != nil {
		return Macro{}, fmt.Errorf("count macros: %w", err)
	}
	switch {
	case m.OwnerID == "" && n >= MaxSharedMacros:
		return Macro{}, problem.New(problem.Precondition, "an organization has at most %d shared macros; delete one first", MaxSharedMacros)
	case m.OwnerID != "" && n >= MaxPrivateMacros:
		return Macro{}, problem.New(problem.Precondition, "a member has at most %d macros of their own; delete one first", MaxPrivateMacros)
	}
	m.ID, m.Files, m.Uses, m.UsedAt, m.CreatedAt, m.UpdatedAt = newID(), nil, 0, time.Time{}, tx.Now, tx.Now
	inserted, err := tx.Exec(ctx, `INSERT INTO macros (id, organization_id, owner_id, name, name_key, body, note, actions, uses, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, $9, $9) ON CONFLICT DO NOTHING`,
		m.ID, m.OrganizationID, m.OwnerID, m.Name, strings.ToLower(m.Name), m.Text, m.Note, db.JSON(m.Actions), tx.Now.UnixMicro())
	if err != nil {
		return Macro{}, fmt.Errorf("write macro: %w", err)
	}
	if inserted == 0 {
		return Macro{}, macroNameTaken(&m)
	}
	return m, s.recordMacroTx(ctx, tx, AuditMacroCreated, &m, macroSettings{}, m.settings())
}

// UpdateMacroTx replaces name, text, note and actions of the macro with m's id, owner
// and organization, in the caller's transaction. Errors: NotFound; Invalid; Conflict
// already_exists for a name in use.
func (s *Service) UpdateMacroTx(ctx context.Context, tx *db.Tx, m Macro) (Macro, error) {
	before, err := s.LockMacroTx(ctx, tx, m.OrganizationID, m.OwnerID, m.ID)
	if err != nil {
		return Macro{}, err
	}
	after := before
	after.Name, after.Text, after.Note, after.Actions = m.Name, m.Text, m.Note, m.Actions
	if err := s.checkMacro(ctx, tx, &after); err != nil {
		return Macro{}, err
	}
	after.UpdatedAt = tx.Now
	_, err = tx.Exec(ctx, "UPDATE macros SET name = $2, name_key = $3, body = $4, note = $5, actions = $6, updated_at = $7 WHERE id = $1",
		after.ID, after.Name, strings.ToLower(after.Name), after.Text, after.Note, db.JSON(after.Actions), tx.Now.UnixMicro())
	if db.IsUnique(err) {
		return Macro{}, macroNameTaken(&after).Because(err)
	}
	if err != nil {
		return Macro{}, fmt.Errorf("write macro: %w", err)
	}
	return after, s.recordMacroTx(ctx, tx, AuditMacroUpdated, &after, before.settings(), after.settings())
}

// DeleteMacroTx deletes a macro that is shared or the member's own, with its files, in the
// caller's transaction. Error: NotFound.
func (s *Service) DeleteMacroTx(ctx context.Context, tx *db.Tx, organizationID, memberID, id string) error {
	m, err := s.LockMacroTx(ctx, tx, organizationID, memberID, id)
	if err != nil {
		return err
	}
	if err := s.deleteMacroFiles(ctx, tx, "macro_id = $1", m.ID); err != nil {
		return err
	}
	if err := tx.Queue(ctx, "DELETE FROM macros WHERE id = $1", m.ID); err != nil {
		return fmt.Errorf("delete macro: %w", err)
	}
	return s.recordMacroTx(ctx, tx, AuditMacroDeleted, &m, m.settings(), macroSettings{})
}

// checkMacro normalizes and validates m.
func (s *Service) checkMacro(ctx context.Context, q db.Querier, m *Macro) error {
	m.normalize()
	var v problem.Validation
	m.Check(&v)
	if id := m.Actions.Assignee; id != "" && id != AssigneeMe && id != AssigneeNone && !v.Has("assignee") {
		_, ok, err := s.directory.Agent(ctx, q, m.OrganizationID, id)
		if err != nil {
			return fmt.Errorf("look up assignee: %w", err)
		}
		if !ok {
			v.AddCode("not_found", "assignee", "must be me, none or a member of the organization")
		}
	}
	return v.Err()
}

func macroNameTaken(m *Macro) *problem.Error {
	whose := "there is a shared macro"
	if m.OwnerID != "" {
		whose = "you have a macro"
	}
	return &problem.Error{
		Kind: problem.Conflict, Code: "already_exists", Message: whose + " with this name already", Details: map[string]any{"member": "name"},
	}
}

// macroSettings are the fields of a macro that the audit log compares.
type macroSettings struct {
	Name        string       `json:"name"`
	Text        string       `json:"text"`
	Note        string       `json:"note"`
	Actions     MacroActions `json:"actions"`
	Attachments []string     `json:"attachments"` // names
}

func (m *Macro) settings() macroSettings {
	s := macroSettings{Name: m.Name, Text: m.Text, Note: m.Note, Actions: m.Actions}
	for _, f := range m.Files {
		s.Attachments = append(s.Attachments, f.Name)
	}
	return s
}

// recordMacroTx records the change of a shared macro.
func (s *Service) recordMacroTx(ctx context.Context, tx *db.Tx, a audit.Action, m *Macro, before, after macroSettings) error {
	if m.OwnerID != "" {
		return nil
	}
	e := audit.Entry{OrganizationID: m.OrganizationID, Action: a, Target: audit.Target{Type: "macro", ID: m.ID, Name: m.Name}}
	return s.audit.RecordChangeTx(ctx, tx, e, before, after)
}

// deletePrivateMacros deletes the macros of a member who leaves an organization, with their files;
// of all organizations if organizationID is empty.
func (s *Service) deletePrivateMacros(ctx context.Context, tx *db.Tx, organizationID, userID string) error {
	if err := s.deleteMacroFiles(ctx, tx, `macro_id IN (SELECT m.id FROM macros m WHERE m.owner_id = $1 AND m.owner_id <> '' AND ($2 = '' OR m.organization_id = $2))`,
		userID, organizationID); err != nil {
		return err
	}
	if err := tx.Queue(ctx, "DELETE FROM macros WHERE owner_id = $1 AND owner_id <> '' AND ($2 = '' OR organization_id = $2)", userID, organizationID); err != nil {
		return fmt.Errorf("delete macros: %w", err)
	}
	return nil
}
