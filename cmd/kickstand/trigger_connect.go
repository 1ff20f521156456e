package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/payments"
)

// demoAccount is the demo's connected account at the payment provider.
const demoAccount = "acct_1KickstandDemo"

func connectTrigger() trigger {
	return trigger{
		name: "payments-connect", secret: "payments-connect-secret",
		events: []string{
			"checkout.session.completed", "invoice.payment_succeeded", "invoice.payment_failed", "customer.created", "customer.updated",
			"customer.subscription.created", "customer.subscription.updated", "customer.subscription.deleted",
			"account.application.deauthorized",
		},
		request: (*triggerCmd).connect,
	}
}

// connect builds an event of the connected account --to about a customer with the mail
// address --from. --text is the product.
func (t *triggerCmd) connect(s triggerRequest) (*http.Request, error) {
	now, email, what := time.Now(), firstNonEmpty(t.From, "ana@client.example"), firstNonEmpty(t.Text, "Day pass")
	customer := "cus_" + strings.NewReplacer("@", "", ".", "").Replace(email)
	price := map[string]any{"id": "price_demo", "nickname": what, "unit_amount": 1990, "currency": "eur"}
	o := map[string]any{"id": "cs_" + randomHex(12), "customer": customer, "currency": "eur", "created": now.Unix(), "status": "complete"}
	switch kind, _, _ := strings.Cut(s.event, "."); {
	case strings.HasPrefix(s.event, "customer.subscription."):
		o["id"], o["status"] = "sub_"+customer, "active"
		if s.event == "customer.subscription.deleted" {
			o["status"] = "canceled"
		}
		o["items"] = map[string]any{"data": []any{map[string]any{"id": "si_1", "quantity": 1, "price": price}}}
	case kind == "customer":
		o = map[string]any{"id": customer, "name": "Ana Client", "email": email, "created": now.Unix()}
	case kind == "invoice":
		o["id"], o["number"], o["total"], o["customer_email"], o["customer_name"] = "in_"+randomHex(12), "DEMO-"+randomHex(2), 1990, email, "Ana Client"
		o["status"] = "paid"
		if s.event == "invoice.payment_failed" {
			o["status"] = "open"
		}
		o["lines"] = map[string]any{"data": []any{map[string]any{"id": "il_1", "description": what, "quantity": 1, "amount": 1990}}}
	case kind == "account":
		o = map[string]any{"id": "ca_demo", "object": "application"}
	default:
		o["payment_status"], o["amount_total"] = "paid", 1990
		o["customer_details"] = map[string]any{"email": email, "name": "Ana Client"}
		o["line_items"] = map[string]any{"data": []any{map[string]any{"id": "li_1", "description": what, "quantity": 1, "price": price}}}
	}
	body, err := json.Marshal(map[string]any{
		"id": "evt_" + randomHex(12), "object": "event", "type": s.event, "created": now.Unix(), "livemode": true,
		"account": firstNonEmpty(t.To, demoAccount), "data": map[string]any{"object": o},
	})
	if err != nil {
		return nil, err
	}
	req, err := s.post("/api/webhooks/payments-connect", "application/json; charset=utf-8", body)
	if err != nil {
		return nil, err
	}
	req.Header.Set(payments.SignatureHeader, payments.Sign(body, now, s.secret))
	return req, nil
}
