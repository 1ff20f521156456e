package email

import (
	"bytes"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/mailparse"
)

var (
	_ channel.Provable         = Writer{}
	_ channel.OwnAccountSender = Writer{}
	_ channel.ChallengeReader  = (*style)(nil)
	_ channel.ChallengeReader  = (*Delivery)(nil)
)

// ProofWays implements [channel.Provable].
func (Writer) ProofWays(string) []channel.ProofWay {
	return []channel.ProofWay{channel.ProveByMail, channel.ProveByDNS}
}

// UsesOwnAccount implements [channel.OwnAccountSender].
func (Writer) UsesOwnAccount(credentials channel.Credentials) bool {
	return credentials.Get(CredentialServer) != "" || credentials.HasAPI()
}

// ReadChallenge implements [channel.ChallengeReader]. The token is in the header, or, if a
// forwarder dropped that, in the subject.
func (a *style) ReadChallenge(r *channel.Request, _ channel.Part) string {
	if !mayHoldToken(r.Body) {
		return ""
	}
	s, err := a.open(r)
	if err != nil {
		return ""
	}
	h := s.header()
	if token := channel.FindProofToken(h.Get(channel.ProofHeader)); token != "" {
		return token
	}
	return channel.FindProofToken(mailparse.Text(h.Get("Subject")))
}

// ReadChallenge implements [channel.ChallengeReader].
func (*Delivery) ReadChallenge(r *channel.Request, _ channel.Part) string {
	if !mayHoldToken(r.Body) {
		return ""
	}
	e, err := openDelivery(r)
	if err != nil || e.Type != kindReceived {
		return ""
	}
	return channel.FindProofToken(string(e.Data.Subject))
}

// maxChallenge is the largest request, in bytes, that is decoded for a challenge if the message
// is encoded as a whole.
const maxChallenge = 64 << 10

// mayHoldToken reports whether to decode a body for a token.
func mayHoldToken(body []byte) bool {
	return bytes.Contains(body, []byte(channel.ProofTokenPrefix)) || len(body) <= maxChallenge && bytes.Contains(body, []byte("base64"))
}
