package desk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/businesshours"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// Metric is the measure of an SLA target.
type Metric string

// The metrics.
const (
	FirstResponse Metric = "first_response" // an agent's first public message
	Resolution    Metric = "resolution"     // the ticket is resolved or closed
)

// SLAPolicy has the SLA targets of an organization for one priority.
type SLAPolicy struct {
	OrganizationID       string               `json:"organization_id"`
	Priority             Priority             `json:"priority"`
	FirstResponseMinutes int64                `json:"first_response_minutes"` // 0: no target
	ResolutionMinutes    int64                `json:"resolution_minutes"`     // likewise
	Hours                *businesshours.Hours `json:"hours"`                  // nil: always
	CreatedAt            time.Time            `json:"created_at"`             // of the priority's first policy
	UpdatedAt            time.Time            `json:"updated_at"`

	id       string // of this version
	calendar *businesshours.Calendar
}

// Bounds of a target: a year of business time, and the weeks that a calendar
// iterates over for each new ticket. A year of one minute a week would be due after
// the year 9999, which JSON times cannot express.
const (
	maxMinutes = 365 * 24 * 60
	maxWeeks   = 520
)

// Check implements [problem.Checker].
func (p SLAPolicy) Check(v *problem.Validation) {
	checkPriority(v, p.Priority)
	if p.FirstResponseMinutes == 0 && p.ResolutionMinutes == 0 {
		v.Add("firstResponseMinutes", "or resolutionMinutes must be given")
	}
	targets := [...]struct {
		path    string
		minutes int64
	}{{"firstResponseMinutes", p.FirstResponseMinutes}, {"resolutionMinutes", p.ResolutionMinutes}}
	for _, m := range targets {
		if m.minutes < 0 || m.minutes > maxMinutes {
			v.Add(m.path, "must be from 1 to %d, a year", maxMinutes)
		}
	}
	if p.Hours == nil {
		return
	}
	p.Hours.Check(v, "businessHours")
	for _, m := range targets {
		if week := p.Hours.WeeklyMinutes(); week > 0 && m.minutes > maxWeeks*week {
			v.Add(m.path, "must be at most %d minutes, which are %d weeks of these business hours", maxWeeks*week, maxWeeks)
		}
	}
}

// minutes returns the target of a metric; 0: none.
func (p *SLAPolicy) minutes(m Metric) int64 {
	if m == FirstResponse {
		return p.FirstResponseMinutes
	}
	return p.ResolutionMinutes
}

const selectPolicy = `SELECT id, organization_id, priority, first_response, resolution, hours, created_at, updated_at FROM sla_policies `

func scanPolicy(row db.Row) (SLAPolicy, error) {
	var p SLAPolicy
	err := row.Scan(&p.id, &p.OrganizationID, &p.Priority, &p.FirstResponseMinutes, &p.ResolutionMinutes,
		db.IntoJSON(&p.Hours), db.IntoTime(&p.CreatedAt), db.IntoTime(&p.UpdatedAt))
	return p, err
}

// SetSLAPolicy replaces the policy of p's organization and priority. It applies to
// tickets created, or given the priority, from now on; running clocks keep their
// policy. It ignores the times of p. Error: Invalid.
func (s *Service) SetSLAPolicy(ctx context.Context, p SLAPolicy) (SLAPolicy, error) {
	err := s.db.Write(ctx, func(tx *db.Tx) (err error) {
		p, err = s.SetSLAPolicyTx(ctx, tx, p)
		return err
	})
	return p, err
}

// SetSLAPolicyTx is [Service.SetSLAPolicy] in the caller's transaction.
func (s *Service) SetSLAPolicyTx(ctx context.Context, tx *db.Tx, p SLAPolicy) (SLAPolicy, error) {
	if err := problem.Check(p); err != nil {
		return SLAPolicy{}, err
	}
	var hours any
	if p.Hours != nil {
		p.Hours = new(p.Hours.Normalized())
		hours = db.JSON(p.Hours)
	}
	p.id, p.CreatedAt, p.UpdatedAt = newID(), tx.Now, tx.Now
	before, err := replacePolicy(ctx, tx, p.OrganizationID, p.Priority)
	if err == nil {
		p.CreatedAt = before.CreatedAt
	} else if !errors.Is(err, db.ErrNoRows) {
		return SLAPolicy{}, err
	}
	if err := tx.Queue(ctx, `INSERT INTO sla_policies (id, organization_id, priority, first_response, resolution, hours, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`, p.id, p.OrganizationID, string(p.Priority), p.FirstResponseMinutes, p.ResolutionMinutes,
		hours, p.CreatedAt.UnixMicro(), p.UpdatedAt.UnixMicro()); err != nil {
		return SLAPolicy{}, fmt.Errorf("write SLA policy: %w", err)
	}
	return p, s.recordPolicyTx(ctx, tx, AuditSLASet, p.OrganizationID, p.Priority, before, p)
}

