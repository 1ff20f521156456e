package channels

import (
	"errors"
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/api"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// proofView is the proof section of a connection's page.
type proofView struct {
	Badge     web.Badge
	Text      string
	At        web.Time // when it was proven
	Command   *web.Code
	Methods   []methodView
	Challenge *challengeView // awaits a code
	Error     string         // of the last attempt
}

type methodView struct {
	Method channel.ProofWay
	Title  string
	Text   string
	Codes  []web.Code
	Button string
}

type challengeView struct {
	SentAt, ExpiresAt web.Time
	TriesLeft         int
	Code              web.Field
}

// methods describes how an address was proven.
var methods = map[connection.Method]string{
	connection.ByOperator:   "Confirmed by the operator of this server.",
	connection.ByAllowList:  "Confirmed by the configuration of this server.",
	connection.ByDNS:        "Proven by a DNS record.",
	connection.ByMail:       "Proven by a message to the address.",
	connection.ByText:       "Proven by a code sent to the number.",
	connection.ByProvider:   "Proven by the provider with the channel's token.",
	connection.ByTopic:      "Proven by a message on the topic.",
	connection.BeforeProofs: "Connected before proofs were required. Prove it now to protect it from claims by others.",
}

// usesText returns the uses that a connection lacks until its address is proven.
func usesText(uses []connection.Capability) string {
	var missing []string
	for _, u := range uses {
		switch u {
		case connection.ToReceive:
			missing = append(missing, "nothing reaches it that only this server's own accounts vouch for")
		case connection.ToSend:
			missing = append(missing, "nothing is sent in its name by this server's accounts")
		}
	}
	if len(missing) == 0 {
		return "No proof needed: the channel has its own secrets and accounts."
	}
	return "Prove that the address is yours. Until then " + strings.Join(missing, ", and ") + "."
}

// newProof returns the proof section of a connection; nil if there is nothing to prove.
func (p *pages) newProof(r *web.Request, c *connection.Connection, wrong string) (*proofView, error) {
	if c.Channel == api.Name {
		return nil, nil
	}
	s, err := p.Connections.FullProofStatus(r.Context(), p.DB, c)
	if err != nil {
		return nil, err
	}
	v := &proofView{Error: wrong}
	switch {
	case s.State == connection.Proven:
		v.Badge, v.Text, v.At = web.Badge{Text: "Proven", Tone: web.Good, Icon: "check"}, methods[s.Method], r.Time(s.At)
	case len(s.Needed) > 0:
		v.Badge, v.Text = pendingBadge(), usesText(s.Needed)
	default:
		v.Badge, v.Text = web.Badge{Text: "Not needed"}, usesText(nil)
	}
	if s.State == connection.Proven && s.Method != connection.BeforeProofs {
		return v, nil
	}
	if s.State != connection.Proven {
		v.Command = &web.Code{Label: "Command for the operator", Text: "kickstand channel prove " + c.ID}
	}
	for _, way := range s.Ways {
		v.Methods = append(v.Methods, newMethodView(c, way, &s))
	}
	if ch := s.Challenge; ch != nil && ch.TriesLeft > 0 {
		v.Challenge = &challengeView{
			SentAt: r.Time(ch.SentAt), ExpiresAt: r.Time(ch.ExpiresAt), TriesLeft: ch.TriesLeft,
			Code: web.Field{Name: "code", Label: "Code", Type: "text", Autocomplete: "one-time-code", Placeholder: "1234 5678", Most: 32},
		}
	}
	return v, nil
}

func pendingBadge() web.Badge {
	return web.Badge{Text: "Pending: proof required", Tone: web.Warning, Icon: "clock"}
}

// newMethodView describes a method of proof.
func newMethodView(c *connection.Connection, way channel.ProofWay, s *connection.Status) methodView {
	v := methodView{Method: way}
	sent := s.Challenge != nil && s.Challenge.Way == way
	switch way {
	case channel.ProveByMail:
		v.Title, v.Button = "By mail", "Send challenge"
		v.Text = "We send a code to " + c.Address + ". If mail to the address already reaches this channel, the message proves it on arrival."
		if c.Channel == email.DirectName {
			v.Text = "We send a code to " + c.Address + ". It arrives as long as mail to the address goes to your former server."
		}
	case channel.ProveByText:
		v.Title, v.Button = "By text message", "Send challenge"
		v.Text = "We send a code to " + c.Address + "."
	case channel.ProveByDNS:
		v.Title, v.Button = "By DNS", "Check DNS"
		v.Text = "Add a TXT record with this name and this value to the domain. It proves all addresses of the domain."
		v.Codes = []web.Code{{Label: "Name of the TXT record", Text: s.Record.Name}, {Label: "Value of the TXT record", Text: s.Record.Value}}
	case channel.ProveByProvider:
		v.Title, v.Button = "By the provider", "Check with provider"
		v.Text = "Checks the owner of the channel's token with the provider. Save the token in the settings first."
	case channel.ProveByTopic:
		v.Title, v.Button = "By the topic", "Create text"
		v.Text = "The right to publish proves ownership. Create a text, subscribe the URL shown here, and publish the text on the topic."
		if sent {
			v.Text = "Subscribe the URL shown here to the topic, and publish this text on it within 24 hours."
			v.Codes = []web.Code{{Label: "Text to publish", Text: s.Challenge.Publish}}
		}
	}
	if sent {
		v.Button = map[channel.ProofWay]string{channel.ProveByTopic: "Create another text"}[way]
		if v.Button == "" {
			v.Button = "Send another challenge"
		}
	}
	return v
}

// prove starts a proof, or checks the code of a challenge.
func (p *pages) prove(w http.ResponseWriter, r *web.Request) error {
	values, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	id, way := r.PathValue("id"), channel.ProofWay(values.Get("way"))
	var c connection.Connection
	var err error
	if values.Has("code") {
		c, err = p.Connections.AnswerChallenge(r.Context(), r.OrganizationID, id, values.Get("code"))
	} else {
		c, err = p.Connections.Prove(r.Context(), r.OrganizationID, id, way)
	}
	if e, ok := errors.AsType[*problem.Error](err); ok && e.Kind != problem.NotFound && e.Kind != problem.Internal {
		now, ferr := p.Connections.FindOf(r.Context(), p.DB, r.OrganizationID, id)
		if ferr != nil {
			return ferr
		}
		return p.renderConnection(w, r, now, nil, http.StatusUnprocessableEntity, shownOnce{wrong: problemText(e)})
	}
	if err != nil {
		return err
	}
	n := web.Notice{Text: c.Address + " is proven to be yours."}
	if !c.Proven() || c.Proof.Method == connection.BeforeProofs {
		n.Text = "Challenge sent to " + c.Address + "."
		if way == channel.ProveByTopic {
			n.Text = "Publish the text on the topic."
		}
	}
	return p.Redirect(w, "/settings/channels/"+id, n)
}

// problemText returns a problem's message and issues as a sentence.
func problemText(e *problem.Error) string {
	text := e.Message
	if len(e.Issues) > 0 {
		text = "the code " + e.Issues[0].Message
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
