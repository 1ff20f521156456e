// Package billing is what organizations pay for: it starts checkouts, and keeps
// each organization's plan in step with what the payment provider says.
//
// The provider's events come in any order, twice, or late. So nothing is done
// by an event alone: each adds facts to the record of its subscription, of
// which the newest of a kind count, and then the organization's standing is
// computed anew from the facts of all its subscriptions. The same events in any
// order therefore end in the same standing. That a subscription was deleted is
// final. An event whose organization is not known (yet) adds its facts all the
// same; they count once another event tells whose the subscription, or its
// customer, is.
//
// An organization that has no subscription is never touched: its plan was given
// by the operator.
//
// A checkout is the provider's own page. Where no provider is configured there
// is a page of ours, for development and demos, which tells of a payment as the
// provider would: by signed events posted to our own endpoint.
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

// Config is what a [Service] is made of. All is required but Logger.
type Config struct {
	DB       *db.DB
	Accounts *account.Service
	Checkout *Checkout // the one that Accounts sends people to
	Mailer   account.Mailer
	MailFrom mail.Address
	BaseURL  string // the public address, without a trailing slash

	// Post hands an event to our own endpoint as the provider would, signed. It
	// is how the built-in checkout tells of a payment.
	Post func(ctx context.Context, event []byte) error

	Audit  *audit.Log   // nil records nothing
	Logger *slog.Logger // nil discards
}

// Service keeps plans in step with payments. It is safe for concurrent use.
type Service struct {
	db       *db.DB
	accounts *account.Service
	checkout *Checkout
	mailer   account.Mailer
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

// lock makes changes to what is paid for one after the other. They are rare, and
// one event can concern several subscriptions and organizations.
func lock(ctx context.Context, tx *db.Tx) error { return tx.Lock(ctx, "billing") }

// State is what an organization pays for, for people to look at.
type State struct {
	Plan        account.Plan
	PendingPlan account.Plan // went to the checkout for it, and has not paid; empty for none
	PastDue     bool         // a payment failed and was not made up for

	// Of the subscription that gives the plan, or else the last one; empty when
	// there is none.
	SubscriptionID    string
	CustomerID        string
	Status            string    // the provider's word: active, past_due, canceled; empty when not known
	PeriodEnd         time.Time // until when is paid; zero when not known
	CancelAtPeriodEnd bool      // it ends then
}

// State returns what an organization pays for, or a [problem.NotFound].
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

// StartForOrganization returns the URL of a page on which an organization that
// exists can pay for a plan: one that was free so far, or whose checkout was
// left. The user must be one of its admins: others get a [problem.Forbidden]. A
// plan that the organization has, or a subscription that goes on, is a
// [problem.Conflict]: to pay twice would help nobody.
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
				"%s pays for a subscription already; it is changed or cancelled with the payment provider, not by paying for another", o.Name)
		}
	}
	url, err := s.checkout.StartCheckout(ctx, account.CheckoutRequest{
		OrganizationID: o.ID, OrganizationName: o.Name, Plan: wanted, UserID: u.ID, Email: u.Email,
	})
	if err != nil {
		return "", fmt.Errorf("start checkout: %w", err)
	}
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		if err := lock(ctx, tx); err != nil {
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

// KeyPlan is what a plan is for API keys.
func KeyPlan(p account.Plan) apikey.Plan {
	switch p {
	case account.Pro:
		return apikey.Professional
	case account.Business:
		return apikey.Enterprise
	}
	return apikey.Standard
}

// planRequest is the plan for which an organization went to the checkout last.
type planRequest struct {
	plan account.Plan // empty: it never did
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
		return planRequest{}, fmt.Errorf("read wanted plan: %w", err)
	}
	return w, nil
}

// savePlanRequest notes for which plan an organization goes to the checkout.
func savePlanRequest(ctx context.Context, d *db.DB, organizationID string, wanted account.Plan) error {
	err := d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO billing_wishes (organization_id, plan, wanted_at) VALUES ($1, $2, $3)
			ON CONFLICT (organization_id) DO UPDATE SET plan = excluded.plan, wanted_at = excluded.wanted_at`,
			organizationID, string(wanted), tx.Now.UnixMicro())
		return err
	})
	if err != nil {
		return fmt.Errorf("note wanted plan: %w", err)
	}
	return nil
}
