package desk

import (
	"context"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// maxNamedTickets bounds the tickets whose customers [Service.CustomersByWords] examines.
const maxNamedTickets = 50

// CustomersByWords returns customers whose name, addresses, numbers and external id contain all
// words of text, in any order, without regard to case and accents. It examines the customers of
// the first tickets that a search for text finds, so customers without a ticket are not found.
// Errors: those of [Service.FindTickets].
func (s *Service) CustomersByWords(ctx context.Context, q db.Querier, organizationID, text string, reader Reader) ([]Customer, error) {
	words := splitWords(text)
	if len(words) == 0 {
		return nil, nil
	}
	tickets, _, err := s.FindTickets(ctx, q, organizationID, TicketQuery{Text: text, Reader: reader, Limit: maxNamedTickets})
	if err != nil {
		return nil, err
	}
	var ids []string
	for i := range tickets {
		if id := tickets[i].Customer.ID; !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	byID, err := s.CustomersByID(ctx, q, organizationID, ids)
	if err != nil {
		return nil, err
	}
	var list []Customer
	for _, id := range ids {
		if c, ok := byID[id]; ok && c.hasWords(words) {
			list = append(list, c)
		}
	}
	return list, nil
}

// hasWords reports whether the customer's name, addresses, numbers and external id contain all
// words.
func (c *Customer) hasWords(words []string) bool {
	own := strings.Join(splitWords(strings.Join(slices.Concat([]string{c.Name, c.ExternalID}, c.Emails, c.Phones), " ")), " ")
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(own, w) })
}
