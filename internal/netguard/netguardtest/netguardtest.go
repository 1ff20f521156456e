// Package netguardtest connects clients to servers in memory, also under package synctest, which
// real sockets would block.
package netguardtest

import (
	"context"
	"net"
	"sync"
)

// Listener is a [net.Listener] with in-memory connections. It is safe for concurrent use.
type Listener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// NewListener returns an open listener.
func NewListener() *Listener {
	return &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial returns a connection to the server, which sees it come from the address remote. It waits
// until the server accepts. Errors: net.ErrClosed, and that of ctx.
func (l *Listener) Dial(ctx context.Context, remote string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- conn{server, address(remote)}:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. Further calls have no effect.
func (l *Listener) Close() error { l.once.Do(func() { close(l.closed) }); return nil }

// Addr implements [net.Listener].
func (l *Listener) Addr() net.Addr { return address("server") }

type address string

func (address) Network() string  { return "pipe" }
func (a address) String() string { return string(a) }

// conn is an in-memory connection with a remote address.
type conn struct {
	net.Conn
	remote address
}

func (c conn) RemoteAddr() net.Addr { return c.remote }
