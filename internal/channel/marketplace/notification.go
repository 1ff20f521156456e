package marketplace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// object is a JSON object of the marketplace with typed access to members. Some senders use
// lower-case initials, so both spellings are tried. An absent member, or one of another type,
// reads as zero. The nil object has no members.
type object map[string]any

func (o object) member(name string) any {
	if v, ok := o[name]; ok && v != nil {
		return v
	}
	return o[strings.ToLower(name[:1])+name[1:]]
}

func (o object) object(name string) object {
	m, _ := o.member(name).(map[string]any)
	return m
}

func (o object) list(name string) []object {
	items, _ := o.member(name).([]any)
	var list []object
	for _, item := range items[:min(len(items), maxItems)] {
		if m, ok := item.(map[string]any); ok {
			list = append(list, m)
		}
	}
	return list
}

// maxItems bounds the items of an order.
const maxItems = 200

// text returns the first nonempty text, or number, among the members.
func (o object) text(names ...string) string {
	for _, name := range names {
		switch v := o.member(name).(type) {
		case string:
			if v = channel.CleanText(v); v != "" {
				return v
			}
		case json.Number:
			return v.String()
		}
	}
	return ""
}

func (o object) flag(name string) bool {
	b, _ := o.member(name).(bool)
	return b
}

func (o object) number(name string) int64 {
	n, _ := o.member(name).(json.Number)
	i, err := n.Int64()
	if err != nil || i < 0 || i > 1<<31 {
		return 0
	}
	return i
}

func (o object) time(name string) time.Time {
	at, err := time.Parse(time.RFC3339, o.text(name))
	if err != nil || at.Year() < 2000 || at.Year() > 9999 {
		return time.Time{}
	}
	return at.UTC()
}

// notification is a notification of the marketplace.
type notification struct {
	id      string // the marketplace's id; may be empty
	kind    string // the marketplace's type
	orderID string
	at      time.Time // time of the event, or else of the notification
	body    object    // the relevant part of the payload
}

// readNotification parses the text of a message: a plain notification, or one in an event of
// the marketplace's event bus.
func readNotification(e envelope) (*notification, error) {
	d := json.NewDecoder(strings.NewReader(e["Message"]))
	d.UseNumber() // ids may be numbers
	var o object
	if err := d.Decode(&o); err != nil || o == nil || d.More() {
		return nil, fmt.Errorf("%w: the message is not a JSON object", channel.ErrUnreadable)
	}
	if detail := o.object("Detail"); detail != nil && o.object("Payload") == nil {
		if detail.text("NotificationType") == "" {
			detail["NotificationType"] = o.text("Detail-type")
		}
		o = detail
	}
	n := &notification{
		id: o.object("NotificationMetadata").text("NotificationId"), kind: o.text("NotificationType"), body: o.object("Payload"),
	}
	if n.kind == "" || n.body == nil {
		return nil, fmt.Errorf("%w: the message is not a notification", channel.ErrUnreadable)
	}
	// The payload is nested once more under its subject's name.
	for _, name := range sortedNames(n.body) {
		if strings.HasSuffix(name, "Notification") && n.body.object(name) != nil {
			n.body = n.body.object(name)
			break
		}
	}
	n.orderID = n.body.text("AmazonOrderId", "OrderId")
	n.at = first(n.body.object("OrderChangeTrigger").time("TimeOfOrderChange"), n.body.time("UpdatedAt"), o.time("EventTime"),
		o.object("NotificationMetadata").time("PublishTime"), e.sent().UTC())
	return n, nil
}

