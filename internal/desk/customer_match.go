package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// MatchCustomerTx returns the customer that p identifies, in the caller's
// transaction, and creates one if none matches. Precedence: the id within o's
// connection, then e-mail, then phone. Empty fields are filled from p. A set field
// is replaced only if it still equals the one of was; then the old address or
// number stays as an additional one. Malformed addresses and numbers are ignored.
// made is true for a new customer. Emits customer.created or customer.updated.
func (s *Service) MatchCustomerTx(ctx context.Context, tx *db.Tx, o channel.Source, p, was channel.Party) (customerID string, made bool, err error) {
	in := &InboundEvent{OrganizationID: o.OrganizationID, ConnectionID: o.ConnectionID, Channel: o.TicketChannel}
	p, was = normalizeParty(p), normalizeParty(was)
	id := newID()
	points := in.contactPoints(p)
	owners, err := s.claimAnyPoints(ctx, tx, points, id)
	if err != nil {
		return "", false, err
	}
	// Points are claimed in the common order, but the id takes precedence here.
	if n := len(points); n > 1 && p.ID != "" {
		points = append(points[n-1:n:n], points[:n-1]...)
		owners = append(owners[n-1:n:n], owners[:n-1]...)
	}
	k, err := s.resolveCustomer(ctx, tx, in, p, id, points, owners)
	if err != nil {
		return "", false, err
	}
	if k.ID != id {
		if err := s.replaceProfile(ctx, tx, in, &k, withoutForeign(p, points, owners, k.ID, id), was); err != nil {
			return "", false, err
		}
	}
	return k.ID, k.ID == id, s.events.EmitTx(ctx, tx, k.events...)
}

// claimAnyPoints is claimPoints for a list that may be empty.
func (s *Service) claimAnyPoints(ctx context.Context, tx *db.Tx, points []contactPoint, customerID string) ([]pointOwner, error) {
	if len(points) == 0 {
		return nil, nil
	}
	return claimPoints(ctx, tx, points, customerID, "", "")
}

// normalizeParty returns p with canonical fields, without a malformed address or
// number.
func normalizeParty(p channel.Party) channel.Party {
	p.Phone = e164(p.Phone)
	p.Email = strings.TrimSpace(p.Email)
	var v problem.Validation
	if checkEmail(&v, "email", p.Email); v.Err() != nil {
		p.Email = ""
	}
	p.ID, p.Name = clean(p.ID), line(p.Name, maxName)
	return p
}

// replaceProfile replaces the customer's name, e-mail address and number by p's if
// they still equal the ones of was.
func (s *Service) replaceProfile(ctx context.Context, tx *db.Tx, in *InboundEvent, k *customerRef, p, was channel.Party) error {
	before, err := loadContacts(ctx, tx, k.ID, k.Email, k.Phone)
	if err != nil {
		return err
	}
	changes := make(map[string]event.Change)
	for _, f := range []struct {
		name     string
		has      *string
		was, get string
		key      func(string) string
	}{
		{"name", &k.Name, was.Name, p.Name, func(s string) string { return s }},
		{"email", &k.Email, was.Email, line(p.Email, maxKey), emailKey},
		{"phone", &k.Phone, was.Phone, p.Phone, func(s string) string { return s }},
	} {
		if f.was != "" && f.get != "" && *f.has != f.get && f.key(*f.has) == f.key(f.was) {
			changes[f.name] = event.Change{From: *f.has, To: f.get}
			*f.has = f.get
		}
	}
	if len(changes) == 0 {
		return nil
	}
	after, err := loadContacts(ctx, tx, k.ID, k.Email, k.Phone)
	if err != nil {
		return err
	}
	before.changes(&after, changes)
	return saveProfile(ctx, tx, in.OrganizationID, k, changes)
}

// CustomerByContact returns the customer with p's e-mail address or number; empty
// if there is none.
func (s *Service) CustomerByContact(ctx context.Context, q db.Querier, organizationID string, p channel.Party) (customerID string, err error) {
	p = normalizeParty(p)
	p.ID = ""
	in := &InboundEvent{OrganizationID: organizationID}
	for _, pt := range in.contactPoints(p) {
		k, err := findCustomer(ctx, q, pt.value, pt.scope)
		if errors.Is(err, db.ErrNoRows) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("find customer: %w", err)
		}
		return k.ID, nil
	}
	return "", nil
}

// RemoveIdentitiesTx removes a customer's identities of one connection in the
// caller's transaction, and emits customer.updated. Threads go on. Error: NotFound.
func (s *Service) RemoveIdentitiesTx(ctx context.Context, tx *db.Tx, organizationID, connectionID, customerID string) error {
	c, err := lockCustomer(ctx, tx, organizationID, customerID)
	if err != nil {
		return err
	}
	before := c
	for _, change := range []string{
		"DELETE FROM contact_points WHERE customer_id = $1 AND scope = $2 AND conversation_id IS NULL",
		"UPDATE contact_points SET customer_id = NULL, kind = 'thread' WHERE customer_id = $1 AND scope = $2",
	} {
		if err := tx.Queue(ctx, change, c.ID, connectionID); err != nil {
			return fmt.Errorf("remove contact points: %w", err)
		}
	}
	if err := c.loadContacts(ctx, tx); err != nil {
		return err
	}
	if slices.Equal(before.Identities, c.Identities) {
		return nil
	}
	k := customerRef{Customer: *c.snapshot()}
	changes := make(map[string]event.Change)
	c.changesFrom(&before, changes)
	if err := saveProfile(ctx, tx, organizationID, &k, changes); err != nil {
		return err
	}
	return s.events.EmitTx(ctx, tx, k.events...)
}
