package payments

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// SettingTestEvents is the connection setting that, if "true", accepts events of the provider's
// test mode: a live endpoint receives test events, too.
const SettingTestEvents = "test_events"

// Connect implements the channel of connected accounts: accounts of organizations at the
// provider that give the operator's account access. Its events concern the organizations'
// customers and become [channel.Record]s with purchases as orders; the organization's plan is
// unaffected.
//
// The account id is the address. Events without one belong to the operator's own account, which
// has a separate channel, and vice versa.
type Connect struct{}

var (
	_ channel.Adapter           = Connect{}
	_ channel.AddressNormalizer = Connect{}
	_ channel.PartFilter        = Connect{}
)

// NewConnect returns the channel.
func NewConnect() Connect { return Connect{} }

// Info implements [channel.Adapter].
func (Connect) Info() channel.Info {
	return channel.Info{Name: "payments-connect", TicketChannel: "payments", Path: "/api/webhooks/payments-connect", MaxBody: 1 << 20}
}

var accountForm = regexp.MustCompile(`^acct_[A-Za-z0-9]{1,100}$`)

// NormalizeAddress implements [channel.AddressNormalizer].
func (Connect) NormalizeAddress(raw string) (string, error) {
	if raw = strings.TrimSpace(raw); !accountForm.MatchString(raw) {
		return "", errors.New("must be the id of an account, such as acct_1032D82eZvKYlo2C")
	}
	return raw, nil
}

// Addresses implements [channel.Adapter].
func (Connect) Addresses(r *channel.Request) ([]string, error) {
	if _, err := (Adapter{}).Addresses(r); err != nil {
		return nil, err
	}
	e, err := parse(r.Body)
	if err != nil {
		return nil, err
	}
	if account := e.id("account"); account != "" {
		return []string{account}, nil
	}
	return nil, nil
}

// Verify implements [channel.Adapter]; see [Adapter.Verify].
func (Connect) Verify(r *channel.Request, secret string) bool { return Adapter{}.Verify(r, secret) }

// HeaderProof implements [channel.HeaderProver]; see [Adapter.HeaderProof].
func (Connect) HeaderProof(r *channel.Request) channel.HeaderProof { return Adapter{}.HeaderProof(r) }

// WantsPart implements [channel.PartFilter].
func (Connect) WantsPart(settings map[string]string, r *channel.Request, _ channel.Part) bool {
	if settings[SettingTestEvents] == "true" {
		return true
	}
	e, err := parse(r.Body)
	return err != nil || e["livemode"] != false
}

// Event kinds.
const (
	customerDeleted = "customer.deleted"
	deauthorized    = "account.application.deauthorized"
	paymentFailed   = "invoice.payment_failed"
)

// reader reads an object of one event kind into a record. It returns the position of the state
// in the object's life cycle: many changes occur within one second, the resolution of the
// provider's clock, and may arrive in any order.
type reader func(r *channel.Record, o object, kind string) (place int)

// readRecord returns the reader of a kind, or nil.
func readRecord(kind string) reader {
	switch kind {
	case "customer.created", "customer.updated", customerDeleted:
		return recordCustomer
	case "checkout.session.completed", "checkout.session.expired",
		"checkout.session.async_payment_succeeded", "checkout.session.async_payment_failed":
		return recordCheckout
	case "invoice.finalized", "invoice.updated", "invoice.paid", "invoice.payment_succeeded", paymentFailed,
		"invoice.payment_action_required", "invoice.voided", "invoice.marked_uncollectible":
		return recordInvoice
	case "customer.subscription.created", "customer.subscription.updated", "customer.subscription.deleted",
		"customer.subscription.paused", "customer.subscription.resumed":
		return recordSubscription
	}
	return nil
}

