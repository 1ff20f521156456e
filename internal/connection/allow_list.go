package connection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// Allowed is an entry of the operator's allow list: an address, or a domain with all its mail
// addresses, of one organization.
type Allowed struct {
	TicketChannel string // empty for any
	Address       string // as configured; empty for a domain
	Domain        string // in ASCII
	Slug          string // slug of the organization
}

// ParseAllowed parses entries of the form "[MEDIUM:]ADDRESS=SLUG" and "[email:]@DOMAIN=SLUG".
// An address must be valid on an adapter of the ticket channel.
func ParseAllowed(entries []string, adapters []channel.Adapter) ([]Allowed, error) {
	list := make([]Allowed, 0, len(entries))
	for _, entry := range entries {
		a, err := parseAllowed(strings.TrimSpace(entry), adapters)
		if err != nil {
			return nil, fmt.Errorf("%q %w", entry, err)
		}
		list = append(list, a)
	}
	return list, nil
}

func parseAllowed(entry string, adapters []channel.Adapter) (Allowed, error) {
	i := strings.LastIndexByte(entry, '=')
	if i < 0 {
		return Allowed{}, errors.New("must be ADDRESS=SLUG or @DOMAIN=SLUG, such as support@example.com=acme")
	}
	a := Allowed{Address: strings.TrimSpace(entry[:i]), Slug: strings.TrimSpace(entry[i+1:])}
	if a.Slug == "" || a.Address == "" {
		return a, errors.New("needs an address before the = and an organization's slug after it")
	}
	if ticketChannel, rest, ok := strings.Cut(a.Address, ":"); ok && slices.ContainsFunc(adapters, func(ad channel.Adapter) bool { return ad.Info().TicketChannel == ticketChannel }) {
		a.TicketChannel, a.Address = ticketChannel, rest
	}
	if domain, ok := strings.CutPrefix(a.Address, "@"); ok {
		if a.TicketChannel != "" && a.TicketChannel != "email" {
			return a, errors.New("names a domain, which only mail addresses have")
		}
		a.TicketChannel, a.Address, a.Domain = "email", "", domainOf("x@"+strings.ToLower(domain))
		if !strings.Contains(a.Domain, ".") {
			return a, errors.New("does not name a domain such as @example.com")
		}
		return a, nil
	}
	if a.TicketChannel == "" && strings.Contains(a.Address, "@") {
		a.TicketChannel = "email"
	}
	if !slices.ContainsFunc(adapters, func(ad channel.Adapter) bool { return a.normalize(ad) != "" }) {
		return a, errors.New("is not an address of any channel")
	}
	return a, nil
}

// normalize returns the address in the adapter's form, or "" if it is not valid there.
func (a *Allowed) normalize(ad channel.Adapter) string {
	if a.TicketChannel != "" && a.TicketChannel != ad.Info().TicketChannel {
		return ""
	}
	if f, ok := ad.(channel.AddressNormalizer); ok {
		address, err := f.NormalizeAddress(a.Address)
		if err != nil {
			return ""
		}
		return address
	}
	return a.Address
}

// covers reports whether the entry applies to a connection.
func (a *Allowed) covers(ad channel.Adapter, c *Connection) bool {
	if a.Domain != "" {
		return ad.Info().TicketChannel == a.TicketChannel && strings.EqualFold(domainOf(c.Address), a.Domain)
	}
	return a.normalize(ad) == c.Address
}

// isAllowed reports whether the allow list assigns c's address to its organization.
func (s *Service) isAllowed(ctx context.Context, q db.Querier, c *Connection) (bool, error) {
	slug := ""
	for i := range s.proofs.Allowed {
		a := &s.proofs.Allowed[i]
		if ad, ok := s.adapters[c.Channel]; !ok || !a.covers(ad, c) {
			continue
		}
		if slug == "" {
			var err error
			if slug, err = s.proofs.Slug(ctx, q, c.OrganizationID); err != nil {
				return false, fmt.Errorf("find organization: %w", err)
			}
		}
		if slug == a.Slug {
			return true, nil
		}
	}
	return false, nil
}

// ProveAllowed proves existing connections that the allow list covers and returns their number.
// The server calls it at start.
func (s *Service) ProveAllowed(ctx context.Context) (int, error) {
	if len(s.proofs.Allowed) == 0 {
		return 0, nil
	}
	list, err := db.All(ctx, s.db, s.scan, "SELECT "+columns+` FROM connections
		WHERE proof = 'pending' OR proof_method NOT IN ('operator', 'allowed') ORDER BY medium, address, id`)
	if err != nil {
		return 0, fmt.Errorf("find connections: %w", err)
	}
	n := 0
	for i := range list {
		c := &list[i]
		ok, err := s.isAllowed(ctx, s.db, c)
		if err != nil {
			return n, err
		}
		if !ok {
			continue
		}
		err = s.db.Write(ctx, func(tx *db.Tx) error {
			_, err := s.proveByID(ctx, tx, c.ID, evidence{method: ByAllowList})
			return err
		})
		switch {
		case errors.Is(err, errContested):
		case err != nil:
			return n, err
		default:
			n++
		}
	}
	return n, nil
}
