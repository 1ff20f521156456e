// Package webhook delivers events to the receivers of organizations: outgoing webhooks
// (helpdesk.md parts 4.3 and 6).
//
// A [Webhook] is an organization's subscription: URL, events, payload form and retry schedule.
// For every event the [Service] writes, in the transaction of the change, one delivery and one
// job per subscription; the job's id is the delivery's and its lane is the webhook's id. The
// dispatcher posts the delivery, then records the attempt, the delivery's state and the end of
// the job in one transaction. So the event of a committed change is delivered at least once, or
// visibly failed or dropped; the event of a rolled back change is never sent.
//
//	             ┌──────────── retry, after the schedule's delay ───────────┐
//	             ▼                                                          │
//	untried ──attempt──▶ no answer, 5xx, 429 ──schedule left──▶ retrying ───┘
//	   │         │                └──────used up──────────────▶ failed; the webhook is failed too
//	   │         ├──▶ 2xx ─────────────────────────────────────▶ delivered
//	   │         └──▶ any other answer ────────────────────────▶ failed
//	   └──pushed out of a full queue while the webhook is not enabled──▶ dropped
//
// While a webhook is not enabled its lane is held and its deliveries wait. Enabling it resets
// all undelivered deliveries to untried, with a new schedule: untried ones, retries, and
// deliveries that exhausted their schedule since it was last enabled. This backlog is sent one
// by one, oldest first, followed by newer events. Apart from that, several deliveries of a
// webhook run concurrently, in no guaranteed order.
//
// The body of a delivery is a function of the stored event and the payload form, so that every
// attempt sends the same bytes, however late, and each request can be reconstructed byte for
// byte: see [payload.Request].
package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/cache"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"

	"github.com/google/uuid"
)

// Kinds of delivery jobs. Their lanes are webhook ids.
const (
	JobKind     = "webhook"
	OrderedKind = "webhook-ordered" // of webhooks with one delivery at a time
	FleetKind   = "webhook-fleet"   // of webhooks with events of a fleet, see [Source]
)

// Kinds lists the kinds of delivery jobs.
var Kinds = [...]string{JobKind, OrderedKind, FleetKind}

func kindOf(source event.Source, ordered bool) string {
	switch {
	case source.OfFleet():
		return FleetKind
	case ordered:
		return OrderedKind
	}
	return JobKind
}

const (
	// MaxPerOrganization bounds the webhooks of an organization.
	MaxPerOrganization = 100
	// MaxQueued bounds the queue of a webhook that is not enabled; each further delivery drops
	// the oldest.
	MaxQueued = 10_000
	// SecretOverlap is how long a replaced secret continues to sign.
	SecretOverlap = 24 * time.Hour

	// MaxDrainRate bounds [Webhook.DrainRate], in deliveries per second.
	MaxDrainRate = 1000

	minSecret = 16 // characters
	maxSecret = 500
)

// State is the state of a webhook.
type State string

// Webhook states (helpdesk.md part 3).
const (
	Enabled  State = "enabled"
	Disabled State = "disabled" // by a user
	Failed   State = "failed"   // a delivery exhausted its schedule
)

