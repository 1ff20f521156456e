package netguard

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	tests := []struct {
		addr string
		why  string // "" = public
	}{
		{"1.1.1.1", ""},
		{"8.8.8.8", ""},
		{"93.184.215.14", ""},
		{"9.255.255.255", ""},
		{"11.0.0.0", ""},
		{"100.63.255.255", ""},
		{"100.128.0.0", ""},
		{"126.255.255.255", ""},
		{"128.0.0.0", ""},
		{"169.253.255.255", ""},
		{"169.255.0.0", ""},
		{"172.15.255.255", ""},
		{"172.32.0.0", ""},
		{"191.255.255.255", ""},
		{"192.0.1.0", ""},
		{"192.167.255.255", ""},
		{"192.169.0.0", ""},
		{"198.17.255.255", ""},
		{"198.20.0.0", ""},
		{"223.255.255.255", ""},

		{"0.0.0.0", "unspecified"},
		{"0.0.0.1", "this network"},
		{"0.255.255.255", "this network"},
		{"10.0.0.0", "private"},
		{"10.255.255.255", "private"},
		{"100.64.0.0", "carrier-grade NAT"},
		{"100.100.100.200", "carrier-grade NAT"}, // a cloud's metadata service
		{"100.127.255.255", "carrier-grade NAT"},
		{"127.0.0.1", "loopback"},
		{"127.255.255.255", "loopback"},
		{"169.254.0.0", "link-local"},
		{"169.254.169.254", "link-local"}, // most clouds' metadata service
		{"172.16.0.0", "private"},
		{"172.31.255.255", "private"},
		{"192.0.0.0", "protocol assignment"},
		{"192.0.0.192", "protocol assignment"}, // another metadata service
		{"192.0.2.1", "documentation"},
		{"192.31.196.1", "anycast to the nearest node"},
		{"192.52.193.1", "anycast to the nearest node"},
		{"192.88.99.1", "6to4 relay"},
		{"192.168.0.0", "private"},
		{"192.168.255.255", "private"},
		{"192.175.48.1", "anycast to the nearest node"},
		{"198.18.0.0", "benchmarking"},
		{"198.19.255.255", "benchmarking"},
		{"198.51.100.1", "documentation"},
		{"203.0.113.1", "documentation"},
		{"224.0.0.1", "multicast"},
		{"239.255.255.255", "multicast"},
		{"240.0.0.0", "reserved"},
		{"255.255.255.254", "reserved"},
		{"255.255.255.255", "broadcast"},

		{"2606:4700:4700::1111", ""},
		{"2001:4860:4860::8888", ""},
		{"2a00:1450:4001:80b::200e", ""},
		{"2001:200::1", ""},
		{"2001:db7:ffff::1", ""},
		{"2001:db9::1", ""},
		{"2003::1", ""},

		{"::", "unspecified"},
		{"::1", "loopback"},
		{"::2", "IPv4-compatible"},
		{"::127.0.0.1", "IPv4-compatible"},
		{"::8.8.8.8", "IPv4-compatible"},
		{"::ffff:127.0.0.1", "IPv4-mapped"},
		{"::ffff:8.8.8.8", "IPv4-mapped"},
		{"::ffff:0:127.0.0.1", "IPv4-translated"},
		{"64:ff9b::127.0.0.1", "NAT64"},
		{"64:ff9b::8.8.8.8", "NAT64"},
		{"64:ff9b:1::1", "NAT64"},
		{"64:ff9b:1:ffff::1", "NAT64"},
		{"100::1", "discard"},
		{"100:0:0:1::1", "dummy"},
		{"2001::1", "Teredo"},
		{"2001:0:4136:e378:8000:63bf:3fff:fdd2", "Teredo"},
		{"2001:1::1", "protocol assignment"},
		{"2001:2::1", "benchmarking"},
		{"2001:3::1", "protocol assignment"},
		{"2001:10::1", "ORCHID"},
		{"2001:20::1", "ORCHID"},
		{"2001:1ff:ffff::1", "protocol assignment"},
		{"2001:db8::1", "documentation"},
		{"2002:7f00:1::1", "6to4"},
		{"2002:808:808::1", "6to4"},
		{"2620:4f:8000::1", "anycast to the nearest node"},
		{"3fff::1", "documentation"},
		{"3fff:fff:ffff::1", "documentation"},
		{"4000::1", "unassigned"},
		{"5f00::1", "segment routing"},
		{"1fff::1", "unassigned"},
		{"200::1", "unassigned"},
		{"fbff::1", "unassigned"},
		{"fc00::1", "unique local"},
		{"fd00:ec2::254", "unique local"}, // a cloud's metadata service
		{"fdff::1", "unique local"},
		{"fe80::1", "link-local"},
		{"fe80::1%eth0", "link-local"},
		{"2606:4700:4700::1111%eth0", ""}, // the zone is ignored
		{"::1%lo", "loopback"},
		{"febf::1", "link-local"},
		{"fec0::1", "site-local"},
		{"feff::1", "site-local"},
		{"ff02::1", "multicast"},
		{"ffff::1", "multicast"},
	}
	for _, tt := range tests {
		addr := netip.MustParseAddr(tt.addr)
		got := ""
		if err := (Guard{}).Check(addr); err != nil {
			refused, ok := errors.AsType[*AddressError](err)
			if !ok || refused.Addr != addr {
				t.Errorf("Check(%s): %#v", addr, err)
				continue
			}
			got = refused.Why
		}
		if got != tt.why {
			t.Errorf("Check(%s) refuses as %q, want %q", addr, got, tt.why)
		}
		if err := (Guard{AllowPrivate: true}).Check(addr); err != nil {
			t.Errorf("Check(%s) with AllowPrivate: %v", addr, err)
		}
	}
	if err := (Guard{}).Check(netip.Addr{}); err == nil {
		t.Error("the zero address passes")
	}
}

