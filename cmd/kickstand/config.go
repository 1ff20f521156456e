package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/oidc"
	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/mailbox"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
	"github.com/kickstand-dev/kickstand/internal/setting"

	"github.com/BurntSushi/toml"
	"github.com/alecthomas/kong"
)

// config is the whole configuration: a field is a flag (--base-url), a variable
// (KICKSTAND_BASE_URL, or KICKSTAND_BASE_URL_FILE with the path of a file that has the
// value) and a key of kickstand.toml (base-url). Flags override variables, which override
// the file.
//
// secret:"true" masks a value in every display of the configuration; secret:"tiles" masks the
// path of a URL, and secret:"url" masks
// the password in it. area is the area of the page of settings, if it is not the group.
type config struct {
	File string `name:"config" group:"Flags of every command:" placeholder:"FILE" help:"Configuration file (default: kickstand.toml, if there is one)."`

	Listen              string        `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address to serve on." group:"Server" area:"Addresses"`
	BaseURL             string        `name:"base-url" placeholder:"URL" help:"Public address of the server (default: http:// and the listen address)." group:"Server" area:"Addresses"`
	FleetBaseURL        string        `name:"fleet-base-url" placeholder:"URL" help:"Public address of the fleet's API, ending in /v1 (default: /v1 below the base URL)." group:"Server" area:"Addresses"`
	SandboxBaseURL      string        `name:"sandbox-base-url" placeholder:"URL" help:"Public address of the fleet's sandbox, ending in /v1 (default: /sandbox/v1 below the base URL)." group:"Server" area:"Addresses"`
	Data                string        `default:"./kickstand-data" placeholder:"DIR" help:"Folder for the database, attachments and generated key." group:"Server" area:"Storage"`
	DatabaseURL         string        `name:"database-url" placeholder:"URL" secret:"url" help:"sqlite:PATH or postgres://… (default: sqlite:kickstand.db in the data folder)." group:"Server" area:"Storage"`
	DatabaseDirectURL   string        `name:"database-direct-url" placeholder:"URL" secret:"url" help:"PostgreSQL without a pooler, to listen for notifications if the database URL leads to a pooler (default: the server polls instead)." group:"Server" area:"Storage"`
	DatabaseConnections int           `default:"30" placeholder:"N" help:"PostgreSQL connections that this process opens at most." group:"Server" area:"Storage"`
	BlobURL             string        `name:"blob-url" placeholder:"URL" secret:"url" help:"Store of attachments: file:PATH or s3://bucket?endpoint=… (default: a folder in the data folder)." group:"Server" area:"Storage"`
	RedisURL            string        `name:"redis-url" placeholder:"URL" secret:"url" help:"Redis that several servers share for rate limits: redis://… or rediss://… (default: each server counts alone)." group:"Server" area:"Storage"`
	SecretKey           string        `secret:"true" placeholder:"KEY" help:"Encrypts stored secrets; several, newest first, separated by commas (default: generated on first start and stored in the data folder)." group:"Server" area:"Storage"`
	Roles               []string      `default:"web,worker" enum:"web,worker" help:"Roles of this process: web, worker or both." group:"Server" area:"Process"`
	LogFormat           string        `default:"text" enum:"text,json" help:"Format of the log: text or json." group:"Server" area:"Process"`
	LogLevel            string        `default:"info" enum:"debug,info,warn,error" help:"Minimum level of logged messages." group:"Server" area:"Process"`
	StopTimeout         time.Duration `default:"15s" help:"Time for requests and jobs to finish when the server stops." group:"Server" area:"Process"`
	ExtraHosts          []string      `placeholder:"NAME" help:"Additional accepted host names, such as one inside of your network; requests for other hosts get 421." group:"Server" area:"Addresses"`
	TrustedProxies      []string      `placeholder:"CIDR" help:"Networks of proxies with a trusted X-Forwarded-For." group:"Server" area:"Addresses"`
	MapTiles            string        `placeholder:"SOURCE" secret:"tiles" help:"Background of maps: an address with {z}, {x} and {y}, the address of a PMTiles file, or an MBTiles or PMTiles file (default: none, with coastlines, borders and names of cities)." group:"Server" area:"Maps"`
	MapAttribution      string        `placeholder:"TEXT" help:"Copyright notice of the map tiles (default: that of the file, or of OpenStreetMap for its servers)." group:"Server" area:"Maps"`

	AccessLog     string `default:"off" enum:"off,on" help:"Write a line of JSON per request to standard output: off or on." group:"Server" area:"Process"`
	MetricsListen string `placeholder:"HOST:PORT" help:"Private address to serve metrics for Prometheus and profiles on; anyone who reaches it can read them (default: none)." group:"Server" area:"Addresses"`
	Traces        string `default:"off" enum:"off,on" help:"Export traces by OpenTelemetry (OTLP over HTTP, configured by the standard variables OTEL_EXPORTER_OTLP_…): off or on." group:"Server" area:"Process"`

	SMTPURL      string `name:"smtp-url" placeholder:"URL" secret:"url" help:"Mail server: smtp://user:pass@host:587 or smtps://… (default: the delivery provider's API; without its key, mails are stored and shown at /dev/mailbox if the base URL is this machine, and otherwise the server does not start)." group:"Mail"`
	AllowNoMail  bool   `help:"Serve at a public base URL without a way to send mail: no sign-in links, invitations, resets or replies by mail." group:"Mail"`
	MailFrom     string `default:"Kickstand <no-reply@localhost>" placeholder:"ADDRESS" help:"Sender of account mails." group:"Mail"`
	OperatorMail string `placeholder:"ADDRESS" help:"Address for notices to the operator (default: no notices)." group:"Mail"`

	SMTPListen         string `name:"smtp-listen" placeholder:"HOST:PORT" help:"Address to receive mail by SMTP on, as the MX of your domains: such as :25, or systemd for a socket that systemd passes (default: no mail is received)." group:"Mail"`
	SMTPHostname       string `name:"smtp-hostname" placeholder:"NAME" help:"Host name of the SMTP receiver, which MX records name (default: the base URL's)." group:"Mail"`
	SMTPTLSCertificate string `name:"smtp-tls-certificate" placeholder:"PATH" help:"Certificate chain of the SMTP receiver in PEM, read again when it changes (default: no STARTTLS)." group:"Mail"`
	SMTPTLSKey         string `name:"smtp-tls-key" placeholder:"PATH" help:"Private key of the certificate in PEM." group:"Mail"`
	SMTPConnections    int    `name:"smtp-connections" default:"200" placeholder:"N" help:"Connections of the SMTP receiver at a time; one client has a tenth of them." group:"Mail"`
	SMTPMailRate       int    `name:"smtp-mail-rate" default:"1000" placeholder:"N" help:"Mails that the SMTP receiver accepts of one client in ten minutes." group:"Mail"`

	AccessLifetime  time.Duration `default:"1h" help:"Lifetime of an access token." group:"Sign-in"`
	RefreshLifetime time.Duration `default:"720h" help:"Lifetime of a session since its last use." group:"Sign-in"`
	SessionLifetime time.Duration `default:"2160h" help:"Lifetime of a session since its sign-in." group:"Sign-in"`
	FreshProof      string        `placeholder:"DURATION" help:"Maximum age of a sign-in or confirmation for changes of keys, members, secrets and factors; off: no confirmation (default: 10m, off if the base URL is this machine)." group:"Sign-in"`
	SignUp          string        `placeholder:"POLICY" help:"Sign-up policy: open, invited (only invited addresses), or domain:example.com,example.org (only these domains). Default: open if the base URL is this machine, else invited." group:"Sign-in"`
	SignInBrand     string        `placeholder:"SLUG" help:"Organization whose name, logo and color the pages for signing in have, by its short name (default: those of Kickstand)." group:"Sign-in"`
	RedirectOrigins []string      `placeholder:"ORIGIN" help:"Additional origins to which a sign-in may redirect." group:"Sign-in"`
	Operators       []string      `placeholder:"ADDRESS" help:"Mail addresses of users who see and change settings of the server on the page Settings, Server (default: nobody; if the base URL is this machine, admins of the default organization)." group:"Sign-in"`

	OIDCIssuer       string `name:"oidc-issuer" placeholder:"URL" help:"Issuer URL of the identity provider (OpenID Connect)." group:"Sign-in"`
	OIDCClientID     string `name:"oidc-client-id" placeholder:"ID" help:"Client id at the identity provider." group:"Sign-in"`
	OIDCClientSecret string `name:"oidc-client-secret" secret:"true" placeholder:"SECRET" help:"Client secret at the identity provider; empty for a public client." group:"Sign-in"`

	GoogleClientID        string `name:"google-client-id" placeholder:"ID" help:"OAuth client id at Google, for mailboxes." group:"Channels"`
	GoogleClientSecret    string `name:"google-client-secret" secret:"true" placeholder:"SECRET" help:"The secret of that client." group:"Channels"`
	MicrosoftClientID     string `name:"microsoft-client-id" placeholder:"ID" help:"OAuth client id at Microsoft Entra, for mailboxes." group:"Channels"`
	MicrosoftClientSecret string `name:"microsoft-client-secret" secret:"true" placeholder:"SECRET" help:"The secret of that client." group:"Channels"`

	EmailFormSecret              []string `secret:"true" placeholder:"KEY" help:"Signing keys of shared accounts that post mail as forms (style A)." group:"Channels"`
	EmailParsePublicKey          []string `secret:"true" placeholder:"KEY" help:"Public keys of shared accounts that post mail with an ECDSA signature (style B): base64 DER or PEM." group:"Channels"`
	EmailJSONToken               []string `name:"email-json-token" secret:"true" placeholder:"TOKEN" help:"Tokens of shared accounts that post mail as JSON (style C)." group:"Channels"`
	EmailRawSecret               []string `secret:"true" placeholder:"SECRET" help:"Secrets of shared e-mail-to-HTTP converters." group:"Channels"`
	EmailDeliverySecret          []string `secret:"true" placeholder:"SECRET" help:"Signing secrets of the mail delivery provider's webhooks." group:"Channels"`
	EmailDeliveryAPIKey          string   `name:"email-delivery-api-key" secret:"true" placeholder:"KEY" help:"The mail delivery provider's API key, to send mail and to fetch received mail." group:"Channels" area:"Mail"`
	EmailDeliveryAPIURL          string   `name:"email-delivery-api-url" placeholder:"URL" help:"Base URL of the mail delivery provider's API (default: https://api.resend.com)." group:"Channels" area:"Mail"`
	TrustedAuthServers           []string `placeholder:"NAME" help:"Mail servers with trusted Authentication-Results and ARC results." group:"Channels"`
	SMSSecret                    []string `name:"sms-secret" secret:"true" placeholder:"SECRET" help:"Signing secrets of SMS accounts that all organizations share." group:"Channels"`
	SMSAPIURL                    string   `name:"sms-api-url" placeholder:"URL" help:"Base URL of the SMS provider's API (default: https://api.twilio.com)." group:"Channels"`
	BusinessMessagingSecret      []string `secret:"true" placeholder:"SECRET" help:"App secrets of the business messaging provider." group:"Channels"`
	BusinessMessagingVerifyToken []string `secret:"true" placeholder:"TOKEN" help:"Tokens that the business messaging provider presents when the webhook is set up." group:"Channels"`
	BusinessMessagingAPIURL      string   `name:"business-messaging-api-url" placeholder:"URL" help:"Base URL of the business messaging API (default: https://graph.facebook.com)." group:"Channels"`
	SocialMessengerSecret        []string `secret:"true" placeholder:"SECRET" help:"App secrets of the social messenger." group:"Channels"`
	SocialMessengerVerifyToken   []string `secret:"true" placeholder:"TOKEN" help:"Tokens that the social messenger presents when the webhook is set up." group:"Channels"`
	SocialMessengerAPIURL        string   `name:"social-messenger-api-url" placeholder:"URL" help:"Base URL of the social messenger's API (default: https://graph.facebook.com)." group:"Channels"`
	VoiceSecret                  []string `secret:"true" placeholder:"SECRET" help:"Signing secrets of the voice provider's webhooks." group:"Channels"`
	VoiceAPIURL                  string   `name:"voice-api-url" placeholder:"URL" help:"Base URL of the voice provider's API (default: https://dialpad.com)." group:"Channels"`
	StorefrontSecret             []string `secret:"true" placeholder:"SECRET" help:"Signing secrets of the storefront platform's webhooks." group:"Channels"`
	StorefrontAPISecret          []string `name:"storefront-api-secret" secret:"true" placeholder:"SECRET" help:"API secrets of the storefront app, which sign privacy requests." group:"Channels"`
	StorefrontAPIURL             string   `name:"storefront-api-url" placeholder:"URL" help:"Base URL of the storefront platform's API (default: each shop's domain)." group:"Channels"`
	ChatSecret                   []string `secret:"true" placeholder:"SECRET" help:"Signing secrets of the team chat app." group:"Channels"`
	ChatAPIURL                   string   `name:"chat-api-url" placeholder:"URL" help:"Base URL of the team chat's API (default: https://slack.com)." group:"Channels"`
	MarketplaceTopics            []string `placeholder:"ARN" help:"Marketplace topics to accept in addition to connected ones (default: on this machine any with a valid signature, elsewhere none)." group:"Channels"`
	AllowedAddresses             []string `placeholder:"ADDRESS=SLUG" help:"Addresses that organizations can connect without proof: ADDRESS=SLUG or @DOMAIN=SLUG, optionally for one medium: MEDIUM:ADDRESS=SLUG." group:"Channels"`
	SMSAccountSID                string   `name:"sms-account-sid" placeholder:"SID" help:"SMS provider's account that sends the codes to prove numbers (default: no codes)." group:"Channels"`
	SMSAuthToken                 string   `name:"sms-auth-token" secret:"true" placeholder:"TOKEN" help:"The auth token of that account." group:"Channels"`
	SMSFrom                      string   `name:"sms-from" placeholder:"NUMBER" help:"Sender number of that account." group:"Channels"`
	MarketplaceTestKey           []string `secret:"true" placeholder:"KEY" help:"Private key accepted for marketplace notifications, for tests only: RSA, PKCS #8 in base64." group:"Channels"`

	PaymentsSecret        []string `secret:"true" placeholder:"SECRET" help:"Signing secrets of the payment provider's webhook." group:"Payments"`
	PaymentsConnectSecret []string `secret:"true" placeholder:"SECRET" help:"Signing secrets of the payment provider's webhook for connected accounts." group:"Payments"`
	PaymentsAPIKey        string   `name:"payments-api-key" secret:"true" placeholder:"KEY" help:"The payment provider's secret API key, for its checkout pages (default: no paid plans; if the base URL is this machine, a simulated checkout)." group:"Payments"`
	PaymentsAPIURL        string   `name:"payments-api-url" placeholder:"URL" help:"Base URL of the payment provider's API (default: https://api.stripe.com)." group:"Payments"`
	PaymentsPricePro      string   `placeholder:"ID" help:"The payment provider's price of the plan pro." group:"Payments"`
	PaymentsPriceBusiness string   `placeholder:"ID" help:"The payment provider's price of the plan business." group:"Payments"`

	Retention []string `default:"events=90d,attempts=30d,inbound=30d,requests=7d,audit=never" placeholder:"KIND=TIME" help:"How long history is stored: events, attempts (webhook deliveries), inbound (raw requests), requests (log of API requests), as 90d or 12h, from 1h to 3650d, or never (no deletion); audit is never deleted." group:"Server" area:"Retention"`

	Quotas []string `placeholder:"[PLAN.]QUOTA=LIMIT" help:"Limits of organizations: storage (bytes of files, as 500MB or 1.5GB), messages (per day, UTC), webhooks. For all plans, as messages=10000, or for one, as free.messages=500; unlimited lifts the limit for all plans (default: no limits)." group:"Server" area:"Retention"`

	AllowPrivateReceivers bool    `help:"Allow webhooks to http and private addresses (development only)." group:"Webhooks"`
	RetryTimeScale        float64 `default:"1" placeholder:"FACTOR" help:"Multiplies every retry delay (tests, demos)." group:"Webhooks"`
}

