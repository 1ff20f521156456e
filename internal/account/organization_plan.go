package account

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// Compare orders plans by rank: negative if p ranks below other.
func (p Plan) Compare(other Plan) int { return cmp.Compare(p.rank(), other.rank()) }

func (p Plan) rank() int {
	switch p {
	case Business:
		return 2
	case Pro:
		return 1
	}
	return 0
}

// PlanState is an organization's plan and the state of its payment.
type PlanState struct {
	Plan        Plan `json:"plan"`         // empty: unknown, and both plans stay as they are
	PendingPlan Plan `json:"pending_plan"` // chosen but not paid yet; empty: none
	PastDue     bool `json:"past_due"`     // a payment failed and is still open
}

// SetPlanStateTx sets an organization's plan state and returns the organization as it was
// before, or a [problem.NotFound].
func (s *Service) SetPlanStateTx(ctx context.Context, tx *db.Tx, organizationID string, now PlanState) (Organization, error) {
	before, err := lockOrganization(ctx, tx, organizationID)
	if err != nil {
		return Organization{}, err
	}
	if now.Plan == "" {
		now.Plan, now.PendingPlan = before.Plan, before.PendingPlan
	}
	if now == (PlanState{before.Plan, before.PendingPlan, before.PastDue}) {
		return before, nil
	}
	if err := tx.Queue(ctx, "UPDATE organizations SET plan = $2, pending_plan = $3, past_due = $4, updated_at = $5 WHERE id = $1",
		organizationID, string(now.Plan), db.Text(string(now.PendingPlan)), now.PastDue, tx.Now.UnixMicro()); err != nil {
		return Organization{}, fmt.Errorf("set standing: %w", err)
	}
	s.notifyAfterCommit(tx, organizationID, "organization")
	changes, err := audit.Diff(PlanState{before.Plan, before.PendingPlan, before.PastDue}, now)
	if err != nil {
		return Organization{}, err
	}
	return before, s.audit.RecordTx(ctx, tx, audit.Entry{
		OrganizationID: organizationID, Action: AuditPlanChanged, Target: organizationTarget(before), Changes: changes,
	})
}

// SetPendingPlanTx sets the plan that an organization is about to pay for. An unknown
// organization is a [problem.NotFound].
func (s *Service) SetPendingPlanTx(ctx context.Context, tx *db.Tx, organizationID string, wanted Plan) error {
	o, err := lockOrganization(ctx, tx, organizationID)
	if err != nil {
		return err
	}
	_, err = s.SetPlanStateTx(ctx, tx, organizationID, PlanState{o.Plan, wanted, o.PastDue})
	return err
}

// Organizations returns all organizations, oldest first.
func (s *Service) Organizations(ctx context.Context) ([]Organization, error) {
	return db.All(ctx, s.db, scanOrganization, "SELECT "+organizationColumns+" FROM organizations ORDER BY created_at, id")
}

// ParsePlan parses a plan's name, ignoring case; false if it is unknown.
func ParsePlan(text string) (Plan, bool) {
	switch p := Plan(strings.ToLower(strings.TrimSpace(text))); p {
	case Free, Pro, Business:
		return p, true
	}
	return "", false
}
