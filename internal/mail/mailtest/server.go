package mailtest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/jhillyerd/enmime/v2"
	"github.com/kickstand-dev/kickstand/internal/mail"
)

// Server is an SMTP server on a loopback address that ends with the test.
type Server struct {
	URL       string      // for mail.OpenSMTP, including user and password
	ClientTLS *tls.Config // trusts the server's certificate
	addr      string

	mu       sync.Mutex
	received []Delivery
}

// Delivery is a mail that a [Server] accepted.
type Delivery struct {
	From string // envelope
	To   []string
	UTF8 bool   // SMTPUTF8 was requested
	TLS  bool   // the connection was encrypted
	User string // the logged-in user; may be empty
	Raw  []byte
}

// ServerConfig configures a [Server]. The zero value accepts mail from anyone without TLS.
type ServerConfig struct {
	StartTLS       bool
	ImplicitTLS    bool
	User, Password string // require login if set
	LoginOnly      bool   // offer LOGIN but not PLAIN
	UTF8           bool   // offer SMTPUTF8
	MaxBytes       int64  // offer SIZE; 0 for no limit

	// Refuse is called with "AUTH user", "MAIL address", "RCPT address" and "DATA"; nil
	// accepts.
	Refuse func(command string) *smtp.SMTPError
}

// NewServer starts a server.
func NewServer(t testing.TB, config ServerConfig) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{addr: l.Addr().String()}
	serverTLS, clientTLS := certificate(t)
	s.ClientTLS = clientTLS

	u := url.URL{Scheme: "smtp", Host: s.addr}
	if config.User != "" {
		u.User = url.UserPassword(config.User, config.Password)
	}
	srv := smtp.NewServer(&backend{s, config})
	srv.Domain = "mail.test"
	srv.AllowInsecureAuth = true
	srv.EnableSMTPUTF8 = config.UTF8
	srv.MaxMessageBytes = config.MaxBytes
	srv.ErrorLog = log.New(io.Discard, "", 0)
	if config.StartTLS {
		srv.TLSConfig = serverTLS
	}
	if config.ImplicitTLS {
		u.Scheme = "smtps"
		l = tls.NewListener(l, serverTLS)
	}
	s.URL = u.String()

	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(l)
	}()
	t.Cleanup(func() {
		srv.Close()
		l.Close() // srv.Close misses a Serve that has not started
		<-done
	})
	return s
}

// Deliveries returns the accepted mails in order.
func (s *Server) Deliveries() []Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.received)
}

// Received returns them as the recipient sees them, parsed with another library than the
// composing one.
func (s *Server) Received(t testing.TB) []Received {
	t.Helper()
	var list []Received
	for _, d := range s.Deliveries() {
		e, err := enmime.ReadEnvelope(bytes.NewReader(d.Raw))
		if err != nil {
			t.Fatalf("parse mail: %v\n%s", err, d.Raw)
		}
		from, err := e.AddressList("From")
		if err != nil || len(from) != 1 {
			t.Fatalf("From holds %v, error %v; want one address", from, err)
		}
		r := Received{
			EnvelopeFrom: d.From, From: from[0].Address, To: d.To, Subject: e.GetHeader("Subject"),
			Text: strings.ReplaceAll(e.Text, "\r\n", "\n"), HTML: strings.ReplaceAll(e.HTML, "\r\n", "\n"),
		}
		if r.EnvelopeFrom == "" {
			r.EnvelopeFrom = "<>"
		}
		for _, name := range []string{"References", "Auto-Submitted", "X-Note"} {
			for _, value := range e.GetHeaderValues(name) {
				r.Headers = append(r.Headers, mail.Header{Name: name, Value: value})
			}
		}
		for _, a := range e.Attachments {
			r.Attachments = append(r.Attachments, a.FileName)
		}
		list = append(list, r)
	}
	return list
}

type backend struct {
	server *Server
	config ServerConfig
}

func (b *backend) NewSession(c *smtp.Conn) (smtp.Session, error) {
	return &session{backend: b, conn: c}, nil
}

type session struct {
	*backend
	conn     *smtp.Conn
	user     string
	delivery Delivery
}

func (s *session) AuthMechanisms() []string {
	switch {
	case s.config.User == "":
		return nil
	case s.config.LoginOnly:
		return []string{"LOGIN"}
	default:
		return []string{sasl.Plain, "LOGIN"}
	}
}

func (s *session) Auth(mechanism string) (sasl.Server, error) {
	check := func(user, password string) error {
		if err := s.refuse("AUTH " + user); err != nil {
			return err
		}
		if user != s.config.User || password != s.config.Password {
			return smtp.ErrAuthFailed
		}
		s.user = user
		return nil
	}
	if mechanism == "LOGIN" {
		return &loginServer{check: check}, nil
	}
	return sasl.NewPlainServer(func(_, user, password string) error { return check(user, password) }), nil
}

func (s *session) refuse(command string) error {
	if s.config.Refuse == nil {
		return nil
	}
	// A nil *SMTPError in an error would not be nil.
	if err := s.config.Refuse(command); err != nil {
		return err
	}
	return nil
}

func (s *session) Mail(from string, options *smtp.MailOptions) error {
	if s.config.User != "" && s.user == "" {
		return smtp.ErrAuthRequired
	}
	_, encrypted := s.conn.TLSConnectionState()
	s.delivery = Delivery{From: from, UTF8: options.UTF8, TLS: encrypted, User: s.user}
	return s.refuse("MAIL " + from)
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.delivery.To = append(s.delivery.To, to)
	return s.refuse("RCPT " + to)
}

func (s *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := s.refuse("DATA"); err != nil {
		return err
	}
	s.delivery.Raw = raw
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.received = append(s.server.received, s.delivery)
	return nil
}

func (s *session) Reset()        { s.delivery = Delivery{} }
func (s *session) Logout() error { return nil }

// loginServer is the server side of the LOGIN mechanism.
type loginServer struct {
	check func(user, password string) error
	step  int
	user  string
}

func (l *loginServer) Next(response []byte) (challenge []byte, done bool, err error) {
	l.step++
	switch l.step {
	case 1:
		return []byte("Username:"), false, nil
	case 2:
		l.user = string(response)
		return []byte("Password:"), false, nil
	case 3:
		return nil, true, l.check(l.user, string(response))
	default:
		return nil, false, errors.New("too many steps")
	}
}

// certificate returns a certificate for the loopback address and the client configuration that
// trusts it.
func certificate(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "mail.test"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		DNSNames:     []string{"mail.test"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(fmt.Errorf("own certificate: %w", err))
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
		&tls.Config{RootCAs: roots}
}
