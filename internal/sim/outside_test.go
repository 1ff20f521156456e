package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/mail"
)

func wroteHeaders(ctx context.Context) {
	if t := httptrace.ContextClientTrace(ctx); t != nil && t.WroteHeaders != nil {
		t.WroteHeaders()
	}
}

// host is a far side of calls.
type host interface {
	// fate decides about the next call.
	fate() fate
	// serve does the work of a call and returns the response. status is that of its fate; 0: the
	// response will be lost.
	serve(r *http.Request, body []byte, status int) (int, []byte)
}

// receiver gets a webhook's deliveries.
type receiver struct {
	w       *world
	id      string // of the webhook
	ordered bool
	// down makes it fail for a while, in one way.
	down func() fate
}

func (rc *receiver) fate() fate {
	s := rc.w.sched
	if rc.down != nil {
		return rc.down()
	}
	if s.chance(rc.w.weather.network) {
		return callFate(s, 30*time.Second)
	}
	return fate{processed: true, status: 200, until: s.between(time.Millisecond, 200*time.Millisecond)}
}

// callFate draws a failure of a call that its caller gives up after limit.
func callFate(s *scheduler, limit time.Duration) fate {
	switch s.rng.IntN(8) {
	case 0:
		return fate{unreachable: true}
	case 1:
		return fate{status: 500, until: s.between(0, time.Second)}
	case 2:
		return fate{status: 429, until: s.between(0, time.Second)}
	case 3: // it hangs
		return fate{}
	case 4: // it breaks before the work
		return fate{until: s.between(time.Millisecond, limit)}
	case 5: // it breaks after the work
		return fate{processed: true, until: s.between(time.Millisecond, limit)}
	case 6: // it works, and the response is an error
		return fate{processed: true, status: 502, until: s.between(0, time.Second)}
	default: // it is slow, and works in the end, while the caller waits or after it
		after := s.between(time.Second, limit+5*time.Second)
		return fate{processed: true, after: after, status: 200}
	}
}

func (rc *receiver) serve(r *http.Request, body []byte, status int) (int, []byte) {
	rc.w.model.received(rc, r, body, status/100 == 2)
	return status, nil
}

// smsAPI is a provider of text messages with a search.
type smsAPI struct {
	w     *world
	texts []sentText
}

type sentText struct {
	sid, from, to, body string
	at                  time.Time
}

func (p *smsAPI) fate() fate {
	s := p.w.sched
	if s.chance(p.w.weather.network) {
		return callFate(s, 30*time.Second)
	}
	return fate{processed: true, status: 201, until: s.between(time.Millisecond, 500*time.Millisecond)}
}

func (p *smsAPI) serve(r *http.Request, body []byte, status int) (int, []byte) {
	if r.Method == http.MethodGet {
		list := []map[string]any{}
		for i := len(p.texts) - 1; i >= 0; i-- {
			m := p.texts[i]
			if m.to == r.URL.Query().Get("To") && m.from == r.URL.Query().Get("From") {
				list = append(list, map[string]any{
					"sid": m.sid, "body": m.body, "to": m.to, "from": m.from, "direction": "outbound-api", "status": "sent",
					"date_created": m.at.Format(time.RFC1123Z), "num_media": "0",
				})
			}
		}
		if status == 201 {
			status = 200
		}
		out, _ := json.Marshal(map[string]any{"messages": list, "next_page_uri": nil})
		return status, out
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		panic(err)
	}
	m := sentText{fmt.Sprintf("SM%032d", len(p.texts)+1), form.Get("From"), form.Get("To"), form.Get("Body"), time.Now().UTC()}
	p.texts = append(p.texts, m)
	p.w.model.handedOver(m.body)
	if status/100 == 2 {
		status = 201
	}
	out, _ := json.Marshal(map[string]any{"sid": m.sid, "status": "queued"})
	return status, out
}

// mailClient is a node's connection to a mail server, which does not recognize a repeated mail.
type mailClient struct{ n *node }

func (c *mailClient) Send(ctx context.Context, m mail.Message) error {
	_, err := c.SendTracked(ctx, m, func() error { return nil })
	return err
}

func (c *mailClient) SendTracked(ctx context.Context, m mail.Message, submitting func() error) (string, error) {
	n, s := c.n, c.n.w.sched
	if err := n.enter(ctx, "connect to the mail server"); err != nil {
		return "", &mail.Error{Op: mail.OpConnect, Temporary: true, Err: err}
	}
	bad := s.chance(n.w.weather.network)
	if bad && s.chance(0.3) {
		return "", &mail.Error{Op: mail.OpConnect, Temporary: true, Err: errors.New("connection refused")}
	}
	if err := submitting(); err != nil {
		return "", fmt.Errorf("submit: %w", err)
	}
	if err := n.enter(ctx, "send a mail"); err != nil {
		return "", &mail.Error{Op: mail.OpContent, Temporary: true, Unclear: true, Err: err}
	}
	if bad && s.chance(0.3) {
		return "", &mail.Error{Op: mail.OpContent, Temporary: true, Unclear: true, Err: errors.New("connection reset")}
	}
	n.w.model.handedOver(strings.TrimSpace(m.Text))
	n.w.sched.park(n, "answer of the mail server")
	if n.dead || bad {
		return "", &mail.Error{Op: mail.OpContent, Temporary: true, Unclear: true, Err: errors.New("connection reset")}
	}
	n.w.running = n
	return "", nil
}
