package app

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/app/doctor"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// Diagnose checks a deployment from outside of its server, which may be running or not.
// It creates neither databases nor folders.
func Diagnose(ctx context.Context, c Config) []doctor.Finding {
	if page, _, err := c.WithPage(ctx); err == nil {
		c = page // otherwise the check of the database fails, too
	}
	return doctor.Run(ctx, c.checks(c.closedDatabases(), c.openStore))
}

// findings runs the checks of this process's deployment.
func (a *App) findings(ctx context.Context) []doctor.Finding {
	var open []doctor.Database
	for i, d := range []*db.DB{a.DB, a.Fleet.DB, a.Sandbox.DB} {
		open = append(open, doctor.Database{
			Name: databases[i].name, Schema: databases[i].schema,
			Open: func(context.Context) (*db.DB, func(), error) { return d, func() {}, nil },
		})
	}
	store := func() (blob.Store, func(), error) { return a.blobs, func() {}, nil }
	return doctor.Run(ctx, a.current.Load().checks(open, store))
}

// diagnose logs the findings that need attention, once.
func (a *App) diagnose(ctx context.Context) {
	findings := a.findings(ctx)
	if ctx.Err() != nil {
		return // shutting down: unfinished checks have no result
	}
	for _, f := range findings {
		level := slog.LevelDebug
		switch f.Status {
		case doctor.Warn:
			level = slog.LevelWarn
		case doctor.Fail:
			level = slog.LevelError
		}
		a.log.Log(ctx, level, "doctor", "check", f.Check, "status", string(f.Status), "found", f.Found, "remedy", f.Remedy)
	}
}

// checks returns all checks of a deployment in display order.
func (c Config) checks(stored []doctor.Database, store func() (blob.Store, func(), error)) []doctor.Check {
	s := c.doctorSettings()
	client := doctor.Client()
	judge := func(f func(doctor.Settings) doctor.Finding) func(context.Context) doctor.Finding {
		return func(context.Context) doctor.Finding { return f(s) }
	}
	list := []doctor.Check{
		{Name: "configuration", Run: func(context.Context) doctor.Finding { return doctor.Configuration(c.CheckServe()) }},
		{Name: "base URL", Run: judge(doctor.BaseURL)},
		{Name: "DNS", Run: func(ctx context.Context) doctor.Finding { return doctor.Resolves(ctx, s) }},
		{Name: "public address", Run: func(ctx context.Context) doctor.Finding { return doctor.Answers(ctx, s, client) }},
		{Name: "trusted proxies", Run: judge(doctor.Proxies)},
		{Name: "mail server", Run: func(ctx context.Context) doctor.Finding { return c.checkMail(ctx, s) }},
		{Name: "mail sender", Run: judge(doctor.MailSender)},
	}
	for _, d := range stored {
		list = append(list, doctor.Check{Name: "database " + d.Name, Run: func(ctx context.Context) doctor.Finding { return doctor.DatabaseHealth(ctx, d) }})
	}
	list = append(list,
		doctor.Check{Name: "database connections", Run: func(ctx context.Context) doctor.Finding {
			return doctor.Connections(ctx, stored[0], cmp.Or(c.DatabaseConnections, DefaultDatabaseConnections))
		}},
		doctor.Check{Name: "outgoing work", Run: func(ctx context.Context) doctor.Finding { return doctor.Outgoing(ctx, stored[0]) }},
		doctor.Check{Name: "clock", Run: func(ctx context.Context) doctor.Finding { return doctor.Clock(ctx, s, client, stored) }},
		doctor.Check{Name: "attachments", Run: func(ctx context.Context) doctor.Finding {
			return doctor.Attachments(ctx, c.storeName(), store)
		}},
	)
	if c.RedisURL != "" {
		list = append(list, doctor.Check{Name: "redis", Run: c.checkRedis})
	}
	list = append(list, c.mailChecks(stored[0])...)
	return append(list,
		doctor.Check{Name: "links", Run: judge(doctor.Links)},
		doctor.Check{Name: "file permissions", Run: func(context.Context) doctor.Finding { return doctor.Permissions(c.exposedPaths()) }},
		doctor.Check{Name: "secret key", Run: func(context.Context) doctor.Finding { return doctor.SecretKey(s, c.keyState()) }},
		doctor.Check{Name: "sign-up", Run: judge(doctor.SignUp)},
		doctor.Check{Name: "organizations", Run: func(ctx context.Context) doctor.Finding {
			return doctor.Organizations(c.organizations(ctx, stored[0]))
		}},
		doctor.Check{Name: "addresses", Run: func(ctx context.Context) doctor.Finding {
			proofs, err := c.proofs(ctx, stored[0])
			return doctor.Addresses(s, proofs, err)
		}},
		doctor.Check{Name: "channel secrets", Run: judge(doctor.ChannelSecrets)},
		doctor.Check{Name: "webhook receivers", Run: judge(doctor.Receivers)},
		doctor.Check{Name: "test keys", Run: judge(doctor.TestKeys)},
		doctor.Check{Name: "payments", Run: judge(doctor.Payments)},
		doctor.Check{Name: "disk", Run: func(context.Context) doctor.Finding { return doctor.Disk(c.Data) }},
		doctor.Check{Name: "descriptors", Run: func(context.Context) doctor.Finding { return doctor.Descriptors() }},
	)
}

