package settings

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/businesshours"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

const slaPath = "/settings/sla"

// slaPage is the body of the SLA page: the policies by priority.
type slaPage struct {
	Rows  []levelRow
	Admin bool
}

type levelRow struct {
	Priority string // in addresses
	Name     string
	target
	Since web.Time
}

// target describes an SLA policy.
type target struct {
	Set        bool
	Response   string // "30 minutes"; empty: no target
	Resolution string
	Hours      []dayHours // nil: 24 hours a day
	Zone       string
	Holidays   []string

	// Due times of a ticket created now.
	ResponseBy, ResolutionBy web.Time
}

// dayHours are the hours of consecutive days: "Monday to Friday", "09:00 to 12:00 and
// ...".
type dayHours struct{ Days, Hours string }

var priorityNames = map[desk.Priority]string{desk.PriorityLow: "Low", desk.PriorityNormal: "Normal", desk.PriorityHigh: "High", desk.PriorityUrgent: "Urgent"}

func (p *pages) sla(w http.ResponseWriter, r *web.Request) error {
	list, err := p.Desk.SLAPolicies(r.Context(), r.OrganizationID)
	if err != nil {
		return err
	}
	body := slaPage{Admin: r.Admin()}
	for _, priority := range slices.Backward(desk.Priorities[:]) {
		row := levelRow{Priority: string(priority), Name: priorityNames[priority]}
		for _, policy := range list {
			if policy.Priority == priority {
				row.target, row.Since = newTarget(r, policy), r.Time(policy.UpdatedAt)
			}
		}
		body.Rows = append(body.Rows, row)
	}
	return p.Render(w, r, "sla", page(r, slaPath, "Service levels", body))
}

// newTarget describes a policy.
func newTarget(r *web.Request, policy desk.SLAPolicy) target {
	out := target{Set: true, Response: minutesText(policy.FirstResponseMinutes), Resolution: minutesText(policy.ResolutionMinutes)}
	if h := policy.Hours; h != nil {
		out.Hours, out.Zone, out.Holidays = weekText(h.Weekly), h.TimeZone, h.Holidays
	}
	if calendar, err := policy.Hours.Calendar(); err == nil {
		due := func(minutes int64) web.Time {
			if minutes <= 0 {
				return web.Time{}
			}
			return r.Time(calendar.Add(r.Now, time.Duration(minutes)*time.Minute))
		}
		out.ResponseBy, out.ResolutionBy = due(policy.FirstResponseMinutes), due(policy.ResolutionMinutes)
	}
	return out
}

// minutesText formats a duration: "1 hour 30 minutes".
func minutesText(n int64) string {
	hours, minutes := web.Count(n/60, "%d hour", "%d hours"), web.Count(n%60, "%d minute", "%d minutes")
	switch {
	case n <= 0:
		return ""
	case n < 60:
		return minutes
	case n%60 == 0:
		return hours
	}
	return hours + " " + minutes
}

var dayNames = [...]string{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}

// weekText groups days with the same hours and omits free days.
func weekText(week businesshours.Week) []dayHours {
	hours := func(day int) string {
		var parts []string
		for _, in := range week[businesshours.Days[day]] {
			parts = append(parts, in.From+"–"+in.To)
		}
		return strings.Join(parts, ", ")
	}
	var out []dayHours
	for day := 0; day < 7; {
		last := day
		for last < 6 && hours(last+1) == hours(day) {
			last++
		}
		if text := hours(day); text != "" {
			days := dayNames[day]
			if last > day {
				days += " to " + dayNames[last]
			}
			out = append(out, dayHours{days, text})
		}
		day = last + 1
	}
	return out
}

// policyForm is the form of a priority's policy.
type policyForm struct {
	Name     string
	Exists   bool
	Priority string
	Times    web.Fields
	Round    web.Field // 24 hours a day
	Zone     web.Field
	Week     web.Fields
	Holidays web.Field
	Preview  *target // the policy in the form; nil unless requested
}

// fields returns all fields of the form, for their errors.
func (f *policyForm) fields() web.Fields {
	return slices.Concat(f.Times, web.Fields{f.Round, f.Zone}, f.Week, web.Fields{f.Holidays})
}

