package mailbox

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"unicode"

	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/netguard"

	"github.com/emersion/go-imap/v2"
)

// TroubleKind is the kind of a failure of a mailbox.
type TroubleKind string

// The kinds.
const (
	TroubleSettings TroubleKind = "settings" // the configuration is invalid
	TroubleAddress  TroubleKind = "address"  // the server is not at a public address
	TroubleConnect  TroubleKind = "connect"  // the server cannot be reached, or the connection ended
	TroubleTLS      TroubleKind = "tls"
	TroubleLogin    TroubleKind = "login"   // the server rejects user or password
	TroubleConsent  TroubleKind = "consent" // the OAuth consent has ended
	TroubleFolder   TroubleKind = "folder"  // a folder does not exist
	TroubleServer   TroubleKind = "server"  // the server violates the protocol or a limit, or refuses a command
)

// Trouble is a failure of a mailbox, with its remedy. Its text is for admins and has no secrets.
type Trouble struct {
	Kind  TroubleKind
	Text  string
	Cause error // for the log
}

func (t *Trouble) Error() string { return t.Text }

// Unwrap returns the cause.
func (t *Trouble) Unwrap() error { return t.Cause }

// lasting reports whether the failure lasts until somebody does something.
func (t *Trouble) lasting() bool {
	switch t.Kind {
	case TroubleConnect, TroubleServer:
		return false
	}
	return true
}

// connectTrouble describes a failure to connect to a server.
func connectTrouble(s email.Server, err error) *Trouble {
	t := &Trouble{Kind: TroubleConnect, Cause: err}
	if refused, ok := errors.AsType[*netguard.AddressError](err); ok {
		t.Kind = TroubleAddress
		t.Text = refused.Error() + ". Mailboxes must have servers with public addresses, unless the operator of this server allows others"
		return t
	}
	reason := "it does not answer"
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		reason = "there is no server of this name"
	} else if op, ok := errors.AsType[*net.OpError](err); ok && !op.Timeout() && op.Err != nil {
		reason = op.Err.Error()
	}
	t.Text = fmt.Sprintf("the IMAP server %s cannot be reached: %s. Check its name and its port, usually 993", s.Address(), reason)
	return t
}

// tlsTrouble describes a failed handshake.
func tlsTrouble(s email.Server, err error) *Trouble {
	t := &Trouble{Kind: TroubleTLS, Cause: err}
	reason := "the handshake failed"
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok && record.Msg != "" {
		reason = "it does not begin with TLS on this port. Use imap:// for a server with STARTTLS"
	} else if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		reason = "its certificate is signed by an unknown authority"
		if unknown.Cert != nil && unknown.Cert.Subject.String() == unknown.Cert.Issuer.String() {
			reason = "its certificate is self-signed"
		}
	} else if name, ok := errors.AsType[x509.HostnameError](err); ok {
		reason = "its certificate is for " + strings.Join(name.Certificate.DNSNames, ", ")
	} else if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		reason = invalid.Error()
	}
	t.Text = fmt.Sprintf("no TLS connection to the IMAP server %s: %s", s.Address(), printable(reason))
	return t
}

// loginTrouble describes a refused login, with what the provider requires.
func loginTrouble(a *email.Account, err error) *Trouble {
	err = redacted(a, err)
	t := &Trouble{Kind: TroubleLogin, Cause: err}
	said := ""
	if status, ok := errors.AsType[*imap.Error](err); ok {
		said = printable(status.Text)
		if busy(status) {
			t.Kind = TroubleConnect
		}
	} else {
		t.Kind = TroubleConnect
	}
	t.Text = fmt.Sprintf("the IMAP server %s rejects the login of %s", a.IMAP.Host, a.User)
	if t.Kind == TroubleConnect {
		t.Text = fmt.Sprintf("the IMAP server %s does not complete the login of %s", a.IMAP.Host, a.User)
	}
	if said != "" {
		t.Text += ": " + said
	}
	if t.Kind == TroubleLogin {
		t.Text += ". " + loginAdvice(a)
	}
	return t
}

// busy reports whether a server refuses a command for a while: by the codes of RFC 5530, or by the
// words of servers without them.
func busy(status *imap.Error) bool {
	switch status.Code {
	case imap.ResponseCodeUnavailable, imap.ResponseCodeInUse, imap.ResponseCodeServerBug, imap.ResponseCodeLimit, imap.ResponseCodeOverQuota:
		return true
	}
	text := strings.ToLower(status.Text)
	return strings.Contains(text, "too many") || strings.Contains(text, "throttled") || strings.Contains(text, "temporar")
}

