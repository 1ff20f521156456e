package account

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// SignupRequest is the input of auth.completeSignup.
type SignupRequest struct {
	Name             string `json:"name"`
	OrganizationName string `json:"organizationName"`
	Plan             Plan   `json:"planTier,omitempty"` // empty means Free
}

// Check implements [problem.Checker].
func (r SignupRequest) Check(v *problem.Validation) {
	v.Line("name", strings.TrimSpace(r.Name), 1, 255)
	v.Line("organizationName", strings.TrimSpace(r.OrganizationName), 1, 255)
	checkPlan(v, "planTier", r.Plan)
}

// Signup is a completed sign-up.
type Signup struct {
	User         User
	Organization Organization
	CheckoutURL  string // payment page of the chosen plan; empty for Free
}

// CompleteSignup creates an organization with the user as admin. A paid plan stays
// pending, and the organization free, until it is paid at CheckoutURL.
//
// A user with an organization gets a [problem.Conflict]; a paid plan without a checkout
// is a [problem.Precondition]. In both cases, and if the checkout fails, nothing is
// changed. An address that the sign-up policy refuses is a [problem.Forbidden]; under
// [InvitedSignUp] a pending invitation is used up.
func (s *Service) CompleteSignup(ctx context.Context, userID string, r SignupRequest) (Signup, error) {
	if err := problem.Check(r); err != nil {
		return Signup{}, err
	}
	wanted := cmp.Or(r.Plan, Free)
	o := Organization{ID: newID(), Name: strings.TrimSpace(r.OrganizationName), Plan: Free, CreatedBy: CreatedBySignUp}
	var done Signup
	if wanted != Free {
		var err error
		if done.CheckoutURL, err = s.startCheckout(ctx, userID, o, wanted); err != nil {
			return Signup{}, err
		}
		o.PendingPlan = wanted
	}
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		u, err := lockUser(ctx, tx, userID)
		if err != nil {
			return err
		}
		if u.OrganizationID != "" {
			return errSignedUp()
		}
		if err := s.checkMayCreateOrganization(ctx, tx, u, tx.Now); err != nil {
			return err
		}
		if s.SignUp().invited {
			if err := s.useInvitation(ctx, tx, emailKey(u.Email)); err != nil {
				return err
			}
		}
		if err := insertOrganization(ctx, tx, &o); err != nil {
			return err
		}
		u.Name, u.OrganizationID, u.Role, u.UpdatedAt = strings.TrimSpace(r.Name), o.ID, Admin, tx.Now
		if err := tx.Queue(ctx, "UPDATE users SET name = $2, organization_id = $3, role = $4, updated_at = $5 WHERE id = $1",
			u.ID, u.Name, u.OrganizationID, string(u.Role), u.UpdatedAt.UnixMicro()); err != nil {
			return fmt.Errorf("update user: %w", err)
		}
		done.User, done.Organization = u, o
		return s.audit.RecordTx(asUser(ctx, u), tx, audit.Entry{
			OrganizationID: o.ID, Action: AuditFounded, Target: organizationTarget(o), Details: map[string]any{"plan": wanted},
		})
	})
	if err != nil {
		return Signup{}, err
	}
	return done, nil
}

// startCheckout runs first because it may fail: a sign-up cannot be repeated. An unused
// checkout expires.
func (s *Service) startCheckout(ctx context.Context, userID string, o Organization, p Plan) (string, error) {
	if s.checkout == nil {
		return "", problem.New(problem.Precondition, "paid plans are not available; sign up with planTier free")
	}
	u, err := s.User(ctx, userID)
	if err != nil {
		return "", err
	}
	if u.OrganizationID != "" {
		return "", errSignedUp()
	}
	if err := s.checkMayCreateOrganization(ctx, s.db, u, s.db.Now()); err != nil {
		return "", err
	}
	url, err := s.checkout.StartCheckout(ctx, CheckoutRequest{
		OrganizationID: o.ID, OrganizationName: o.Name, Plan: p, UserID: u.ID, Email: u.Email,
	})
	if err != nil {
		return "", fmt.Errorf("start checkout: %w", err)
	}
	return url, nil
}

func errSignedUp() error {
	return problem.New(problem.Conflict, "you have completed your sign-up already")
}
