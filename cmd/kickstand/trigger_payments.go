package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/payments"
)

func paymentsTrigger() trigger {
	c := trigger{name: "payments", secret: "payments-secret", request: (*triggerCmd).payments}
	for _, kind := range []channel.PaymentKind{
		channel.CheckoutCompleted, channel.SubscriptionCreated, channel.SubscriptionUpdated, channel.SubscriptionDeleted,
		channel.InvoicePaid, channel.InvoiceFailed,
	} {
		c.events = append(c.events, string(kind))
	}
	return c
}

func (t *triggerCmd) payments(s triggerRequest) (*http.Request, error) {
	if t.To == "" {
		return nil, usageError{fmt.Errorf("--to must be an organization's id: `kickstand org list` shows it, of a demo with --config=%s/kickstand.toml", demoFolder)}
	}
	plan, ok := account.ParsePlan(firstNonEmpty(t.Text, string(account.Pro)))
	if !ok || plan == account.Free {
		return nil, usageError{fmt.Errorf("--text must be the plan, pro or business, not %q", t.Text)}
	}
	sum := sha256.Sum256([]byte(t.To))
	body := billing.Sample{
		Kind: channel.PaymentKind(s.event), Created: time.Now(), Name: hex.EncodeToString(sum[:10]), EventID: "evt_" + randomHex(12),
		SubscriptionID: t.From, OrganizationID: t.To, Plan: plan, Email: "ana@client.example",
	}.JSON()
	req, err := s.post(payments.New().Info().Path, "application/json; charset=utf-8", body)
	if err != nil {
		return nil, err
	}
	req.Header.Set(payments.SignatureHeader, payments.Sign(body, time.Now(), s.secret))
	return req, nil
}
