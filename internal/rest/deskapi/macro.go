package deskapi

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

var macroRecord = &schema.Record{Name: "macro", Doc: "A saved reply, with a note and changes of the ticket that are made when it is sent.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("macro")},
	{Name: "name", Type: schema.String(1, 100), Access: schema.Required, Doc: "Unique, regardless of case.", Example: "Lock does not open"},
	{Name: "text", Type: schema.String(0, 5000), Access: schema.Writable, Nullable: true, Doc: "Text of the reply, with variables: " + macroVariables() + ". `{{customer.first_name|there}}` has a fallback.", Example: "Hello {{customer.first_name|there}}, please try the lock again."},
	{Name: "note", Type: schema.String(0, 2000), Access: schema.Writable, Nullable: true, Doc: "Text of an internal note, with the same variables."},
	{Name: "status", Type: schema.Enum(statuses...), Access: schema.Writable, Nullable: true, Doc: "New status of the ticket; null: unchanged."},
	{Name: "priority", Type: schema.Enum(priorities...), Access: schema.Writable, Nullable: true, Doc: "New priority; null: unchanged."},
	{Name: "assignee", Type: schema.String(1, 128), Access: schema.Writable, Nullable: true, Doc: "The id of a member; me: the member who applies the macro; none: unassign; null: unchanged.", Example: "me"},
	{Name: "add_tags", Type: schema.Array(schema.String(1, 50), 50), Access: schema.Writable, Example: []string{"lock"}},
	{Name: "remove_tags", Type: schema.Array(schema.String(1, 50), 50), Access: schema.Writable},
	{Name: "attachments", Access: schema.CreateOnly, Doc: "Files of the reply. Later ones are added and deleted by themselves.", Type: schema.Array(schema.Object(
		schema.Member{Name: "id", Type: schema.ID()},
		schema.Member{Name: "name", Type: schema.String(1, 255), Access: schema.Required, Example: "manual.pdf"},
		schema.Member{Name: "content_type", Type: schema.String(0, 255), Access: schema.Writable, Example: "application/pdf"},
		schema.Member{Name: "size", Type: schema.Integer(), Doc: "Bytes."},
		schema.Member{Name: "url", Type: schema.Text(), Doc: "URL of the file, for API keys that may read messages."},
		schema.Member{Name: "content", Type: schema.Formatted("byte", maxMacroBody), Access: schema.Required, WriteOnly: true, Doc: "Base64. All files together may have 10 MiB."},
	), desk.MaxMacroFiles)},
	{Name: "uses", Type: schema.Integer(), Doc: "How often it was applied."},
	{Name: "used_at", Type: schema.Timestamp(), Nullable: true, Doc: "When it was last applied."},
	{Name: "created_at", Type: schema.Timestamp()},
	{Name: "updated_at", Type: schema.Timestamp()},
}}

// maxMacroBody bounds the body of a macro, with its files in base64.
const maxMacroBody = desk.MaxMacroBytes/3*4 + 1<<20

var macroFileRecord = &schema.Record{Name: "macro_file", Doc: "A file of a macro.", Members: []schema.Member{
	{Name: "name", Type: schema.String(1, 255), Access: schema.Required, Example: "manual.pdf"},
	{Name: "content_type", Type: schema.String(0, 255), Access: schema.Writable, Example: "application/pdf"},
	{Name: "content", Type: schema.Formatted("byte", maxMacroBody), Access: schema.Required, WriteOnly: true, Doc: "Base64. The files of a macro may have 10 MiB together.", Example: "SGVsbG8="},
}}

type macroAttachment struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	ContentType string `json:"content_type"`
	Size        int64  `json:"size"`
	URL         string `json:"url"`
}

// macroVariables lists the variables of texts.
func macroVariables() string {
	var list strings.Builder
	for i, v := range desk.MacroVariables {
		if i > 0 {
			list.WriteString(", ")
		}
		list.WriteString("`{{" + v.Name + "}}`")
	}
	return list.String()
}

