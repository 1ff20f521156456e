package main

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/storefront"
)

// demoShop is the shop of the demo, and its customer.
const (
	demoShop         = "demo-lamps.myshopify.com"
	demoShopCustomer = 115310627314723954
	demoShopOrder    = 820982911946154508
)

func storefrontTrigger() trigger {
	return trigger{
		name: "storefront", secret: "storefront-secret",
		events:  []string{storefront.OrdersCreate, storefront.OrdersUpdated, storefront.CustomersCreate, storefront.CustomersUpdate, storefront.AppUninstalled},
		request: (*triggerCmd).storefront,
	}
}

func storefrontPrivacyTrigger() trigger {
	return trigger{
		name: "storefront-privacy", secret: "storefront-api-secret",
		events:  []string{string(channel.PrivacyDataRequest), string(channel.PrivacyRedactCustomer), string(channel.PrivacyRedactShop)},
		request: (*triggerCmd).storefrontPrivacy,
	}
}

// storefront builds an event about a customer or an order. --to is the shop, --from the
// customer's mail address, --text their name.
func (t *triggerCmd) storefront(s triggerRequest) (*http.Request, error) {
	domain, now := firstNonEmpty(t.To, demoShop), time.Now().Format(time.RFC3339)
	customer := map[string]any{
		"id": int64(demoShopCustomer), "admin_graphql_api_id": "gid://shopify/Customer/115310627314723954",
		"email": firstNonEmpty(t.From, "ana@client.example"), "first_name": firstNonEmpty(t.Text, "Ana"), "last_name": "", "phone": nil,
		"created_at": now, "updated_at": now,
	}
	body := customer
	switch s.event {
	case storefront.OrdersCreate, storefront.OrdersUpdated:
		id := int64(demoShopOrder)
		if s.event == storefront.OrdersCreate {
			id += rand.Int64N(1 << 20)
		}
		body = map[string]any{
			"id": id, "name": "#1001", "email": customer["email"], "created_at": now, "updated_at": now,
			"financial_status": "paid", "fulfillment_status": nil, "currency": "EUR", "total_price": "42.00",
			"order_status_url": "https://" + domain + "/690933842/orders/" + randomHex(16), "customer": customer,
			"line_items": []any{map[string]any{"id": 1, "title": "Lamp", "quantity": 1, "price": "42.00", "sku": "LAMP"}},
		}
	case storefront.AppUninstalled:
		body = map[string]any{"id": 690933842, "name": "Demo Lamps", "myshopify_domain": domain, "updated_at": now}
	}
	return s.shop(storefront.Path, domain, body)
}

// storefrontPrivacy builds a privacy request. --to is the shop, --from the customer's
// mail address, --text the shop's id of the customer.
func (t *triggerCmd) storefrontPrivacy(s triggerRequest) (*http.Request, error) {
	domain := firstNonEmpty(t.To, demoShop)
	body := map[string]any{"shop_id": 690933842, "shop_domain": domain}
	customer := map[string]any{"id": firstNonEmpty(t.Text, "115310627314723954"), "email": firstNonEmpty(t.From, "ana@client.example"), "phone": nil}
	switch channel.PrivacyKind(s.event) {
	case channel.PrivacyDataRequest:
		body["customer"], body["orders_requested"], body["data_request"] = customer, []int64{demoShopOrder}, map[string]any{"id": rand.Int64N(1 << 40)}
	case channel.PrivacyRedactCustomer:
		body["customer"], body["orders_to_redact"] = customer, []int64{demoShopOrder}
	}
	return s.shop(storefront.NewPrivacy().Info().Path, domain, body)
}

// shop builds a signed request of the storefront platform.
func (s *triggerRequest) shop(path, domain string, body map[string]any) (*http.Request, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := s.post(path, "application/json", text)
	if err != nil {
		return nil, err
	}
	req.Header.Set(storefront.TopicHeader, s.event)
	req.Header.Set(storefront.ShopHeader, domain)
	req.Header.Set(storefront.WebhookIDHeader, randomHex(16))
	req.Header.Set(storefront.EventIDHeader, randomHex(16))
	req.Header.Set(storefront.SignatureHeader, storefront.Sign(text, s.secret))
	return req, nil
}
