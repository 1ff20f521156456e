// Package fleet manages the vehicles, rides, customers, pricing plans and zones of
// vehicle-sharing operators, and stores them. It implements fleet.md and
// fleet-api.md.
//
// A [Service] is one environment on its own database: production or the sandbox.
// Both run the same code and share no records.
//
// # Records
//
// A record is stored as the JSON document of fleet-api.md section 1 ([Record]).
// Columns beside the document hold the values that queries filter and sort by.
// Reads send the stored document unchanged; an update decodes, changes and encodes
// it. Each change increments the revision, which is the record's ETag.
//
// An id is a prefix and a ULID of created_at in milliseconds, so ids sort by
// creation.
//
// # Time
//
// [Service.Now] is an organization's clock: real time in production; in the sandbox
// a clock that can be advanced. A time-based change (an expiring reservation, the
// maximum duration of a ride, a silent vehicle) is stored as a due time. It takes
// effect as of that time, in order: within a second of it, and always before the
// next change of the same record.
//
// # Locking
//
// Methods that take a transaction write in the caller's transaction. Rows are
// locked in one order: ride, vehicle, customer; of a task, its vehicle before the task.
package fleet

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet/rideindex"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"

	"github.com/oklog/ulid/v2"
)

// Service manages the fleets of one environment. It is safe for concurrent use.
type Service struct {
	db        *db.DB
	live      bool
	audit     *audit.Log
	log       *slog.Logger
	rideIndex *rideindex.Index
	rideLists rideListLimits
	budget    scanBudget // of lists

	packedRides int // the constant packedRides, smaller in tests

	// entropy makes ids of the same millisecond ascend, so that ids sort by
	// creation (fleet-api.md 0).
	entropy ulid.MonotonicReader

	changed func(organizationID, kind, id string)
	emitted func(organizationID string)
	relayed func(organizationID string)

	settings    stampedCache[Settings]
	subaccounts stampedCache[Subaccount]
	plans       stampedCache[Plan]
	fences      stampedCache[fences]
	alertRules  stampedCache[alertRules]
	rowCounts   stampedCache[rowCount] // of recently counted filter sets, see [listQuery.setKey]

	provisioned sync.Map // ids of organizations with a fleet, see Provision
	packCursor  string   // the last organization that packPending visited; used by Run only
}

// Config configures [Open].
type Config struct {
	DB     *db.DB       // migrated to [db.Fleet]
	Live   bool         // production; else the sandbox
	Audit  *audit.Log   // of DB; nil records nothing
	Logger *slog.Logger // nil discards
	// Changed is called after the commit of each change, with the record's kind
	// (RideKind, ...) and id. After a change of the whole fleet, kind and id are
	// empty. Changed must return quickly. Nil disables it.
	Changed func(organizationID, kind, id string)
	// Emitted is called after the commit of each event, like Changed. Nil disables it.
	Emitted func(organizationID string)
	// Relayed is called after the commit of [Service.EventsRelayed]: the events may be of another process,
	// such as a command. Nil disables it.
	Relayed func(organizationID string)
}

// Open returns the service of one environment.
func Open(c Config) *Service {
	log := c.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Service{
		db: c.DB, live: c.Live, audit: c.Audit, log: log, changed: c.Changed, emitted: c.Emitted, relayed: c.Relayed, packedRides: packedRides,
		rideIndex: rideindex.New(c.DB, rideindex.DefaultSizes()), rideLists: defaultRideListLimits(), budget: defaultScanBudget(),
		settings: newStampedCache[Settings](maxCached), subaccounts: newStampedCache[Subaccount](maxCached), plans: newStampedCache[Plan](maxCached),
		fences: newStampedCache[fences](maxCached), alertRules: newStampedCache[alertRules](maxCached), rowCounts: newStampedCache[rowCount](maxCached),
		entropy: &ulid.LockedMonotonicReader{MonotonicReader: ulid.Monotonic(rand.Reader, 0)},
	}
}

// Live reports whether this is production.
func (s *Service) Live() bool { return s.live }

// NullString is a string; the empty one is null in JSON.
type NullString string

