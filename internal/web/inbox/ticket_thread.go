package inbox

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"mime"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/call"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
	"github.com/kickstand-dev/kickstand/internal/web"
)

const (
	// messagesOfPage is the number of messages per page, newest first.
	messagesOfPage = 50
	// maxThread is the maximum size of a page's texts in bytes, unless one message has
	// more: about 25 KB compressed.
	maxThread = 64_000
	// maxShown is the length to which a message's text is shown, in bytes; the rest has
	// an address of its own.
	maxShown = 12_000
)

// thread is a page of the ticket's messages, calls and changes.
type thread struct {
	Filter  []filterLink
	Of      string // "messages" or "changes"
	Entries []threadEntry
	Earlier string         // path of the previous page; empty: none
	Newest  string         // path of the newest page; empty: this one
	Last    string         // id of the ticket's newest message or pending reply; empty: none
	Pending []*messageView // replies that have not left; on the newest page
}

// threadEntry is a message, a call, or a line of changes.
type threadEntry struct {
	ID      string
	Day     *web.Time // set on the first entry of a day
	Message *messageView
	Call    *callEntry
	Change  *changeLine
}

// messageView is a message of the thread.
type messageView struct {
	ID        string
	Class     string // by author: "customer", "agent", "note", "system"
	Sender    string
	Avatar    web.Avatar
	Note      bool
	At        web.Time
	Sent      web.Time // by the sender's clock, if it differs
	Icon      string
	Channel   string
	Subject   string        // of a mail, if it is not the ticket's
	Rendered  template.HTML // the text as sent by mail, sanitized; empty: Text
	Text      []span
	Quoted    []span // quoted text; nil: none
	Cut       string // path of the full text; empty: not truncated
	Gone      string // why it has no content
	HTMLPath  string // path of its HTML; empty: the text suffices
	Open      bool   // show the HTML instead of the text
	Waits     bool   // inline images are still being fetched
	Remote    int    // number of remote images
	Load      string // path of the HTML with remote images; empty: cannot be loaded
	Files     []file
	Delivery  *delivery
	Again     string // path to compose it again; empty: not needed
	Pending   string // path of the form of a pending reply; empty: it is a message
	SendNow   bool   // the form can send it
	Badges    []web.Badge
	Why       string // the routing reason
	Facts     []fact
	Reactions []reaction
	Original  string // text before it was edited
	Folded    bool   // collapsed

	accepted time.Time
}

// span is a part of a text, with an optional link.
type span struct {
	Text, Link string
	Mention    bool // it names a member
}

// Local reports whether the link is to a page of the dashboard.
func (s span) Local() bool { return strings.HasPrefix(s.Link, "/") }

type fact struct{ Label, Value string }

type reaction struct{ Text, By string }

// file is an attachment.
type file struct {
	Name, Size, Path, Type string
	Picture, Audio         bool
	Pending                bool   // still being fetched
	Error                  string // why its content is missing
}

// delivery is the delivery state of an outbound message.
type delivery struct {
	Icon   string
	Tone   web.Tone
	Words  string
	Error  string
	Advice string
}

// callEntry is a phone call.
type callEntry struct {
	Inbound    bool
	Words      string // "Answered call"
	With       string
	Duration   string
	At         web.Time
	Steps      []fact
	Recordings []pair // name and URL at the provider
	Target     string
}