type wireMacro struct {
	ID          string            `json:"id"`
	Object      string            `json:"object"`
	Name        string            `json:"name"`
	Text        *string           `json:"text"`
	Note        *string           `json:"note"`
	Status      *desk.Status      `json:"status"`
	Priority    *desk.Priority    `json:"priority"`
	Assignee    *string           `json:"assignee"`
	AddTags     []string          `json:"add_tags"`
	RemoveTags  []string          `json:"remove_tags"`
	Attachments []macroAttachment `json:"attachments"`
	Uses        int64             `json:"uses"`
	UsedAt      rfc3339.Time      `json:"used_at"`
	CreatedAt   rfc3339.Time      `json:"created_at"`
	UpdatedAt   rfc3339.Time      `json:"updated_at"`
}

func (a *API) wireMacro(m *desk.Macro) wireMacro {
	files := make([]macroAttachment, len(m.Files))
	for i, f := range m.Files {
		files[i] = macroAttachment{f.ID, f.Name, f.ContentType, f.Size, a.BaseURL + Base + "/attachments/" + f.ID}
	}
	return wireMacro{
		Attachments: files,
		ID:          m.ID, Object: "macro", Name: m.Name, Text: orNull(m.Text), Note: orNull(m.Note),
		Status: orNull(m.Actions.Status), Priority: orNull(m.Actions.Priority), Assignee: orNull(m.Actions.Assignee),
		AddTags: append([]string{}, m.Actions.AddTags...), RemoveTags: append([]string{}, m.Actions.RemoveTags...),
		Uses: m.Uses, UsedAt: rfc3339.Time(m.UsedAt), CreatedAt: rfc3339.Time(m.CreatedAt), UpdatedAt: rfc3339.Time(m.UpdatedAt),
	}
}

type macroBody struct {
	Name       optional.Value[string]        `json:"name"`
	Text       optional.Value[string]        `json:"text"`
	Note       optional.Value[string]        `json:"note"`
	Status     optional.Value[desk.Status]   `json:"status"`
	Priority   optional.Value[desk.Priority] `json:"priority"`
	Assignee   optional.Value[string]        `json:"assignee"`
	AddTags    optional.Value[[]string]      `json:"add_tags"`
	RemoveTags optional.Value[[]string]      `json:"remove_tags"`

	Attachments []fileBody `json:"attachments"`
}

// into copies the body into a macro.
func (in *macroBody) into(m *desk.Macro) {
	in.Name.Into(&m.Name)
	in.Text.Into(&m.Text)
	in.Note.Into(&m.Note)
	in.Status.Into(&m.Actions.Status)
	in.Priority.Into(&m.Actions.Priority)
	in.Assignee.Into(&m.Actions.Assignee)
	in.AddTags.Into(&m.Actions.AddTags)
	in.RemoveTags.Into(&m.Actions.RemoveTags)
}

var macroApplyRecord = &schema.Record{Name: "macro_apply", Members: []schema.Member{
	{Name: "ticket_id", Type: schema.ID(), Access: schema.Required},
	{Name: "preview", Type: schema.Bool(), Access: schema.Writable, Doc: "true: change nothing, send nothing, and return what would be done."},
	{Name: "agent_id", Type: schema.ID(), Access: schema.Writable, Nullable: true, Doc: "The member of the variables `{{agent.…}}` and of the assignee me. Without it the variables have no value. The author of the messages is the API key in any case."},
	{Name: "conversation_id", Type: schema.ID(), Access: schema.Writable, Nullable: true, Doc: "The conversation of the reply; defaults to the one in which the customer wrote last."},
}}

type macroApplyBody struct {
	TicketID       string                 `json:"ticket_id"`
	Preview        bool                   `json:"preview"`
	AgentID        optional.Value[string] `json:"agent_id"`
	ConversationID optional.Value[string] `json:"conversation_id"`
}

