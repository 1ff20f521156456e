package email

import (
	"net/mail"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/mailparse"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
)

// partiesOf are the senders or recipients with these addresses.
func partiesOf(addresses []mail.Address) []channel.Party {
	var list []channel.Party
	for _, a := range addresses {
		list = append(list, channel.Party{Name: a.Name, Email: a.Address})
	}
	return list
}

func domainOf(address string) string {
	_, domain, _ := mailparse.CutAddress(address)
	return strings.ToLower(strings.TrimSuffix(domain, "."))
}

// envelopeSender parses the sender of an envelope. Only the null sender is ""; an invalid
// address is returned unchanged.
func envelopeSender(s string) string {
	if a := mailparse.Address(s); a != "" {
		return a
	}
	return safehtml.Clip(strings.Trim(mailparse.Text(s), "<> "), 254)
}

// Canonical returns the form of an address that connections store: lower case, without
// plus-tag. It returns "" for an invalid address.
func Canonical(address string) string {
	address = strings.ToLower(mailparse.Address(address))
	local, domain, ok := mailparse.CutAddress(address)
	if !ok {
		return ""
	}
	if i := strings.IndexByte(local, '+'); i > 0 {
		local = local[:i]
	}
	return local + "@" + domain
}

// within reports whether domain is in list or a subdomain of an entry.
func within(domain string, list []string) bool {
	return domain != "" && slices.ContainsFunc(list, func(d string) bool {
		return strings.EqualFold(domain, d) || strings.HasSuffix(domain, "."+strings.ToLower(d))
	})
}

var tagPattern = regexp.MustCompile(`(?i)\[Ticket #(\d{1,18})\]`)

// ticketTag returns the number of the last "[Ticket #n]" in a subject, or 0.
func ticketTag(subject string) int64 {
	all := tagPattern.FindAllStringSubmatch(subject, -1)
	if all == nil {
		return 0
	}
	n, _ := strconv.ParseInt(all[len(all)-1][1], 10, 64) // 18 digits fit
	return n
}

// key makes a value of a mail fit for an index; long values are replaced by their digest.
func key(s string) string { return channel.BoundedID(s, 300) }