// replacePolicy retires a policy and returns it; [db.ErrNoRows] if there is none.
// The organization's policies are locked until the transaction ends.
func replacePolicy(ctx context.Context, tx *db.Tx, organizationID string, priority Priority) (SLAPolicy, error) {
	if err := tx.Lock(ctx, "sla/"+organizationID); err != nil {
		return SLAPolicy{}, err
	}
	p, err := db.One(ctx, tx, scanPolicy, selectPolicy+"WHERE organization_id = $1 AND priority = $2 AND replaced_at IS NULL",
		organizationID, string(priority))
	if err != nil {
		return SLAPolicy{}, err
	}
	if err := tx.Queue(ctx, "UPDATE sla_policies SET replaced_at = $2 WHERE id = $1", p.id, tx.Now.UnixMicro()); err != nil {
		return SLAPolicy{}, fmt.Errorf("replace SLA policy: %w", err)
	}
	return p, nil
}

// SLAPolicies returns the policies in force, from low to urgent.
func (s *Service) SLAPolicies(ctx context.Context, organizationID string) ([]SLAPolicy, error) {
	list, err := db.All(ctx, s.db, scanPolicy, selectPolicy+"WHERE organization_id = $1 AND replaced_at IS NULL", organizationID)
	slices.SortFunc(list, func(a, b SLAPolicy) int {
		return slices.Index(Priorities[:], a.Priority) - slices.Index(Priorities[:], b.Priority)
	})
	return list, err
}

// FindSLAPolicyTx returns the policy in force of a priority, locked until the
// caller's transaction ends. Error: NotFound.
func (s *Service) FindSLAPolicyTx(ctx context.Context, tx *db.Tx, organizationID string, priority Priority) (SLAPolicy, error) {
	if err := tx.Lock(ctx, "sla/"+organizationID); err != nil {
		return SLAPolicy{}, err
	}
	p, err := db.One(ctx, tx, scanPolicy, selectPolicy+"WHERE organization_id = $1 AND priority = $2 AND replaced_at IS NULL",
		organizationID, string(priority))
	return p, notFound(err, "SLA policy")
}

// DeleteSLAPolicy removes the targets for tickets created, or given the priority,
// from now on. Running clocks go on. Errors: Invalid, NotFound.
func (s *Service) DeleteSLAPolicy(ctx context.Context, organizationID string, priority Priority) error {
	return s.db.Write(ctx, func(tx *db.Tx) error { return s.DeleteSLAPolicyTx(ctx, tx, organizationID, priority) })
}

// DeleteSLAPolicyTx is [Service.DeleteSLAPolicy] in the caller's transaction.
func (s *Service) DeleteSLAPolicyTx(ctx context.Context, tx *db.Tx, organizationID string, priority Priority) error {
	var v problem.Validation
	checkPriority(&v, priority)
	if err := v.Err(); err != nil {
		return err
	}
	before, err := replacePolicy(ctx, tx, organizationID, priority)
	if err != nil {
		return notFound(err, "SLA policy")
	}
	return s.recordPolicyTx(ctx, tx, AuditSLADeleted, organizationID, priority, before, SLAPolicy{})
}

// maxPolicies bounds the cached versions of policies.
const maxPolicies = 1000

// slaPolicy returns a version of a policy with its calendar, cached, since versions are
// immutable. The caller must not change it.
func (s *Service) slaPolicy(ctx context.Context, q db.Querier, id string) (*SLAPolicy, error) {
	return s.policies.Load(id, func() (*SLAPolicy, error) { return loadPolicy(ctx, q, id) })
}