var macroApplicationRecord = &schema.Record{Name: "macro.application", Doc: "The effects of a macro on a ticket.", Members: []schema.Member{
	{Name: "object", Type: schema.Enum("macro.application")},
	{Name: "macro_id", Type: schema.ID()},
	{Name: "ticket_id", Type: schema.ID()},
	{Name: "preview", Type: schema.Bool(), Doc: "Whether nothing was done."},
	{Name: "text", Type: schema.Text(), Nullable: true, Doc: "The reply, with the values of variables; null: none.", Example: "Hello Alex, please try the lock again."},
	{Name: "note", Type: schema.Text(), Nullable: true, Doc: "The note, likewise."},
	{Name: "changes", Type: eventChanges, Doc: "The fields of the ticket that differ afterwards: status, priority, assignee_id and tags.", Example: map[string]any{"status": map[string]any{"from": "open", "to": "pending"}}},
	{Name: "missing", Type: schema.Array(schema.Text(), 100), Doc: "The variables without a value and a fallback. In a preview they stand in the texts as they are written; otherwise the request is refused."},
	{Name: "message_id", Type: schema.ID(), Nullable: true, Doc: "The message of the reply; null: none was sent."},
	{Name: "note_id", Type: schema.ID(), Nullable: true, Doc: "The message of the note; null: none was added."},
}}

type macroApplication struct {
	Object    string                  `json:"object"`
	MacroID   string                  `json:"macro_id"`
	TicketID  string                  `json:"ticket_id"`
	Preview   bool                    `json:"preview"`
	Text      *string                 `json:"text"`
	Note      *string                 `json:"note"`
	Changes   map[string]event.Change `json:"changes"`
	Missing   []string                `json:"missing"`
	MessageID *string                 `json:"message_id"`
	NoteID    *string                 `json:"note_id"`
}

func (a *API) macroRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/macros", ID: "listMacros", Tag: "Macros", Summary: "List macros",
		Doc:   "The macros that members share; their private ones are not in the API. An organization has at most 500.",
		Needs: needs("tickets", apikey.Read), Sort: []string{"created_at"}, Export: true,
		Output: macroRecord, List: true, Handle: a.listMacros,
	}, {
		Method: "POST", Path: "/macros", ID: "createMacro", Tag: "Macros", Summary: "Create a macro",
		Doc:   "For all members. It needs a text, a note, or a change of the ticket.",
		Needs: needs("settings", apikey.Update), Input: macroRecord, Output: macroRecord, MaxBody: maxMacroBody,
		Codes: []string{"already_exists", "invalid_transition", quota.CodeExceeded}, Handle: a.createMacro,
	}, {
		Method: "GET", Path: "/macros/{id}", ID: "getMacro", Tag: "Macros", Summary: "Get a macro",
		Needs: needs("tickets", apikey.Read), Output: macroRecord, Handle: a.getMacro,
	}, {
		Method: "PUT", Path: "/macros/{id}", ID: "updateMacro", Tag: "Macros", Summary: "Change a macro",
		Doc:   "Absent fields stay unchanged; null clears a field.",
		Needs: needs("settings", apikey.Update), Input: macroRecord, Output: macroRecord, Codes: []string{"already_exists"}, Handle: a.updateMacro,
	}, {
		Method: "DELETE", Path: "/macros/{id}", ID: "deleteMacro", Tag: "Macros", Summary: "Delete a macro",
		Needs: needs("settings", apikey.Update), Handle: a.deleteMacro,
	}, {
		Method: "POST", Path: "/macros/{id}/attachments", ID: "addMacroAttachment", Tag: "Macros", Summary: "Add a file to a macro",
		Doc:   "It is sent with the reply. A macro has at most 10 files.",
		Needs: needs("settings", apikey.Update), Input: macroFileRecord, Output: macroRecord, MaxBody: maxMacroBody, Status: 200,
		Codes: []string{quota.CodeExceeded}, Handle: a.addMacroAttachment,
	}, {
		Method: "DELETE", Path: "/macros/{id}/attachments/{attachment_id}", ID: "deleteMacroAttachment", Tag: "Macros", Summary: "Delete a file of a macro",
		Doc:   "Messages that were sent with it have it still.",
		Needs: needs("settings", apikey.Update), Handle: a.deleteMacroAttachment,
	}, {
		Method: "POST", Path: "/macros/{id}/apply", ID: "applyMacro", Tag: "Macros", Summary: "Apply a macro to a ticket",
		Doc: "Sends the reply, adds the note and changes the ticket, all or nothing, and counts the use. A reply or a note needs the permission messages.create, too.\n\n" +
			"A variable without a value and a fallback refuses it with `invalid_transition`; a preview lists such variables in `missing`. " +
			"Each change emits its event, as in updateTicket and createMessage.",
		Needs: needs("tickets", apikey.Update), Input: macroApplyRecord, Output: macroApplicationRecord, Status: 200,
		Codes: []string{"invalid_transition", quota.CodeDailyExceeded}, Handle: a.applyMacro,
	}}
}

