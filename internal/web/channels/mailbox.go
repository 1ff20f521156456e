package channels

import (
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/mailbox"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// mailboxView is the state of a mailbox on the page of its channel.
type mailboxView struct {
	mailbox.Status
	Badge    web.Badge
	LastMail web.Time
	Checked  web.Time
	Since    web.Time // of failures
	Retry    web.Time
}

// newMailboxView returns the state of a connection's mailbox; nil if it is not read.
func (p *pages) newMailboxView(r *web.Request, c *connection.Connection) (*mailboxView, error) {
	status, ok, err := p.Mailboxes.Status(r.Context(), p.DB, c.ID)
	if err != nil || !ok {
		return nil, err
	}
	v := &mailboxView{
		Status: status, LastMail: r.Time(status.LastMailAt), Checked: r.Time(status.CheckedAt), Since: r.Time(status.FailingSince), Retry: r.Time(status.RetryAt),
		Badge: web.Badge{Text: "Waiting", Icon: "clock"},
	}
	switch {
	case !c.Enabled:
		v.Badge = web.Badge{Text: "Disabled", Icon: "pause"}
	case status.State == mailbox.Reading:
		v.Badge = web.Badge{Text: "Reading", Tone: web.Good, Icon: "check"}
	case status.State == mailbox.Failing:
		v.Badge = web.Badge{Text: "Failing", Tone: web.Bad, Icon: "alert"}
	case status.State == mailbox.Consent:
		v.Badge = web.Badge{Text: "Consent ended", Tone: web.Bad, Icon: "alert"}
	}
	return v, nil
}
