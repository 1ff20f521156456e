package billing

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/channel"
)

// subscription is the state of a subscription as derived from the provider's
// events.
type subscription struct {
	id             string
	customerID     string    // empty: not named by an event yet
	organizationID string    // likewise
	createdAt      time.Time // when its first event was processed
	Facts          facts
}

// facts are the newest of each kind, by the provider's clock. Facts of the same
// second have a total order too, so that the order of arrival does not matter.
type facts struct {
	LinkedAt time.Time    `json:"linked_at,omitzero"` // of the event that names the organization
	State    stateFact    `json:"state,omitzero"`
	Checkout checkoutFact `json:"checkout,omitzero"`
	Invoice  invoiceFact  `json:"invoice,omitzero"`

	PaidAt    time.Time `json:"paid_at,omitzero"`    // of the last payment
	PaidUntil time.Time `json:"paid_until,omitzero"` // the end of the last paid period

	// Wanted is the plan of the organization's last checkout, if any: for events that
	// do not name the plan.
	Wanted account.Plan `json:"wanted,omitempty"`

	Told reportedFailure `json:"told,omitzero"`
}

// stateFact is the state in an event of the subscription itself.
type stateFact struct {
	At                time.Time `json:"at,omitzero"`
	Event             string    `json:"event,omitempty"`
	Rank              int       `json:"rank,omitempty"` // 0 created, 1 updated, 2 deleted
	Status            string    `json:"status,omitempty"`
	Plan              string    `json:"plan,omitempty"`
	Prices            []string  `json:"prices,omitempty"`
	PeriodEnd         time.Time `json:"period_end,omitzero"`
	CancelAtPeriodEnd bool      `json:"cancel_at_period_end,omitempty"`
}

const (
	rankCreated = iota
	rankUpdated
	rankDeleted
)

// compare orders states of one subscription: deletion is final. Within a second,
// creation comes first, then the order of progress.
func (f *stateFact) compare(other *stateFact) int {
	return cmp.Or(
		cmp.Compare(f.Rank/rankDeleted, other.Rank/rankDeleted),
		f.At.Compare(other.At),
		cmp.Compare(f.Rank, other.Rank),
		cmp.Compare(progress(f.Status), progress(other.Status)),
		cmp.Compare(f.Event, other.Event),
	)
}

// progress ranks the statuses in a subscription's life.
func progress(status string) int {
	switch status {
	case "incomplete":
		return 1
	case "trialing":
		return 2
	case "active":
		return 3
	case "past_due":
		return 4
	case "unpaid", "paused":
		return 5
	case "incomplete_expired", "canceled":
		return 6
	}
	return 0
}

// checkoutFact is the state in an event of the subscription's checkout.
type checkoutFact struct {
	At     time.Time `json:"at,omitzero"`
	Event  string    `json:"event,omitempty"`
	Paid   bool      `json:"paid,omitempty"`
	Plan   string    `json:"plan,omitempty"`
	Prices []string  `json:"prices,omitempty"`
}

func (f *checkoutFact) compare(other *checkoutFact) int {
	return cmp.Or(compareBool(f.Paid, other.Paid), f.At.Compare(other.At), cmp.Compare(f.Event, other.Event))
}

// invoiceFact is the result of an attempt to collect an invoice.
type invoiceFact struct {
	At      time.Time `json:"at,omitzero"`
	Event   string    `json:"event,omitempty"`
	Failed  bool      `json:"failed,omitempty"`
	Invoice string    `json:"invoice,omitempty"`
	First   bool      `json:"first,omitempty"`
	Attempt int64     `json:"attempt,omitempty"`
	PayURL  string    `json:"pay_url,omitempty"`
	Plan    string    `json:"plan,omitempty"`
}