// Webhook is a subscription without its secret.
type Webhook struct {
	ID             string
	OrganizationID string
	URL            string
	Source         event.Source
	Events         []string // names of events of the source, or "*"
	State          State
	HasSecret      bool
	PayloadForm    payload.Form
	RetrySchedule  Schedule
	Ordered        bool      // one delivery at a time, in order
	DrainRate      int       // deliveries per second while a backlog is sent at a rate; else 0
	QueuedEvents   int64     // waiting deliveries, untried or retrying
	DroppedEvents  int64     // since creation
	LastDeliveryAt time.Time // start of the newest attempt; zero without attempts
	LastError      string    // error of the newest attempt; empty after success
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// New describes a webhook to create.
type New struct {
	ID            string // unused UUID; empty: assigned
	URL           string
	Source        event.Source // empty: the helpdesk; it never changes
	Events        []string
	Secret        *string      // signing secret; nil: unsigned
	Disabled      bool         // create in state Disabled
	PayloadForm   payload.Form // empty means b
	RetrySchedule Schedule     // empty means two
	Ordered       bool         // one delivery at a time, in order; not for fleets
	// MayAudit permits a subscription to [event.AuditRecorded], which is refused otherwise.
	MayAudit bool
}

// Change describes an update; nil fields stay unchanged.
type Change struct {
	URL           *string
	Events        *[]string
	Secret        *string // new signing secret
	Unsigned      bool    // remove the secret; not with Secret
	Enabled       *bool
	PayloadForm   *payload.Form
	RetrySchedule *Schedule
	Ordered       *bool
	// DrainRate is the rate at which the backlog is sent, in deliveries per second up to
	// [MaxDrainRate]; 0 means as fast as the receiver answers, which is also the default. It
	// requires Enabled to be true, and applies until the backlog is sent.
	DrainRate *int
	// MayAudit permits changes of a webhook that subscribes to [event.AuditRecorded], before or
	// after the change.
	MayAudit bool
}

// Config configures a [Service]. DB, Queue, Events, Box, Admins and Mailer are required.
type Config struct {
	DB     *db.DB
	Queue  *queue.Queue
	Events *event.Log
	Box    *seal.Box
	Admins mail.Admins
	Mailer mail.Enqueuer

	// Transport sends the deliveries; nil means one that dials within AllowPrivate.
	Transport http.RoundTripper
	// AllowPrivate permits http and private addresses of receivers, for development and demos.
	AllowPrivate bool
	// RetryTimeScale multiplies the delays between attempts; 0 means 1.
	RetryTimeScale float64
	// BaseURL is the URL of the dashboard, for links in mails.
	BaseURL string
	Quotas  *quota.Service // nil: no limits but MaxPerOrganization
	// PerLane bounds the claimed deliveries of one webhook over all processes; 0 means 64.
	// Concurrency bounds those of this process, for each job kind; 0 means 16384. A hanging
	// receiver occupies only a few, so thousands may hang.
	PerLane     int
	Concurrency int
	// Changed is called after the commit of a change of a webhook or its deliveries; nil: none.
	// Calls are frequent and must not block.
	Changed func(organizationID, webhookID string)
	Audit   *audit.Log // nil records nothing
	// AuditLogs are the logs streamed by [Service.RunAudit].
	AuditLogs []*audit.Log
	// Sources are the fleets whose events [Service.RunSources] delivers.
	Sources []Source
	Logger  *slog.Logger // nil discards
}

// Service manages webhooks and delivers events. It is safe for concurrent use.
type Service struct {
	db           *db.DB
	queue        *queue.Queue
	box          *seal.Box
	admins       mail.Admins
	mailer       mail.Enqueuer
	transport    http.RoundTripper
	allowPrivate bool
	scale        float64
	baseURL      string
	onChange     func(organizationID, webhookID string)
	quotas       *quota.Service
	audit        *audit.Log
	stream       auditStream
	sources      sources
	log          *slog.Logger

	cache    *cache.Cache[string, *cachedWebhook]
	bodies   *cache.Cache[bodyKey, []byte]
	recorder recorder
	windows  concurrencyLimits
	turns    backlogOrder
	subjects subjectOrder
}

// Open returns a service, registered as the queue's worker for its job kinds and as a listener
// of the event log. Deliveries are sent once the queue runs.
func Open(c Config) *Service {
	s := &Service{
		db: c.DB, queue: c.Queue, box: c.Box, admins: c.Admins, mailer: c.Mailer,
		transport: c.Transport, allowPrivate: c.AllowPrivate, scale: c.RetryTimeScale,
		baseURL: strings.TrimSuffix(c.BaseURL, "/"), onChange: c.Changed, quotas: c.Quotas, audit: c.Audit, log: c.Logger,
		cache: cache.New[string, *cachedWebhook](maxCached, cacheTTL), bodies: cache.NewSized[bodyKey](bodyBudget, 0, func(b []byte) int { return len(b) }),
	}
	s.stream = auditStream{logs: c.AuditLogs, wake: make(chan struct{}, 1)}
	s.sources = sources{list: c.Sources, wake: make(chan struct{}, 1)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.transport == nil {
		s.transport = netguard.NewTransport(netguard.Guard{AllowPrivate: c.AllowPrivate})
	}
	if s.scale == 0 {
		s.scale = 1
	}
	c.Events.BeforeCommit(s.fanOut)
	// deliver records failures of receivers. Errors returned to the queue are internal, so jobs
	// retry without limit.
	forever := func(attempt int, _ error) (time.Duration, bool) { return queue.Backoff(attempt), true }
	for _, kind := range Kinds {
		c.Queue.Handle(queue.Worker{
			Kind:         kind,
			Ordered:      kind == OrderedKind,
			Outgoing:     true,
			PerLane:      orDefault(c.PerLane, 64),
			Concurrency:  orDefault(c.Concurrency, 16384),
			LaneCapacity: s.windows.capacity,
			Prepare:      s.loadBodies,
			Run:          s.deliver,
			Retry:        forever,
		})
	}
	c.Queue.Handle(queue.Worker{Kind: trimKind, Run: s.trim, Retry: forever})
	return s
}

// changed calls Config.Changed after the commit.
func (s *Service) changed(tx *db.Tx, organizationID, id string) {
	if s.onChange != nil {
		tx.AfterCommit(func() { s.onChange(organizationID, id) })
	}
}

func orDefault(n, fallback int) int {
	if n == 0 {
		return fallback
	}
	return n
}

// List returns an organization's webhooks, oldest first.
func (s *Service) List(ctx context.Context, organizationID string) ([]Webhook, error) {
	list, err := db.All(ctx, s.db, scanWebhook, selectWebhook+" WHERE w.organization_id = $1 ORDER BY w.id", organizationID)
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	return list, nil
}

// Total returns the number of an organization's webhooks.
func Total(ctx context.Context, q db.Querier, organizationID string) (n int64, err error) {
	if err := q.QueryRow(ctx, "SELECT count(*) FROM webhooks WHERE organization_id = $1", organizationID).Scan(&n); err != nil {
		return 0, fmt.Errorf("count webhooks: %w", err)
	}
	return n, nil
}

// Find returns a webhook of an organization, or [problem.NotFound].
func (s *Service) Find(ctx context.Context, organizationID, id string) (Webhook, error) {
	return find(ctx, s.db, organizationID, id)
}

// FindTx is [Service.Find] in the caller's transaction, with a lock on the webhook.
func (s *Service) FindTx(ctx context.Context, tx *db.Tx, organizationID, id string) (Webhook, error) {
	var locked string
	err := tx.QueryRow(ctx, "SELECT id FROM webhooks WHERE id = $1 AND organization_id = $2 FOR UPDATE", id, organizationID).Scan(&locked)
	if errors.Is(err, db.ErrNoRows) {
		return Webhook{}, errNotFound()
	}
	if err != nil {
		return Webhook{}, fmt.Errorf("lock webhook: %w", err)
	}
	return find(ctx, tx, organizationID, id)
}

const selectWebhook = `SELECT w.id, w.organization_id, w.url, w.events, w.state, w.secret IS NOT NULL, w.payload_form, w.retry_schedule, w.ordered,
	CASE WHEN w.drain_rate IS NOT NULL AND EXISTS (SELECT 1 FROM deliveries d WHERE d.webhook_id = w.id AND d.state < 2 AND d.state = 0 AND d.id <= w.ordered_until)
		THEN w.drain_rate ELSE 0 END,
	(SELECT count(*) FROM deliveries d WHERE d.webhook_id = w.id AND d.state < 2),
	w.dropped, w.last_delivery_at, w.last_error, w.created_at, w.updated_at
	FROM webhooks w`

func scanWebhook(row db.Row) (Webhook, error) {
	var w Webhook
	var events string
	err := row.Scan(&w.ID, &w.OrganizationID, &w.URL, &events, &w.State, &w.HasSecret, &w.PayloadForm, &w.RetrySchedule, &w.Ordered, &w.DrainRate,
		&w.QueuedEvents, &w.DroppedEvents, db.IntoTime(&w.LastDeliveryAt), db.IntoText(&w.LastError),
		db.IntoTime(&w.CreatedAt), db.IntoTime(&w.UpdatedAt))
	w.Source, w.Events = splitEvents(events)
	return w, err
}

func find(ctx context.Context, q db.Querier, organizationID, id string) (Webhook, error) {
	w, err := db.One(ctx, q, scanWebhook, selectWebhook+" WHERE w.id = $1 AND w.organization_id = $2", id, organizationID)
	if errors.Is(err, db.ErrNoRows) {
		return w, errNotFound()
	}
	if err != nil {
		return w, fmt.Errorf("find webhook: %w", err)
	}
	return w, nil
}

func errNotFound() error { return problem.New(problem.NotFound, "there is no such webhook") }

// Create adds a webhook. Beyond [MaxPerOrganization] or the organization's quota it fails with
// [problem.Precondition].
func (s *Service) Create(ctx context.Context, organizationID string, n New) (w Webhook, err error) {
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		w, err = s.CreateTx(ctx, tx, organizationID, n)
		return err
	})
	return w, err
}

