package billing_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// permutations yields every order of the indices below n.
func permutations(n int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		var visit func(k int) bool
		visit = func(k int) bool {
			if k == n {
				return yield(order)
			}
			for i := k; i < n; i++ {
				order[k], order[i] = order[i], order[k]
				if !visit(k + 1) {
					return false
				}
				order[k], order[i] = order[i], order[k]
			}
			return true
		}
		visit(0)
	}
}

func TestPermutations(t *testing.T) {
	seen := map[string]bool{}
	for order := range permutations(4) {
		seen[fmt.Sprint(order)] = true
	}
	if len(seen) != 24 {
		t.Fatalf("%d orders of four, want 24", len(seen))
	}
}

// TestAnyOrder: short sequences of events have the same result in every order, with
// repetitions.
func TestAnyOrder(t *testing.T) {
	const (
		created, updated, deleted = channel.SubscriptionCreated, channel.SubscriptionUpdated, channel.SubscriptionDeleted
		paid, failed              = channel.InvoicePaid, channel.InvoiceFailed
	)
	upgraded := func(minute int, status, price, sub string) channel.Payment {
		p := subscription(updated, minute, status, price)
		p.SubscriptionID = sub
		return p
	}
	f := newFixture(t, dbtest.New(t))
	for _, tt := range []struct {
		name  string
		story func(o account.Organization) []channel.Payment
		want  account.PlanState
	}{
		{"sign-up", func(o account.Organization) []channel.Payment {
			return []channel.Payment{
				subscription(created, 0, "incomplete", "price_pro"), invoice(paid, 0, "in_1", 1),
				subscription(updated, 0, "active", "price_pro"), checkout(0, "paid", o, "pro"),
			}
		}, account.PlanState{Plan: account.Pro}},
		{"sign-up to a deployment that knows no prices", func(o account.Organization) []channel.Payment {
			return []channel.Payment{
				subscription(created, 0, "active", ""), invoice(paid, 0, "in_1", 1), checkout(0, "paid", o, ""),
			}
		}, account.PlanState{Plan: account.Business}},
		{"trial", func(o account.Organization) []channel.Payment {
			return []channel.Payment{
				subscription(created, 0, "trialing", "price_pro"), checkout(0, "no_payment_required", o, "pro"),
				subscription(updated, 20_000, "active", "price_pro"), invoice(paid, 20_000, "in_1", 1),
			}
		}, account.PlanState{Plan: account.Pro}},
		{"renewal fails", func(o account.Organization) []channel.Payment {
			return []channel.Payment{
				subscription(created, 0, "active", "price_pro"), checkout(0, "paid", o, "pro"), invoice(paid, 0, "in_1", 1),
				invoice(failed, 43_260, "in_2", 1), subscription(updated, 43_260, "past_due", "price_pro"),
			}
		}, account.PlanState{Plan: account.Pro, PastDue: true}},
		{"renewal fails and is made up for", func(o account.Organization) []channel.Payment {
			return []channel.Payment{
				subscription(created, 0, "active", "price_pro"), checkout(0, "paid", o, "pro"),
				invoice(failed, 43_260, "in_2", 1), subscription(updated, 43_260, "past_due", "price_pro"),
				invoice(paid, 47_580, "in_2", 2), subscription(updated, 47_580, "active", "price_pro"),
			}
		}, account.PlanState{Plan: account.Pro}},
		{"renewal fails for good", func(o account.Organization) []channel.Payment {
			return []channel.Payment{
				checkout(0, "paid", o, "pro"), subscription(created, 0, "active", "price_pro"),
				invoice(failed, 43_260, "in_2", 1), invoice(failed, 47_580, "in_2", 2),
				subscription(updated, 47_580, "unpaid", "price_pro"),
			}
		}, account.PlanState{Plan: account.Free, PastDue: true}},
		{"upgrade", func(o account.Organization) []channel.Payment {
			return []channel.Payment{
				checkout(0, "paid", o, "pro"), subscription(created, 0, "active", "price_pro"), invoice(paid, 0, "in_1", 1),
				subscription(updated, 90, "active", "price_business"), invoice(paid, 90, "in_2", 1),
			}
		}, account.PlanState{Plan: account.Business}},
		{"downgrade", func(o account.Organization) []channel.Payment {
			return []channel.Payment{
				checkout(0, "paid", o, "business"), subscription(created, 0, "active", "price_business"),
				subscription(updated, 90, "active", "price_pro"),
			}
		}, account.PlanState{Plan: account.Pro}},
		{"cancelled at the end of the period, then deleted", func(o account.Organization) []channel.Payment {
			cancelled := subscription(updated, 90, "active", "price_pro")
			cancelled.CancelAtPeriodEnd = true
			return []channel.Payment{
				checkout(0, "paid", o, "pro"), subscription(created, 0, "active", "price_pro"), invoice(paid, 0, "in_1", 1),
				cancelled, subscription(deleted, 43_200, "canceled", "price_pro"),
			}
		}, account.PlanState{Plan: account.Free}},
		{"all in one second", func(o account.Organization) []channel.Payment {
			return []channel.Payment{
				checkout(0, "paid", o, "pro"), subscription(created, 0, "active", "price_pro"), invoice(failed, 0, "in_1", 1),
				subscription(updated, 0, "past_due", "price_pro"), subscription(deleted, 0, "canceled", "price_pro"),
			}
		}, account.PlanState{Plan: account.Free}},
		{"made and changed in one second", func(o account.Organization) []channel.Payment {
			first, second := subscription(created, 0, "active", "price_pro"), subscription(updated, 0, "active", "price_business")
			first.EventID, second.EventID = "evt_z", "evt_a"
			return []channel.Payment{checkout(0, "paid", o, "pro"), first, second}
		}, account.PlanState{Plan: account.Business}},
		{"changed twice in one second", func(o account.Organization) []channel.Payment {
			first, second := subscription(updated, 0, "incomplete", "price_pro"), subscription(updated, 0, "active", "price_pro")
			first.EventID, second.EventID = "evt_z", "evt_a"
			return []channel.Payment{checkout(0, "unpaid", o, "pro"), first, second}
		}, account.PlanState{Plan: account.Pro}},
		{"failed and paid in one second", func(o account.Organization) []channel.Payment {
			return []channel.Payment{checkout(0, "paid", o, "pro"), invoice(failed, 9, "in_2", 2), invoice(paid, 9, "in_2", 1)}
		}, account.PlanState{Plan: account.Pro}},
		{"deletion is final, whatever the clocks say", func(o account.Organization) []channel.Payment {
			return []channel.Payment{
				checkout(0, "paid", o, "pro"), subscription(created, 0, "active", "price_pro"),
				subscription(deleted, 5, "canceled", "price_pro"), subscription(updated, 9, "active", "price_pro"), invoice(paid, 9, "in_2", 1),
			}
		}, account.PlanState{Plan: account.Free}},
		{"a payment fails before anything is linked", func(o account.Organization) []channel.Payment {
			return []channel.Payment{
				subscription(created, 0, "active", "price_pro"), invoice(failed, 1, "in_1", 1), checkout(2, "paid", o, "pro"),
			}
		}, account.PlanState{Plan: account.Pro, PastDue: true}},
		{"the first payment fails, the second does not", func(o account.Organization) []channel.Payment {
			return []channel.Payment{
				subscription(created, 0, "incomplete", "price_pro"), invoice(failed, 0, "in_1", 1), invoice(paid, 1, "in_1", 2),
				subscription(updated, 1, "active", "price_pro"), checkout(1, "paid", o, "pro"),
			}
		}, account.PlanState{Plan: account.Pro}},
		{"the first payment fails for good", func(o account.Organization) []channel.Payment {
			return []channel.Payment{
				subscription(created, 0, "incomplete", "price_pro"), invoice(failed, 0, "in_1", 1), checkout(0, "unpaid", o, "pro"),
				subscription(updated, 1380, "incomplete_expired", "price_pro"),
			}
		}, account.PlanState{Plan: account.Free, PendingPlan: account.Business}},
		{"a bank debit that takes some days", func(o account.Organization) []channel.Payment {
			return []channel.Payment{
				checkout(0, "unpaid", o, "pro"), subscription(created, 0, "incomplete", "price_pro"),
				invoice(paid, 5760, "in_1", 1), subscription(updated, 5760, "active", "price_pro"),
			}
		}, account.PlanState{Plan: account.Pro}},
		{"two subscriptions, of which the higher ends", func(o account.Organization) []channel.Payment {
			second := checkout(90, "paid", o, "business")
			second.SubscriptionID = "sub_2"
			end := upgraded(200, "canceled", "price_business", "sub_2")
			end.Kind = deleted
			return []channel.Payment{
				checkout(0, "paid", o, "pro"), subscription(created, 0, "active", "price_pro"),
				second, upgraded(90, "active", "price_business", "sub_2"), end,
			}
		}, account.PlanState{Plan: account.Pro}},
		{"only the customer tells whose the second subscription is", func(o account.Organization) []channel.Payment {
			return []channel.Payment{
				checkout(0, "paid", o, "pro"), upgraded(90, "active", "price_business", "sub_2"), upgraded(91, "past_due", "price_business", "sub_2"),
			}
		}, account.PlanState{Plan: account.Business, PastDue: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := len(tt.story(account.Organization{}))
			run := 0
			for order := range permutations(n) {
				if run++; testing.Short() && f.db.Postgres() && run%7 != 1 {
					continue // the same code handles that order
				}
				// Each run has an organization and subscriptions of its own.
				o := account.Organization{ID: fmt.Sprintf("%s/%d", tt.name, run)}
				events := tt.story(o)
				own(events, o.ID)
				var told []string
				err := f.db.Write(t.Context(), func(tx *db.Tx) error {
					told = nil
					if _, err := tx.Exec(t.Context(), `INSERT INTO organizations (id, name, slug, plan, pending_plan, created_at, updated_at)
						VALUES ($1, $1, $1, 'free', 'business', 0, 0)`, o.ID); err != nil {
						return err
					}
					if _, err := tx.Exec(t.Context(), `INSERT INTO billing_wishes (organization_id, plan, wanted_at)
						VALUES ($1, 'business', 0)`, o.ID); err != nil {
						return err
					}
					again := order
					if run%3 == 0 { // each twice
						again = slices.Concat(order, order)
					} else if run%3 == 1 {
						again = slices.Concat(order, order[:1])
					}
					for _, i := range again {
						told = append(told, string(events[i].Kind)+" "+events[i].Status)
						if _, err := f.IngestPaymentTx(t.Context(), tx, &events[i]); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if got := f.standing(t, o); got != tt.want {
					t.Fatalf("told as\n\t%s\ngot %+v, want %+v", strings.Join(told, "\n\t"), got, tt.want)
				}
			}
		})
	}
}