func (f *invoiceFact) compare(other *invoiceFact) int {
	return cmp.Or(
		f.At.Compare(other.At),
		compareBool(!f.Failed, !other.Failed), // a paid invoice cannot fail
		cmp.Compare(f.Attempt, other.Attempt),
		cmp.Compare(f.Event, other.Event),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// reportedFailure is the failed payment that the admins were notified of last.
type reportedFailure struct {
	At      time.Time `json:"at,omitzero"`
	Failure string    `json:"failure,omitempty"`
}

// failure identifies a failed attempt across events; empty if the event lacks the
// data.
func (f *invoiceFact) failure() string {
	if f.Invoice == "" || f.Attempt == 0 {
		return ""
	}
	return f.Invoice + "/" + strconv.FormatInt(f.Attempt, 10)
}

// apply adds the facts of an event. It is idempotent, unless the parser has
// changed.
func (s *subscription) apply(p *channel.Payment) {
	s.customerID = cmp.Or(s.customerID, p.CustomerID)
	f := &s.Facts
	if p.OrganizationID != "" && cmp.Or(p.Created.Compare(f.LinkedAt), strings.Compare(p.OrganizationID, s.organizationID)) > 0 {
		s.organizationID, f.LinkedAt = p.OrganizationID, p.Created
	}
	switch p.Kind {
	case channel.SubscriptionCreated, channel.SubscriptionUpdated, channel.SubscriptionDeleted:
		now := stateFact{
			At: p.Created, Event: p.EventID, Status: p.Status, Plan: p.Plan, Prices: p.PriceIDs,
			PeriodEnd: p.PeriodEnd, CancelAtPeriodEnd: p.CancelAtPeriodEnd,
		}
		switch p.Kind {
		case channel.SubscriptionUpdated:
			now.Rank = rankUpdated
		case channel.SubscriptionDeleted:
			now.Rank = rankDeleted
		}
		if now.compare(&f.State) >= 0 {
			f.State = now
		}
	case channel.CheckoutCompleted:
		now := checkoutFact{
			At: p.Created, Event: p.EventID, Plan: p.Plan, Prices: p.PriceIDs,
			Paid: p.PaymentStatus == "paid" || p.PaymentStatus == "no_payment_required",
		}
		if now.compare(&f.Checkout) >= 0 {
			f.Checkout = now
		}
		if now.Paid {
			f.PaidAt = laterOf(f.PaidAt, now.At)
		}
	case channel.InvoicePaid, channel.InvoiceFailed:
		now := invoiceFact{
			At: p.Created, Event: p.EventID, Failed: p.Kind == channel.InvoiceFailed,
			Invoice: p.InvoiceID, First: p.First, Attempt: p.Attempt, PayURL: p.PayURL, Plan: p.Plan,
		}
		if now.compare(&f.Invoice) >= 0 {
			f.Invoice = now
		}
		if !now.Failed {
			f.PaidAt, f.PaidUntil = laterOf(f.PaidAt, now.At), laterOf(f.PaidUntil, p.PeriodEnd)
		}
	}
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (s *subscription) isDeleted() bool { return s.Facts.State.Rank == rankDeleted }

// isEntitled reports whether the subscription gives its plan. One with a failed
// payment does: an invalid card does not end it at once. A payment counts ahead of
// the subscription's own event.
func (s *subscription) isEntitled() bool {
	f := &s.Facts
	if s.isDeleted() {
		return false
	}
	switch f.State.Status {
	case "active", "trialing", "past_due":
		return true
	case "", "incomplete":
		return !f.PaidAt.IsZero() && !f.PaidAt.Before(f.State.At)
	}
	return false
}

// hasBegun reports whether the subscription was ever active. One without a first
// payment decides nothing.
func (s *subscription) hasBegun() bool {
	if s.isDeleted() || !s.Facts.PaidAt.IsZero() {
		return true
	}
	switch s.Facts.State.Status {
	case "", "incomplete", "incomplete_expired":
		return false
	}
	return true
}

// isRenewing reports whether the provider will collect further payments.
func (s *subscription) isRenewing() bool {
	switch s.Facts.State.Status {
	case "unpaid", "paused":
		return !s.isDeleted()
	}
	return s.isEntitled()
}

// isPastDue reports whether the newest event says that a payment failed. Within a
// second the invoice decides.
func (s *subscription) isPastDue() bool {
	state, invoice := &s.Facts.State, &s.Facts.Invoice
	if s.isDeleted() {
		return false
	}
	switch state.Status {
	case "incomplete", "incomplete_expired", "canceled", "paused":
		return false // not begun, or ended
	case "":
		if invoice.First && s.Facts.PaidAt.IsZero() {
			return false // probably not begun: "incomplete" may follow
		}
	}
	if state.At.After(invoice.At) {
		return state.Status == "past_due" || state.Status == "unpaid"
	}
	return invoice.Failed
}

// unreportedFailure returns the failed payment to notify the admins of, if there is
// one.
func (s *subscription) unreportedFailure() (*invoiceFact, bool) {
	f := &s.Facts
	if !s.isPastDue() || !f.Invoice.Failed || !f.Invoice.At.After(f.Told.At) {
		return nil, false
	}
	if same := f.Invoice.failure(); same != "" && same == f.Told.Failure {
		return nil, false
	}
	return &f.Invoice, true
}

// plan returns the plan that was bought: by its price, else by the metadata of the
// checkout, else by the organization's last checkout; empty if none of them names
// one. If prices are configured, an unknown price is for something else, despite
// the organization's last checkout: a payer at another page of the operator's can
// name any organization there.
func (s *subscription) plan(prices map[string]account.Plan) account.Plan {
	f := &s.Facts
	best := account.Free
	for _, ids := range [][]string{f.State.Prices, f.Checkout.Prices} {
		for _, id := range ids {
			if p, ok := prices[id]; ok && p.Compare(best) > 0 {
				best = p
			}
		}
		if best != account.Free {
			return best
		}
	}
	wanted := f.Wanted
	if len(prices) > 0 && len(f.State.Prices)+len(f.Checkout.Prices) > 0 {
		wanted = ""
	}
	for _, text := range []string{f.State.Plan, f.Checkout.Plan, f.Invoice.Plan, string(wanted)} {
		if p, ok := account.ParsePlan(text); ok && p != account.Free {
			return p
		}
	}
	return ""
}

// periodEnd returns the end of the paid period; zero if unknown.
func (s *subscription) periodEnd() time.Time {
	if s.isDeleted() {
		return s.Facts.State.PeriodEnd
	}
	return laterOf(s.Facts.State.PeriodEnd, s.Facts.PaidUntil)
}

// computeStanding returns the standing that an organization's subscriptions give.
// Plan is empty if none decides.
func computeStanding(list []*subscription, w planRequest, prices map[string]account.Plan) account.PlanState {
	var now account.PlanState
	var answered time.Time // requests made before are answered
	for _, s := range list {
		now.PastDue = now.PastDue || s.isPastDue()
		p, entitles := s.plan(prices), s.isEntitled()
		// A subscription without a plan decides nothing, unless it counted as the wanted
		// plan before its price was known.
		if !s.hasBegun() || entitles && p == "" && s.Facts.Wanted == "" {
			continue
		}
		now.Plan = cmp.Or(now.Plan, account.Free)
		if entitles && p.Compare(now.Plan) > 0 {
			now.Plan = p
		}
		answered = laterOf(answered, s.createdAt)
	}
	if now.Plan != "" && w.plan.Compare(now.Plan) > 0 && w.at.After(answered) {
		now.PendingPlan = w.plan
	}
	return now
}

// primary returns the subscription that gives the plan, or else the last one; nil
// if there is none. The list is oldest first.
func (s *Service) primary(list []*subscription) *subscription {
	var best *subscription
	prices := s.checkout.plans
	for _, sub := range list {
		switch {
		case best == nil, !best.isEntitled(),
			sub.isEntitled() && sub.plan(prices).Compare(best.plan(prices)) > 0:
			best = sub
		}
	}
	return best
}