// CreateTx is [Service.Create] in the caller's transaction. An ID in use is a
// [problem.Conflict], so a form sent twice creates one webhook.
func (s *Service) CreateTx(ctx context.Context, tx *db.Tx, organizationID string, n New) (Webhook, error) {
	if n.PayloadForm == "" {
		n.PayloadForm = payload.Nested
	}
	if n.RetrySchedule == "" {
		n.RetrySchedule = ShortSchedule
	}
	if n.Source == "" {
		n.Source = event.Helpdesk
	}
	var v problem.Validation
	s.checkURL(&v, n.URL)
	if !n.Source.Valid() {
		v.Add("source", "must be helpdesk, fleet or sandbox")
	}
	checkEvents(&v, n.Source, n.Events)
	checkSourceSettings(&v, n.Source, n.PayloadForm, n.Ordered)
	checkSecret(&v, n.Secret)
	checkForm(&v, n.PayloadForm)
	checkSchedule(&v, n.RetrySchedule)
	if n.ID == "" {
		n.ID = uuid.Must(uuid.NewV7()).String()
	} else if id, err := uuid.Parse(n.ID); err != nil || id.String() != n.ID {
		v.Add("id", "must be a UUID")
	}
	if err := v.Err(); err != nil {
		return Webhook{}, err
	}
	if subscribesAudit(n.Events) {
		if !n.MayAudit {
			return Webhook{}, errMayNotAudit()
		}
		n.Ordered = true
	}
	w, err := s.create(ctx, tx, organizationID, n)
	if db.IsUnique(err) {
		return Webhook{}, problem.New(problem.Conflict, "the webhook exists already").Because(err)
	}
	if err != nil {
		return Webhook{}, fmt.Errorf("create webhook: %w", err)
	}
	return w, nil
}