// readThread returns the page of the thread that the query selects.
func (p *pages) readThread(r *web.Request, tx *db.Tx, t *desk.Ticket, members []account.User, related []desk.Ticket) (thread, error) {
	th := thread{Filter: newFilter(r, t), Of: cmp.Or(shows(r), showMessages)}
	if shows(r) == showChanges {
		err := p.readChangesOnly(r, tx, t, members, related, &th)
		return th, err
	}
	before := readPosition(r.URL.Query().Get("before"))
	query := desk.MessageQuery{After: before, Limit: messagesOfPage}
	messages, next, err := p.Desk.FindMessages(r.Context(), tx, r.OrganizationID, t.ID, query)
	if err != nil {
		return th, err
	}
	newest := messages
	if before != nil {
		if newest, _, err = p.Desk.FindMessages(r.Context(), tx, r.OrganizationID, t.ID, desk.MessageQuery{Limit: 1}); err != nil {
			return th, err
		}
	}
	if th.Last, err = p.lastSeen(r, tx, t, newest); err != nil {
		return th, err
	}
	names := memberNames(members)
	views := newMessageViews(r, t, messages, names)
	if n := len(views); n < len(messages) {
		messages, next = messages[:n], desk.ThreadCursor(&messages[n-1])
	}
	markMentions(views, messages, members)
	slices.Reverse(messages)
	slices.Reverse(views)
	if next != nil {
		th.Earlier = threadPath(r, t, url.Values{"before": {writePosition(next)}})
	}
	if before != nil {
		th.Newest = threadPath(r, t, url.Values{})
	}
	var calls []*call.Call
	if p.Calls != nil {
		if calls, err = p.Calls.List(r.Context(), tx, r.OrganizationID, call.Filter{TicketID: t.ID}); err != nil {
			return th, err
		}
	}
	b := threadBuilder{r: r}
	if next != nil && len(messages) > 0 {
		b.from = messages[0].CreatedAt
	}
	if before != nil {
		later, err := p.Desk.Message(r.Context(), tx, r.OrganizationID, t.ID, before.ID)
		if err != nil && problem.Of(err) != problem.NotFound {
			return th, err
		}
		b.until = later.CreatedAt
	}
	for _, c := range calls {
		b.others = append(b.others, timedEntry{startTime(c), threadEntry{ID: "call-" + c.ID, Call: newCallEntry(r, c)}})
	}
	if shows(r) == "" {
		lines, err := p.changesBetween(r, tx, t, b.from, b.until, members, related)
		if err != nil {
			return th, err
		}
		b.addLines(lines)
	}
	slices.SortStableFunc(b.others, func(x, y timedEntry) int { return x.at.Compare(y.at) })
	for i := range messages {
		m := &messages[i]
		b.addOthers(m.CreatedAt)
		s := views[i]
		if p.Pictures != nil && s.Remote > 0 {
			s.Load = s.HTMLPath + "?pictures=1"
		}
		b.add(m.CreatedAt, threadEntry{ID: "m-" + m.ID, Message: s})
	}
	b.addOthers(time.Time{})
	th.Entries = b.entries
	if before == nil {
		err = p.readPending(r, tx, t, names, &th)
	}
	return th, err
}

// memberNames returns the names of members by id.
func memberNames(members []account.User) map[string]string {
	names := make(map[string]string, len(members))
	for _, m := range members {
		names[m.ID] = cmp.Or(m.Name, m.Email)
	}
	return names
}

// readPending adds the replies that have not left.
func (p *pages) readPending(r *web.Request, tx *db.Tx, t *desk.Ticket, names map[string]string, th *thread) error {
	pending, err := p.Desk.PendingReplies(r.Context(), tx, r.OrganizationID, t.ID)
	if err != nil {
		return err
	}
	for i := range pending {
		m := &pending[i]
		s := newMessageView(r, t, m, names)
		s.Why, s.HTMLPath, s.Open, s.Again = "Written in the dashboard or by the API.", "", s.Rendered != "", ""
		s.Text = spans(short(m.Text))
		s.Pending, s.SendNow = ticketPath(t.Number)+"/pending/"+m.ID+listQuery(r), m.Delivery.State != desk.DeliveryHeld
		th.Pending = append(th.Pending, s)
	}
	return nil
}

// lastSeen returns what a reader of the page sees last; see [desk.Service.NewestSeen].
func (p *pages) lastSeen(r *web.Request, tx *db.Tx, t *desk.Ticket, newest []desk.Message) (string, error) {
	var last *desk.Message
	if len(newest) > 0 {
		last = &newest[0]
	}
	return p.Desk.NewestSeen(r.Context(), tx, t.ID, last)
}

