// Package billing starts checkouts, and keeps each organization's plan in step with
// the payment provider's events.
//
// The provider's events come in any order, repeatedly, or late. So no event acts
// alone: each adds facts to the record of its subscription, of which the newest of
// a kind count, and then the organization's standing is computed from the facts of
// all its subscriptions. The same events in any order result in the same standing.
// Deletion of a subscription is final. An event without a known organization adds
// its facts too; they count once another event names the organization of the
// subscription or its customer.
//
// An organization without subscriptions is never changed: the operator has set its
// plan.
//
// A checkout is a page of the provider. Without a configured provider there is a
// built-in page for development and demos, which reports a payment as the provider
// would: by signed events posted to our own endpoint.
package billing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Config has the parts of a [Service]. All are required but Logger and Audit.
type Config struct {
	DB       *db.DB
	Accounts *account.Service
	Checkout *Checkout // the one that Accounts starts checkouts with
	Mailer   mail.Enqueuer
	MailFrom mail.Address
	BaseURL  string // the public address, without a trailing slash

	// Post posts a signed event to our own endpoint, as the provider would. The
	// built-in checkout reports payments with it.
	Post func(ctx context.Context, event []byte) error

	Audit  *audit.Log   // nil records nothing
	Logger *slog.Logger // nil discards
}

// Service keeps plans in step with payments. It is safe for concurrent use.
type Service struct {
	db       *db.DB
	accounts *account.Service
	checkout *Checkout
	mailer   mail.Enqueuer
	from     mail.Address
	baseURL  string
	post     func(ctx context.Context, event []byte) error
	audit    *audit.Log
	log      *slog.Logger
}

// Open returns the service.
func Open(c Config) *Service {
	s := &Service{
		db: c.DB, accounts: c.Accounts, checkout: c.Checkout, mailer: c.Mailer, from: c.MailFrom,
		baseURL: c.BaseURL, post: c.Post, audit: c.Audit, log: c.Logger,
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s
}

// lockBilling serializes changes of subscriptions. They are rare, and one event can
// concern several subscriptions and organizations.
func lockBilling(ctx context.Context, tx *db.Tx) error { return tx.Lock(ctx, "billing") }

// State is an organization's plan and subscription, for display.
type State struct {
	Plan        account.Plan
	PendingPlan account.Plan // checkout started, not paid; empty: none
	PastDue     bool         // a payment failed and has not succeeded since

	// Of the subscription that gives the plan, or else the last one; empty if there is
	// none.
	SubscriptionID    string
	CustomerID        string
	Status            string    // in the provider's terms: active, past_due, canceled; empty if unknown
	PeriodEnd         time.Time // paid until; zero if unknown
	CancelAtPeriodEnd bool      // the subscription ends then
}

// State returns an organization's plan and subscription. Error: [problem.NotFound].
func (s *Service) State(ctx context.Context, organizationID string) (State, error) {
	o, err := s.accounts.Organization(ctx, organizationID)
	if err != nil {
		return State{}, err
	}
	state := State{Plan: o.Plan, PendingPlan: o.PendingPlan, PastDue: o.PastDue}
	list, err := loadSubscriptions(ctx, s.db, organizationID)
	if err != nil {
		return State{}, err
	}
	if sub := s.primary(list); sub != nil {
		state.SubscriptionID, state.CustomerID, state.Status = sub.id, sub.customerID, sub.Facts.State.Status
		state.PeriodEnd, state.CancelAtPeriodEnd = sub.periodEnd(), sub.Facts.State.CancelAtPeriodEnd
	}
	return state, nil
}

// StartForOrganization returns the URL of a checkout for an existing organization
// on a lower plan, or with an abandoned checkout. Errors: [problem.Forbidden]
// unless u is one of its admins; [problem.Conflict] for a plan the organization
// has, or if a subscription is active.
func (s *Service) StartForOrganization(ctx context.Context, u account.User, wanted account.Plan) (string, error) {
	if wanted != account.Pro && wanted != account.Business {
		var v problem.Validation
		v.Add("planTier", "must be pro or business")
		return "", v.Err()
	}
	if u.OrganizationID == "" || u.Role != account.Admin {
		return "", problem.New(problem.Forbidden, "only admins may do this")
	}
	o, err := s.accounts.Organization(ctx, u.OrganizationID)
	if err != nil {
		return "", err
	}
	if wanted.Compare(o.Plan) <= 0 {
		return "", problem.New(problem.Conflict, "%s has the plan %s already", o.Name, o.Plan)
	}
	list, err := loadSubscriptions(ctx, s.db, o.ID)
	if err != nil {
		return "", err
	}
	for _, sub := range list {
		if sub.isRenewing() {
			return "", problem.New(problem.Conflict,
				"%s has a subscription already; change or cancel it at the payment provider", o.Name)
		}
	}
	url, err := s.checkout.StartCheckout(ctx, account.CheckoutRequest{
		OrganizationID: o.ID, OrganizationName: o.Name, Plan: wanted, UserID: u.ID, Email: u.Email,
	})
	if err != nil {
		return "", fmt.Errorf("start checkout: %w", err)
	}
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		if err := lockBilling(ctx, tx); err != nil {
			return err
		}
		return s.accounts.SetPendingPlanTx(ctx, tx, o.ID, wanted)
	})
	if err != nil {
		return "", err
	}
	return url, nil
}

// CanBuy reports whether a plan can be paid for here.
func (s *Service) CanBuy(p account.Plan) bool {
	return p != account.Free && (s.checkout.builtIn || s.checkout.key != "" && s.checkout.prices[p] != "")
}

// KeyPlan returns the plan of API keys for an organization's plan.
func KeyPlan(p account.Plan) apikey.Plan {
	switch p {
	case account.Pro:
		return apikey.Professional
	case account.Business:
		return apikey.Enterprise
	}
	return apikey.Standard
}

// planRequest is the last checkout that an organization started.
type planRequest struct {
	plan account.Plan // empty: none
	at   time.Time
}

func loadPlanRequest(ctx context.Context, q db.Querier, organizationID string) (planRequest, error) {
	w, err := db.One(ctx, q, func(row db.Row) (planRequest, error) {
		var w planRequest
		err := row.Scan((*string)(&w.plan), db.IntoTime(&w.at))
		return w, err
	}, "SELECT plan, wanted_at FROM billing_wishes WHERE organization_id = $1", organizationID)
	if errors.Is(err, db.ErrNoRows) {
		return planRequest{}, nil
	}
	if err != nil {
		return planRequest{}, fmt.Errorf("load plan request: %w", err)
	}
	return w, nil
}

// savePlanRequest records the plan of a started checkout.
func savePlanRequest(ctx context.Context, d *db.DB, organizationID string, wanted account.Plan) error {
	err := d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO billing_wishes (organization_id, plan, wanted_at) VALUES ($1, $2, $3)
			ON CONFLICT (organization_id) DO UPDATE SET plan = excluded.plan, wanted_at = excluded.wanted_at`,
			organizationID, string(wanted), tx.Now.UnixMicro())
		return err
	})
	if err != nil {
		return fmt.Errorf("save plan request: %w", err)
	}
	return nil
}