func (s *Service) create(ctx context.Context, tx *db.Tx, organizationID string, n New) (Webhook, error) {
	id, state := n.ID, Enabled
	if n.Disabled {
		state = Disabled
	}
	if err := tx.Lock(ctx, "webhooks/"+organizationID); err != nil {
		return Webhook{}, err
	}
	count, err := Total(ctx, tx, organizationID)
	if err != nil {
		return Webhook{}, err
	}
	if count >= MaxPerOrganization {
		return Webhook{}, problem.New(problem.Precondition, "an organization has at most %d webhooks; delete one first", MaxPerOrganization)
	}
	if err := s.quotas.CheckWebhooks(ctx, tx, organizationID, count+1); err != nil {
		return Webhook{}, err
	}
	var source any
	if n.Source.OfFleet() {
		source = string(n.Source)
		tx.AfterCommit(s.WakeSources)
	}
	if _, err := tx.Exec(ctx, `INSERT INTO webhooks (id, organization_id, url, events, state, payload_form, retry_schedule, ordered, secret, created_at, updated_at, created_by, source)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11, $12)`,
		id, organizationID, n.URL, joinEvents(n.Source, n.Events), string(state), string(n.PayloadForm), string(n.RetrySchedule), n.Ordered,
		s.sealSecret(id, n.Secret), tx.Now.UnixMicro(), db.Text(creator(ctx)), source); err != nil {
		return Webhook{}, err
	}
	if err := saveVersion(ctx, tx, id, 1, version{n.URL, n.PayloadForm}); err != nil {
		return Webhook{}, err
	}
	if state != Enabled {
		if err := s.holdLanes(ctx, tx, id); err != nil {
			return Webhook{}, err
		}
	}
	s.changed(tx, organizationID, id)
	chosen, err := audit.Diff(struct{}{}, settings{Events: joinEvents(n.Source, n.Events), State: state, PayloadForm: n.PayloadForm, RetrySchedule: n.RetrySchedule, Ordered: n.Ordered})
	if err != nil {
		return Webhook{}, err
	}
	if err := s.subscribeAudit(ctx, tx, id, false, subscribesAudit(n.Events)); err != nil {
		return Webhook{}, err
	}
	if err := s.recordTx(ctx, tx, AuditCreated, organizationID, id, n.URL, chosen, nil); err != nil {
		return Webhook{}, err
	}
	return find(ctx, tx, organizationID, id)
}

// creator returns the id of the acting user; empty for other actors.
func creator(ctx context.Context) string {
	if a := audit.SourceOf(ctx).Actor; a.Type == audit.User {
		return a.ID
	}
	return ""
}