// threadPath returns the address of a page of the thread, within the list it was opened from.
func threadPath(r *web.Request, t *desk.Ticket, q url.Values) string {
	for name, v := range r.URL.Query() {
		if _, ok := q[name]; !ok && (name == "in" || name == "q" || name == "show") {
			q[name] = v
		}
	}
	return web.Address(ticketPath(t.Number), q)
}

// threadBuilder merges messages, which are in the order of acceptance, with calls and changes by
// time, and adds an entry for each day.
type threadBuilder struct {
	r       *web.Request
	others  []timedEntry // not added yet, by time
	from    time.Time    // earlier calls are on an earlier page; zero: none are
	until   time.Time    // later calls are on a later page; zero: none are
	day     string       // of the last entry
	entries []threadEntry
}

// timedEntry is a call or a change with its time.
type timedEntry struct {
	at    time.Time
	entry threadEntry
}

// addLines appends changes to the other entries.
func (b *threadBuilder) addLines(lines []*changeLine) {
	for _, l := range lines {
		b.others = append(b.others, timedEntry{l.first.At, threadEntry{ID: "c-" + strconv.FormatInt(l.first.Number, 10), Change: l}})
	}
}

// add adds an entry. A day may recur, because a message that waited is shown after later ones, but
// ids must be unique. A change joins the line before it if it can.
func (b *threadBuilder) add(at time.Time, e threadEntry) {
	when := b.r.Time(at)
	if day := when.Day(); day != b.day {
		b.day = day
		b.addOnce(threadEntry{ID: "day-" + at.In(b.r.Now.Location()).Format(time.DateOnly), Day: &when})
	}
	if n := len(b.entries); n > 0 && e.Change != nil && b.entries[n-1].Change != nil && b.entries[n-1].Change.fold(e.Change) {
		return
	}
	b.addOnce(e)
}

func (b *threadBuilder) addOnce(e threadEntry) {
	if !slices.ContainsFunc(b.entries, func(o threadEntry) bool { return o.ID == e.ID }) {
		b.entries = append(b.entries, e)
	}
}

// addOthers adds the calls and changes of the page before a time; zero: all.
func (b *threadBuilder) addOthers(before time.Time) {
	for len(b.others) > 0 {
		o := b.others[0]
		if !before.IsZero() && !o.at.Before(before) || !b.until.IsZero() && !o.at.Before(b.until) {
			return
		}
		if !o.at.Before(b.from) {
			b.add(o.at, o.entry)
		}
		b.others = b.others[1:]
	}
}

// newMessageViews returns the views of the first messages, at least one, whose texts have at most
// maxThread bytes.
func newMessageViews(r *web.Request, t *desk.Ticket, messages []desk.Message, names map[string]string) []*messageView {
	var views []*messageView
	total := 0
	for i := range messages {
		s := newMessageView(r, t, &messages[i], names)
		if total += s.textSize(); total > maxThread && i > 0 {
			break
		}
		views = append(views, s)
	}
	return views
}

