package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mailbox"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/setting"
)

// with opens the program without running it, for commands next to a server. Only commands
// with the tag creates may create the database.
func (e *env) with(ctx context.Context, fn func(a *app.App) error) error {
	set, err := e.settings()
	if err != nil {
		return err
	}
	if e.LogLevel == "info" {
		e.LogLevel = "warn" // keeps the output readable
	}
	if e.sources.byDefault {
		if at, runs := runningDemo(ctx, demoFolder); runs {
			fmt.Fprintf(e.err, "Using %s. For the demo at %s use --config=%s\n", ownDatabase, at, filepath.Join(demoFolder, "kickstand.toml"))
		}
	}
	open := app.OpenExisting
	if e.creates {
		open = app.Open
	}
	a, err := open(ctx, set, e.logger())
	if missing, ok := errors.AsType[*app.NoDatabaseError](err); ok {
		return fmt.Errorf("%w; name another with --data or --database-url (KICKSTAND_DATA, KICKSTAND_DATABASE_URL), or run `kickstand demo` in this folder", missing)
	}
	if err != nil {
		return err
	}
	defer a.Close()
	return fn(a)
}

type orgCmd struct {
	Create  orgCreateCmd  `cmd:"" creates:"" help:"Create an organization."`
	List    orgListCmd    `cmd:"" help:"List organizations with the default one, plans and subscriptions."`
	Default orgDefaultCmd `cmd:"" help:"Set the default organization, which receives events without a connection."`
	SignIn  orgSignInCmd  `cmd:"" help:"Require the identity provider or a second factor for members."`
	Quota   orgQuotaCmd   `cmd:"" help:"Show or set the quotas of an organization: storage, messages per day, webhooks."`
}

type orgCreateCmd struct {
	Name           string `required:"" help:"Name; the slug is derived from it."`
	Plan           string `default:"free" enum:"free,pro,business" help:"Plan: free, pro or business."`
	Default        bool   `help:"Make it the default organization, which receives events without a connection."`
	FleetRateLimit int64  `placeholder:"N" help:"Agreed fleet requests per minute, with plan business (default: the plan's)."`
}

func (c *orgCreateCmd) Run(ctx context.Context, e *env) error {
	return e.with(ctx, func(a *app.App) error {
		o, err := a.Accounts.CreateOrganization(ctx, account.NewOrganization{Name: c.Name, Plan: account.Plan(c.Plan), FleetRateLimit: c.FleetRateLimit, Default: c.Default})
		if err != nil {
			return err
		}
		record := struct {
			ID   string `json:"id"`
			Name string `json:"name"`
			Slug string `json:"slug"`
			Plan string `json:"plan"`
		}{o.ID, o.Name, o.Slug, string(o.Plan)}
		return e.print(record, func(w io.Writer) {
			fmt.Fprintf(w, "Organization %s is ready.\nNext: kickstand user create --org %s --role admin --email YOU@EXAMPLE --password …\n", o.Slug, o.Slug)
		})
	})
}

type orgDefaultCmd struct {
	Slug string `arg:"" help:"Slug of the organization."`
}

func (*orgDefaultCmd) Help() string {
	return `Inbound events for an unconnected address go to the default organization only. Initially it is the first organization
created by org create; without one, such events stay unrouted, or, if the base URL is this machine, go to the first
organization of all. Earlier events stay as they are; route or replay them:
  kickstand inbound list --state unrouted`
}

func (c *orgDefaultCmd) Run(ctx context.Context, e *env) error {
	return e.with(ctx, func(a *app.App) error {
		o, err := a.Accounts.SetDefaultOrganization(ctx, c.Slug)
		if err != nil {
			return withListHint(err, "org list")
		}
		record := struct {
			ID      string `json:"id"`
			Name    string `json:"name"`
			Slug    string `json:"slug"`
			Default bool   `json:"default"`
		}{o.ID, o.Name, o.Slug, true}
		return e.print(record, func(w io.Writer) {
			fmt.Fprintf(w, "%s is the default organization.\n", o.Slug)
		})
	})
}

type orgSignInCmd struct {
	Slug         string  `arg:"" help:"Slug of the organization."`
	ProviderOnly *string `placeholder:"off|all|domain:example.com,…" help:"Members who must sign in by the identity provider: off (none), all, or by e-mail domain."`
	SecondFactor string  `placeholder:"required|optional" enum:",required,optional" default:"" help:"Whether members need a passkey or an authenticator app: required or optional."`
}