// variablePrefix is the prefix of all environment variables.
const variablePrefix = "KICKSTAND_"

func variable(flag string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// sources resolves flags that are not on the command line.
type sources struct {
	lookup func(string) (string, bool)
	file   map[string]any
	path   string // of the file; empty: none
	// byDefault means that no source names a database: it is [ownDatabase].
	byDefault bool
	flags     map[string]bool // names of the flags on the command line
}

// of returns where the value of a setting comes from, and what has it; empty: the default.
func (s *sources) of(name string) (source setting.Source, by string) {
	value, _ := s.lookup(variable(name))
	path, _ := s.lookup(variable(name) + "_FILE")
	switch {
	case s.flags[name]:
		return setting.Flag, "--" + name
	case value != "":
		return setting.Variable, variable(name)
	case path != "":
		return setting.Variable, variable(name) + "_FILE"
	case s.file[name] != nil:
		return setting.File, s.path
	}
	return setting.Default, ""
}

// openSources reads the configuration file: the given one, or kickstand.toml in the
// working directory, or the demo's if demo returns true.
func openSources(lookup func(string) (string, bool), path string, demo func() bool) (*sources, error) {
	s := &sources{lookup: lookup}
	if path == "" {
		path, _ = lookup(variable("config"))
	}
	required := path != ""
	if !required {
		path = "kickstand.toml"
	}
	_, err := toml.DecodeFile(path, &s.file)
	if errors.Is(err, fs.ErrNotExist) && !required && demo() {
		path = filepath.Join(demoFolder, "kickstand.toml")
		_, err = toml.DecodeFile(path, &s.file)
	}
	if errors.Is(err, fs.ErrNotExist) && !required {
		return s, nil
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("configuration file: %w", err)}
	}
	s.path = path
	return s, nil
}