func newMessageView(r *web.Request, t *desk.Ticket, m *desk.Message, names map[string]string) *messageView {
	d := &m.Details
	s := &messageView{
		ID: m.ID, Class: m.Author.Type, Sender: m.Author.Name, Note: m.Kind == desk.KindNote, At: r.Time(m.CreatedAt),
		Icon: channelIcon(m.Channel), Channel: channelLabel(m.Channel), Why: routingReason(m), Original: d.OriginalText,
		Folded: d.Collapsed, accepted: m.CreatedAt,
	}
	if s.Note {
		s.Class = "note"
	}
	switch m.Author.Type {
	case desk.AuthorCustomer:
		s.Sender = cmp.Or(s.Sender, requesterName(t))
	case desk.AuthorAgent:
		s.Sender = cmp.Or(names[m.Author.ID], s.Sender, "Your organization")
	default:
		s.Sender = cmp.Or(s.Sender, "Kickstand")
	}
	s.Avatar = web.NewAvatar(s.Sender)
	if d.Subject != "" && plainSubject(d.Subject) != plainSubject(t.Subject) {
		s.Subject = d.Subject
	}
	s.setContent(m)
	for i := range m.Attachments {
		a := &m.Attachments[i]
		if strings.Contains(m.HTML, a.ID) {
			s.Waits = s.Waits || a.Pending
			if a.Inline && s.Open {
				continue // shown in the HTML
			}
		}
		s.Files = append(s.Files, newFile(a))
	}
	if m.Direction == desk.DirectionOutbound && !s.Note {
		s.Delivery = newDelivery(r, m)
		if m.Delivery.State == channel.ReceiptFailed && m.Kind == desk.KindReply {
			s.Again = ticketPath(t.Number) + "?again=" + m.ID + "#reply"
		}
	}
	s.Badges, s.Facts, s.Reactions = messageBadges(m), facts(r, m), reactions(d.Annotations)
	return s
}

// textSize returns the size of the texts in the page, in bytes. HTML is not in it.
func (s *messageView) textSize() int {
	n := len(s.Original) + len(s.Rendered)
	if s.Open {
		return n
	}
	for _, list := range [][]span{s.Text, s.Quoted} {
		for _, part := range list {
			n += len(part.Text) + len(part.Link)
		}
	}
	return n
}

// setContent sets the text and the HTML of a message, or the reason why it has none.
func (s *messageView) setContent(m *desk.Message) {
	path := "/messages/" + m.TicketID + "/" + m.ID
	switch {
	case m.Details.Redacted:
		s.Gone = "This message was erased at the customer’s request."
	case m.Details.Deleted:
		s.Gone = "The author deleted this message."
	default:
		text := m.Text
		if m.Stripped != "" && m.Stripped != m.Text {
			text = m.Stripped
			s.Quoted = spans(short(strings.TrimSpace(strings.TrimPrefix(m.Text, m.Stripped))))
		}
		cut := short(text)
		if s.Text = spans(cut); len(cut) < len(text) || len(short(m.Text)) < len(m.Text) {
			s.Cut = path + "/text"
		}
		if m.HTML != "" {
			s.HTMLPath, s.Remote = path+"/html", len(safehtml.RemoteImages(m.HTML))
			s.Open = s.Quoted == nil && rich(m.HTML)
			s.setRendered(m)
		}
	}
}

// setRendered shows a text that was written in Markdown in the page. One that is long, or has images
// that the page must not load, stays in a frame.
func (s *messageView) setRendered(m *desk.Message) {
	if !m.Details.Markdown {
		return
	}
	gone := slices.ContainsFunc(m.Attachments, func(a desk.Attachment) bool { return a.Inline && a.BlobKey == "" })
	if s.Remote > 0 || gone {
		s.Open = true
	} else if s.HTMLPath = ""; len(m.HTML) <= maxShown {
		s.Rendered, s.Cut, s.Open = template.HTML(m.HTML), "", true
	} else {
		s.Open = false
	}
}

// reactions returns the reactions to a message that were not removed.
func reactions(annotations []desk.Annotation) []reaction {
	var list []reaction
	for _, a := range annotations {
		if a.Kind == channel.Reacted && a.Text != "" {
			list = append(list, reaction{a.Text, cmp.Or(a.By, a.ByID, "Unknown")})
		}
	}
	for _, a := range annotations {
		if a.Kind == channel.Unreacted {
			by := cmp.Or(a.By, a.ByID, "Unknown")
			if i := slices.IndexFunc(list, func(r reaction) bool { return r.By == by && (a.Text == "" || a.Text == r.Text) }); i >= 0 {
				list = slices.Delete(list, i, i+1)
			}
		}
	}
	return list
}