// MarshalJSON implements [json.Marshaler].
func (t NullString) MarshalJSON() ([]byte, error) {
	if t == "" {
		return []byte("null"), nil
	}
	if !plain(string(t)) {
		return json.Marshal(string(t))
	}
	b := append(make([]byte, 0, len(t)+2), '"')
	return append(append(b, t...), '"'), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (t *NullString) UnmarshalJSON(text []byte) error {
	*t = "" // null leaves it empty
	if last := len(text) - 1; last > 0 && text[0] == '"' && plain(string(text[1:last])) {
		*t = NullString(text[1:last])
		return nil
	}
	return json.Unmarshal(text, (*string)(t))
}

// plain reports whether text needs no escaping in JSON. Ids need none; they make up
// most of a record, which every change decodes and encodes.
func plain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// RecordHeader has the leading fields of every record.
type RecordHeader struct {
	ID           string     `json:"id"`
	Object       string     `json:"object"`
	Live         bool       `json:"livemode"`
	SubaccountID string     `json:"subaccount_id"`
	ExternalID   NullString `json:"external_id"` // unique in the subaccount for the kind of record
}

// Timestamps has the trailing fields of every record.
type Timestamps struct {
	Metadata  map[string]string `json:"metadata"`
	CreatedAt rfc3339.Time      `json:"created_at"`
	UpdatedAt rfc3339.Time      `json:"updated_at"`
}

// Record is the stored form of a record, as the API returns it.
type Record struct {
	ID           string
	SubaccountID string
	Revision     int64 // starts at 1
	JSON         []byte
	// Distance is a vehicle's distance in meters from the point of a query with
	// [geo.Circle]; -1 without one.
	Distance float64
}

// Actor is the cause of an event: a key, a user or the system.
type Actor struct {
	Type string     `json:"type"` // "key", "user" or "system"
	ID   NullString `json:"id"`

	// Ticket is the number of the ticket of the helpdesk from which a member acts; 0: none.
	// The audit log has each change of a ride or vehicle from a ticket.
	Ticket int64 `json:"-"`
	// Vehicles is the number of vehicles of an action on many; 0: the action is on one record. The
	// audit log has the change of each of them.
	Vehicles int `json:"-"`
}

// systemActor is the actor of time-based changes.
var systemActor = Actor{Type: "system"}

// Prefixes of ids (fleet-api.md 0).
const (
	ridePrefix       = "ride"
	vehiclePrefix    = "veh"
	typePrefix       = "vt"
	customerPrefix   = "cus"
	zonePrefix       = "zone"
	planPrefix       = "plan"
	subaccountPrefix = "sub"
	eventPrefix      = "evt"
	alertPrefix      = "alert"
	taskPrefix       = "task"
	photoPrefix      = "photo"
)

// newID returns an id for the time at. Records take [Service.entropy]; a
// deterministic source makes ids reproducible.
func newID(prefix string, at time.Time, entropy io.Reader) string {
	return prefix + "_" + ulid.MustNew(ulid.Timestamp(at), entropy).String()
}

// idTime returns the time of an id, which is that of the record's creation.
func idTime(id string) (time.Time, error) {
	_, text, _ := strings.Cut(id, "_")
	u, err := ulid.ParseStrict(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time of %s: %w", id, err)
	}
	return u.Timestamp(), nil
}

// newRecord returns the header and timestamps of a record created now.
func (s *Service) newRecord(prefix, object, subaccountID string, now time.Time) (RecordHeader, Timestamps) {
	now = now.Truncate(time.Millisecond) // the precision of an id
	return RecordHeader{ID: newID(prefix, now, s.entropy), Object: object, Live: s.live, SubaccountID: subaccountID},
		Timestamps{Metadata: map[string]string{}, CreatedAt: rfc3339.Time(now), UpdatedAt: rfc3339.Time(now)}
}

// idsFrom returns the least id of time t: created_at >= t is id >= idsFrom(prefix,
// t).
func idsFrom(prefix string, t time.Time) string {
	t = t.Add(time.Millisecond - 1).Truncate(time.Millisecond)
	if t.Before(time.UnixMilli(0)) {
		return prefix + "_"
	}
	var least ulid.ULID
	if err := least.SetTime(ulid.Timestamp(t)); err != nil {
		return prefix + "_~" // greater than any id
	}
	return prefix + "_" + least.String()
}

// encode returns the JSON of a record in its stored form.
func encode(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode a record: %w", err)
	}
	text := b.String()
	return []byte(text[:len(text)-1]), nil
}