// noMember stands for the member whose private macros are in reach: keys have none.
const noMember = ""

func (a *API) listMacros(ctx context.Context, r *rest.Request) (rest.Response, error) {
	list, err := a.Desk.Macros(ctx, a.DB, r.Key.OrganizationID, noMember)
	if err != nil {
		return rest.Response{}, err
	}
	return whole(r, wired(list, a.wireMacro), func(m wireMacro) string { return m.ID })
}

func (a *API) createMacro(ctx context.Context, r *rest.Request) (rest.Response, error) {
	var in macroBody
	if err := r.Decode(&in); err != nil {
		return rest.Response{}, err
	}
	m := desk.Macro{OrganizationID: r.Key.OrganizationID}
	in.into(&m)
	content, err := a.composeFiles(ctx, r, in.Attachments)
	if err != nil {
		return rest.Response{}, err
	}
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		m, err := a.Desk.CreateMacroTx(ctx, tx, m)
		if err != nil {
			return rest.Response{}, err
		}
		if m, err = a.Desk.AddMacroFilesTx(ctx, tx, r.Key.OrganizationID, noMember, m.ID, content); err != nil {
			return rest.Response{}, err
		}
		return rest.Created("/macros/"+m.ID, a.wireMacro(&m)), nil
	})
}

// composeFiles stores the files of a macro.
func (a *API) composeFiles(ctx context.Context, r *rest.Request, files []fileBody) (desk.Content, error) {
	d := desk.Draft{Note: true} // files of a note count as storage, and as no message
	var v problem.Validation
	d.Attachments = decodeFiles(&v, files)
	if err := v.Err(); err != nil {
		return desk.Content{}, err
	}
	return a.Desk.Compose(ctx, r.Key.OrganizationID, d)
}

func (a *API) addMacroAttachment(ctx context.Context, r *rest.Request) (rest.Response, error) {
	if _, err := a.Desk.Macro(ctx, a.DB, r.Key.OrganizationID, noMember, r.Path("id")); err != nil {
		return rest.Response{}, err
	}
	var in fileBody
	if err := r.Decode(&in); err != nil {
		return rest.Response{}, err
	}
	content, err := a.composeFiles(ctx, r, []fileBody{in})
	if err != nil {
		return rest.Response{}, withoutIndex(err)
	}
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		m, err := a.Desk.AddMacroFilesTx(ctx, tx, r.Key.OrganizationID, noMember, r.Path("id"), content)
		if err != nil {
			return rest.Response{}, withoutIndex(err)
		}
		return rest.OK(a.wireMacro(&m)), nil
	})
}

