// Package quota limits organizations: stored bytes, messages per day, webhooks.
//
// A limit comes from the organization's plan or a default for all plans ([Plans]), or the operator
// sets it for one organization ([Service.SetLimits]). By default there is none, and without a limit
// nothing is counted or written.
//
// # Counting
//
// Use is one row per organization. Changes of a transaction are added up and written last, by one
// statement that returns the new use. So the row is locked only for the commit, and of two
// transactions that reach a limit at the same time the second one sees the first.
//
// [Storage] is the sum of the files in the blob store: attachments, loaded pictures of mails, and
// raw requests that are too large for their row, and of the files in other databases
// ([Config].Elsewhere), which are not part of the row of use. Equal files count each time, although
// the store has them once. The row of a file stores whether it is counted. So files that were stored
// before the organization had a limit, or by a previous version of the program, can be counted later,
// in steps and while others write, and deleting a file gives back exactly its counted size.
//
// [Messages] are the messages to and from customers since midnight UTC, without notes. Deleting one
// gives nothing back.
//
// [Webhooks] are counted by their package, which excludes simultaneous creations itself.
//
// # Refusing
//
// Only what members and API keys create is refused ([Enforced]). What customers send is accepted,
// stored and counted beyond any quota ([Counted]), and so are automatic replies to it: a sender must
// not lose a message because of the recipient's plan.
//
// Admins get a mail when 80 % and all of a quota is used. The latter is in the audit log, too.
package quota

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/cache"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// Quota names what is limited.
type Quota string

// The quotas.
const (
	Storage  Quota = "storage"  // bytes of files
	Messages Quota = "messages" // per day (UTC)
	Webhooks Quota = "webhooks"
)

// All lists the quotas.
var All = [...]Quota{Storage, Messages, Webhooks}

// Unlimited is the limit of a quota that has none.
const Unlimited int64 = -1

// Limits are limits by quota, or [Unlimited]. Missing ones are decided elsewhere.
type Limits map[Quota]int64

// Plans are the limits of each plan. The plan with an empty name has the defaults of all plans.
type Plans map[string]Limits

// Source is where a limit comes from.
type Source string

// The sources. Without any, a quota is unlimited.
const (
	ByOperator Source = "organization" // set for this organization
	ByPlan     Source = "plan"
	ByDefault  Source = "default" // for all plans
)

// Limit is a limit with its source.
type Limit struct {
	Max    int64 // or Unlimited
	Source Source
}

// resolve returns the limit of every quota for an organization's plan, with the limits that the
// operator set for the organization.
func (p Plans) resolve(plan string, own Limits) map[Quota]Limit {
	limits := make(map[Quota]Limit, len(All))
	for _, q := range All {
		limits[q] = Limit{Max: Unlimited}
		for _, of := range []struct {
			limits Limits
			source Source
		}{{own, ByOperator}, {p[plan], ByPlan}, {p[""], ByDefault}} {
			if n, ok := of.limits[q]; ok {
				limits[q] = Limit{n, of.source}
				break
			}
		}
	}
	return limits
}

const (
	// limitsTTL is the time after which a changed limit or plan is in force in all processes. A
	// refusal reads the limit again.
	limitsTTL = 5 * time.Second
	maxCached = 10_000 // organizations
)

// Codes of refusals.
const (
	CodeExceeded      = "quota_exceeded"       // of storage or webhooks
	CodeDailyExceeded = "daily_quota_exceeded" // of messages; the error has a RetryAfter
)

// Config configures a [Service]. DB, Queue, Plan, CountWebhooks, Admins and Mailer are required.
type Config struct {
	DB    *db.DB
	Queue *queue.Queue
	Plans Plans
	// Plan returns the plan of an organization.
	Plan func(ctx context.Context, q db.Querier, organizationID string) (string, error)
	// CountWebhooks returns the number of an organization's webhooks.
	CountWebhooks func(ctx context.Context, q db.Querier, organizationID string) (int64, error)
	// Files are queries of all counted files, with the columns organization_id and size. The
	// packages that store files define them.
	Files []string
	// Elsewhere returns the bytes of an organization's files in other databases, which count as
	// [Storage], without those in except (nil: with all). It must not need the caller's transaction to
	// end. nil: none.
	Elsewhere func(ctx context.Context, organizationID string, except *db.DB) (int64, error)
	Admins    mail.Admins
	Mailer    mail.Enqueuer
	// BaseURL is the URL of the dashboard, for links in mails.
	BaseURL string
	Audit   *audit.Log // nil records nothing
	// Observe is called with each refusal ("refused") and each time that a quota is used up
	// ("reached"). nil: not called.
	Observe func(q Quota, outcome string)
	Logger  *slog.Logger // nil discards
}

