package app

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app/doctor"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/smtpd"

	"golang.org/x/net/idna"
)

// MailReceiver configures the reception of mail by SMTP.
type MailReceiver struct {
	Listen      string // HOST:PORT, or [SocketActivation]; empty: no mail is received
	Hostname    string // of MX records; empty: the base URL's host
	Certificate string // PEM files for STARTTLS; empty: none
	Key         string
	Connections int // at a time, of all clients; 0: the default
	MailRate    int // mails of a client in [mailWindow]; 0: [DefaultMailRate]
	// Socket is the listener in place of Listen; nil: it is opened.
	Socket net.Listener
}

const (
	// SocketActivation in place of an address means the socket that systemd passes.
	SocketActivation = "systemd"
	// DefaultMailRate is the default of [MailReceiver.MailRate].
	DefaultMailRate = 1000

	mailWindow     = 10 * time.Minute
	refusalWindow  = time.Hour
	refusalsPerIP  = 100 // unknown recipients in refusalWindow
	greetingTime   = 2 * time.Second
	recordTime     = 5 * time.Second // to look up MX records
	maxMailDomains = 50              // whose records doctor looks up
)

// CheckMailReceiver returns the first error of the settings of mail reception.
func (c Config) CheckMailReceiver() error {
	r := c.MailReceiver
	switch {
	case (r.Certificate == "") != (r.Key == ""):
		return errors.New("smtp-tls-certificate and smtp-tls-key must be set together")
	case r.Connections < 0 || r.MailRate < 0:
		return errors.New("smtp-connections and smtp-mail-rate must not be negative")
	case r.Listen == "" || r.Listen == SocketActivation:
	default:
		if _, port, err := net.SplitHostPort(r.Listen); err != nil || port == "" {
			return fmt.Errorf("smtp-listen: %q is not an address such as :25", r.Listen)
		}
	}
	if name := r.Hostname; name != "" {
		if ascii, err := idna.Lookup.ToASCII(name); err != nil || ascii != strings.ToLower(name) {
			return fmt.Errorf("smtp-hostname: %q is not a host name such as mx.example.com", name)
		}
	}
	return nil
}

// mailHost returns the host name of MX records; empty: no mail is received.
func (c Config) mailHost() string {
	if c.MailReceiver.Listen == "" {
		return ""
	}
	if c.MailReceiver.Hostname != "" {
		return strings.ToLower(c.MailReceiver.Hostname)
	}
	return baseHost(c.BaseURL)
}

func baseHost(baseURL string) string {
	_, rest, _ := strings.Cut(baseURL, "://")
	host, _, err := net.SplitHostPort(rest)
	if err != nil {
		host = rest
	}
	return strings.ToLower(cmp.Or(strings.Trim(host, "[]"), "localhost"))
}

// listenMail opens the receiver of mail and its listener, which is nil without one.
func (a *App) listenMail() (net.Listener, error) {
	c := a.config.MailReceiver
	if c.Listen == "" || !a.config.Web {
		return nil, nil
	}
	var certificate *smtpd.Certificate
	if c.Certificate != "" {
		var err error
		if certificate, err = smtpd.OpenCertificate(c.Certificate, c.Key, a.log); err != nil {
			return nil, fmt.Errorf("smtp-tls-certificate: %w", err)
		}
	}
	ln := c.Socket
	if ln == nil {
		var err error
		if ln, err = net.Listen("tcp", c.Listen); err != nil {
			return nil, fmt.Errorf("smtp-listen: %w", err)
		}
	}
	a.receiver = smtpd.Open(smtpd.Config{
		DB: a.DB, Connections: a.Connections, Journal: mailJournal{a.Inbound}, Hostname: a.config.mailHost(), Certificate: certificate,
		MaxConnections: c.Connections,
		Mails:          a.limiter("smtp-mails", cmp.Or(c.MailRate, DefaultMailRate), mailWindow),
		Refusals:       a.limiter("smtp-refusals", refusalsPerIP, refusalWindow),
		Resolver:       spfResolver{net.DefaultResolver, a.config.lookupTXT()}, Metrics: a.metrics, Access: a.accessLog(), Logger: a.log,
	})
	a.mailAddress = ln.Addr().String()
	return ln, nil
}

// mailJournal stores received mails as inbound events.
type mailJournal struct{ inbound *inbound.Service }

// Deliver implements [smtpd.Journal].
func (j mailJournal) Deliver(ctx context.Context, copies []smtpd.Copy) (fresh int, err error) {
	return j.inbound.Deliver(ctx, email.DirectName, deliveries(copies))
}

func deliveries(copies []smtpd.Copy) []inbound.Delivery {
	list := make([]inbound.Delivery, len(copies))
	for i, c := range copies {
		list[i] = inbound.Delivery{Connection: c.Connection, Request: c.Request}
	}
	return list
}

