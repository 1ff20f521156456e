// Package fleet is the vehicles, rides, customers, prices and zones of people who
// rent out vehicles: the rules of fleet.md and fleet-api.md, and where they are
// kept.
//
// A [Service] is one environment, on a database of its own: production or the
// sandbox. They are the same code, and nothing leads from the one to the other.
//
// # Records
//
// A record is a document: the JSON that fleet-api.md section 1 shows is what is
// stored ([Record]), and the columns beside it are what it is found by. So what is
// read most, a record or a million of them, leaves as it lies on the disk, and a
// change decodes, changes and encodes. Each change makes a new revision, which is
// the record's ETag.
//
// Ids are prefixed ULIDs of the moment in created_at, to the millisecond: the
// order of ids is the order of creation.
//
// # Time
//
// What time it is, an organization's own clock says ([Service.Now]): in production
// the real one, in the sandbox one that can be moved forward. What time alone
// changes (a reservation that expires, a ride that lasts too long, a vehicle that
// falls silent) is kept as the moment when it is due, and happens as of that
// moment, in order: within a second of it, and in any case before the next change
// of the same record.
//
// # Who waits for whom
//
// Methods that take a transaction change things in the caller's. Rows are locked
// in one order: ride, vehicle, customer.
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
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"

	"github.com/oklog/ulid/v2"
)

// Service is the fleets of one environment. It is safe for concurrent use.
type Service struct {
	db     *db.DB
	live   bool
	audit  *audit.Log
	log    *slog.Logger
	budget scanBudget // of lists
	tiling tiling

	packedRides int // packedRides

	// entropy is the randomness of ids: those of one millisecond ascend, so that ids
	// sort by creation (fleet-api.md 0).
	entropy io.Reader

	changed func(organizationID, kind, id string)

	settings    cache[Settings]
	subaccounts cache[Subaccount]
	plans       cache[Plan]
	fences      cache[fences]
	layers      *layerCache
	rowCounts   cache[rowCount] // of sets that lists have looked at, see [listQuery.setName]

	provisioned sync.Map // ids of organizations that have a fleet, see Ensure
	packCursor  string   // the organization that pack looked at last; only Run uses it
}

// Config is what [Open] needs.
type Config struct {
	DB     *db.DB       // migrated to [db.Fleet]
	Live   bool         // production; else the sandbox
	Audit  *audit.Log   // of DB; nil records nothing
	Logger *slog.Logger // nil discards
	// Changed is told of every record that changes, with its kind (RideKind, ...),
	// after the commit; of an organization whose whole fleet has changed with
	// neither kind nor id. It must be quick. Nil: nobody wants to know.
	Changed func(organizationID, kind, id string)
}

// Open returns the fleets of one environment.
func Open(c Config) *Service {
	log := c.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Service{
		db: c.DB, live: c.Live, audit: c.Audit, log: log, changed: c.Changed, budget: defaultScanBudget(), tiling: defaultTiling(), packedRides: packedRides, layers: newLayerCache(),
		entropy: &ulid.LockedMonotonicReader{MonotonicReader: ulid.Monotonic(rand.Reader, 0)},
	}
}

// Live reports whether this is production.
func (s *Service) Live() bool { return s.live }

// NullString is a string, or null when it is empty.
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
	*t = "" // which null leaves
	if last := len(text) - 1; last > 0 && text[0] == '"' && plain(string(text[1:last])) {
		*t = NullString(text[1:last])
		return nil
	}
	return json.Unmarshal(text, (*string)(t))
}

// plain reports whether text stands in JSON as it is. Records are full of ids,
// which do, and are decoded and encoded with every change.
func plain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// RecordHeader is how every record begins.
type RecordHeader struct {
	ID           string     `json:"id"`
	Object       string     `json:"object"`
	Live         bool       `json:"livemode"`
	SubaccountID string     `json:"subaccount_id"`
	ExternalID   NullString `json:"external_id"` // unique in the subaccount, among records of the type
}

// Timestamps is how every record ends.
type Timestamps struct {
	Metadata  map[string]string `json:"metadata"`
	CreatedAt rfc3339.Time      `json:"created_at"`
	UpdatedAt rfc3339.Time      `json:"updated_at"`
}

// Record is a record as it is answered.
type Record struct {
	ID           string
	SubaccountID string
	Revision     int64 // from 1 on
	JSON         []byte
	// Distance is how far a vehicle is from the point it was looked for at, in
	// meters; -1 unless it was.
	Distance float64
}