func loadPolicy(ctx context.Context, q db.Querier, id string) (*SLAPolicy, error) {
	loaded, err := db.One(ctx, q, scanPolicy, selectPolicy+"WHERE id = $1", id)
	if err == nil {
		loaded.calendar, err = loaded.Hours.Calendar()
	}
	if problem.Of(err) == problem.Invalid {
		// The zone was known to another machine or an earlier version. No message may be
		// refused for it.
		hours := *loaded.Hours
		hours.TimeZone = "UTC"
		loaded.calendar, err = hours.Calendar()
	}
	if err != nil {
		return nil, fmt.Errorf("load SLA policy %s: %w", id, err)
	}
	return &loaded, nil
}

// SLAState is the state of an SLA target.
type SLAState string

// The states.
const (
	SLARunning  SLAState = "running"
	SLAPaused   SLAState = "paused" // the clock stands still
	SLAMet      SLAState = "met"
	SLABreached SLAState = "breached" // final, also if met late
)

// SLA is an SLA target of a ticket.
type SLA struct {
	Metric        Metric    `json:"metric"`
	State         SLAState  `json:"state"`
	DueAt         time.Time `json:"due_at,omitzero"` // unknown while paused
	TargetMinutes int64     `json:"target_minutes"`
	WarnedAt      time.Time `json:"warned_at,omitzero"`
	BreachedAt    time.Time `json:"breached_at,omitzero"`
	MetAt         time.Time `json:"met_at,omitzero"`
}

// clock is an [SLA] as stored with its ticket. Times are microseconds; 0 is none.
// Its JSON is the stored form: fields are only ever added.
type clock struct {
	Metric     Metric `json:"metric"`
	PolicyID   string `json:"policy"`
	Minutes    int64  `json:"minutes"`            // the target; 0: the present priority has none
	Used       int64  `json:"used,omitempty"`     // business time that passed before Since
	Since      int64  `json:"since,omitempty"`    // start of the present run; 0: stopped
	WarnAt     int64  `json:"warn,omitempty"`     // 80 % of the target, while it runs
	DueAt      int64  `json:"due,omitempty"`      // 100 % of the target; also after the end
	WarnedAt   int64  `json:"warned,omitempty"`   // when the warning was emitted
	BreachedAt int64  `json:"breached,omitempty"` // when the breach was
	MetAt      int64  `json:"met,omitempty"`
	Job        string `json:"job,omitempty"` // the queue's job for the next moment
	JobAt      int64  `json:"job_at,omitempty"`
}

// state returns the state of the target; empty: there is none at present.
func (c *clock) state() SLAState {
	switch {
	case c.BreachedAt != 0:
		return SLABreached
	case c.Minutes == 0:
		return ""
	case c.MetAt != 0:
		return SLAMet
	case c.Since != 0:
		return SLARunning
	}
	return SLAPaused
}

// start runs the clock from a time on.
func (c *clock) start(at int64, p *SLAPolicy) {
	from, target := time.UnixMicro(at), time.Duration(c.Minutes)*time.Minute
	used := time.Duration(c.Used) * time.Microsecond
	c.Since = at
	c.WarnAt = p.calendar.Add(from, target*4/5-used).UnixMicro()
	c.DueAt = p.calendar.Add(from, target-used).UnixMicro()
}

// stop pauses the clock at a time.
func (c *clock) stop(at int64, p *SLAPolicy) {
	c.Used += p.calendar.Between(time.UnixMicro(c.Since), time.UnixMicro(at)).Microseconds()
	c.Since, c.WarnAt, c.DueAt = 0, 0, 0
}

// nextMoment returns the time of the next warning or breach; 0: none.
func (c *clock) nextMoment() int64 {
	switch {
	case c.Since == 0:
		return 0
	case c.WarnedAt == 0:
		return c.WarnAt
	}
	return c.DueAt
}

// isDone reports whether t has reached the clock's goal.
func (c *clock) isDone(t *Ticket) bool {
	if c.Metric == FirstResponse {
		return !t.FirstRespondedAt.IsZero()
	}
	return t.Status == StatusResolved || t.Status == StatusClosed
}

// runsIn reports whether the clock runs in a ticket of that status, until it is
// done.
func (c *clock) runsIn(status Status) bool {
	if c.Metric == FirstResponse {
		return status != StatusResolved && status != StatusClosed
	}
	return status == StatusOpen
}

