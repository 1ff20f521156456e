package mail

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/textproto"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/wneessen/go-mail/smtp"
)

const (
	// sendTimeout bounds Send from dialing until the server is ready for the message.
	sendTimeout = 30 * time.Second
	// contentTimeout bounds the rest until the final reply. Servers read a whole message before
	// they accept it, and a client that gives up before cannot know whether they did (RFC 5321
	// section 4.5.3.2.6 and RFC 1047).
	contentTimeout = 5 * time.Minute
)

// SMTP sends through a server, one connection per message. The exported fields may be set
// before first use.
type SMTP struct {
	// TLS is the client's configuration, for example for a private certificate authority. Nil
	// uses the system's roots, which SSL_CERT_FILE and SSL_CERT_DIR override. An empty
	// ServerName means the URL's host.
	TLS *tls.Config
	// LocalName is the EHLO name: the URL's ehlo parameter, else the machine's name.
	LocalName string
	// Dial replaces the dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	host, addr string
	implicit   bool // TLS from the first byte
	insist     bool // TLS is required
	user       string
	// password is a func, so that printing the struct does not show it.
	password func() string
	token    func(ctx context.Context) (string, error) // nil: login by password
}

// UseToken has the sender log in with an OAuth access token in place of a password, by XOAUTH2.
// Call it before first use.
func (s *SMTP) UseToken(user string, token func(ctx context.Context) (string, error)) {
	s.user, s.token = user, token
}

// OpenSMTP returns a sender for smtp://[user:password@]host[:587] or
// smtps://[user:password@]host[:465]. It does not connect. smtp uses STARTTLS if the server
// offers it; the parameter tls=required makes it mandatory. The parameter ehlo sets
// [SMTP.LocalName]. Special characters in user and password are percent-encoded.
//
// Errors never quote the URL: a password with an unencoded character can end up in any part.
func OpenSMTP(rawURL string) (*SMTP, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("mail: SMTP URL is malformed: want smtp://user:password@host:587, special characters in user and password percent-encoded")
	}
	s := &SMTP{host: u.Hostname()}
	port := u.Port()
	switch u.Scheme {
	case "smtp":
		port = cmp.Or(port, "587")
	case "smtps":
		port, s.implicit = cmp.Or(port, "465"), true
	default:
		return nil, errors.New("mail: SMTP URL must begin with smtp:// or smtps://")
	}
	if s.host == "" {
		return nil, errors.New("mail: SMTP URL has no host")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return nil, errors.New("mail: SMTP URL has a port outside 1 to 65535")
	}
	if u.Path != "" && u.Path != "/" || u.Fragment != "" || u.Opaque != "" {
		return nil, errors.New("mail: SMTP URL has text after the host: percent-encode / as %2F, ? as %3F and # as %23 in user and password")
	}
	s.addr = net.JoinHostPort(s.host, port)

	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("mail: SMTP URL has malformed parameters")
	}
	s.LocalName = localName()
	for key, values := range query {
		switch {
		case key == "tls" && slices.Equal(values, []string{"required"}):
			s.insist = true
		case key == "ehlo" && len(values) == 1 && isHostName(values[0]):
			s.LocalName = values[0]
		default:
			return nil, errors.New("mail: SMTP URL has a parameter other than tls=required and ehlo=host.name")
		}
	}
	if u.User != nil {
		password, _ := u.User.Password()
		if u.User.Username() == "" || password == "" {
			return nil, errors.New("mail: SMTP URL needs both user and password, or neither")
		}
		s.user = u.User.Username()
		s.password = func() string { return password }
	}
	return s, nil
}

// String returns the URL without the password.
func (s *SMTP) String() string {
	u := url.URL{Scheme: "smtp", Host: s.addr}
	if s.implicit {
		u.Scheme = "smtps"
	}
	if s.user != "" {
		u.User = url.User(s.user)
	}
	if s.insist {
		u.RawQuery = "tls=required"
	}
	return u.String()
}

// Send implements [Sender]. If the server refuses one recipient, the message is sent to none,
// so that a retry repeats it for none. It takes at most 30 seconds until the server is ready
// for the message, and 5 minutes from then.
//
// Permanent are 5xx replies, a message too large for the server, and an address that it does
// not support. Everything else is temporary: 4xx replies, connection errors, an invalid
// certificate, an unsafe login.
func (s *SMTP) Send(ctx context.Context, m Message) error {
	_, err := s.SendTracked(ctx, m, func() error { return nil })
	return err
}

// SendTracked implements [TrackedSender]. It calls submitting when the server has accepted the
// recipients and is ready for the message, and before the final dot. It returns no id.
func (s *SMTP) SendTracked(ctx context.Context, m Message, submitting func() error) (string, error) {
	env, raw, err := compose(m)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := time.AfterFunc(sendTimeout, func() { cancel(context.DeadlineExceeded) })
	defer limit.Stop()
	return "", s.session(ctx, func(c *smtp.Client) error {
		begun := false
		return s.deliver(ctx, c, env, raw, func() error {
			err := submitting()
			if !begun {
				limit.Reset(contentTimeout)
				begun = true
			}
			return err
		})
	})
}