// newPolicyForm returns the form with the values of a policy; nil for none.
func newPolicyForm(r *web.Request, priority desk.Priority, policy *desk.SLAPolicy, example *businesshours.Hours) *policyForm {
	f := &policyForm{
		Name: priorityNames[priority], Priority: string(priority), Exists: policy != nil,
		Times: web.Fields{
			{Name: "response", Label: "First response", Type: "text", Optional: true, Placeholder: "30m", Help: "For example 30m, 8h or 1h30m. Empty: no target."},
			{Name: "resolution", Label: "Resolution", Type: "text", Optional: true, Placeholder: "8h", Help: "Time on hold or pending does not count. Empty: no target."},
		},
		Round:    web.Field{Name: "hours", Label: "Only in business hours", Type: "checkbox", Help: "Otherwise targets run 24 hours a day."},
		Zone:     web.Field{Name: "zone", Label: "Time zone", Type: "text", Optional: true, Help: "For example Europe/Berlin."},
		Holidays: web.Field{Name: "holidays", Label: "Holidays", Type: "textarea", Rows: 3, Optional: true, Placeholder: "2026-12-25", Help: "Dates without business hours, one per line."},
	}
	for i, name := range dayNames {
		f.Week = append(f.Week, web.Field{Name: businesshours.Days[i], Label: name, Type: "text", Optional: true, Placeholder: "closed"})
	}
	hours := example
	if policy != nil {
		f.Times[0].Value, f.Times[1].Value = shortMinutes(policy.FirstResponseMinutes), shortMinutes(policy.ResolutionMinutes)
		if policy.Hours != nil {
			f.Round.Value, hours = "on", policy.Hours
		}
	}
	if hours == nil {
		hours = &businesshours.Hours{TimeZone: r.Now.Location().String(), Weekly: businesshours.Week{}}
		for _, day := range businesshours.Days[:5] {
			hours.Weekly[day] = []businesshours.Interval{{From: "09:00", To: "17:00"}}
		}
	}
	f.Zone.Value, f.Holidays.Value = hours.TimeZone, strings.Join(hours.Holidays, "\n")
	for i := range f.Week {
		var parts []string
		for _, in := range hours.Weekly[f.Week[i].Name] {
			parts = append(parts, in.From+"-"+in.To)
		}
		f.Week[i].Value = strings.Join(parts, " ")
	}
	f.Times[0].Focus = true
	return f
}

func shortMinutes(n int64) string {
	switch {
	case n <= 0:
		return ""
	case n < 60:
		return fmt.Sprintf("%dm", n)
	case n%60 == 0:
		return fmt.Sprintf("%dh", n/60)
	}
	return fmt.Sprintf("%dh%dm", n/60, n%60)
}

// fill sets the posted values.
func (f *policyForm) fill(form url.Values) {
	f.Times.Fill(form)
	f.Week.Fill(form)
	for _, one := range []*web.Field{&f.Round, &f.Zone, &f.Holidays} {
		one.Value = form.Get(one.Name)
	}
}

// spanText matches a duration such as "1 h 30 min"; a bare number is in minutes.
var spanText = regexp.MustCompile(`^(?:(\d{1,6})\s*h(?:ours?|rs?)?)?\s*(?:(\d{1,6})\s*(?:m(?:in(?:ute)?s?)?)?)?$`)

// read parses the policy in the form. It marks unreadable fields and then returns false.
func (f *policyForm) read(priority desk.Priority, organizationID string) (desk.SLAPolicy, bool) {
	policy := desk.SLAPolicy{OrganizationID: organizationID, Priority: priority}
	ok := true
	wrong := func(field *web.Field, text string) {
		field.Error, ok = text, false
	}
	for i, minutes := range []*int64{&policy.FirstResponseMinutes, &policy.ResolutionMinutes} {
		field := &f.Times[i]
		typed := strings.ToLower(strings.TrimSpace(field.Value))
		if typed == "" {
			continue
		}
		m := spanText.FindStringSubmatch(typed)
		if m == nil {
			wrong(field, field.Label+" must be a time such as 30m, 8h or 1h30m.")
			continue
		}
		h, _ := strconv.ParseInt("0"+m[1], 10, 64)
		n, _ := strconv.ParseInt("0"+m[2], 10, 64)
		if *minutes = h*60 + n; *minutes == 0 {
			wrong(field, field.Label+" must be at least a minute, or be left empty.")
		}
	}
	if f.Round.Value == "" {
		return policy, ok
	}
	hours := &businesshours.Hours{TimeZone: strings.TrimSpace(f.Zone.Value), Weekly: businesshours.Week{}, Holidays: strings.Fields(strings.ReplaceAll(f.Holidays.Value, ",", " "))}
	for i := range f.Week {
		day := &f.Week[i]
		for span := range strings.FieldsSeq(strings.NewReplacer("–", "-", ",", " ").Replace(day.Value)) {
			from, to, cut := strings.Cut(span, "-")
			if !cut {
				wrong(day, day.Label+" must have hours such as 09:00-12:00 13:00-17:00, or none.")
				break
			}
			hours.Weekly[day.Name] = append(hours.Weekly[day.Name], businesshours.Interval{From: from, To: to})
		}
	}
	policy.Hours = hours
	return policy, ok
}