// doctorSettings returns the values that checks use.
func (c Config) doctorSettings() doctor.Settings {
	s := doctor.Settings{
		Loopback: c.Loopback(), Listen: c.Listen, BaseURL: c.BaseURL, Addresses: c.origins(),
		CanMail: c.SMTPURL != "" || c.EmailDeliveryAPIKey != "", TrustedProxies: c.TrustedProxies, Forwarded: c.forwarded(),
		AllowPrivateReceivers: c.AllowPrivateReceivers, RetryTimeScale: c.RetryTimeScale,
		MarketplaceTestKey: len(c.Secrets["marketplace"]) > 0,
		PaymentsKey:        c.PaymentsAPIKey != "", PaymentsSecret: len(c.Secrets["payments"]) > 0,
		OpenLinks:     c.openLinks(),
		PaymentsPrice: c.PaymentsPrices[account.Pro] != "" || c.PaymentsPrices[account.Business] != "",
	}
	if from, err := mail.ParseAddress(c.MailFrom); err == nil {
		s.MailFrom = from.Address
	}
	s.SignUp, _ = c.signUpPolicy()
	for _, name := range slices.Sorted(maps.Keys(c.Secrets)) {
		if len(c.Secrets[name]) > 0 && name != "marketplace" && !strings.HasPrefix(name, "payments") {
			s.DeploymentSecrets = append(s.DeploymentSecrets, name)
		}
	}
	return s
}

// origins returns the distinct origins of the configured base URLs.
func (c Config) origins() []string {
	var list []string
	for _, address := range []string{c.BaseURL, c.FleetBaseURL, c.SandboxBaseURL} {
		u, err := url.Parse(address)
		if address == "" || err != nil {
			continue
		}
		if origin := u.Scheme + "://" + u.Host; !slices.Contains(list, origin) {
			list = append(list, origin)
		}
	}
	return list
}

// closedDatabases returns databases that each check opens and closes.
func (c Config) closedDatabases() []doctor.Database {
	var list []doctor.Database
	for _, of := range databases {
		list = append(list, doctor.Database{Name: of.name, Schema: of.schema, Open: func(ctx context.Context) (*db.DB, func(), error) {
			at, o := of.at(&c)
			if path, ok := strings.CutPrefix(at, "sqlite:"); ok {
				if _, err := os.Stat(path); err != nil {
					return nil, nil, err
				}
			}
			o.MaxConns = 2
			d, err := db.Open(ctx, at, o)
			if err != nil {
				return nil, nil, err
			}
			return d, func() { d.Close() }, nil
		}})
	}
	return list
}

// organizations returns the number of organizations, and whether there is a default. A
// database of another version is [fs.ErrNotExist].
func (c Config) organizations(ctx context.Context, stored doctor.Database) (count int, hasDefault bool, err error) {
	err = withDatabase(ctx, stored, func(d *db.DB) (err error) {
		if count, err = account.CountOrganizations(ctx, d); err == nil {
			_, hasDefault, err = account.FindDefaultOrganization(ctx, d, c.Loopback())
		}
		return err
	})
	return count, hasDefault, err
}

// proofs counts connections by their proof, and lists unknown slugs of allowed-addresses.
// A database of another version is [fs.ErrNotExist].
func (c Config) proofs(ctx context.Context, stored doctor.Database) (p doctor.Proofs, err error) {
	allowed, err := parseAllowed(c.AllowedAddresses)
	if err != nil {
		return p, err
	}
	err = withDatabase(ctx, stored, func(d *db.DB) error {
		counts, err := connection.CountProofs(ctx, d)
		if err != nil {
			return err
		}
		p.Proven, p.Pending, p.BeforeProofs = counts.Proven, counts.Pending, counts.BeforeProofs
		for i := range allowed {
			known, err := account.HasSlug(ctx, d, allowed[i].Slug)
			if err != nil {
				return err
			}
			if !known && !slices.Contains(p.UnknownSlugs, allowed[i].Slug) {
				p.UnknownSlugs = append(p.UnknownSlugs, allowed[i].Slug)
			}
		}
		return nil
	})
	return p, err
}