// sync updates the clock for ticket t, which got its present state at a time. p is
// the clock's policy.
func (c *clock) sync(t *Ticket, at int64, p *SLAPolicy) {
	over := c.isDone(t)
	if run := !over && c.BreachedAt == 0 && c.Minutes > 0 && c.runsIn(t.Status); run && c.Since == 0 {
		c.start(at, p)
	} else if !run && c.Since != 0 {
		due := c.DueAt
		c.stop(at, p)
		if over {
			c.DueAt = due // the time it was met by
		}
	}
	switch {
	case !over:
		c.MetAt = 0 // reopened
		if c.Since == 0 && c.BreachedAt == 0 {
			c.DueAt = 0 // may be left from an earlier end
		}
	case c.MetAt == 0:
		c.MetAt = at
	}
}

// startClocks starts the clocks of a new ticket by a version of a policy. spoken
// reports that an agent started the ticket, so that there is no first response to
// wait for.
func (s *Service) startClocks(ctx context.Context, tx *db.Tx, t *Ticket, policyID string, spoken bool) error {
	p, err := s.slaPolicy(ctx, tx, policyID)
	if err != nil {
		return err
	}
	for _, m := range []Metric{FirstResponse, Resolution} {
		if minutes := p.minutes(m); minutes > 0 && (m != FirstResponse || !spoken) {
			c := clock{Metric: m, PolicyID: p.id, Minutes: minutes}
			c.sync(t, t.CreatedAt.UnixMicro(), p)
			t.clocks = append(t.clocks, c)
		}
	}
	t.DueAt = t.due()
	return s.schedule(ctx, tx, t)
}

// changePriority applies the policy of t's new priority to the clocks. Used time
// stays used; ended and breached clocks stay as they are. The clocks are stopped
// until the next sync.
func (s *Service) changePriority(ctx context.Context, tx *db.Tx, t *Ticket) error {
	var next *SLAPolicy
	var id string
	switch err := tx.QueryRow(ctx, "SELECT id FROM sla_policies WHERE organization_id = $1 AND priority = $2 AND replaced_at IS NULL",
		t.OrganizationID, string(t.Priority)).Scan(&id); {
	case err == nil:
		if next, err = s.slaPolicy(ctx, tx, id); err != nil {
			return err
		}
	case !errors.Is(err, db.ErrNoRows):
		return fmt.Errorf("find SLA policy: %w", err)
	case len(t.clocks) == 0:
		return nil // the usual case without targets
	default:
		next = new(SLAPolicy)
	}
	now := tx.Now.UnixMicro()
	for _, m := range []Metric{FirstResponse, Resolution} {
		i := slices.IndexFunc(t.clocks, func(c clock) bool { return c.Metric == m })
		if i < 0 {
			if next.minutes(m) == 0 {
				continue
			}
			if m == FirstResponse {
				if spoken, err := hasAgentMessage(ctx, tx, t); err != nil {
					return err
				} else if spoken {
					continue
				}
			}
			i = len(t.clocks)
			t.clocks = append(t.clocks, clock{Metric: m})
		}
		c := &t.clocks[i]
		if c.BreachedAt != 0 || m == FirstResponse && c.MetAt != 0 {
			continue
		}
		if c.Since != 0 {
			p, err := s.slaPolicy(ctx, tx, c.PolicyID)
			if err != nil {
				return err
			}
			c.stop(now, p)
		}
		c.DueAt = 0
		if c.Minutes = next.minutes(m); c.Minutes > 0 {
			c.PolicyID = next.id
		}
	}
	return nil
}

// hasAgentMessage reports whether the ticket has a public message of an agent.
func hasAgentMessage(ctx context.Context, tx *db.Tx, t *Ticket) (bool, error) {
	if !t.FirstRespondedAt.IsZero() {
		return true, nil
	}
	var n int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM messages WHERE ticket_id = $1 AND author_type = $2 AND kind = $3",
		t.ID, AuthorAgent, KindReply).Scan(&n); err != nil {
		return false, fmt.Errorf("look for an agent's message: %w", err)
	}
	return n > 0, nil
}