// Validate refuses unknown keys of the file.
func (s *sources) Validate(model *kong.Application) error {
	known := map[string]bool{}
	var visit func(n *kong.Node)
	visit = func(n *kong.Node) {
		for _, f := range n.Flags {
			known[key(n, f)] = true
		}
		for _, c := range n.Children {
			visit(c)
		}
	}
	visit(model.Node)
	for k := range s.file {
		if !known[k] {
			return fmt.Errorf("%s: unknown key %q; `kickstand serve --help-all` lists them all", s.path, k)
		}
	}
	return nil
}

// key returns the name of a flag in the file and, in capitals, in the environment: flags
// of a command are prefixed with its name.
func key(n *kong.Node, f *kong.Flag) string {
	if n != nil && n.Type == kong.CommandNode {
		return strings.ReplaceAll(n.Path(), " ", "-") + "-" + f.Name
	}
	return f.Name
}

// Resolve implements [kong.Resolver]. An empty variable counts as unset: many process
// managers cannot leave one out.
func (s *sources) Resolve(_ *kong.Context, parent *kong.Path, flag *kong.Flag) (any, error) {
	name := key(parent.Node(), flag)
	value, _ := s.lookup(variable(name))
	path, _ := s.lookup(variable(name) + "_FILE")
	switch {
	case value != "" && path != "":
		return nil, fmt.Errorf("%s and %[1]s_FILE are both set; unset one", variable(name))
	case value != "":
		return value, nil
	case path != "":
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s_FILE: %w", variable(name), err)
		}
		return strings.TrimRight(string(b), "\r\n"), nil
	}
	switch v := s.file[name].(type) {
	case nil:
		return nil, nil
	case []any:
		if !flag.IsSlice() {
			return nil, fmt.Errorf("%s: takes one value, not a list", s.path)
		}
		parts := make([]string, len(v))
		for i, p := range v {
			text, err := configValue(p)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.path, err)
			}
			parts[i] = strings.ReplaceAll(text, ",", `\,`)
		}
		return strings.Join(parts, ","), nil
	default:
		text, err := configValue(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.path, err)
		}
		return text, nil
	}
}