// withDatabase calls f with a database of this version; another version is [fs.ErrNotExist].
func withDatabase(ctx context.Context, stored doctor.Database, f func(*db.DB) error) error {
	d, done, err := stored.Open(ctx)
	if err != nil {
		return err
	}
	defer done()
	state, err := d.Inspect(ctx)
	if err != nil {
		return err
	}
	if newest, err := stored.Schema.Newest(); err != nil || state.Version < newest || state.Floor > newest {
		return errors.Join(err, fs.ErrNotExist)
	}
	return f(d)
}

// openStore opens the attachment store unless its folder does not exist.
func (c Config) openStore() (blob.Store, func(), error) {
	if path, ok := strings.CutPrefix(c.blobURL(), "file:"); ok {
		if _, err := os.Stat(strings.TrimPrefix(path, "//")); err != nil {
			return nil, nil, err
		}
	}
	s, err := blob.Open(c.blobURL(), c.BlobAccess)
	if err != nil {
		return nil, nil, err
	}
	return s, func() {
		if closer, ok := s.(interface{ Close() error }); ok {
			closer.Close()
		}
	}, nil
}

// storeName returns the attachment store's URL without credentials.
func (c Config) storeName() string {
	if path, ok := strings.CutPrefix(c.blobURL(), "file:"); ok {
		return "the folder " + path
	}
	if u, err := url.Parse(c.blobURL()); err == nil {
		return "the bucket " + u.Host
	}
	return "the store"
}

func (c Config) checkMail(ctx context.Context, s doctor.Settings) doctor.Finding {
	if c.SMTPURL == "" {
		return doctor.NoMailServer(s, c.EmailDeliveryAPIKey != "")
	}
	server, err := mail.OpenSMTP(c.SMTPURL)
	if err != nil {
		return doctor.Configuration(err)
	}
	return doctor.MailServer(ctx, server)
}

func (c Config) checkRedis(ctx context.Context) doctor.Finding {
	r, err := ratelimit.OpenRedis(c.RedisURL, nil)
	if err != nil {
		return doctor.Configuration(err)
	}
	defer r.Close()
	where := "Redis"
	if u, err := url.Parse(c.RedisURL); err == nil {
		where += " at " + u.Host + u.Path
	}
	return doctor.Shared(ctx, where, r.Ping)
}

// openLinks describes connections to other machines without TLS, or without verification.
func (c Config) openLinks() []string {
	var open []string
	if u, err := url.Parse(c.DatabaseURL); err == nil && strings.HasPrefix(u.Scheme, "postgres") && isRemote(u) {
		switch mode := u.Query().Get("sslmode"); mode {
		case "verify-ca", "verify-full":
		case "require":
			open = append(open, "the database at "+u.Host+" is not verified (sslmode=require)")
		default:
			open = append(open, "the database at "+u.Host+" is reached without TLS, or with TLS that it may decline (sslmode="+cmp.Or(mode, "prefer")+")")
		}
	}
	if u, err := url.Parse(c.RedisURL); err == nil && u.Scheme == "redis" && isRemote(u) {
		open = append(open, "Redis at "+u.Host+" is reached without TLS")
	}
	return open
}

// isRemote reports whether a server, or one of several, is on another machine: neither
// loopback nor a local socket.
func isRemote(u *url.URL) bool {
	// A database URL may list several hosts with ports.
	for host := range strings.SplitSeq(cmp.Or(u.Host, u.Query().Get("host")), ",") {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		host = strings.Trim(host, "[]")
		addr, err := netip.ParseAddr(host)
		if host != "" && !strings.HasPrefix(host, "/") && !isLocalhost(host) && !(err == nil && addr.IsLoopback()) {
			return true
		}
	}
	return false
}

// exposedPaths returns the files that other users can access.
func (c Config) exposedPaths() ([]string, error) {
	paths, err := c.privatePaths()
	if path, ok := strings.CutPrefix(c.blobURL(), "file:"); ok {
		paths = append(paths, strings.TrimPrefix(path, "//"))
	}
	var list []string
	for _, path := range paths {
		_, open, perr := isExposed(path)
		if open {
			list = append(list, path)
		}
		err = errors.Join(err, perr)
	}
	return list, err
}

// keyState returns where and how the secret key is stored.
func (c Config) keyState() doctor.Key {
	k := doctor.Key{Path: c.SecretKeyFile}
	switch {
	case c.SecretKey == "":
		k.Path = c.keyPath()
	case c.SecretKeyFile == "":
		_, k.Unreadable = seal.ParseKeys(c.SecretKey)
		return k
	}
	info, err := os.Stat(k.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k.Missing = true
	case err != nil:
		k.Unreadable = err
	default:
		k.Mode = info.Mode()
	}
	for _, path := range c.sqlitePaths() {
		k.WithData = k.WithData || sameFolder(k.Path, path)
	}
	return k
}

func sameFolder(a, b string) bool {
	a, errA := filepath.Abs(a)
	b, errB := filepath.Abs(b)
	return errA == nil && errB == nil && filepath.Dir(a) == filepath.Dir(b)
}