// syncClocks updates and writes the clocks of a ticket that got its present state
// at a time; newPriority applies another policy. The ticket is locked. Each change
// of status, priority or first response calls catchUp before and syncClocks after.
func (s *Service) syncClocks(ctx context.Context, tx *db.Tx, t *Ticket, at time.Time, newPriority bool) error {
	before := slices.Clone(t.clocks)
	if newPriority {
		if err := s.changePriority(ctx, tx, t); err != nil {
			return err
		}
	}
	for i := range t.clocks {
		c := &t.clocks[i]
		p, err := s.slaPolicy(ctx, tx, c.PolicyID)
		if err != nil {
			return err
		}
		c.sync(t, at.UnixMicro(), p)
	}
	if slices.Equal(before, t.clocks) && t.due().Equal(t.DueAt) {
		return nil
	}
	return s.writeClocks(ctx, tx, t)
}

// writeClocks writes the clocks of a ticket and schedules their jobs.
func (s *Service) writeClocks(ctx context.Context, tx *db.Tx, t *Ticket) error {
	if err := s.schedule(ctx, tx, t); err != nil {
		return err
	}
	t.DueAt = t.due()
	if err := tx.Queue(ctx, "UPDATE tickets SET sla = $2, due_at = $3 WHERE id = $1", t.ID, t.clocksJSON(), db.Time(t.DueAt)); err != nil {
		return fmt.Errorf("write SLA clocks: %w", err)
	}
	return nil
}

// due computes DueAt from the clocks and the status.
func (t *Ticket) due() time.Time {
	var due int64
	if t.Status == StatusResolved || t.Status == StatusClosed {
		return time.Time{}
	}
	for i := range t.clocks {
		c := &t.clocks[i]
		if c.DueAt != 0 && c.MetAt == 0 && (c.Since != 0 || c.BreachedAt != 0) && (due == 0 || c.DueAt < due) {
			due = c.DueAt
		}
	}
	return microTime(due)
}

// clocksJSON is the stored form of t's clocks.
func (t *Ticket) clocksJSON() any {
	if len(t.clocks) == 0 {
		return nil
	}
	return db.JSON(t.clocks)
}

// showClocks sets t.SLA from the clocks.
func (t *Ticket) showClocks() {
	t.SLA = make([]SLA, 0, len(t.clocks))
	for i := range t.clocks {
		if c := &t.clocks[i]; c.state() != "" {
			t.SLA = append(t.SLA, SLA{
				Metric: c.Metric, State: c.state(), DueAt: microTime(c.DueAt), TargetMinutes: c.Minutes,
				WarnedAt: microTime(c.WarnedAt), BreachedAt: microTime(c.BreachedAt), MetAt: microTime(c.MetAt),
			})
		}
	}
}

// microTime returns a stored time; 0 is the zero time.
func microTime(t int64) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMicro(t).UTC()
}

// slaKind is the queue's kind of jobs for the next moment of a clock.
const slaKind = "sla"

// slaJob is the payload of such a job. The ticket has the moment.
type slaJob struct {
	OrganizationID string `json:"organization_id"`
	TicketID       string `json:"ticket_id"`
}

