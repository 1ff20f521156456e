// Package mail sends mail: account mails, notices and the replies of the mail channel.
//
// A [Message] is data. [Compose] encodes it as RFC 5322, and a [Sender] delivers it: [SMTP] to
// a server, [HTTPSender] to a delivery provider, and, if neither is configured, [Mailbox] to a
// directory that a developer reads in the browser. All compose first, so they refuse the same
// messages, and all pass mailtest.Run.
//
// Invariant: no value in a Message can add a header, a recipient or a body part. Such values
// are refused, not repaired.
//
// The package makes one attempt and stores nothing. [Error.Temporary] tells the caller's queue
// whether to retry, and [Retry] when. A server may have accepted a message although Send
// failed, because the connection broke before its answer ([Error.Unclear]). A caller that
// retries nevertheless reuses the Message-ID; one that must not send twice uses
// [TrackedSender], and retries only with an [IdempotentSender].
package mail

import (
	"context"
	"errors"
	"fmt"
	netmail "net/mail"
	"strings"
	"time"
)

// Sender delivers messages. Implementations are safe for concurrent use.
type Sender interface {
	// Send delivers m to all of its recipients or to none. Nil means that the server has
	// accepted responsibility for it. Any other error is an [*Error].
	Send(ctx context.Context, m Message) error
}

// TrackedSender is a [Sender] that announces when it starts to transmit a message. Before that,
// the server cannot have it; after that, only its answer tells.
type TrackedSender interface {
	Sender
	// SendTracked is Send. It calls submitting right before the first byte of the message, and
	// again right before the message is complete; or not at all if it fails before. An error of
	// submitting aborts the sending: the server does not get a complete message. The error is
	// wrapped in the result. id is the server's id of the message, beside its Message-ID; it may
	// be empty.
	SendTracked(ctx context.Context, m Message, submitting func() error) (id string, err error)
}

// IdempotentSender is a [TrackedSender] for a provider that recognizes a repeated message by
// its ID and does not deliver it again.
type IdempotentSender interface {
	TrackedSender
	// IdempotencyWindow is how long after the first attempt it does.
	IdempotencyWindow() time.Duration
	// IdempotencyScope names the account in which it does: two senders with equal scopes
	// recognize each other's messages. It reveals no credentials.
	IdempotencyScope() string
}

// Address is a mailbox: a display name, which may be empty, and an address.
type Address = netmail.Address

// Message is one mail. From and at least one recipient are required. Values
// are plain text: encoding, quoting and folding are Compose's work. A value
// with CR, LF or NUL in any field but Text and HTML is refused.
type Message struct {
	// ID identifies the message to an [IdempotentSender] and in a provider's events. It has
	// letters, digits and hyphens. If empty, the Message-ID is used, and no events name it.
	ID string

	From    Address
	To      []Address
	Cc      []Address
	Bcc     []Address // recipients that no header names
	ReplyTo Address   // zero for none
	Subject string
	Text    string   // body as plain text, any line ends
	HTML    string   // alternative to Text, as multipart/alternative
	Headers []Header // further headers, written in this order

	// MessageID is the Message-ID with or without its angle brackets. If empty, a random one
	// under From's domain is generated.
	MessageID string

	// EnvelopeFrom is the bounce address: an address, "<>" for none (mail that no program may
	// answer), or empty for From.
	EnvelopeFrom string

	Attachments []Attachment

	// Notification is what the message is rendered from, if it has no brand yet; see
	// [Message.SetBrand]. It is not stored.
	Notification *Notification `json:"-"`
}

// Header is a further header field, such as In-Reply-To or Auto-Submitted. A non-ASCII value is
// encoded per RFC 2047 as unstructured text; an ASCII value is only folded.
type Header struct {
	Name, Value string
}

// Attachment is one attached file.
type Attachment struct {
	Name        string // file name; folders are dropped, empty means "attachment"
	ContentType string // application/octet-stream when empty or unusable
	Content     []byte
	ContentID   string // of a picture that HTML shows by "cid:"; empty: an ordinary file
}

// Error is the only error type of a [Sender]. Its text holds the server's reply in one line and
// never a password.
type Error struct {
	Op           Op
	Server       string        // host:port; empty if no server was involved
	Recipient    string        // the refused recipient, for OpRecipient
	API          bool          // the server is a delivery provider's API
	Code         int           // SMTP reply code, or HTTP status of an API; 0 without a reply
	EnhancedCode string        // RFC 3463, such as "5.1.1"; may be empty
	Temporary    bool          // a retry may succeed
	Unclear      bool          // the whole message was sent without an answer: the server may have accepted it
	RetryAfter   time.Duration // wait that the server asks for; 0 if it does not
	Text         string        // the server's reply as one printable line
	Err          error         // cause without a reply
}

// Op is the step of sending at which an [Error] arose.
type Op string

// The steps, in the order in which Send takes them.
const (
	OpCompose   Op = "compose"   // the message cannot be composed
	OpConnect   Op = "connect"   // dialing, greeting, EHLO
	OpTLS       Op = "start TLS" // handshake or certificate; required but not offered
	OpLogin     Op = "log in"    // credentials refused, or unsafe to send
	OpSender    Op = "name sender"
	OpRecipient Op = "name recipient"
	OpContent   Op = "hand over message"
	OpStore     Op = "store message" // the mailbox directory
)

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("mail: ")
	b.WriteString(string(e.Op))
	if e.Recipient != "" {
		b.WriteString(" " + e.Recipient)
	}
	if e.Server != "" {
		b.WriteString(" at " + e.Server)
	}
	b.WriteString(":")
	if e.Code != 0 {
		fmt.Fprintf(&b, " %d", e.Code)
	}
	if e.EnhancedCode != "" {
		b.WriteString(" " + e.EnhancedCode)
	}
	if e.Text != "" {
		b.WriteString(" " + e.Text)
	}
	if e.Err != nil {
		b.WriteString(" " + e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause, so that errors.Is finds a context's end.
func (e *Error) Unwrap() error { return e.Err }

// Temporary reports whether a retry may succeed after err. An error from outside this package
// counts as temporary.
func Temporary(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Temporary
	}
	return err != nil
}
