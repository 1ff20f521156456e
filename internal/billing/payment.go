package billing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Result is the effect of an event, for display.
type Result struct {
	Outcome        Outcome      `json:"outcome"`
	SubscriptionID string       `json:"subscription_id,omitempty"`
	OrganizationID string       `json:"organization_id,omitempty"`
	Plan           account.Plan `json:"plan,omitempty"` // of the organization, after the event
	PastDue        bool         `json:"past_due,omitempty"`
	Mails          int          `json:"mails,omitempty"` // admins notified of a failed payment
}

// Outcome is the kind of effect.
type Outcome string

// The outcomes.
const (
	Applied        Outcome = "applied"         // the organization's standing was computed
	Unlinked       Outcome = "unlinked"        // no known organization; effective once linked
	NoSubscription Outcome = "no subscription" // a one-time purchase
)

// IngestPaymentTx applies an event of the payment provider in the caller's transaction.
// Events may repeat, and arrive in any order.
func (s *Service) IngestPaymentTx(ctx context.Context, tx *db.Tx, p *channel.Payment) (any, error) {
	if err := lockBilling(ctx, tx); err != nil {
		return nil, err
	}
	r := Result{Outcome: NoSubscription, SubscriptionID: p.SubscriptionID}
	concerned, lost, err := s.linkCustomer(ctx, tx, p)
	if err != nil {
		return nil, err
	}
	if p.SubscriptionID != "" {
		sub, err := loadSubscription(ctx, tx, p.SubscriptionID)
		if err != nil {
			return nil, err
		}
		before, err := subscriptionOwner(ctx, tx, sub)
		if err != nil {
			return nil, err
		}
		sub.apply(p)
		if err := saveSubscription(ctx, tx, sub); err != nil {
			return nil, err
		}
		owner, err := subscriptionOwner(ctx, tx, sub)
		if err != nil {
			return nil, err
		}
		if before != owner {
			lost = append(lost, before)
		}
		r.Outcome, r.OrganizationID = Unlinked, owner
		concerned = append(concerned, before, owner)
	}
	slices.Sort(concerned) // lock rows in one order
	for _, id := range slices.Compact(concerned) {
		if id == "" {
			continue
		}
		now, mails, known, err := s.reconcile(ctx, tx, id, slices.Contains(lost, id))
		if err != nil {
			return nil, fmt.Errorf("organization %s: %w", id, err)
		}
		if known && id == r.OrganizationID {
			r.Outcome, r.Plan, r.PastDue = Applied, now.Plan, now.PastDue
		}
		r.Mails += mails
	}
	return r, nil
}

// linkCustomer links the provider's customer to the organization that p names. It
// returns the organizations concerned, and among them the one that may have lost a
// subscription.
func (s *Service) linkCustomer(ctx context.Context, tx *db.Tx, p *channel.Payment) (concerned, lost []string, err error) {
	if p.CustomerID == "" || p.OrganizationID == "" {
		return nil, nil, nil
	}
	var before string
	var linkedAt time.Time
	err = tx.QueryRow(ctx, "SELECT organization_id, linked_at FROM billing_customers WHERE id = $1", p.CustomerID).
		Scan(&before, db.IntoTime(&linkedAt))
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return nil, nil, fmt.Errorf("find customer: %w", err)
	}
	if order := p.Created.Compare(linkedAt); order < 0 || order == 0 && strings.Compare(p.OrganizationID, before) <= 0 {
		return nil, nil, nil
	}
	if before != "" && before != p.OrganizationID {
		list, err := loadSubscriptions(ctx, tx, before)
		if err != nil {
			return nil, nil, err
		}
		if len(list) > 0 {
			lost = append(lost, before)
		}
	}
	if err := tx.Queue(ctx, `INSERT INTO billing_customers (id, organization_id, linked_at) VALUES ($1, $2, $3)
		ON CONFLICT (id) DO UPDATE SET organization_id = excluded.organization_id, linked_at = excluded.linked_at`,
		p.CustomerID, p.OrganizationID, p.Created.UnixMicro()); err != nil {
		return nil, nil, fmt.Errorf("link customer: %w", err)
	}
	if before == p.OrganizationID {
		return nil, nil, nil
	}
	return []string{before, p.OrganizationID}, lost, nil
}

// subscriptionOwner returns a subscription's organization: as named by its events,
// else the one of its customer; empty if unknown.
func subscriptionOwner(ctx context.Context, tx *db.Tx, sub *subscription) (string, error) {
	if sub.organizationID != "" || sub.customerID == "" {
		return sub.organizationID, nil
	}
	var owner string
	err := tx.QueryRow(ctx, "SELECT organization_id FROM billing_customers WHERE id = $1", sub.customerID).Scan(&owner)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return "", fmt.Errorf("find customer: %w", err)
	}
	return owner, nil
}

