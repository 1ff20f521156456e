package smtpd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// session is the dialogue with a client.
type session struct {
	*Service
	wire    *wire
	conn    net.Conn // the wire, or TLS over it
	in      *bufio.Reader
	out     *bufio.Writer
	client  string // see [network]
	address netip.Addr

	secure string // TLS version and cipher; empty: no TLS
	helo   string // empty: the client has not introduced itself
	esmtp  bool
	errors int
	idle   int // commands without a mail, see [maxIdle]
	begun  time.Time

	transaction
}

// transaction is the envelope of a mail.
type transaction struct {
	from   path
	open   bool // MAIL was accepted
	utf8   bool
	to     []recipient
	spf    chan spfResult  // nil: not evaluated
	late   <-chan struct{} // closed when SPF has ended, or takes too long
	cancel context.CancelFunc
}

func newSession(s *Service, conn net.Conn) *session {
	w := &wire{Conn: conn}
	w.idle.Store(int64(commandTime))
	c := &session{Service: s, wire: w, begun: time.Now()}
	c.client, c.address = network(conn)
	c.use(w)
	return c
}

// use reads from and writes to conn from now on.
func (c *session) use(conn net.Conn) {
	c.conn, c.in, c.out = conn, bufio.NewReaderSize(conn, maxLine), bufio.NewWriterSize(conn, maxLine)
}

// errEnd ends a session.
var errEnd = errors.New("the session ends")

// run talks to the client until the end of the session.
func (c *session) run() {
	defer c.reset()
	defer func() {
		if v := recover(); v != nil {
			c.Logger.Error("panic in an SMTP session", "client", c.address.String(), "panic", v, "stack", string(debug.Stack()))
			c.reply(421, "4.3.0", "internal error, try again later")
			c.out.Flush()
		}
	}()
	c.reply(220, "", c.Hostname+" ESMTP")
	for {
		err := c.turn()
		if err == nil {
			continue
		}
		if c.out.Flush() == nil && !errors.Is(err, io.EOF) {
			c.linger()
		}
		return
	}
}

// linger gives the client the time to read the last reply: a connection that is closed with unread
// input loses it.
func (c *session) linger() {
	if half, ok := c.wire.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		c.wire.busy.Store(true) // no interruption
		c.wire.until.Store(time.Now().Add(lingerTime).UnixNano())
		io.CopyN(io.Discard, c.wire, 256<<10)
	}
}

// turn answers one command.
func (c *session) turn() error {
	if c.stopping.Load() {
		c.reply(421, "4.3.2", c.Hostname+" stopping, try again later")
		return errEnd
	}
	if !c.open && time.Since(c.begun) > sessionTime {
		c.refused("session_time")
		c.reply(421, "4.4.2", c.Hostname+" the connection is too old, connect again")
		return errEnd
	}
	// Replies to pipelined commands travel together.
	if waiting, _ := c.in.Peek(c.in.Buffered()); !bytes.Contains(waiting, []byte("\n")) {
		if err := c.out.Flush(); err != nil {
			return err
		}
	}
	c.wire.until.Store(time.Now().Add(commandTime).UnixNano())
	line, err := readLine(c.in, maxLine)
	c.wire.until.Store(0)
	switch {
	case errors.Is(err, errBareLF):
		c.refused("bare_lf")
		c.reply(521, "5.5.2", "lines end with CRLF")
		return errEnd
	case errors.Is(err, errLongLine):
		c.refused("line_length")
		c.reply(521, "5.5.6", "the line is too long")
		return errEnd
	case errors.Is(err, os.ErrDeadlineExceeded) && c.stopping.Load():
		return nil // answered by the next turn
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.reply(421, "4.4.2", c.Hostname+" timeout")
		return errEnd
	case err != nil:
		return io.EOF // the client has left
	}
	return c.command(line)
}

// command answers a command.
func (c *session) command(line string) error {
	verb, arg, _ := strings.Cut(line, " ")
	arg = strings.TrimSpace(arg)
	if !printable(line) {
		return c.fail(501, "5.5.2", "the command has characters that are not allowed")
	}
	verb = strings.ToUpper(verb)
	if verb != "MAIL" && verb != "RCPT" && verb != "DATA" && verb != "QUIT" {
		if c.idle++; c.idle > maxIdle {
			c.refused("idle")
			c.reply(421, "4.7.0", c.Hostname+" too many commands without a mail")
			return errEnd
		}
	}
	switch verb {
	case "EHLO":
		return c.greet(arg, true)
	case "HELO":
		return c.greet(arg, false)
	case "MAIL":
		return c.mail(arg)
	case "RCPT":
		return c.rcpt(arg)
	case "DATA":
		return c.data(arg)
	case "RSET":
		c.reset()
		c.reply(250, "2.0.0", "ok")
	case "NOOP":
		c.reply(250, "2.0.0", "ok")
	case "VRFY":
		c.reply(252, "2.5.0", "try RCPT")
	case "HELP":
		c.reply(214, "2.0.0", "this server receives mail for its own addresses only")
	case "STARTTLS":
		return c.startTLS(arg)
	case "QUIT":
		c.reply(221, "2.0.0", c.Hostname+" bye")
		return errEnd
	case "AUTH", "EXPN", "BDAT", "ETRN", "TURN", "ATRN", "SEND", "SOML", "SAML":
		return c.fail(502, "5.5.1", "not supported")
	default:
		return c.fail(500, "5.5.2", "unknown command")
	}
	return nil
}

