package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/audit"
)

type keyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Create an API key. It is shown once."`
	List   keyListCmd   `cmd:"" help:"List an organization's API keys with permissions and last use."`
	Rotate keyRotateCmd `cmd:"" help:"Create a key with the settings of another, which works until it is revoked."`
	Revoke keyRevokeCmd `cmd:"" help:"Revoke a key at once and for good. It stays in the list."`
	Delete keyDeleteCmd `cmd:"" help:"Delete a key for good; an active one is revoked at once."`
}

func (*keyCmd) Help() string {
	return `A key for a report that only reads tickets:
  kickstand key create --org acme --service helpdesk --environment live --name Report \
    --resources '{"tickets":["read"]}'

Replace a key without downtime:
  kickstand key rotate ID         creates a second key; deploy it
  kickstand key list --org acme   shows the last use of the first key
  kickstand key revoke ID`
}

// shownKey is the printed form of a key.
type shownKey struct {
	ID             string             `json:"id"`
	Name           string             `json:"name"`
	Service        apikey.ServiceName `json:"service"`
	Environment    apikey.Environment `json:"environment"`
	Key            string             `json:"key,omitempty"` // only at creation
	PartialKey     string             `json:"partial_key"`
	Level          *apikey.Level      `json:"level"`
	Resources      apikey.Grants      `json:"resources"`
	Scope          apikey.Scope       `json:"subaccount_scope"`
	AllowedIPs     []string           `json:"allowed_ips"`
	RateLimit      *int64             `json:"rate_limit_per_minute"`
	ExpiresAt      *time.Time         `json:"expires_at"`
	Status         apikey.Status      `json:"status"`
	CreatedBy      audit.Actor        `json:"created_by"`
	CreatedAt      time.Time          `json:"created_at"`
	LastUsedAt     *time.Time         `json:"last_used_at"`
	LastUsedIP     *string            `json:"last_used_ip"`
	RevokedAt      *time.Time         `json:"revoked_at"`
	RevokedBy      *audit.Actor       `json:"revoked_by"`
	RotatedFrom    *string            `json:"rotated_from"`
	ReplacedBy     *string            `json:"replaced_by"`
	OrganizationID string             `json:"organization_id"`
}

func showKey(a *app.App, k apikey.Key) shownKey {
	return shownKey{
		ID: k.ID, Name: k.Name, Service: k.Service, Environment: k.Environment, PartialKey: k.PartialKey, Level: orNil(k.Level),
		Resources: k.Resources, Scope: k.Scope, AllowedIPs: k.AllowedIPs.Strings(), RateLimit: orNil(k.RateLimit),
		ExpiresAt: momentOf(k.ExpiresAt), Status: k.Status(a.DB.Now()), CreatedBy: k.CreatedBy, CreatedAt: k.CreatedAt,
		LastUsedAt: momentOf(k.LastUsedAt), LastUsedIP: orNil(k.LastUsedIP), RevokedAt: momentOf(k.RevokedAt),
		RevokedBy: orNil(k.RevokedBy), RotatedFrom: orNil(k.RotatedFrom), ReplacedBy: orNil(k.ReplacedBy), OrganizationID: k.OrganizationID,
	}
}

