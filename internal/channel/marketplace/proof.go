package marketplace

import "github.com/kickstand-dev/kickstand/internal/channel"

var (
	_ channel.Provable        = (*Adapter)(nil)
	_ channel.ChallengeReader = (*Adapter)(nil)
)

// ProofWays implements [channel.Provable]: only the owner can publish on a topic.
func (*Adapter) ProofWays(string) []channel.ProofWay {
	return []channel.ProofWay{channel.ProveByTopic}
}

// ReadChallenge implements [channel.ChallengeReader].
func (*Adapter) ReadChallenge(r *channel.Request, _ channel.Part) string {
	e, err := parse(r.Body)
	if err != nil || e["Type"] != typeNotification {
		return ""
	}
	return channel.FindProofToken(e["Message"])
}
