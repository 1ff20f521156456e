package desk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// NoticeKind is the cause of a notice.
type NoticeKind string

// The kinds.
const (
	NoticeAssigned  NoticeKind = "assigned"        // somebody else assigned the ticket to the member
	NoticeMentioned NoticeKind = "mentioned"       // a note mentions the member
	NoticeAnswered  NoticeKind = "answered"        // the customer of a followed ticket has written
	NoticeSLA       NoticeKind = "sla_warning"     // 80 % of an SLA target of an assigned ticket have passed
	NoticeFailed    NoticeKind = "delivery_failed" // a message of the member, or in a ticket of theirs, was not delivered
	NoticeAlert     NoticeKind = "fleet_alert"     // an alert rule of the fleet notifies the member; without a ticket
)

// NoticeKinds lists all kinds, in order.
var NoticeKinds = [...]NoticeKind{NoticeAssigned, NoticeMentioned, NoticeAnswered, NoticeSLA, NoticeFailed, NoticeAlert}

// NoticeWay is how a member gets the notices of a kind.
type NoticeWay string

// The ways.
const (
	NoticeInPage NoticeWay = "page"
	NoticeByMail NoticeWay = "mail"
	NoticeByBoth NoticeWay = "both"
	NoticeNever  NoticeWay = "none"
)

// NoticeWays lists all ways, in order.
var NoticeWays = [...]NoticeWay{NoticeInPage, NoticeByMail, NoticeByBoth, NoticeNever}

func (w NoticeWay) inPage() bool { return w == NoticeInPage || w == NoticeByBoth }
func (w NoticeWay) byMail() bool { return w == NoticeByMail || w == NoticeByBoth }

// NoticeChoices are a member's ways by kind. Missing kinds have their default.
type NoticeChoices map[NoticeKind]NoticeWay

// NoticeMember is the member of a user's preferences with their [NoticeChoices].
const NoticeMember = "notices"

// Way returns the way of a kind.
func (c NoticeChoices) Way(kind NoticeKind) NoticeWay {
	switch w := c[kind]; {
	case slices.Contains(NoticeWays[:], w):
		return w
	case kind == NoticeAnswered || kind == NoticeSLA:
		return NoticeInPage
	}
	return NoticeByBoth
}

// Check implements [problem.Checker].
func (c NoticeChoices) Check(v *problem.Validation) {
	for kind, w := range c {
		if !slices.Contains(NoticeKinds[:], kind) {
			v.Add(string(kind), "must be a kind of notice")
		} else if !slices.Contains(NoticeWays[:], w) {
			v.Add(string(kind), "must be one of page, mail, both, none")
		}
	}
}

// PushMember is the member of a user's preferences with their [PushChoices].
const PushMember = "notice_push"

// PushChoices are the kinds of notices that a member gets by Web Push in the browsers that they have
// subscribed. Kinds without a choice are pushed unless the member wants none of the kind.
type PushChoices map[NoticeKind]bool

// Pushes reports whether notices of a kind are pushed, given the member's other choices.
func (c PushChoices) Pushes(kind NoticeKind, ways NoticeChoices) bool {
	if push, ok := c[kind]; ok {
		return push
	}
	return ways.Way(kind) != NoticeNever
}

// Check implements [problem.Checker].
func (c PushChoices) Check(v *problem.Validation) {
	for kind := range c {
		if !slices.Contains(NoticeKinds[:], kind) {
			v.Add(string(kind), "must be a kind of notice")
		}
	}
}

// NoticeChoicesIn returns the choices in a user's preferences. Malformed ones are the default:
// clients store preferences freely.
func NoticeChoicesIn(preferences json.RawMessage) NoticeChoices {
	return choicesOf[NoticeWay](preferences, NoticeMember)
}

// PushChoicesIn is [NoticeChoicesIn] for Web Push.
func PushChoicesIn(preferences json.RawMessage) PushChoices {
	return choicesOf[bool](preferences, PushMember)
}

