package inbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mailparse"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// maxAttached is the limit of a message's files, in bytes, as in the API.
const maxAttached = 25 << 20

// composer is the form for replies and notes.
type composer struct {
	Kind         string // the selected tab
	Reply, Note  string
	Options      []replyOption
	Refusal      string // why no reply is possible; empty: possible
	Wrong        string // error of the refused form
	Files        bool   // it had files, which must be selected again
	DraftSavedAt web.Time
	Once         string // idempotency key of the form
	Seen         string // id of the newest message on the page; empty: none
	Crossed      *crossedReply
	Macro        *macroChip // nil: none
	MaxMB        int
	Later        []moment // offered times for sending later
}

// crossedReply requests confirmation of a reply, since its author has not seen a newer
// one.
type crossedReply struct {
	Author string
	When   string // "20 s ago"
	Do     string // the pressed button
	At     string // the chosen time; empty: at once
}

// replyOption is a conversation in which a reply can be sent.
type replyOption struct {
	ID        string
	Icon      string
	Channel   string
	From      string
	To        string
	Copies    string
	Refusal   string
	Warning   string
	Until     web.Time // end of the channel's reply window, future or past
	Left      string   // time left
	Chosen    bool
	Forwarded bool   // with somebody to whom messages were forwarded
	Most      int    // characters; 0: no limit
	Parts     bool   // a long text leaves in several parts
	Limits    string // of the channel, as a sentence; empty: none
	// Mail has addresses of copies, as the form has them, and as the page showed them.
	Mail             bool
	Cc, ShownCc, Bcc string
	// Unauthenticated wishes of the mail: other recipients and more copies.
	Address string // of the customer
	Offers  []recipientOption
	Copy    []recipientOption
}

// HasSelection reports whether an offered recipient is selected.
func (w replyOption) HasSelection() bool {
	return slices.ContainsFunc(w.Offers, func(o recipientOption) bool { return o.Chosen })
}

// recipientOption is an address that the author may select.
type recipientOption struct {
	Address, Name, Why string
	Chosen             bool
}

// draftForm is the posted composer.
type draftForm struct {
	kind         string
	reply, note  string
	conversation string
	to           string
	cc           []string
	copies       copiesForm
	seen         *string // see [desk.Reply]
	sendAt       time.Time
	macro        string            // id of the macro to apply; empty: none
	macroFiles   []string          // ids of its files to send
	ride         map[string]string // values of its variables; see [pages.macroRide]
	wrong        string            // error
	crossed      *crossedReply
	files        bool
}

// copiesForm has the addresses of copies as posted, separated by commas.
type copiesForm struct{ cc, shown, bcc string }

// changes returns the addresses that were added to the shown ones, and those that were removed.
func (f copiesForm) changes() (added, removed []string) {
	cc, shown := splitAddresses(f.cc), splitAddresses(f.shown)
	without := func(list, others []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(a string) bool {
			return slices.ContainsFunc(others, func(b string) bool { return strings.EqualFold(a, b) })
		})
	}
	return without(cc, shown), without(shown, cc)
}