// configValue returns a value of the file as typed on the command line.
func configValue(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool, int64, float64:
		return fmt.Sprint(v), nil
	}
	return "", errors.New("must be a string, a number, true or false")
}

// mapTiles returns the source of map tiles; none is that of the built-in map alone.
func (c *config) mapTiles() string {
	if c.MapTiles == "none" {
		return ""
	}
	return c.MapTiles
}

// settings returns the configuration of the program.
func (c *config) settings() (app.Config, error) {
	// A trailing comma adds no value.
	for _, value := range reflect.ValueOf(c).Elem().Fields() {
		if list, ok := value.Addr().Interface().(*[]string); ok {
			*list = slices.DeleteFunc(*list, func(v string) bool { return strings.TrimSpace(v) == "" })
		}
	}
	a := app.Config{
		BaseURL: c.BaseURL, FleetBaseURL: c.FleetBaseURL, SandboxBaseURL: c.SandboxBaseURL, Data: c.Data, DatabaseURL: c.DatabaseURL, DatabaseDirectURL: c.DatabaseDirectURL, DatabaseConnections: c.DatabaseConnections, BlobURL: c.BlobURL, RedisURL: c.RedisURL, SecretKey: c.SecretKey,
		SMTPURL: c.SMTPURL, MailFrom: c.MailFrom, OperatorMail: c.OperatorMail, AllowNoMail: c.AllowNoMail, ExtraHosts: c.ExtraHosts, Listen: c.Listen, EmailDeliveryAPIKey: c.EmailDeliveryAPIKey,
		AccessLifetime: c.AccessLifetime, RefreshLifetime: c.RefreshLifetime, SessionLifetime: c.SessionLifetime, RedirectOrigins: c.RedirectOrigins, SignUp: c.SignUp, SignInBrand: c.SignInBrand, Operators: c.Operators,
		OIDCIssuer: c.OIDCIssuer, OIDCClientID: c.OIDCClientID, OIDCClientSecret: c.OIDCClientSecret,
		MailboxClients: map[string]mailbox.OAuthClient{
			email.ProviderGoogle:    {ID: c.GoogleClientID, Secret: c.GoogleClientSecret},
			email.ProviderMicrosoft: {ID: c.MicrosoftClientID, Secret: c.MicrosoftClientSecret},
		},
		PaymentsAPIKey: c.PaymentsAPIKey, PaymentsAPIURL: c.PaymentsAPIURL,
		PaymentsPrices: map[account.Plan]string{account.Pro: c.PaymentsPricePro, account.Business: c.PaymentsPriceBusiness},
		Secrets:        c.secrets(),
		VerifyTokens: map[string][]string{
			"business-messaging": c.BusinessMessagingVerifyToken, "social-messenger": c.SocialMessengerVerifyToken,
		},
		APIURLs:               c.apiURLs(),
		MarketplaceTopics:     c.MarketplaceTopics,
		TrustedAuthServers:    c.TrustedAuthServers,
		AllowedAddresses:      c.AllowedAddresses,
		TextAccount:           app.TextAccount{SID: c.SMSAccountSID, Token: c.SMSAuthToken, From: c.SMSFrom},
		AllowPrivateReceivers: c.AllowPrivateReceivers, RetryTimeScale: c.RetryTimeScale,
		Web: slices.Contains(c.Roles, "web"), Worker: slices.Contains(c.Roles, "worker"),
		MailReceiver: app.MailReceiver{
			Listen: c.SMTPListen, Hostname: c.SMTPHostname, Certificate: c.SMTPTLSCertificate, Key: c.SMTPTLSKey,
			Connections: c.SMTPConnections, MailRate: c.SMTPMailRate,
		},
		MapTiles: c.mapTiles(), MapAttribution: c.MapAttribution,
		StopTimeout: c.StopTimeout, MetricsListen: c.MetricsListen, Traces: c.Traces == "on",
	}
	var err error
	if a.Retention, err = app.ParseRetention(c.Retention); err != nil {
		return a, usageError{fmt.Errorf("--retention: %w", err)}
	}
	if a.Quotas, err = app.ParseQuotas(c.Quotas); err != nil {
		return a, usageError{fmt.Errorf("--quotas: %w", err)}
	}
	if a.BaseURL == "" {
		a.BaseURL = localURL(c.Listen)
	}
	a.BaseURL = strings.TrimRight(a.BaseURL, "/")
	if a.TrustedProxies, err = parseNetworks(c.TrustedProxies); err != nil {
		return a, usageError{fmt.Errorf("--trusted-proxies: %w", err)}
	}
	if a.FreshProof, err = freshProof(c.FreshProof); err != nil {
		return a, usageError{err}
	}
	if err := c.check(a.BaseURL); err != nil {
		return a, usageError{err}
	}
	if err := c.checkFormats(); err != nil {
		return a, usageError{err}
	}
	for _, check := range []func() error{a.CheckBases, a.CheckHosts, a.CheckMailReceiver} {
		if err := check(); err != nil {
			return a, usageError{fmt.Errorf("--%w", err)}
		}
	}
	return a, nil
}