// plainSubject returns a subject without prefixes such as "Re:".
func plainSubject(s string) string {
	for {
		s = strings.TrimSpace(s)
		head, rest, ok := strings.Cut(s, ":")
		switch {
		case ok && slices.Contains([]string{"re", "aw", "fw", "fwd", "wg"}, strings.ToLower(head)):
			s = rest
			continue
		case strings.HasPrefix(s, "[Ticket #"):
			if _, rest, ok := strings.Cut(s, "]"); ok {
				s = rest
				continue
			}
		}
		return s
	}
}

// short truncates a text to maxShown.
func short(text string) string { return safehtml.Clip(text, maxShown) }

var link = regexp.MustCompile(`https?://[^\s<>"'\x{00a0}]+`)

// spans splits a text at its links.
func spans(text string) []span {
	if text == "" {
		return nil
	}
	var out []span
	at := 0
	for _, m := range link.FindAllStringIndex(text, 200) {
		address := strings.TrimRight(text[m[0]:m[1]], ".,;:!?)]}*_")
		if u, err := url.Parse(address); err != nil || u.Host == "" {
			continue
		}
		if m[0] > at {
			out = append(out, span{Text: text[at:m[0]]})
		}
		at = m[0] + len(address)
		out = append(out, span{Text: address, Link: address})
	}
	if at < len(text) {
		out = append(out, span{Text: text[at:]})
	}
	return out
}

// markMentions marks the mentions of members in notes.
func markMentions(views []*messageView, messages []desk.Message, members []account.User) {
	var people []event.Person
	for i, s := range views {
		mentioned := messages[i].Details.Mentions
		if len(mentioned) == 0 {
			continue
		}
		if people == nil {
			for _, m := range members {
				people = append(people, event.Person{ID: m.ID, Name: m.Name, Email: m.Email})
			}
		}
		var marked []span
		for _, part := range s.Text {
			at := 0
			for _, m := range desk.Mentions(part.Text, people) {
				if part.Link != "" || !slices.Contains(mentioned, m.UserID) {
					continue
				}
				marked = append(marked, span{Text: part.Text[at:m.Start]}, span{Text: part.Text[m.Start:m.End], Mention: true})
				at = m.End
			}
			part.Text = part.Text[at:]
			marked = append(marked, part)
		}
		s.Text = marked
	}
}

// rich reports whether HTML has more than its text.
func rich(markup string) bool {
	return slices.ContainsFunc([]string{"<img", "<table", "color:", "<center", "<h1", "<h2"}, func(mark string) bool { return strings.Contains(markup, mark) })
}

// imageTypes are the image types that browsers display without active content.
var imageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp", "image/avif"}

func newFile(a *desk.Attachment) file {
	f := file{Name: a.Name, Size: size(a.Size), Path: "/attachments/" + a.ID}
	if f.Type = a.SafeType(); f.Type == "application/octet-stream" {
		f.Type = ""
	}
	if a.Pending {
		f.Path, f.Size, f.Pending = "", "", true
		return f
	}
	if a.BlobKey == "" {
		f.Path, f.Size, f.Error = "", "", cmp.Or(a.Error, "the content is missing")
		return f
	}
	if t, _, err := mime.ParseMediaType(a.SafeType()); err == nil {
		f.Picture = slices.Contains(imageTypes, t) && a.Size <= 10<<20
		f.Audio = strings.HasPrefix(t, "audio/")
	}
	return f
}

// size formats a number of bytes.
func size(n int64) string {
	switch {
	case n < 1000:
		return strconv.FormatInt(n, 10) + " B"
	case n < 1_000_000:
		return strconv.FormatInt((n+500)/1000, 10) + " kB"
	}
	return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + " MB"
}

