package apikey

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// MaxAllowedIPs is the maximum length of a key's list.
const MaxAllowedIPs = 100

// AllowedIPs are the addresses from which a key works; none: all. IPv4 addresses are
// stored as IPv4 even if written as IPv6, and host bits are cleared.
type AllowedIPs []netip.Prefix

// ParseAllowedIPs parses addresses and CIDR blocks and drops duplicates. The error is a
// [problem.Invalid] about "allowed_ips".
func ParseAllowedIPs(entries []string) (AllowedIPs, error) {
	var v problem.Validation
	list := checkAllowedIPs(&v, entries)
	return list, v.Err()
}

func checkAllowedIPs(v *problem.Validation, entries []string) AllowedIPs {
	list := make(AllowedIPs, 0, min(len(entries), MaxAllowedIPs))
	if len(entries) > MaxAllowedIPs {
		v.Add("allowed_ips", "must have at most %d entries", MaxAllowedIPs)
		return list
	}
	for _, e := range entries {
		p, err := parseAllowedIP(strings.TrimSpace(e))
		if err != nil {
			v.Add("allowed_ips", "cannot have %.60q: %v", e, err)
			continue
		}
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

func parseAllowedIP(text string) (netip.Prefix, error) {
	if strings.Contains(text, "%") {
		return netip.Prefix{}, errors.New("zone ids are valid on one machine only")
	}
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, errors.New("it is neither an address nor a block such as 192.0.2.0/24")
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, errors.New("it is neither an address nor a block such as 192.0.2.0/24")
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, errors.New("a block of IPv4 addresses written as IPv6 is at least a /97")
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p.Bits() == 0 {
		return netip.Prefix{}, errors.New("it contains every address; use an empty list instead")
	}
	return p.Masked(), nil
}

// Allow reports whether a request from ip may use the key. The zero address, an unknown
// client, is in no list.
func (l AllowedIPs) Allow(ip netip.Addr) bool {
	if len(l) == 0 {
		return true
	}
	ip = ip.Unmap()
	return slices.ContainsFunc(l, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// Strings returns the list for display: single addresses without a prefix length.
func (l AllowedIPs) Strings() []string {
	out := make([]string, len(l))
	for i, p := range l {
		out[i] = p.String()
		if p.IsSingleIP() {
			out[i] = p.Addr().String()
		}
	}
	return out
}

// parseStored parses the output of Strings.
func parseStored(entries []string) (AllowedIPs, error) {
	list, err := ParseAllowedIPs(entries)
	if err != nil {
		// An unreadable list must not turn into one that allows every address.
		return nil, fmt.Errorf("stored addresses: %w", err)
	}
	return list, nil
}
