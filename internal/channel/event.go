package channel

import (
	"time"

	"github.com/kickstand-dev/kickstand/internal/mailauth"
)

// Event is a parsed part. Exactly one field is set.
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

// Source describes where an event was received.
type Source struct {
	OrganizationID string
	ConnectionID   string    // empty if the organization has no connection for the address
	Channel        string    // adapter name: "voice"
	TicketChannel  string    // channel of the ticket: "voice"
	ReceivedAt     time.Time // time of the request
}

// Message is a message from a customer, or one that an agent sent outside Kickstand, in terms
// common to all channels.
type Message struct {
	ExternalID string // the provider's id: MessageSid, Message-ID without brackets
	ThreadKey  string // joins messages without further evidence, such as a phone number; empty for mail
	// OtherKeys are further keys of the same thread. From now on all of them identify it.
	OtherKeys []string
	// StaleAfter is how long after a ticket is closed its thread continues in it; after that, a
	// message opens a new ticket. 0 means no limit.
	StaleAfter  time.Duration
	From        Party   // sender
	To, Cc      []Party // for mail: the visible recipients
	Subject     string  // empty where the channel has none
	Text        string  // set whenever the message has readable content
	Stripped    string  // Text without quoted mail; empty means equal to Text
	HTML        string  // sanitized; may refer to attachments as cid:<ContentID>
	Attachments []Attachment
	SentAt      time.Time // by the sender's clock; zero if unknown
	Outbound    bool      // sent by an agent outside Kickstand
	OptOut      bool      // the sender opted out of messages
	OptIn       bool      // the sender opted in again
	// Voicemail marks a voicemail. A notice mail may announce the same one; see
	// [ClassVoicemail].
	Voicemail bool
	// Metadata holds data of the channel for API clients, such as the payload of a button.
	// Agents see it.
	Metadata map[string]string
	Mail     *Mail // nil except for mail
}

// Party is the sender or a recipient of a message.
type Party struct {
	Name  string
	Email string // as given
	Phone string // E.164
	// ID is the channel's own identifier if there is no mail address or real number (short
	// codes, page-scoped ids).
	ID string
}

// Attachment is a file of a message, or a reference to one.
type Attachment struct {
	Name        string
	ContentType string
	ContentID   string // without brackets; the target of cid: links in HTML
	Inline      bool
	Data        []byte // content; nil if it is at URL
	URL         string
	Lookup      string // identifies the file in a [MediaLocator] call
	SHA256      string // hex digest of the content at URL; empty if the provider gives none
	Error       string // reason why the content is missing, shown to agents
}

// Receipt is a delivery status of a message that we sent.
type Receipt struct {
	ExternalIDs []string // ids of the message
	// ThreadKey and Until replace ids if the provider names none: they select all messages sent
	// in the thread until then. Any ids beside them select one message each.
	ThreadKey string
	Until     time.Time
	State     ReceiptState
	Error     string // for agents; empty unless State is failed
	Recipient string // the failed address, if known
	Permanent bool   // the address is permanently invalid
	OptedOut  bool   // the recipient opted out
	Note      string // note stored with the message, such as a bounce's explanation
}

// ReceiptState is the delivery state of an outbound message. It only moves forward.
type ReceiptState string