func TestControl(t *testing.T) {
	tests := []struct {
		network, address string
		want             string
	}{
		{"tcp4", "8.8.8.8:443", ""},
		{"tcp6", "[2606:4700:4700::1111]:443", ""},
		{"tcp4", "10.1.2.3:443", "10.1.2.3 is not a public address (private)"},
		{"tcp6", "[::1]:443", "::1 is not a public address (loopback)"},
		{"tcp6", "[fe80::1%lo]:443", "fe80::1%lo is not a public address (link-local)"},
		{"udp4", "8.8.8.8:53", "network udp4 is not allowed"},
		{"unix", "/run/docker.sock", "network unix is not allowed"},
		{"tcp4", "example.com:443", "ParseAddr"},
	}
	for _, tt := range tests {
		err := Guard{}.Control(tt.network, tt.address, nil)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("Control(%s, %s) = %v, want %q", tt.network, tt.address, err, tt.want)
		}
	}
}

func TestDialContext(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())

	conn, err := Guard{AllowPrivate: true}.DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()

	for host, want := range map[string]string{
		"127.0.0.1": "127.0.0.1 is not a public address (loopback)",
		"localhost": "localhost resolves to ",
	} {
		_, err := Guard{}.DialContext(t.Context(), "tcp", net.JoinHostPort(host, port))
		if refused, ok := errors.AsType[*AddressError](err); !ok || !strings.HasPrefix(refused.Error(), want) {
			t.Errorf("dial %s: %v, want %q", host, err, want)
		}
	}
}

// TestLookupErrors: the error of a lookup names the host, and not the DNS server of the deployment.
func TestLookupErrors(t *testing.T) {
	g := Guard{Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("the server is down")
	}}}
	_, err := g.DialContext(t.Context(), "tcp", "absent.example.com:443")
	lookup, ok := errors.AsType[*net.DNSError](err)
	if !ok || lookup.Name != "absent.example.com" || lookup.Server != "" || strings.Contains(err.Error(), ":53") {
		t.Errorf("DialContext() = %v, want an error without a server", err)
	}
}
