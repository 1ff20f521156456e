package app

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/push"
)

// openPush opens Web Push. Push services reach the operator at their address, else at the
// deployment's.
func (a *App) openPush(out outgoing, operator mail.Address) *push.Service {
	contact := cmp.Or(operator.Address, out.server.From().Address)
	if operator.Address == "" && a.base.Scheme == "https" {
		contact = a.BaseURL
	}
	return push.Open(push.Config{
		DB: a.DB, Queue: a.queue, Box: a.box, Transport: out.public, AllowPrivate: a.config.AllowPrivateReceivers, Contact: contact, Logger: a.log,
		Member: a.pushMember, Message: a.pushMessage,
	})
}

// pushMember implements [push.Config.Member].
func (a *App) pushMember(ctx context.Context, sessionID string) (organizationID, userID string, ok bool, err error) {
	id, _, err := a.Accounts.CheckSession(ctx, sessionID)
	if problem.Of(err) == problem.Unauthorized {
		return "", "", false, nil
	}
	if err != nil {
		return "", "", false, err
	}
	return id.OrganizationID, id.UserID, id.Restricted() == nil, nil
}

// pushMessage implements [push.Config.Message]: the ticket and the kind of notice, and nothing of
// the message.
func (a *App) pushMessage(ctx context.Context, organizationID, userID, noticeID string) (push.Message, bool, error) {
	n, ok, err := a.Desk.UnreadNotice(ctx, a.DB, organizationID, userID, noticeID)
	if err != nil || !ok {
		return push.Message{}, false, err
	}
	if n.Path != "" {
		return push.Message{Title: n.TicketSubject, Body: n.Sentence(), URL: a.BaseURL + n.Path, Tag: "alert-" + n.ID}, true, nil
	}
	return push.Message{
		Title: fmt.Sprintf("#%d %s", n.TicketNumber, strings.Join(strings.Fields(n.TicketSubject), " ")), Body: n.Sentence(),
		URL: fmt.Sprintf("%s/tickets/%d", a.BaseURL, n.TicketNumber), Tag: fmt.Sprintf("ticket-%d", n.TicketNumber),
	}, true, nil
}
