package desk

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// noticeKind is the queue's kind of jobs that mail the notices of a member.
const noticeKind = "desk.notice"

// noticeDelay is the time from a notice to its mail, which has the notices until then.
const noticeDelay = time.Minute

// maxNoticeText bounds the text of a message in a mail of notices, in characters.
const maxNoticeText = 4000

// noticeMailJob is the payload of a job.
type noticeMailJob struct {
	OrganizationID string `json:"organization_id"`
	UserID         string `json:"user_id"`
}

// enqueueNoticeMail enqueues a job for a notice. The first job of a member to run sends all
// notices that are due; the others then have nothing to do.
func (s *Service) enqueueNoticeMail(ctx context.Context, tx *db.Tx, organizationID, userID string) error {
	payload, err := json.Marshal(noticeMailJob{organizationID, userID})
	if err != nil {
		return fmt.Errorf("enqueue notices: %w", err)
	}
	return s.queue.EnqueueTx(ctx, tx, queue.New{
		Kind: noticeKind, Lane: "notices/" + organizationID + "/" + userID, Tenant: organizationID, Payload: payload, RunAt: tx.Now.Add(noticeDelay),
	})
}

// runNoticeMail mails a member the unread notices that are due.
func (s *Service) runNoticeMail(ctx context.Context, j *queue.Job) error {
	var to noticeMailJob
	if err := json.Unmarshal(j.Payload, &to); err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		due, err := db.All(ctx, tx, scanNotice, selectNotice+"n.user_id = $1 AND n.organization_id = $2 AND n.mail AND n.seen_at IS NULL ORDER BY n.id",
			to.UserID, to.OrganizationID)
		if err != nil {
			return fmt.Errorf("load notices: %w", err)
		}
		ids := make([]string, len(due))
		for i := range due {
			ids[i] = due[i].ID
		}
		// Not those that were committed since.
		if err := tx.Queue(ctx, `UPDATE notices SET mail = FALSE WHERE user_id = $1 AND organization_id = $2 AND mail
			AND (id = ANY($3) OR seen_at IS NOT NULL)`, to.UserID, to.OrganizationID, ids); err != nil {
			return fmt.Errorf("mark notices as mailed: %w", err)
		}
		agent, ok, err := s.directory.Agent(ctx, tx, to.OrganizationID, to.UserID)
		if err != nil {
			return fmt.Errorf("find member: %w", err)
		}
		if ok && agent.Email != "" && len(due) > 0 {
			m, err := s.noticeMail(ctx, tx, to.OrganizationID, agent, due)
			if err != nil {
				return err
			}
			if err := s.mailer.EnqueueMailTx(ctx, tx, m); err != nil {
				return fmt.Errorf("mail notices: %w", err)
			}
		}
		return j.FinishTx(ctx, tx)
	})
}

// answerLine divides an answer to a notice from the notice.
const answerLine = "Write your answer above this line: it goes to the customer."

// noticeMail returns a mail with notices. If all are about one ticket, it has the texts of their
// messages, and can be answered.
func (s *Service) noticeMail(ctx context.Context, q db.Querier, organizationID string, to event.Person, list []Notice) (mail.Message, error) {
	last := &list[len(list)-1]
	one := true
	for i := range list {
		one = one && list[i].Path == "" && list[i].TicketID == last.TicketID
	}
	l := mail.Notification{Subject: noticeMailSubject(list)}
	var answers string
	if one {
		l.Subject = fmt.Sprintf("[Ticket #%d] %s", last.TicketNumber, last.TicketSubject)
		var err error
		if answers, err = s.answerAddress(ctx, q, organizationID, to, last); err != nil {
			return mail.Message{}, err
		}
		if answers != "" {
			l.Before = append(l.Before, answerLine)
		}
	}
	for i := range list {
		n := &list[i]
		if !one {
			l.Before = append(l.Before, n.Label()+": "+n.Sentence())
			continue
		}
		l.Before = append(l.Before, n.Sentence())
		for part := range strings.SplitSeq(strings.ReplaceAll(n.shortText(), "\r\n", "\n"), "\n\n") {
			if part = strings.TrimSpace(part); part != "" {
				l.Before = append(l.Before, part)
			}
		}
	}
	l.After = []string{"You choose which notices you get by mail on the page Notices."}
	if s.baseURL != "" {
		l.Action = mail.Action{Label: "Open the notices", URL: s.baseURL + "/notices"}
		switch {
		case len(list) == 1 && last.Path != "":
			l.Action = mail.Action{Label: "Open the vehicle", URL: s.baseURL + last.Path}
		case one:
			l.Action = mail.Action{Label: "Open the ticket", URL: s.baseURL + "/tickets/" + strconv.FormatInt(last.TicketNumber, 10)}
		}
	}
	m, err := l.Message(mail.Address{}, mail.Address{Name: to.Name, Address: to.Email})
	if err == nil && answers != "" {
		m.ReplyTo = mail.Address{Address: answers}
		m.MessageID = s.noticeMessageID(organizationID, noticeRef{last.TicketID, to.ID, last.ID})
	}
	return m, err
}

