package channel

import (
	"regexp"
	"strings"
)

// ProofWay is a method to prove that an organization owns an address.
type ProofWay string

// The ways. In addition, an operator can always decide.
const (
	// ProveByMail sends a message to the address. The address is proven when the message
	// returns by the connection, or by the code in it.
	ProveByMail ProofWay = "mail"
	// ProveByText texts a code to the number.
	ProveByText ProofWay = "text"
	// ProveByDNS looks up a TXT record of the address's domain.
	ProveByDNS ProofWay = "dns"
	// ProveByProvider calls the provider's API with the connection's own token.
	ProveByProvider ProofWay = "provider"
	// ProveByTopic waits for a message published on the topic.
	ProveByTopic ProofWay = "topic"
)

// Provable is implemented by channels if organizations can prove their addresses. Otherwise the
// operator decides.
type Provable interface {
	// ProofWays returns the ways to prove an address, the easiest first.
	ProofWays(address string) []ProofWay
}

// ChallengeReader is implemented by channels that receive challenges back.
type ChallengeReader interface {
	// ReadChallenge returns the token that a verified part carries, or [TextChallenge], or ""
	// if there is none. The token is not checked yet, so it reads no more than necessary.
	ReadChallenge(r *Request, p Part) string
}

// TextChallenge replaces the token of a text message. Codes are never read from requests,
// because that would allow unlimited guesses.
const TextChallenge = "text"

// ProviderProof is implemented by channels if the provider's API names the owner of a token.
type ProviderProof interface {
	// ProofAPI returns the API that names the owner: at the operator's address, or else the
	// provider's.
	ProofAPI(address string) API
	// ProofCall returns the next call to check that the connection's own token belongs to
	// address, given the responses so far. A nil call means that it does. An error gives the
	// reason why it does not, as the rest of a sentence.
	ProofCall(address string, credentials Credentials, answers []Response) (*APIRequest, error)
}

// ProofTokenPrefix starts every token. Tokens have only letters, digits and hyphens, so that
// they survive any encoding.
const ProofTokenPrefix = "kickstand-proof-"

// ProofHeader is the mail header with the token of a challenge.
const ProofHeader = "X-Kickstand-Challenge"

var proofToken = regexp.MustCompile(ProofTokenPrefix + `[a-z2-7]{26}`)

// FindProofToken returns the first token in a text, or "".
func FindProofToken(text string) string {
	if !strings.Contains(text, ProofTokenPrefix) {
		return ""
	}
	return proofToken.FindString(text)
}

// The text around the code of a text message.
const (
	beforeCode = "Kickstand code: "
	afterCode  = ". Enter it in Kickstand to connect this number as a channel. If you did not ask for it, ignore this text."
)

var proofText = regexp.MustCompile(`^\s*` + regexp.QuoteMeta(beforeCode) + `[0-9]{8}\b`)

// ProofText returns the text message for a code.
func ProofText(code string) string { return beforeCode + code + afterCode }

// IsProofText reports whether a text has the form of [ProofText].
func IsProofText(text string) bool { return proofText.MatchString(text) }

// OwnAccountSender is implemented by channels that can send by the connection's own account or
// by the deployment's.
type OwnAccountSender interface {
	// UsesOwnAccount reports whether messages are sent by the connection's own account.
	UsesOwnAccount(credentials Credentials) bool
}
