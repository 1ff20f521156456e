// Package storefront implements the channel of shops, for a platform with Shopify's API. The
// platform posts changes of a shop's customers and orders, and, to a separate endpoint, legally
// required privacy requests.
//
// A request is one event, with its topic and shop in headers. It opens no ticket: customers and
// orders become a [channel.Record], privacy requests a [channel.PrivacyRequest], and the
// removal of the app a [channel.ConnectionEvent].
//
// The signature covers only the body, and the secret is the app's: the owner of another shop
// with the same app could send their own valid requests under another shop's name, or a topic
// of their choice. A body that evidently belongs to another shop or topic than the headers say
// therefore counts as unsigned. A privacy request, which deletes data, must name its shop.
//
// The signature has no time. Repeated requests have no effect, because each record carries the
// time of its last change, and the platform sends ids of events and deliveries.
package storefront

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
)

// ticketChannel is the ticket channel of both adapters.
const ticketChannel = "storefront"

// Path is the endpoint for the platform's webhooks.
const Path = "/api/webhooks/storefront"

// The neutral header names. Each has two aliases: with X-Shopify- in place of X-Store-, and
// with Shopify-.
const (
	SignatureHeader = neutral + "Hmac-Sha256"
	TopicHeader     = neutral + "Topic"
	ShopHeader      = neutral + "Shop-Domain"
	WebhookIDHeader = neutral + "Webhook-Id"
	EventIDHeader   = neutral + "Event-Id"
	TriggeredHeader = neutral + "Triggered-At"

	neutral = "X-Store-"
)

// The handled topics, beside the kinds of [channel.PrivacyRequest].
const (
	OrdersCreate    = "orders/create"
	OrdersUpdated   = "orders/updated"
	CustomersCreate = "customers/create"
	CustomersUpdate = "customers/update"
	AppUninstalled  = "app/uninstalled"
)

// header returns a header by its neutral name or an alias.
func header(r *channel.Request, name string) string {
	rest := strings.TrimPrefix(name, neutral)
	return channel.CleanText(strings.TrimSpace(r.First(name, "X-Shopify-"+rest, "Shopify-"+rest)))
}

// shop is the common part of both adapters.
type shop struct{}

// Addresses returns the shop's domain.
func (shop) Addresses(r *channel.Request) ([]string, error) {
	switch r.MediaType() {
	case "application/json", "":
	default:
		return nil, channel.ErrContentType
	}
	named := header(r, ShopHeader)
	if named == "" {
		return nil, nil
	}
	domain, err := formDomain(named)
	if err != nil {
		return nil, err
	}
	return []string{domain}, nil
}

// NormalizeAddress returns a shop's domain in normalized form.
func (shop) NormalizeAddress(raw string) (string, error) { return formDomain(raw) }

// platformDomain is the parent of every shop's permanent domain.
const platformDomain = ".myshopify.com"

var errDomain = errors.New("must be the shop's own domain at the platform, such as acme-lamps" + platformDomain)

// formDomain normalizes a shop's domain from user input such as
// https://ACME.myshopify.com/admin.
func formDomain(raw string) (string, error) {
	s := strings.ToLower(strings.TrimSpace(raw))
	s = strings.TrimPrefix(strings.TrimPrefix(s, "https://"), "http://")
	s, _, _ = strings.Cut(s, "/")
	name, ok := strings.CutSuffix(s, platformDomain)
	if !ok || name == "" || len(name) > 63 || name[0] == '-' {
		return "", errDomain
	}
	for _, c := range []byte(name) {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return "", errDomain
		}
	}
	return s, nil
}

// signed reports whether the body was signed with secret.
func signed(r *channel.Request, secret string) bool {
	presented, ok := signature(r)
	return ok && secret != "" && hmac.Equal(presented, digest(r.Body, secret))
}

// signature returns the signature in the header.
func signature(r *channel.Request) ([]byte, bool) {
	presented, err := base64.StdEncoding.Strict().DecodeString(header(r, SignatureHeader))
	return presented, err == nil && len(presented) == sha256.Size
}

// HeaderProof implements [channel.HeaderProver].
func (shop) HeaderProof(r *channel.Request) channel.HeaderProof {
	_, ok := signature(r)
	return channel.BodyDecidesIf(ok)
}

func digest(body []byte, secret string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return mac.Sum(nil)
}

// Sign returns the header [SignatureHeader] for body.
func Sign(body []byte, secret string) string {
	return base64.StdEncoding.EncodeToString(digest(body, secret))
}

// key returns the idempotency key of a request. The platform's event id is equal in repetitions
// and in deliveries to several subscriptions; one change may cause events of several topics
// with one id. The delivery id is equal in repetitions only. Without either, the body's digest
// is used.
func key(r *channel.Request, topic string) string {
	if id := header(r, EventIDHeader); id != "" {
		return "event:" + channel.BoundedID(id, maxID) + " " + topic
	}
	if id := header(r, WebhookIDHeader); id != "" {
		return "webhook:" + channel.BoundedID(id, maxID)
	}
	sum := sha256.Sum256(r.Body)
	return "body:" + topic + " " + hex.EncodeToString(sum[:])
}

