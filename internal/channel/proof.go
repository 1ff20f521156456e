package channel

import (
	"regexp"
	"strings"
)

// ProofWay is a way in which an organization proves that an address is its own.
type ProofWay string

// The ways. Beside them an operator can always decide.
const (
	// ProveByMail sends a message to the address. It proves the address when it comes
	// back to the connection, or by the code in it.
	ProveByMail ProofWay = "mail"
	// ProveByText texts a code to the number.
	ProveByText ProofWay = "text"
	// ProveByDNS looks for a TXT record of the address's domain.
	ProveByDNS ProofWay = "dns"
	// ProveByProvider asks the provider's API with the connection's own token.
	ProveByProvider ProofWay = "provider"
	// ProveByTopic waits for a message that is published on the topic.
	ProveByTopic ProofWay = "topic"
)

// Provable is implemented by channels whose addresses an organization can prove to be
// its own. Of every other channel the operator decides.
type Provable interface {
	// ProofWays returns the ways in which an address can be proven, the easiest first.
	ProofWays(address string) []ProofWay
}

// ChallengeReader is implemented by channels on which a challenge comes back.
type ChallengeReader interface {
	// ReadChallenge returns the token that a verified part carries, or [TextChallenge];
	// empty for every other part. It reads as little as it can: nothing is known of
	// the token yet.
	ReadChallenge(r *Request, p Part) string
}

// TextChallenge stands for the token of a text. Its code is never read from a
// request: codes that come in could be tried without end.
const TextChallenge = "text"

// ProviderProof is implemented by channels whose provider's API names the owner of a
// token.
type ProviderProof interface {
	// ProofAPI returns the API that names the owner: at the address that the operator
	// chose, or the provider's own.
	ProofAPI(address string) API
	// ProofCall returns the next call that shows whether the connection's own token
	// belongs to an address, given the answers so far. A nil call means that it does.
	// An error says in plain words why it does not: the rest of a sentence.
	ProofCall(address string, credentials Credentials, answers []Response) (*Call, error)
}

// ProofTokenPrefix is the start of every token: letters, digits and hyphens only, so
// that a token survives every encoding on its way.
const ProofTokenPrefix = "kickstand-proof-"

// ProofHeader is the header of a challenge's mail that holds the token.
const ProofHeader = "X-Kickstand-Challenge"

var proofToken = regexp.MustCompile(ProofTokenPrefix + `[a-z2-7]{26}`)

// FindProofToken returns the first token in a text; empty if there is none.
func FindProofToken(text string) string {
	if !strings.Contains(text, ProofTokenPrefix) {
		return ""
	}
	return proofToken.FindString(text)
}

// The words around the code of a text.
const (
	beforeCode = "Kickstand code: "
	afterCode  = ". Enter it in Kickstand to connect this number as a channel. If you did not ask for it, ignore this text."
)

var proofText = regexp.MustCompile(`^\s*` + regexp.QuoteMeta(beforeCode) + `[0-9]{8}\b`)

// ProofText returns the text that carries a code.
func ProofText(code string) string { return beforeCode + code + afterCode }

// IsProofText reports whether a text has the form of [ProofText].
func IsProofText(text string) bool { return proofText.MatchString(text) }

// OwnAccountSender is implemented by channels whose messages can leave by an account of the
// deployment's as well as by one of the connection's own.
type OwnAccountSender interface {
	// UsesOwnAccount reports whether messages leave by an account of the connection's own.
	UsesOwnAccount(credentials Credentials) bool
}