func (c *orgSignInCmd) Run(ctx context.Context, e *env) error {
	if c.ProviderOnly == nil && c.SecondFactor == "" {
		return usageError{errors.New("nothing to set: give --provider-only, --second-factor or both")}
	}
	var policy account.ProviderPolicy
	if c.ProviderOnly != nil {
		var err error
		if policy, err = account.ParseProviderPolicy(*c.ProviderOnly); err != nil {
			return usageError{fmt.Errorf("--provider-only: %w", err)}
		}
	}
	return e.with(ctx, func(a *app.App) error {
		var o account.Organization
		var err error
		if c.ProviderOnly != nil {
			if o, err = a.Accounts.RequireProviderByOperator(ctx, c.Slug, policy); err != nil {
				return withListHint(err, "org list")
			}
		}
		if c.SecondFactor != "" {
			if o, err = a.Accounts.RequireSecondFactorByOperator(ctx, c.Slug, c.SecondFactor == "required"); err != nil {
				return withListHint(err, "org list")
			}
		}
		record := struct {
			Slug                 string `json:"slug"`
			ProviderOnly         string `json:"provider_only"`
			SecondFactorRequired bool   `json:"second_factor_required"`
		}{o.Slug, o.ProviderOnly.String(), o.SecondFactorRequired}
		return e.print(record, func(w io.Writer) {
			second := "optional"
			if o.SecondFactorRequired {
				second = "required"
			}
			fmt.Fprintf(w, "Sign-in of %s\n  with the identity provider only: %s\n  second factor: %s\n", o.Slug, o.ProviderOnly, second)
		})
	})
}

type orgListCmd struct{}

// shownOrganization is the printed form of an organization with its plan state.
type shownOrganization struct {
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Slug         string          `json:"slug"`
	Default      bool            `json:"default"` // receives the events of no connection
	MadeBy       account.Creator `json:"made_by"`
	Plan         account.Plan    `json:"plan"`
	PendingPlan  account.Plan    `json:"pending_plan,omitempty"`
	PastDue      bool            `json:"past_due"`
	Subscription string          `json:"subscription,omitempty"` // provider's id
	Status       string          `json:"subscription_status,omitempty"`
	Quotas       []shownQuota    `json:"quotas"`
}

func (*orgListCmd) Run(ctx context.Context, e *env) error {
	return e.with(ctx, func(a *app.App) error {
		list, err := a.Accounts.Organizations(ctx)
		if err != nil {
			return err
		}
		byDefault, _, err := a.Accounts.DefaultOrganization(ctx, a.DB)
		if err != nil {
			return err
		}
		shown := make([]shownOrganization, len(list))
		for i, o := range list {
			state, err := a.Billing.State(ctx, o.ID)
			if err != nil {
				return err
			}
			quotas, err := showQuotas(ctx, a, o.ID)
			if err != nil {
				return err
			}
			shown[i] = shownOrganization{o.ID, o.Name, o.Slug, o.ID == byDefault, o.CreatedBy, state.Plan, state.PendingPlan, state.PastDue, state.SubscriptionID, state.Status, quotas}
		}
		return e.print(shown, func(w io.Writer) {
			if len(shown) == 0 {
				fmt.Fprintln(w, "No organizations.\nNext: kickstand org create --name NAME")
				return
			}
			t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
			fmt.Fprintln(t, "SLUG\tNAME\tDEFAULT\tCREATED BY\tPLAN\tPAYMENT\tSUBSCRIPTION\tID")
			for _, s := range shown {
				payment := s.Status
				switch {
				case s.PastDue:
					payment = "past due"
				case s.PendingPlan != "":
					payment = string(s.PendingPlan) + " is not paid yet"
				}
				byDefault := "-"
				if s.Default {
					byDefault = "yes"
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Slug, oneLine(s.Name), byDefault, s.MadeBy, s.Plan, firstNonEmpty(payment, "-"), firstNonEmpty(s.Subscription, "-"), s.ID)
			}
			t.Flush()
			if byDefault == "" {
				fmt.Fprintln(w, "No default organization: events without a connection stay unrouted.\nNext: kickstand org default SLUG")
			}
		})
	})
}

// oneLine collapses whitespace, so that a name stays in its cell.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