// Refuse implements [smtpd.Journal].
func (j mailJournal) Refuse(ctx context.Context, client netip.Addr, reason string) {
	j.inbound.RefuseDelivery(ctx, email.DirectName, client, reason)
}

// spfResolver looks up the records of SPF. TXT records come from the lookup of every mail check.
type spfResolver struct {
	*net.Resolver
	txt mailauth.Lookup
}

// LookupTXT returns the TXT records of a name.
func (r spfResolver) LookupTXT(ctx context.Context, name string) ([]string, error) {
	return r.txt(ctx, strings.TrimSuffix(name, "."))
}

// testMail has a test mail to a connection's address received and read, without storing it. An error is
// the reason why that fails, as a sentence without its full stop.
func (a *App) testMail(ctx context.Context, c *connection.Connection) error {
	if a.receiver == nil {
		return errors.New("this server receives no mail: KICKSTAND_SMTP_LISTEN is not set")
	}
	return a.Inbound.TestDelivery(c, func() ([]inbound.Delivery, error) {
		if err := greetMail(ctx, a.mailAddress); err != nil {
			return nil, fmt.Errorf("the SMTP receiver does not answer: %w", err)
		}
		copies, err := a.receiver.Try(ctx, c.Address)
		return deliveries(copies), err
	})
}

// mailRecords finds out whether mail to a connection's domain is delivered to this server.
func (a *App) mailRecords(ctx context.Context, c *connection.Connection) (found string, ok bool) {
	var dns doctor.MailResolver = net.DefaultResolver
	if a.config.MailRecords != nil {
		dns = a.config.MailRecords
	}
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	f := doctor.MailRecords(ctx, a.config.mailHost(), []string{c.Address[strings.LastIndexByte(c.Address, '@')+1:]}, dns, nil)
	return f.Found, f.Status == doctor.OK
}

// MailAdvice returns how mail to a connection's address reaches this server.
func (a *App) MailAdvice(c *connection.Connection) string {
	host := a.config.mailHost()
	if host == "" {
		return "This server receives no mail: set KICKSTAND_SMTP_LISTEN, such as :25."
	}
	return "Create the MX record of its domain: " + c.Address[strings.LastIndexByte(c.Address, '@')+1:] + ". MX 10 " + host + "."
}

// mailReady checks that the receiver answers, and that its certificate is valid.
func (a *App) mailReady(ctx context.Context) outcome {
	if err := greetMail(ctx, a.mailAddress); err != nil {
		return failed("the SMTP receiver does not answer", err.Error())
	}
	if a.receiver.Certificate == nil {
		return outcome{Status: partOK}
	}
	leaf, err := a.receiver.Certificate.Leaf()
	switch now := a.DB.Now(); {
	case err != nil:
		return outcome{Status: partWarned, Reason: "the certificate of the SMTP receiver is not usable", detail: err.Error()}
	case now.After(leaf.NotAfter):
		return outcome{Status: partWarned, Reason: "the certificate of the SMTP receiver has expired", detail: leaf.NotAfter.String()}
	}
	return outcome{Status: partOK}
}

// greetMail connects to the receiver at a listening address and reads its greeting.
func greetMail(ctx context.Context, listen string) error {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return err
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	ctx, cancel := context.WithTimeout(ctx, greetingTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, "220 ") && !strings.HasPrefix(line, "421 ") { // 421: too many connections
		return fmt.Errorf("it answers %q", line)
	}
	fmt.Fprint(conn, "QUIT\r\n")
	return nil
}

// mailChecks returns the checks of mail reception; none without it.
func (c Config) mailChecks(stored doctor.Database) []doctor.Check {
	r := c.MailReceiver
	if r.Listen == "" {
		return nil
	}
	at := r.Listen
	if at == SocketActivation {
		at = ":25"
	}
	return []doctor.Check{
		{Name: "mail receiver", Run: func(ctx context.Context) doctor.Finding {
			return doctor.MailReceiver(at, greetMail(ctx, at))
		}},
		{Name: "mail certificate", Run: func(ctx context.Context) doctor.Finding {
			return doctor.MailCertificate(r.Certificate, r.Key, c.mailHost())
		}},
		{Name: "mail records", Run: func(ctx context.Context) doctor.Finding {
			var domains []string
			err := withDatabase(ctx, stored, func(d *db.DB) (err error) {
				domains, err = connection.Domains(ctx, d, email.DirectName)
				return err
			})
			return doctor.MailRecords(ctx, c.mailHost(), domains[:min(len(domains), maxMailDomains)], net.DefaultResolver, err)
		}},
	}
}
