package account

import (
	"context"
	"errors"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// Creator is the kind of actor that created an organization.
type Creator string

// The creators.
const (
	CreatedByOperator Creator = "operator" // by command line
	CreatedBySignUp   Creator = "sign-up"
)

// DefaultOrganization returns the id of the organization that receives the inbound events
// of no connection: the one that the operator named, else the first that the operator
// created, else, with [Config.FirstIsDefault], the first of all. ok is false if there is
// none. Once there is a result, no sign-up changes it.
func (s *Service) DefaultOrganization(ctx context.Context, q db.Querier) (id string, ok bool, err error) {
	return FindDefaultOrganization(ctx, q, s.firstIsDefault)
}

// FindDefaultOrganization is [Service.DefaultOrganization] for a database without an open
// service.
func FindDefaultOrganization(ctx context.Context, q db.Querier, firstIsDefault bool) (id string, ok bool, err error) {
	err = q.QueryRow(ctx, `SELECT coalesce(
			(SELECT organization_id FROM default_organization),
			(SELECT id FROM organizations WHERE made_by = 'operator' ORDER BY created_at, id LIMIT 1),
			CASE WHEN $1 THEN (SELECT id FROM organizations ORDER BY created_at, id LIMIT 1) END)`,
		firstIsDefault).Scan(db.IntoText(&id))
	if err != nil {
		return "", false, fmt.Errorf("find the default organization: %w", err)
	}
	return id, id != "", nil
}

// SetDefaultOrganization makes the organization with the slug the default one. An unknown
// slug is a [problem.NotFound].
func (s *Service) SetDefaultOrganization(ctx context.Context, slug string) (o Organization, err error) {
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		if o, err = organizationBySlug(ctx, tx, slug); err != nil {
			return err
		}
		return s.setDefaultTx(ctx, tx, &o)
	})
	return o, err
}

func (s *Service) setDefaultTx(ctx context.Context, tx *db.Tx, o *Organization) error {
	if err := tx.Lock(ctx, "default organization"); err != nil {
		return err
	}
	var before string
	err := tx.QueryRow(ctx, "SELECT organization_id FROM default_organization").Scan(&before)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return fmt.Errorf("read the default organization: %w", err)
	}
	if before == o.ID {
		return nil
	}
	if err := tx.Queue(ctx, `INSERT INTO default_organization (id, organization_id) VALUES (1, $1)
			ON CONFLICT (id) DO UPDATE SET organization_id = excluded.organization_id`, o.ID); err != nil {
		return fmt.Errorf("set the default organization: %w", err)
	}
	return s.audit.RecordTx(ctx, tx, audit.Entry{
		Action: "organization.default_set", Target: audit.Target{Type: "organization", ID: o.ID, Name: o.Name},
		Changes: map[string]audit.Change{"default_organization": {From: before, To: o.ID}},
	})
}
