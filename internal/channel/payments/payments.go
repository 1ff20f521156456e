// Package payments implements the channel of the payment provider, with Stripe's API. The
// provider posts changes of checkouts, subscriptions and invoices, each as a JSON event.
//
// An event becomes a [channel.Payment]. The provider account is the operator's, so there are no
// connections: the deployment's secrets verify, and the event itself may name its organization.
// The signature covers the body and a time; the provider's event id is the key, its customer
// the lane.
//
// Members move between API versions, and some are sent either as an id or expanded. The adapter
// accepts all forms, so that the pinned version of the operator's account does not matter.
package payments

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// tolerance is the maximum difference between the signature's time and ours, either way.
const tolerance = 5 * time.Minute

// SignatureHeader is the neutral name of the signature header.
const SignatureHeader = "Payments-Signature"

// Adapter implements the channel.
type Adapter struct{}

var _ channel.Adapter = Adapter{}

// New returns the channel.
func New() Adapter { return Adapter{} }

// Info implements [channel.Adapter].
func (Adapter) Info() channel.Info {
	return channel.Info{Name: "payments", TicketChannel: "payments", Path: "/api/webhooks/payments", MaxBody: 1 << 20, Deployment: true}
}

// Addresses implements [channel.Adapter]. There are none.
func (Adapter) Addresses(r *channel.Request) ([]string, error) {
	switch r.MediaType() {
	case "application/json", "":
		return nil, nil
	}
	return nil, channel.ErrContentType
}

// Verify implements [channel.Adapter]. The header lists a time "t" and signatures "v1", several
// during a rotation of the secret, of which any may match. Other schemes are ignored: "v0"
// signs the provider's own test tools.
func (Adapter) Verify(r *channel.Request, secret string) bool {
	at, presented := signatures(r)
	if secret == "" {
		return false
	}
	want := digest(r.Body, at, secret)
	matched := false
	for _, sum := range presented {
		if hmac.Equal(sum, want) {
			matched = true
		}
	}
	return matched
}

// HeaderProof implements [channel.HeaderProver].
func (Adapter) HeaderProof(r *channel.Request) channel.HeaderProof {
	_, presented := signatures(r)
	return channel.BodyDecidesIf(len(presented) > 0)
}

// signatures returns the well-formed signatures in the header and their time, or none if the
// time is not fresh.
func signatures(r *channel.Request) (at string, presented [][]byte) {
	for part := range strings.SplitSeq(r.First(SignatureHeader, "Stripe-Signature"), ",") {
		scheme, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch scheme {
		case "t":
			at = value
		case "v1":
			if sum, err := hex.DecodeString(value); err == nil && len(sum) == sha256.Size {
				presented = append(presented, sum)
			}
		}
	}
	seconds, err := strconv.ParseUint(at, 10, 40)
	if err != nil {
		return at, nil
	}
	if age := r.Received.Sub(time.Unix(int64(seconds), 0)); age.Truncate(time.Second).Abs() > tolerance {
		return at, nil
	}
	return at, presented
}

func digest(body []byte, at, secret string) []byte {
	mac := hmac.New(sha256.New, []byte(secret)) // including "whsec_"
	mac.Write([]byte(at))
	mac.Write([]byte{'.'})
	mac.Write(body)
	return mac.Sum(nil)
}

// Sign returns the header [SignatureHeader] for body.
func Sign(body []byte, at time.Time, secret string) string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	return "t=" + seconds + ",v1=" + hex.EncodeToString(digest(body, seconds, secret))
}

// Split implements [channel.Adapter]. A request holds one event. It skips unhandled kinds,
// events of connected accounts, which have their own endpoint, and "thin" events, which only
// refer to data.
func (Adapter) Split(r *channel.Request) ([]channel.Part, error) {
	e, err := parse(r.Body)
	if err != nil {
		return nil, err
	}
	kind := e.id("type")
	switch {
	case e.text("object") == "v2.core.event", e.text("account") != "", !handled(channel.PaymentKind(kind)):
		return []channel.Part{{Kind: kind, Skip: true}}, nil
	case e.text("id") == "":
		return nil, fmt.Errorf("%w: an event needs an id", channel.ErrUnreadable)
	}
	p, err := read(e)
	if err != nil {
		return nil, err
	}
	sender := p.CustomerID
	if sender == "" {
		sender = p.SubscriptionID
	}
	return []channel.Part{{Key: p.EventID, Sender: sender, Kind: kind}}, nil
}