// Service counts use and enforces limits. It is safe for concurrent use. A nil Service has no
// limits.
type Service struct {
	c      Config
	log    *slog.Logger
	limits *cache.Cache[string, map[Quota]Limit] // by organization
}

// Open returns a service, registered as the queue's worker of its notices.
func Open(c Config) *Service {
	s := &Service{c: c, log: c.Logger, limits: cache.New[string, map[Quota]Limit](maxCached, limitsTTL)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.c.Observe == nil {
		s.c.Observe = func(Quota, string) {}
	}
	if s.c.Elsewhere == nil {
		s.c.Elsewhere = func(context.Context, string, *db.DB) (int64, error) { return 0, nil }
	}
	c.Queue.Handle(queue.Worker{Kind: noticeKind, Run: s.sendNotice})
	return s
}

// row is the stored state of an organization. The zero value is that of one without a row.
type row struct {
	use
	day int64 // of messages
	own Limits
}

// use is a change of an organization's use, or the use itself.
type use struct{ storage, messages int64 }

func (s *Service) load(ctx context.Context, q db.Querier, organizationID string) (row, error) {
	var own [len(All)]*int64
	r, err := db.One(ctx, q, func(scan db.Row) (r row, err error) {
		err = scan.Scan(&r.storage, &r.messages, &r.day, &own[0], &own[1], &own[2])
		return r, err
	}, "SELECT storage, messages, day, max_storage, max_messages, max_webhooks FROM quotas WHERE organization_id = $1", organizationID)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return r, fmt.Errorf("load quotas: %w", err)
	}
	r.own = make(Limits)
	for i, q := range All {
		if own[i] != nil {
			r.own[q] = *own[i]
		}
	}
	return r, nil
}

// readLimits reads an organization's limits.
func (s *Service) readLimits(ctx context.Context, q db.Querier, organizationID string) (map[Quota]Limit, error) {
	r, err := s.load(ctx, q, organizationID)
	if err != nil {
		return nil, err
	}
	return s.resolve(ctx, q, organizationID, r.own)
}

func (s *Service) resolve(ctx context.Context, q db.Querier, organizationID string, own Limits) (map[Quota]Limit, error) {
	plan := ""
	if len(s.c.Plans) > 0 {
		var err error
		if plan, err = s.c.Plan(ctx, q, organizationID); err != nil {
			return nil, fmt.Errorf("find the plan: %w", err)
		}
	}
	return s.c.Plans.resolve(plan, own), nil
}

// limitsOf returns an organization's limits, which may be some seconds old.
func (s *Service) limitsOf(ctx context.Context, q db.Querier, organizationID string) (map[Quota]Limit, error) {
	return s.limits.Load(organizationID, func() (map[Quota]Limit, error) { return s.readLimits(ctx, q, organizationID) })
}

// Counts reports whether a quota of an organization has a limit, so that its use is counted. The
// organization may be empty: nothing of none is counted.
func (s *Service) Counts(ctx context.Context, q db.Querier, organizationID string, of Quota) (bool, error) {
	if s == nil || organizationID == "" {
		return false, nil
	}
	limits, err := s.limitsOf(ctx, q, organizationID)
	return err == nil && limits[of].Max != Unlimited, err
}

// Usage is the use of a quota.
type Usage struct {
	Quota Quota
	Limit
	Used int64 // of Storage and Messages only while there is a limit
}

// Counted reports whether Used is known.
func (u Usage) Counted() bool { return u.Max != Unlimited || u.Quota == Webhooks }

// Reached reports whether all of the quota is used.
func (u Usage) Reached() bool { return u.Max != Unlimited && u.Used >= u.Max }

// Usage returns the use of every quota of an organization.
func (s *Service) Usage(ctx context.Context, organizationID string) ([]Usage, error) {
	if s == nil {
		return nil, nil
	}
	r, err := s.load(ctx, s.c.DB, organizationID)
	if err != nil {
		return nil, err
	}
	limits, err := s.resolve(ctx, s.c.DB, organizationID, r.own)
	if err != nil {
		return nil, err
	}
	hooks, err := s.c.CountWebhooks(ctx, s.c.DB, organizationID)
	if err != nil {
		return nil, err
	}
	if r.day < day(s.c.DB.Now()) {
		r.messages = 0
	}
	if limits[Storage].Max != Unlimited {
		if err := s.addElsewhere(ctx, organizationID, nil, &r.use); err != nil {
			return nil, err
		}
	}
	used := map[Quota]int64{Storage: r.storage, Messages: r.messages, Webhooks: hooks}
	list := make([]Usage, len(All))
	for i, q := range All {
		list[i] = Usage{q, limits[q], used[q]}
	}
	return list, nil
}