func sortedNames(o object) []string {
	var names []string
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func first(times ...time.Time) time.Time {
	for _, at := range times {
		if !at.IsZero() {
			return at
		}
	}
	return time.Time{}
}

// effect is the effect of a notification.
type effect int

const (
	nothing   effect = iota
	changed          // the order's state changed
	cancel           // the buyer requests a cancellation
	returning        // a return
)

func (n *notification) effect() effect {
	kind := strings.ToUpper(n.kind)
	switch {
	case strings.Contains(kind, "RETURN"):
		return returning
	case kind != "ORDER_CHANGE":
		return nothing
	case n.body.text("OrderChangeType") == "BuyerRequestedChange":
		return cancel
	}
	return changed
}

// orderKey returns the key that represents the buyer of an order, and its thread.
func orderKey(orderID string) string { return key("order:" + orderID) }

// record returns the record of a notification. messageID is the id of the resulting message.
func (n *notification) record(messageID string) *channel.Record {
	order, summary := &channel.Order{ExternalID: key(n.orderID), Number: key(n.orderID)}, n.body.object("Summary")
	order.Status = summary.text("OrderStatus")
	order.PlacedAt = summary.time("PurchaseDate")
	order.Items = items(summary.list("OrderItems"))
	buyer := channel.Party{ID: orderKey(n.orderID), Name: "Buyer of order " + key(n.orderID)}
	r := &channel.Record{ExternalID: buyer.ID, Customer: buyer, UpdatedAt: n.at, Order: order}
	switch n.effect() {
	case cancel:
		r.Message = n.message(messageID, buyer, "Cancellation requested: order "+key(n.orderID), n.cancellation(summary))
	case returning:
		ret := channel.Return{
			ExternalID: key(cmp.Or(n.body.text("ReturnId", "RmaId"), n.orderID)), Status: n.body.text("ReturnStatus", "Status"),
			Reason: n.body.text("ReturnReason", "Reason"), Items: items(returned(n.body)),
		}
		created := strings.Contains(strings.ToUpper(n.kind), "CREATED")
		if ret.Status == "" && created {
			ret.Status = "Created"
		}
		order.Returns = []channel.Return{ret}
		r.Message = n.message(messageID, buyer, "Return: order "+key(n.orderID), n.returnText(&ret, created))
	}
	return r
}

func (n *notification) message(messageID string, buyer channel.Party, subject, text string) *channel.Message {
	return &channel.Message{ExternalID: messageID, ThreadKey: buyer.ID, From: buyer, Subject: subject, Text: text, SentAt: n.at}
}

// cancellation describes the buyer's cancellation request: for the marked items, or else the
// order.
func (n *notification) cancellation(summary object) string {
	var b strings.Builder
	fmt.Fprintf(&b, "The buyer asks to cancel order %s.\n", key(n.orderID))
	line(&b, "Reason", n.body.object("OrderChangeTrigger").text("ChangeReason"))
	line(&b, "Order status", summary.text("OrderStatus"))
	all := summary.list("OrderItems")
	meant := slices.DeleteFunc(slices.Clone(all), func(o object) bool { return !o.flag("IsBuyerRequestedCancel") })
	if len(meant) == 0 {
		meant = all
	}
	list(&b, items(meant))
	return strings.TrimRight(b.String(), "\n")
}

func (n *notification) returnText(r *channel.Return, created bool) string {
	var b strings.Builder
	if created {
		fmt.Fprintf(&b, "The buyer returns something of order %s (return %s).\n", key(n.orderID), r.ExternalID)
	} else {
		fmt.Fprintf(&b, "The return %s of order %s is now: %s.\n", r.ExternalID, key(n.orderID), cmp.Or(r.Status, "in another state"))
	}
	if created {
		line(&b, "Status", r.Status)
	}
	line(&b, "Reason", r.Reason)
	list(&b, r.Items)
	return strings.TrimRight(b.String(), "\n")
}

func line(b *strings.Builder, name, value string) {
	if value != "" {
		fmt.Fprintf(b, "%s: %s\n", name, value)
	}
}

func list(b *strings.Builder, items []channel.OrderItem) {
	for _, i := range items {
		fmt.Fprintf(b, "- %d × %s\n", i.Quantity, i.Name)
	}
}

func returned(o object) []object {
	for _, name := range []string{"Items", "ReturnItems", "OrderItems"} {
		if list := o.list(name); list != nil {
			return list
		}
	}
	return nil
}

func items(list []object) []channel.OrderItem {
	var out []channel.OrderItem
	for _, o := range list {
		i := channel.OrderItem{
			ExternalID: o.text("OrderItemId", "ItemId"), SKU: o.text("SellerSKU", "SellerSku", "Sku", "SKU"), Quantity: o.number("Quantity"),
		}
		i.Name = cmp.Or(o.text("Title", "Name"), i.SKU, o.text("ASIN", "Asin"), i.ExternalID, "item")
		out = append(out, i)
	}
	return out
}

// maxID is the longest id, in bytes, that is stored unchanged.
const maxID = 200

// key makes an id fit for an index.
func key(s string) string { return channel.BoundedID(channel.CleanText(s), maxID) }
