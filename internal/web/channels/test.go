package channels

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/mailbox"
	"github.com/kickstand-dev/kickstand/internal/outbound"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// result is the result of a test in one direction.
type result struct {
	Label string
	State web.Badge
	Text  string // the reason or an explanation; empty: none
}

func passed(label, text string) result {
	return result{label, web.Badge{Text: "Works", Tone: web.Good, Icon: "check"}, text}
}

func failed(label string, err error) result {
	return result{label, web.Badge{Text: "Fails", Tone: web.Bad, Icon: "alert"}, sentence(err.Error())}
}

func untested(label, text string) result {
	return result{label, web.Badge{Text: "Not tested", Icon: "pause"}, text}
}

// sentence returns an error as a sentence.
func sentence(text string) string {
	text = strings.TrimPrefix(text, "mail: ")
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// test tests a connection in both directions and shows the results. It stores nothing and sends no
// message.
func (p *pages) test(w http.ResponseWriter, r *web.Request) error {
	if _, ok := p.Form(w, r); !ok {
		return nil
	}
	c, _, err := p.find(r)
	if err != nil {
		return err
	}
	return p.renderConnection(w, r, c, nil, http.StatusOK, shownOnce{results: p.testResults(r.Context(), &c)})
}

// testResults tests both directions.
func (p *pages) testResults(ctx context.Context, c *connection.Connection) []result {
	const in, out = "Receiving", "Credentials"
	var list []result
	test := p.Inbound.SelfTest
	if c.Channel == email.MailboxName {
		test = p.Mailboxes.Test
	}
	switch err := test(ctx, c); {
	case err == nil && c.Channel == email.MailboxName:
		list = append(list, passed(in, "The IMAP server accepts the login, and the folders exist."))
	case err == nil:
		list = append(list, passed(in, "A sample request, signed with the channel’s secret, was verified and read. It was not stored."))
	case errors.Is(err, mailbox.ErrNotRead):
		list = append(list, untested(in, "The mailbox is not read: it has no IMAP server."))
	case errors.Is(err, inbound.ErrUnsampled):
		list = append(list, untested(in, "Only the provider can sign requests of this channel. The last one that arrived is shown below."))
	default:
		list = append(list, failed(in, err))
	}
	if p.Outbound == nil {
		return list
	}
	switch err := p.Outbound.TestCredentials(ctx, c); {
	case err == nil:
		list = append(list, passed(out, "The provider accepts them."))
	case errors.Is(err, outbound.ErrNoCredentials):
		list = append(list, untested(out, "The channel has no credentials of its own."))
	default:
		list = append(list, failed(out, err))
	}
	return list
}

// healthView is the health of a connection on its page.
type healthView struct {
	Received, Sent, ErrorAt, SecretEnds, ConsentEnds web.Time
	Error                                            string
	Failing                                          bool
}

// endNotice is how long ahead the end of a secret or of a consent is shown.
const endNotice = 30 * 24 * time.Hour

func (p *pages) newHealth(r *web.Request, c *connection.Connection) (healthView, error) {
	h, err := p.Inbound.Health(r.Context(), c)
	if err != nil {
		return healthView{}, err
	}
	v := healthView{Received: r.Time(h.ReceivedAt), Sent: r.Time(h.SentAt), Error: h.Error, ErrorAt: r.Time(h.ErrorAt), Failing: h.Failing()}
	if !h.SecretEndsAt.IsZero() && h.SecretEndsAt.Sub(r.Now) < endNotice {
		v.SecretEnds = r.Time(h.SecretEndsAt)
	}
	if !h.ConsentEndsAt.IsZero() && h.ConsentEndsAt.Sub(r.Now) < endNotice {
		v.ConsentEnds = r.Time(h.ConsentEndsAt)
	}
	return v, nil
}