// reconcile sets an organization's standing from its subscriptions, and notifies
// its admins of a failed payment. It returns the standing, the number of mails, and
// whether the organization exists. An organization without subscriptions is not
// changed, unless it has just lost one.
func (s *Service) reconcile(ctx context.Context, tx *db.Tx, id string, lost bool) (now account.PlanState, mails int, known bool, err error) {
	list, err := loadSubscriptions(ctx, tx, id)
	if err != nil || len(list) == 0 && !lost {
		return now, 0, false, err
	}
	w, err := loadPlanRequest(ctx, tx, id)
	if err != nil {
		return now, 0, false, err
	}
	for _, sub := range list {
		if sub.Facts.Wanted != "" || w.plan == "" {
			continue
		}
		sub.Facts.Wanted = w.plan
		if err := saveSubscription(ctx, tx, sub); err != nil {
			return now, 0, false, err
		}
	}
	now = computeStanding(list, w, s.checkout.plans)
	if len(list) == 0 {
		now.Plan = account.Free
	}
	before, err := s.accounts.SetPlanStateTx(ctx, tx, id, now)
	if problem.Of(err) == problem.NotFound {
		return now, 0, false, nil
	}
	if err != nil {
		return now, 0, false, err
	}
	if now.Plan == "" {
		now.Plan = before.Plan
	}
	if now.Plan != before.Plan || now.PastDue != before.PastDue {
		tx.AfterCommit(func() {
			s.log.InfoContext(ctx, "an organization's standing has changed",
				"organization", id, "was", before.Plan, "plan", now.Plan, "past due", now.PastDue)
		})
	}
	for _, sub := range list {
		failed, ok := sub.unreportedFailure()
		if !ok {
			continue
		}
		n, err := s.notifyAdmins(ctx, tx, before, now.Plan, sub, failed)
		if err != nil {
			return now, 0, true, err
		}
		mails += n
		sub.Facts.Told = reportedFailure{At: failed.At, Failure: failed.failure()}
		if err := saveSubscription(ctx, tx, sub); err != nil {
			return now, 0, true, err
		}
	}
	return now, mails, true, nil
}

// notifyAdmins mails the admins of an organization with the plan now that a payment
// failed. It returns the number of mails.
func (s *Service) notifyAdmins(ctx context.Context, tx *db.Tx, o account.Organization, now account.Plan, sub *subscription, failed *invoiceFact) (int, error) {
	admins, err := s.accounts.AdminEmails(ctx, tx, o.ID)
	if err != nil {
		return 0, fmt.Errorf("find admins: %w", err)
	}
	name := mail.PlainName(o.Name, "your organization")
	next := "Nothing changes for now. Payment will be tried again in the next days; if it keeps failing, the subscription ends."
	if sub.hasBegun() && !sub.isEntitled() {
		next = fmt.Sprintf("Until it is paid, %s has the plan %s.", name, now)
	}
	l := mail.Notification{
		Subject: "A payment for " + name + " failed",
		Before: []string{
			fmt.Sprintf("The payment for the plan %s of %s could not be collected.", cmp.Or(sub.plan(s.checkout.plans), now), name),
			next + " Please check that the payment method is still valid.",
		},
		Action: mail.Action{Label: "Open Kickstand", URL: s.baseURL + "/"},
		After:  []string{"You get this mail because you are an admin of " + name + "."},
	}
	if failed.PayURL != "" {
		l.Action = mail.Action{Label: "Pay the invoice", URL: failed.PayURL}
	}
	for _, admin := range admins {
		m, err := l.Message(s.from, mail.Address{Address: admin})
		if err != nil {
			return 0, err
		}
		if err := s.mailer.EnqueueMailTx(ctx, tx, m); err != nil {
			return 0, fmt.Errorf("notify %s: %w", o.ID, err)
		}
	}
	return len(admins), nil
}

const subscriptionColumns = "s.id, s.customer_id, s.organization_id, s.facts, s.created_at"

func scanSubscription(row db.Row) (*subscription, error) {
	var s subscription
	err := row.Scan(&s.id, db.IntoText(&s.customerID), db.IntoText(&s.organizationID), db.IntoJSON(&s.Facts), db.IntoTime(&s.createdAt))
	return &s, err
}

// loadSubscription returns a subscription, or a new one for an unknown id.
func loadSubscription(ctx context.Context, tx *db.Tx, id string) (*subscription, error) {
	s, err := db.One(ctx, tx, scanSubscription, "SELECT "+subscriptionColumns+" FROM billing_subscriptions s WHERE s.id = $1", id)
	if errors.Is(err, db.ErrNoRows) {
		return &subscription{id: id, createdAt: tx.Now}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find subscription: %w", err)
	}
	return s, nil
}

// loadSubscriptions returns an organization's subscriptions, oldest first.
func loadSubscriptions(ctx context.Context, q db.Querier, organizationID string) ([]*subscription, error) {
	list, err := db.All(ctx, q, scanSubscription, "SELECT "+subscriptionColumns+` FROM billing_subscriptions s
		WHERE s.organization_id = $1
			OR s.organization_id IS NULL AND s.customer_id IN (SELECT c.id FROM billing_customers c WHERE c.organization_id = $1)
		ORDER BY s.created_at, s.id`, organizationID)
	if err != nil {
		return nil, fmt.Errorf("find subscriptions: %w", err)
	}
	return list, nil
}

func saveSubscription(ctx context.Context, tx *db.Tx, s *subscription) error {
	_, err := tx.Exec(ctx, `INSERT INTO billing_subscriptions (id, customer_id, organization_id, facts, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (id) DO UPDATE SET customer_id = excluded.customer_id, organization_id = excluded.organization_id,
			facts = excluded.facts, updated_at = excluded.updated_at`,
		s.id, db.Text(s.customerID), db.Text(s.organizationID), db.JSON(s.Facts), s.createdAt.UnixMicro(), tx.Now.UnixMicro())
	if err != nil {
		return fmt.Errorf("save subscription: %w", err)
	}
	return nil
}
