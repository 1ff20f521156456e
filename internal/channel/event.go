package channel

import "time"

// Event is what a part means once parsed. Exactly one member is set.
type Event struct {
	Message *Message
	Receipt *Receipt
	Payment *Payment
}

// Message is something that somebody wrote to us, or that somebody at our side
// wrote elsewhere, in terms that hold for every channel.
type Message struct {
	ExternalID  string  // the provider's id: MessageSid, Message-ID without brackets
	ThreadKey   string  // what joins messages without further evidence: a phone number; empty for mail
	From        Party   // who wrote it
	To, Cc      []Party // for mail: the visible recipients
	Subject     string  // empty where the channel has none
	Text        string  // always set when there is anything to read
	Stripped    string  // Text without quoted earlier mail; empty means same as Text
	HTML        string  // sanitized; may refer to attachments as cid:<ContentID>
	Attachments []Attachment
	SentAt      time.Time // by the sender's own clock; zero when not known
	Outbound    bool      // written at our side, sent elsewhere
	OptOut      bool      // the sender asked to get no more messages
	OptIn       bool      // the sender asked to get messages again
	Mail        *Mail     // set for mail only
}

// Party is one end of a message.
type Party struct {
	Name  string
	Email string // as given
	Phone string // E.164
	// ID is the channel's own identifier where there is neither a mail
	// address nor a real number (short codes, page-scoped ids).
	ID string
}

// Attachment is a file that came with a message, or a promise of one.
type Attachment struct {
	Name        string
	ContentType string
	ContentID   string // without brackets; what cid: links in HTML name
	Inline      bool
	Data        []byte // the content, or nil when URL says where it is
	URL         string
	Error       string // why the content is missing, shown to agents
}

// Receipt reports what became of a message that we sent.
type Receipt struct {
	ExternalIDs []string // any id that the message is known by
	State       ReceiptState
	Error       string // plain words for an agent; empty unless State is failed
	Recipient   string // the address that failed, where known
	Permanent   bool   // the address will never work
	OptedOut    bool   // whoever has the address wants no messages
	Note        string // text to keep beside the message (a bounce's explanation)
}

// ReceiptState is how far an outbound message got. States only move forward.
type ReceiptState string

// The states in order. Failed is terminal unless Delivered or Read is already
// recorded.
const (
	ReceiptQueued    ReceiptState = "queued"
	ReceiptSent      ReceiptState = "sent"
	ReceiptDelayed   ReceiptState = "delayed" // a note only; does not move the state
	ReceiptDelivered ReceiptState = "delivered"
	ReceiptRead      ReceiptState = "read"
	ReceiptFailed    ReceiptState = "failed"
)

// Class is the classification of an inbound mail (helpdesk.md part 2).
type Class string

// The classes of the contract.
const (
	ClassInbound      Class = "inbound"
	ClassBounce       Class = "bounce"
	ClassOutboundCopy Class = "outbound_copy"
	ClassAutoReply    Class = "auto_reply"
	ClassVoicemail    Class = "dialpad_voicemail"
)

// Mail is what only mail has. The adapter classifies by headers alone; whether
// a mail is an outbound copy also depends on what is stored, so the desk
// decides that first, from CopyHeader, MessageID and the authenticated sender.
type Mail struct {
	MessageID   string   // without brackets; empty when absent or unusable
	InReplyTo   []string // every id, without brackets, in order
	References  []string // every id, without brackets, in order
	EmbeddedIDs []string // Message-IDs of returned or nested messages
	TicketTag   int64    // n of the last "[Ticket #n]" in the subject; 0 = none

	Class     Class
	Rule      string // which rule classified it, for people: "auto-submitted: auto-replied"
	Generated bool   // for auto_reply: made by a system on its own, not in answer to a mail
	Doubtful  bool   // for auto_reply: only the subject says so, which counts only in answer to one of ours

	EnvelopeFrom  string // empty for the null sender when HasEnvelope
	HasEnvelope   bool
	Recipient     string   // the address of ours that it was delivered to
	Sender        Party    // the From header, where Message.From follows Reply-To
	Authenticated bool     // DKIM or SPF passed, aligned with From, by the receiving server's word
	Unverified    bool     // DMARC failed by the receiving server's word
	NoAutoAnswer  bool     // list mail, suppress headers, null sender: never answer automatically
	CopyHeader    string   // value of X-Helpdesk-Message
	Receipt       *Receipt // for bounces: what they report
	Caller        string   // for voicemail notices: the caller's number, E.164
}

// Payment is news from the payment provider about what an organization pays
// for. Which members are set depends on Kind; text that the provider left out
// is empty.
type Payment struct {
	EventID string // the provider's id of the news itself
	Kind    PaymentKind
	Created time.Time // by the provider's clock, in whole seconds

	OrganizationID string // ours, as we handed it over at checkout; empty when the news does not repeat it
	CustomerID     string
	SubscriptionID string // empty for what was bought once
	Plan           string // as we handed it over at checkout

	// Of a subscription; of a checkout and an invoice where they say so.
	PriceIDs []string
	// PeriodEnd is until when is paid, or will be.
	PeriodEnd time.Time

	// Of a subscription.
	Status            string // the provider's word: active, past_due, canceled
	CancelAtPeriodEnd bool

	// Of a checkout.
	SessionID     string
	PaymentStatus string // paid, unpaid, no_payment_required

	// Of an invoice.
	InvoiceID string
	First     bool   // it is the subscription's first, with whose payment it begins
	Attempt   int64  // how often payment was tried
	PayURL    string // a page of the provider's, over https, where it can be paid
}

// PaymentKind is the payment provider's word for what happened.
type PaymentKind string

// The kinds that have a meaning here (helpdesk.md 4.4).
const (
	CheckoutCompleted   PaymentKind = "checkout.session.completed"
	SubscriptionCreated PaymentKind = "customer.subscription.created"
	SubscriptionUpdated PaymentKind = "customer.subscription.updated"
	SubscriptionDeleted PaymentKind = "customer.subscription.deleted"
	InvoicePaid         PaymentKind = "invoice.payment_succeeded"
	InvoiceFailed       PaymentKind = "invoice.payment_failed"
)

// What we hand over to the payment provider at checkout, and find again in its
// events as Payment.OrganizationID and Payment.Plan.
const (
	MetadataOrganization = "organization_id"
	MetadataPlan         = "plan"
)