// Check connects, starts TLS and logs in like Send, without sending. The error is an [*Error].
func (s *SMTP) Check(ctx context.Context) error {
	_, err := s.Probe(ctx)
	return err
}

// Probe is [SMTP.Check], and reports whether the connection was encrypted.
func (s *SMTP) Probe(ctx context.Context) (encrypted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	err = s.session(ctx, func(c *smtp.Client) error {
		_, upgraded := c.TLSConnectionState()
		encrypted = s.implicit || upgraded
		return nil
	})
	return encrypted, err
}

// Address returns the server's host and port.
func (s *SMTP) Address() string { return s.addr }

// Local reports whether the server's name is this machine.
func (s *SMTP) Local() bool {
	addr, err := netip.ParseAddr(s.host)
	return s.host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// session runs f on a connection ready for MAIL FROM.
func (s *SMTP) session(ctx context.Context, f func(*smtp.Client) error) error {
	dial := s.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, "tcp", s.addr)
	if err != nil {
		return s.failed(ctx, OpConnect, err)
	}
	defer conn.Close()
	conn = &boundedConn{Conn: conn, left: maxReplies}
	// The client has no contexts. A deadline in the past fails its current and further reads
	// and writes.
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	wire := conn
	if s.implicit {
		secured := tls.Client(conn, s.tlsConfig())
		if err := secured.HandshakeContext(ctx); err != nil {
			return s.failed(ctx, OpTLS, err)
		}
		wire = secured
	}
	c, err := smtp.NewClient(wire, s.host)
	if err != nil {
		return s.failed(ctx, OpConnect, err)
	}
	if err := c.Hello(s.LocalName); err != nil {
		return s.failed(ctx, OpConnect, err)
	}
	if err := s.secure(ctx, c); err != nil {
		return err
	}
	if err := s.login(ctx, c, conn.RemoteAddr()); err != nil {
		return err
	}
	if err := f(c); err != nil {
		return err
	}
	// The server has accepted the message, so the result of QUIT does not matter, and a slow
	// answer costs little.
	if stop() {
		conn.SetDeadline(time.Now().Add(time.Second))
		c.Quit()
	}
	return nil
}

// maxReplies bounds the bytes of all replies of a session. The client reads a line of any length into
// memory, and organizations choose servers.
const maxReplies = 1 << 20

var errReplies = errors.New("the server sends too much")

// boundedConn limits what is read from a connection, in bytes.
type boundedConn struct {
	net.Conn
	left int
}

// Read implements [net.Conn].
func (c *boundedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.left -= n; c.left < 0 {
		return 0, errReplies
	}
	return n, err
}

func (s *SMTP) tlsConfig() *tls.Config {
	config := new(tls.Config)
	if s.TLS != nil {
		config = s.TLS.Clone()
	}
	config.ServerName = cmp.Or(config.ServerName, s.host)
	return config
}

// secure starts TLS if the server offers it. A failed handshake is an error even if TLS is
// optional: otherwise an attacker could read the mail by breaking the handshake.
func (s *SMTP) secure(ctx context.Context, c *smtp.Client) error {
	if s.implicit {
		return nil
	}
	if offered, _ := c.Extension("STARTTLS"); !offered {
		if s.insist {
			return s.failed(ctx, OpTLS, errors.New("the server does not offer STARTTLS, but tls=required is set"))
		}
		return nil
	}
	if err := c.StartTLS(s.tlsConfig()); err != nil {
		return s.failed(ctx, OpTLS, err)
	}
	return nil
}

func (s *SMTP) login(ctx context.Context, c *smtp.Client, remote net.Addr) error {
	if s.user == "" {
		return nil
	}
	if _, encrypted := c.TLSConnectionState(); !encrypted {
		// Check the connected address, not the name, which depends on a resolver.
		tcp, ok := remote.(*net.TCPAddr)
		if !ok || !tcp.IP.IsLoopback() {
			return s.failed(ctx, OpLogin, errors.New("not sending the password over a connection without TLS: use smtps://, or a server that offers STARTTLS"))
		}
	}
	_, offered := c.Extension("AUTH")
	mechanisms := strings.Fields(strings.ToUpper(offered))
	var auth smtp.Auth
	switch {
	case s.token != nil:
		token, err := s.token(ctx)
		if err != nil {
			return s.failed(ctx, OpLogin, err)
		}
		auth = smtp.XOAuth2Auth(s.user, token)
	case slices.Contains(mechanisms, "PLAIN"):
		auth = smtp.PlainAuth("", s.user, s.password(), s.host, true)
	case slices.Contains(mechanisms, "LOGIN"):
		auth = smtp.LoginAuth(s.user, s.password(), s.host, true)
	default:
		return s.failed(ctx, OpLogin, errors.New("the server offers neither PLAIN nor LOGIN authentication"))
	}
	if err := c.Auth(auth); err != nil {
		return s.failed(ctx, OpLogin, err)
	}
	return nil
}

