package channels

import (
	"errors"
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/mailbox"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// mailboxView is the state of a mailbox on the page of its channel.
type mailboxView struct {
	mailbox.Status
	Badge    web.Badge
	Provider string // where an admin signs in; empty: a password does
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
	if provider := c.CredentialValues()[signIn.Name]; provider != "" {
		v.Provider = p.Mailboxes.ProviderTitle(provider)
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

// requestConsent sends the browser to the provider of a mailbox.
func (p *pages) requestConsent(w http.ResponseWriter, r *web.Request) error {
	at, err := p.Mailboxes.ConsentURL(r.Context(), r.OrganizationID, r.UserID, r.PathValue("id"))
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r.Request, at, http.StatusSeeOther)
	return nil
}

// acceptConsent takes the browser back from the provider.
func (p *pages) acceptConsent(w http.ResponseWriter, r *web.Request) error {
	query := r.URL.Query()
	id, err := p.Mailboxes.AcceptConsent(r.Context(), r.OrganizationID, r.UserID, query.Get("state"), query.Get("code"))
	if id == "" || err != nil && problem.Of(err) == problem.Internal {
		return err
	}
	notice := web.Notice{Text: "Signed in. The mailbox is read from now on."}
	if err != nil {
		refusal, _ := errors.AsType[*problem.Error](err)
		notice = web.Notice{Text: "Not signed in: " + refusal.Message + "."}
	}
	return p.Redirect(w, "/settings/channels/"+id, notice)
}
