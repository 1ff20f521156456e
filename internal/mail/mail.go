// Package mail sends mail: account mails, notices and the replies of the mail
// channel.
//
// A [Message] is data. [Compose] turns it into RFC 5322 bytes, and a [Sender]
// takes it to where it goes: [SMTP] to a server, [API] to a delivery provider,
// [Mailbox] into a directory that a developer reads in the browser when neither is
// configured. All compose first, so what one refuses the others refuse too, and all
// pass mailtest.Run.
//
// The invariant is that what a customer typed stays content: no value in a
// Message can add a header, a recipient or a body part. Values that try are
// refused, not repaired.
//
// The package sends once. It neither retries nor remembers; [Error.Temporary]
// tells the caller's queue whether another attempt can help, and [Retry] when.
// A server may have taken a message although Send failed, because the connection
// broke before its answer ([Error.Unclear]). A caller that tries again all the
// same keeps the Message-ID; one that must not send twice uses [TrackedSender], and sends
// again only by a [IdempotentSender].
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
	// Send delivers m to all of its recipients or to none of them. A nil
	// error means that the far side has taken responsibility for it. Any
	// other error is an [*Error].
	Send(ctx context.Context, m Message) error
}

// TrackedSender is a [Sender] that says when it is about to hand a message over. Until
// then the far side has nothing of it; from then on, only its answer tells.
type TrackedSender interface {
	Sender
	// SendTracked is Send. It calls handing once, right before the first byte of the
	// message goes, and not at all if it does not come so far. An error of
	// handing ends the sending and is in the chain of the one returned. The id is
	// what the far side calls the message from then on, beside its Message-ID; it
	// may be empty.
	SendTracked(ctx context.Context, m Message, handing func() error) (id string, err error)
}

// IdempotentSender is a [TrackedSender] whose far side recognises a message that it was handed
// before, by the message's ID, and does not deliver it again.
type IdempotentSender interface {
	TrackedSender
	// IdempotencyWindow is for how long it does, from the first time on.
	IdempotencyWindow() time.Duration
	// IdempotencyScope names where it does: two that name the same place know of each
	// other's messages. It tells nothing of credentials.
	IdempotencyScope() string
}

// Address is a mailbox: a display name, which may be empty, and an address.
type Address = netmail.Address

// Message is one mail. From and at least one recipient are required. Values
// are plain text: encoding, quoting and folding are Compose's work. A value
// with CR, LF or NUL in any field but Text and HTML is refused.
type Message struct {
	// ID names the message to a [IdempotentSender] and in what a provider reports of it. It
	// is letters, digits and hyphens; empty: the Message-ID serves, and nothing is
	// reported.
	ID string

	From    Address
	To      []Address
	Cc      []Address
	ReplyTo Address // zero for none
	Subject string
	Text    string   // body as plain text, any line ends
	HTML    string   // the same as HTML; with Text it makes multipart/alternative
	Headers []Header // further headers, written in this order

	// MessageID is the Message-ID with or without its angle brackets. Empty
	// makes a random one under From's domain.
	MessageID string

	// EnvelopeFrom is where bounces go: an address, "<>" for nowhere (mail
	// that must never be answered by a machine), or empty for From.
	EnvelopeFrom string

	Attachments []Attachment
}

// Header is one header field that Message has no field for, such as
// In-Reply-To or Auto-Submitted. A value that is not ASCII is encoded per RFC
// 2047 as unstructured text; an ASCII value is only folded.
type Header struct {
	Name, Value string
}

// Attachment is one attached file.
type Attachment struct {
	Name        string // file name; folders are dropped, empty means "attachment"
	ContentType string // application/octet-stream when empty or unusable
	Content     []byte
}

// Error is the only error a [Sender] returns. Its text holds the server's
// words in one line and never a password.
type Error struct {
	Op           Op
	Server       string        // host:port; empty when no server had a part in it
	Recipient    string        // the refused recipient, for OpRecipient
	API          bool          // the server is a delivery provider's API
	Code         int           // SMTP reply code, or HTTP status of an API; 0 when no reply decided
	EnhancedCode string        // RFC 3463, such as "5.1.1"; empty when the reply had none
	Temporary    bool          // sending the same message again later may succeed
	Unclear      bool          // all of the message went, and no answer came: the server may have taken it
	RetryAfter   time.Duration // for how long the server wants rest; 0: it did not say
	Text         string        // what the server said, one printable line
	Err          error         // cause when there was no reply
}

// Op is the step of sending at which an [Error] arose.
type Op string

// The steps, in the order in which Send takes them.
const (
	OpCompose   Op = "compose"   // the message itself is not sendable
	OpConnect   Op = "connect"   // dialling, greeting, EHLO
	OpTLS       Op = "start TLS" // handshake or certificate; TLS wanted but not offered
	OpLogin     Op = "log in"    // credentials refused, or not safe to send
	OpSender    Op = "name sender"
	OpRecipient Op = "name recipient"
	OpContent   Op = "hand over message"
	OpStore     Op = "keep message" // the mailbox directory
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

// Temporary reports whether sending again later may succeed where err arose. An
// error that did not come from this package says nothing about the message and
// counts as temporary.
func Temporary(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Temporary
	}
	return err != nil
}