// choicesOf returns the valid values of an object in preferences.
func choicesOf[T any](preferences json.RawMessage, member string) map[NoticeKind]T {
	var all map[string]json.RawMessage
	if json.Unmarshal(preferences, &all) != nil {
		return nil
	}
	var values map[NoticeKind]json.RawMessage
	if json.Unmarshal(all[member], &values) != nil {
		return nil
	}
	found := make(map[NoticeKind]T, len(values))
	for kind, value := range values {
		var v *T
		if json.Unmarshal(value, &v) == nil && v != nil {
			found[kind] = *v
		}
	}
	return found
}

// SetNoticeChoices returns preferences with other choices. Their other members stay.
func SetNoticeChoices(preferences json.RawMessage, c NoticeChoices, push PushChoices) (json.RawMessage, error) {
	all := make(map[string]json.RawMessage)
	if err := json.Unmarshal(preferences, &all); err != nil {
		return nil, fmt.Errorf("read preferences: %w", err)
	}
	if err := setChoices(all, NoticeMember, c); err != nil {
		return nil, err
	}
	if err := setChoices(all, PushMember, push); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// setChoices writes choices into an object in preferences.
func setChoices[T any](all map[string]json.RawMessage, member string, choices map[NoticeKind]T) error {
	if len(choices) == 0 {
		return nil
	}
	var values map[string]any
	if err := json.Unmarshal(all[member], &values); err != nil || values == nil {
		values = make(map[string]any) // missing, or no object
	}
	for kind, choice := range choices {
		values[string(kind)] = choice
	}
	text, err := json.Marshal(values)
	if err != nil {
		return fmt.Errorf("write choices: %w", err)
	}
	all[member] = text
	return nil
}

// maxNotices is the number of notices of a member about tickets, and that about alerts; older ones
// are deleted.
const maxNotices = 200

// Notice informs a member about a ticket or, if Path is set, about an alert.
type Notice struct {
	ID            string
	Path          string // of an alert, below the base URL; its title is TicketSubject
	TicketID      string
	TicketNumber  int64
	TicketSubject string
	Kind          NoticeKind
	MessageID     string // that caused it; empty: none, or it is gone
	Author        string // of the message
	Text          string // of the message, without quotes
	At            time.Time
	SeenAt        time.Time // zero: unread

	public bool // the message is one of the customer's or to them
}

// newNotice is a notice to write.
type newNotice struct {
	ticketID  string
	kind      NoticeKind
	messageID string // may be empty
	actorID   string // has no notice of their own act; may be empty
	alert     *Alert // nil: the notice is about a ticket
}

// notice writes a notice to members, by their choices, in the transaction of its cause, and
// enqueues the mails. Users who are no members have none.
func (s *Service) notice(ctx context.Context, tx *db.Tx, organizationID string, n newNotice, userIDs ...string) error {
	userIDs = slices.DeleteFunc(slices.Clone(userIDs), func(id string) bool { return id == "" || id == n.actorID })
	if len(userIDs) == 0 {
		return nil
	}
	preferences, err := s.directory.Preferences(ctx, tx, organizationID, userIDs)
	if err != nil {
		return fmt.Errorf("load preferences: %w", err)
	}
	for _, id := range userIDs {
		p, ok := preferences[id]
		if !ok {
			continue
		}
		delete(preferences, id) // a user named twice has one
		if to := s.deliveryOf(p, n.kind); to != (delivery{}) {
			if err := s.writeNotice(ctx, tx, organizationID, id, n, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// delivery is how a notice reaches a member.
type delivery struct{ page, mail, push bool }

// deliveryOf returns the delivery of a kind by a member's preferences, as far as it is configured.
func (s *Service) deliveryOf(preferences json.RawMessage, kind NoticeKind) delivery {
	ways := NoticeChoicesIn(preferences)
	way := ways.Way(kind)
	return delivery{way.inPage(), way.byMail() && s.mailer != nil, s.pusher != nil && PushChoicesIn(preferences).Pushes(kind, ways)}
}

func (s *Service) writeNotice(ctx context.Context, tx *db.Tx, organizationID, userID string, n newNotice, to delivery) error {
	id := newID()
	var alert Alert
	if n.alert != nil {
		alert = *n.alert
	}
	if err := tx.Queue(ctx, `INSERT INTO notices (id, organization_id, user_id, ticket_id, kind, message_id, page, mail, created_at, alert_id, title, path)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
		id, organizationID, userID, n.ticketID, string(n.kind), db.Text(n.messageID), to.page, to.mail, tx.Now.UnixMicro(),
		db.Text(alert.ID), db.Text(alert.Title), db.Text(alert.Path)); err != nil {
		return fmt.Errorf("write notice: %w", err)
	}
	if err := tx.Queue(ctx, `DELETE FROM notices WHERE user_id = $1 AND organization_id = $2 AND (alert_id IS NULL) = $4
		AND id <= (SELECT n.id FROM notices n WHERE n.user_id = $1 AND n.organization_id = $2 AND (n.alert_id IS NULL) = $4 ORDER BY n.id DESC LIMIT 1 OFFSET $3)`,
		userID, organizationID, maxNotices, n.alert == nil); err != nil {
		return fmt.Errorf("delete old notices: %w", err)
	}
	s.announceNotices(tx, organizationID, userID)
	if to.push {
		if err := s.pusher.NotifyTx(ctx, tx, organizationID, userID, id); err != nil {
			return fmt.Errorf("push notice: %w", err)
		}
	}
	if to.mail {
		return s.enqueueNoticeMail(ctx, tx, organizationID, userID)
	}
	return nil
}

// announceNotices calls Config.Noticed after the commit of a change of a member's notices.
func (s *Service) announceNotices(tx *db.Tx, organizationID, userID string) {
	if s.onNoticed != nil {
		tx.AfterCommit(func() { s.onNoticed(organizationID, userID) })
	}
}

// selectNotice leaves out notices whose ticket is gone.
const selectNotice = `SELECT n.id, n.ticket_id, coalesce(t.number, 0), coalesce(t.subject, n.title), coalesce(n.path, ''), n.kind, coalesce(m.id, ''), coalesce(m.author_name, ''),
		coalesce(m.stripped, m.body, ''), n.created_at, n.seen_at, coalesce(m.kind, '') = 'reply'
	FROM notices n LEFT JOIN tickets t ON t.id = n.ticket_id AND t.organization_id = n.organization_id
	LEFT JOIN messages m ON m.ticket_id = n.ticket_id AND m.id = n.message_id WHERE (t.id IS NOT NULL OR n.alert_id IS NOT NULL) AND `

func scanNotice(row db.Row) (n Notice, err error) {
	err = row.Scan(&n.ID, &n.TicketID, &n.TicketNumber, &n.TicketSubject, &n.Path, &n.Kind, &n.MessageID, &n.Author, &n.Text,
		db.IntoTime(&n.At), db.IntoTime(&n.SeenAt), &n.public)
	return n, err
}

// Notices returns a member's notices for the page, the newest first, at most the newest 200 about tickets
// and 200 about alerts.
func (s *Service) Notices(ctx context.Context, q db.Querier, organizationID, userID string) ([]Notice, error) {
	list, err := db.All(ctx, q, scanNotice, selectNotice+"n.user_id = $1 AND n.organization_id = $2 AND n.page ORDER BY n.id DESC", userID, organizationID)
	if err != nil {
		return nil, fmt.Errorf("load notices: %w", err)
	}
	return list, nil
}

// Notice returns a member's notice for the page, or a NotFound problem.
func (s *Service) Notice(ctx context.Context, q db.Querier, organizationID, userID, id string) (Notice, error) {
	n, err := db.One(ctx, q, scanNotice, selectNotice+"n.id = $1 AND n.user_id = $2 AND n.organization_id = $3 AND n.page", id, userID, organizationID)
	return n, notFound(err, "notice")
}

// UnreadNotice returns a member's notice, for whichever way it was written; false if it has been read
// or deleted.
func (s *Service) UnreadNotice(ctx context.Context, q db.Querier, organizationID, userID, id string) (Notice, bool, error) {
	n, err := db.One(ctx, q, scanNotice, selectNotice+"n.id = $1 AND n.user_id = $2 AND n.organization_id = $3 AND n.seen_at IS NULL", id, userID, organizationID)
	if errors.Is(err, db.ErrNoRows) {
		return n, false, nil
	}
	if err != nil {
		return n, false, fmt.Errorf("find notice: %w", err)
	}
	return n, true, nil
}

// MarkNoticeSeenTx is [Service.MarkNoticesSeenTx] for one notice. One that is read already, or is
// not the member's, stays as it is.
func (s *Service) MarkNoticeSeenTx(ctx context.Context, tx *db.Tx, organizationID, userID, id string) error {
	return s.markNoticesSeenTx(ctx, tx, organizationID, userID, "id = $4", id)
}

// markNoticesSeenTx marks a member's unread notices as read that meet a condition on $4.
func (s *Service) markNoticesSeenTx(ctx context.Context, tx *db.Tx, organizationID, userID, condition, value string) error {
	n, err := tx.Exec(ctx, "UPDATE notices SET seen_at = $3 WHERE user_id = $1 AND organization_id = $2 AND seen_at IS NULL AND "+condition,
		userID, organizationID, tx.Now.UnixMicro(), value)
	if err != nil {
		return fmt.Errorf("mark notices as read: %w", err)
	}
	if n > 0 {
		s.announceNotices(tx, organizationID, userID)
	}
	return nil
}

// UnreadNotices returns the number of a member's unread notices.
func (s *Service) UnreadNotices(ctx context.Context, q db.Querier, organizationID, userID string) (n int, err error) {
	err = q.QueryRow(ctx, "SELECT count(*) FROM notices WHERE user_id = $1 AND organization_id = $2 AND page AND seen_at IS NULL",
		userID, organizationID).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count notices: %w", err)
	}
	return n, nil
}

// HasUnseenNotices reports whether a member has unread notices of a ticket, among them those by
// mail only.
func (s *Service) HasUnseenNotices(ctx context.Context, q db.Querier, organizationID, userID, ticketID string) (bool, error) {
	return hasUnseenNotices(ctx, q, organizationID, userID, "ticket_id", ticketID)
}

// hasUnseenNotices reports whether a member has unread notices with a value in a column.
func hasUnseenNotices(ctx context.Context, q db.Querier, organizationID, userID, column, value string) (found bool, err error) {
	err = q.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM notices WHERE "+column+" = $1 AND user_id = $2 AND organization_id = $3 AND seen_at IS NULL)",
		value, userID, organizationID).Scan(&found)
	if err != nil {
		return false, fmt.Errorf("look for unread notices: %w", err)
	}
	return found, nil
}

// MarkNoticesSeenTx marks a member's notices of a ticket as read, in the caller's transaction, or
// those of all tickets if ticketID is empty. A mail that is due leaves out what has been read.
func (s *Service) MarkNoticesSeenTx(ctx context.Context, tx *db.Tx, organizationID, userID, ticketID string) error {
	return s.markNoticesSeenTx(ctx, tx, organizationID, userID, "($4 = '' OR ticket_id = $4)", ticketID)
}

// deleteNotices deletes what a member leaving the organization follows, and their notices.
// An empty organizationID stands for all organizations.
func deleteNotices(ctx context.Context, tx *db.Tx, organizationID, userID string) error {
	for _, statement := range []string{
		"DELETE FROM ticket_followers WHERE user_id = $1 AND ($2 = '' OR organization_id = $2)",
		"DELETE FROM notices WHERE user_id = $1 AND ($2 = '' OR organization_id = $2)",
	} {
		if err := tx.Queue(ctx, statement, userID, organizationID); err != nil {
			return fmt.Errorf("delete notices: %w", err)
		}
	}
	return nil
}