type userCmd struct {
	Create       userCreateCmd       `cmd:"" help:"Create a user."`
	Delete       userDeleteCmd       `cmd:"" help:"Delete a user for good."`
	ResetFactors userResetFactorsCmd `cmd:"" help:"Delete a user's passkeys, authenticator app and recovery codes, and end their sessions."`
	Link         userLinkCmd         `cmd:"" help:"Print a sign-in link for a user, valid even if the identity provider is required."`
	Unlink       userUnlinkCmd       `cmd:"" help:"Remove a user's identity at the identity provider; the next sign-in there links anew."`
}

type userDeleteCmd struct {
	Email  string `arg:"" help:"The user's e-mail address."`
	Revoke bool   `help:"Also revoke the user's API keys and disable their webhooks."`
}

func (*userDeleteCmd) Help() string {
	return `Deletes a user for good, with password, factors and sessions. Their tickets
that are not closed become unassigned. Messages retain the name, and the audit
log its entries. The last admin of an organization cannot be deleted. The user's
API keys and webhooks continue to work unless --revoke is given.`
}

func (c *userDeleteCmd) Run(ctx context.Context, e *env) error {
	return e.with(ctx, func(a *app.App) error {
		u, err := a.Accounts.DeleteUser(ctx, c.Email, c.Revoke)
		if err != nil {
			return err
		}
		record := struct {
			ID    string `json:"id"`
			Email string `json:"email"`
		}{u.ID, u.Email}
		return e.print(record, func(w io.Writer) { fmt.Fprintf(w, "%s is deleted\n", u.Email) })
	})
}

type userLinkCmd struct {
	Email string `arg:"" help:"The user's e-mail address."`
}

func (c *userLinkCmd) Run(ctx context.Context, e *env) error {
	return e.with(ctx, func(a *app.App) error {
		link, err := a.Accounts.OperatorLink(ctx, c.Email)
		if err != nil {
			return err
		}
		record := struct {
			Email string `json:"email"`
			URL   string `json:"url"`
		}{c.Email, link}
		return e.print(record, func(w io.Writer) {
			fmt.Fprintf(w, "%s\nIt signs in as %s, once, for %d minutes: do not share it.\n", link, c.Email, int(account.LinkLife.Minutes()))
		})
	})
}

type userUnlinkCmd struct {
	Email string `arg:"" help:"The user's e-mail address."`
}

func (c *userUnlinkCmd) Run(ctx context.Context, e *env) error {
	return e.with(ctx, func(a *app.App) error {
		n, err := a.Accounts.UnlinkIdentities(ctx, c.Email)
		if err != nil {
			return err
		}
		record := struct {
			Email    string `json:"email"`
			Unlinked int64  `json:"unlinked"`
		}{c.Email, n}
		return e.print(record, func(w io.Writer) {
			if n == 0 {
				fmt.Fprintf(w, "%s has no identity to remove\n", c.Email)
				return
			}
			fmt.Fprintf(w, "%s can sign in with another identity of the provider\n", c.Email)
		})
	})
}

type userCreateCmd struct {
	Email    string `required:"" help:"E-mail address for sign-in."`
	Password string `secret:"true" help:"Password, at least 8 characters (default: none; sign-in by e-mail link)."`
	Name     string `help:"Display name."`
	Org      string `required:"" placeholder:"SLUG" help:"Organization of the user."`
	Role     string `required:"" enum:"admin,agent" help:"Role: admin or agent."`
}

func (c *userCreateCmd) Run(ctx context.Context, e *env) error {
	return e.with(ctx, func(a *app.App) error {
		u, err := a.Accounts.CreateUser(ctx, account.NewUser{
			Email: c.Email, Password: c.Password, Name: c.Name, Organization: c.Org, Role: account.Role(c.Role),
		})
		if err != nil {
			return err
		}
		record := struct {
			ID    string `json:"id"`
			Email string `json:"email"`
			Role  string `json:"role"`
		}{u.ID, u.Email, string(u.Role)}
		return e.print(record, func(w io.Writer) {
			fmt.Fprintf(w, "%s can sign in at %s\n", u.Email, a.BaseURL)
		})
	})
}

type userResetFactorsCmd struct {
	Email string `arg:"" placeholder:"EMAIL" help:"E-mail address of the user."`
}

func (*userResetFactorsCmd) Help() string {
	return `For a user who has lost every second factor. Verify the user's identity first:
afterwards a password or a mailed link suffices to sign in. The user is notified
by mail.`
}

