package storefront

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/phone"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
)

// object is a JSON object with typed access to members. An absent member, or one of another
// type, reads as zero: many are null without the platform's approval, and a format change of
// other members does no harm. The nil object has no members.
type object map[string]any

// parse decodes a body. Numbers keep their text: ids have 64 bits.
func parse(body []byte) (object, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var o object
	if err := d.Decode(&o); err != nil {
		return nil, fmt.Errorf("%w: not a JSON object: %v", channel.ErrUnreadable, err)
	}
	if _, err := d.Token(); err != io.EOF || o == nil {
		return nil, fmt.Errorf("%w: not one JSON object", channel.ErrUnreadable)
	}
	return o, nil
}

func (o object) object(name string) object {
	m, _ := o[name].(map[string]any)
	return m
}

func (o object) objects(name string) []object {
	items, _ := o[name].([]any)
	var out []object
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

const (
	maxID    = 100  // bytes of an id that is stored unchanged
	maxText  = 255  // bytes of a word, a name or an address
	maxItems = 1000 // of an order or a request
)

// text returns a member as one line.
func (o object) text(name string) string {
	s, _ := o[name].(string)
	return safehtml.Clip(strings.Join(strings.Fields(channel.CleanText(safehtml.Clip(s, 16*maxText))), " "), maxText)
}

// id returns an id, which may be a number or text.
func (o object) id(name string) string { return idOf(o[name]) }

func idOf(v any) string {
	switch v := v.(type) {
	case json.Number:
		return channel.BoundedID(v.String(), maxID)
	case string:
		return channel.BoundedID(channel.CleanText(v), maxID)
	}
	return ""
}

// ids returns a list of ids.
func (o object) ids(name string) []string {
	items, _ := o[name].([]any)
	var out []string
	for _, item := range items[:min(len(items), maxItems)] {
		if id := idOf(item); id != "" {
			out = append(out, id)
		}
	}
	return out
}

// count returns a small number, or 0.
func (o object) count(name string) int64 {
	n, _ := o[name].(json.Number)
	if i, err := n.Int64(); err == nil && i > 0 && i < 1<<31 {
		return i
	}
	return 0
}

// amount returns a decimal amount as written, or "".
func (o object) amount(name string) string {
	s := o.text(name)
	if n, ok := o[name].(json.Number); ok {
		s = n.String()
	}
	digits := strings.Replace(strings.TrimPrefix(s, "-"), ".", "", 1)
	if digits == "" || len(digits) > 20 || strings.Trim(digits, "0123456789") != "" {
		return ""
	}
	return s
}

// time returns a time with its zone, or zero.
func (o object) time(name string) time.Time {
	s, _ := o[name].(string)
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.Year() < 1970 || t.Year() > 9999 {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

// shop returns the shop that the body names, or "". A shop may have other domains, also in an
// order's page URL, but only the platform's domain identifies it.
func (o object) shop() string {
	for _, named := range []string{o.text("shop_domain"), o.text("myshopify_domain"), host(o.raw("order_status_url"))} {
		if domain, err := formDomain(named); err == nil {
			return domain
		}
	}
	return ""
}

func (o object) raw(name string) string {
	s, _ := o[name].(string)
	return s
}

func host(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

// shape is the type of a body by its content.
type shape int

const (
	unknown shape = iota
	isOrder
	isCustomer
	isShop
	isDataRequest
	isCustomerRedact
	isShopRedact
	isOther // another record type of the platform
)

// shape returns the type of the body.
func (o object) shape() shape {
	has := func(names ...string) bool {
		for _, name := range names {
			if _, ok := o[name]; ok {
				return true
			}
		}
		return false
	}
	if gid, ok := strings.CutPrefix(o.text("admin_graphql_api_id"), "gid://shopify/"); ok {
		kind, _, _ := strings.Cut(gid, "/")
		switch kind {
		case "Order":
			return isOrder
		case "Customer":
			return isCustomer
		case "Shop":
			return isShop
		}
		return isOther
	}
	switch {
	case has("shop_id") && has("shop_domain") && !has("id"):
		switch {
		case has("data_request", "orders_requested"):
			return isDataRequest
		case has("orders_to_redact") || o.object("customer") != nil:
			return isCustomerRedact
		case !has("customer"):
			return isShopRedact
		}
		return isOther
	case has("myshopify_domain"):
		return isShop
	case has("line_items", "total_price", "financial_status", "order_status_url"):
		return isOrder
	case has("orders_count", "verified_email", "default_address", "tax_exempt", "first_name"):
		return isCustomer
	}
	return unknown
}

// record returns the record of a customer or an order event.
func (o object) record(topic, domain string) (*channel.Record, error) {
	id := o.id("id")
	updated := o.time("updated_at")
	if id == "" || updated.IsZero() {
		return nil, fmt.Errorf("%w: %s needs id and updated_at", channel.ErrUnreadable, topic)
	}
	r := &channel.Record{UpdatedAt: updated}
	if topic == CustomersCreate || topic == CustomersUpdate {
		r.ExternalID, r.Customer = id, o.party()
		r.Customer.ID = r.ExternalID
		return r, nil
	}
	customer := o.object("customer")
	r.ExternalID, r.Customer = customer.id("id"), customer.party()
	r.Customer.ID = r.ExternalID
	// A guest, or a customer with more data in the order than in their record.
	if r.Customer.Email == "" {
		if r.Customer.Email = o.email("email"); r.Customer.Email == "" {
			r.Customer.Email = o.email("contact_email")
		}
	}
	if r.Customer.Phone == "" {
		r.Customer.Phone = o.phone()
	}
	for _, address := range []object{o.object("billing_address"), o.object("shipping_address")} {
		if r.Customer.Name == "" {
			r.Customer.Name = address.name()
		}
		if r.Customer.Phone == "" && r.ExternalID == "" {
			r.Customer.Phone = address.phone()
		}
	}
	r.Order = &channel.Order{
		ExternalID: id, Number: o.text("name"), Status: o.status(), Currency: strings.ToUpper(o.text("currency")),
		Total: o.amount("total_price"), PlacedAt: o.time("created_at"),
	}
	if len(r.Order.Currency) != 3 {
		r.Order.Currency = ""
	}
	if current := o.amount("current_total_price"); current != "" {
		r.Order.Total = current // after refunds
	}
	// Not order_status_url, which gives access without authentication.
	if domain != "" && strings.Trim(id, "0123456789") == "" {
		r.Order.URL = "https://" + domain + "/admin/orders/" + id
	}
	items := o.objects("line_items")
	for _, item := range items[:min(len(items), maxItems)] {
		name := item.text("title")
		if variant := item.text("variant_title"); variant != "" {
			name += " (" + variant + ")"
		}
		r.Order.Items = append(r.Order.Items, channel.OrderItem{
			ExternalID: item.id("id"), Name: name, SKU: item.text("sku"), Quantity: item.count("quantity"), Price: item.amount("price"),
		})
	}
	return r, nil
}

// party returns the customer in o.
func (o object) party() channel.Party {
	p := channel.Party{Name: o.name(), Email: o.email("email"), Phone: o.phone()}
	address := o.object("default_address")
	if p.Name == "" {
		p.Name = address.name()
	}
	if p.Phone == "" {
		p.Phone = address.phone()
	}
	return p
}

// name returns the name of a customer or an address.
func (o object) name() string {
	if name := strings.TrimSpace(o.text("first_name") + " " + o.text("last_name")); name != "" {
		return name
	}
	if _, order := o["line_items"]; order {
		return "" // its name is its number
	}
	return o.text("name")
}

// email returns a valid mail address, or "".
func (o object) email(name string) string {
	s, _ := o[name].(string)
	if s = strings.TrimSpace(channel.CleanText(s)); len(s) > 254 || !strings.Contains(s, "@") || strings.ContainsAny(s, " \t\r\n") {
		return ""
	}
	return s
}

// phone returns the number of a customer, an order or an address, possibly in national form, or
// "".
func (o object) phone() string {
	region := o.text("country_code")
	if region == "" {
		region = o.object("default_address").text("country_code")
	}
	n, _ := phone.Parse(o.text("phone"), region)
	return n.E164
}

// status returns an order's status in a few words.
func (o object) status() string {
	words := []string{strings.ReplaceAll(o.text("financial_status"), "_", " ")}
	switch f := o.text("fulfillment_status"); f {
	case "":
		words = append(words, "not fulfilled")
	case "partial":
		words = append(words, "partly fulfilled")
	default:
		words = append(words, strings.ReplaceAll(f, "_", " "))
	}
	if o.text("cancelled_at") != "" {
		words = append(words, "cancelled")
	}
	if words[0] == "" {
		words = words[1:]
	}
	return strings.Join(words, ", ")
}

// privacy returns a privacy request.
func (o object) privacy(kind channel.PrivacyKind) (*channel.PrivacyRequest, error) {
	customer := o.object("customer")
	p := &channel.PrivacyRequest{
		Kind: kind, RequestID: o.object("data_request").id("id"), Shop: o.shop(),
		CustomerID: customer.id("id"), Email: customer.email("email"), Phone: customer.text("phone"),
	}
	switch kind {
	case channel.PrivacyDataRequest:
		p.OrderIDs = o.ids("orders_requested")
	case channel.PrivacyRedactCustomer:
		p.OrderIDs = o.ids("orders_to_redact")
	}
	if p.Shop == "" {
		return nil, fmt.Errorf("%w: %s needs shop_domain", channel.ErrUnreadable, kind)
	}
	return p, nil
}