// nextUpdatedAt returns now truncated to milliseconds, but never less than before,
// so that cursors over updated_at miss nothing if the clock goes back.
func nextUpdatedAt(before rfc3339.Time, now time.Time) rfc3339.Time {
	now = now.Truncate(time.Millisecond)
	if now.Before(before.Std()) {
		return before
	}
	return rfc3339.Time(now)
}

// notFoundError is the error of a missing record.
func notFoundError(kind string) error {
	return problem.New(problem.NotFound, "there is no such %s", kind)
}

// wrapReadError turns [db.ErrNoRows] into notFoundError and wraps any other error.
func wrapReadError(err error, kind string) error {
	if errors.Is(err, db.ErrNoRows) {
		return notFoundError(kind)
	}
	if err != nil {
		return fmt.Errorf("read a %s: %w", kind, err)
	}
	return nil
}

// conflict returns a Precondition error with a code of fleet-api.md 5.
func conflict(code, format string, args ...any) *problem.Error {
	e := problem.New(problem.Precondition, format, args...)
	e.Code = code
	return e
}

// alreadyExistsError is the error of a duplicate value of a unique field.
func alreadyExistsError(member string) error {
	e := problem.New(problem.Conflict, "a record with this %s already exists", member)
	e.Code, e.Details = "already_exists", map[string]any{"member": member}
	return e
}

// Now returns the time of an organization's clock. Error: NotFound.
func (s *Service) Now(ctx context.Context, q db.Querier, organizationID string) (time.Time, error) {
	a, err := s.orgContext(ctx, q, s.db.Now(), organizationID)
	return a.now, err
}

// RealTime returns the present time by the database's clock, on which the sandbox's clocks are
// based.
func (s *Service) RealTime() time.Time { return s.db.Now() }

// orgContext holds an organization's settings and clock as of one transaction.
type orgContext struct {
	id       string
	settings *Settings // shared; read-only
	revision int64
	offset   time.Duration // of the clock from real time
	recorded bool          // events are recorded
	alerts   *alertRules   // nil: no alert rule is enabled
	now      time.Time     // by the organization's clock, in whole microseconds
}

// orgContext reads an organization's settings and clock at the real time now.
func (s *Service) orgContext(ctx context.Context, q db.Querier, now time.Time, organizationID string) (orgContext, error) {
	a := orgContext{id: organizationID}
	var stamp, offset int64
	var until, alertStamp *int64
	err := q.QueryRow(ctx, "SELECT revision, stamp, clock_offset, alert_stamp, "+recordedUntil+" FROM settings s WHERE organization_id = $1", organizationID).
		Scan(&a.revision, &stamp, &offset, &alertStamp, &until)
	if err != nil {
		return a, wrapReadError(err, "fleet")
	}
	a.recorded = isRecorded(until, now)
	a.offset = time.Duration(offset) * time.Microsecond
	a.now = now.UTC().Truncate(time.Microsecond).Add(a.offset)
	a.settings, err = s.settings.get(organizationID, stamp, func(into *Settings) error {
		return q.QueryRow(ctx, "SELECT doc FROM settings WHERE organization_id = $1", organizationID).Scan(db.IntoJSON(into))
	})
	if err == nil && alertStamp != nil {
		a.alerts, err = s.enabledAlertRules(ctx, q, organizationID, *alertStamp)
	}
	return a, err
}

// entropy is a deterministic source of randomness for ids.
type entropy struct{ state uint64 }

// Read implements [io.Reader]. It never fails.
func (e *entropy) Read(p []byte) (int, error) {
	for i := 0; i < len(p); i += 8 {
		e.state += 0x9e3779b97f4a7c15 // SplitMix64
		z := e.state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], z^z>>31)
		copy(p[i:], word[:])
	}
	return len(p), nil
}