// Update changes a webhook. Waiting deliveries are sent with the new URL and form. Enabling a
// disabled or failed webhook sends its backlog in order.
func (s *Service) Update(ctx context.Context, organizationID, id string, c Change) (Webhook, error) {
	if err := s.checkChange(c); err != nil {
		return Webhook{}, err
	}
	var moving bool
	err := s.db.Write(ctx, func(tx *db.Tx) (err error) {
		moving, err = s.update(ctx, tx, organizationID, id, c)
		return err
	})
	if err != nil {
		return Webhook{}, fmt.Errorf("update webhook: %w", err)
	}
	if moving {
		// Continue even if the client has gone; only a crash leaves it half done.
		if err := s.moveRemaining(context.WithoutCancel(ctx), id, c.Ordered == nil || *c.Ordered); err != nil {
			return Webhook{}, fmt.Errorf("update webhook: move waiting jobs: %w", err)
		}
	}
	// Read separately: counting the queue may take too long for a write.
	return s.Find(ctx, organizationID, id)
}

// UpdateTx is [Service.Update] in the caller's transaction. If it changes Ordered of a webhook
// with a very long queue, some jobs move to the other kind only as each is claimed.
func (s *Service) UpdateTx(ctx context.Context, tx *db.Tx, organizationID, id string, c Change) (Webhook, error) {
	if err := s.checkChange(c); err != nil {
		return Webhook{}, err
	}
	if _, err := s.update(ctx, tx, organizationID, id, c); err != nil {
		return Webhook{}, fmt.Errorf("update webhook: %w", err)
	}
	return find(ctx, tx, organizationID, id)
}

func (s *Service) checkChange(c Change) error {
	var v problem.Validation
	if c.URL != nil {
		s.checkURL(&v, *c.URL)
	}
	if c.Events != nil {
		checkNames(&v, *c.Events, isEvent)
	}
	checkSecret(&v, c.Secret)
	if c.Secret != nil && c.Unsigned {
		v.Add("secret", "must not be given for a webhook that becomes unsigned")
	}
	if c.PayloadForm != nil {
		checkForm(&v, *c.PayloadForm)
	}
	if c.RetrySchedule != nil {
		checkSchedule(&v, *c.RetrySchedule)
	}
	if c.DrainRate != nil {
		checkDrainRate(&v, *c.DrainRate, c.Enabled)
	}
	return v.Err()
}

// update reports whether more jobs must be moved after the commit.
func (s *Service) update(ctx context.Context, tx *db.Tx, organizationID, id string, c Change) (moving bool, err error) {
	var before settings
	err = tx.QueryRow(ctx, `SELECT state, ordered, url, events, payload_form, retry_schedule FROM webhooks
		WHERE id = $1 AND organization_id = $2 FOR UPDATE`, id, organizationID).
		Scan(&before.State, &before.Ordered, &before.URL, &before.Events, &before.PayloadForm, &before.RetrySchedule)
	if errors.Is(err, db.ErrNoRows) {
		return false, errNotFound()
	}
	if err != nil {
		return false, err
	}
	source, _ := splitEvents(before.Events)
	if err := checkSourceChange(source, c); err != nil {
		return false, err
	}
	if c, err = s.applyAuditChange(ctx, tx, id, before, c); err != nil {
		return false, err
	}
	state, ordered := before.State, before.Ordered
	if err := s.recordUpdateTx(ctx, tx, organizationID, id, before, c); err != nil {
		return false, err
	}
	var events any
	if c.Events != nil {
		events = joinEvents(source, *c.Events)
	}
	var number int64
	var now version
	err = tx.QueryRow(ctx, `UPDATE webhooks SET url = coalesce($2, url), events = coalesce($3, events),
		payload_form = coalesce($4, payload_form), retry_schedule = coalesce($5, retry_schedule), ordered = coalesce($6, ordered),
		version = version + CASE WHEN url <> coalesce($2, url) OR payload_form <> coalesce($4, payload_form) THEN 1 ELSE 0 END,
		updated_at = $7 WHERE id = $1 RETURNING version, url, payload_form`,
		id, c.URL, events, (*string)(c.PayloadForm), (*string)(c.RetrySchedule), c.Ordered, tx.Now.UnixMicro()).Scan(&number, &now.url, &now.form)
	if err != nil {
		return false, err
	}
	if err := saveVersion(ctx, tx, id, number, now); err != nil {
		return false, err
	}
	if err := s.changeSecret(ctx, tx, id, c); err != nil {
		return false, err
	}
	// Before a lane is moved or released, which wakes the dispatcher.
	tx.AfterCommit(func() { s.cache.Delete(id) })
	s.changed(tx, organizationID, id)
	if c.Ordered != nil && *c.Ordered != ordered {
		if moving, err = s.queue.MoveLaneTx(ctx, tx, kindOf(source, ordered), kindOf(source, *c.Ordered), id); err != nil {
			return false, err
		}
		if state != Enabled { // suspended before there were two kinds, perhaps
			if err := s.holdLanes(ctx, tx, id); err != nil {
				return false, err
			}
		}
	}
	enable := c.Enabled != nil && *c.Enabled
	switch {
	case enable && state != Enabled:
		if err := s.resume(ctx, tx, id); err != nil {
			return false, err
		}
	case c.Enabled != nil && !enable && state == Enabled:
		if err := s.suspend(ctx, tx, id, Disabled); err != nil {
			return false, err
		}
	}
	if !enable {
		return moving, nil
	}
	rate := 0
	if c.DrainRate != nil {
		rate = *c.DrainRate
	}
	_, err = tx.Exec(ctx, "UPDATE webhooks SET drain_rate = $2 WHERE id = $1", id, orNil(rate))
	return moving, err
}