// readClaim returns the topic by its header, and the shop by its header or else by the body.
func readClaim(r *channel.Request, o object) (topic, domain string) {
	topic = strings.ToLower(header(r, TopicHeader))
	domain, _ = formDomain(header(r, ShopHeader))
	if domain == "" {
		domain = o.shop()
	}
	return topic, domain
}

// moment returns the time of a change with a finer resolution than the record's, because
// several changes may occur in one second: creation comes first, further changes in the order
// of their trigger header. The header is unsigned, so it never moves a change into the next
// second.
func moment(r *channel.Request, topic string, updated time.Time) time.Time {
	if updated.Nanosecond() != 0 || topic == OrdersCreate || topic == CustomersCreate {
		return updated
	}
	const scale = 100 // events are triggered some seconds after the change
	after := time.Microsecond
	if triggered, err := time.Parse(time.RFC3339, header(r, TriggeredHeader)); err == nil {
		after += max(0, triggered.Sub(updated)/scale)
	}
	return updated.Add(min(after, time.Second-time.Microsecond)).Truncate(time.Microsecond)
}

// Config holds the settings of a deployment.
type Config struct {
	// APIURL is the base URL of the shops' API without a trailing slash; {shop} is replaced by
	// the shop's domain. Default: the shop itself.
	APIURL string
}

// Adapter implements the channel of customers and orders.
type Adapter struct {
	shop
	apiURL string
}

var (
	_ channel.Adapter           = Adapter{}
	_ channel.AddressNormalizer = Adapter{}
	_ channel.RecipientChecker  = Adapter{}
)

// New returns the channel of customers and orders.
func New(c Config) Adapter { return Adapter{apiURL: cmp.Or(c.APIURL, "https://{shop}")} }

// Info implements [channel.Adapter].
func (Adapter) Info() channel.Info {
	return channel.Info{Name: "storefront", TicketChannel: ticketChannel, Path: Path, MaxBody: 1 << 20}
}

// API implements [channel.APIUser]. Each shop has its own URL.
func (Adapter) API() channel.API { return channel.API{Credentials: declared} }

// Verify implements [channel.Adapter].
func (Adapter) Verify(r *channel.Request, secret string) bool {
	if !signed(r, secret) {
		return false
	}
	o, err := parse(r.Body)
	if err != nil {
		return true // Split reports it
	}
	topic, domain := readClaim(r, o)
	if named := o.shop(); named != "" && named != domain {
		return false
	}
	is := o.shape()
	switch topic {
	case OrdersCreate, OrdersUpdated:
		return is == unknown || is == isOrder
	case CustomersCreate, CustomersUpdate:
		return is == unknown || is == isCustomer
	case AppUninstalled:
		return is == isShop
	}
	return true // not a handled topic
}

// RecipientUnsigned implements [channel.RecipientChecker]. Customers name no shop, nor do
// orders with a page at the shop's own domain.
func (Adapter) RecipientUnsigned(r *channel.Request) bool {
	o, err := parse(r.Body)
	return err != nil || o.shop() == ""
}

// Split implements [channel.Adapter].
func (Adapter) Split(r *channel.Request) ([]channel.Part, error) {
	o, err := parse(r.Body)
	if err != nil {
		return nil, err
	}
	topic, domain := readClaim(r, o)
	p := channel.Part{Kind: safehtml.Clip(topic, maxText), Address: domain}
	switch topic {
	case "":
		return nil, fmt.Errorf("%w: the header %s with the topic is missing", channel.ErrUnreadable, TopicHeader)
	case OrdersCreate, OrdersUpdated, CustomersCreate, CustomersUpdate:
		record, err := o.record(topic, domain)
		if err != nil {
			return nil, err
		}
		// Events of one customer are processed in order.
		if p.Sender = "customer:" + record.ExternalID; record.ExternalID == "" {
			p.Sender = "order:" + record.Order.ExternalID
		}
	case AppUninstalled:
	default:
		return []channel.Part{{Kind: p.Kind, Skip: true}}, nil
	}
	p.Key = key(r, topic)
	return []channel.Part{p}, nil
}

// Parse implements [channel.Adapter].
func (Adapter) Parse(r *channel.Request, p channel.Part) (channel.Event, error) {
	o, err := parse(r.Body)
	if err != nil {
		return channel.Event{}, err
	}
	topic, domain := readClaim(r, o)
	switch topic {
	case OrdersCreate, OrdersUpdated, CustomersCreate, CustomersUpdate:
		record, err := o.record(topic, domain)
		if err != nil {
			return channel.Event{}, err
		}
		record.UpdatedAt = moment(r, topic, record.UpdatedAt)
		return channel.Event{Record: record}, nil
	case AppUninstalled:
		return channel.Event{ConnectionEvent: &channel.ConnectionEvent{
			Kind: channel.Disconnected,
			Text: "The app was uninstalled from the shop " + domain + ". To continue, install it again and connect the shop.",
		}}, nil
	}
	return channel.Event{}, fmt.Errorf("%w: the topic %q means nothing here", channel.ErrUnreadable, topic)
}

