package rpc

import (
	"context"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/billing"
)

// BillingProcedures returns the procedures for the subscription of the caller's
// organization. They are not in the contract; the names follow its style.
func BillingProcedures(b *billing.Service) []Procedure {
	p := billingProcedures{b}
	return []Procedure{
		Query("billing.get", Admin, p.get),
		Mutation("billing.startCheckout", Admin, p.startCheckout),
	}
}

type billingProcedures struct {
	billing *billing.Service
}

type billingRecord struct {
	PlanTier          account.Plan  `json:"planTier"`
	PendingPlanTier   *account.Plan `json:"pendingPlanTier"`
	PastDue           bool          `json:"pastDue"`
	Status            *string       `json:"status"` // as the provider names it; null without a subscription
	CurrentPeriodEnd  *time.Time    `json:"currentPeriodEnd"`
	CancelAtPeriodEnd bool          `json:"cancelAtPeriodEnd"`
}

func (p billingProcedures) get(ctx context.Context, _ None) (billingRecord, error) {
	s, err := p.billing.State(ctx, organization(ctx))
	if err != nil {
		return billingRecord{}, err
	}
	r := billingRecord{
		PlanTier: s.Plan, PendingPlanTier: orNull(s.PendingPlan), PastDue: s.PastDue,
		Status: orNull(s.Status), CancelAtPeriodEnd: s.CancelAtPeriodEnd,
	}
	if !s.PeriodEnd.IsZero() {
		r.CurrentPeriodEnd = &s.PeriodEnd
	}
	return r, nil
}

type startCheckoutInput struct {
	PlanTier account.Plan `json:"planTier"`
}

type startCheckoutOutput struct {
	CheckoutURL string `json:"checkoutUrl"`
}

func (p billingProcedures) startCheckout(ctx context.Context, in startCheckoutInput) (startCheckoutOutput, error) {
	id, _ := account.FromContext(ctx)
	url, err := p.billing.StartForOrganization(ctx, id.User, in.PlanTier)
	return startCheckoutOutput{url}, err
}