// printable reports whether a command has no control characters, and is UTF-8.
func printable(line string) bool {
	return strings.ToValidUTF8(line, "") == line && !strings.ContainsFunc(line, unicode.IsControl)
}

func (c *session) greet(name string, esmtp bool) error {
	if name == "" || len(name) > 255 || strings.ContainsAny(name, " \t") {
		return c.fail(501, "5.5.4", "a host name is required")
	}
	c.reset()
	c.helo, c.esmtp = name, esmtp
	if !esmtp {
		c.reply(250, "", c.Hostname)
		return nil
	}
	lines := []string{c.Hostname, "PIPELINING", "SIZE " + strconv.FormatInt(c.MaxSize, 10), "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES"}
	if c.Certificate != nil && c.secure == "" {
		lines = append(lines, "STARTTLS")
	}
	for i, text := range lines {
		mark := "-"
		if i == len(lines)-1 {
			mark = " "
		}
		fmt.Fprintf(c.out, "250%s%s\r\n", mark, text)
	}
	return nil
}

func (c *session) startTLS(arg string) error {
	switch {
	case c.Certificate == nil:
		return c.fail(502, "5.5.1", "TLS is not available")
	case c.secure != "":
		return c.fail(503, "5.5.1", "TLS is active already")
	case arg != "":
		return c.fail(501, "5.5.4", "STARTTLS has no parameters")
	case c.in.Buffered() > 0: // it would count as sent by TLS
		c.refused("starttls_injection")
		c.reply(521, "5.5.1", "commands after STARTTLS are not encrypted")
		return errEnd
	}
	c.reply(220, "2.0.0", "ready")
	if err := c.out.Flush(); err != nil {
		return io.EOF
	}
	conn := tls.Server(c.wire, c.tlsConfig())
	c.wire.until.Store(time.Now().Add(tlsTime).UnixNano())
	if err := conn.Handshake(); err != nil {
		c.refused("tls")
		c.Logger.Debug("no TLS with an SMTP client", "client", c.address.String(), "error", err)
		return io.EOF
	}
	c.wire.until.Store(0)
	c.reset()
	c.use(conn)
	state := conn.ConnectionState()
	c.helo, c.secure = "", tls.VersionName(state.Version)+" "+tls.CipherSuiteName(state.CipherSuite)
	return nil
}

func (c *session) mail(arg string) error {
	switch {
	case c.helo == "":
		return c.fail(503, "5.5.1", "EHLO comes first")
	case c.open:
		return c.fail(503, "5.5.1", "the sender is known already")
	}
	rest, ok := cutFold(arg, "FROM:")
	if !ok {
		return c.fail(501, "5.5.4", "MAIL FROM:<address> is required")
	}
	from, params, err := parsePath(rest)
	if err != nil {
		return c.fail(501, "5.1.7", err.Error())
	}
	utf8 := false
	for param := range strings.FieldsSeq(params) {
		name, value, _ := strings.Cut(param, "=")
		switch name = strings.ToUpper(name); {
		case name == "SIZE":
			size, err := strconv.ParseUint(value, 10, 63)
			if err != nil && !errors.Is(err, strconv.ErrRange) {
				return c.fail(501, "5.5.4", "the size is not a number")
			}
			if err != nil || int64(size) > c.MaxSize {
				c.refused("size")
				return c.fail(552, "5.3.4", "the mail is too large")
			}
		case name == "BODY" && (strings.EqualFold(value, "7BIT") || strings.EqualFold(value, "8BITMIME")):
		case name == "SMTPUTF8" && value == "" && c.esmtp:
			utf8 = true
		default:
			return c.fail(555, "5.5.4", "an unknown parameter")
		}
	}
	if !utf8 && !from.ascii() {
		return c.fail(553, "5.6.7", "the address requires SMTPUTF8")
	}
	if c.Mails != nil {
		if ok, _ := c.Mails.Allow(context.Background(), c.client); !ok {
			c.refused("mails_of_client")
			c.reply(450, "4.7.1", "too many mails from your network, try again later")
			return nil
		}
	}
	c.transaction = transaction{from: from, open: true, utf8: utf8}
	c.reply(250, "2.1.0", "ok")
	return nil
}