// answer marks the fields with the issues of err and reports whether it had any.
func (f *policyForm) answer(err error) bool {
	issues := issues(err)
	for _, issue := range issues {
		field := &f.Times[0]
		path := strings.TrimPrefix(issue.Path, "businessHours.")
		day, isDay := strings.CutPrefix(path, "weekly.")
		switch {
		case issue.Path == "resolutionMinutes":
			field = &f.Times[1]
		case isDay && f.Week.Field(day) != nil:
			field = f.Week.Field(day)
		case path == "weekly":
			field = &f.Week[0]
		case path == "timeZone":
			field = &f.Zone
		case strings.HasPrefix(path, "holidays"):
			field = &f.Holidays
		}
		text := field.Label + " " + issue.Message + "."
		switch {
		case path == "weekly":
			text = "Set hours for at least one day."
		case strings.HasPrefix(issue.Message, "or resolutionMinutes"):
			text = "Set at least one target. To have none, delete the service level."
		}
		if field.Error == "" {
			field.Error = text
		}
	}
	return len(issues) > 0
}

func issues(err error) []problem.Issue {
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.Invalid {
		return p.Issues
	}
	return nil
}

// policy returns the priority in the request's path, its policy (nil: none) and the
// business hours of any other policy.
func (p *pages) policy(r *web.Request) (priority desk.Priority, policy *desk.SLAPolicy, example *businesshours.Hours, err error) {
	priority = desk.Priority(r.PathValue("priority"))
	if !slices.Contains(desk.Priorities[:], priority) {
		return "", nil, nil, problem.New(problem.NotFound, "there is no such priority")
	}
	list, err := p.Desk.SLAPolicies(r.Context(), r.OrganizationID)
	for i := range list {
		if list[i].Priority == priority {
			policy = &list[i]
		} else if list[i].Hours != nil {
			example = list[i].Hours
		}
	}
	return priority, policy, example, err
}

func (p *pages) editPolicy(w http.ResponseWriter, r *web.Request) error {
	priority, policy, example, err := p.policy(r)
	if err != nil {
		return err
	}
	return p.showPolicy(w, r, newPolicyForm(r, priority, policy, example), 0)
}

func (p *pages) showPolicy(w http.ResponseWriter, r *web.Request, f *policyForm, status int) error {
	pg := page(r, slaPath, "Service level for priority "+strings.ToLower(f.Name), f)
	pg.Fields, pg.Status = f.fields(), status
	return p.Render(w, r, "policy", pg)
}

// savePolicy saves the policy, or previews it.
func (p *pages) savePolicy(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	priority, before, example, err := p.policy(r)
	if err != nil {
		return err
	}
	f := newPolicyForm(r, priority, before, example)
	f.fill(form)
	policy, ok := f.read(priority, r.OrganizationID)
	if err := problem.Check(policy); ok && err != nil {
		ok = !f.answer(err)
	}
	switch {
	case !ok:
		return p.showPolicy(w, r, f, http.StatusUnprocessableEntity)
	case form.Get("do") == "preview":
		words := newTarget(r, policy)
		f.Preview = &words
		return p.showPolicy(w, r, f, 0)
	}
	if _, err := p.Desk.SetSLAPolicy(r.Context(), policy); err != nil {
		return err
	}
	return p.Redirect(w, slaPath, web.Notice{Text: "Saved. New tickets of priority " + string(priority) + " use these targets; existing tickets keep theirs."})
}

func policyDeletion(priority desk.Priority) web.Confirm {
	return web.Confirm{
		Text:  "New tickets of priority " + string(priority) + " will have no targets. Existing tickets keep theirs.",
		Label: "Delete service level", Cancel: slaPath,
	}
}

func (p *pages) confirmDeleteLevel(w http.ResponseWriter, r *web.Request) error {
	priority, policy, _, err := p.policy(r)
	if err == nil && policy == nil {
		err = problem.New(problem.NotFound, "there is no service level")
	}
	if err != nil {
		return err
	}
	return p.Confirm(w, r, "Delete service level for priority "+string(priority), page(r, slaPath, "", nil), policyDeletion(priority))
}

func (p *pages) deletePolicy(w http.ResponseWriter, r *web.Request) error {
	if _, ok := p.Form(w, r); !ok {
		return nil
	}
	priority, _, _, err := p.policy(r)
	if err != nil {
		return err
	}
	if err := p.Desk.DeleteSLAPolicy(r.Context(), r.OrganizationID, priority); err != nil {
		return err
	}
	return p.Redirect(w, slaPath, web.Notice{Text: "Service level for priority " + string(priority) + " deleted."})
}