// The states in order. Failed is terminal unless Delivered or Read is already recorded.
const (
	ReceiptQueued    ReceiptState = "queued"
	ReceiptSent      ReceiptState = "sent"
	ReceiptDelayed   ReceiptState = "delayed" // a note only; leaves the state unchanged
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

// Mail holds the properties specific to mail. The adapter classifies by headers alone. Outbound
// copies also depend on stored data, so the desk decides that first, from CopyHeader, MessageID
// and the proven sender.
type Mail struct {
	MessageID   string   // without brackets; empty when absent or unusable
	InReplyTo   []string // every id, without brackets, in order
	References  []string // every id, without brackets, in order
	EmbeddedIDs []string // Message-IDs of returned or nested messages
	TicketTag   int64    // n of the last "[Ticket #n]" in the subject; 0 = none

	Class     Class
	Rule      string // the rule that classified it, for agents: "auto-submitted: auto-replied"
	Generated bool   // auto_reply only: generated by a system, not in reply to a mail
	Doubtful  bool   // auto_reply only: recognized by the subject alone, valid only in reply to one of our mails

	EnvelopeFrom string // empty for the null sender when HasEnvelope
	HasEnvelope  bool
	Recipient    string // our address it was delivered to
	Sender       Party  // the From header; Message.From follows Reply-To
	Proof        mailauth.Result
	NoAutoAnswer bool     // list mail, suppress headers, null sender: never answer automatically
	CopyHeader   string   // value of X-Helpdesk-Message
	Receipt      *Receipt // bounces only: the delivery status
	Caller       string   // voicemail notices only: the caller's number, E.164
}

// Payment is an event of the payment provider about an organization's subscription. The set
// fields depend on Kind; text that the provider omitted is empty.
type Payment struct {
	EventID string // the provider's id of the event
	Kind    PaymentKind
	Created time.Time // by the provider's clock, in whole seconds

	OrganizationID string // our id, as passed at checkout; empty if the event does not repeat it
	CustomerID     string
	SubscriptionID string // empty for one-time purchases
	Plan           string // as passed at checkout

	// Subscriptions; also checkouts and invoices that name them.
	PriceIDs []string
	// PeriodEnd is the end of the paid period.
	PeriodEnd time.Time

	// Subscriptions.
	Status            string // the provider's state: active, past_due, canceled
	CancelAtPeriodEnd bool

	// Checkouts.
	SessionID     string
	PaymentStatus string // paid, unpaid, no_payment_required

	// Invoices.
	InvoiceID string
	First     bool   // the first invoice of the subscription
	Attempt   int64  // number of payment attempts
	PayURL    string // https page of the provider where it can be paid
}

// PaymentKind is the payment provider's event type.
type PaymentKind string

// The handled kinds (helpdesk.md 4.4).
const (
	CheckoutCompleted   PaymentKind = "checkout.session.completed"
	SubscriptionCreated PaymentKind = "customer.subscription.created"
	SubscriptionUpdated PaymentKind = "customer.subscription.updated"
	SubscriptionDeleted PaymentKind = "customer.subscription.deleted"
	InvoicePaid         PaymentKind = "invoice.payment_succeeded"
	InvoiceFailed       PaymentKind = "invoice.payment_failed"
)

// Metadata that we attach at checkout and find again as Payment.OrganizationID and
// Payment.Plan.
const (
	MetadataOrganization = "organization_id"
	MetadataPlan         = "plan"
)

// Annotation is a change of a stored message.
type Annotation struct {
	ExternalID string // of the message
	Kind       AnnotationKind
	By         Party
	Text       string // the reaction; for an edit, the new text
	At         time.Time
}

// AnnotationKind is the type of a change.
type AnnotationKind string

// The kinds.
const (
	Reacted   AnnotationKind = "reacted"
	Unreacted AnnotationKind = "unreacted" // the reaction was removed
	Edited    AnnotationKind = "edited"
	Deleted   AnnotationKind = "deleted"
)

// IdentityChange announces that a customer has a new number or id on one connection.
type IdentityChange struct {
	From, To Party    // To holds new identifiers only
	FromKey  string   // previous thread key
	ToKeys   []string // new thread keys
}

// PhoneCall is a state change of a phone call.
type PhoneCall struct {
	// IDs are the provider's ids of the call's legs, this leg first. Calls that share an id are
	// one call.
	IDs       []string
	State     string    // the provider's state (helpdesk.md part 3, and others)
	At        time.Time // time of the state change; zero if unknown
	Inbound   bool
	Contact   Party // the customer
	Target    Party // the agent or number on our side
	StartedAt time.Time
	// AnsweredAt and EndedAt are zero if unknown or if it did not happen.
	AnsweredAt, EndedAt time.Time
	Duration            time.Duration
	// Voicemail means that the caller left a message, not only reached the mailbox.
	Voicemail     bool
	Transcription string       // of the voicemail
	Audio         []Attachment // the voicemail; ignored unless Voicemail is set
	Recordings    []Attachment // of the conversation with an agent
}

// Record is a customer, and optionally an order, as a shop, a marketplace or a payment provider
// stores them. By itself it opens no ticket.
type Record struct {
	ExternalID string // of the customer, if any
	Customer   Party
	UpdatedAt  time.Time // by the provider's clock; older states never replace newer ones
	Deleted    bool      // the customer was deleted
	Order      *Order    // nil if the record is about the customer only
	// Message is the customer's request, placed in the thread of the order. Nil if there is
	// none.
	Message *Message
}

// Order is a purchase or payment of a customer.
type Order struct {
	ExternalID string
	Number     string // display number: "#1001"
	Status     string // the provider's terms as a short phrase: "paid, not fulfilled"
	Currency   string // ISO 4217; empty if unknown
	Total      string // decimal, as the provider writes it
	URL        string // https page that shows the order
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
	Price      string `json:"price,omitempty"` // unit price, decimal
}

// Return is a return of ordered items.
type Return struct {
	ExternalID string      `json:"external_id"`
	Status     string      `json:"status"`
	Reason     string      `json:"reason,omitempty"`
	Items      []OrderItem `json:"items,omitempty"`
}

// PrivacyRequest is a legally required request of a shop platform.
type PrivacyRequest struct {
	Kind       PrivacyKind
	RequestID  string // the provider's id of the request; may be empty
	Shop       string // the shop's address
	CustomerID string // the shop's id of the customer
	Email      string
	Phone      string // as given
	OrderIDs   []string
}

// PrivacyKind is the type of a privacy request (helpdesk.md 4.4).
type PrivacyKind string

// The kinds.
const (
	PrivacyDataRequest    PrivacyKind = "customers/data_request"
	PrivacyRedactCustomer PrivacyKind = "customers/redact"
	PrivacyRedactShop     PrivacyKind = "shop/redact"
)

// ConnectionEvent is a provider's notice about the connection itself.
type ConnectionEvent struct {
	Kind ConnectionEventKind
	Text string // plain words for an administrator
}

// ConnectionEventKind is the effect on the connection.
type ConnectionEventKind string

// The kinds.
const (
	// Disconnected means that the provider ended the connection: it neither receives nor sends.
	Disconnected ConnectionEventKind = "disconnected"
	// Noticed is for the administrator's information only.
	Noticed ConnectionEventKind = "noticed"
)

// URLConfirmation requests a GET of a provider's URL that confirms a subscription.
type URLConfirmation struct {
	URL   string
	Hosts []string // allowed hosts, as in [MediaRequest]; redirects are not followed
}