// parseNetworks parses IP addresses and CIDR ranges.
func parseNetworks(list []string) (networks []netip.Prefix, err error) {
	for _, text := range list {
		network, err := netip.ParsePrefix(text)
		if addr, aerr := netip.ParseAddr(text); err != nil && aerr == nil {
			network, err = addr.Prefix(addr.BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor a CIDR range", text)
		}
		networks = append(networks, network)
	}
	return networks, nil
}

// check returns the first error of values that are out of range or contradict each other.
func (c *config) check(baseURL string) error {
	switch u, err := url.Parse(baseURL); {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("--base-url: %q is not an address such as https://help.example.com", baseURL)
	case u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return fmt.Errorf("--base-url: %q must be a host of its own, without a path or anything else", baseURL)
	case len(c.Roles) == 0:
		return errors.New("--roles must be web, worker or both")
	case !(c.RetryTimeScale > 0) || math.IsInf(c.RetryTimeScale, 0): // false for NaN, too
		return errors.New("--retry-time-scale must be greater than 0")
	case c.AccessLifetime <= 0, c.RefreshLifetime <= 0, c.SessionLifetime <= 0:
		return errors.New("--access-lifetime, --refresh-lifetime and --session-lifetime must be greater than 0")
	case (c.OIDCIssuer == "") != (c.OIDCClientID == ""):
		return errors.New("--oidc-issuer and --oidc-client-id must be set together")
	case c.OIDCIssuer == "" && c.OIDCClientSecret != "":
		return errors.New("--oidc-client-secret needs --oidc-issuer and --oidc-client-id")
	case c.GoogleClientID == "" && c.GoogleClientSecret != "", c.MicrosoftClientID == "" && c.MicrosoftClientSecret != "":
		return errors.New("--google-client-secret and --microsoft-client-secret need the client ids")
	case c.PaymentsPricePro != "" && c.PaymentsPricePro == c.PaymentsPriceBusiness:
		return errors.New("--payments-price-pro and --payments-price-business must differ: the price identifies the plan")
	case (c.SMSAccountSID == "") != (c.SMSAuthToken == "") || (c.SMSAccountSID == "") != (c.SMSFrom == ""):
		return errors.New("--sms-account-sid, --sms-auth-token and --sms-from must be set together")
	case c.DatabaseConnections < app.LeastDatabaseConnections:
		return fmt.Errorf("--database-connections must be at least %d", app.LeastDatabaseConnections)
	case c.DatabaseDirectURL != "" && !strings.HasPrefix(c.DatabaseURL, "postgres"):
		return errors.New("--database-direct-url needs a --database-url of PostgreSQL")
	case c.StopTimeout < 0:
		return errors.New("--stop-timeout must not be negative")
	}
	return nil
}

// checkFormats returns the first error of a value that cannot be parsed.
func (c *config) checkFormats() error {
	if err := app.CheckAllowed(c.AllowedAddresses); err != nil {
		return fmt.Errorf("--allowed-addresses: %w", err)
	}
	if _, err := mail.ParseAddress(c.MailFrom); err != nil {
		return fmt.Errorf("--mail-from: %w", err)
	}
	for _, operator := range c.Operators {
		if _, err := mail.ParseAddress(operator); err != nil {
			return fmt.Errorf("--operators: %w", err)
		}
	}
	type format struct {
		flag, value string // an empty value is not checked
		check       func(string) error
	}
	formats := []format{
		{"sign-up:", c.SignUp, parses(account.ParseSignUpPolicy)},
		{"operator-mail:", c.OperatorMail, parses(mail.ParseAddress)},
		{"oidc-issuer: it", c.OIDCIssuer, oidc.CheckIssuer},
		{"payments-api-url:", c.PaymentsAPIURL, parses(billing.ParseAPIURL)},
		{"redis-url: it", c.RedisURL, ratelimit.CheckURL},
		{"smtp-url:", c.SMTPURL, parses(mail.OpenSMTP)},
		{"email-delivery-api-key:", c.EmailDeliveryAPIKey, func(key string) error {
			_, err := mail.OpenAPI(mail.DefaultAPIURL, key)
			return err
		}},
	}
	urls := c.apiURLs()
	for _, name := range slices.Sorted(maps.Keys(urls)) {
		formats = append(formats, format{name + "-api-url:", urls[name], func(raw string) error {
			_, err := netguard.ParseAPIURL(raw, "https://api.example.com")
			return err
		}})
	}
	for _, f := range formats {
		if f.value == "" {
			continue
		}
		if err := f.check(f.value); err != nil {
			return fmt.Errorf("--%s %w", f.flag, err)
		}
	}
	return nil
}

func parses[T any](parse func(string) (T, error)) func(string) error {
	return func(text string) error {
		_, err := parse(text)
		return err
	}
}

// freshProof parses the setting: 0 is the default, below 0 is off.
func freshProof(text string) (time.Duration, error) {
	switch text {
	case "":
		return 0, nil
	case "off":
		return -1, nil
	}
	age, err := time.ParseDuration(text)
	if err != nil || age < time.Minute || age > 24*time.Hour {
		return 0, fmt.Errorf("--fresh-proof: %q is neither off nor a duration from 1m to 24h", text)
	}
	return age, nil
}

// secretLists returns the deployment-wide channel secrets, by channel.
func (c *config) secretLists() map[string]*[]string {
	return map[string]*[]string{
		"email-form": &c.EmailFormSecret, "email-parse": &c.EmailParsePublicKey, "email-json": &c.EmailJSONToken,
		"email-raw": &c.EmailRawSecret, "email-delivery": &c.EmailDeliverySecret, "sms": &c.SMSSecret,
		"business-messaging": &c.BusinessMessagingSecret, "social-messenger": &c.SocialMessengerSecret, "voice": &c.VoiceSecret,
		"storefront": &c.StorefrontSecret, "storefront-privacy": &c.StorefrontAPISecret, "chat": &c.ChatSecret,
		"payments": &c.PaymentsSecret, "payments-connect": &c.PaymentsConnectSecret, "marketplace": &c.MarketplaceTestKey,
	}
}

func (c *config) secrets() map[string][]string {
	lists := make(map[string][]string)
	for name, list := range c.secretLists() {
		lists[name] = *list
	}
	return lists
}

// apiURLs returns the base URLs of the providers' APIs, by channel; empty: the
// provider's.
func (c *config) apiURLs() map[string]string {
	return map[string]string{
		"sms": c.SMSAPIURL, "business-messaging": c.BusinessMessagingAPIURL, "social-messenger": c.SocialMessengerAPIURL,
		"email-delivery": c.EmailDeliveryAPIURL, "voice": c.VoiceAPIURL, "storefront": c.StorefrontAPIURL, "chat": c.ChatAPIURL,
	}
}

// localURL returns the URL of a listening address for a browser on this machine.
func localURL(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip, _ := netip.ParseAddr(host); err == nil && (host == "" || ip.IsUnspecified()) {
		addr = net.JoinHostPort("localhost", port)
	}
	return "http://" + addr
}

// line is a line of the effective configuration.
type line struct {
	Name  string
	Value any
	field reflect.StructField
}

// effective returns the configuration with masked secrets.
func (c *config) effective() []line {
	var out []line
	v := reflect.ValueOf(*c)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := f.Tag.Get("name")
		if name == "" {
			name = kebab(f.Name)
		}
		value := v.Field(i).Interface()
		if d, ok := value.(time.Duration); ok {
			value = shortDuration(d)
		}
		switch f.Tag.Get("secret") {
		case "true":
			value = masked(value)
		case "url":
			value = setting.MaskURL(value.(string))
		case "tiles":
			value = maskedTiles(value.(string))
		}
		out = append(out, line{name, value, f})
	}
	return out
}

