package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/demo"
	"github.com/kickstand-dev/kickstand/internal/desk"
)

// demoPause is the time between two things that happen in the demo.
const demoPause = 40 * time.Second

// live lets customers write and the first agent answer, one step each demoPause, until ctx ends.
func (c *demoCompany) live(ctx context.Context, a *app.App, f demoData, organizationID string, log *slog.Logger) {
	author := demo.Person{Name: c.first.Name, Email: c.first.Email}
	ticker := time.NewTicker(demoPause)
	defer ticker.Stop()
	wait := func() bool {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
			return true
		}
	}
	for seed := uint64(2); ; seed++ {
		for _, l := range demo.Letters(c.Company, a.DB.Now(), seed, author) {
			if l.Channel != "sms" && l.Channel != "email" && l.Channel != "business_messaging" || l.Answer == "" {
				continue
			}
			since := a.DB.Now()
			steps := []func() error{
				func() error { return f.write(ctx, a.BaseURL, l) },
				func() error { return c.answer(ctx, a, organizationID, since, l) },
			}
			if l.Thanks != "" {
				thanks := l
				thanks.Text, thanks.Subject = l.Thanks, "Re: "+l.Subject
				steps = append(steps, func() error { return f.write(ctx, a.BaseURL, thanks) })
			}
			for _, step := range steps {
				if !wait() {
					return
				}
				if err := step(); err != nil && ctx.Err() == nil {
					log.Warn("the demo could not continue a conversation", "subject", l.Subject, "error", err)
					break
				}
			}
		}
	}
}

// write sends what a customer writes.
func (f demoData) write(ctx context.Context, base string, l demo.Letter) error {
	switch l.Channel {
	case "email":
		return f.post(ctx, base, "email-raw", "", &triggerCmd{}, demoLetter(demoMailbox, l.From.Email, l.From.Name, l.Subject, l.Text))
	case "business_messaging":
		return f.post(ctx, base, "business-messaging", "message", &triggerCmd{From: l.From.Phone, Text: l.Text, Name: l.From.Name}, nil)
	}
	return f.post(ctx, base, l.Channel, "", &triggerCmd{From: l.From.Phone, Text: l.Text}, nil)
}

// answer lets the first agent take the ticket of a letter, unless somebody has, and answer it.
func (c *demoCompany) answer(ctx context.Context, a *app.App, organizationID string, since time.Time, l demo.Letter) error {
	ctx = audit.WithActor(ctx, audit.Actor{Type: audit.User, ID: c.first.ID, Email: c.first.Email})
	content, err := a.Desk.Compose(ctx, organizationID, desk.Draft{Text: l.Answer})
	if err != nil {
		return err
	}
	list, _, err := a.Desk.FindTickets(ctx, a.DB, organizationID, desk.TicketQuery{Status: []desk.Status{desk.StatusOpen}, Limit: 50})
	if err != nil {
		return err
	}
	return a.DB.Write(ctx, func(tx *db.Tx) error {
		for i := range list {
			t := &list[i]
			if t.UpdatedAt.Before(since) || t.AssigneeID != "" || t.Customer.Email != l.From.Email && t.Customer.Phone != l.From.Phone {
				continue
			}
			status := desk.StatusPending
			if _, err := a.Desk.UpdateTx(ctx, tx, organizationID, t.ID, desk.Update{AssigneeID: &c.first.ID, Tags: &l.Tags}); err != nil {
				return err
			}
			if _, err := a.Desk.ReplyTx(ctx, tx, organizationID, t.ID, desk.Reply{By: desk.Actor{ID: c.first.ID, Name: c.first.Name}, Content: content}); err != nil {
				return err
			}
			_, err := a.Desk.UpdateTx(ctx, tx, organizationID, t.ID, desk.Update{Status: &status})
			return err
		}
		return nil
	})
}

// demoLetter returns a mail.
func demoLetter(to, from, name, subject, text string) []byte {
	return fmt.Appendf(nil, "From: %s <%s>\r\nTo: %s\r\nSubject: %s\r\nDate: %s\r\nMessage-ID: <%s@client.example>\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n%s\r\n",
		name, from, to, subject, time.Now().Format(time.RFC1123Z), randomHex(12), strings.ReplaceAll(text, "\n", "\r\n"))
}
