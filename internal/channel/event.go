package channel

import (
	"time"

	"github.com/kickstand-dev/kickstand/internal/mailproof"
)

// Event is what a part means once parsed. Exactly one member is set.
type Event struct {
	Message         *Message
	Receipt         *Receipt
	Payment         *Payment
	Annotation      *Annotation
	IdentityChange  *IdentityChange
	Call            *PhoneCall
	Record          *Record
	Privacy         *PrivacyRequest
	ConnectionEvent *ConnectionEvent
	URLConfirmation *URLConfirmation
}

// Source says where an event came in, for whoever gives it its effect.
type Source struct {
	OrganizationID string
	ConnectionID   string    // of that organization; empty if it has none for the address
	Channel        string    // the adapter's name: "voice"
	Medium         string    // what the ticket shows: "voice"
	ReceivedAt     time.Time // when the request came
}

// Message is something that somebody wrote to us, or that somebody at our side
// wrote elsewhere, in terms that hold for every channel.
type Message struct {
	ExternalID string // the provider's id: MessageSid, Message-ID without brackets
	ThreadKey  string // what joins messages without further evidence: a phone number; empty for mail
	// OtherKeys are further keys of the same thread: whoever is known by one of
	// them is known by all from now on.
	OtherKeys []string
	// StaleAfter is for how long after a ticket was closed its thread goes on in
	// it; later, the thread begins a new one. 0: for ever.
	StaleAfter  time.Duration
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
	// Voicemail says that somebody left it on a telephone. There may be a mail that
	// tells of it, too; see [ClassVoicemail].
	Voicemail bool
	// Metadata is what the channel knows beside the text and programs may want: the
	// payload of a button. Agents see it.
	Metadata map[string]string
	Mail     *Mail // set for mail only
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
	Lookup      string // what the provider is asked for the URL with; see [MediaLocator]
	SHA256      string // of the content behind URL, in hex, where the provider says so
	Error       string // why the content is missing, shown to agents
}

// Receipt reports what became of a message that we sent.
type Receipt struct {
	ExternalIDs []string // any id that the message is known by
	// ThreadKey and Until stand for ids where the provider names none: everything
	// that we sent in the thread until then. Ids beside them name a message each.
	ThreadKey string
	Until     time.Time
	State     ReceiptState
	Error     string // plain words for an agent; empty unless State is failed
	Recipient string // the address that failed, where known
	Permanent bool   // the address will never work
	OptedOut  bool   // whoever has the address wants no messages
	Note      string // text to keep beside the message (a bounce's explanation)
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
// decides that first, from CopyHeader, MessageID and the proven sender.
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

	EnvelopeFrom string // empty for the null sender when HasEnvelope
	HasEnvelope  bool
	Recipient    string // the address of ours that it was delivered to
	Sender       Party  // the From header, where Message.From follows Reply-To
	Proof        mailproof.Result
	NoAutoAnswer bool     // list mail, suppress headers, null sender: never answer automatically
	CopyHeader   string   // value of X-Helpdesk-Message
	Receipt      *Receipt // for bounces: what they report
	Caller       string   // for voicemail notices: the caller's number, E.164
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

// Annotation is something that happened to a message that is here already.
type Annotation struct {
	ExternalID string // of the message
	Kind       AnnotationKind
	By         Party
	Text       string // the reaction; of an edit, the text from now on
	At         time.Time
}

// AnnotationKind is what happened to a message.
type AnnotationKind string

// The kinds.
const (
	Reacted   AnnotationKind = "reacted"
	Unreacted AnnotationKind = "unreacted" // the reaction was taken back
	Edited    AnnotationKind = "edited"
	Deleted   AnnotationKind = "deleted"
)

// IdentityChange says that somebody is known by another number or id from now on, on one
// connection.
type IdentityChange struct {
	From, To Party    // To has what is new only
	FromKey  string   // the thread of before
	ToKeys   []string // the thread's keys from now on
}

// PhoneCall is news of a telephone call.
type PhoneCall struct {
	// IDs are all ids that the provider has for legs of the call, that of this leg
	// first. Calls that share one are one.
	IDs       []string
	State     string    // the provider's word (helpdesk.md part 3, and others)
	At        time.Time // of the news; zero when not known
	Inbound   bool
	Contact   Party // who is not us
	Target    Party // who or what of ours it is for
	StartedAt time.Time
	// AnsweredAt and EndedAt are zero when it was not, or is not known to be.
	AnsweredAt, EndedAt time.Time
	Duration            time.Duration
	// Voicemail says that a message was really left, not only that the caller got
	// so far.
	Voicemail     bool
	Transcription string       // of what was left
	Audio         []Attachment // what was left; means nothing without Voicemail
	Recordings    []Attachment // of the conversation, which somebody at our side had
}

// Record is a customer, and an order of theirs, as a shop, a marketplace or a
// payment provider has them. It starts no ticket by itself.
type Record struct {
	ExternalID string // of the customer, where they have one
	Customer   Party
	UpdatedAt  time.Time // by the provider's clock; an older state does not replace a newer one
	Deleted    bool      // the customer is no more
	Order      *Order    // nil: it is about the customer alone
	// Message is what the customer wants, as a message of theirs in the thread of
	// the order; nil: nothing.
	Message *Message
}

// Order is something that a customer bought, or paid.
type Order struct {
	ExternalID string
	Number     string // as people say it: "#1001"
	Status     string // in the provider's words, as one short phrase: "paid, not fulfilled"
	Currency   string // ISO 4217; empty when not known
	Total      string // decimal, as the provider writes it
	URL        string // of a page where it can be seen, over https
	Items      []OrderItem
	PlacedAt   time.Time
	Returns    []Return
}

// OrderItem is one line of an order.
type OrderItem struct {
	ExternalID string `json:"external_id,omitempty"`
	Name       string `json:"name"`
	SKU        string `json:"sku,omitempty"`
	Quantity   int64  `json:"quantity"`
	Price      string `json:"price,omitempty"` // of one, decimal
}

// Return is what a customer sends back.
type Return struct {
	ExternalID string      `json:"external_id"`
	Status     string      `json:"status"`
	Reason     string      `json:"reason,omitempty"`
	Items      []OrderItem `json:"items,omitempty"`
}

// PrivacyRequest is what the law has a shop ask for.
type PrivacyRequest struct {
	Kind       PrivacyKind
	RequestID  string // the provider's id of the request; empty where there is none
	Shop       string // its address
	CustomerID string // the shop's id of the customer
	Email      string
	Phone      string // as given
	OrderIDs   []string
}

// PrivacyKind is what is asked for (helpdesk.md 4.4).
type PrivacyKind string

// The kinds.
const (
	PrivacyDataRequest    PrivacyKind = "customers/data_request"
	PrivacyRedactCustomer PrivacyKind = "customers/redact"
	PrivacyRedactShop     PrivacyKind = "shop/redact"
)

// ConnectionEvent is about the connection itself.
type ConnectionEvent struct {
	Kind ConnectionEventKind
	Text string // in plain words, for an administrator
}

// ConnectionEventKind is what became of a connection.
type ConnectionEventKind string

// The kinds.
const (
	// Disconnected: the provider's side ended it; nothing comes any more and
	// nothing can be sent.
	Disconnected ConnectionEventKind = "disconnected"
	// Noticed: an administrator should know, and nothing changes.
	Noticed ConnectionEventKind = "noticed"
)

// URLConfirmation asks for a GET of an address of the provider's, which confirms something.
type URLConfirmation struct {
	URL   string
	Hosts []string // allowed ones, as in [MediaRequest]; redirects are not followed
}
