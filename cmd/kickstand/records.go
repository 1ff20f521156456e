package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/connection"
)

// with opens the program's parts without running any, for commands that work
// beside a server.
func (e *env) with(ctx context.Context, fn func(a *app.App) error) error {
	set, err := e.settings()
	if err != nil {
		return err
	}
	if e.LogLevel == "info" {
		e.LogLevel = "warn" // what is printed is the news
	}
	a, err := app.Open(ctx, set, e.logger())
	if err != nil {
		return err
	}
	defer a.Close()
	return fn(a)
}

type orgCmd struct {
	Create orgCreateCmd `cmd:"" help:"Create an organization."`
	List   orgListCmd   `cmd:"" help:"List the organizations and what they pay for."`
}

type orgCreateCmd struct {
	Name           string `required:"" help:"Its name; the slug is made from it."`
	Plan           string `default:"free" enum:"free,pro,business" help:"Its plan: free, pro or business."`
	FleetRateLimit int64  `placeholder:"N" help:"Fleet requests a minute agreed with a business (default: the plan's)."`
}

func (c *orgCreateCmd) Run(ctx context.Context, e *env) error {
	return e.with(ctx, func(a *app.App) error {
		o, err := a.Accounts.CreateOrganization(ctx, account.NewOrganization{Name: c.Name, Plan: account.Plan(c.Plan), FleetRateLimit: c.FleetRateLimit})
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

type orgListCmd struct{}

// shownOrganization is an organization with what it pays for.
type shownOrganization struct {
	ID           string       `json:"id"`
	Name         string       `json:"name"`
	Slug         string       `json:"slug"`
	Plan         account.Plan `json:"plan"`
	PendingPlan  account.Plan `json:"pending_plan,omitempty"`
	PastDue      bool         `json:"past_due"`
	Subscription string       `json:"subscription,omitempty"` // the payment provider's id
	Status       string       `json:"subscription_status,omitempty"`
}

func (*orgListCmd) Run(ctx context.Context, e *env) error {
	return e.with(ctx, func(a *app.App) error {
		list, err := a.Accounts.Organizations(ctx)
		if err != nil {
			return err
		}
		shown := make([]shownOrganization, len(list))
		for i, o := range list {
			state, err := a.Billing.State(ctx, o.ID)
			if err != nil {
				return err
			}
			shown[i] = shownOrganization{o.ID, o.Name, o.Slug, state.Plan, state.PendingPlan, state.PastDue, state.SubscriptionID, state.Status}
		}
		return e.print(shown, func(w io.Writer) {
			if len(shown) == 0 {
				fmt.Fprintln(w, "There is no organization yet.\nNext: kickstand org create --name NAME")
				if _, err := os.Stat(filepath.Join(demoFolder, "kickstand.toml")); err == nil && e.File == "" {
					fmt.Fprintf(w, "The demo's are listed with --config=%s/kickstand.toml\n", demoFolder)
				}
				return
			}
			t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
			fmt.Fprintln(t, "SLUG\tNAME\tPLAN\tPAYMENT\tSUBSCRIPTION\tID")
			for _, s := range shown {
				payment := s.Status
				switch {
				case s.PastDue:
					payment = "past due"
				case s.PendingPlan != "":
					payment = string(s.PendingPlan) + " is not paid yet"
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Slug, oneLine(s.Name), s.Plan, orElse(payment, "-"), orElse(s.Subscription, "-"), s.ID)
			}
			t.Flush()
		})
	})
}

// oneLine keeps a name in its cell.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

type userCmd struct {
	Create userCreateCmd `cmd:"" help:"Create a user."`
}

type userCreateCmd struct {
	Email    string `required:"" help:"E-mail address, with which they sign in."`
	Password string `secret:"true" help:"Password, at least 8 characters (default: none; they sign in by e-mail link)."`
	Name     string `help:"Display name."`
	Org      string `required:"" placeholder:"SLUG" help:"Organization they belong to."`
	Role     string `required:"" enum:"admin,agent" help:"What they may do: admin or agent."`
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

type channelCmd struct {
	Connect channelConnectCmd `cmd:"" help:"Connect an address to an organization."`
	List    channelListCmd    `cmd:"" help:"List an organization's connections."`
}

type channelConnectCmd struct {
	Channel     string   `arg:"" placeholder:"CHANNEL" help:"Its name, such as sms or email-raw; any other word lists them all."`
	Org         string   `required:"" placeholder:"SLUG" help:"Organization it belongs to."`
	Address     string   `required:"" help:"The number or mail address that customers write to."`
	Name        string   `help:"What agents see (default: the address)."`
	Secret      []string `secret:"true" help:"Signing secret, or several for rotation (default: one is made and shown once, where not only the provider can have one)."`
	Credentials string   `placeholder:"JSON" secret:"true" help:"What the provider's API wants: an object of strings."`
	AutoReply   string   `placeholder:"TEXT" help:"Answer to the first message of a new customer."`

	Setting map[string]string `placeholder:"NAME=VALUE" help:"A setting of the channel, such as missed_calls=ticket; several with semicolons."`
}

// shownConnection is a connection without its secrets.
type shownConnection struct {
	connection.Connection
	URL     string   `json:"url"` // where the provider posts
	Secrets []string `json:"secrets,omitempty"`
}

func (c *channelConnectCmd) Run(ctx context.Context, e *env) error {
	n := connection.New{Channel: c.Channel, Address: c.Address, Name: c.Name, Secrets: c.Secret, Settings: map[string]string{}}
	switch c.Channel {
	case "email":
		n.Channel = "email-raw"
	case "payments":
		return usageError{errors.New("payments are the deployment's own and not connected to an organization: " +
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
	return e.with(ctx, func(a *app.App) error {
		o, err := a.Accounts.OrganizationBySlug(ctx, c.Org)
		if err != nil {
			return err
		}
		n.OrganizationID = o.ID
		made, secrets, err := a.Connections.Connect(ctx, n)
		if err != nil {
			return err
		}
		shown := shownConnection{Connection: made, URL: a.InboundURL(made.Channel)}
		if len(c.Secret) == 0 {
			shown.Secrets = secrets // made here: this is the only time it is shown
		}
		return e.print(shown, func(w io.Writer) {
			fmt.Fprintf(w, "%s is connected.\nPoint the provider at %s\nor, where no other connection shall be reached by it, at %s?c=%s\n", made.Address, shown.URL, shown.URL, made.ID)
			if len(shown.Secrets) > 0 {
				fmt.Fprintf(w, "Signing secret (shown only now): %s\n", strings.Join(shown.Secrets, ", "))
			}
		})
	})
}

type channelListCmd struct {
	Org string `required:"" placeholder:"SLUG" help:"Organization."`
}

func (c *channelListCmd) Run(ctx context.Context, e *env) error {
	return e.with(ctx, func(a *app.App) error {
		o, err := a.Accounts.OrganizationBySlug(ctx, c.Org)
		if err != nil {
			return err
		}
		list, err := a.Connections.List(ctx, o.ID)
		if err != nil {
			return err
		}
		shown := make([]shownConnection, len(list))
		for i, l := range list {
			shown[i] = shownConnection{Connection: l, URL: a.InboundURL(l.Channel)}
		}
		return e.print(shown, func(w io.Writer) {
			if len(shown) == 0 {
				fmt.Fprintf(w, "No channel is connected yet.\nNext: kickstand channel connect sms --org %s --address +14155550100\n", c.Org)
				return
			}
			t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
			fmt.Fprintln(t, "CHANNEL\tADDRESS\tNAME\tENABLED\tID")
			for _, s := range shown {
				fmt.Fprintf(t, "%s\t%s\t%s\t%t\t%s\n", s.Channel, s.Address, s.Name, s.Enabled, s.ID)
			}
			t.Flush()
			for _, s := range shown {
				if s.Notice != nil {
					fmt.Fprintf(w, "\n%s %s (%s, %s): %s\n", s.Channel, s.Address, s.Notice.Kind, s.Notice.At.Format(time.RFC3339), s.Notice.Text)
				}
			}
		})
	})
}

type migrateCmd struct{}

func (*migrateCmd) Help() string {
	return "The server does this by itself at start; this command does it beforehand, under the same lock."
}

func (*migrateCmd) Run(ctx context.Context, e *env) error {
	set, err := e.settings()
	if err != nil {
		return err
	}
	applied, err := app.Migrate(ctx, set, e.logger())
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
	return "Values come from flags, then KICKSTAND_… variables, then kickstand.toml, then the defaults."
}

func (*configCmd) Run(e *env) error {
	list := e.effective()
	record := map[string]any{}
	for _, s := range list {
		record[s.Name] = s.Value
	}
	return e.print(record, func(w io.Writer) {
		if e.sources.path != "" {
			fmt.Fprintf(w, "# file: %s\n", e.sources.path)
		}
		for _, s := range list {
			v, _ := json.Marshal(s.Value) // strings, numbers and lists of strings
			fmt.Fprintf(w, "%s = %s\n", s.Name, v)
		}
	})
}

type versionCmd struct{}

func (*versionCmd) Run(e *env) error {
	record := struct {
		Version string `json:"version"`
		Commit  string `json:"commit,omitempty"`
		Go      string `json:"go"`
	}{Version: "devel"}
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
	return e.print(record, func(w io.Writer) { fmt.Fprintln(w, "kickstand", record.Version, record.Go) })
}
