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

	// HeardAt is when the customer last wrote in the conversation, zero when never,
	// and AnswersID the provider's id of that message.
	HeardAt   time.Time
	AnswersID string

	// OpenUntil is until when it can be sent, on a channel where that ends: see
	// [Windowed]. Zero: whenever, or never.
	OpenUntil time.Time

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
// [Correspondent] or a [Caller].
type Sender interface {
	// Check returns why m can never be sent with these credentials, as a
	// [problem.Error] for whoever wrote it, or nil.
	Check(m *Outgoing, credentials Credentials) error
}

// Windowed is implemented by channels on which customers can be answered for some
// time only.
type Windowed interface {
	Sender
	// Window is for how long after the customer wrote m may be sent with these
	// credentials. Check refuses it later.
	Window(m *Outgoing, credentials Credentials) time.Duration
}

// Correspondent is implemented by channels whose messages leave as mail.
type Correspondent interface {
	Sender
	Compose(m *Outgoing) mail.Message
}

// Caller is implemented by channels whose messages leave by a call of the
// provider's API.
//
// A call whose answer got lost may have had its effect. So that a message never
// goes twice, it is only made again by channels that are also a [Searcher] or a
// [Repeater]; for others a person decides.
type Caller interface {
	Sender
	// Call describes the call that sends m.
	Call(m *Outgoing, credentials Credentials) Call
	// ReadCall says what the answer to it means.
	ReadCall(m *Outgoing, a Answer) Verdict
}

// Searcher is implemented by channels whose provider can be asked what it has: the
// core searches for a message that it may have before it calls again.
type Searcher interface {
	// SearchCall describes the call that lists what may be m, sent since a time.
	SearchCall(m *Outgoing, credentials Credentials, since time.Time) Call
	// ReadSearch returns the provider's ids of messages in the list that can be
	// m, the likeliest first, and the call for the rest of the list, if there is
	// more of it. An error means that the answer is no list; one that wraps
	// [ErrUnsearchable], that there will never be one.
	ReadSearch(m *Outgoing, credentials Credentials, since time.Time, a Answer) (ids []string, more *Call, err error)
}

// ErrUnsearchable marks the answer of a provider that does not let us see what it
// has.
var ErrUnsearchable = errors.New("the provider does not tell whether it has the message")

// Repeater is implemented by channels whose provider recognises a call that is made
// again, by a key in it that names the message.
type Repeater interface {
	// RepeatableFor is how long after a call the provider recognises another.
	RepeatableFor() time.Duration
}

// Answer is what the provider answered.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Fate is what a provider's answer means for a message.
type Fate string

// The fates.
const (
	Taken   Fate = "taken"   // the provider has it
	Refused Fate = "refused" // it will never take it
	Later   Fate = "later"   // it does not have it; another call can help
	Unclear Fate = "unclear" // it may have it
)

// Verdict is what a provider said of a message.
type Verdict struct {
	Fate        Fate
	ExternalIDs []string // of what was taken
	Reason      string   // in plain words, for an agent; empty for what was taken
	Recipient   string   // the address that Unreachable and OptedOut are about
	Unreachable bool     // the address will never work
	OptedOut    bool     // whoever has the address wants no messages
	RetryAfter  time.Duration
}