// Split implements [channel.Adapter]. A request holds one event.
func (Connect) Split(r *channel.Request) ([]channel.Part, error) {
	e, err := parse(r.Body)
	if err != nil {
		return nil, err
	}
	p := channel.Part{Kind: e.id("type"), Key: e.id("id"), Address: e.id("account")}
	switch {
	case e.text("object") == "v2.core.event", p.Address == "", p.Kind != deauthorized && readRecord(p.Kind) == nil:
		return []channel.Part{{Kind: p.Kind, Skip: true}}, nil
	case p.Key == "":
		return nil, fmt.Errorf("%w: an event needs an id", channel.ErrUnreadable)
	case p.Kind == deauthorized:
		return []channel.Part{p}, nil
	}
	record, err := readConnected(e)
	if err != nil {
		return nil, err
	}
	p.Sender = record.ExternalID
	if p.Sender == "" && record.Order != nil {
		p.Sender = record.Order.ExternalID
	}
	return []channel.Part{p}, nil
}

// Parse implements [channel.Adapter].
func (Connect) Parse(r *channel.Request, _ channel.Part) (channel.Event, error) {
	e, err := parse(r.Body)
	if err != nil {
		return channel.Event{}, err
	}
	if e.text("type") == deauthorized {
		return channel.Event{ConnectionEvent: &channel.ConnectionEvent{Kind: channel.Disconnected, Text: "the account was disconnected at the payment provider"}}, nil
	}
	record, err := readConnected(e)
	if err != nil {
		return channel.Event{}, err
	}
	return channel.Event{Record: record}, nil
}

// readConnected returns the record of an event.
func readConnected(e object) (*channel.Record, error) {
	kind, o, created := e.text("type"), e.object("data").object("object"), e.time("created")
	read := readRecord(kind)
	if read == nil {
		return nil, fmt.Errorf("%w: the kind %q means nothing here", channel.ErrUnreadable, e.id("type"))
	}
	if o == nil || o.id("id") == "" || created.IsZero() {
		return nil, fmt.Errorf("%w: an event needs created, and data.object with an id", channel.ErrUnreadable)
	}
	r := new(channel.Record)
	r.UpdatedAt = created.Add(time.Duration(read(r, o, kind)) * time.Millisecond)
	return r, nil
}

// setCustomer reads an object's customer, by id or expanded, and further details, of which the
// first nonempty one counts.
func setCustomer(r *channel.Record, o object, details ...channel.Party) {
	r.ExternalID = o.id("customer")
	if c := o.object("customer"); c != nil { // if expanded
		details = append(details, party(c))
	}
	for _, d := range details {
		r.Customer.Name = cmp.Or(r.Customer.Name, d.Name)
		r.Customer.Email = cmp.Or(r.Customer.Email, d.Email)
		r.Customer.Phone = cmp.Or(r.Customer.Phone, d.Phone)
	}
}

func party(o object) channel.Party {
	return channel.Party{Name: o.text("name"), Email: o.text("email"), Phone: o.text("phone")}
}

func recordCustomer(r *channel.Record, o object, kind string) int {
	r.ExternalID, r.Customer, r.Deleted = o.id("id"), party(o), kind == customerDeleted
	return slices.Index([]string{"customer.created", "customer.updated", customerDeleted}, kind)
}

func recordCheckout(r *channel.Record, o object, kind string) int {
	setCustomer(r, o, party(o.object("customer_details")), channel.Party{Email: o.text("customer_email")})
	order := newOrder(r, o, "amount_total")
	switch paid := o.text("payment_status"); {
	case kind == "checkout.session.expired", o.text("status") == "expired":
		order.Status = "checkout expired"
	case kind == "checkout.session.async_payment_failed":
		order.Status = "payment failed"
	case paid == "no_payment_required":
		order.Status = "nothing to pay"
	case paid == "unpaid":
		order.Status = "payment under way"
	default:
		order.Status = cmp.Or(paid, o.text("status"))
	}
	order.Items = items(o.list("line_items"), order.Currency)
	if order.Status == "payment under way" {
		return 0
	}
	return 1
}

func recordInvoice(r *channel.Record, o object, kind string) int {
	setCustomer(r, o, channel.Party{Name: o.text("customer_name"), Email: o.text("customer_email"), Phone: o.text("customer_phone")})
	order := newOrder(r, o, "total")
	if order.Total == "" {
		order.Total = amount(o, "amount_due", order.Currency)
	}
	order.Number, order.Status, order.URL = cmp.Or(o.id("number"), order.Number), o.text("status"), o.link("hosted_invoice_url")
	if kind == paymentFailed && order.Status == "open" {
		order.Status = "open, payment failed"
	}
	order.Items = items(o.list("lines"), order.Currency)
	switch order.Status {
	case "draft":
		return 0
	case "open":
		return 1
	case "open, payment failed":
		return 2
	}
	return 3
}

