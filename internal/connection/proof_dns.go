package connection

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"golang.org/x/net/idna"
)

// Record is the TXT record that proves all addresses of a domain for an organization.
type Record struct {
	Name  string
	Value string
}

const (
	recordPrefix  = "_kickstand-challenge."
	recordPurpose = "connection proof record"
	dnsTimeout    = 5 * time.Second
)

// domainOf returns the domain of a mail address in ASCII, or "".
func domainOf(address string) string {
	_, domain, ok := strings.Cut(address[max(0, strings.LastIndexByte(address, '@')):], "@")
	if !ok {
		return ""
	}
	ascii, err := idna.Lookup.ToASCII(domain)
	if err != nil {
		return ""
	}
	return ascii
}

// txtRecord returns an organization's record for the domain of an address, or nil.
func (s *Service) txtRecord(organizationID, address string) *Record {
	domain := domainOf(address)
	if domain == "" {
		return nil
	}
	return &Record{recordPrefix + domain, tokenText(s.box.MAC(recordPurpose, organizationID, domain))}
}

// hasRecord reports whether records include the organization's, made with any of the keys.
func (s *Service) hasRecord(records []string, organizationID, address string) bool {
	domain := domainOf(address)
	found := false
	for _, r := range records {
		text, ok := strings.CutPrefix(strings.ToUpper(strings.TrimSpace(r)), strings.ToUpper(channel.ProofTokenPrefix))
		if !ok {
			continue
		}
		mac, err := tokenEncoding.DecodeString(text)
		found = found || err == nil && s.box.VerifyMAC(recordPurpose, mac, codeSize, organizationID, domain)
	}
	return found
}

// proveByDNS looks up the organization's record. It proves all connections of the organization
// in that domain, including c.
func (s *Service) proveByDNS(ctx context.Context, c Connection) (Connection, error) {
	rec := s.txtRecord(c.OrganizationID, c.Address)
	if rec == nil {
		return c, problem.New(problem.Precondition, "this address has no domain")
	}
	if err := s.db.Write(ctx, func(tx *db.Tx) error { return s.countAttempt(ctx, tx, lookupLimits(&c)) }); err != nil {
		return c, err
	}
	asking, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	records, err := s.proofs.LookupTXT(asking, rec.Name)
	if e, ok := errors.AsType[*net.DNSError](err); ok && e.IsNotFound {
		records, err = nil, nil
	}
	if err != nil {
		return c, problem.New(problem.Unavailable, "the DNS lookup of %s failed; try again in a minute", rec.Name).Because(err)
	}
	if !s.hasRecord(records, c.OrganizationID, c.Address) {
		return c, problem.New(problem.Precondition, "DNS has no TXT record %s with the value %s yet; a new record can take an hour to appear", rec.Name, rec.Value)
	}
	var refusal error
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		refusal = nil
		others, err := s.unprovenOfDomain(ctx, tx, &c)
		if err != nil {
			return err
		}
		for _, other := range others {
			now, err := s.proveByID(ctx, tx, other.ID, evidence{method: ByDNS, records: records})
			if errors.Is(err, errContested) {
				if other.ID == c.ID {
					refusal = contestedProblem(err)
				}
				continue
			}
			if err != nil {
				return err
			}
			if now.ID == c.ID {
				c = now
			}
		}
		return nil
	})
	if err == nil {
		err = refusal
	}
	return c, err
}

// unprovenOfDomain returns c and the organization's unproven connections of the same domain, in
// the order of their addresses, which is the locking order.
func (s *Service) unprovenOfDomain(ctx context.Context, q db.Querier, c *Connection) ([]Connection, error) {
	ticketChannel := s.adapters[c.Channel].Info().TicketChannel
	all, err := db.All(ctx, q, s.scan, "SELECT "+columns+` FROM connections
		WHERE organization_id = $1 AND medium = $2 AND (proof = 'pending' OR proof_method = 'before_proofs' OR id = $3) ORDER BY address`,
		c.OrganizationID, ticketChannel, c.ID)
	if err != nil {
		return nil, fmt.Errorf("find connections of the domain: %w", err)
	}
	var list []Connection
	for _, other := range all {
		if domainOf(other.Address) == domainOf(c.Address) {
			list = append(list, other)
		}
	}
	return list, nil
}