// schedule replaces the jobs of clocks with a changed next moment.
func (s *Service) schedule(ctx context.Context, tx *db.Tx, t *Ticket) error {
	var stale []string
	var fresh []queue.New
	for i := range t.clocks {
		c := &t.clocks[i]
		next := c.nextMoment()
		if next == c.JobAt {
			continue
		}
		if c.Job != "" {
			stale = append(stale, c.Job)
		}
		c.Job, c.JobAt = "", next
		if next != 0 {
			payload, err := json.Marshal(slaJob{t.OrganizationID, t.ID})
			if err != nil {
				return err
			}
			c.Job = queue.NewID()
			fresh = append(fresh, queue.New{ID: c.Job, Kind: slaKind, Lane: t.ID, Tenant: t.OrganizationID, Payload: payload, RunAt: time.UnixMicro(next)})
		}
	}
	t.showClocks()
	if len(stale) > 0 {
		if err := s.queue.DeleteTx(ctx, tx, stale...); err != nil {
			return fmt.Errorf("delete SLA timers: %w", err)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	return s.queue.EnqueueTx(ctx, tx, fresh...)
}

// stopClocks deletes the jobs of a deleted ticket.
func (s *Service) stopClocks(ctx context.Context, tx *db.Tx, t *Ticket) error {
	var jobs []string
	for _, c := range t.clocks {
		if c.Job != "" {
			jobs = append(jobs, c.Job)
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	return s.queue.DeleteTx(ctx, tx, jobs...)
}

// runSLAJob runs the job of a clock.
func (s *Service) runSLAJob(ctx context.Context, j *queue.Job) error {
	var m slaJob
	if err := json.Unmarshal(j.Payload, &m); err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		t, err := lockTicket(ctx, tx, m.OrganizationID, m.TicketID)
		switch {
		case errors.Is(err, db.ErrNoRows):
			return j.FinishTx(ctx, tx)
		case err != nil:
			return fmt.Errorf("load ticket: %w", err)
		}
		i := slices.IndexFunc(t.clocks, func(c clock) bool { return c.Job == j.ID })
		if i < 0 {
			return j.FinishTx(ctx, tx) // it was replaced
		}
		t.clocks[i].Job, t.clocks[i].JobAt = "", 0 // this job ends here
		if _, err := s.detectBreaches(ctx, tx, &t, tx.Now); err != nil {
			return err
		}
		if err := s.writeClocks(ctx, tx, &t); err != nil {
			return err
		}
		return j.FinishTx(ctx, tx)
	})
}

// recordBreaches is detectBreaches for a ticket that is about to change, if the job of a
// clock is late: the change must not undo a breach. It writes the clocks. The ticket is
// locked.
func (s *Service) recordBreaches(ctx context.Context, tx *db.Tx, t *Ticket, at time.Time) error {
	some, err := s.detectBreaches(ctx, tx, t, at)
	if err != nil || !some {
		return err
	}
	return s.writeClocks(ctx, tx, t)
}

// detectBreaches emits sla.warning and sla.breached for the warnings and breaches due by
// a time, once each, in order, and marks them in the clocks, which the caller writes. It
// reports whether there were any.
func (s *Service) detectBreaches(ctx context.Context, tx *db.Tx, t *Ticket, at time.Time) (bool, error) {
	type due struct {
		at   int64
		name event.Name
		sla  event.SLA
	}
	var list []due
	for i := range t.clocks {
		c := &t.clocks[i]
		if c.Since == 0 {
			continue
		}
		sla := event.SLA{Metric: string(c.Metric), DueAt: microTime(c.DueAt)}
		if c.WarnedAt == 0 && c.WarnAt <= at.UnixMicro() {
			c.WarnedAt = tx.Now.UnixMicro()
			list = append(list, due{c.WarnAt, event.SLAWarning, sla})
		}
		if c.DueAt <= at.UnixMicro() {
			c.BreachedAt = tx.Now.UnixMicro()
			c.Since, c.WarnAt = 0, 0
			list = append(list, due{c.DueAt, event.SLABreached, sla})
		}
	}
	if len(list) == 0 {
		return false, nil
	}
	slices.SortStableFunc(list, func(a, b due) int { return cmp.Compare(a.at, b.at) })
	snapshot, err := s.ticketSnapshot(ctx, tx, t)
	if err != nil {
		return false, err
	}
	events := make([]event.Event, len(list))
	for i, d := range list {
		events[i] = event.Event{OrganizationID: t.OrganizationID, Name: d.name, Data: event.Data{Ticket: snapshot, SLA: &d.sla}}
	}
	if err := s.events.EmitTx(ctx, tx, events...); err != nil {
		return false, err
	}
	for i := range events {
		if events[i].Name != event.SLABreached {
			if err := s.notice(ctx, tx, t.OrganizationID, newNotice{t.ID, NoticeSLA, "", "", nil}, t.AssigneeID); err != nil {
				return false, err
			}
			continue
		}
		breach := map[string]event.Change{list[i].sla.Metric: {From: string(SLARunning), To: string(SLABreached)}}
		if err := recordChange(ctx, tx, t, changeOrigin{audit.System, "", SurfaceSystem}, ChangeSLABreached, breach); err != nil {
			return false, err
		}
		if err := tx.Queue(ctx, "INSERT INTO sla_breaches (event_id, organization_id, ticket_id, breached_at) VALUES ($1, $2, $3, $4)",
			events[i].ID, t.OrganizationID, t.ID, events[i].At.UnixMicro()); err != nil {
			return false, fmt.Errorf("record SLA breach: %w", err)
		}
	}
	return true, nil
}