func recordSubscription(r *channel.Record, o object, kind string) int {
	setCustomer(r, o)
	order := newOrder(r, o, "")
	order.Status = cmp.Or("subscription "+o.text("status"), "subscription")
	ends := o.time("cancel_at")
	list := o.list("items")
	sum, known := int64(0), len(list) > 0
	for _, item := range list {
		if o.flag("cancel_at_period_end") {
			ends = later(ends, item.time("current_period_end"))
		}
		price := item.object("price")
		if price == nil {
			price = item.object("plan")
		}
		each, ok := wholeNumber(price, "unit_amount")
		if !ok {
			each, ok = wholeNumber(price, "amount")
		}
		known = known && ok
		sum += each * max(item.number("quantity"), 1)
		order.Currency = cmp.Or(order.Currency, currency(price))
	}
	if o.flag("cancel_at_period_end") {
		ends = later(ends, o.time("current_period_end")) // before 2025-03-31
	}
	if !ends.IsZero() && o.text("status") != "canceled" {
		order.Status += ", ends " + ends.Format("2006-01-02")
	}
	if known {
		order.Total = decimal(sum, order.Currency)
	}
	order.Items = items(list, order.Currency)
	switch {
	case kind == "customer.subscription.deleted":
		return 2
	case kind == "customer.subscription.created":
		return 0
	}
	return 1
}

// newOrder sets an order with the common fields.
func newOrder(r *channel.Record, o object, total string) *channel.Order {
	r.Order = &channel.Order{ExternalID: o.id("id"), Number: o.id("id"), Currency: currency(o), PlacedAt: o.time("created")}
	if total != "" {
		r.Order.Total = amount(o, total, r.Order.Currency)
	}
	return r.Order
}

// items reads line items of either list form.
func items(list []object, currency string) []channel.OrderItem {
	var out []channel.OrderItem
	for _, o := range list {
		price := o.object("price")
		if price == nil {
			price = o.object("plan")
		}
		i := channel.OrderItem{
			ExternalID: o.id("id"), SKU: cmp.Or(price.id("id"), o.object("pricing").object("price_details").id("price")), Quantity: o.number("quantity"),
			Price: amount(price, "unit_amount", currency),
		}
		i.Name = cmp.Or(o.text("description"), price.text("nickname"), price.id("product"), i.SKU, "item")
		out = append(out, i)
	}
	return out
}

// currency returns an object's ISO 4217 code.
func currency(o object) string {
	s := strings.ToUpper(o.text("currency"))
	if len(s) != 3 || strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return ""
	}
	return s
}

// wholeNumber returns an integer member, if present.
func wholeNumber(o object, name string) (int64, bool) {
	f, ok := o[name].(float64)
	return o.number(name), ok && f == float64(o.number(name))
}

// amount formats a member in the currency's smallest unit as a decimal, or returns "" if it or
// the currency is missing.
func amount(o object, name, currency string) string {
	n, ok := wholeNumber(o, name)
	if !ok {
		return ""
	}
	return decimal(n, currency)
}

// decimal formats an amount in the provider's smallest unit of the currency.
func decimal(n int64, currency string) string {
	if currency == "" {
		return ""
	}
	digits := 2
	switch {
	case slices.Contains([]string{
		"BIF", "CLP", "DJF", "GNF", "JPY", "KMF", "KRW", "MGA", "PYG", "RWF", "VND", "VUV", "XAF", "XOF", "XPF",
	}, currency):
		digits = 0
	case slices.Contains([]string{"BHD", "JOD", "KWD", "OMR", "TND"}, currency):
		digits = 3
	}
	text := strconv.FormatInt(n, 10)
	if digits == 0 {
		return text
	}
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	if missing := digits + 1 - len(text); missing > 0 {
		text = strings.Repeat("0", missing) + text
	}
	return sign + text[:len(text)-digits] + "." + text[len(text)-digits:]
}
