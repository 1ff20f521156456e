package email

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/mailparse"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Mailbox is the channel "mailbox": an existing mailbox that is read by IMAP and sends by SMTP.
//
// It has no endpoint. A reader, package mailbox, collects the raw mails and stores them as
// requests of type message/rfc822 with the headers below.
type Mailbox struct{ style }

// MailboxName is the name of the channel [Mailbox].
const MailboxName = "mailbox"

// The headers of a collected mail.
const (
	MailboxDateHeader = "X-Mailbox-Date" // time of arrival in the mailbox, RFC 3339
	MailboxSizeHeader = "X-Mailbox-Size" // bytes of a mail that is stored in part only
)

// Further credentials of a connection of the channel.
const (
	CredentialIMAP     = "imap_url" // imaps://host or imap://host
	CredentialUser     = "username" // of both servers
	CredentialPassword = "password" // of both servers
	CredentialProvider = "oauth"    // "google" or "microsoft": a token in place of the password
)

// The providers of [CredentialProvider].
const (
	ProviderGoogle    = "google"
	ProviderMicrosoft = "microsoft"
)

// The settings of a connection of the channel.
const (
	SettingFolders    = "folders"      // names separated by commas; default INBOX
	SettingImportDays = "import_days"  // age of the mails to import at first
	SettingAliases    = "aliases"      // further addresses, and @domains
	SettingMarkSeen   = "mark_seen"    // "true"
	SettingTrusted    = "auth_servers" // authserv-ids with trusted results; default: the deployment's
	SettingMoveTo     = "move_to"      // folder for collected mails
	SettingSent       = "sent_folder"  // folder for a copy of replies; "auto" finds it
)

var (
	_ channel.Adapter           = (*Mailbox)(nil)
	_ channel.AddressNormalizer = (*Mailbox)(nil)
	_ channel.MailComposer      = (*Mailbox)(nil)
	_ channel.DNSVerifier       = (*Mailbox)(nil)
	_ channel.ConnectionChecker = (*Mailbox)(nil)
	_ channel.AliasReader       = (*Mailbox)(nil)
)

// NewMailbox returns the channel.
func NewMailbox(c Config) *Mailbox {
	w := newWriter(c)
	w.api.Credentials = slices.Concat(declared, []channel.Credential{
		{Name: CredentialIMAP, Kind: channel.KindServer}, {Name: CredentialUser, Kind: channel.KindOption},
		{Name: CredentialPassword, Kind: channel.KindServer}, {Name: CredentialProvider, Kind: channel.KindOption},
	})
	return &Mailbox{style{Writer: w, name: MailboxName, parser: NewParser(c), open: openMailbox}}
}

// Info implements [channel.Adapter].
func (*Mailbox) Info() channel.Info {
	return channel.Info{Name: MailboxName, TicketChannel: ticketChannel, MaxBody: maxBody, Collected: true}
}

// Verify implements [channel.Adapter]: nobody can post mails of a mailbox.
func (*Mailbox) Verify(*channel.Request, string) bool { return false }

// Parse implements [channel.Adapter].
func (a *Mailbox) Parse(r *channel.Request, p channel.Part) (channel.Event, error) {
	e, err := a.style.Parse(r, p)
	if size := r.Header.Get(MailboxSizeHeader); err == nil && size != "" {
		n, _ := strconv.ParseInt(size, 10, 64)
		note := fmt.Sprintf("[Only the beginning of this mail is here: it has %d MB, and mails of up to %d MB are collected. All of it is in the mailbox.]", n>>20, maxBody>>20)
		e.Message.Text = note + "\n\n" + e.Message.Text
		if e.Message.Stripped != "" {
			e.Message.Stripped = note + "\n\n" + e.Message.Stripped
		}
		e.Message.HTML = ""
	}
	return e, err
}

func openMailbox(r *channel.Request) (*source, error) {
	s := &source{raw: r.Body, env: Envelope{Received: r.Received}}
	if at, err := time.Parse(time.RFC3339, r.Header.Get(MailboxDateHeader)); err == nil && at.Before(r.Received) {
		s.env.Received = at
	}
	if err := s.requireBody(); err != nil {
		return nil, err
	}
	s.to(r.Header.Values("X-Envelope-To")...)
	s.env.Trusted, _ = trustedServers(r.Settings[SettingTrusted])
	return s, nil
}

// Account is the configuration of a mailbox.
type Account struct {
	Address    string
	IMAP       Server // zero: mails are not collected
	SMTP       Server // zero: replies leave by another way
	User       string
	Password   string
	Provider   string // of OAuth tokens; empty: none
	Folders    []string
	ImportDays int
	Aliases    []string // addresses, and domains that begin with @
	MarkSeen   bool
	MoveTo     string
	Sent       string
}