// orNil returns nil for the zero value.
func orNil[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

// permissions describes a key's permissions in text.
func (s *shownKey) permissions() string {
	var parts []string
	if s.Level != nil {
		parts = append(parts, strings.ReplaceAll(string(*s.Level), "_", " "))
	}
	if s.Resources.All {
		parts = append(parts, "all resources")
	}
	if s.Resources.Named != nil {
		var named []string
		for resource, actions := range s.Resources.Named {
			words := make([]string, len(actions))
			for i, a := range actions {
				words[i] = string(a)
			}
			named = append(named, resource+": "+firstNonEmpty(strings.Join(words, ", "), "nothing"))
		}
		slices.Sort(named)
		parts = append(parts, firstNonEmpty(strings.Join(named, "; "), "nothing"))
	}
	return strings.Join(parts, ", of which ")
}

// printToken prints a new key.
func (e *env) printToken(a *app.App, k apikey.Key, t apikey.Token, next string) error {
	shown := showKey(a, k)
	shown.Key = t.Reveal()
	return e.print(shown, func(w io.Writer) {
		fmt.Fprintf(w, "%s\n\n%s key %q, permissions: %s.\n", shown.Key, shown.Service, shown.Name, shown.permissions())
		fmt.Fprintln(w, "The key cannot be shown again. Store it with your other secrets.")
		if shown.Environment == apikey.Live {
			fmt.Fprintln(w, "It is a live key: it reads and changes real data.")
		}
		fmt.Fprint(w, next)
	})
}

type keyCreateCmd struct {
	Org         string   `required:"" placeholder:"SLUG" help:"Organization."`
	Service     string   `required:"" enum:"helpdesk,fleet" help:"API: helpdesk or fleet."`
	Environment string   `required:"" enum:"live,test" help:"Environment: live, or test (the fleet's sandbox)."`
	Name        string   `required:"" help:"Name, unique among the keys."`
	Level       string   `placeholder:"LEVEL" help:"Permission level: read_only, read_write, or admin (includes settings)."`
	Resources   string   `placeholder:"MAP" help:"Resources: all, or a JSON map of resources to actions."`
	Subaccounts []string `placeholder:"ID" help:"Subaccounts (default: all, including future ones)."`
	AllowedIPs  []string `name:"allowed-ips" placeholder:"IP" help:"Allowed addresses and CIDR blocks (default: any)."`
	RateLimit   *int64   `placeholder:"N" help:"Requests per minute (default and maximum: the plan's)."`
	Expires     string   `placeholder:"WHEN" help:"Last valid day, such as 2027-03-31, or a time, such as 2027-03-31T18:00:00Z (default: never)."`
	TimeZone    string   `default:"UTC" placeholder:"ZONE" help:"Time zone of the last day, such as Europe/Berlin (default: ${default})."`
}

func (*keyCreateCmd) Help() string {
	return `Give --level, --resources or both; with both, an action must be allowed by both. Actions are read, create, update and
delete, and none implies another. Settings need --level=admin without a map.

Helpdesk: tickets, messages, customers, webhooks, channels, events, analytics.
Fleet:    rides, vehicles, customers, pricing, analytics; zones by --level or --resources=all only.

For example:
  kickstand key create --org acme --service helpdesk --environment live \
    --name Export --level read_only
  kickstand key create --org acme --service fleet --environment test --name App \
    --expires 2027-03-31 --resources '{"rides":["read","create","update"],"vehicles":["read"]}' \
    --allowed-ips 192.0.2.0/24,2001:db8::1

With --json the last value has the key as "key".`
}

func (c *keyCreateCmd) Run(ctx context.Context, e *env) error {
	n := apikey.New{
		Service: apikey.ServiceName(c.Service), Environment: apikey.Environment(c.Environment), Name: c.Name,
		Permissions: apikey.Permissions{Level: apikey.Level(c.Level)},
		Scope:       apikey.ScopeOf(c.Subaccounts), AllowedIPs: c.AllowedIPs, RateLimit: c.RateLimit,
	}
	switch c.Resources {
	case "":
	case "all":
		n.Resources.All = true
	default:
		if err := json.Unmarshal([]byte(c.Resources), &n.Resources); err != nil || n.Resources.Named == nil {
			return usageError{errors.New(`--resources must be all or a JSON map, such as '{"tickets":["read","create"]}'`)}
		}
	}
	loc, err := time.LoadLocation(c.TimeZone)
	if err != nil || c.TimeZone == "Local" {
		return usageError{fmt.Errorf("--time-zone must be an IANA time zone such as Europe/Berlin, not %q", c.TimeZone)}
	}
	if n.ExpiresAt, err = apikey.ParseExpiry(c.Expires, loc); err != nil {
		return usageError{fmt.Errorf("--expires: %w", err)}
	}
	return e.withOrganization(ctx, c.Org, func(a *app.App, organizationID string) error {
		n.OrganizationID = organizationID
		k, t, err := a.Keys.Create(ctx, n)
		if err != nil {
			return err
		}
		return e.printToken(a, k, t, "")
	})
}

type keyListCmd struct {
	Org string `required:"" placeholder:"SLUG" help:"Organization."`
}

func (c *keyListCmd) Run(ctx context.Context, e *env) error {
	return e.withOrganization(ctx, c.Org, func(a *app.App, organizationID string) error {
		list, err := a.Keys.List(ctx, organizationID, "", "")
		if err != nil {
			return err
		}
		shown := make([]shownKey, len(list))
		for i, k := range list {
			shown[i] = showKey(a, k)
		}
		return e.print(shown, func(w io.Writer) {
			if len(shown) == 0 {
				fmt.Fprintf(w, "%s has no API keys.\nNext: kickstand key create --org %s --service helpdesk --environment live --name NAME --level read_only\n", c.Org, c.Org)
				return
			}
			t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
			fmt.Fprintln(t, "NAME\tSERVICE\tENVIRONMENT\tKEY\tSTATUS\tMAY\tLAST USED\tEXPIRES\tID")
			for _, s := range shown {
				fmt.Fprintf(t, "%s\t%s\t%s\t…%s\t%s\t%s\t%s\t%s\t%s\n", oneLine(s.Name), s.Service, s.Environment, s.PartialKey, s.Status,
					s.permissions(), formatTime(s.LastUsedAt), formatTime(s.ExpiresAt), s.ID)
			}
			t.Flush()
		})
	})
}

// withKey is with, for commands on one key of any organization.
func (e *env) withKey(ctx context.Context, id string, fn func(a *app.App, k apikey.Key) error) error {
	return e.with(ctx, func(a *app.App) error {
		k, err := a.Keys.FindAnywhere(ctx, id)
		if err != nil {
			return withListHint(err, "key list --org SLUG")
		}
		return fn(a, k)
	})
}

type keyRotateCmd struct {
	ID string `arg:"" placeholder:"ID" help:"The key's id; see key list."`
}

func (c *keyRotateCmd) Run(ctx context.Context, e *env) error {
	return e.withKey(ctx, c.ID, func(a *app.App, old apikey.Key) error {
		k, t, err := a.Keys.Rotate(ctx, old.OrganizationID, old.ID)
		if err != nil {
			return err
		}
		return e.printToken(a, k, t, fmt.Sprintf("Key %q (…%s) still works.\nNext, once nothing uses it: kickstand key revoke %s\n", old.Name, old.PartialKey, old.ID))
	})
}

type keyRevokeCmd struct {
	ID  string `arg:"" placeholder:"ID" help:"The key's id; see key list."`
	Yes bool   `help:"Skip the confirmation."`
}

func (c *keyRevokeCmd) Run(ctx context.Context, e *env) error {
	return e.withKey(ctx, c.ID, func(a *app.App, k apikey.Key) error {
		if err := e.confirm(c.Yes, fmt.Sprintf("Revoke key %q (…%s) for good?", k.Name, k.PartialKey)); err != nil {
			return err
		}
		k, err := a.Keys.Revoke(ctx, k.OrganizationID, k.ID)
		if err != nil {
			return err
		}
		return e.print(showKey(a, k), func(w io.Writer) { fmt.Fprintf(w, "Key %q (…%s) no longer works.\n", k.Name, k.PartialKey) })
	})
}

type keyDeleteCmd struct {
	ID  string `arg:"" placeholder:"ID" help:"The key's id; see key list."`
	Yes bool   `help:"Skip the confirmation."`
}

func (c *keyDeleteCmd) Run(ctx context.Context, e *env) error {
	return e.withKey(ctx, c.ID, func(a *app.App, k apikey.Key) error {
		if err := e.confirm(c.Yes, fmt.Sprintf("Delete key %q (…%s) for good?", k.Name, k.PartialKey)); err != nil {
			return err
		}
		if err := a.Keys.Delete(ctx, k.OrganizationID, k.ID); err != nil {
			return err
		}
		record := struct {
			ID      string `json:"id"`
			Deleted bool   `json:"deleted"`
		}{k.ID, true}
		return e.print(record, func(w io.Writer) {
			fmt.Fprintf(w, "Key %q (…%s) is deleted. Its audit entries remain.\n", k.Name, k.PartialKey)
		})
	})
}

// confirm asks the user before an irreversible action; a script must pass --yes.
func (e *env) confirm(yes bool, question string) error {
	if yes || e.JSON {
		return nil
	}
	fmt.Fprint(e.err, question, " [y/N] ")
	answer, err := bufio.NewReader(e.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the response: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was changed; answer y, or use --yes")
}