// splitAddresses returns the addresses in a list such as `"Doe, Bob" <bob@example.com>, eve@example.com`.
func splitAddresses(text string) []string {
	var list []string
	for part := range mailparse.SplitAddresses(strings.ReplaceAll(text, "\n", ",")) {
		if i := strings.LastIndexByte(part, '<'); i >= 0 {
			part = strings.TrimSuffix(strings.TrimSpace(part[i+1:]), ">")
		}
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// refused reports whether the form must be rendered again.
func (s *draftForm) refused() bool { return s.wrong != "" || s.crossed != nil }

func (p *pages) newComposer(r *web.Request, q db.Querier, t *desk.Ticket, said draftForm) (composer, error) {
	c := composer{Kind: desk.KindReply, Once: rand.Text(), MaxMB: maxAttached >> 20, Later: laterMoments(r)}
	chosen, err := p.fillComposer(r, q, t, said, &c)
	if err != nil {
		return c, err
	}
	options, err := p.Desk.ReplyOptions(r.Context(), q, r.OrganizationID, t.ID)
	if err != nil {
		return c, err
	}
	for i := range options {
		c.Options = append(c.Options, newReplyOption(r, &options[i], said))
	}
	possible := slices.IndexFunc(c.Options, func(o replyOption) bool { return o.Refusal == "" && !o.Forwarded })
	can := possible >= 0
	if i := slices.IndexFunc(c.Options, func(o replyOption) bool { return o.ID == chosen }); i >= 0 {
		c.Options[i].Chosen = true
	} else if can {
		c.Options[possible].Chosen = true
	}
	switch {
	case len(options) == 0:
		c.Refusal = "This ticket has no conversation to reply to. Add a note, or create a new ticket for the customer."
	case !can && (len(options) == 1 || options[1].Forwarded):
		c.Refusal = asSentence(c.Options[0].Refusal)
	case !can:
		c.Refusal = "No conversation of this ticket accepts a reply right now."
	}
	if c.Refusal != "" && c.Reply == "" {
		c.Kind = desk.KindNote
	}
	return c, p.addMacro(r, q, t, said, &c)
}

// fillComposer sets the texts: of the refused form, else of a message to send again, else of the
// user's drafts. chosen is the id of their conversation, if any.
func (p *pages) fillComposer(r *web.Request, q db.Querier, t *desk.Ticket, said draftForm, c *composer) (chosen string, err error) {
	drafts, err := p.Desk.SavedDrafts(r.Context(), q, r.OrganizationID, r.UserID, t.ID)
	if err != nil {
		return "", err
	}
	reply, note := drafts[desk.KindReply], drafts[desk.KindNote]
	chosen = reply.ConversationID
	c.Reply, c.Note = reply.Text, note.Text
	if c.Reply == "" && c.Note != "" {
		c.Kind = desk.KindNote
	}
	if c.DraftSavedAt = r.Time(reply.UpdatedAt); note.UpdatedAt.After(reply.UpdatedAt) {
		c.DraftSavedAt = r.Time(note.UpdatedAt)
	}
	if id := r.URL.Query().Get("again"); id != "" && c.Reply == "" {
		if m, err := p.Desk.Message(r.Context(), q, r.OrganizationID, t.ID, id); err == nil && m.Direction == desk.DirectionOutbound && m.Kind == desk.KindReply {
			c.Kind, c.Reply, chosen = desk.KindReply, m.Text, m.ConversationID
		} else if err != nil && problem.Of(err) != problem.NotFound {
			return "", err
		}
	}
	if said.refused() {
		c.Kind, c.Reply, c.Note, c.Wrong, c.Crossed, c.Files, c.DraftSavedAt = said.kind, said.reply, said.note, said.wrong, said.crossed, said.files, web.Time{}
		chosen = said.conversation
	}
	return chosen, nil
}

func newReplyOption(r *web.Request, o *desk.ReplyOption, said draftForm) replyOption {
	w := replyOption{
		ID: o.ConversationID, Icon: channelIcon(o.Channel), Channel: channelLabel(o.Channel), From: o.From,
		To: partyName(o.To), Refusal: o.Refusal, Warning: o.Warning, Until: r.Time(o.OpenUntil), Address: o.To.Email,
	}
	for _, c := range o.Offers {
		w.Offers = append(w.Offers, recipientOption{c.To, partyName(channel.Party{Name: c.Name, Email: c.To}), asSentence(c.Reason), said.to == c.To})
	}
	for _, a := range o.Withheld {
		w.Copy = append(w.Copy, recipientOption{Address: a.Email, Name: partyName(channel.Party{Name: a.Name, Email: a.Email}), Chosen: slices.Contains(said.cc, a.Email)})
	}
	var copies, addresses []string
	for _, c := range o.Cc {
		copies, addresses = append(copies, partyName(c)), append(addresses, c.Email)
	}
	w.Copies = strings.Join(copies, ", ")
	w.Forwarded, w.Most, w.Parts, w.Limits = o.Forwarded, o.Limits.Text, o.Limits.Parts, limitText(o.Limits)
	w.Mail, w.ShownCc = o.Channel == "email", strings.Join(addresses, ", ")
	if w.Cc = w.ShownCc; said.refused() && said.conversation == o.ConversationID {
		w.Cc, w.ShownCc, w.Bcc = said.copies.cc, said.copies.shown, said.copies.bcc
	}
	if left := o.OpenUntil.Sub(r.Now); !o.OpenUntil.IsZero() && left > 0 {
		w.Left = approximate(left)
	}
	return w
}

// limitText describes a channel's limits; empty: there are none to know.
func limitText(l channel.Limits) string {
	var parts []string
	if l.Text > 0 {
		parts = append(parts, web.Sprintf("at most %d characters", l.Text))
	}
	if l.Parts {
		parts = append(parts, "long ones are charged as several")
	}
	if l.Files != "" {
		parts = append(parts, l.Files)
	}
	return asSentence(strings.Join(parts, "; "))
}

// partyName returns a party's name and address.
func partyName(p channel.Party) string {
	address := cmp.Or(p.Email, p.Phone)
	switch {
	case p.Name != "" && address != "" && p.Name != address:
		return p.Name + " (" + address + ")"
	case p.Name != "" || address != "":
		return cmp.Or(p.Name, address)
	}
	return p.ID
}

// asSentence returns a service's message with a capital letter and a full stop.
func asSentence(text string) string {
	if text == "" {
		return ""
	}
	text = strings.ToUpper(text[:1]) + text[1:]
	if !strings.ContainsAny(text[len(text)-1:], ".!?") {
		text += "."
	}
	return text
}

// submissionKey returns the key of a form; empty: none.
func submissionKey(r *web.Request, form url.Values) string {
	if text := form.Get("once"); text != "" && len(text) <= 64 {
		return r.UserID + " " + text
	}
	return ""
}

// isFirst records a key and reports whether it is new.
func (p *pages) isFirst(key string) bool {
	_, isNew := p.submitted.GetOrPut(key, struct{}{})
	return isNew
}

// submitReply sends a reply, adds a note, or saves drafts.
func (p *pages) submitReply(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Upload(w, r, maxAttached)
	if !ok {
		return nil
	}
	t, err := p.found(r, p.DB)
	if err != nil {
		return err
	}
	if form.Get("do") == "preview" {
		return p.previewReply(w, r, &t, form)
	}
	s := draftForm{
		kind: form.Get("kind"), reply: form.Get("reply"), note: form.Get("note"),
		conversation: form.Get("conversation"), macro: form.Get("macro"), macroFiles: form.Values["macro_file"], files: len(form.Files) > 0 || form.TooLarge,
	}
	s.to, s.cc = form.Get("to."+s.conversation), form.Values["cc."+s.conversation]
	s.copies = copiesForm{form.Get("copies." + s.conversation), form.Get("shown." + s.conversation), form.Get("bcc." + s.conversation)}
	if s.kind != desk.KindNote {
		s.kind = desk.KindReply
	}
	if form.Has("seen") {
		s.seen = new(form.Get("seen"))
	}
	back := ticketPath(t.Number) + listQuery(r)
	if s.sendAt, err = readMoment(r, form.Values); err != nil {
		return p.refuse(w, r, t, s, err)
	}
	if do := form.Get("do"); do == "draft" || do == "macros" {
		if err := p.saveDrafts(r, &t, s, desk.KindReply, desk.KindNote); err != nil {
			return p.refuse(w, r, t, s, err)
		}
		p.presence.see(t.ID, r.UserID, cmp.Or(r.User.Name, r.User.Email), true, r.Now)
		if do == "macros" {
			return p.Redirect(w, ticketPath(t.Number)+"/macros"+listQuery(r), web.Notice{})
		}
		if r.Header.Get("X-Draft") != "" {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		return p.Redirect(w, back, web.Notice{Text: "Draft saved. Only you can see it."})
	}
	if form.TooLarge {
		s.wrong = web.Sprintf("The files are larger than %d MB in total. Attach fewer or smaller files. Nothing was sent; your text is saved.", maxAttached>>20)
		return p.showTicket(w, r, t, s, nil)
	}
	key := submissionKey(r, form.Values)
	if key != "" && !p.isFirst(key) {
		return p.Redirect(w, back, web.Notice{})
	}
	if do := form.Get("do"); do == doNext || do == doSend && s.kind == desk.KindReply && r.Preferences.AfterSend == account.AfterSendNext {
		if back, err = p.nextTicket(r, &t); err != nil {
			p.submitted.Delete(key)
			return err
		}
	}
	n, err := p.send(r, &t, s, form)
	if err != nil {
		p.submitted.Delete(key)
		if c, ok := desk.AsCrossedReply(err); ok {
			s.crossed = &crossedReply{cmp.Or(c.Author.Name, "A colleague"), since(r.Now.Sub(c.CreatedAt)), form.Get("do"), ""}
			if !s.sendAt.IsZero() {
				s.crossed.At = web.DateTimeLocal(s.sendAt)
			}
		}
		return p.refuse(w, r, t, s, err)
	}
	return p.Redirect(w, back, n)
}

// send sends the reply or adds the note.
func (p *pages) send(r *web.Request, t *desk.Ticket, s draftForm, form web.Upload) (web.Notice, error) {
	d := desk.Draft{Text: s.reply}
	if s.kind == desk.KindNote {
		d.Text, d.Note = s.note, true
	}
	if s.macro != "" {
		if err := checkFilled(d.Text); err != nil {
			return web.Notice{}, err
		}
	}
	for _, f := range form.Files {
		d.Attachments = append(d.Attachments, channel.Attachment{Name: f.Name, ContentType: f.ContentType, Data: f.Data})
	}
	content, err := p.Desk.Compose(r.Context(), r.OrganizationID, d)
	if err != nil {
		return web.Notice{}, err
	}
	if content.Empty() && s.macro == "" {
		return web.Notice{}, problem.New(problem.Invalid, "there is nothing written yet")
	}
	if s.ride, err = p.macroRide(r, t, s.macro); err != nil {
		return web.Notice{}, err
	}
	by := actor(r)
	notice := web.Notice{Text: "Note added. Only your team can see it."}
	err = p.inTransaction(r, func(ctx context.Context, tx *db.Tx, t desk.Ticket) error {
		content := content // the transaction may run again
		if err := p.attachMacroFiles(ctx, tx, r, s, &content); err != nil {
			return err
		}
		if content.Empty() {
			notice.Text = "Macro applied."
		} else if s.kind == desk.KindNote {
			if _, err := p.Desk.AddNoteTx(ctx, tx, r.OrganizationID, t.ID, by, content); err != nil {
				return err
			}
		} else {
			added, removed := s.copies.changes()
			m, err := p.Desk.ReplyTx(ctx, tx, r.OrganizationID, t.ID, desk.Reply{
				By: by, Content: content, ConversationID: s.conversation, To: s.to, Cc: slices.Concat(s.cc, added), Drop: removed,
				Bcc: splitAddresses(s.copies.bcc), Seen: s.seen, SendAt: s.sendAt, Hold: undoTime(r),
			})
			if err != nil {
				return err
			}
			notice = replyNotice(r, &t, &m)
		}
		// The form has the draft of the other kind too.
		other := desk.SavedDraft{TicketID: t.ID, UserID: r.UserID, Kind: desk.KindNote, Text: s.note}
		if s.kind == desk.KindNote {
			other.Kind, other.Text, other.ConversationID = desk.KindReply, s.reply, s.conversation
		}
		if form.Has(other.Kind) && problem.Check(other) == nil {
			if err := p.Desk.SaveDraftTx(ctx, tx, r.OrganizationID, other); err != nil {
				return err
			}
		}
		status := desk.Status(form.Get("do"))
		if status == doNext {
			status = desk.StatusResolved
		}
		if s.macro != "" {
			return p.applyMacro(ctx, tx, r, &t, s, status, &notice)
		}
		if status != desk.StatusResolved && status != desk.StatusPending || status == t.Status || t.MergedIntoID != "" {
			return nil
		}
		if _, err := p.Desk.UpdateTx(ctx, tx, r.OrganizationID, t.ID, desk.Update{Status: &status}); err != nil {
			return err
		}
		notice.Text += " Status set to " + strings.ToLower(statusLabel(status)) + " now."
		if notice.Undo == "" {
			notice.Undo, notice.Fields = ticketPath(t.Number)+"/properties"+listQuery(r), map[string]string{"undo": "1"}
		}
		notice.Fields["status"], notice.Fields["was.status"] = string(t.Status), string(status)
		addSnooze(notice.Fields, &t)
		return nil
	})
	return notice, err
}

// actor returns the user as the author of changes.
func actor(r *web.Request) desk.Actor {
	return desk.Actor{ID: r.UserID, Name: cmp.Or(r.User.Name, r.User.Email)}
}

// The buttons that send, and that send, resolve, and open the next ticket of the list.
const (
	doSend = "send"
	doNext = "next"
)

// nextTicket returns the path of the ticket below t in its list, or above if it is the last; else
// of the list.
func (p *pages) nextTicket(r *web.Request, t *desk.Ticket) (string, error) {
	l, err := p.listBeside(r, t.Number)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(l.Rows, func(row row) bool { return row.Number == t.Number })
	switch {
	case i+1 < len(l.Rows):
		return l.Rows[i+1].Path, nil
	case i > 0:
		return l.Rows[i-1].Path, nil
	}
	return l.Path, nil
}

// saveDrafts saves the drafts of these kinds.
func (p *pages) saveDrafts(r *web.Request, t *desk.Ticket, s draftForm, kinds ...string) error {
	return p.DB.Write(r.Context(), func(tx *db.Tx) error {
		for _, kind := range kinds {
			d := desk.SavedDraft{TicketID: t.ID, UserID: r.UserID, Kind: kind, Text: s.note}
			if kind == desk.KindReply {
				d.Text, d.ConversationID = s.reply, s.conversation
			}
			if err := p.Desk.SaveDraftTx(r.Context(), tx, r.OrganizationID, d); err != nil {
				return err
			}
		}
		return nil
	})
}

// refuse renders the ticket with the refused form, and saves it as a draft in case the
// user leaves the page.
func (p *pages) refuse(w http.ResponseWriter, r *web.Request, t desk.Ticket, s draftForm, err error) error {
	e, ok := submitError(err)
	if !ok {
		return err
	}
	if s.crossed == nil {
		s.wrong = asSentence(e.Message)
		if len(e.Issues) > 0 {
			s.wrong = asSentence(issueText(e.Issues[0]))
		}
		s.wrong += " Nothing was sent."
	}
	if err := p.saveDrafts(r, &t, s, desk.KindReply, desk.KindNote); err != nil {
		if _, ok := submitError(err); !ok {
			return err
		}
	}
	return p.showTicket(w, r, t, s, nil)
}

// issueText returns the message for an issue of a draft.
func issueText(i problem.Issue) string {
	what, rest, _ := strings.Cut(i.Path, ".")
	switch what {
	case "attachments":
		if n, _, _ := strings.Cut(rest, "."); n != "" {
			if at, err := strconv.Atoi(n); err == nil {
				return "the name of file " + strconv.Itoa(at+1) + " " + i.Message
			}
		}
		return "the files " + i.Message
	case "cc", "bcc":
		if rest == "" {
			return "the list of copies " + i.Message
		}
		return "an address under Cc or Bcc " + i.Message
	case "to":
		return "the recipients have changed; look at them again"
	case "send_at":
		return "the time " + i.Message
	case "seen_message_id":
		return "messages were moved to another ticket; look at this one again"
	case "conversation_id":
		return "the conversation is not in this ticket any more; choose another one"
	}
	return "the text " + i.Message
}

// reportPresence records the user's heartbeat and notifies other viewers of changes.
func (p *pages) reportPresence(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	t, err := p.found(r, p.DB)
	if err != nil {
		return err
	}
	name := cmp.Or(r.User.Name, r.User.Email)
	changed := false
	if form.Get("state") == "gone" {
		changed = p.presence.leave(t.ID, r.UserID)
	} else {
		changed = p.presence.see(t.ID, r.UserID, name, form.Get("state") == "writing", r.Now)
	}
	if changed && p.Live != nil {
		p.Live.Publish(r.OrganizationID, "presence:"+t.ID)
	}
	if form.Get("state") == "writing" && form.Get("note") == "" && p.AgentTyping != nil {
		p.AgentTyping(r.Context(), &t, name)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