// masked masks secrets.
func masked(v any) any {
	switch v := v.(type) {
	case string:
		return setting.Mask(v)
	case []string:
		out := make([]string, len(v))
		for i := range out {
			out[i] = setting.Mask(v[i])
		}
		return out
	}
	return setting.Mask(fmt.Sprint(v))
}

// maskedTiles masks the path and query of the address of tiles, which may have a key.
func maskedTiles(source string) string {
	scheme, rest, isURL := strings.Cut(source, "://")
	if !isURL {
		return source // a file, or none
	}
	host, _, _ := strings.Cut(rest, "/")
	return setting.MaskURL(scheme+"://"+host) + "/" + setting.Mask(rest)
}

// shortDuration formats a duration like [time.Duration.String] without parts that are zero: "720h".
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// described returns the settings for their page.
func (e *env) described(baseURL string) []setting.Setting {
	var out []setting.Setting
	for _, l := range e.effective() {
		if l.Name == "config" {
			continue
		}
		s := setting.Setting{Name: l.Name, Area: cmp.Or(l.field.Tag.Get("area"), l.field.Tag.Get("group")), Help: l.field.Tag.Get("help")}
		if s.Source, s.By = e.sources.of(l.Name); e.changedByDemo(l.field.Name) {
			s.Source, s.By = setting.Default, "kickstand demo"
		}
		switch v := l.Value.(type) {
		case []string:
			s.Value = strings.Join(v, ", ")
		default:
			s.Value = fmt.Sprint(v)
		}
		if l.Name == "base-url" {
			s.Value = baseURL
		}
		out = append(out, s)
	}
	return out
}

// changedByDemo reports whether the demo has another value for a field than the user.
func (e *env) changedByDemo(field string) bool {
	if e.given == nil {
		return false
	}
	value := func(c *config) any { return reflect.ValueOf(*c).FieldByName(field).Interface() }
	return !reflect.DeepEqual(value(e.given), value(&e.config))
}

// kebab converts field names to flag names like kong: AllowPrivateReceivers,
// allow-private-receivers.
func kebab(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('-')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}
