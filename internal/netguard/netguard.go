// Package netguard keeps outbound connections to tenant-chosen addresses, such as webhook
// deliveries and media downloads, out of private networks.
//
// A [Guard] checks the address that a socket is about to connect to, after name resolution, so
// that DNS rebinding, unusual spellings of an address and redirects have no effect. Non-public
// address space is refused: for IPv4 everything in the IANA special-purpose registry (RFC
// 6890), for IPv6 everything outside the global unicast block 2000::/3 and the special blocks
// within it. IPv6 forms that embed an IPv4 address are refused altogether: where they work, the
// IPv4 address works too.
//
// [CheckURL] refuses invalid URLs without the network, so that a user sees the error at once;
// it is a courtesy, the guard is the defence.
package netguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// AddressError is a refused connection to a non-public address.
type AddressError struct {
	Host string     // the name that resolved to Addr, or "" if Addr itself was dialed
	Addr netip.Addr // the refused address
	Why  string     // the kind of address
}

func (e *AddressError) Error() string {
	if e.Host != "" {
		return fmt.Sprintf("%s resolves to %s, which is not a public address (%s)", e.Host, e.Addr, e.Why)
	}
	return fmt.Sprintf("%s is not a public address (%s)", e.Addr, e.Why)
}

// Guard decides which addresses may be dialed. The zero value allows public addresses only.
type Guard struct {
	AllowPrivate bool          // allows every address: development and demos
	Resolver     *net.Resolver // nil means the system's
}

// Check returns an [*AddressError] unless addr may be dialed.
func (g Guard) Check(addr netip.Addr) error {
	if g.AllowPrivate {
		return nil
	}
	if why := notPublic(addr); why != "" {
		return &AddressError{Addr: addr, Why: why}
	}
	return nil
}

// Control has the signature of [net.Dialer.Control]: it is called with the
// resolved address before the socket connects.
func (g Guard) Control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("network %s is not allowed", network)
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return g.Check(ap.Addr())
}

// DialContext connects like [net.Dialer.DialContext], over TCP only, to an address that passes
// [Guard.Check]. Refused addresses of a name are skipped. Errors do not name the DNS server: they are
// shown to tenants.
func (g Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout, Control: g.Control, Resolver: g.Resolver}
	conn, err := d.DialContext(ctx, network, address)
	if refused, ok := errors.AsType[*AddressError](err); ok {
		if host, _, _ := net.SplitHostPort(address); host != refused.Addr.String() {
			refused.Host = host
		}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		if lookup, ok := op.Err.(*net.DNSError); ok {
			shown := *lookup // shared by concurrent lookups
			shown.Server = ""
			op.Err = &shown
		}
	}
	return conn, err
}

const dialTimeout = 10 * time.Second

// globalUnicast is the only block of public IPv6 addresses.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// reserved are the blocks that are not, or not only, the public internet. The first match names
// the reason, so narrower blocks come first.
var reserved = []struct {
	block netip.Prefix
	why   string
}{
	{netip.MustParsePrefix("0.0.0.0/32"), "unspecified"},
	{netip.MustParsePrefix("0.0.0.0/8"), "this network"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "carrier-grade NAT"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "protocol assignment"},
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation"},
	{netip.MustParsePrefix("192.31.196.0/24"), "anycast to the nearest node"}, // AS112
	{netip.MustParsePrefix("192.52.193.0/24"), "anycast to the nearest node"}, // AMT
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relay"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("192.175.48.0/24"), "anycast to the nearest node"}, // AS112
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarking"},
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},

	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("::/96"), "IPv4-compatible"},
	{netip.MustParsePrefix("::ffff:0:0/96"), "IPv4-mapped"},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "IPv4-translated"},
	{netip.MustParsePrefix("64:ff9b::/96"), "NAT64"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "NAT64"},
	{netip.MustParsePrefix("100::/64"), "discard"},
	{netip.MustParsePrefix("100:0:0:1::/64"), "dummy"},
	{netip.MustParsePrefix("2001::/32"), "Teredo"},
	{netip.MustParsePrefix("2001:2::/48"), "benchmarking"},
	{netip.MustParsePrefix("2001:10::/28"), "ORCHID"},
	{netip.MustParsePrefix("2001:20::/28"), "ORCHID"},
	{netip.MustParsePrefix("2001::/23"), "protocol assignment"},
	{netip.MustParsePrefix("2001:db8::/32"), "documentation"},
	{netip.MustParsePrefix("2002::/16"), "6to4"},
	{netip.MustParsePrefix("2620:4f:8000::/48"), "anycast to the nearest node"}, // AS112
	{netip.MustParsePrefix("3fff::/20"), "documentation"},
	{netip.MustParsePrefix("5f00::/16"), "segment routing"},
	{netip.MustParsePrefix("fc00::/7"), "unique local"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "site-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

// notPublic returns the kind of special address that addr is, or "" if it is public.
func notPublic(addr netip.Addr) string {
	if !addr.IsValid() {
		return "invalid"
	}
	addr = addr.WithZone("") // a zone would exclude addr from every prefix
	for _, r := range reserved {
		if r.block.Contains(addr) {
			return r.why
		}
	}
	if addr.Is6() && !globalUnicast.Contains(addr) {
		return "unassigned"
	}
	return ""
}
