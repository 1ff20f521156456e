package connection

import (
	"context"
	"fmt"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// FindByDomain returns the proven connections of a channel with an address in a domain, enabled or
// not, oldest first. They must not be modified.
func (s *Service) FindByDomain(ctx context.Context, name, domain string) ([]*Connection, error) {
	domain = strings.ToLower(domain)
	ascii := domainOf("@" + domain)
	if ascii == "" {
		return nil, nil
	}
	key := addressKey{name, ascii}
	if at, ok := s.cache.byDomain.Get(key); ok {
		return at, nil
	}
	start := s.cache.byDomain.Start()
	list, err := s.readDomain(ctx, name, ascii)
	if err == nil && len(list) > 0 { // a new connection works at once
		s.cache.byDomain.Put(key, list, start)
	}
	return list, err
}

func (s *Service) readDomain(ctx context.Context, name, ascii string) (list []*Connection, err error) {
	rows, err := db.All(ctx, s.db, s.scan, "SELECT "+columns+" FROM connections WHERE channel = $1 AND proof = 'proven' ORDER BY id", name)
	if err != nil {
		return nil, fmt.Errorf("find connections of a domain: %w", err)
	}
	for i := range rows {
		if strings.EqualFold(domainOf(rows[i].Address), ascii) {
			list = append(list, &rows[i])
		}
	}
	return list, nil
}

// OwnsDomain reports whether the proof of c covers all addresses of its domain: by a record in DNS,
// or by the operator's allow list.
func (s *Service) OwnsDomain(ctx context.Context, c *Connection) (bool, error) {
	switch {
	case !c.Proven():
		return false, nil
	case c.Proof.Method == ByDNS:
		return true, nil
	}
	whole := *c
	whole.Address = "@" + domainOf(c.Address)
	return s.isAllowed(ctx, s.db, &whole)
}

// Domains returns the domains, in ASCII, of the proven connections of a channel.
func Domains(ctx context.Context, q db.Querier, name string) (list []string, err error) {
	addresses, err := db.All(ctx, q, func(row db.Row) (address string, err error) { err = row.Scan(&address); return address, err },
		"SELECT address FROM connections WHERE channel = $1 AND proof = 'proven' ORDER BY address", name)
	if err != nil {
		return nil, fmt.Errorf("list domains: %w", err)
	}
	seen := make(map[string]bool)
	for _, address := range addresses {
		if domain := domainOf(address); domain != "" && !seen[domain] {
			seen[domain] = true
			list = append(list, domain)
		}
	}
	return list, nil
}