func (s *SMTP) deliver(ctx context.Context, c *smtp.Client, env envelope, raw []byte, submitting func() error) error {
	if _, size := c.Extension("SIZE"); size != "" {
		if limit, err := strconv.Atoi(size); err == nil && limit > 0 && len(raw) > limit {
			return &Error{Op: OpContent, Server: s.addr, Err: fmt.Errorf("message of %d bytes is over the server's limit of %d", len(raw), limit)}
		}
	}
	if takes, _ := c.Extension("SMTPUTF8"); env.utf8 && !takes {
		e := &Error{Op: OpSender, Server: s.addr, Err: errors.New("an address is not ASCII and the server does not offer SMTPUTF8")}
		if i := slices.IndexFunc(env.to, func(to string) bool { return !isASCII(to) }); i >= 0 {
			e.Op, e.Recipient = OpRecipient, env.to[i]
		}
		return e
	}
	// Unneeded SMTPUTF8 makes the mail undeliverable beyond a next hop without it.
	c.SkipSMTPUTF8(!env.utf8)
	if err := c.Mail(env.from); err != nil {
		return s.failed(ctx, OpSender, err)
	}
	for _, to := range env.to {
		if err := c.Rcpt(to); err != nil {
			e := s.failed(ctx, OpRecipient, err)
			e.Recipient = to
			return e
		}
	}
	w, err := c.Data()
	if err != nil {
		return s.failed(ctx, OpContent, err)
	}
	if err := submitting(); err != nil {
		return &Error{Op: OpContent, Server: s.addr, Temporary: true, Err: err}
	}
	// After a failed write the deferred close of the connection ends the transaction. w.Close
	// would write the final dot and make a partial message complete.
	if _, err := w.Write(raw); err != nil {
		return s.failed(ctx, OpContent, err)
	}
	if err := submitting(); err != nil {
		return &Error{Op: OpContent, Server: s.addr, Temporary: true, Err: err}
	}
	if err := w.Close(); err != nil {
		e := s.failed(ctx, OpContent, err)
		if e.Code/100 == 2 {
			return nil // the first digit decides (RFC 5321 section 4.3.2)
		}
		e.Unclear = e.Code < 400
		return e
	}
	return nil
}

// failed classifies err of step op.
func (s *SMTP) failed(ctx context.Context, op Op, err error) *Error {
	e := &Error{Op: op, Server: s.addr, Temporary: true}
	reply, replied := errors.AsType[*textproto.Error](err)
	switch {
	case replied:
		e.Code = reply.Code
		e.Temporary = reply.Code < 500
		e.EnhancedCode, e.Text = s.readable(reply.Msg)
	case ctx.Err() != nil:
		e.Err = context.Cause(ctx)
	default:
		e.Err = err
		// The error of a malformed reply quotes it.
		if clean := s.redact(err.Error()); clean != err.Error() {
			e.Err = errors.New(clean)
		}
	}
	return e
}

var enhancedCode = regexp.MustCompile(`^[245]\.\d{1,3}\.\d{1,3}\b`)

// readable splits a reply into the enhanced code (RFC 2034), which should begin every line but
// begins only the last with some servers, and its text as one printable line.
func (s *SMTP) readable(reply string) (code, text string) {
	var lines []string
	for line := range strings.Lines(reply) {
		found := enhancedCode.FindString(line)
		code = cmp.Or(code, found)
		lines = append(lines, strings.TrimSpace(line[len(found):]))
	}
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s.redact(strings.Join(lines, " ")))
	return code, truncate(text, 500)
}

// token matches what may be an access token, or a part of one.
var token = regexp.MustCompile(`[A-Za-z0-9+/=_.~-]{40,}`)

// redact removes the credentials from a reply: a server may quote a line that it does not
// understand.
func (s *SMTP) redact(said string) string {
	if s.token != nil {
		return token.ReplaceAllString(said, "[redacted]")
	}
	if s.password == nil {
		return said
	}
	password := s.password()
	encoded := base64.StdEncoding.EncodeToString
	return strings.NewReplacer(
		encoded([]byte("\x00"+s.user+"\x00"+password)), "[redacted]",
		encoded([]byte(password)), "[redacted]",
		password, "[redacted]",
	).Replace(said)
}

// localName returns the machine's name if it is valid in EHLO.
func localName() string {
	name, err := os.Hostname()
	if err != nil || !isHostName(name) {
		return "localhost"
	}
	return name
}

func isHostName(s string) bool {
	return s != "" && len(s) <= 255 && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '.' && r != '-' && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r))
	})
}