// withoutIndex returns an error about a list of one file for the file alone: attachments.0.name
// becomes name, and attachments content.
func withoutIndex(err error) error {
	e, ok := errors.AsType[*problem.Error](err)
	if !ok || len(e.Issues) == 0 {
		return err
	}
	alone := *e
	alone.Issues = slices.Clone(e.Issues)
	for i := range alone.Issues {
		issue := &alone.Issues[i]
		if issue.Path == "attachments" {
			issue.Path = "content"
		}
		issue.Path = strings.TrimPrefix(issue.Path, "attachments.0.")
	}
	return &alone
}

func (a *API) deleteMacroAttachment(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		_, err := a.Desk.DeleteMacroFileTx(ctx, tx, r.Key.OrganizationID, noMember, r.Path("id"), r.Path("attachment_id"))
		return rest.NoContent(), err
	})
}

func (a *API) getMacro(ctx context.Context, r *rest.Request) (rest.Response, error) {
	m, err := a.Desk.Macro(ctx, a.DB, r.Key.OrganizationID, noMember, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(a.wireMacro(&m)), nil
}

func (a *API) updateMacro(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		m, err := a.Desk.LockMacroTx(ctx, tx, r.Key.OrganizationID, noMember, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		var in macroBody
		if err := r.Update(a.wireMacro(&m), &in); err != nil {
			return rest.Response{}, err
		}
		in.into(&m)
		if m, err = a.Desk.UpdateMacroTx(ctx, tx, m); err != nil {
			return rest.Response{}, err
		}
		return rest.OK(a.wireMacro(&m)), nil
	})
}

func (a *API) deleteMacro(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		m, err := a.Desk.LockMacroTx(ctx, tx, r.Key.OrganizationID, noMember, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		if err := r.Match(a.wireMacro(&m)); err != nil {
			return rest.Response{}, err
		}
		if err := a.Desk.DeleteMacroTx(ctx, tx, r.Key.OrganizationID, noMember, m.ID); err != nil {
			return rest.Response{}, err
		}
		return rest.NoContent(), nil
	})
}

func (a *API) applyMacro(ctx context.Context, r *rest.Request) (rest.Response, error) {
	organization, err := a.Accounts.Organization(ctx, r.Key.OrganizationID)
	if err != nil {
		return rest.Response{}, err
	}
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		m, err := a.Desk.Macro(ctx, tx, organization.ID, noMember, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		var in macroApplyBody
		if err := r.Decode(&in); err != nil {
			return rest.Response{}, err
		}
		if !in.Preview && (m.Text != "" || m.Note != "" || len(m.Files) > 0) {
			if err := r.Require("messages", apikey.Create); err != nil {
				return rest.Response{}, err
			}
		}
		if _, err := a.Desk.Ticket(ctx, tx, organization.ID, in.TicketID); problem.Of(err) == problem.NotFound {
			var v problem.Validation
			v.AddCode("not_found", "ticket_id", "must be a ticket of the organization")
			return rest.Response{}, v.Err()
		} else if err != nil {
			return rest.Response{}, err
		}
		use := desk.MacroApplication{
			MacroID: m.ID, TicketID: in.TicketID, AgentID: in.AgentID.Value, OrganizationName: organization.Name,
			By: desk.Actor{ID: r.Key.ID, Name: r.Key.Name}, ConversationID: in.ConversationID.Value,
		}
		var done desk.AppliedMacro
		if in.Preview {
			done.RenderedMacro, err = a.Desk.PreviewMacro(ctx, tx, organization.ID, use)
		} else {
			done, err = a.Desk.ApplyMacroTx(ctx, tx, organization.ID, use)
		}
		if err != nil {
			return rest.Response{}, err
		}
		return rest.OK(macroApplication{
			Object: "macro.application", MacroID: m.ID, TicketID: in.TicketID, Preview: in.Preview, Text: orNull(done.Text), Note: orNull(done.Note),
			Changes: done.Changes, Missing: done.Missing, MessageID: orNull(done.ReplyID), NoteID: orNull(done.NoteID),
		}), nil
	})
}