// moveRemaining moves the waiting jobs of a webhook with a changed Ordered, in small
// transactions. After an interruption, the remaining jobs move as each is claimed.
func (s *Service) moveRemaining(ctx context.Context, id string, ordered bool) error {
	for more := true; more; {
		err := s.db.Write(ctx, func(tx *db.Tx) error {
			more = false
			var now bool
			err := tx.QueryRow(ctx, "SELECT ordered FROM webhooks WHERE id = $1 FOR UPDATE", id).Scan(&now)
			if errors.Is(err, db.ErrNoRows) || err == nil && now != ordered {
				return nil
			}
			if err != nil {
				return err
			}
			more, err = s.queue.MoveLaneTx(ctx, tx, kindOf(event.Helpdesk, !ordered), kindOf(event.Helpdesk, ordered), id)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Delete removes a webhook and its queue, and cancels deliveries under way. The next
// [Service.Purge] deletes its history.
func (s *Service) Delete(ctx context.Context, organizationID, id string) error {
	return s.db.Write(ctx, func(tx *db.Tx) error { return s.DeleteTx(ctx, tx, organizationID, id) })
}

// DeleteTx is [Service.Delete] in the caller's transaction.
func (s *Service) DeleteTx(ctx context.Context, tx *db.Tx, organizationID, id string) error {
	var rawURL string
	err := tx.QueryRow(ctx, "DELETE FROM webhooks WHERE id = $1 AND organization_id = $2 RETURNING url", id, organizationID).Scan(&rawURL)
	if errors.Is(err, db.ErrNoRows) {
		return errNotFound()
	}
	if err != nil {
		return fmt.Errorf("delete webhook: %w", err)
	}
	if err := s.recordTx(ctx, tx, AuditDeleted, organizationID, id, rawURL, nil, nil); err != nil {
		return err
	}
	if err := s.subscribeAudit(ctx, tx, id, true, false); err != nil {
		return err
	}
	tx.AfterCommit(func() { s.cache.Delete(id) })
	tx.AfterCommit(s.WakeSources)
	s.changed(tx, organizationID, id)
	for _, kind := range Kinds {
		if err := s.queue.DeleteLaneTx(ctx, tx, kind, id); err != nil {
			return fmt.Errorf("delete webhook: %w", err)
		}
	}
	return nil
}

// suspend stops the deliveries of an enabled webhook; new ones queue.
func (s *Service) suspend(ctx context.Context, tx *db.Tx, id string, to State) error {
	var held int64
	if err := tx.QueryRow(ctx, `UPDATE webhooks SET state = $2, updated_at = $3, drain_rate = NULL, held = (`+countWaiting+`) WHERE id = $1 RETURNING held`,
		id, string(to), tx.Now.UnixMicro(), MaxQueued+1).Scan(&held); err != nil {
		return err
	}
	if held > MaxQueued {
		if err := s.queue.EnqueueTx(ctx, tx, queue.New{Kind: trimKind, Lane: id}); err != nil {
			return err
		}
	}
	return s.holdLanes(ctx, tx, id)
}

// holdLanes stops claims of a webhook's jobs. It holds both lanes, because the webhook may change
// its kind meanwhile.
func (s *Service) holdLanes(ctx context.Context, tx *db.Tx, id string) error {
	for _, kind := range Kinds {
		if err := s.queue.HoldLaneTx(ctx, tx, kind, id); err != nil {
			return err
		}
	}
	return nil
}

// saveVersion stores the current version of a webhook, unless stored already.
func saveVersion(ctx context.Context, tx *db.Tx, id string, number int64, v version) error {
	_, err := tx.Exec(ctx, `INSERT INTO webhook_versions (webhook_id, version, url, payload_form, created_at)
		VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`, id, number, v.url, string(v.form), tx.Now.UnixMicro())
	return err
}

// countWaiting counts the waiting deliveries of webhook $1, up to $4.
const countWaiting = `SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE webhook_id = $1 AND state < 2 LIMIT $4) AS waiting`

// resume enables a suspended webhook and sends all of its undelivered deliveries at once,
// oldest first, with new schedules.
func (s *Service) resume(ctx context.Context, tx *db.Tx, id string) error {
	if err := s.requeueUndelivered(ctx, tx, id); err != nil {
		return err
	}
	if err := tx.Queue(ctx, `UPDATE webhooks SET state = $2, held = 0, drain_rate = NULL, drain_at = NULL,
		ordered_until = (SELECT max(id) FROM deliveries WHERE webhook_id = $1 AND state < 2 AND state = 0) WHERE id = $1`,
		id, string(Enabled)); err != nil {
		return err
	}
	for _, kind := range Kinds {
		if err := s.queue.RunNowTx(ctx, tx, kind, id); err != nil {
			return err
		}
		if err := s.queue.ReleaseLaneTx(ctx, tx, kind, id); err != nil {
			return err
		}
	}
	return nil
}

// suspendFailed suspends a webhook after a delivery exhausted its schedule and mails the organization's
// admins, unless it is suspended already.
func (s *Service) suspendFailed(ctx context.Context, tx *db.Tx, id, reason string) error {
	var organizationID, rawURL string
	err := tx.QueryRow(ctx, "SELECT organization_id, url FROM webhooks WHERE id = $1 AND state = $2 FOR UPDATE", id, string(Enabled)).
		Scan(&organizationID, &rawURL)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.suspend(ctx, tx, id, Failed); err != nil {
		return err
	}
	if err := s.recordTx(ctx, tx, AuditFailed, organizationID, id, rawURL, map[string]audit.Change{"state": {From: Enabled, To: Failed}}, nil); err != nil {
		return err
	}
	tx.AfterCommit(func() {
		s.log.Warn("a webhook failed and is disabled", "webhook", id, "organization", organizationID, "reason", reason)
	})
	admins, err := s.admins.AdminAddresses(ctx, tx, organizationID)
	if err != nil {
		return fmt.Errorf("find admins: %w", err)
	}
	for _, to := range admins {
		m, err := failedMail(to, id, rawURL, s.baseURL, reason)
		if err != nil {
			return err
		}
		if err := s.mailer.EnqueueMailTx(ctx, tx, m); err != nil {
			return fmt.Errorf("enqueue mail: %w", err)
		}
	}
	return nil
}

func (s *Service) checkURL(v *problem.Validation, raw string) {
	v.Text("url", raw)
	if _, err := netguard.CheckURL(raw, s.allowPrivate); err != nil && !v.Has("url") {
		if refused, ok := errors.AsType[*netguard.AddressError](err); ok {
			v.Add("url", "must be publicly reachable: %v", refused)
			return
		}
		v.Add("url", "%v", err)
	}
}

func checkEvents(v *problem.Validation, source event.Source, names []string) {
	checkNames(v, names, func(name event.Name) bool { return isEventOf(source, name) })
}

// checkNames adds issues of a list of events. valid reports whether an event can be subscribed to.
func checkNames(v *problem.Validation, names []string, valid func(event.Name) bool) {
	if len(names) == 0 {
		v.Add("events", "must name at least one event")
	}
	for i, name := range names {
		if name != "*" && !valid(event.Name(name)) {
			v.Add(fmt.Sprintf("events.%d", i), "is not the name of an event")
		}
	}
}

// checkSourceSettings adds issues of settings that webhooks of fleets do not have.
func checkSourceSettings(v *problem.Validation, source event.Source, f payload.Form, ordered bool) {
	if !source.OfFleet() {
		return
	}
	if f == payload.Flat {
		v.Add("payloadForm", `must be "b" for events of the fleet`)
	}
	if ordered {
		v.Add("ordered", "must be false for events of the fleet, which are always in order for each vehicle")
	}
}

// checkSourceChange returns the issues of a change to a webhook of a source.
func checkSourceChange(source event.Source, c Change) error {
	var v problem.Validation
	if c.Events != nil {
		checkEvents(&v, source, *c.Events)
	}
	var f payload.Form
	if c.PayloadForm != nil {
		f = *c.PayloadForm
	}
	checkSourceSettings(&v, source, f, c.Ordered != nil && *c.Ordered)
	return v.Err()
}

// checkSecret also refuses malformed secrets with the prefix of Standard Webhooks: its
// libraries would compute other signatures.
func checkSecret(v *problem.Validation, secret *string) {
	if secret == nil {
		return
	}
	v.Length("secret", *secret, minSecret, maxSecret)
	if strings.TrimSpace(*secret) == "" && !v.Has("secret") {
		v.Add("secret", "must not be blank")
	}
	if !payload.ValidSecret(*secret) && !v.Has("secret") {
		v.Add("secret", "must be whsec_ followed by base64")
	}
}

func checkForm(v *problem.Validation, f payload.Form) {
	if f != payload.Flat && f != payload.Nested {
		v.Add("payloadForm", `must be "a" or "b"`)
	}
}

func checkSchedule(v *problem.Validation, s Schedule) {
	if s != LongSchedule && s != ShortSchedule {
		v.Add("retrySchedule", `must be "one" or "two"`)
	}
}

func checkDrainRate(v *problem.Validation, rate int, enabled *bool) {
	switch {
	case rate < 0 || rate > MaxDrainRate:
		v.Add("drainRate", "must be from 1 to %d, or 0 for no limit", MaxDrainRate)
	case enabled == nil || !*enabled:
		v.Add("drainRate", "needs enabled to be true")
	}
}

// prefix begins the stored names of events of a source. Programs of the previous version, which
// have no sources, find no event of the helpdesk in a list with names of another.
func prefix(source event.Source) string {
	if source.OfFleet() {
		return string(source) + ":"
	}
	return ""
}

// joinEvents returns the stored form of a list of event names, without duplicates.
func joinEvents(source event.Source, names []string) string {
	var out []string
	for _, name := range names {
		if name = prefix(source) + name; !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return strings.Join(out, " ")
}

// splitEvents is the inverse of joinEvents.
func splitEvents(stored string) (event.Source, []string) {
	source := event.Helpdesk
	for _, s := range event.Sources {
		if p := prefix(s); p != "" && strings.HasPrefix(stored, p) {
			source = s
		}
	}
	names := strings.Fields(stored)
	for i := range names {
		names[i] = strings.TrimPrefix(names[i], prefix(source))
	}
	return source, names
}

// matches reports whether a stored list of event names contains an event of a source.
func matches(stored string, source event.Source, name event.Name) bool {
	p := prefix(source)
	for s := range strings.SplitSeq(stored, " ") {
		if s, ok := strings.CutPrefix(s, p); ok && (s == "*" && name != event.AuditRecorded || s == string(name)) {
			return true
		}
	}
	return false
}

const sealPurpose = "webhook secret"

// sealSecret returns the stored form of a secret: NULL without one.
func (s *Service) sealSecret(id string, secret *string) any {
	if secret == nil {
		return nil
	}
	return s.box.Seal(sealPurpose, []byte(*secret), id)
}

// changeSecret makes c.Secret the signing secret. The previous one also signs for
// [SecretOverlap]. Unsigned deliveries have no overlap.
func (s *Service) changeSecret(ctx context.Context, tx *db.Tx, id string, c Change) error {
	if c.Unsigned {
		_, err := tx.Exec(ctx, "UPDATE webhooks SET secret = NULL, old_secret = NULL, old_secret_until = NULL WHERE id = $1", id)
		return err
	}
	if c.Secret == nil {
		return nil
	}
	var sealed []byte
	if err := tx.QueryRow(ctx, "SELECT secret FROM webhooks WHERE id = $1", id).Scan(&sealed); err != nil {
		return err
	}
	if sealed == nil {
		_, err := tx.Exec(ctx, "UPDATE webhooks SET secret = $2 WHERE id = $1", id, s.sealSecret(id, c.Secret))
		return err
	}
	// A secret that cannot be opened cannot sign either.
	if old, err := s.box.Open(sealPurpose, sealed, id); err == nil && string(old) == *c.Secret {
		return nil
	}
	_, err := tx.Exec(ctx, "UPDATE webhooks SET old_secret = secret, old_secret_until = $3, secret = $2 WHERE id = $1",
		id, s.sealSecret(id, c.Secret), tx.Now.Add(SecretOverlap).UnixMicro())
	return err
}