func newDelivery(r *web.Request, m *desk.Message) *delivery {
	d := &delivery{Error: m.Delivery.Error}
	at := ""
	if !m.SentAt.IsZero() {
		at = r.Time(m.SentAt).Clock()
	}
	switch m.Delivery.State {
	case desk.DeliveryHeld:
		d.Icon, d.Words = "clock", "Leaves in a few seconds"
	case desk.DeliveryScheduled:
		d.Icon, d.Words = "clock", "Leaves on "+r.Time(m.SendAt).When()
	case channel.ReceiptQueued:
		d.Icon, d.Words = "clock", "Waiting to be sent"
		if d.Error != "" {
			d.Tone, d.Words, d.Advice = web.Warning, "Not sent yet", "It will be retried automatically."
		}
	case channel.ReceiptSent:
		d.Icon, d.Words, d.Error = "sent", strings.TrimSpace("Sent "+at), ""
	case channel.ReceiptDelivered:
		d.Icon, d.Words, d.Error = "delivered", strings.TrimSpace("Delivered "+at), ""
	case channel.ReceiptRead:
		d.Icon, d.Words, d.Error, d.Tone = "eye", "Read", "", web.Good
		if at != "" {
			d.Words += ", sent " + at
		}
	case channel.ReceiptFailed:
		d.Icon, d.Words, d.Tone = "alert", "Not delivered", web.Bad
		if d.Advice = "Send it again, or use another channel."; !m.SendAt.IsZero() {
			d.Words, d.Advice = "Not sent", ""
		}
	default:
		return nil
	}
	return d
}

// routingReason explains why a message belongs to this ticket.
func routingReason(m *desk.Message) string {
	switch m.PlacedBy {
	case desk.RuleNone:
		return "Started this ticket: it matches no existing conversation."
	case desk.RuleThreadKey:
		return "Same number or thread as this ticket."
	case desk.RuleInReplyTo:
		return "Replies to a message of this ticket."
	case desk.RuleReference:
		return "Refers to a message of this ticket."
	case desk.RuleTicketTag:
		return "The subject has this ticket's number, and the sender is a participant."
	case desk.RuleMessageID:
		return "Copies or contains a message of this ticket."
	case desk.RuleReceipt:
		return "Delivery report for a message of this ticket."
	case desk.RuleWritten:
		if m.Author.Type == desk.AuthorSystem || m.Details.Automatic {
			return "Created by the system."
		}
		return "Written in the dashboard or by the API."
	}
	return ""
}

// messageBadges returns the badges of a message.
func messageBadges(m *desk.Message) []web.Badge {
	d := &m.Details
	var list []web.Badge
	add := func(is bool, c web.Badge) {
		if is {
			list = append(list, c)
		}
	}
	if a := m.Authentication(); a != nil {
		list = append(list, proofBadge(a.Verdict))
	}
	add(d.NewParticipant, web.Badge{Text: "New participant", Tone: web.Warning, Icon: "users"})
	add(d.RecipientChanged != nil, web.Badge{Text: "Reply-To differs", Tone: web.Warning, Icon: "alert"})
	add(d.Flood, web.Badge{Text: "Flood", Tone: web.Warning, Icon: "alert"})
	add(d.Class == channel.ClassAutoReply, web.Badge{Text: "Automatic reply"})
	add(d.Class == channel.ClassBounce, web.Badge{Text: "Bounce", Tone: web.Warning, Icon: "alert"})
	add(d.Class == channel.ClassVoicemail, web.Badge{Text: "Voicemail"})
	add(d.Automatic, web.Badge{Text: "Automatic"})
	add(m.Kind == desk.KindForward && m.Direction == desk.DirectionOutbound && len(d.To) > 0, web.Badge{Text: "Forwarded to " + addresses(d.To), Icon: "out"})
	add(m.Kind == desk.KindForward && m.Direction == desk.DirectionInbound, web.Badge{Text: "Answer to a forward", Icon: "out"})
	add(d.SentElsewhere, web.Badge{Text: "Sent from another client"})
	add(slices.ContainsFunc(d.Annotations, func(a desk.Annotation) bool { return a.Kind == channel.Edited }), web.Badge{Text: "Edited"})
	return list
}

