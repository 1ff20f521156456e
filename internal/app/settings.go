package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/setting"
	"github.com/kickstand-dev/kickstand/internal/web/settings"
)

// settingsInterval is the time after which a process notices a change of another one's page.
const settingsInterval = 3 * time.Second

// settingsSchema is the version of the helpdesk's schema that has settings of the page.
const settingsSchema = 80

// fixed returns what fixes the value of a setting, so that the page cannot change it; empty: nothing.
func (c *Config) fixed(name string) string {
	i := slices.IndexFunc(c.Settings, func(s setting.Setting) bool { return s.Name == name })
	if i < 0 || !c.Settings[i].Fixed() {
		return ""
	}
	return c.Settings[i].By
}

// withPage returns c with the values of the page that nothing overrides.
func (c Config) withPage(values map[string]string) (Config, error) {
	for name, value := range values {
		if value == "" || c.fixed(name) != "" {
			continue
		}
		if err := c.set(name, value); err != nil {
			return c, &setting.Error{Name: name, Err: err}
		}
	}
	return c, nil
}

// set sets a changeable setting. It refuses values that the start refuses.
func (c *Config) set(name, value string) (err error) {
	switch name {
	case setting.SMTPURL:
		c.SMTPURL = value
		_, err = mail.OpenSMTP(value)
	case setting.DeliveryKey:
		c.EmailDeliveryAPIKey = value
		if _, err = mail.OpenAPI(mail.DefaultAPIURL, value); err != nil {
			err = errors.New("has no keys with such characters")
		}
	case setting.SignInBrand:
		c.SignInBrand = value
	case setting.MailFrom:
		c.MailFrom = value
		if _, err = mail.ParseAddress(value); err != nil {
			err = errors.New("must be an address such as Acme <help@example.com>")
		}
	case setting.SignUp:
		c.SignUp = value
		_, err = account.ParseSignUpPolicy(value)
	case setting.Retention:
		c.Retention, err = ParseRetention(strings.Split(value, ","))
	default:
		err = errors.New("cannot be changed while the server runs")
	}
	return err
}

// texts returns the texts of values.
func texts(values map[string]setting.Value) map[string]string {
	out := make(map[string]string, len(values))
	for name, v := range values {
		out[name] = v.Text
	}
	return out
}

// WithPage returns c with the values of the page, and these values. It changes nothing, and finds no
// values without a database.
func (c Config) WithPage(ctx context.Context) (Config, map[string]setting.Value, error) {
	if _, err := os.Stat(c.keyPath()); c.SecretKey == "" && err != nil {
		return c, nil, nil // a server has yet to create its key
	}
	box, err := openBox(c)
	if err != nil {
		return c, nil, err
	}
	d, done, err := c.closedDatabases()[0].Open(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil, nil
	}
	if err != nil {
		return c, nil, err
	}
	defer done()
	state, err := d.Inspect(ctx)
	if err != nil || state.Version < settingsSchema {
		return c, nil, err
	}
	values, err := setting.Open(d, box, nil).Values(ctx)
	if err != nil {
		return c, nil, err
	}
	c, err = c.withPage(texts(values))
	return c, values, err
}

// CheckServe is [Config.CheckServe] with the values of the page.
func CheckServe(ctx context.Context, c Config) error {
	err := c.CheckServe()
	if err == nil {
		return nil
	}
	if page, _, perr := c.WithPage(ctx); perr == nil {
		return page.CheckServe()
	}
	return err
}

// openSettings reads the settings of the page for the start.
func (a *App) openSettings(ctx context.Context) error {
	a.settings = setting.Open(a.DB, a.box, a.Audit)
	values, err := a.settings.Values(ctx)
	if err != nil {
		return err
	}
	if a.config, err = a.given.withPage(texts(values)); err != nil {
		return fmt.Errorf("settings of the page: %w", err)
	}
	current := a.config
	a.current.Store(&current)
	return nil
}

// watchSettings applies changes of the page until ctx ends.
func (a *App) watchSettings(ctx context.Context) {
	loop.Every(ctx, settingsInterval, a.log, "reading the settings of the page", a.reloadSettings)
}