// Actor is who does something, as events tell it.
type Actor struct {
	Type string     `json:"type"` // "key", "user" or "system"
	ID   NullString `json:"id"`
}

// systemActor is time itself.
var systemActor = Actor{Type: "system"}

// The prefixes of ids (fleet-api.md 0).
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
)

// newID returns an id of a moment. Records have [Service.entropy], but for what shall
// come out the same each time.
func newID(prefix string, at time.Time, entropy io.Reader) string {
	return prefix + "_" + ulid.MustNew(ulid.Timestamp(at), entropy).String()
}

// newRecord returns the head and the tail of a record that is made now.
func (s *Service) newRecord(prefix, object, subaccountID string, now time.Time) (RecordHeader, Timestamps) {
	now = now.Truncate(time.Millisecond) // as the id has it
	return RecordHeader{ID: newID(prefix, now, s.entropy), Object: object, Live: s.live, SubaccountID: subaccountID},
		Timestamps{Metadata: map[string]string{}, CreatedAt: rfc3339.Time(now), UpdatedAt: rfc3339.Time(now)}
}

// idsFrom returns the least id of a moment, as far as the order of ids goes:
// created_at >= t is id >= idsFrom(prefix, t).
func idsFrom(prefix string, t time.Time) string {
	t = t.Add(time.Millisecond - 1).Truncate(time.Millisecond)
	if t.Before(time.UnixMilli(0)) {
		return prefix + "_"
	}
	var least ulid.ULID
	if err := least.SetTime(ulid.Timestamp(t)); err != nil {
		return prefix + "_~" // later than any id
	}
	return prefix + "_" + least.String()
}

// encode returns the JSON of a record as it is stored and answered.
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

// nextUpdatedAt is when a record that is changed now was changed last: not earlier than
// before, whatever the clock, so that whoever reads by updated_at misses nothing.
func nextUpdatedAt(before rfc3339.Time, now time.Time) rfc3339.Time {
	now = now.Truncate(time.Millisecond)
	if now.Before(before.Std()) {
		return before
	}
	return rfc3339.Time(now)
}

// notFoundError is the error of a record that does not exist.
func notFoundError(what string) error {
	return problem.New(problem.NotFound, "there is no such %s", what)
}

// wrapReadError turns the absence of a row into notFound.
func wrapReadError(err error, what string) error {
	if errors.Is(err, db.ErrNoRows) {
		return notFoundError(what)
	}
	if err != nil {
		return fmt.Errorf("read a %s: %w", what, err)
	}
	return nil
}

// conflict is a refusal that the state of records is the reason of, with one of
// the codes of fleet-api.md 5.
func conflict(code, format string, args ...any) *problem.Error {
	e := problem.New(problem.Precondition, format, args...)
	e.Code = code
	return e
}

// alreadyExistsError is the refusal of a second record with what must be unique.
func alreadyExistsError(member string) error {
	e := problem.New(problem.Conflict, "there is one with this %s already", member)
	e.Code, e.Details = "already_exists", map[string]any{"member": member}
	return e
}

// Now returns what time it is for an organization.
func (s *Service) Now(ctx context.Context, q db.Querier, organizationID string) (time.Time, error) {
	a, err := s.orgContext(ctx, q, time.Now(), organizationID)
	return a.now, err
}

// orgContext is what the rules need of an organization.
type orgContext struct {
	id       string
	settings *Settings // must not be changed
	revision int64
	offset   time.Duration // of its clock
	now      time.Time     // as its clock has it, whole microseconds
}

// orgContext returns an organization as it is at a real time.
func (s *Service) orgContext(ctx context.Context, q db.Querier, now time.Time, organizationID string) (orgContext, error) {
	a := orgContext{id: organizationID}
	var stamp, offset int64
	err := q.QueryRow(ctx, "SELECT revision, stamp, clock_offset FROM settings WHERE organization_id = $1", organizationID).Scan(&a.revision, &stamp, &offset)
	if err != nil {
		return a, wrapReadError(err, "fleet")
	}
	a.offset = time.Duration(offset) * time.Microsecond
	a.now = now.UTC().Truncate(time.Microsecond).Add(a.offset)
	a.settings, err = s.settings.get(organizationID, stamp, func(into *Settings) error {
		return q.QueryRow(ctx, "SELECT doc FROM settings WHERE organization_id = $1", organizationID).Scan(db.IntoJSON(into))
	})
	return a, err
}

// entropy is the randomness of ids that come out the same each time.
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
