package voice

import (
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

var (
	_ channel.Provable        = (*Adapter)(nil)
	_ channel.ChallengeReader = (*Adapter)(nil)
)

// ProofWays implements [channel.Provable]. Only numbers can receive texts.
func (*Adapter) ProofWays(address string) []channel.ProofWay {
	if !strings.HasPrefix(address, "+") || number(address) == "" {
		return nil
	}
	return []channel.ProofWay{channel.ProveByText}
}

// ReadChallenge implements [channel.ChallengeReader].
func (*Adapter) ReadChallenge(r *channel.Request, p channel.Part) string {
	if p.Kind != KindText {
		return ""
	}
	o, err := read(r)
	if err != nil || o.outbound() || !channel.IsProofText(o.text("text")) {
		return ""
	}
	return channel.TextChallenge
}