func (c *userResetFactorsCmd) Run(ctx context.Context, e *env) error {
	return e.with(ctx, func(a *app.App) error {
		u, err := a.Factors.ResetByOperator(ctx, c.Email)
		if err != nil {
			return err
		}
		record := struct {
			ID    string `json:"id"`
			Email string `json:"email"`
		}{u.ID, u.Email}
		return e.print(record, func(w io.Writer) {
			fmt.Fprintf(w, "%s signs in without a second factor until a new one is added.\n", u.Email)
		})
	})
}

type channelCmd struct {
	Connect channelConnectCmd `cmd:"" help:"Connect an address to an organization."`
	List    channelListCmd    `cmd:"" help:"List connections, of one organization or of all."`
	Show    channelShowCmd    `cmd:"" help:"Show a connection and its health."`
	Prove   channelProveCmd   `cmd:"" help:"Accept a connection's address as proven."`
}

type channelConnectCmd struct {
	Channel     string   `arg:"" placeholder:"CHANNEL" help:"Channel, such as sms or email-raw; any other word lists all."`
	Org         string   `required:"" placeholder:"SLUG" help:"Organization of the connection."`
	Address     string   `required:"" help:"Number, mail address or id that customers write to."`
	Name        string   `help:"Display name for agents (default: the address)."`
	Secret      []string `secret:"true" help:"Signing secret, or several for rotation (default: generated and shown once, if the provider does not issue it)."`
	Credentials string   `placeholder:"JSON" secret:"true" help:"Credentials for the provider's API: an object of strings."`
	AutoReply   string   `placeholder:"TEXT" help:"Automatic reply to the first message of a new customer."`
	Signature   string   `placeholder:"TEXT" help:"Markdown below all replies by mail."`
	IMAP        string   `name:"imap" placeholder:"URL" help:"Channel mailbox: the IMAP server, such as imaps://imap.example.com (default: by the domain of the address)."`
	SMTP        string   `name:"smtp" placeholder:"URL" help:"Channel mailbox: the SMTP server, such as smtps://smtp.example.com."`
	User        string   `help:"Channel mailbox: the user at both servers (default: the address)."`
	Password    string   `secret:"true" help:"Channel mailbox: the password at both servers."`
	OAuth       string   `name:"oauth" placeholder:"PROVIDER" help:"Channel mailbox: sign in at google or microsoft in place of a password."`

	Setting map[string]string `placeholder:"NAME=VALUE" help:"Setting of the channel, such as missed_calls=ticket; several with semicolons."`
}

// shownConnection is a connection without its secrets.
type shownConnection struct {
	connection.Connection
	URL     string   `json:"url"` // URL for the provider; empty: it posts nothing
	Secrets []string `json:"secrets,omitempty"`
}

func (c *channelConnectCmd) Run(ctx context.Context, e *env) error {
	n := connection.New{Channel: c.Channel, Address: c.Address, Name: c.Name, Secrets: c.Secret, Settings: map[string]string{}, ByOperator: true}
	switch c.Channel {
	case "email":
		n.Channel = "email-raw"
	case "payments":
		return usageError{errors.New("payments belong to the deployment and cannot be connected to an organization: " +
			"set KICKSTAND_PAYMENTS_SECRET to the signing secret of the provider's webhook")}
	}
	if c.Credentials != "" {
		if err := json.Unmarshal([]byte(c.Credentials), &n.Credentials); err != nil {
			return usageError{fmt.Errorf("--credentials must be a JSON object of strings, such as {\"account_sid\":\"…\",\"auth_token\":\"…\"}")}
		}
	}
	maps.Copy(n.Settings, c.Setting)
	if c.AutoReply != "" {
		n.Settings["auto_reply"] = c.AutoReply
	}
	if c.Signature != "" {
		n.Settings["signature"] = c.Signature
	}
	c.addServers(&n)
	return e.with(ctx, func(a *app.App) error {
		o, err := a.Accounts.OrganizationBySlug(ctx, c.Org)
		if err != nil {
			return err
		}
		n.OrganizationID = o.ID
		if n.Channel == email.MailboxName {
			return c.connectMailbox(ctx, e, a, n)
		}
		made, secrets, err := a.Connections.Connect(ctx, n)
		if err != nil {
			return err
		}
		if n.Channel == email.DirectName {
			return e.print(shownConnection{Connection: made}, func(w io.Writer) {
				fmt.Fprintf(w, "%s is connected.\n%s\n", made.Address, a.MailAdvice(&made))
			})
		}
		shown := shownConnection{Connection: made, URL: a.InboundURL(made.Channel)}
		if len(c.Secret) == 0 {
			shown.Secrets = secrets // generated, and cannot be read again
		}
		return e.print(shown, func(w io.Writer) {
			fmt.Fprintf(w, "%s is connected.\nSet the provider's webhook to %s\nor, for this connection only, to %s?c=%s\n", made.Address, shown.URL, shown.URL, made.ID)
			if len(shown.Secrets) > 0 {
				fmt.Fprintf(w, "Signing secret (shown only now): %s\n", strings.Join(shown.Secrets, ", "))
			}
		})
	})
}

