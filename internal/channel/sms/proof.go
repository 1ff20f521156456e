package sms

import "github.com/kickstand-dev/kickstand/internal/channel"

var (
	_ channel.Provable        = (*Adapter)(nil)
	_ channel.ChallengeReader = (*Adapter)(nil)
)

// ProofWays implements [channel.Provable]. Only a number can be texted: of short codes,
// names and messaging services the operator decides.
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
