package inbox

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// noticesPath is the path of a member's notices.
const noticesPath = "/notices"

func (p *pages) handleNotices() {
	p.Handle(noticesPath, web.Route{Get: p.showNotices, Post: p.changeNotices})
	p.Handle("/tickets/{number}/follow", web.Route{Post: p.changeFollower})
}

// countNotices counts a member's unread notices.
func (p *pages) countNotices(ctx context.Context, organizationID, userID string) (int, error) {
	return p.Desk.UnreadNotices(ctx, p.DB, organizationID, userID)
}

// noticesPage is the body of the template "notices".
type noticesPage struct {
	Notices []noticeRow
	Unread  bool // some are unread
	Topic   string
	Choices web.Fields
	Push    web.Fields
}

// noticeRow is a notice in the list.
type noticeRow struct {
	desk.Notice
	Path   string
	Text   string // the first words of the message
	Unread bool
	When   web.Time
}

// maxNoticeWords bounds the text of a notice in the list, in characters.
const maxNoticeWords = 140

// showNotices lists the reader's notices and their choices.
func (p *pages) showNotices(w http.ResponseWriter, r *web.Request) error {
	list, err := p.Desk.Notices(r.Context(), p.DB, r.OrganizationID, r.UserID)
	if err != nil {
		return err
	}
	b := noticesPage{Topic: "notices:" + r.UserID, Choices: noticeFields(desk.NoticeChoicesIn(r.User.Preferences)), Push: pushFields(r.User.Preferences)}
	for _, n := range list {
		row := noticeRow{Notice: n, Path: cmp.Or(n.Path, ticketPath(n.TicketNumber)), Text: strings.Join(strings.Fields(n.Text), " "), Unread: n.SeenAt.IsZero(), When: r.Time(n.At)}
		if words := []rune(row.Text); len(words) > maxNoticeWords {
			row.Text = string(words[:maxNoticeWords]) + "…"
		}
		b.Unread = b.Unread || row.Unread
		b.Notices = append(b.Notices, row)
	}
	return p.Render(w, r, "notices", web.Page{Title: "Notices", At: noticesPath, Scripts: []string{"notices.js"}, Body: b})
}

// noticeLabels are the labels of the kinds.
var noticeLabels = map[desk.NoticeKind]string{
	desk.NoticeAssigned: "A ticket is assigned to you", desk.NoticeMentioned: "A note mentions you",
	desk.NoticeAnswered: "A customer writes in a ticket that you follow", desk.NoticeSLA: "An SLA target of your ticket is due soon",
	desk.NoticeFailed: "A message was not delivered", desk.NoticeAlert: "Fleet alerts and overdue tasks",
}

// pushPrefix precedes a kind in the names of the fields of Web Push.
const pushPrefix = "push."

// pushFields returns the fields of Web Push.
func pushFields(preferences json.RawMessage) web.Fields {
	push, ways := desk.PushChoicesIn(preferences), desk.NoticeChoicesIn(preferences)
	var fields web.Fields
	for _, kind := range desk.NoticeKinds {
		f := web.Field{Name: pushPrefix + string(kind), Label: noticeLabels[kind], Type: "checkbox"}
		if push.Pushes(kind, ways) {
			f.Value = "on"
		}
		fields = append(fields, f)
	}
	return fields
}

// noticeFields returns the fields of the choices.
func noticeFields(c desk.NoticeChoices) web.Fields {
	ways := []web.Option{
		{Value: string(desk.NoticeInPage), Label: "In the page"}, {Value: string(desk.NoticeByMail), Label: "By mail"},
		{Value: string(desk.NoticeByBoth), Label: "In the page and by mail"}, {Value: string(desk.NoticeNever), Label: "None"},
	}
	var fields web.Fields
	for _, kind := range desk.NoticeKinds {
		fields = append(fields, web.Field{Name: string(kind), Label: noticeLabels[kind], Type: "select", Options: ways, Value: string(c.Way(kind))})
	}
	return fields
}

// changeNotices marks all notices as read, or saves the choices.
func (p *pages) changeNotices(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	if form.Get("do") == "read" {
		if err := p.DB.Write(r.Context(), func(tx *db.Tx) error {
			return p.Desk.MarkNoticesSeenTx(r.Context(), tx, r.OrganizationID, r.UserID, "")
		}); err != nil {
			return err
		}
		return p.Redirect(w, noticesPath, web.Notice{Text: "All notices marked as read."})
	}
	choices, push := make(desk.NoticeChoices), make(desk.PushChoices)
	for _, kind := range desk.NoticeKinds {
		choices[kind] = desk.NoticeWay(form.Get(string(kind)))
		if form.Has("push") {
			push[kind] = form.Get(pushPrefix+string(kind)) != ""
		}
	}
	if err := problem.Check(choices); err != nil {
		return err
	}
	if err := p.Accounts.ChangePreferences(r.Context(), r.UserID, func(object json.RawMessage) (json.RawMessage, error) {
		return desk.SetNoticeChoices(object, choices, push)
	}); err != nil {
		return err
	}
	return p.Redirect(w, noticesPath, web.Notice{Text: "Choices saved."})
}

// readFollowers fills in the names of a ticket's followers.
func (p *pages) readFollowers(r *web.Request, b *ticketPage, members []account.User) error {
	list, err := p.Desk.Followers(r.Context(), p.DB, r.OrganizationID, b.ID)
	if err != nil {
		return err
	}
	follows := func(userID string) bool {
		return slices.ContainsFunc(list, func(f desk.Follower) bool { return f.UserID == userID })
	}
	b.Follows = follows(r.UserID)
	var names []string
	for _, m := range members {
		if follows(m.ID) {
			names = append(names, cmp.Or(m.Name, m.Email))
		}
	}
	b.Followers = strings.Join(names, ", ")
	return nil
}

// changeFollower makes the reader a follower of the ticket, or ends that.
func (p *pages) changeFollower(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	change, text := p.Desk.FollowTx, "You follow this ticket."
	if form.Get("do") == "unfollow" {
		change, text = p.Desk.UnfollowTx, "You no longer follow this ticket."
	}
	var number int64
	if err := p.inTransaction(r, func(ctx context.Context, tx *db.Tx, t desk.Ticket) error {
		number = t.Number
		return change(ctx, tx, r.OrganizationID, t.ID, r.UserID)
	}); err != nil {
		return err
	}
	return p.Redirect(w, ticketPath(number)+listQuery(r), web.Notice{Text: text})
}
