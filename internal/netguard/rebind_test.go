package netguard

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// shiftyResolver resolves every name to the addresses in turn, and repeats the last one.
func shiftyResolver(t *testing.T, addrs ...string) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	var mu sync.Mutex
	next := 0
	answer := func(query []byte) []byte {
		var p dnsmessage.Parser
		h, err := p.Start(query)
		if err != nil {
			return nil
		}
		q, err := p.Question()
		if err != nil {
			return nil
		}
		b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: h.ID, Response: true, RecursionAvailable: true})
		b.StartQuestions()
		b.Question(q)
		b.StartAnswers()
		if q.Type == dnsmessage.TypeA {
			mu.Lock()
			addr := netip.MustParseAddr(addrs[min(next, len(addrs)-1)])
			next++
			mu.Unlock()
			b.AResource(dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 0}, dnsmessage.AResource{A: addr.As4()})
		}
		m, err := b.Finish()
		if err != nil {
			return nil
		}
		return m
	}
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			if m := answer(buf[:n]); m != nil {
				server.WriteTo(m, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// TestRebinding: a name that resolves to a public address when checked and to a private one
// when dialed is refused, because the dialed address counts.
func TestRebinding(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			t.Errorf("%s connected to loopback", conn.RemoteAddr())
			conn.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())

	r := shiftyResolver(t, "93.184.215.14", "127.0.0.1")
	first, err := r.LookupNetIP(t.Context(), "ip4", "shifty.example.")
	if err != nil || len(first) != 1 || (Guard{}).Check(first[0].Unmap()) != nil {
		t.Fatalf("at first the name resolves to %v, %v, want a public address", first, err)
	}
	tr := newTransport(Guard{Resolver: r}, func(*http.Request) (*url.URL, error) { return nil, nil }, r.LookupNetIP)
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://shifty.example.:"+port+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = tr.RoundTrip(req)
	refused, ok := errors.AsType[*AddressError](err)
	if !ok || refused.Host != "shifty.example." || refused.Addr.String() != "127.0.0.1" {
		t.Errorf("got %v, want the private address refused", err)
	}
}