// Server is the address of a mail server.
type Server struct {
	Host     string
	Port     string
	Implicit bool // TLS from the first byte, else STARTTLS
}

// Address returns host and port.
func (s Server) Address() string { return net.JoinHostPort(s.Host, s.Port) }

const (
	maxFolders    = 20
	maxAliases    = 100
	maxFolderName = 255
	maxImportDays = 365
	maxTrusted    = 10
	maxServerName = 255
)

// issue is an invalid setting or credential. The message is the rest of a sentence and quotes no
// credential.
type issue struct{ path, message string }

// errMailbox are the issues of a configuration.
type errMailbox []issue

func (e *errMailbox) add(path, format string, args ...any) {
	*e = append(*e, issue{path, fmt.Sprintf(format, args...)})
}

func (e errMailbox) addTo(v *problem.Validation) {
	for _, i := range e {
		v.Add(i.path, "%s", i.message)
	}
}

// CheckConnection implements [channel.ConnectionChecker].
func (*Mailbox) CheckConnection(v *problem.Validation, address string, credentials, settings map[string]string) {
	_, issues := parseAccount(address, settings, credentials)
	issues.addTo(v)
}

// Aliases implements [channel.AliasReader].
func (*Mailbox) Aliases(settings map[string]string) []string {
	a, _ := parseAccount("", settings, nil)
	return a.Aliases
}

// ParseAccount returns the configuration of a mailbox with an address. The error names the first
// invalid value, and quotes no credential.
func ParseAccount(address string, settings, credentials map[string]string) (Account, error) {
	a, issues := parseAccount(address, settings, credentials)
	if len(issues) > 0 {
		return a, errors.New(issues[0].path + " " + issues[0].message)
	}
	return a, nil
}

func parseAccount(address string, settings, credentials map[string]string) (Account, errMailbox) {
	var issues errMailbox
	a := Account{
		Address: address, User: cmp.Or(credentials[CredentialUser], address), Password: credentials[CredentialPassword],
		Provider: credentials[CredentialProvider], MoveTo: strings.TrimSpace(settings[SettingMoveTo]), Sent: strings.TrimSpace(settings[SettingSent]),
	}
	a.parseServers(&issues, credentials)
	if !slices.Contains([]string{"", ProviderGoogle, ProviderMicrosoft}, a.Provider) {
		issues.add("credentials."+CredentialProvider, "must be %s or %s", ProviderGoogle, ProviderMicrosoft)
	}
	if a.Provider != "" && a.IMAP.Host == "" {
		issues.add("credentials."+CredentialIMAP, "is required to sign in at a provider")
	}
	if a.IMAP.Host != "" && a.Password == "" && a.Provider == "" {
		issues.add("credentials."+CredentialPassword, "is required to sign in at the IMAP server")
	}
	for name := range strings.SplitSeq(cmp.Or(strings.TrimSpace(settings[SettingFolders]), "INBOX"), ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(a.Folders, name) {
			a.Folders = append(a.Folders, name)
		}
	}
	for _, name := range slices.Concat(a.Folders, []string{a.MoveTo, a.Sent}) {
		if len(name) > maxFolderName || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			issues.add("settings."+SettingFolders, "has a name that is not a folder's")
		}
	}
	if len(a.Folders) > maxFolders {
		issues.add("settings."+SettingFolders, "must have at most %d folders", maxFolders)
	}
	if slices.Contains(a.Folders, a.MoveTo) {
		issues.add("settings."+SettingMoveTo, "must not be a folder that is read")
	}
	a.parseAliases(&issues, settings[SettingAliases])
	if days := strings.TrimSpace(settings[SettingImportDays]); days != "" {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > maxImportDays {
			issues.add("settings."+SettingImportDays, "must be a number of days from 0 to %d", maxImportDays)
		}
		a.ImportDays = n
	}
	if _, ok := trustedServers(settings[SettingTrusted]); !ok {
		issues.add("settings."+SettingTrusted, "must be at most %d names of servers, separated by commas", maxTrusted)
	}
	switch settings[SettingMarkSeen] {
	case "", "false":
	case "true":
		a.MarkSeen = true
	default:
		issues.add("settings."+SettingMarkSeen, "must be true or false")
	}
	return a, issues
}

// trustedServers returns the names of servers in a list separated by commas; nil for an empty list.
func trustedServers(list string) (names []string, ok bool) {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if len(name) > maxServerName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ';' }) {
			return nil, false
		}
		names = append(names, name)
	}
	return names, len(names) <= maxTrusted
}