// noticeMailSubject returns the subject of a mail with notices that are not all about one ticket.
func noticeMailSubject(list []Notice) string {
	alerts := 0
	for i := range list {
		if list[i].Path != "" {
			alerts++
		}
	}
	switch {
	case alerts == 0:
		return fmt.Sprintf("%d notices about tickets", len(list))
	case len(list) == 1:
		return "[Alert] " + list[0].TicketSubject
	case alerts == len(list):
		return fmt.Sprintf("%d alerts of the fleet", alerts)
	}
	return fmt.Sprintf("%d notices about tickets and the fleet", len(list))
}

// Label names the ticket or the alert of the notice.
func (n *Notice) Label() string {
	if n.Path != "" {
		return n.TicketSubject
	}
	return fmt.Sprintf("Ticket #%d, %q", n.TicketNumber, n.TicketSubject)
}

// Sentence describes the notice, without its ticket.
func (n *Notice) Sentence() string {
	author := n.Author
	if author == "" {
		author = "Somebody"
	}
	switch n.Kind {
	case NoticeAssigned:
		return "The ticket is assigned to you."
	case NoticeMentioned:
		return author + " mentions you in a note."
	case NoticeAnswered:
		return author + " has answered."
	case NoticeSLA:
		return "An SLA target of the ticket is due soon."
	case NoticeAlert:
		return "The fleet has an alert or an overdue task."
	}
	return "A message to the customer could not be delivered."
}

// shortText returns the text of the message for a mail; empty for messages of the organization
// to the customer.
func (n *Notice) shortText() string {
	if n.Kind == NoticeFailed {
		return ""
	}
	if r := []rune(n.Text); len(r) > maxNoticeText {
		return string(r[:maxNoticeText]) + "…"
	}
	return n.Text
}

// answerAddress returns the organization's address to which a member answers a notice: that of the
// ticket's newest mail conversation, or the organization's only one. It is empty if there is none.
func (s *Service) answerAddress(ctx context.Context, q db.Querier, organizationID string, from event.Person, n *Notice) (string, error) {
	if s.dispatcher == nil || s.box == nil {
		return "", nil
	}
	var connectionID string
	err := q.QueryRow(ctx, "SELECT connection_id FROM conversations WHERE ticket_id = $1 AND channel = $2 ORDER BY created_at DESC, id DESC LIMIT 1",
		n.TicketID, channelEmail).Scan(&connectionID)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return "", fmt.Errorf("find conversation: %w", err)
	}
	out := channel.Outgoing{ID: n.ID, TicketID: n.TicketID, TicketNumber: n.TicketNumber, Subject: n.TicketSubject, Text: n.Sentence(),
		To: channel.Party{Name: from.Name, Email: from.Email}}
	_, err = s.dispatcher.PrepareSend(ctx, q, organizationID, connectionID, channelEmail, &out)
	if kind := problem.Of(err); kind == problem.Precondition || kind == problem.Conflict || kind == problem.Invalid {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find the address for answers: %w", err)
	}
	return out.From, nil
}

// noticeRef is what the Message-ID of a notice names.
type noticeRef struct{ ticketID, userID, noticeID string }

const (
	noticePurpose = "notice" // of the MAC
	noticeMACSize = 16       // bytes
	noticePrefix  = "n."
)

// noticeMessageID returns the Message-ID of the mail of a notice. Nobody else can make one.
func (s *Service) noticeMessageID(organizationID string, r noticeRef) string {
	domain := "kickstand.invalid"
	if u, err := url.Parse(s.baseURL); err == nil && u.Hostname() != "" && len(u.Hostname()) < 100 && !strings.Contains(u.Hostname(), ":") {
		domain = u.Hostname()
	}
	sum := s.box.MAC(noticePurpose, organizationID, r.ticketID, r.userID, r.noticeID)[:noticeMACSize]
	return noticePrefix + r.ticketID + "." + r.userID + "." + r.noticeID + "." + hex.EncodeToString(sum) + "@" + domain
}

// noticeOf returns what a Message-ID names; false unless this deployment made it for a notice of
// the organization. The part after the @ does not matter.
func (s *Service) noticeOf(organizationID, messageID string) (noticeRef, bool) {
	local, _, _ := strings.Cut(strings.ToLower(strings.Trim(messageID, "<> ")), "@")
	text, ok := strings.CutPrefix(local, noticePrefix)
	fields := strings.Split(text, ".")
	if !ok || s.box == nil || len(fields) != 4 {
		return noticeRef{}, false
	}
	r := noticeRef{fields[0], fields[1], fields[2]}
	sum, err := hex.DecodeString(fields[3])
	if err != nil || len(sum) != noticeMACSize || !s.box.VerifyMAC(noticePurpose, sum, noticeMACSize, organizationID, r.ticketID, r.userID, r.noticeID) {
		return noticeRef{}, false
	}
	return r, true
}
