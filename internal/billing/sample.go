package billing

import (
	"encoding/json"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/channel"
)

// Sample describes a sample event of the payment provider, for the built-in
// checkout and for tests.
type Sample struct {
	Kind    channel.PaymentKind
	Created time.Time

	// Name is the base of the ids of customer, subscription, session and invoice.
	Name           string
	EventID        string // empty: derived from Kind and Name, so that the event is reproducible
	SubscriptionID string // empty: derived from Name
	OrganizationID string
	Plan           account.Plan
	Email          string
}

// JSON returns the event. A checkout is paid, a subscription is active until
// deleted, and a period is a month.
func (s Sample) JSON() []byte {
	if s.EventID == "" {
		s.EventID = "evt_" + s.Name + "_" + string(s.Kind)
	}
	if s.SubscriptionID == "" {
		s.SubscriptionID = "sub_" + s.Name
	}
	body, err := json.Marshal(map[string]any{
		"id": s.EventID, "object": "event", "type": string(s.Kind), "api_version": "2026-03-25.dahlia",
		"created": s.Created.Unix(), "livemode": false, "pending_webhooks": 1, "data": map[string]any{"object": s.object()},
	})
	if err != nil {
		panic(err) // maps of strings, numbers and the like
	}
	return body
}

func (s Sample) object() map[string]any {
	start, end := s.Created.Unix(), s.Created.AddDate(0, 1, 0).Unix()
	customer := "cus_" + s.Name
	metadata := map[string]string{channel.MetadataOrganization: s.OrganizationID, channel.MetadataPlan: string(s.Plan)}
	price := map[string]any{"id": "price_sample_" + string(s.Plan), "object": "price", "recurring": map[string]any{"interval": "month", "interval_count": 1}}
	switch s.Kind {
	case channel.CheckoutCompleted:
		return map[string]any{
			"id": "cs_" + s.Name, "object": "checkout.session", "mode": "subscription", "status": "complete", "payment_status": "paid",
			"client_reference_id": s.OrganizationID, "customer": customer, "customer_email": s.Email,
			"subscription": s.SubscriptionID, "metadata": metadata, "created": start,
		}
	case channel.InvoicePaid, channel.InvoiceFailed:
		status := "paid"
		if s.Kind == channel.InvoiceFailed {
			status = "open"
		}
		return map[string]any{
			"id": "in_" + s.EventID, "object": "invoice", "status": status, "attempt_count": 1, "attempted": true,
			"billing_reason": "subscription_cycle", "customer": customer, "customer_email": s.Email, "created": start,
			"parent": map[string]any{
				"type":                 "subscription_details",
				"subscription_details": map[string]any{"subscription": s.SubscriptionID, "metadata": metadata},
			},
			"lines": map[string]any{"object": "list", "data": []any{map[string]any{
				"object": "line_item", "amount": 0, "period": map[string]any{"start": start, "end": end},
			}}},
		}
	}
	subscription := map[string]any{
		"id": s.SubscriptionID, "object": "subscription", "status": "active", "customer": customer, "metadata": metadata,
		"cancel_at_period_end": false, "created": start,
		"items": map[string]any{"object": "list", "data": []any{map[string]any{
			"object": "subscription_item", "price": price, "quantity": 1, "current_period_start": start, "current_period_end": end,
		}}},
	}
	if s.Kind == channel.SubscriptionDeleted {
		subscription["status"], subscription["canceled_at"], subscription["ended_at"] = "canceled", start, start
	}
	return subscription
}