// proofBadge returns the badge of a mail's sender authentication.
func proofBadge(v mailauth.Verdict) web.Badge {
	switch v {
	case mailauth.Proven:
		return web.Badge{Text: "Sender verified", Tone: web.Good, Icon: "shield"}
	case mailauth.Failed:
		return web.Badge{Text: "Sender may be forged", Tone: web.Bad, Icon: "alert"}
	}
	return web.Badge{Text: "Sender not verified", Icon: "shield"}
}

// facts returns a message's details.
func facts(r *web.Request, m *desk.Message) []fact {
	d := &m.Details
	var list []fact
	add := func(label, value string) {
		if value != "" {
			list = append(list, fact{label, value})
		}
	}
	add("Sender", d.Sender)
	if a := m.Authentication(); a != nil {
		add("Sender authentication", asSentence(a.Reason))
	}
	if d.ReplyTo != "" && d.ReplyTo != d.Sender {
		add("Reply-To", d.ReplyTo)
	}
	if c := d.RecipientChanged; c != nil {
		add("Reply-To", c.To+" – "+asSentence(c.Reason))
	}
	add("To", addresses(d.To))
	add("Cc", addresses(d.Cc))
	add("Bcc", addresses(d.Bcc))
	add("Subject", d.Subject)
	if !m.SentAt.IsZero() && m.SentAt.Sub(m.CreatedAt).Abs() > time.Minute {
		add("Sent", r.Time(m.SentAt).Exact())
	}
	if d.ClassRule != "" {
		add("Auto-reply check", d.ClassRule)
	}
	add("Channel", channelLabel(m.Channel))
	if d.Flood {
		add("Flood", "The sender exceeded the message limit: no auto-reply and no notification")
	}
	for _, name := range slices.Sorted(maps.Keys(d.Metadata)) {
		add(name, d.Metadata[name])
	}
	add("Provider id", m.ExternalID)
	add("Message id", m.ID)
	return list
}

// maxNamed is the number of addresses that a list shows.
const maxNamed = 20

func addresses(list []desk.Address) string {
	var out []string
	for i, a := range list {
		if i == maxNamed {
			out = append(out, web.Sprintf("%d more", len(list)-i))
			break
		}
		if a.Name != "" && a.Name != a.Email {
			out = append(out, a.Name+" <"+a.Email+">")
		} else {
			out = append(out, a.Email)
		}
	}
	return strings.Join(out, ", ")
}

// startTime returns the start of a call, or the time of its first event.
func startTime(c *call.Call) time.Time {
	if c.StartedAt.IsZero() {
		return c.CreatedAt
	}
	return c.StartedAt
}

func newCallEntry(r *web.Request, c *call.Call) *callEntry {
	e := &callEntry{
		Inbound: c.Inbound, At: r.Time(startTime(c)), Words: "Call", With: cmp.Or(c.Contact.Name, c.Contact.Phone, c.Contact.ID),
		Target: cmp.Or(c.Target.Name, c.Target.Phone),
	}
	switch {
	case c.Missed:
		e.Words = "Missed call"
	case !c.LeftAt.IsZero():
		e.Words = "Voicemail"
	case !c.AnsweredAt.IsZero() && c.EndedAt.IsZero():
		e.Words = "Call in progress"
	case !c.AnsweredAt.IsZero():
		e.Words = "Answered call"
	case !c.EndedAt.IsZero():
		e.Words = "Unanswered call"
	}
	if c.Redacted {
		e.With = ""
	}
	if d := c.Duration.Round(time.Second); d > 0 {
		e.Duration = fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
	}
	for _, s := range c.Steps {
		at := ""
		if !s.At.IsZero() {
			at = r.Time(s.At).Clock()
		}
		e.Steps = append(e.Steps, fact{strings.ReplaceAll(s.State, "_", " "), at})
	}
	for _, f := range c.Recordings {
		if u, err := url.Parse(f.URL); err == nil && u.Scheme == "https" {
			e.Recordings = append(e.Recordings, pair{cmp.Or(f.Name, "Recording"), f.URL})
		}
	}
	return e
}