// CheckWebhooks returns the refusal of an organization's n-th webhook, nil if it may be created.
// The caller excludes simultaneous creations.
func (s *Service) CheckWebhooks(ctx context.Context, q db.Querier, organizationID string, n int64) error {
	if s == nil {
		return nil
	}
	limits, err := s.readLimits(ctx, q, organizationID)
	if err != nil {
		return err
	}
	if limit := limits[Webhooks].Max; limit != Unlimited && n > limit {
		return s.refuse(Webhooks, limit, n-1, time.Time{})
	}
	return nil
}

// addElsewhere adds the files in other databases to a use, without those in except.
func (s *Service) addElsewhere(ctx context.Context, organizationID string, except *db.DB, u *use) error {
	n, err := s.c.Elsewhere(ctx, organizationID, except)
	if err != nil {
		return fmt.Errorf("count files elsewhere: %w", err)
	}
	u.storage += n
	return nil
}

// Addition is the addition of files to another database, which counts as [Storage].
// [Service.CheckElsewhere] returns it. It is for one goroutine.
type Addition struct {
	service        *Service // nil: there is no limit
	organizationID string
	bytes          int64
	others         int64 // bytes in all other databases
	limits         map[Quota]Limit
	sum            SumElsewhere
	share          int64 // of the limit, which the files have reached; 0: none
}

// SumElsewhere returns the bytes of an organization's files in another database.
type SumElsewhere func(ctx context.Context, q db.Querier, organizationID string) (int64, error)

// CheckElsewhere returns the refusal of files of so many bytes, before a transaction of another database
// stores them, as [Service.Check] does. [Addition.DecideTx] decides in that transaction, and [Addition.Notify]
// follows it. Files that other databases store at the same time are not seen. sum is of the caller's database.
func (s *Service) CheckElsewhere(ctx context.Context, d *db.DB, organizationID string, bytes int64, sum SumElsewhere) (*Addition, error) {
	if s == nil {
		return new(Addition), nil
	}
	limits, err := s.limitsOf(ctx, s.c.DB, organizationID)
	if err != nil {
		return nil, err
	}
	if limits[Storage].Max == Unlimited {
		return new(Addition), nil
	}
	others, err := s.load(ctx, s.c.DB, organizationID)
	if err != nil {
		return nil, err
	}
	if err := s.addElsewhere(ctx, organizationID, d, &others.use); err != nil {
		return nil, err
	}
	before, err := sum(ctx, d, organizationID)
	if err != nil {
		return nil, err
	}
	if err := s.enforce(ctx, s.c.DB, organizationID, use{storage: others.storage + before + bytes}, use{storage: bytes}, s.c.DB.Now()); err != nil {
		return nil, err
	}
	if limits, err = s.limitsOf(ctx, s.c.DB, organizationID); err != nil { // read again if they seemed exceeded
		return nil, err
	}
	return &Addition{service: s, organizationID: organizationID, bytes: bytes, others: others.storage, limits: limits, sum: sum}, nil
}

// DecideTx refuses the files if other transactions of the database have used the room since the check. Call
// it in the transaction, after the files are stored. Others of the organization wait from then on until the
// transaction ends.
func (a *Addition) DecideTx(ctx context.Context, tx *db.Tx) error {
	if a.service == nil {
		return nil
	}
	// The transaction does not read the service's database: transactions of both would wait for each other.
	if err := tx.Lock(ctx, "files of "+a.organizationID); err != nil {
		return err
	}
	now, err := a.sum(ctx, tx, a.organizationID)
	if err != nil {
		return err
	}
	used, limit := a.others+now, a.limits[Storage].Max
	if _, ok := exceeded(a.limits, use{storage: used}, use{storage: a.bytes}); ok {
		return a.service.refuse(Storage, limit, used-a.bytes, tx.Now)
	}
	a.share = share(used-a.bytes, used, limit)
	return nil
}

