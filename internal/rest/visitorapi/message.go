package visitorapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/api"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

const (
	maxJSON   = 512 << 10 // bytes of a message without files
	maxUpload = 10 << 20  // bytes of one with files
	maxField  = 400 << 10 // bytes of a field beside files
	pageSize  = 50
	maxPage   = 200
)

type conversation struct {
	Object        string       `json:"object"`
	ID            string       `json:"id"` // the app's
	Subject       string       `json:"subject"`
	Status        desk.Status  `json:"status"`
	CreatedAt     rfc3339.Time `json:"created_at"`
	LastMessageAt rfc3339.Time `json:"last_message_at"`
}

type message struct {
	Object    string       `json:"object"`
	ID        string       `json:"id"`
	External  *string      `json:"external_id"` // the app's id of the visitor's own message
	Author    author       `json:"author"`
	Text      string       `json:"text"`
	Files     []file       `json:"files"`
	CreatedAt rfc3339.Time `json:"created_at"`
}

type author struct {
	Type string `json:"type"` // visitor, agent or system
	Name string `json:"name"`
}

type file struct {
	Name        string  `json:"name"`
	ContentType string  `json:"content_type"`
	Size        int64   `json:"size"`
	URL         *string `json:"url"` // null until the file is stored
}

type messageList struct {
	Object string    `json:"object"`
	Data   []message `json:"data"`
	Cursor string    `json:"cursor"` // after the last message; for the next request
	More   bool      `json:"has_more"`
}

func write(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
	return nil
}

func (h *Handler) listConversations(w http.ResponseWriter, r *http.Request, v *visitor) error {
	list, err := h.Desk.AppThreads(r.Context(), h.DB, v.connection.ID, v.user.ID)
	if err != nil {
		return err
	}
	out := struct {
		Object string         `json:"object"`
		Data   []conversation `json:"data"`
	}{"list", make([]conversation, len(list))}
	for i, t := range list {
		_, id := api.SplitThreadKey(t.Key)
		out.Data[i] = conversation{"conversation", id, t.Subject, t.Status, rfc3339.Time(t.CreatedAt), rfc3339.Time(t.LastMessageAt)}
	}
	return write(w, http.StatusOK, out)
}

func (h *Handler) listMessages(w http.ResponseWriter, r *http.Request, v *visitor) error {
	query := r.URL.Query()
	limit := pageSize
	if raw := query.Get("limit"); raw != "" {
		n, err := strconv.Atoi(raw)
		if err != nil || n < 1 || n > maxPage {
			return badParameter("limit must be from 1 to 200")
		}
		limit = n
	}
	after, err := parseCursor(query.Get("after"))
	if err != nil {
		return err
	}
	t, err := h.Desk.AppThread(r.Context(), h.DB, v.connection.ID, v.key(r))
	if err != nil {
		return err
	}
	list, cursor, err := h.Desk.AppMessages(r.Context(), h.DB, &t, after, limit+1)
	if err != nil {
		return err
	}
	out := messageList{Object: "list", Data: []message{}}
	if out.More = len(list) > limit; out.More {
		list = list[:limit]
		cursor = desk.ThreadCursor(&list[limit-1])
	}
	for i := range list {
		out.Data = append(out.Data, h.wireMessage(&list[i]))
	}
	if cursor != nil {
		out.Cursor = cursor.Value + "." + cursor.ID
	}
	return write(w, http.StatusOK, out)
}

func badParameter(detail string) error {
	return &problem.Error{Kind: problem.Unparseable, Code: "invalid_parameter", Message: detail}
}

// parseCursor parses a cursor of a list of messages; nil for none.
func parseCursor(raw string) (*keyset.Cursor, error) {
	if raw == "" {
		return nil, nil
	}
	value, id, ok := strings.Cut(raw, ".")
	if _, err := strconv.ParseInt(value, 10, 64); err != nil || !ok || len(id) > 64 {
		return nil, &problem.Error{Kind: problem.Unparseable, Code: "invalid_cursor", Message: "the cursor is not one of this list"}
	}
	return &keyset.Cursor{Value: value, ID: id}, nil
}

func (h *Handler) wireMessage(m *desk.Message) message {
	w := message{Object: "message", ID: m.ID, Author: author{m.Author.Type, m.Author.Name}, Text: m.Text, Files: []file{}, CreatedAt: rfc3339.Time(m.CreatedAt)}
	if m.Direction == desk.DirectionInbound {
		w.Author.Type = "visitor"
		if _, id := api.SplitThreadKey(m.ExternalID); id != "" {
			w.External = &id
		}
	}
	for i := range m.Attachments {
		a := &m.Attachments[i]
		f := file{Name: a.Name, ContentType: a.SafeType(), Size: a.Size}
		if url := h.Desk.AppFileURL(a); url != "" {
			f.URL = &url
		}
		w.Files = append(w.Files, f)
	}
	return w
}

// accepted is the answer to a message.
type accepted struct {
	Object    string `json:"object"`
	ID        string `json:"id"`
	External  string `json:"external_id"`
	Duplicate bool   `json:"duplicate"` // it was there already
}