// addServers adds the servers of a mailbox to the credentials.
func (c *channelConnectCmd) addServers(n *connection.New) {
	for name, value := range map[string]string{
		email.CredentialIMAP: c.IMAP, email.CredentialServer: c.SMTP, email.CredentialUser: c.User, email.CredentialPassword: c.Password, email.CredentialProvider: c.OAuth,
	} {
		if value == "" {
			continue
		}
		if n.Credentials == nil {
			n.Credentials = make(map[string]string)
		}
		n.Credentials[name] = value
	}
}

// connectMailbox signs in at the servers of a mailbox, and connects it.
func (*channelConnectCmd) connectMailbox(ctx context.Context, e *env, a *app.App, n connection.New) error {
	probe, err := a.Mailboxes.Probe(ctx, &n)
	if err != nil {
		return err
	}
	made, _, err := a.Connections.Connect(ctx, n)
	if err != nil {
		return err
	}
	return e.print(struct {
		connection.Connection
		mailbox.Probe
	}{made, probe}, func(w io.Writer) {
		fmt.Fprintf(w, "%s is connected.\n", made.Address)
		if provider := n.Credentials[email.CredentialProvider]; provider != "" {
			fmt.Fprintf(w, "Next: an admin signs in at %s: %s/settings/channels/%s\n", a.Mailboxes.ProviderTitle(provider), a.BaseURL, made.ID)
		}
		for _, f := range probe.Folders {
			fmt.Fprintf(w, "Folder %s has %d mails. A running server reads it within seconds.\n", f.Name, f.Mails)
		}
		if probe.Sends {
			fmt.Fprintln(w, "The SMTP server accepts the login, and sends the replies.")
		}
	})
}

type channelListCmd struct {
	Org string `placeholder:"SLUG" help:"Only of this organization."`
}

// listedConnection is a connection with its organization.
type listedConnection struct {
	shownConnection
	Organization string          `json:"organization"`      // slug
	Mailbox      *mailbox.Status `json:"mailbox,omitempty"` // if it is read by IMAP
}

func (c *channelListCmd) Run(ctx context.Context, e *env) error {
	return e.with(ctx, func(a *app.App) error {
		bySlug := make(map[string]string)
		var ids []string
		if c.Org != "" {
			o, err := a.Accounts.OrganizationBySlug(ctx, c.Org)
			if err != nil {
				return err
			}
			bySlug[o.ID], ids = o.Slug, []string{o.ID}
		} else {
			all, err := a.Accounts.Organizations(ctx)
			if err != nil {
				return err
			}
			for _, o := range all {
				bySlug[o.ID], ids = o.Slug, append(ids, o.ID)
			}
		}
		shown := []listedConnection{}
		for _, id := range ids {
			list, err := a.Connections.List(ctx, id)
			if err != nil {
				return err
			}
			for _, l := range list {
				one := listedConnection{shownConnection: shownConnection{Connection: l}, Organization: bySlug[id]}
				if at := a.Connections.Endpoint(&l); at != "" {
					one.URL = a.BaseURL + at
				}
				status, ok, err := a.Mailboxes.Status(ctx, a.DB, l.ID)
				if err != nil {
					return err
				}
				if ok {
					one.Mailbox = &status
				}
				shown = append(shown, one)
			}
		}
		return e.print(shown, func(w io.Writer) { c.table(w, shown) })
	})
}

