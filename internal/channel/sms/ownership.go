package sms

import "github.com/kickstand-dev/kickstand/internal/channel"

var (
	_ channel.Provable        = (*Adapter)(nil)
	_ channel.ChallengeReader = (*Adapter)(nil)
)

// ProofWays implements [channel.Provable]. Only numbers can receive texts: the operator decides
// for short codes, names and messaging services.
func (*Adapter) ProofWays(address string) []channel.ProofWay {
	if !e164(address) {
		return nil
	}
	return []channel.ProofWay{channel.ProveByText}
}

// ReadChallenge implements [channel.ChallengeReader].
func (*Adapter) ReadChallenge(r *channel.Request, p channel.Part) string {
	if p.Kind != KindMessage {
		return ""
	}
	params, err := parseParams(r)
	if err != nil || !channel.IsProofText(params.get("Body")) {
		return ""
	}
	return channel.TextChallenge
}
