package netguard

import (
	"net/netip"
	"strings"
	"testing"
)

func TestCheckURL(t *testing.T) {
	const (
		name   = "must have a valid host name"
		public = "must have a public host name"
	)
	label := strings.Repeat("a", 63)
	tests := []struct {
		raw     string
		strict  string // error, "" = accepted
		private string // the same with allowPrivate
	}{
		{"https://example.com", "", ""},
		{"https://hooks.client.example/kickstand?source=desk", "", ""},
		{"HTTPS://Example.COM:8443/a%20b", "", ""},
		{"https://example.com.", "", ""},
		{"https://bücher.example/", "", ""},
		{"https://xn--bcher-kva.example/", "", ""},
		{"https://a_b.example.com/", "", ""},
		{"https://93.184.215.14/", "", ""},
		{"https://[2606:4700:4700::1111]:8443/", "", ""},
		{"https://example.com:/", "", ""},

		{"", "must not be empty", "must not be empty"},
		{"https://example.com/" + strings.Repeat("a", 2028), "", ""},
		{"https://example.com/" + strings.Repeat("a", 2029), "must be at most 2048 bytes long", "must be at most 2048 bytes long"},
		{"https://exa mple.com/", "is not a valid URL", "is not a valid URL"},
		{" https://example.com/", "is not a valid URL", "is not a valid URL"},
		{"https://example.com/\r\nX: y", "is not a valid URL", "is not a valid URL"},
		{"https://example.com:port/", "is not a valid URL", "is not a valid URL"},
		{"https://[::1/", "is not a valid URL", "is not a valid URL"},

		{"http://example.com/", "must use https", ""},
		{"ftp://example.com/", "must use https", "must use https or http"},
		{"file:///etc/passwd", "must use https", "must use https or http"},
		{"javascript:alert(1)", "must use https", "must use https or http"},
		{"example.com/hook", "must use https", "must use https or http"},
		{"//example.com/hook", "must use https", "must use https or http"},
		{"https:example.com", "must name a host", "must name a host"},
		{"https:///path", "must name a host", "must name a host"},
		{"https://:443/", name, name},
		{"https://user@example.com/", "must not contain a user name or password", "must not contain a user name or password"},
		{"https://user:pass@example.com/", "must not contain a user name or password", "must not contain a user name or password"},
		{"https://example.com:0/", "must have a port from 1 to 65535", "must have a port from 1 to 65535"},
		{"https://example.com:65536/", "must have a port from 1 to 65535", "must have a port from 1 to 65535"},
		{"https://example.com:65535/", "", ""},

		{"https://a..example.com/", name, name},
		{"https://-a.example.com/", name, name},
		{"https://a!b.example.com/", name, name},
		{"https://" + label + ".example/", "", ""},
		{"https://a" + label + ".example/", name, name},
		{"https://" + strings.Repeat(label+".", 4) + "example/", name, name},
		{"https://./", name, name},

		{"https://localhost/", public, ""},
		{"http://localhost:9000/hook", "must use https", ""},
		{"https://LOCALHOST./", public, ""},
		{"https://app.localhost/", public, ""},
		{"https://metadata.google.internal/", public, ""},
		{"https://printer.local/", public, ""},
		{"https://nas.home.arpa/", public, ""},
		{"https://intranet/", public, ""},
		{"https://internal.example.com/", "", ""},

		{"https://127.0.0.1/", "127.0.0.1 is not a public address (loopback)", ""},
		{"https://10.0.0.1:8443/", "10.0.0.1 is not a public address (private)", ""},
		{"https://169.254.169.254/latest/meta-data", "169.254.169.254 is not a public address (link-local)", ""},
		{"https://[::1]/", "::1 is not a public address (loopback)", ""},
		{"https://[::ffff:10.0.0.1]/", "not a public address (IPv4-mapped)", ""},
		{"https://[fe80::1%25eth0]/", "not a public address (link-local)", ""},
		{"https://127.0.0.1./", "127.0.0.1 is not a public address (loopback)", ""},
		{"https://１２７.０.０.１/", "127.0.0.1 is not a public address (loopback)", ""},
		{"https://127。0。0。1/", "127.0.0.1 is not a public address (loopback)", ""},
		{"https://127.1/", name, name},
		{"https://2130706433/", name, name},
		{"https://0x7f000001/", name, name},
		{"https://0X7f.1/", name, name},
		{"https://127.0.0.0x1/", name, name},
		{"https://0177.0.0.1/", name, name},
		{"https://1.2.3.4.5/", name, name},
	}
	for _, tt := range tests {
		for _, mode := range []struct {
			allowPrivate bool
			want         string
		}{{false, tt.strict}, {true, tt.private}} {
			u, err := CheckURL(tt.raw, mode.allowPrivate)
			switch {
			case mode.want == "" && (err != nil || u == nil):
				t.Errorf("CheckURL(%q, %t): %v", tt.raw, mode.allowPrivate, err)
			case mode.want != "" && (err == nil || !strings.Contains(err.Error(), mode.want)):
				t.Errorf("CheckURL(%q, %t) = %v, want %q", tt.raw, mode.allowPrivate, err, mode.want)
			}
		}
	}
}

func FuzzCheckURL(f *testing.F) {
	for _, s := range []string{"https://example.com/a?b#c", "https://[::ffff:127.0.0.1]:1/", "https://１２７.1", "http://user@localhost:99999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := CheckURL(raw, false)
		if err != nil {
			return
		}
		if u.Scheme != "https" || u.User != nil || u.Hostname() == "" || len(raw) > maxURL {
			t.Errorf("accepted %q", raw)
		}
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil && (Guard{}).Check(addr) != nil {
			t.Errorf("accepted %q with address %s", raw, addr)
		}
		if _, err := CheckURL(u.String(), false); err != nil && len(u.String()) <= maxURL {
			t.Errorf("accepted %q but not its own spelling %q: %v", raw, u, err)
		}
		if _, err := CheckURL(raw, true); err != nil {
			t.Errorf("accepted %q, but not with private addresses allowed: %v", raw, err)
		}
	})
}