// Notify notifies the admins if the files have brought the use to a share of the limit. Call it after the
// transaction's commit. An error is logged, since the files are stored.
func (a *Addition) Notify(ctx context.Context) {
	if a.share == 0 {
		return
	}
	s, ctx := a.service, context.WithoutCancel(ctx)
	err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
		return s.enqueueNotice(ctx, tx, a.organizationID, notice{Quota: Storage, Limit: a.limits[Storage].Max, Share: a.share})
	})
	if err != nil {
		s.log.LogAttrs(ctx, slog.LevelError, "the notice of a quota is not enqueued", slog.String("organization", a.organizationID), slog.Any("error", err))
	}
}

// Check returns the refusal of a message with files of so many bytes, before they are stored; nil
// if it seems possible. The transaction that writes the message decides. A note counts as no message.
func (s *Service) Check(ctx context.Context, organizationID string, bytes int64, note bool) error {
	change := use{storage: bytes, messages: 1}
	if note {
		change.messages = 0
	}
	if s == nil || change == (use{}) {
		return nil
	}
	limits, err := s.limitsOf(ctx, s.c.DB, organizationID)
	if err != nil || limits[Storage].Max == Unlimited && limits[Messages].Max == Unlimited {
		return err
	}
	now := s.c.DB.Now()
	r, err := s.load(ctx, s.c.DB, organizationID)
	if err != nil {
		return err
	}
	if r.day < day(now) {
		r.messages = 0
	}
	if change.storage > 0 && limits[Storage].Max != Unlimited {
		if err := s.addElsewhere(ctx, organizationID, nil, &r.use); err != nil {
			return err
		}
	}
	r.storage += change.storage
	r.messages += change.messages
	return s.enforce(ctx, s.c.DB, organizationID, r.use, change, now)
}

// enforce returns the refusal of a change that led to a use beyond a limit, else nil.
func (s *Service) enforce(ctx context.Context, q db.Querier, organizationID string, now, change use, at time.Time) error {
	limits, err := s.limitsOf(ctx, q, organizationID)
	if err != nil {
		return err
	}
	if _, ok := exceeded(limits, now, change); !ok {
		return nil
	}
	s.limits.Delete(organizationID) // it may have been raised
	if limits, err = s.limitsOf(ctx, q, organizationID); err != nil {
		return err
	}
	switch of, ok := exceeded(limits, now, change); {
	case !ok:
		return nil
	case of == Storage:
		return s.refuse(of, limits[of].Max, now.storage-change.storage, at)
	default:
		return s.refuse(of, limits[of].Max, now.messages-change.messages, at)
	}
}

// exceeded returns the first quota that a change has exceeded.
func exceeded(limits map[Quota]Limit, now, change use) (Quota, bool) {
	if limit := limits[Storage].Max; limit != Unlimited && change.storage > 0 && now.storage > limit {
		return Storage, true
	}
	if limit := limits[Messages].Max; limit != Unlimited && change.messages > 0 && now.messages > limit {
		return Messages, true
	}
	return "", false
}

// refuse returns the refusal by a quota.
func (s *Service) refuse(q Quota, limit, used int64, at time.Time) error {
	s.c.Observe(q, "refused")
	e := &problem.Error{Kind: problem.Precondition, Code: CodeExceeded, Details: map[string]any{"quota": q, "limit": limit, "used": used}}
	switch q {
	case Storage:
		e.Message = fmt.Sprintf("the organization is limited to %s of files, of which %s are used; delete tickets with files or photos of tasks, or ask for a higher limit", q.Amount(limit), q.Amount(used))
	case Webhooks:
		e.Message = fmt.Sprintf("the organization is limited to %s; delete one first, or ask for a higher limit", q.Amount(limit))
	case Messages:
		e.Kind, e.Code = problem.RateLimited, CodeDailyExceeded
		e.RetryAfter = NextDay(at).Sub(at)
		e.Message = fmt.Sprintf("the organization is limited to %s a day, and today's are used; the next day begins at 00:00 UTC, %s", q.Amount(limit), inHours(e.RetryAfter))
	}
	return e
}

// inHours returns a wait in words.
func inHours(d time.Duration) string {
	if d <= time.Hour {
		return fmt.Sprintf("in %d min", int64((d+time.Minute-1)/time.Minute))
	}
	return fmt.Sprintf("in %d h", int64((d+30*time.Minute)/time.Hour))
}

const secondsPerDay = 24 * 60 * 60

// day returns the number of days since 1970 (UTC).
func day(at time.Time) int64 { return at.Unix() / secondsPerDay }

// NextDay returns when the use of [Messages] begins anew after a time.
func NextDay(at time.Time) time.Time { return time.Unix((day(at)+1)*secondsPerDay, 0).UTC() }