// table prints connections as a table.
func (c *channelListCmd) table(w io.Writer, shown []listedConnection) {
	if len(shown) == 0 {
		fmt.Fprintf(w, "No connections.\nNext: kickstand channel connect sms --org %s --address +14155550100\n", firstNonEmpty(c.Org, "SLUG"))
		return
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "CHANNEL\tADDRESS\tNAME\tENABLED\tPROOF\tORGANIZATION\tID")
	for _, s := range shown {
		fmt.Fprintf(t, "%s\t%s\t%s\t%t\t%s\t%s\t%s\n", s.Channel, s.Address, tableCell(s.Name), s.Enabled, firstNonEmpty(string(s.Proof.Method), string(s.Proof.State)), s.Organization, s.ID)
	}
	t.Flush()
	for _, s := range shown {
		if m := s.Mailbox; m != nil {
			fmt.Fprintf(w, "\n%s: %s, %d mails%s%s%s\n", s.Address, m.State, m.Collected, since(", the last one ", m.LastMailAt), since(", checked ", m.CheckedAt), since(", failing since ", m.FailingSince))
			if m.Error != "" {
				fmt.Fprintf(w, "  %s\n  Next attempt: %s\n", m.Error, m.RetryAt.Format(time.RFC3339))
			}
		}
		if s.Notice != nil {
			fmt.Fprintf(w, "\n%s %s (%s, %s): %s\n", s.Channel, s.Address, s.Notice.Kind, s.Notice.At.Format(time.RFC3339), s.Notice.Text)
		}
	}
}

type channelShowCmd struct {
	ID string `arg:"" placeholder:"CONNECTION" help:"Id of the connection; see channel list."`
}

// channelHealth is the health of a connection. Unknown times are absent.
type channelHealth struct {
	LastReceivedAt time.Time `json:"last_received_at,omitzero"`
	LastSentAt     time.Time `json:"last_sent_at,omitzero"`
	LastError      string    `json:"last_error,omitempty"`
	LastErrorAt    time.Time `json:"last_error_at,omitzero"`
	Failing        bool      `json:"failing"`
	SecretEndsAt   time.Time `json:"secret_ends_at,omitzero"`
	ConsentEndsAt  time.Time `json:"consent_ends_at,omitzero"`
}

func (c *channelShowCmd) Run(ctx context.Context, e *env) error {
	return e.with(ctx, func(a *app.App) error {
		found, err := a.Connections.Find(ctx, c.ID)
		if errors.Is(err, db.ErrNoRows) {
			return withListHint(problem.New(problem.NotFound, "there is no connection %s", c.ID), "channel list")
		}
		if err != nil {
			return err
		}
		h, err := a.Inbound.Health(ctx, &found)
		if err != nil {
			return err
		}
		shown := struct {
			shownConnection
			Health channelHealth `json:"health"`
		}{
			shownConnection{Connection: found, URL: a.BaseURL + a.Connections.Endpoint(&found)},
			channelHealth{h.ReceivedAt, h.SentAt, h.Error, h.ErrorAt, h.Failing(), h.SecretEndsAt, h.ConsentEndsAt},
		}
		return e.print(shown, func(w io.Writer) {
			t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
			line := func(name, value string) { fmt.Fprintf(t, "%s\t%s\n", name, firstNonEmpty(value, "never")) }
			at := func(at time.Time) string {
				if at.IsZero() {
					return ""
				}
				return at.Format(time.RFC3339)
			}
			line("Channel", found.Channel+" "+found.Address)
			line("Endpoint", shown.URL)
			line("Enabled", strconv.FormatBool(found.Enabled))
			line("Last received", at(h.ReceivedAt))
			line("Last sent", at(h.SentAt))
			if h.Error != "" {
				line("Last error", at(h.ErrorAt)+" "+h.Error)
			}
			if !h.SecretEndsAt.IsZero() {
				line("Replaced secret ends", at(h.SecretEndsAt))
			}
			if !h.ConsentEndsAt.IsZero() {
				line("Consent ends", at(h.ConsentEndsAt))
			}
			t.Flush()
		})
	})
}

// since returns a label with a time, or "" for the zero time.
func since(label string, at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return label + at.Format(time.RFC3339)
}

type channelProveCmd struct {
	ID     string `arg:"" placeholder:"CONNECTION" help:"Id of the connection; see channel list."`
	Revoke bool   `help:"Withdraw the proof: the connection is pending until it is proven again."`
}

