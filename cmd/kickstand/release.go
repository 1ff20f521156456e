package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

type releaseCmd struct {
	Send          bool     `help:"End the hold: all that waits is sent."`
	RepeatReplies bool     `help:"With --send: send replies of the backup again even if they may have arrived."`
	Discard       []string `enum:"replies,webhooks,mails" placeholder:"KIND" help:"Discard what waits: replies, webhooks, mails."`
	Before        moment   `placeholder:"WHEN" help:"With --discard: only what was created before (default: the begin of the hold)."`
}

func (*releaseCmd) Help() string {
	return `After a restore, replies, webhooks and notices by mail are held: the backup does not
know what was sent after it. Without flags, the command lists what waits:
  kickstand release
  kickstand release --discard webhooks
  kickstand release --send

--send ends the hold. A reply of the backup is first looked up at its provider, or
repeated with its idempotency key. Where neither is possible it is not sent but fails,
with the reason in its ticket, unless --repeat-replies is given. Webhooks are delivered:
receivers recognize an event that they had by its id.

--discard has replies fail and drops deliveries, which can be replayed later
(kickstand webhook replay --state dropped). What was created during the hold stays.`
}

// waitingReply is the printed form of a reply that waits.
type waitingReply struct {
	ID           string    `json:"id"`
	Organization string    `json:"organization"` // slug
	Ticket       int64     `json:"ticket"`
	Channel      string    `json:"channel"`
	Recipient    string    `json:"recipient"`
	CreatedAt    time.Time `json:"created_at"`
	MayHaveLeft  bool      `json:"may_have_left"` // before or after the backup
}

// waitingWebhook is the printed form of a webhook with deliveries that wait.
type waitingWebhook struct {
	Organization string        `json:"organization"` // slug
	Webhook      string        `json:"webhook_id"`
	URL          string        `json:"url"`
	State        webhook.State `json:"state"`
	Deliveries   int64         `json:"deliveries"`
	Oldest       time.Time     `json:"oldest"`
}

type heldWork struct {
	Held      bool             `json:"held"`
	Reason    string           `json:"reason,omitempty"`
	Since     *time.Time       `json:"since,omitempty"`
	Discarded *app.Discarded   `json:"discarded,omitempty"`
	Replies   []waitingReply   `json:"replies"`
	Webhooks  []waitingWebhook `json:"webhooks"`
	Mails     int64            `json:"mails"`
	Others    int64            `json:"others"` // such as subscriptions at shops
}

// Run lists what waits, after the discard and before the release.
func (c *releaseCmd) Run(ctx context.Context, e *env) error {
	switch {
	case c.RepeatReplies && !c.Send:
		return usageError{errors.New("--repeat-replies needs --send")}
	case !c.Before.IsZero() && len(c.Discard) == 0:
		return usageError{errors.New("--before needs --discard")}
	}
	return e.with(ctx, func(a *app.App) error {
		work, err := a.OutgoingWork(ctx)
		if err != nil {
			return err
		}
		if !work.Held && (c.Send || len(c.Discard) > 0) {
			return errors.New("outgoing work is not held")
		}
		var discarded *app.Discarded
		if len(c.Discard) > 0 {
			if discarded, err = c.discard(ctx, a, work.Hold.Since); err != nil {
				return err
			}
			if work, err = a.OutgoingWork(ctx); err != nil {
				return err
			}
		}
		if c.Send {
			if err := a.ReleaseOutgoing(ctx, c.RepeatReplies); err != nil {
				return err
			}
			work.Held = false
		}
		bySlug, err := slugs(ctx, a)
		if err != nil {
			return err
		}
		shown := showWork(work, bySlug)
		shown.Discarded = discarded
		return e.print(shown, func(w io.Writer) { c.printWork(w, &shown) })
	})
}

func (c *releaseCmd) discard(ctx context.Context, a *app.App, since time.Time) (*app.Discarded, error) {
	d := app.Discard{
		Before: since, Replies: slices.Contains(c.Discard, "replies"), Deliveries: slices.Contains(c.Discard, "webhooks"),
		Mails: slices.Contains(c.Discard, "mails"),
	}
	if !c.Before.IsZero() {
		d.Before = c.Before.on(a.DB)
	}
	n, err := a.DiscardOutgoing(ctx, d)
	return &n, err
}

func showWork(work app.OutgoingWork, bySlug map[string]string) heldWork {
	shown := heldWork{
		Held: work.Held, Reason: work.Hold.Reason, Since: momentOf(work.Hold.Since), Mails: work.Mails.Jobs,
		Replies: make([]waitingReply, len(work.Replies)), Webhooks: make([]waitingWebhook, len(work.Deliveries)),
	}
	for i, r := range work.Replies {
		shown.Replies[i] = waitingReply{r.MessageID, bySlug[r.OrganizationID], r.TicketNumber, r.Channel, r.Recipient, r.CreatedAt, r.Submitted || r.Restored}
	}
	for i, d := range work.Deliveries {
		shown.Webhooks[i] = waitingWebhook{bySlug[d.OrganizationID], d.WebhookID, d.URL, d.State, d.Count, d.Oldest}
	}
	for _, k := range work.Others {
		shown.Others += k.Jobs
	}
	return shown
}

func (c *releaseCmd) printWork(w io.Writer, shown *heldWork) {
	switch {
	case c.Send:
		fmt.Fprintln(w, "Outgoing work is released: servers send it from now on.")
	case !shown.Held:
		fmt.Fprintln(w, "Outgoing work is not held.")
	default:
		fmt.Fprintf(w, "Outgoing work is held since %s: %s.\n", formatTime(shown.Since), oneLine(shown.Reason))
	}
	if n := shown.Discarded; n != nil {
		fmt.Fprintf(w, "Discarded: %d replies, %d deliveries of webhooks, %d mails.\n", n.Replies, n.Deliveries, n.Mails)
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	if len(shown.Replies) > 0 {
		fmt.Fprintln(t, "\nREPLY\tORGANIZATION\tTICKET\tCHANNEL\tTO\tMAY HAVE LEFT")
	}
	for _, r := range shown.Replies {
		left := "no"
		if r.MayHaveLeft {
			left = "yes"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\n", formatTime(&r.CreatedAt), tableCell(r.Organization), r.Ticket, r.Channel, tableCell(r.Recipient), left)
	}
	t.Flush()
	if len(shown.Webhooks) > 0 {
		fmt.Fprintln(t, "\nOLDEST DELIVERY\tORGANIZATION\tDELIVERIES\tWEBHOOK\tURL")
	}
	for _, h := range shown.Webhooks {
		state := ""
		if h.State != webhook.Enabled {
			state = " (" + string(h.State) + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\n", formatTime(&h.Oldest), tableCell(h.Organization), h.Deliveries, h.Webhook+state, tableCell(h.URL))
	}
	t.Flush()
	fmt.Fprintf(w, "\nWaiting: %d replies, deliveries of %d webhooks, %d mails, %d other jobs.\n", len(shown.Replies), len(shown.Webhooks), shown.Mails, shown.Others)
	if shown.Held {
		fmt.Fprint(w, "\nNext:\n  kickstand release --send                sends it\n  kickstand release --discard webhooks    discards the deliveries of the backup first\n")
	}
}
