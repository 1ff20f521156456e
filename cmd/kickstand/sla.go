package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/businesshours"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

type slaCmd struct {
	Set    slaSetCmd    `cmd:"" help:"Set the SLA targets for tickets of a priority, replacing earlier ones."`
	List   slaListCmd   `cmd:"" help:"List an organization's SLA targets."`
	Delete slaDeleteCmd `cmd:"" help:"Delete the SLA targets for tickets of a priority."`
}

type slaSetCmd struct {
	Org           string        `required:"" placeholder:"SLUG" help:"Organization."`
	Priority      string        `required:"" enum:"low,normal,high,urgent" help:"Priority of the tickets: low, normal, high or urgent. New tickets are normal."`
	FirstResponse time.Duration `placeholder:"TIME" help:"Target until an agent's first reply, such as 30m or 2h."`
	Resolution    time.Duration `placeholder:"TIME" help:"Target until the ticket is resolved, such as 8h or 72h."`
	TimeZone      string        `placeholder:"ZONE" help:"Count business hours only, in this time zone, such as Europe/Berlin."`
	Hours         string        `placeholder:"HOURS" help:"Business hours, such as \"mon-fri 09:00-12:00 13:00-17:00, sat 10:00-14:00\"."`
	Holidays      []string      `placeholder:"DATE,…" help:"Days without business hours, such as 2026-12-25."`
}

func (*slaSetCmd) Help() string {
	return `New tickets, and tickets that change to the priority, emit sla.warning at 80 % of a target and sla.breached at 100 %.
Running targets do not change.

Example: 30 minutes to the first reply and 8 hours to the resolution, in business hours:

  kickstand sla set --org acme --priority normal --first-response 30m --resolution 8h \
    --time-zone Europe/Berlin --hours "mon-fri 09:00-17:00" --holidays 2026-12-25,2026-12-26`
}

// policy returns the policy of the flags.
func (c *slaSetCmd) policy() (desk.SLAPolicy, error) {
	p := desk.SLAPolicy{Priority: desk.Priority(c.Priority)}
	if c.FirstResponse == 0 && c.Resolution == 0 {
		return p, usageError{fmt.Errorf("no target: give --first-response, --resolution or both, such as --first-response=30m")}
	}
	for _, t := range []struct {
		flag    string
		time    time.Duration
		minutes *int64
	}{{"first-response", c.FirstResponse, &p.FirstResponseMinutes}, {"resolution", c.Resolution, &p.ResolutionMinutes}} {
		if t.time < 0 || t.time > 365*24*time.Hour || t.time%time.Minute != 0 {
			return p, usageError{fmt.Errorf("--%s=%v must be whole minutes, from 1m to 8760h (a year)", t.flag, t.time)}
		}
		*t.minutes = int64(t.time / time.Minute)
	}
	if c.TimeZone == "" && c.Hours == "" && len(c.Holidays) == 0 {
		return p, nil
	}
	if c.TimeZone == "" || c.Hours == "" {
		return p, usageError{fmt.Errorf("business hours need both --time-zone and --hours, such as --time-zone=Europe/Berlin --hours=\"mon-fri 09:00-17:00\"")}
	}
	week, err := businesshours.ParseWeek(c.Hours)
	if err != nil {
		return p, usageError{fmt.Errorf("--hours: %w", err)}
	}
	p.Hours = &businesshours.Hours{TimeZone: c.TimeZone, Weekly: week, Holidays: c.Holidays}
	return p, c.flagged(problem.Check(p))
}