func (*channelProveCmd) Help() string {
	return `An organization must prove that an address is its own before it receives events verified only by the deployment's shared
secrets, or sends by the deployment's accounts. If it cannot, the operator confirms the address here. That removes the
proof of another organization for the same address.`
}

func (c *channelProveCmd) Run(ctx context.Context, e *env) error {
	return e.with(ctx, func(a *app.App) error {
		var proven connection.Connection
		err := a.DB.Write(ctx, func(tx *db.Tx) (err error) {
			if c.Revoke {
				proven, err = a.Connections.RevokeProofTx(ctx, tx, c.ID)
			} else {
				proven, err = a.Connections.ProveTx(ctx, tx, c.ID)
			}
			return err
		})
		if err != nil {
			return err
		}
		return e.print(proven, func(w io.Writer) {
			if c.Revoke {
				fmt.Fprintf(w, "%s is pending.\n", proven.Address)
				return
			}
			fmt.Fprintf(w, "%s is proven.\n", proven.Address)
		})
	})
}

type migrateCmd struct {
	Finish bool `help:"Refuse older versions from now on. Run it when all servers run this version."`
}

func (*migrateCmd) Help() string {
	return "The server migrates at start; this command does so beforehand, under the same lock."
}

func (c *migrateCmd) Run(ctx context.Context, e *env) error {
	set, err := e.settings()
	if err != nil {
		return err
	}
	applied, err := app.Migrate(ctx, set, c.Finish, e.logger())
	if err != nil {
		return err
	}
	if applied == nil {
		applied = []app.Migrated{}
	}
	return e.print(applied, func(w io.Writer) {
		if len(applied) == 0 {
			fmt.Fprintln(w, "The databases are up to date.")
		}
		for _, m := range applied {
			fmt.Fprintf(w, "applied %04d %s to %s\n", m.Version, m.Name, m.Database)
		}
	})
}

type configCmd struct{}

func (*configCmd) Help() string {
	return `Values come from flags, then KICKSTAND_… variables, then kickstand.toml, then the page Settings, Server, which is read
from the database if there is one, then the defaults.`
}

func (*configCmd) Run(ctx context.Context, e *env) error {
	page, perr := e.addPage(ctx)
	list := e.effective()
	record, from := map[string]any{}, map[string]string{}
	for i := range list {
		name := list[i].Name
		record[name] = list[i].Value
		source, by := e.sources.of(name)
		from[name] = string(source)
		switch {
		case by != "":
			from[name] += " " + by
		case page[name]:
			from[name] = string(setting.Page)
		}
	}
	record["sources"] = from
	if perr != nil {
		fmt.Fprintf(e.err, "Values of the page Settings, Server are missing: %v\n", perr)
	}
	return e.print(record, func(w io.Writer) {
		if e.sources.path != "" {
			fmt.Fprintf(w, "# file: %s\n", e.sources.path)
		}
		for _, s := range list {
			v, _ := json.Marshal(s.Value) // strings, numbers and lists of strings
			fmt.Fprintf(w, "%s = %s  # %s\n", s.Name, v, from[s.Name])
		}
	})
}

// addPage sets the settings that only the page has, and returns their names.
func (e *env) addPage(ctx context.Context) (map[string]bool, error) {
	set, err := e.settings()
	if err != nil {
		return nil, err
	}
	_, values, err := set.WithPage(ctx)
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool)
	for name, v := range values {
		if source, _ := e.sources.of(name); source != setting.Default {
			continue
		}
		names[name] = true
		switch name {
		case setting.SMTPURL:
			e.SMTPURL = v.Text
		case setting.MailFrom:
			e.MailFrom = v.Text
		case setting.SignUp:
			e.SignUp = v.Text
		case setting.Retention:
			e.Retention = strings.Split(v.Text, ",")
		}
	}
	return names, nil
}

type versionCmd struct{}

// shownVersion is the printed form of the program's version.
type shownVersion struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
}

func programVersion() shownVersion {
	record := shownVersion{Version: "devel"}
	if info, ok := debug.ReadBuildInfo(); ok {
		record.Go = info.GoVersion
		if v := info.Main.Version; v != "" && v != "(devel)" {
			record.Version = v
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				record.Commit = s.Value
			}
		}
	}
	return record
}

func (*versionCmd) Run(e *env) error {
	record := programVersion()
	return e.print(record, func(w io.Writer) { fmt.Fprintln(w, "kickstand", record.Version, record.Go) })
}
