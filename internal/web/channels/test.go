package channels

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/api"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/mailbox"
	"github.com/kickstand-dev/kickstand/internal/outbound"
	"github.com/kickstand-dev/kickstand/internal/problem"
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
	if p.AllowTest != nil {
		if ok, wait := p.AllowTest(r.Context(), r.OrganizationID); !ok {
			e := problem.New(problem.RateLimited, "too many tests were made; try again in a minute")
			e.RetryAfter = wait
			return e
		}
	}
	return p.renderConnection(w, r, c, nil, http.StatusOK, shownOnce{results: p.testResults(r.Context(), &c)})
}

// testResults tests both directions.
func (p *pages) testResults(ctx context.Context, c *connection.Connection) []result {
	var list []result
	switch c.Channel {
	case email.MailboxName:
		list = append(list, p.testMailbox(ctx, c))
	case email.DirectName:
		list = p.testDirect(ctx, c)
	default:
		list = append(list, p.testEndpoint(ctx, c))
	}
	if p.Outbound != nil {
		list = append(list, p.testCredentials(ctx, c))
	}
	return list
}

const receiving = "Receiving"

func (p *pages) testMailbox(ctx context.Context, c *connection.Connection) result {
	if !c.Enabled {
		return failed(receiving, errors.New("the channel is disabled, so its mails are not collected"))
	}
	switch err := p.Mailboxes.Test(ctx, c); {
	case err == nil:
		return passed(receiving, "The IMAP server accepts the login, and the folders exist.")
	case errors.Is(err, mailbox.ErrNotRead):
		return untested(receiving, "The mailbox is not read: it has no IMAP server.")
	default:
		return failed(receiving, err)
	}
}

// testDirect tests mail that this server receives itself.
func (p *pages) testDirect(ctx context.Context, c *connection.Connection) []result {
	if err := p.TestMail(ctx, c); err != nil {
		return []result{failed(receiving, err)}
	}
	list := []result{passed(receiving, "A test mail to the address was received by SMTP inside this server, and read. It was not stored.")}
	found, ok := p.MailRecords(ctx, c)
	if ok {
		return append(list, passed("MX record", sentence(found)))
	}
	return append(list, result{"MX record", web.Badge{Text: "Elsewhere", Tone: web.Warning, Icon: "alert"}, sentence(found) + " Unless another server forwards to this one, mail does not arrive."})
}

func (p *pages) testEndpoint(ctx context.Context, c *connection.Connection) result {
	key, err := p.Inbound.SelfTest(ctx, c)
	if err != nil {
		return failed(receiving, err)
	}
	if key == inbound.SampleTestKey {
		return passed(receiving, "A sample request, signed with a key made for tests, was verified and read. It was not stored. "+
			"Only the provider can sign with its own key: that it does shows with its first request, below.")
	}
	return passed(receiving, "A sample request, signed with the channel’s secret, was verified and read. It was not stored.")
}

func (p *pages) testCredentials(ctx context.Context, c *connection.Connection) result {
	const label = "Credentials"
	if g := findGuide(c.Channel); g != nil && len(g.Credentials) == 0 {
		return untested(label, "This channel only receives, and needs none.")
	}
	switch err := p.Outbound.TestCredentials(ctx, c); {
	case err == nil:
		return passed(label, "The provider accepts them.")
	case errors.Is(err, outbound.ErrNoCredentials) && c.Channel == api.Name:
		return untested(label, "There is no URL for replies: your users’ browsers and devices fetch them.")
	case errors.Is(err, outbound.ErrNoCredentials):
		return untested(label, "The channel has no credentials of its own.")
	default:
		return failed(label, err)
	}
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
