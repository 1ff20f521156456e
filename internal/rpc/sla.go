package rpc

import (
	"context"
	"time"

	"github.com/kickstand-dev/kickstand/internal/businesshours"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// SLAProcedures returns the procedures for the SLA policies of the caller's organization,
// by priority. They are not in the contract; the names follow its style.
func SLAProcedures(tickets *desk.Service) []Procedure {
	s := slaProcedures{tickets}
	return []Procedure{
		Query("slaPolicies.list", Member, s.list),
		Mutation("slaPolicies.set", Admin, s.set),
		Mutation("slaPolicies.delete", Admin, s.delete),
	}
}

type slaProcedures struct {
	tickets *desk.Service
}

// businessHours is [businesshours.Hours] with field names in the style of the procedures.
type businessHours struct {
	TimeZone string             `json:"timeZone"`
	Weekly   businesshours.Week `json:"weekly"`
	Holidays []string           `json:"holidays,omitempty"`
}

type slaPolicyRecord struct {
	Priority             desk.Priority  `json:"priority"`
	FirstResponseMinutes *int64         `json:"firstResponseMinutes"`
	ResolutionMinutes    *int64         `json:"resolutionMinutes"`
	BusinessHours        *businessHours `json:"businessHours"`
	CreatedAt            time.Time      `json:"created_at"`
	UpdatedAt            time.Time      `json:"updated_at"`
}

func newSLAPolicyRecord(p desk.SLAPolicy) slaPolicyRecord {
	r := slaPolicyRecord{Priority: p.Priority, CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt}
	if p.FirstResponseMinutes != 0 {
		r.FirstResponseMinutes = &p.FirstResponseMinutes
	}
	if p.ResolutionMinutes != 0 {
		r.ResolutionMinutes = &p.ResolutionMinutes
	}
	if h := p.Hours; h != nil {
		r.BusinessHours = &businessHours{h.TimeZone, h.Weekly, h.Holidays}
	}
	return r
}

func (p slaProcedures) list(ctx context.Context, _ None) ([]slaPolicyRecord, error) {
	list, err := p.tickets.SLAPolicies(ctx, organization(ctx))
	if err != nil {
		return nil, err
	}
	out := make([]slaPolicyRecord, len(list))
	for i, policy := range list {
		out[i] = newSLAPolicyRecord(policy)
	}
	return out, nil
}

type setSLAPolicy struct {
	Priority             desk.Priority  `json:"priority"`
	FirstResponseMinutes *int64         `json:"firstResponseMinutes"`
	ResolutionMinutes    *int64         `json:"resolutionMinutes"`
	BusinessHours        *businessHours `json:"businessHours"`
}

// Check implements [problem.Checker]. A zero target is refused: no target is null.
func (in setSLAPolicy) Check(v *problem.Validation) {
	policy := in.policy()
	if m := in.FirstResponseMinutes; m != nil && *m == 0 {
		v.Add("firstResponseMinutes", "must be at least 1, or left out")
		policy.FirstResponseMinutes = 1 // already an issue
	}
	if m := in.ResolutionMinutes; m != nil && *m == 0 {
		v.Add("resolutionMinutes", "must be at least 1, or left out")
		policy.ResolutionMinutes = 1
	}
	policy.Check(v)
}

// policy returns the policy without its organization.
func (in setSLAPolicy) policy() desk.SLAPolicy {
	policy := desk.SLAPolicy{Priority: in.Priority}
	if in.FirstResponseMinutes != nil {
		policy.FirstResponseMinutes = *in.FirstResponseMinutes
	}
	if in.ResolutionMinutes != nil {
		policy.ResolutionMinutes = *in.ResolutionMinutes
	}
	if h := in.BusinessHours; h != nil {
		policy.Hours = &businesshours.Hours{TimeZone: h.TimeZone, Weekly: h.Weekly, Holidays: h.Holidays}
	}
	return policy
}

func (p slaProcedures) set(ctx context.Context, in setSLAPolicy) (slaPolicyRecord, error) {
	policy := in.policy()
	policy.OrganizationID = organization(ctx)
	policy, err := p.tickets.SetSLAPolicy(ctx, policy)
	return newSLAPolicyRecord(policy), err
}

type deleteSLAPolicy struct {
	Priority desk.Priority `json:"priority"`
}

func (p slaProcedures) delete(ctx context.Context, in deleteSLAPolicy) (successOutput, error) {
	err := p.tickets.DeleteSLAPolicy(ctx, organization(ctx), in.Priority)
	return successOutput{err == nil}, err
}