// flagged maps the issues of a policy to the flags.
func (c *slaSetCmd) flagged(err error) error {
	wrong, ok := errors.AsType[*problem.Error](err)
	if !ok {
		return err
	}
	lines := make([]string, len(wrong.Issues))
	for i, issue := range wrong.Issues {
		flag := issue.Path
		holiday, isHoliday := strings.CutPrefix(flag, "businessHours.holidays.")
		n, _ := strconv.Atoi(holiday)
		switch {
		case isHoliday && n < len(c.Holidays):
			flag = "--holidays=" + c.Holidays[n]
		case flag == "businessHours.holidays":
			flag = "--holidays"
		case flag == "businessHours.timeZone":
			flag = "--time-zone=" + c.TimeZone
		case strings.HasPrefix(flag, "businessHours.weekly"):
			flag = "--hours: " + strings.TrimPrefix(strings.TrimPrefix(flag, "businessHours.weekly"), ".")
		case flag == "firstResponseMinutes":
			flag = "--first-response"
		case flag == "resolutionMinutes":
			flag = "--resolution"
		}
		lines[i] = flag + " " + issue.Message
	}
	return usageError{errors.New(strings.Join(lines, "\n"))}
}

func (c *slaSetCmd) Run(ctx context.Context, e *env) error {
	p, err := c.policy()
	if err != nil {
		return err
	}
	return e.withOrganization(ctx, c.Org, func(a *app.App, organizationID string) error {
		p.OrganizationID = organizationID
		set, err := a.Desk.SetSLAPolicy(ctx, p)
		if err != nil {
			return err
		}
		return e.print(set, func(w io.Writer) {
			fmt.Fprintf(w, "New %s tickets of %s: first response %s, resolution %s, %s.\n",
				set.Priority, c.Org, targetText(set.FirstResponseMinutes), targetText(set.ResolutionMinutes), hoursText(set.Hours))
		})
	})
}

// targetText formats an SLA target.
func targetText(minutes int64) string {
	if minutes == 0 {
		return "no target"
	}
	text := strings.TrimSuffix((time.Duration(minutes) * time.Minute).String(), "0s")
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return "within " + text
}

// hoursText formats the hours in which a target runs.
func hoursText(h *businesshours.Hours) string {
	if h == nil {
		return "day and night"
	}
	text := h.Weekly.String() + " " + h.TimeZone
	switch n := len(h.Holidays); n {
	case 0:
	case 1:
		text += " except 1 holiday"
	default:
		text += fmt.Sprintf(" except %d holidays", n)
	}
	return text
}

type slaListCmd struct {
	Org string `required:"" placeholder:"SLUG" help:"Organization."`
}

func (c *slaListCmd) Run(ctx context.Context, e *env) error {
	return e.withOrganization(ctx, c.Org, func(a *app.App, organizationID string) error {
		list, err := a.Desk.SLAPolicies(ctx, organizationID)
		if err != nil {
			return err
		}
		if list == nil {
			list = []desk.SLAPolicy{}
		}
		return e.print(list, func(w io.Writer) {
			if len(list) == 0 {
				fmt.Fprintf(w, "%s has no SLA targets.\nNext: kickstand sla set --org %s --priority normal --first-response 30m\n", c.Org, c.Org)
				return
			}
			t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
			fmt.Fprintln(t, "PRIORITY\tFIRST RESPONSE\tRESOLUTION\tCOUNTED")
			for _, p := range list {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", p.Priority, targetText(p.FirstResponseMinutes), targetText(p.ResolutionMinutes), hoursText(p.Hours))
			}
			t.Flush()
		})
	})
}

type slaDeleteCmd struct {
	Org      string `required:"" placeholder:"SLUG" help:"Organization."`
	Priority string `required:"" enum:"low,normal,high,urgent" help:"Priority of the tickets: low, normal, high or urgent."`
}

func (c *slaDeleteCmd) Run(ctx context.Context, e *env) error {
	return e.withOrganization(ctx, c.Org, func(a *app.App, organizationID string) error {
		if err := a.Desk.DeleteSLAPolicy(ctx, organizationID, desk.Priority(c.Priority)); err != nil {
			return withListHint(err, "sla list --org "+c.Org)
		}
		record := struct {
			Priority string `json:"priority"`
			Deleted  bool   `json:"deleted"`
		}{c.Priority, true}
		return e.print(record, func(w io.Writer) {
			fmt.Fprintf(w, "New %s tickets of %s have no SLA targets.\n", c.Priority, c.Org)
		})
	})
}