func handled(k channel.PaymentKind) bool {
	switch k {
	case channel.CheckoutCompleted, channel.SubscriptionCreated, channel.SubscriptionUpdated, channel.SubscriptionDeleted,
		channel.InvoicePaid, channel.InvoiceFailed:
		return true
	}
	return false
}

// Parse implements [channel.Adapter].
func (Adapter) Parse(r *channel.Request, _ channel.Part) (channel.Event, error) {
	e, err := parse(r.Body)
	if err != nil {
		return channel.Event{}, err
	}
	if kind := e.text("type"); !handled(channel.PaymentKind(kind)) {
		return channel.Event{}, fmt.Errorf("%w: the kind %q means nothing here", channel.ErrUnreadable, kind)
	}
	p, err := read(e)
	if err != nil {
		return channel.Event{}, err
	}
	return channel.Event{Payment: p}, nil
}

// read returns the payment of a handled event.
func read(e object) (*channel.Payment, error) {
	o := e.object("data").object("object")
	p := &channel.Payment{EventID: e.id("id"), Kind: channel.PaymentKind(e.text("type")), Created: e.time("created")}
	if o == nil || p.Created.IsZero() {
		return nil, fmt.Errorf("%w: an event needs created and data.object", channel.ErrUnreadable)
	}
	p.CustomerID = o.id("customer")
	switch p.Kind {
	case channel.CheckoutCompleted:
		checkout(p, o)
	case channel.InvoicePaid, channel.InvoiceFailed:
		invoice(p, o)
	default:
		subscription(p, o)
	}
	return p, nil
}

// setOrganization reads our metadata, unless a nearer object has set it.
func setOrganization(p *channel.Payment, metadata object) {
	if p.OrganizationID == "" {
		p.OrganizationID = metadata.id(channel.MetadataOrganization)
	}
	if p.Plan == "" {
		p.Plan = metadata.id(channel.MetadataPlan)
	}
}

func checkout(p *channel.Payment, o object) {
	p.SessionID, p.SubscriptionID, p.PaymentStatus = o.id("id"), o.id("subscription"), o.id("payment_status")
	p.OrganizationID = o.id("client_reference_id")
	setOrganization(p, o.object("metadata"))
	setOrganization(p, o.object("subscription").object("metadata")) // if expanded
	p.PriceIDs = prices(o.list("line_items"))                       // if expanded
}

func subscription(p *channel.Payment, o object) {
	p.SubscriptionID, p.Status = o.id("id"), o.id("status")
	setOrganization(p, o.object("metadata"))
	items := o.list("items")
	if p.PriceIDs = prices(items); p.PriceIDs == nil {
		p.PriceIDs = prices([]object{o}) // one plan, on the subscription itself
	}
	p.PeriodEnd = o.time("current_period_end") // before 2025-03-31
	for _, item := range items {
		p.PeriodEnd = later(p.PeriodEnd, item.time("current_period_end"))
	}
	cancelAt := o.time("cancel_at")
	p.CancelAtPeriodEnd = o.flag("cancel_at_period_end") || !cancelAt.IsZero() && cancelAt.Equal(p.PeriodEnd)
}

func invoice(p *channel.Payment, o object) {
	p.InvoiceID, p.Attempt, p.PayURL = o.id("id"), o.number("attempt_count"), o.link("hosted_invoice_url")
	p.First = o.text("billing_reason") == "subscription_create"
	details := o.object("parent").object("subscription_details")
	old := o.object("subscription_details") // before 2025-03-31
	if p.SubscriptionID = details.id("subscription"); p.SubscriptionID == "" {
		p.SubscriptionID = o.id("subscription") // likewise
	}
	setOrganization(p, details.object("metadata"))
	setOrganization(p, old.object("metadata"))
	setOrganization(p, details.object("subscription").object("metadata")) // if expanded
	setOrganization(p, o.object("subscription").object("metadata"))
	setOrganization(p, o.object("metadata"))
	lines := o.list("lines")
	for _, line := range lines {
		if line.number("amount") >= 0 { // refunds concern past periods or other prices
			p.PeriodEnd = later(p.PeriodEnd, line.object("period").time("end"))
		}
	}
}

// prices returns the price ids in either of their places.
func prices(items []object) []string {
	var ids []string
	for _, item := range items {
		id := item.id("price")
		if id == "" {
			id = item.id("plan")
		}
		if id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
