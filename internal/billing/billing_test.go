package billing_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

const baseURL = "https://help.example"

// outbox stores mails of committed transactions.
type outbox struct {
	mu    sync.Mutex
	mails []mail.Message
}

func (o *outbox) EnqueueMailTx(_ context.Context, tx *db.Tx, m mail.Message) error {
	tx.AfterCommit(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.mails = append(o.mails, m)
	})
	return nil
}

type fixture struct {
	*billing.Service
	db       *db.DB
	accounts *account.Service
	checkout *billing.Checkout
	mail     *outbox
	posted   [][]byte // what the built-in checkout posted
	postErr  error    // the error of posting
}

func newBox(t testing.TB) *seal.Box {
	t.Helper()
	keys, err := seal.LoadOrCreateKeys(t.TempDir() + "/key")
	if err != nil {
		t.Fatal(err)
	}
	return seal.New(keys[0])
}

func newFixture(t testing.TB, d *db.DB, change ...func(*billing.CheckoutConfig)) *fixture {
	t.Helper()
	f := &fixture{db: d, mail: new(outbox)}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	c := billing.CheckoutConfig{
		DB: d, Box: newBox(t), BaseURL: baseURL, Logger: log,
		Prices: map[account.Plan]string{account.Pro: "price_pro", account.Business: "price_business"},
	}
	for _, fn := range change {
		fn(&c)
	}
	var err error
	if f.checkout, err = billing.NewCheckout(c); err != nil {
		t.Fatal(err)
	}
	from := mail.Address{Name: "Kickstand", Address: "no-reply@help.example"}
	f.accounts, err = account.New(account.Config{DB: d, Mailer: f.mail, MailFrom: from, BaseURL: baseURL, Checkout: f.checkout, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	f.Service = billing.Open(billing.Config{
		DB: d, Accounts: f.accounts, Checkout: f.checkout, Mailer: f.mail, MailFrom: from, BaseURL: baseURL, Logger: log,
		Post: func(_ context.Context, event []byte) error {
			f.posted = append(f.posted, event)
			return f.postErr
		},
	})
	return f
}

// organization creates an organization with an admin and an agent.
func (f *fixture) organization(t testing.TB, name string, plan account.Plan) account.Organization {
	t.Helper()
	o, err := f.accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: name, Plan: plan})
	if err != nil {
		t.Fatal(err)
	}
	for role, local := range map[account.Role]string{account.Admin: "admin", account.Agent: "agent"} {
		if _, err := f.accounts.CreateUser(t.Context(), account.NewUser{
			Email: local + "@" + o.Slug + ".example", Organization: o.Slug, Role: role,
		}); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// user returns a user of [fixture.organization].
func (f *fixture) user(t testing.TB, o account.Organization, role account.Role) account.User {
	t.Helper()
	id, err := db.One(t.Context(), f.db, func(row db.Row) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, "SELECT id FROM users WHERE organization_id = $1 AND role = $2", o.ID, string(role))
	if err != nil {
		t.Fatal(err)
	}
	u, err := f.accounts.User(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// intake applies events, each in a transaction of its own.
func (f *fixture) intake(t testing.TB, events ...channel.Payment) billing.Result {
	t.Helper()
	var last billing.Result
	for _, e := range events {
		if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
			r, err := f.IngestPaymentTx(t.Context(), tx, &e)
			if err == nil {
				last = r.(billing.Result)
			}
			return err
		}); err != nil {
			t.Fatalf("%s: %v", e.Kind, err)
		}
	}
	return last
}

func (f *fixture) state(t testing.TB, o account.Organization) billing.State {
	t.Helper()
	s, err := f.State(t.Context(), o.ID)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// standing is the part of a state that a table compares.
func (f *fixture) standing(t testing.TB, o account.Organization) account.PlanState {
	t.Helper()
	s := f.state(t, o)
	return account.PlanState{Plan: s.Plan, PendingPlan: s.PendingPlan, PastDue: s.PastDue}
}

// at is a time by the provider's clock, in minutes.
func at(minute int) time.Time {
	return time.Unix(1_800_000_000, 0).UTC().Add(time.Duration(minute) * time.Minute)
}

// The events of one subscription "sub_1" of the customer "cus_1". Only a
// checkout names the organization.
func checkout(minute int, status string, org account.Organization, plan string) channel.Payment {
	return channel.Payment{
		EventID: fmt.Sprintf("evt_checkout_%d", minute), Kind: channel.CheckoutCompleted, Created: at(minute),
		OrganizationID: org.ID, CustomerID: "cus_1", SubscriptionID: "sub_1", SessionID: "cs_1", PaymentStatus: status, Plan: plan,
	}
}

func subscription(kind channel.PaymentKind, minute int, status, price string) channel.Payment {
	p := channel.Payment{
		EventID: fmt.Sprintf("evt_sub_%s_%d", status, minute), Kind: kind, Created: at(minute),
		CustomerID: "cus_1", SubscriptionID: "sub_1", Status: status, PeriodEnd: at(minute + 43_200),
	}
	if price != "" {
		p.PriceIDs = []string{price}
	}
	return p
}

func invoice(kind channel.PaymentKind, minute int, id string, attempt int64) channel.Payment {
	return channel.Payment{
		EventID: fmt.Sprintf("evt_invoice_%s_%d_%s", id, attempt, kind), Kind: kind, Created: at(minute),
		CustomerID: "cus_1", SubscriptionID: "sub_1", InvoiceID: id, Attempt: attempt, PayURL: "https://pay.example/" + id,
		PeriodEnd: at(minute + 43_200),
	}
}

func TestSignup(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	o := f.organization(t, "Acme", account.Free)
	r := f.intake(t, subscription(channel.SubscriptionCreated, 0, "active", "price_pro"))
	if want := (billing.Result{Outcome: billing.Unlinked, SubscriptionID: "sub_1"}); r != want {
		t.Errorf("a subscription of nobody: got %+v, want %+v", r, want)
	}
	if got := f.standing(t, o); got != (account.PlanState{Plan: account.Free}) {
		t.Errorf("before it is linked: got %+v, want free", got)
	}
	r = f.intake(t, checkout(0, "paid", o, "pro"))
	if want := (billing.Result{Outcome: billing.Applied, SubscriptionID: "sub_1", OrganizationID: o.ID, Plan: account.Pro}); r != want {
		t.Errorf("a paid checkout: got %+v, want %+v", r, want)
	}
	f.intake(t, subscription(channel.SubscriptionUpdated, 5, "active", "price_pro"))
	want := billing.State{
		Plan: account.Pro, SubscriptionID: "sub_1", CustomerID: "cus_1", Status: "active", PeriodEnd: at(43_205),
	}
	if got := f.state(t, o); got != want {
		t.Errorf("State() = %+v, want %+v", got, want)
	}
	cancelled := subscription(channel.SubscriptionUpdated, 6, "active", "price_pro")
	cancelled.CancelAtPeriodEnd = true
	f.intake(t, cancelled)
	if got := f.state(t, o); !got.CancelAtPeriodEnd || got.Plan != account.Pro {
		t.Errorf("cancelled at the end of the period: %+v, want pro until then", got)
	}
	f.intake(t, subscription(channel.SubscriptionDeleted, 43_205, "canceled", "price_pro"))
	if got := f.state(t, o); got.Plan != account.Free || got.Status != "canceled" {
		t.Errorf("deleted: %+v, want free", got)
	}
	if n := len(f.mail.mails); n != 0 {
		t.Errorf("%d mails were sent, want none", n)
	}
}

// TestUntouched: an operator's plan stays, despite payments of other organizations.
func TestUntouched(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	given, other := f.organization(t, "Given", account.Business), f.organization(t, "Other", account.Free)
	f.intake(t, checkout(0, "paid", other, "pro"), subscription(channel.SubscriptionDeleted, 9, "canceled", ""))
	once := checkout(1, "paid", given, "pro")
	once.SubscriptionID, once.CustomerID = "", "cus_given"
	if r := f.intake(t, once); r != (billing.Result{Outcome: billing.NoSubscription}) {
		t.Errorf("bought once: got %+v, want that it is no subscription", r)
	}
	// A failed first payment begins nothing.
	begun := subscription(channel.SubscriptionCreated, 2, "incomplete", "price_pro")
	begun.SubscriptionID, begun.CustomerID = "sub_given", "cus_given"
	tried := invoice(channel.InvoiceFailed, 2, "in_given", 1)
	tried.SubscriptionID, tried.CustomerID = "sub_given", "cus_given"
	r := f.intake(t, begun, tried)
	if want := (billing.Result{Outcome: billing.Applied, SubscriptionID: "sub_given", OrganizationID: given.ID, Plan: account.Business}); r != want {
		t.Errorf("a first payment that failed: got %+v, want %+v", r, want)
	}
	if got := f.standing(t, given); got != (account.PlanState{Plan: account.Business}) {
		t.Errorf("the organization with a given plan stands at %+v, want business", got)
	}
	if n := len(f.mail.mails); n != 0 {
		t.Errorf("%d mails were sent, want none", n)
	}
}

// TestUnknownOrganization: another installation's organization is no error.
func TestUnknownOrganization(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	r := f.intake(t, checkout(0, "paid", account.Organization{ID: "elsewhere"}, "pro"), invoice(channel.InvoiceFailed, 1, "in_1", 1))
	if want := (billing.Result{Outcome: billing.Unlinked, SubscriptionID: "sub_1", OrganizationID: "elsewhere"}); r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
}

// TestPlan: several fields can name the plan.
func TestPlan(t *testing.T) {
	d := dbtest.New(t)
	f := newFixture(t, d)
	for i, tt := range []struct {
		name   string
		events func(o account.Organization) []channel.Payment
		want   account.Plan
	}{
		{"by price", func(o account.Organization) []channel.Payment {
			return []channel.Payment{checkout(0, "paid", o, "pro"), subscription(channel.SubscriptionCreated, 0, "active", "price_business")}
		}, account.Business},
		{"by the highest of several prices", func(o account.Organization) []channel.Payment {
			s := subscription(channel.SubscriptionCreated, 0, "active", "price_business")
			s.PriceIDs = []string{"price_extra", "price_business", "price_pro"}
			return []channel.Payment{checkout(0, "paid", o, ""), s}
		}, account.Business},
		{"by the subscription's metadata", func(o account.Organization) []channel.Payment {
			s := subscription(channel.SubscriptionCreated, 0, "active", "price_old")
			s.Plan = "business"
			return []channel.Payment{checkout(0, "paid", o, "pro"), s}
		}, account.Business},
		{"by the checkout's metadata", func(o account.Organization) []channel.Payment {
			return []channel.Payment{checkout(0, "no_payment_required", o, "pro"), subscription(channel.SubscriptionCreated, 0, "trialing", "price_old")}
		}, account.Pro},
		{"by the checkout's prices", func(o account.Organization) []channel.Payment {
			c := checkout(0, "paid", o, "pro")
			c.PriceIDs = []string{"price_business"}
			return []channel.Payment{c}
		}, account.Business},
		{"not at all", func(o account.Organization) []channel.Payment {
			return []channel.Payment{checkout(0, "paid", o, "gold"), subscription(channel.SubscriptionCreated, 0, "active", "price_old")}
		}, account.Free},
		{"an unpaid checkout", func(o account.Organization) []channel.Payment {
			return []channel.Payment{checkout(0, "unpaid", o, "pro")}
		}, account.Free},
		{"an unpaid subscription", func(o account.Organization) []channel.Payment {
			return []channel.Payment{checkout(0, "paid", o, "pro"), subscription(channel.SubscriptionUpdated, 9, "unpaid", "price_pro")}
		}, account.Free},
		{"a payment before its effect is told", func(o account.Organization) []channel.Payment {
			return []channel.Payment{subscription(channel.SubscriptionCreated, 0, "incomplete", "price_pro"), checkout(0, "paid", o, "")}
		}, account.Pro},
	} {
		o := f.organization(t, fmt.Sprintf("Plan %d", i), account.Free)
		events := tt.events(o)
		own(events, fmt.Sprint(i))
		f.intake(t, events...)
		if got := f.state(t, o).Plan; got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

// own gives events their own subscription and customer.
func own(events []channel.Payment, name string) {
	for i := range events {
		if events[i].SubscriptionID != "" {
			events[i].SubscriptionID += "_" + name
		}
		events[i].CustomerID += "_" + name
	}
}

// TestWantedPlan: a checkout without a plan is for the one requested at sign-up.
func TestWantedPlan(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	o := f.organization(t, "Acme", account.Free)
	if _, err := f.StartForOrganization(t.Context(), f.user(t, o, account.Admin), account.Business); err != nil {
		t.Fatal(err)
	}
	if got, want := f.standing(t, o), (account.PlanState{Plan: account.Free, PendingPlan: account.Business}); got != want {
		t.Errorf("at the checkout: got %+v, want %+v", got, want)
	}
	f.intake(t, checkout(0, "paid", o, ""))
	if got, want := f.standing(t, o), (account.PlanState{Plan: account.Business}); got != want {
		t.Errorf("paid: got %+v, want %+v", got, want)
	}
	f.intake(t, subscription(channel.SubscriptionDeleted, 1, "canceled", ""))
	if got, want := f.standing(t, o), (account.PlanState{Plan: account.Free}); got != want {
		t.Errorf("deleted: got %+v, want %+v", got, want)
	}
	// A later request is not answered by the old subscription.
	if _, err := f.StartForOrganization(t.Context(), f.user(t, o, account.Admin), account.Pro); err != nil {
		t.Fatal(err)
	}
	f.intake(t, subscription(channel.SubscriptionDeleted, 1, "canceled", ""))
	if got, want := f.standing(t, o), (account.PlanState{Plan: account.Free, PendingPlan: account.Pro}); got != want {
		t.Errorf("wanted again: got %+v, want %+v", got, want)
	}
}

func TestStartForOrganization(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	o := f.organization(t, "Acme", account.Free)
	given := f.organization(t, "Given", account.Pro)
	admin, agent := f.user(t, o, account.Admin), f.user(t, o, account.Agent)
	start := func(u account.User, p account.Plan) error {
		_, err := f.StartForOrganization(t.Context(), u, p)
		return err
	}
	for _, tt := range []struct {
		name string
		err  error
		want problem.Kind
	}{
		{"an agent", start(agent, account.Pro), problem.Forbidden},
		{"nobody's", start(account.User{ID: "x"}, account.Pro), problem.Forbidden},
		{"free", start(admin, account.Free), problem.Invalid},
		{"no plan", start(admin, "gold"), problem.Invalid},
		{"what it was given", start(f.user(t, given, account.Admin), account.Pro), problem.Conflict},
	} {
		if got := problem.Of(tt.err); tt.err == nil || got != tt.want {
			t.Errorf("%s: got %v, want the kind %v", tt.name, tt.err, tt.want)
		}
	}
	if err := start(f.user(t, given, account.Admin), account.Business); err != nil {
		t.Errorf("more than it was given: %v", err)
	}
	for range 2 { // the first checkout is abandoned
		url, err := f.StartForOrganization(t.Context(), admin, account.Pro)
		if err != nil || !strings.HasPrefix(url, baseURL+billing.DevCheckoutPath) {
			t.Errorf("StartForOrganization() = %q, %v; want a checkout", url, err)
		}
	}
	f.intake(t, checkout(0, "paid", o, "pro"))
	if err := start(admin, account.Pro); problem.Of(err) != problem.Conflict {
		t.Errorf("what is paid already: %v, want a conflict", err)
	}
	if err := start(admin, account.Business); problem.Of(err) != problem.Conflict || !strings.Contains(err.Error(), "payment provider") {
		t.Errorf("a second subscription: %v, want a conflict that tells where to go", err)
	}
	f.intake(t, subscription(channel.SubscriptionUpdated, 1, "unpaid", "price_pro"))
	if err := start(admin, account.Business); problem.Of(err) != problem.Conflict {
		t.Errorf("beside a subscription that is not paid for: %v, want a conflict", err)
	}
	f.intake(t, subscription(channel.SubscriptionDeleted, 2, "canceled", "price_pro"))
	if err := start(admin, account.Pro); err != nil {
		t.Errorf("after the subscription: %v", err)
	}
}

// TestLinkMoves: a subscription that the operator moves to another organization
// counts there only.
func TestLinkMoves(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	a, b := f.organization(t, "A", account.Free), f.organization(t, "B", account.Free)
	f.intake(t, checkout(0, "paid", a, "pro"))
	moved := subscription(channel.SubscriptionUpdated, 1, "active", "price_pro")
	moved.OrganizationID = b.ID
	f.intake(t, moved, checkout(0, "paid", a, "pro"))
	if pa, pb := f.state(t, a).Plan, f.state(t, b).Plan; pa != account.Free || pb != account.Pro {
		t.Errorf("A has %s and B %s, want free and pro", pa, pb)
	}
}

// TestCustomerMoves: a subscription linked by its customer only follows the
// customer.
func TestCustomerMoves(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	a, b, given := f.organization(t, "A", account.Free), f.organization(t, "B", account.Free), f.organization(t, "Given", account.Business)
	once := checkout(0, "paid", given, "")
	once.SubscriptionID = ""
	f.intake(t, once)
	once.OrganizationID, once.Created = a.ID, at(1)
	f.intake(t, once, subscription(channel.SubscriptionCreated, 1, "active", "price_pro"))
	if got := f.state(t, a).Plan; got != account.Pro {
		t.Fatalf("A has %s, want pro by its customer", got)
	}
	once.OrganizationID, once.Created = b.ID, at(2)
	f.intake(t, once)
	if pa, pb := f.state(t, a).Plan, f.state(t, b).Plan; pa != account.Free || pb != account.Pro {
		t.Errorf("the customer is B's: A has %s and B %s, want free and pro", pa, pb)
	}
	named := subscription(channel.SubscriptionUpdated, 1, "active", "price_pro") // no event of the customer
	named.OrganizationID = a.ID
	f.intake(t, named)
	if pa, pb := f.state(t, a).Plan, f.state(t, b).Plan; pa != account.Pro || pb != account.Free {
		t.Errorf("the subscription is A's: A has %s and B %s, want pro and free", pa, pb)
	}
	if got := f.state(t, given).Plan; got != account.Business {
		t.Errorf("who lost a customer without subscriptions has %s, want business as given", got)
	}
}

// TestOtherProduct: another product of the same account, at a checkout that can
// name any organization, does not count as the requested plan.
func TestOtherProduct(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	for order := range permutations(3) {
		o := f.organization(t, "Acme", account.Free)
		if _, err := f.StartForOrganization(t.Context(), f.user(t, o, account.Admin), account.Business); err != nil {
			t.Fatal(err)
		}
		events := []channel.Payment{
			checkout(0, "paid", o, ""), subscription(channel.SubscriptionCreated, 0, "active", "price_donation"), invoice(channel.InvoicePaid, 0, "in_1", 1),
		}
		own(events, o.ID)
		for _, i := range order {
			f.intake(t, events[i])
		}
		if got := f.state(t, o).Plan; got != account.Free {
			t.Errorf("told in the order %v: got %s, want free", order, got)
		}
		events[1].Plan, events[1].Created = "pro", at(1)
		f.intake(t, events[1])
		if got := f.state(t, o).Plan; got != account.Pro {
			t.Errorf("with metadata: got %s, want pro", got)
		}
	}
}

// TestParallel: concurrent events of several subscriptions of one organization.
func TestParallel(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	o := f.organization(t, "Acme", account.Free)
	var wg sync.WaitGroup
	for i := range 8 {
		e := checkout(i, "paid", o, "pro")
		if i == 5 {
			e.Plan = "business"
		}
		e.SubscriptionID = fmt.Sprintf("sub_%d", i)
		wg.Go(func() { f.intake(t, e) })
	}
	wg.Wait()
	if got := f.standing(t, o); got != (account.PlanState{Plan: account.Business}) {
		t.Errorf("got %+v, want business", got)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
