package channel

import (
	"errors"
	"net/http"
	"time"

	"github.com/kickstand-dev/kickstand/internal/mail"
)

// Outgoing is a message on its way to a customer, in terms that hold for every
// channel.
type Outgoing struct {
	ID           string // ours
	TicketID     string
	TicketNumber int64
	From         string // the connection's address
	FromName     string
	To           Party
	Text         string
	HTML         string // sanitized; empty: there is only text
	Files        []OutgoingFile
	// Automatic says that nobody wrote it: it must not be answered by a
	// program in turn.
	Automatic bool
	// ReceiptURL is where the provider shall report what became of it; it
	// names the message.
	ReceiptURL string

	// ThreadKey is the thread that it goes to, in the form in which threads are
	// compared: what [Message.ThreadKey] was, but for numbers, of which To has the
	// right spelling. Where several people write in a thread, To is its customer.
	ThreadKey string

	// LastInboundAt is when the customer last wrote in the conversation, zero when never,
	// and AnswersID the provider's id of that message.
	LastInboundAt time.Time
	LastInboundID string

	// WindowEndsAt is until when it can be sent, on a channel where that ends: see
	// [WindowedSender]. Zero: whenever, or never.
	WindowEndsAt time.Time

	// What only mail has. Ids are without brackets.
	Cc         []Party
	Subject    string // as the customer has it, after "Re:" if it answers
	MessageID  string
	InReplyTo  string
	References []string
	CopyHeader string // value of X-Helpdesk-Message
}

// OutgoingFile is a file that goes along.
type OutgoingFile struct {
	Name        string
	ContentType string
	Size        int64  // bytes
	Data        []byte // the content of what leaves as mail; nil until the message is sent
	// URL is where anybody who has it can fetch the file for a week; it is empty
	// for what leaves as mail.
	URL string
}

// ErrTooLate is the cause of a refusal that comes with time and does not go away
// with it: what waits when it comes about has failed.
var ErrTooLate = errors.New("too late to send")

// Sender is implemented by channels that can send. They are also a
// [MailComposer] or a [APISender].
type Sender interface {
	// Check returns why m can never be sent with these credentials, as a
	// [problem.Error] for whoever wrote it, or nil.
	Check(m *Outgoing, credentials Credentials) error
}

// WindowedSender is implemented by channels on which customers can be answered for some
// time only.
type WindowedSender interface {
	Sender
	// Window is for how long after the customer wrote m may be sent with these
	// credentials. Check refuses it later.
	Window(m *Outgoing, credentials Credentials) time.Duration
}

// MailComposer is implemented by channels whose messages leave as mail.
type MailComposer interface {
	Sender
	Compose(m *Outgoing) mail.Message
}

// APISender is implemented by channels whose messages leave by a call of the
// provider's API.
//
// A call whose answer got lost may have had its effect. So that a message never
// goes twice, it is only made again by channels that are also a [Searcher] or a
// [IdempotentSender]; for others a person decides.
type APISender interface {
	Sender
	// SendCall describes the call that sends m.
	SendCall(m *Outgoing, credentials Credentials) Call
	// ReadSendResponse says what the answer to it means.
	ReadSendResponse(m *Outgoing, a Response) SendResult
}

// Searcher is implemented by channels whose provider can be asked what it has: the
// core searches for a message that it may have before it calls again.
type Searcher interface {
	// SearchCall describes the call that lists what may be m, sent since a time.
	SearchCall(m *Outgoing, credentials Credentials, since time.Time) Call
	// ReadSearchResponse returns the provider's ids of messages in the list that can be
	// m, the likeliest first, and the call for the rest of the list, if there is
	// more of it. An error means that the answer is no list; one that wraps
	// [ErrUnsearchable], that there will never be one.
	ReadSearchResponse(m *Outgoing, credentials Credentials, since time.Time, a Response) (ids []string, more *Call, err error)
}

// ErrUnsearchable marks the answer of a provider that does not let us see what it
// has.
var ErrUnsearchable = errors.New("the provider does not tell whether it has the message")

// IdempotentSender is implemented by channels whose provider recognises a call that is made
// again, by a key in it that names the message.
type IdempotentSender interface {
	// IdempotencyWindow is how long after a call the provider recognises another.
	IdempotencyWindow() time.Duration
}

// Response is what the provider answered.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Verdict is what a provider's answer means for a message.
type Verdict string

// The fates.
const (
	VerdictSent    Verdict = "taken"   // the provider has it
	VerdictRefused Verdict = "refused" // it will never take it
	VerdictRetry   Verdict = "later"   // it does not have it; another call can help
	VerdictUnclear Verdict = "unclear" // it may have it
)

// SendResult is what a provider said of a message.
type SendResult struct {
	Verdict     Verdict
	ExternalIDs []string // of what was taken
	Reason      string   // in plain words, for an agent; empty for what was taken
	Recipient   string   // the address that Unreachable and OptedOut are about
	Unreachable bool     // the address will never work
	OptedOut    bool     // whoever has the address wants no messages
	RetryAfter  time.Duration
}