// createMessage stores a message of the visitor before it answers. A repeated id changes nothing.
func (h *Handler) createMessage(w http.ResponseWriter, r *http.Request, v *visitor) error {
	in, leave, err := h.readMessage(w, r, v)
	if err != nil {
		return err
	}
	defer leave()
	in.Conversation, in.User, in.Metadata = r.PathValue("conversation"), v.user, nil
	m, err := in.Channel()
	if err != nil {
		return err
	}
	files, err := h.Desk.StoreFiles(r.Context(), m)
	if err != nil {
		return err
	}
	for i := range m.Attachments {
		m.Attachments[i].Data = nil
	}
	var done desk.Result
	err = h.DB.Write(r.Context(), func(tx *db.Tx) error {
		done, err = h.Inbound.AcceptTx(r.Context(), tx, v.source(tx.Now), channel.Event{Message: new(*m)}, files)
		return err
	})
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if done.Outcome == desk.Duplicate {
		status = http.StatusOK
	} else {
		h.Live.StopTyping(v.connection.OrganizationID, done.TicketID)
		h.Live.Publish(v.connection.OrganizationID, visitorTopic(v), "presence:"+done.TicketID)
	}
	return write(w, status, accepted{"message", done.MessageID, in.ID, done.Outcome == desk.Duplicate})
}

// readMessage reads a message as JSON, or as a form with files. The caller calls leave.
func (h *Handler) readMessage(w http.ResponseWriter, r *http.Request, v *visitor) (m api.Message, leave func(), err error) {
	leave = func() {}
	mediaType, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch mediaType {
	case "application/json":
		m, err = readJSON(http.MaxBytesReader(w, r.Body, maxJSON))
		return m, leave, err
	case "multipart/form-data":
		if params["boundary"] == "" {
			return m, nil, formError(errors.New("it has no boundary"))
		}
		body, leave, err := h.readUpload(w, r, v)
		if err != nil {
			return m, nil, err
		}
		if m, err = readForm(multipart.NewReader(bytes.NewReader(body), params["boundary"])); err != nil {
			leave()
			return m, nil, formError(err)
		}
		return m, leave, nil
	}
	return m, nil, problem.New(problem.UnsupportedMedia, "the body must be application/json or multipart/form-data")
}

// readJSON reads the fields external_id, subject and text of an object. Others are ignored.
func readJSON(body io.Reader) (api.Message, error) {
	var in struct {
		ID      string `json:"external_id"`
		Subject string `json:"subject"`
		Text    string `json:"text"`
	}
	d := json.NewDecoder(body)
	err := d.Decode(&in)
	if err == nil {
		if _, end := d.Token(); !errors.Is(end, io.EOF) {
			err = errors.Join(errors.New("text follows the object"), end)
		}
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return api.Message{}, errLarge(maxJSON)
	}
	if err != nil {
		return api.Message{}, &problem.Error{Kind: problem.Unparseable, Code: "invalid_json", Message: "the body cannot be read", Cause: err}
	}
	return api.Message{ID: in.ID, Subject: in.Subject, Text: in.Text}, nil
}

func errLarge(limit int) error {
	return problem.New(problem.TooLarge, "the body has more than %d KiB", limit>>10)
}

// formError returns the problem of a form with the reason why it cannot be read.
func formError(err error) error {
	return &problem.Error{Kind: problem.Unparseable, Code: "invalid_form", Message: "the form cannot be read: " + err.Error(), Cause: err}
}

// readForm reads the fields external_id, subject and text, and files, of which it stops beyond the
// largest number of a message.
func readForm(form *multipart.Reader) (m api.Message, err error) {
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) || len(m.Files) > api.MaxFiles {
			return m, nil
		}
		if err != nil {
			return m, errors.New("it breaks off")
		}
		if part.FileName() != "" {
			f, err := readFile(part)
			if err != nil {
				return m, errors.New("a file breaks off")
			}
			m.Files = append(m.Files, f)
			continue
		}
		text, err := io.ReadAll(io.LimitReader(part, maxField))
		if err != nil {
			return m, errors.New("a field breaks off")
		}
		switch part.FormName() {
		case "external_id":
			m.ID = string(text)
		case "subject":
			m.Subject = string(text)
		case "text":
			m.Text = string(text)
		}
	}
}

func readFile(part *multipart.Part) (api.File, error) {
	data, err := io.ReadAll(part)
	if data == nil {
		data = []byte{}
	}
	return api.File{Name: part.FileName(), ContentType: part.Header.Get("Content-Type"), Data: data}, err
}

// markRead records that the visitor has read the conversation so far.
func (h *Handler) markRead(w http.ResponseWriter, r *http.Request, v *visitor) error {
	return h.receipt(w, r, v, channel.ReceiptRead)
}

func (h *Handler) receipt(w http.ResponseWriter, r *http.Request, v *visitor, state channel.ReceiptState) error {
	if _, err := h.Desk.AppThread(r.Context(), h.DB, v.connection.ID, v.key(r)); err != nil {
		return err
	}
	err := h.DB.Write(r.Context(), func(tx *db.Tx) error {
		_, err := h.Inbound.AcceptTx(r.Context(), tx, v.source(tx.Now), channel.Event{Receipt: &channel.Receipt{ThreadKey: v.key(r), State: state}}, nil)
		return err
	})
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// reportTyping shows the agents that the visitor types.
func (h *Handler) reportTyping(w http.ResponseWriter, r *http.Request, v *visitor) error {
	t, err := h.Desk.AppThread(r.Context(), h.DB, v.connection.ID, v.key(r))
	if err != nil {
		return err
	}
	h.Live.ReportTyping(v.connection.OrganizationID, t.TicketID)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