// parseServers reads the URLs of the servers. The mail server's may have a login of its own.
func (a *Account) parseServers(issues *errMailbox, credentials map[string]string) {
	if v := credentials[CredentialIMAP]; v != "" {
		s, login, err := parseServer(v, "imap", "143", "993")
		if err == nil && login {
			err = errors.New("must not have user or password: they have fields of their own")
		}
		if err != nil {
			issues.add("credentials."+CredentialIMAP, "%v", err)
		}
		a.IMAP = s
	}
	if v := credentials[CredentialServer]; v != "" {
		s, _, err := parseServer(v, "smtp", "587", "465")
		if err != nil {
			issues.add("credentials."+CredentialServer, "%v", err)
		}
		a.SMTP = s
	}
	if credentials[CredentialIMAP] == "" && credentials[CredentialServer] == "" {
		issues.add("credentials."+CredentialIMAP, "is required, or %s, or both", CredentialServer)
	}
}

// parseServer parses scheme://host or schemes://host, with an optional port. Errors do not quote
// it, since it may have a password.
func parseServer(raw, scheme, port, implicitPort string) (s Server, login bool, err error) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.Fragment != "" || u.Opaque != "" {
		return s, false, fmt.Errorf("must be an address such as %ss://%s.example.com", scheme, scheme)
	}
	switch u.Scheme {
	case scheme:
		s.Port = port
	case scheme + "s":
		s.Port, s.Implicit = implicitPort, true
	default:
		return s, false, fmt.Errorf("must begin with %ss:// (TLS) or %s:// (STARTTLS)", scheme, scheme)
	}
	s.Host, s.Port = u.Hostname(), cmp.Or(u.Port(), s.Port)
	if n, err := strconv.Atoi(s.Port); err != nil || n < 1 || n > 65535 {
		return s, false, errors.New("must have a port from 1 to 65535")
	}
	return s, u.User != nil, nil
}

// parseAliases reads addresses and @domains separated by commas.
func (a *Account) parseAliases(issues *errMailbox, list string) {
	for alias := range strings.SplitSeq(list, ",") {
		if alias = strings.ToLower(strings.TrimSpace(alias)); alias == "" {
			continue
		}
		formed := alias
		if domain, ok := strings.CutPrefix(alias, "@"); !ok {
			formed = Canonical(alias)
		} else if domainOf("x@"+domain) != domain || domain == "" {
			formed = ""
		}
		if formed == "" {
			issues.add("settings."+SettingAliases, "must be mail addresses, or domains such as @example.com, separated by commas")
			return
		}
		if !slices.Contains(a.Aliases, formed) {
			a.Aliases = append(a.Aliases, formed)
		}
	}
	if len(a.Aliases) > maxAliases {
		issues.add("settings."+SettingAliases, "must have at most %d entries", maxAliases)
	}
}

// Owns reports whether an address, in the form of [Canonical], is the mailbox's or an alias of it.
func (a *Account) Owns(address string) bool {
	_, domain, _ := strings.Cut(address, "@")
	return address != "" && (address == a.Address || slices.Contains(a.Aliases, address) || slices.Contains(a.Aliases, "@"+domain))
}

// Recipient returns the address of the mailbox to which a mail was sent: the first of its
// addresses in the delivery headers or the recipients, else the main one.
func (a *Account) Recipient(raw []byte) string {
	h := mailparse.Header(raw)
	for _, name := range []string{"Delivered-To", "X-Original-To", "Envelope-To", "To", "Cc"} {
		for _, to := range mailparse.Addresses(h, name) {
			if formed := Canonical(to.Address); a.Owns(formed) {
				return formed
			}
		}
	}
	return a.Address
}

// ServerURL returns the URL of the mail server with the login of the account, for
// [mail.OpenSMTP], which then requires TLS. Empty: it has none.
func (a *Account) ServerURL(raw string) string {
	u, err := url.Parse(raw)
	if raw == "" || err != nil {
		return raw
	}
	if a.Provider != "" {
		u.User = nil
	} else if u.User == nil && a.Password != "" {
		u.User = url.UserPassword(a.User, a.Password)
	}
	if query := u.Query(); u.Scheme == "smtp" && !query.Has("tls") {
		query.Set("tls", "required")
		u.RawQuery = query.Encode()
	}
	return u.String()
}

// MovesPassword reports whether a change of credentials has the same password sent to other servers
// than before.
func MovesPassword(before, after map[string]string) bool {
	if password := before[CredentialPassword]; password == "" || password != after[CredentialPassword] {
		return false
	}
	was, _ := parseAccount("", nil, before)
	is, _ := parseAccount("", nil, after)
	known := []Server{was.IMAP, was.SMTP, {}}
	return !slices.Contains(known, is.IMAP) || !slices.Contains(known, is.SMTP)
}