// reloadSettings applies changes of the page, of this process or another.
func (a *App) reloadSettings(ctx context.Context) error {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	values, err := a.settings.Values(ctx)
	if err != nil {
		return err
	}
	next, err := a.given.withPage(texts(values))
	if err != nil {
		return err
	}
	now := a.current.Load()
	var changed []string
	for name, differs := range map[string]bool{
		setting.SMTPURL: next.SMTPURL != now.SMTPURL, setting.MailFrom: next.MailFrom != now.MailFrom,
		setting.DeliveryKey: next.EmailDeliveryAPIKey != now.EmailDeliveryAPIKey,
		setting.SignUp:      next.SignUp != now.SignUp, setting.SignInBrand: next.SignInBrand != now.SignInBrand, setting.Retention: next.Retention != now.Retention,
	} {
		if differs {
			changed = append(changed, name)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	policy, err := next.signUpPolicy()
	if err != nil {
		return err
	}
	from, err := mail.ParseAddress(next.MailFrom)
	if err != nil {
		return err
	}
	sender := mail.Current(a.mailSwitch)
	if next.SMTPURL != now.SMTPURL || next.EmailDeliveryAPIKey != now.EmailDeliveryAPIKey {
		if sender, err = a.openMail(&next, a.providers); err != nil {
			return err
		}
	}
	a.mailSwitch.Set(sender, from)
	if next.EmailDeliveryAPIKey != now.EmailDeliveryAPIKey {
		a.Inbound.SetCredentials(deploymentCredentials(next, a.letters))
	}
	a.Accounts.SetSignUp(policy)
	a.current.Store(&next)
	slices.Sort(changed)
	a.log.InfoContext(ctx, "settings changed on the page", "settings", strings.Join(changed, ", "))
	return nil
}

// Settings returns all settings with their effective values, secrets masked.
func (a *App) Settings(ctx context.Context) ([]setting.Setting, error) {
	values, err := a.settings.Values(ctx)
	if err != nil {
		return nil, err
	}
	list := setting.Overlay(a.given.Settings, values)
	for i := range list {
		if s := &list[i]; s.Name == setting.SignUp && s.Value == "" {
			s.Value = a.Accounts.SignUp().String()
		}
	}
	return list, nil
}

// candidate returns the configuration as it were with values of the page; an empty value means none.
// A refusal is a [setting.Error].
func (a *App) candidate(ctx context.Context, values map[string]string) (Config, error) {
	stored, err := a.settings.Values(ctx)
	if err != nil {
		return Config{}, err
	}
	page := texts(stored)
	for name := range values {
		if by := a.given.fixed(name); by != "" {
			return Config{}, &setting.Error{Name: name, Err: fmt.Errorf("is fixed by %s", by)}
		}
		if !slices.Contains(setting.Changeable, name) {
			return Config{}, &setting.Error{Name: name, Err: errors.New("cannot be changed while the server runs")}
		}
	}
	if err := a.checkPage(ctx, values); err != nil {
		return Config{}, err
	}
	maps.Copy(page, values)
	c, err := a.given.withPage(page)
	if err != nil {
		return c, err
	}
	if err := c.CheckServe(); err != nil {
		return c, &setting.Error{Name: setting.SMTPURL, Err: errors.New("is the only way to send mail: this server has a public base URL")}
	}
	return c, nil
}

// checkPage refuses values that are valid in a file, but not on the page.
func (a *App) checkPage(ctx context.Context, values map[string]string) error {
	if values[setting.DeliveryKey] != "" && a.given.APIURLs["email-delivery"] != "" {
		// With a key, the URL is no longer that of the connections.
		return &setting.Error{Name: setting.DeliveryKey, Err: errors.New("has its own address in email-delivery-api-url: set its key in the same place")}
	}
	slug := values[setting.SignInBrand]
	if slug == "" {
		return nil
	}
	_, err := a.Accounts.OrganizationBySlug(ctx, slug)
	if problem.Of(err) == problem.NotFound {
		return &setting.Error{Name: setting.SignInBrand, Err: errors.New("is not the short name of an organization")}
	}
	return err
}

// SaveSettings stores values of the page by the names of their settings, all or none, and applies them; an
// empty one deletes the value of the page. A refusal is a [setting.Error].
func (a *App) SaveSettings(ctx context.Context, values map[string]string) error {
	if _, err := a.candidate(ctx, values); err != nil {
		return err
	}
	if err := a.settings.Save(ctx, values); err != nil {
		return err
	}
	return a.reloadSettings(ctx)
}

// testMailTimeout bounds the sending of a test mail, for which a browser waits.
const testMailTimeout = 30 * time.Second

// TestMail sends a mail to an address as the server would with values of the page. A refusal, also of the
// mail server, is a [setting.Error].
func (a *App) TestMail(ctx context.Context, values map[string]string, to string) error {
	c, err := a.candidate(ctx, values)
	if err != nil {
		return err
	}
	from, err := mail.ParseAddress(c.MailFrom)
	if err != nil {
		return err
	}
	m, err := mail.Notification{
		Subject: "Test mail of " + a.base.Host,
		Before:  []string{"This mail tests the mail settings of " + a.BaseURL + "."},
	}.Message(from, mail.Address{Address: to})
	if err != nil {
		return err
	}
	by := setting.SMTPURL
	if c.SMTPURL == "" && c.EmailDeliveryAPIKey != "" {
		by = setting.DeliveryKey
	}
	if err := a.sendTestMail(ctx, &c, by, m); err != nil || by == setting.DeliveryKey || values[setting.DeliveryKey] == "" {
		return err
	}
	c.SMTPURL = "" // the new key is tested, too
	return a.sendTestMail(ctx, &c, setting.DeliveryKey, m)
}

// sendTestMail sends a mail by the setting of c that sends mails.
func (a *App) sendTestMail(ctx context.Context, c *Config, by string, m mail.Message) error {
	sender, err := a.openMail(c, a.providers)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, testMailTimeout)
	defer cancel()
	if err := sender.Send(ctx, m); err != nil {
		return &setting.Error{Name: by, Err: fmt.Errorf("did not accept the test mail: %s", strings.TrimPrefix(err.Error(), "mail: "))}
	}
	return nil
}

// mailBrand returns the look of notifications to an address: that of its user's organization, or, as on the
// pages for signing in, of the operator's choice.
func (a *App) mailBrand(ctx context.Context, q db.Querier, address string) (mail.Brand, error) {
	b, err := a.Accounts.MailBrand(ctx, q, address)
	slug := a.current.Load().SignInBrand
	if err != nil || b != (mail.Brand{}) || slug == "" {
		return b, err
	}
	return a.Accounts.MailBrandOf(ctx, q, slug)
}

// siteBrand returns the organization whose brand the pages outside of the dashboard have.
func (a *App) siteBrand(ctx context.Context) (account.Organization, bool) {
	slug := a.current.Load().SignInBrand
	if slug == "" {
		return account.Organization{}, false
	}
	o, err := a.Accounts.OrganizationBySlug(ctx, slug)
	if err != nil {
		a.log.WarnContext(ctx, "organization of sign-in-brand not found", "slug", slug, "error", err)
	}
	return o, err == nil
}

// isOperator reports whether a user sees and changes the server's settings.
func (a *App) isOperator(ctx context.Context, by account.Identity) bool {
	if len(a.config.Operators) > 0 {
		return slices.ContainsFunc(a.config.Operators, func(o string) bool { return account.SameEmail(o, by.User.Email) })
	}
	if !a.config.Loopback() || by.Role != account.Admin {
		return false
	}
	id, ok, err := a.Accounts.DefaultOrganization(ctx, a.DB)
	if err != nil {
		a.log.WarnContext(ctx, "default organization not found", "error", err)
	}
	return ok && id == by.OrganizationID
}

// serverPages returns what operators see on the pages of the deployment.
func (a *App) serverPages() settings.Server {
	var roles []string
	for _, role := range []struct {
		name string
		on   bool
	}{{"web", a.config.Web}, {"worker", a.config.Worker}} {
		if role.on {
			roles = append(roles, role.name)
		}
	}
	return settings.Server{
		Settings: a.Settings, Save: a.SaveSettings, TestMail: a.TestMail,
		Checks: func(ctx context.Context) (list []settings.ServerCheck) {
			for _, f := range a.findings(ctx) {
				list = append(list, settings.ServerCheck{Name: f.Check, Status: string(f.Status), Found: f.Found, Remedy: f.Remedy})
			}
			return list
		},
		Facts: [][2]string{{"Version", buildVersion()}, {"Go", runtime.Version()}, {"Roles", strings.Join(roles, ", ")}},
	}
}