// Privacy implements the channel of privacy requests. It serves connections of the channel
// storefront.
type Privacy struct{ shop }

var (
	_ channel.Adapter           = Privacy{}
	_ channel.AddressNormalizer = Privacy{}
	_ channel.SecretResolver    = Privacy{}
)

// NewPrivacy returns the channel of privacy requests.
func NewPrivacy() Privacy { return Privacy{} }

// Info implements [channel.Adapter].
func (Privacy) Info() channel.Info {
	return channel.Info{
		Name: "storefront-privacy", TicketChannel: ticketChannel, Path: Path + "/gdpr", MaxBody: 1 << 20, Serves: []string{"storefront"}, AcceptWhenDisabled: true,
	}
}

// APISecret is the credential that verifies privacy requests: the app's API secret, or several
// separated by commas, newest first, during a rotation. Without it, the connection's signing
// secrets are used.
const APISecret = "api_secret"

// accessToken is the credential for the shop's API, used by package shop.
const accessToken = "access_token"

var declared = []channel.Credential{{Name: accessToken, Kind: channel.KindAPIKey}, {Name: APISecret, Kind: channel.KindSigning}}

// SigningSecrets implements [channel.SecretResolver].
func (Privacy) SigningSecrets(_ string, secrets []string, credentials channel.Credentials) []string {
	var keys []string
	for secret := range strings.SplitSeq(credentials.Get(APISecret), ",") {
		if secret = strings.TrimSpace(secret); secret != "" {
			keys = append(keys, secret)
		}
	}
	if len(keys) == 0 {
		return secrets
	}
	return keys
}

// Verify implements [channel.Adapter].
func (Privacy) Verify(r *channel.Request, secret string) bool {
	if !signed(r, secret) {
		return false
	}
	o, err := parse(r.Body)
	if err != nil {
		return true // Split reports it
	}
	topic, domain := readClaim(r, o)
	named := o.shop()
	if named != "" && named != domain {
		return false
	}
	is := o.shape()
	switch channel.PrivacyKind(topic) {
	case channel.PrivacyDataRequest:
		return named != "" && is == isDataRequest
	case channel.PrivacyRedactCustomer:
		return named != "" && is == isCustomerRedact
	case channel.PrivacyRedactShop:
		return named != "" && is == isShopRedact
	}
	return true // not a handled topic
}

// Split implements [channel.Adapter].
func (Privacy) Split(r *channel.Request) ([]channel.Part, error) {
	o, err := parse(r.Body)
	if err != nil {
		return nil, err
	}
	topic, domain := readClaim(r, o)
	part := channel.Part{Kind: safehtml.Clip(topic, maxText), Address: domain}
	switch channel.PrivacyKind(topic) {
	case "":
		return nil, fmt.Errorf("%w: the header %s with the topic is missing", channel.ErrUnreadable, TopicHeader)
	case channel.PrivacyDataRequest, channel.PrivacyRedactCustomer, channel.PrivacyRedactShop:
		p, err := o.privacy(channel.PrivacyKind(topic))
		if err != nil {
			return nil, err
		}
		if p.Kind != channel.PrivacyRedactShop && p.CustomerID == "" && p.Email == "" && p.Phone == "" && len(p.OrderIDs) == 0 {
			return []channel.Part{{Kind: part.Kind, Skip: true}}, nil // it names no customer
		}
		if part.Key = key(r, topic); p.RequestID != "" {
			part.Key = "request:" + p.RequestID // one key for all repetitions
		}
		if part.Sender = "shop"; p.CustomerID != "" {
			part.Sender = "customer:" + p.CustomerID
		}
	default:
		return []channel.Part{{Kind: part.Kind, Skip: true}}, nil
	}
	return []channel.Part{part}, nil
}

// Parse implements [channel.Adapter].
func (Privacy) Parse(r *channel.Request, _ channel.Part) (channel.Event, error) {
	o, err := parse(r.Body)
	if err != nil {
		return channel.Event{}, err
	}
	topic, _ := readClaim(r, o)
	switch kind := channel.PrivacyKind(topic); kind {
	case channel.PrivacyDataRequest, channel.PrivacyRedactCustomer, channel.PrivacyRedactShop:
		p, err := o.privacy(kind)
		if err != nil {
			return channel.Event{}, err
		}
		return channel.Event{Privacy: p}, nil
	}
	return channel.Event{}, fmt.Errorf("%w: the topic %q means nothing here", channel.ErrUnreadable, topic)
}