func (c *session) rcpt(arg string) error {
	if !c.open {
		return c.fail(503, "5.5.1", "MAIL comes first")
	}
	rest, ok := cutFold(arg, "TO:")
	if !ok {
		return c.fail(501, "5.5.4", "RCPT TO:<address> is required")
	}
	to, params, err := parsePath(rest)
	switch {
	case err != nil:
		return c.fail(501, "5.1.3", err.Error())
	case params != "":
		return c.fail(555, "5.5.4", "an unknown parameter")
	case len(c.to) >= MaxRecipients:
		c.reply(452, "4.5.3", "too many recipients")
		return nil
	case !c.utf8 && !to.ascii():
		return c.fail(553, "5.6.7", "the address requires SMTPUTF8")
	}
	ctx, cancel := context.WithTimeout(context.Background(), spfTime)
	defer cancel()
	r, err := c.route(ctx, to)
	if refusal, ok := errors.AsType[*refusal](err); ok {
		return c.refuseRecipient(refusal)
	}
	if err != nil {
		c.Logger.Error("a recipient of a mail could not be looked up", "error", err)
		c.refused("unavailable")
		c.reply(451, "4.3.0", "the address cannot be looked up now, try again later")
		return nil
	}
	c.to = append(c.to, r)
	if len(c.to) == 1 {
		c.startSPF()
	}
	c.reply(250, "2.1.5", "ok")
	return nil
}

// refuseRecipient answers a recipient that is not accepted.
func (c *session) refuseRecipient(r *refusal) error {
	c.refused(r.reason)
	if r.code < 500 {
		c.reply(r.code, r.status, r.text)
		return nil
	}
	c.Journal.Refuse(context.Background(), c.address, r.reason)
	if c.Refusals != nil {
		if ok, _ := c.Refusals.Allow(context.Background(), c.client); !ok {
			c.reply(421, "4.7.0", "too many unknown recipients from your network, try again later")
			return errEnd
		}
	}
	return c.fail(r.code, r.status, r.text)
}

// data receives the mail of a transaction.
func (c *session) data(arg string) error {
	switch {
	case arg != "":
		return c.fail(501, "5.5.4", "DATA has no parameters")
	case !c.open:
		return c.fail(503, "5.5.1", "MAIL comes first")
	case len(c.to) == 0:
		return c.fail(554, "5.5.1", "there is no valid recipient")
	}
	c.wire.busy.Store(true)
	defer c.wire.busy.Store(false)
	if c.wire.interrupted.Load() { // before it was busy
		return nil
	}
	start := time.Now()
	c.reply(354, "", "end with CRLF.CRLF")
	if err := c.out.Flush(); err != nil {
		return io.EOF
	}
	c.wire.idle.Store(int64(dataTime))
	c.wire.until.Store(start.Add(mailTime).UnixNano())
	sp := c.newSpool()
	defer sp.close()
	err := sp.fill(&dataReader{r: c.in})
	c.wire.idle.Store(int64(commandTime))
	c.wire.until.Store(0)
	if broken, ok := errors.AsType[*brokenOff](err); ok {
		// What follows is content, so there are no further commands.
		c.refused("broken_off")
		switch {
		case errors.Is(broken.err, os.ErrDeadlineExceeded):
			c.reply(421, "4.4.2", c.Hostname+" timeout")
		case errors.Is(broken.err, errEndless): // without a reply the client would repeat it for days
			o := c.failure(errSize)
			c.reply(o.code, o.status, o.text)
		default:
			return io.EOF
		}
		return errEnd
	}
	var o outcome
	if err == nil {
		o, err = c.store(sp)
	}
	if err != nil {
		o = c.failure(err)
	} else {
		c.idle = 0
	}
	c.reply(o.code, o.status, o.text)
	err = c.out.Flush()
	c.record(o, sp.size, time.Since(start))
	c.reset()
	if err != nil {
		return io.EOF
	}
	return nil
}

// failure converts an error to the answer to a mail.
func (c *session) failure(err error) outcome {
	if r, ok := errors.AsType[*refusal](err); ok {
		c.refused(r.reason)
		if r.code >= 500 {
			c.Journal.Refuse(context.Background(), c.address, r.reason)
		}
		return outcome{code: r.code, status: r.status, text: r.text, result: r.reason}
	}
	c.Logger.Error("a mail could not be stored; its sender repeats it", "error", err)
	c.refused("unavailable")
	return outcome{code: 451, status: "4.3.0", text: "the mail cannot be stored now, try again later", result: "unavailable"}
}

// reset ends the transaction.
func (c *session) reset() {
	if c.cancel != nil {
		c.cancel()
	}
	c.transaction = transaction{}
}

// reply writes a reply. Errors show when it is flushed.
func (c *session) reply(code int, status, text string) {
	if status != "" {
		status += " "
	}
	fmt.Fprintf(c.out, "%d %s%s\r\n", code, status, text)
}

// fail replies with an error of the client, and ends the session after too many.
func (c *session) fail(code int, status, text string) error {
	if c.errors++; c.errors > maxErrors {
		c.refused("errors")
		c.reply(421, "4.7.0", c.Hostname+" too many errors")
		return errEnd
	}
	c.reply(code, status, text)
	return nil
}