// loginAdvice says how the account's provider wants users to sign in.
func loginAdvice(a *email.Account) string {
	host := strings.ToLower(a.IMAP.Host)
	switch {
	case a.Provider != "":
		return "Sign in at the provider again on the page of the channel, and check that IMAP is enabled for the mailbox"
	case strings.HasSuffix(host, ".gmail.com") || strings.HasSuffix(host, ".googlemail.com"):
		return "Google accepts no account passwords here: turn on 2-Step Verification and create an app password, or connect with Google"
	case strings.HasSuffix(host, ".office365.com") || strings.HasSuffix(host, ".outlook.com"):
		return "Microsoft accepts no passwords here: connect with Microsoft, and have an administrator enable IMAP for the mailbox"
	case strings.HasSuffix(host, ".mail.yahoo.com") || strings.HasSuffix(host, ".mail.me.com") || strings.HasSuffix(host, ".fastmail.com"):
		return "This provider requires an app password, which you create in the security settings of the account"
	}
	return "Check user and password, and that IMAP is enabled for the mailbox. Some providers require an app password"
}

// sessionTrouble describes a failure of a command. Errors of the context and of the database are
// returned unchanged.
func sessionTrouble(a *email.Account, what string, err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, errLeaseLost), errors.Is(err, errChanged), errors.Is(err, errStopping):
		return err
	}
	if _, ok := errors.AsType[*Trouble](err); ok {
		return err
	}
	err = redacted(a, err)
	t := &Trouble{Kind: TroubleConnect, Cause: err}
	status, ok := errors.AsType[*imap.Error](err)
	switch {
	case ok && (status.Code == imap.ResponseCodeAuthenticationFailed || status.Code == imap.ResponseCodeAuthorizationFailed):
		t.Kind, t.Text = TroubleLogin, fmt.Sprintf("the IMAP server %s refuses to %s: %s. %s", a.IMAP.Host, what, printable(status.Text), loginAdvice(a))
	case ok && strings.Contains(status.Text, "authenticated but not connected"): // Exchange
		t.Kind, t.Text = TroubleLogin, fmt.Sprintf("the IMAP server %s accepts the login, and %s has no mailbox there that it can read. Have an administrator check the license and IMAP of the mailbox, and, if it is shared, that the user who signs in has full access", a.IMAP.Host, a.User)
	case ok:
		t.Kind, t.Text = TroubleServer, fmt.Sprintf("the IMAP server %s refuses to %s: %s", a.IMAP.Host, what, printable(status.Text))
	case errors.Is(err, errTooMuch):
		t.Kind, t.Text = TroubleServer, fmt.Sprintf("the IMAP server %s sends more than was asked for, when asked to %s", a.IMAP.Host, what)
	case errors.Is(err, errInvalid):
		t.Kind, t.Text = TroubleServer, fmt.Sprintf("the IMAP server %s gives an invalid answer, when asked to %s", a.IMAP.Host, what)
	case errors.Is(err, context.DeadlineExceeded):
		t.Text = fmt.Sprintf("the IMAP server %s does not answer, when asked to %s", a.IMAP.Host, what)
	default:
		t.Text = fmt.Sprintf("the connection to the IMAP server %s has ended, when asked to %s", a.IMAP.Host, what)
	}
	return t
}

// printable returns a server's text as one short printable line.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	text = strings.TrimRight(strings.Join(strings.Fields(text), " "), ".")
	if r := []rune(text); len(r) > 300 {
		text = string(r[:300]) + "…"
	}
	return text
}

// redact removes the password, or the token in its place, from a server's text, which may quote a
// command.
func redact(a *email.Account, text string) string {
	if a.Password == "" {
		return text
	}
	encoded := base64.StdEncoding.EncodeToString
	text = strings.NewReplacer(
		encoded([]byte("\x00"+a.User+"\x00"+a.Password)), "[redacted]",
		encoded([]byte(a.Password)), "[redacted]",
		strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(a.Password), "[redacted]", // as a quoted string
		a.Password, "[redacted]",
	).Replace(text)
	if a.Provider != "" {
		text = token.ReplaceAllString(text, "[redacted]")
	}
	return text
}

// redacted returns an error of a server, which may quote a command, without credentials.
func redacted(a *email.Account, err error) error {
	if status, ok := errors.AsType[*imap.Error](err); ok {
		return &imap.Error{Type: status.Type, Code: status.Code, Text: redact(a, status.Text)}
	}
	if clean := redact(a, err.Error()); clean != err.Error() {
		return errors.New(clean)
	}
	return err
}

// token matches what may be an access token, or a part of one.
var token = regexp.MustCompile(`[A-Za-z0-9+/=_.~-]{40,}`)

// startTLSTrouble describes a failure until the end of STARTTLS.
func startTLSTrouble(s email.Server, err error) *Trouble {
	if _, ok := errors.AsType[*imap.Error](err); ok {
		return &Trouble{Kind: TroubleTLS, Cause: err, Text: fmt.Sprintf("the IMAP server %s does not offer STARTTLS. Use imaps:// and its port for TLS, usually 993", s.Address())}
	}
	return tlsTrouble(s, err)
}
