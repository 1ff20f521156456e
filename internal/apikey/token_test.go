package apikey

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // as in the program
)

// secretPrefix is built at run time, so that the source has nothing that looks like a
// secret.
func secretPrefix(e Environment) string { return "sk_" + string(e) + "_" }

func TestParseToken(t *testing.T) {
	zeros := strings.Repeat("0", 32)
	good := secretPrefix(Test) + zeros + "127lYz" // fleet-api.md 6.1
	tok, err := Parse(good)
	if err != nil || tok.Environment() != Test || tok.Reveal() != good || tok.Partial() != "00127lYz" {
		t.Errorf("the example: got %v, %v", tok, err)
	}
	for _, bad := range []string{
		"", "sk_", good[:45], good + "0", secretPrefix(Live) + zeros + "127lYz", good[:45] + "y", " " + good[1:],
		strings.ToUpper(good), secretPrefix("prod") + zeros + "127lY", "Sk" + good[2:],
		secretPrefix(Test) + zeros[:31] + "-127lYz", secretPrefix(Test) + zeros[:30] + "é127lYz", good[:40] + "\n" + good[41:],
	} {
		if tok, err := Parse(bad); err == nil {
			t.Errorf("%q was read as %v", bad, tok)
		} else if bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("the error shows the token: %v", err)
		}
	}
}

func TestNewToken(t *testing.T) {
	seen := map[string]bool{}
	var count [128]int
	const n = 2000
	for range n {
		for _, e := range []Environment{Live, Test} {
			tok := NewToken(e)
			again, err := Parse(tok.Reveal())
			if err != nil || again != tok || tok.Environment() != e || !strings.HasPrefix(tok.Reveal(), secretPrefix(e)) {
				t.Fatalf("a new token is not one: %v", err)
			}
			if seen[tok.Reveal()] {
				t.Fatal("the same token twice")
			}
			seen[tok.Reveal()] = true
			for _, c := range tok.Reveal()[8:40] {
				count[c]++
			}
		}
	}
	// Each character occurs 2064 times on average, with a deviation of 45: 400 is beyond
	// chance, and a modulo bias (a quarter more for some) is beyond 400.
	for _, c := range alphabet {
		if got, want := count[c], 2*n*randomSize/len(alphabet); got < want-400 || got > want+400 {
			t.Errorf("%q came %d times, want about %d", c, got, want)
		}
	}
}

func TestTokenIsNotPrinted(t *testing.T) {
	tok := NewToken(Live)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("a", "token", tok, "in", []Token{tok}, "at", struct{ T Token }{tok})
	slog.New(slog.NewJSONHandler(&log, nil)).Info("a", "token", tok, "in", []Token{tok}, "at", &struct{ T *Token }{&tok})
	js, err := json.Marshal(map[string]any{"token": tok})
	if err != nil {
		t.Fatal(err)
	}
	secret := tok.Reveal()[8:38]
	for _, text := range []string{
		fmt.Sprint(tok), fmt.Sprintf("%s %v %+v %#v %q %x %d", tok, tok, tok, tok, tok, tok, tok), fmt.Sprintf("%+v %#v", &tok, []Token{tok}),
		log.String(), string(js), fmt.Sprint(Token{}),
	} {
		if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
			t.Errorf("%s shows the token", text)
		}
	}
	if got, want := fmt.Sprint(tok), secretPrefix(Live)+"…"+tok.Reveal()[38:]; got != want {
		t.Errorf("shown: got %s, want %s", got, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("")
	f.Add(secretPrefix(Test) + strings.Repeat("0", 32) + "127lYz")
	f.Add(NewToken(Live).Reveal())
	f.Fuzz(func(t *testing.T, text string) {
		tok, err := Parse(text)
		if err != nil {
			return
		}
		if tok.Reveal() != text || len(text) != 46 {
			t.Errorf("%q is not what it was read as", text)
		}
		for i := range text { // a checksum detects every single change
			changed := []byte(text)
			if changed[i] ^= 1; changed[i] != text[i] {
				if _, err := Parse(string(changed)); err == nil {
					t.Errorf("%q was read with character %d changed", text, i)
				}
			}
		}
	})
}

func TestAllowedIPs(t *testing.T) {
	list, err := ParseAllowedIPs([]string{"192.0.2.77/24", " 198.51.100.7 ", "2001:db8::dead:beef/32", "::ffff:203.0.113.9", "192.0.2.0/24", "::ffff:10.1.2.3/104"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"192.0.2.0/24", "198.51.100.7", "2001:db8::/32", "203.0.113.9", "10.0.0.0/8"}
	if got := list.Strings(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for ip, want := range map[string]bool{
		"192.0.2.1": true, "192.0.3.1": false, "198.51.100.7": true, "198.51.100.8": false, "::ffff:192.0.2.9": true,
		"2001:db8:ffff::1": true, "2001:db9::1": false, "203.0.113.9": true, "10.200.0.1": true, "11.0.0.1": false, "::1": false,
	} {
		if got := list.Allow(netip.MustParseAddr(ip)); got != want {
			t.Errorf("%s allowed: got %t, want %t", ip, got, want)
		}
	}
	if list.Allow(netip.Addr{}) {
		t.Error("an unknown address is in a list")
	}
	if !(AllowedIPs{}).Allow(netip.Addr{}) {
		t.Error("an empty list keeps somebody out")
	}
	for _, bad := range []string{
		"", "192.0.2.1/0", "::/0", "::ffff:0:0/96", "::ffff:1.2.3.4/90", "fe80::1%eth0", "fe80::%1/64", "192.0.2.1/33", "192.0.2.1/-1",
		"192.0.2.1/024", "192.0.2", "example.com", "192.0.2.1:80", "[::1]", "1.2.3.4,5.6.7.8", "010.0.0.1",
	} {
		if list, err := ParseAllowedIPs([]string{bad}); err == nil {
			t.Errorf("%q was read as %v", bad, list)
		}
	}
	many := make([]string, MaxAllowedIPs)
	for i := range many {
		many[i] = fmt.Sprintf("10.0.0.%d", i)
	}
	if list, err := ParseAllowedIPs(many); err != nil || len(list) != MaxAllowedIPs {
		t.Errorf("%d addresses: got %d, %v", MaxAllowedIPs, len(list), err)
	}
	if _, err := ParseAllowedIPs(append(many, "10.0.1.0")); err == nil {
		t.Error("one address too many was taken")
	}
}

func FuzzAllowedIPs(f *testing.F) {
	for _, seed := range []string{"192.0.2.77/24", "::ffff:1.2.3.4/97", "2001:db8::/32", "fe80::1%eth0", "::/0", "::ffff:0:0/96"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseAllowedIPs([]string{text})
		if err != nil {
			return
		}
		again, err := ParseAllowedIPs(list.Strings())
		if err != nil || !slices.Equal(again, list) {
			t.Errorf("%q: %v came back as %v, %v", text, list, again, err)
		}
		p := list[0]
		if p.Bits() < 1 || p != p.Masked() || p.Addr().Is4In6() || p.Addr().Zone() != "" || !list.Allow(p.Addr()) {
			t.Errorf("%q was read as %v", text, p)
		}
		if p.Addr().Is4() && !list.Allow(netip.AddrFrom16(p.Addr().As16())) {
			t.Errorf("%q: the same address as IPv6 is not in %v", text, p)
		}
	})
}

func TestParseExpiry(t *testing.T) {
	for _, test := range []struct{ text, zone, want string }{
		// The key works through all of the date: the next days in the table of
		// fleet-api.md 7.
		{"2026-03-28", "Europe/Berlin", "2026-03-28T23:00:00Z"},
		{"2026-10-24", "Europe/Berlin", "2026-10-24T22:00:00Z"},
		{"2026-10-25", "Europe/Berlin", "2026-10-25T23:00:00Z"},
		{"2026-09-05", "America/Santiago", "2026-09-06T04:00:00Z"}, // has no midnight
		{"2026-03-07", "America/Havana", "2026-03-08T05:00:00Z"},   // no midnight either
		{"2026-10-31", "America/Havana", "2026-11-01T04:00:00Z"},   // two midnights: the earlier
		{"2026-04-04", "Australia/Lord_Howe", "2026-04-04T13:00:00Z"},
		{"2011-12-29", "Pacific/Apia", "2011-12-30T10:00:00Z"}, // followed by the 31st
		{"2011-12-28", "Pacific/Apia", "2011-12-29T10:00:00Z"},
		{"2006-10-28", "America/St_Johns", "2006-10-29T02:30:00Z"}, // the first minute occurs twice
		{"2026-12-31", "UTC", "2027-01-01T00:00:00Z"},
		{"2028-02-28", "Pacific/Kiritimati", "2028-02-28T10:00:00Z"},
		{"2028-02-29", "Pacific/Pago_Pago", "2028-03-01T11:00:00Z"},
		{"2027-03-31T18:00:00+02:00", "Asia/Tokyo", "2027-03-31T16:00:00Z"},
		{"2027-03-31T18:00:00.1234567Z", "UTC", "2027-03-31T18:00:00.123456Z"},
	} {
		loc, err := time.LoadLocation(test.zone)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseExpiry(test.text, loc)
		if err != nil || got.Format(time.RFC3339Nano) != test.want {
			t.Errorf("%s in %s: got %s, %v, want %s", test.text, test.zone, got.Format(time.RFC3339Nano), err, test.want)
		}
	}
	if got, err := ParseExpiry("", time.UTC); err != nil || !got.IsZero() {
		t.Errorf("nothing: got %v, %v", got, err)
	}
	for _, bad := range []string{"tomorrow", "2026-02-30", "2026-2-3", "31.03.2027", "2027-03-31T18:00", "2027-03-31 18:00:00Z"} {
		if got, err := ParseExpiry(bad, time.UTC); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}
