package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// Settings are an organization's fleet settings (fleet-api.md 1.6). Billing plan
// and rate limit are stored with the organization.
type Settings struct {
	Name                string       `json:"name"`
	TimeZone            string       `json:"timezone"`
	DefaultLanguage     string       `json:"default_language"`
	LowBatteryPercent   int64        `json:"low_battery_percent"`
	BatteryReadyPercent int64        `json:"battery_ready_percent"`
	MaxRideMinutes      int64        `json:"max_ride_minutes"`
	CancelGraceSeconds  int64        `json:"cancel_grace_seconds"`
	CancelGraceMeters   int64        `json:"cancel_grace_meters"`
	ContactLostMinutes  int64        `json:"contact_lost_minutes"`
	MissingAfterHours   int64        `json:"missing_after_hours"`
	TrackRetentionDays  int64        `json:"track_retention_days"`
	OfflineRideHours    int64        `json:"offline_ride_hours"`
	AlertRetentionDays  int64        `json:"alert_retention_days"`
	UpdatedAt           rfc3339.Time `json:"updated_at"`
}

// Defaults of settings that older versions do not store.
const (
	defaultTrackRetentionDays = 90
	defaultOfflineRideHours   = 24
	defaultAlertRetentionDays = 730
)

// maxOfflineRideHours is the greatest value of [Settings.OfflineRideHours].
const maxOfflineRideHours = 31 * 24

// UnmarshalJSON implements [json.Unmarshaler]. Settings that an older version stored have the
// defaults of newer fields.
func (t *Settings) UnmarshalJSON(text []byte) error {
	type plain Settings
	*t = Settings{TrackRetentionDays: defaultTrackRetentionDays, OfflineRideHours: defaultOfflineRideHours, AlertRetentionDays: defaultAlertRetentionDays}
	return json.Unmarshal(text, (*plain)(t))
}

// SettingsChange has the fields that a PUT sets. Absent fields remain.
type SettingsChange struct {
	Name                optional.Value[string] `json:"name"`
	TimeZone            optional.Value[string] `json:"timezone"`
	DefaultLanguage     optional.Value[string] `json:"default_language"`
	LowBatteryPercent   optional.Value[int64]  `json:"low_battery_percent"`
	BatteryReadyPercent optional.Value[int64]  `json:"battery_ready_percent"`
	MaxRideMinutes      optional.Value[int64]  `json:"max_ride_minutes"`
	CancelGraceSeconds  optional.Value[int64]  `json:"cancel_grace_seconds"`
	CancelGraceMeters   optional.Value[int64]  `json:"cancel_grace_meters"`
	ContactLostMinutes  optional.Value[int64]  `json:"contact_lost_minutes"`
	MissingAfterHours   optional.Value[int64]  `json:"missing_after_hours"`
	TrackRetentionDays  optional.Value[int64]  `json:"track_retention_days"`
	OfflineRideHours    optional.Value[int64]  `json:"offline_ride_hours"`
	AlertRetentionDays  optional.Value[int64]  `json:"alert_retention_days"`
}

// Organization has the properties of an organization that the fleet uses.
type Organization struct {
	ID   string
	Name string
}

// defaultSettings are the settings of a new organization.
func defaultSettings(o Organization, now time.Time) Settings {
	return Settings{
		Name: nameOf(o), TimeZone: "UTC", DefaultLanguage: "en",
		LowBatteryPercent: 15, BatteryReadyPercent: 30, MaxRideMinutes: 1440, CancelGraceSeconds: 60, CancelGraceMeters: 50,
		ContactLostMinutes: 30, MissingAfterHours: 72,
		TrackRetentionDays: defaultTrackRetentionDays, OfflineRideHours: defaultOfflineRideHours, AlertRetentionDays: defaultAlertRetentionDays,
		UpdatedAt: rfc3339.Time(now.Truncate(time.Millisecond)),
	}
}

// nameOf returns the organization's name, or a default, for the name of a record.
func nameOf(o Organization) string {
	var v problem.Validation
	name := strings.TrimSpace(o.Name)
	if checkLine(&v, "name", name, maxName); v.Err() != nil {
		return o.ID
	}
	return name
}

// createSettings creates an organization's settings. It returns false if they
// exist.
func (s *Service) createSettings(ctx context.Context, tx *db.Tx, o Organization) (bool, error) {
	doc, err := encode(defaultSettings(o, tx.Now))
	if err != nil {
		return false, err
	}
	n, err := tx.Exec(ctx, "INSERT INTO settings (organization_id, revision, stamp, clock_offset, doc) VALUES ($1, 1, $2, 0, $3) ON CONFLICT DO NOTHING",
		o.ID, newStamp(), string(doc))
	if err != nil {
		return false, fmt.Errorf("insert the settings: %w", err)
	}
	return n > 0, nil
}

// Settings returns an organization's settings and their revision. Error: NotFound.
func (s *Service) Settings(ctx context.Context, q db.Querier, organizationID string) (Settings, int64, error) {
	return readSettings(ctx, q, organizationID, "")
}

// LockSettingsTx is Settings with a lock, for an update in the same transaction.
func (s *Service) LockSettingsTx(ctx context.Context, tx *db.Tx, organizationID string) (Settings, int64, error) {
	return readSettings(ctx, tx, organizationID, " FOR UPDATE")
}

func readSettings(ctx context.Context, q db.Querier, organizationID, lock string) (settings Settings, revision int64, err error) {
	err = q.QueryRow(ctx, "SELECT revision, doc FROM settings WHERE organization_id = $1"+lock, organizationID).Scan(&revision, db.IntoJSON(&settings))
	return settings, revision, wrapReadError(err, "fleet")
}

// UpdateSettingsTx updates settings in the caller's transaction and returns them with
// their revision. An update without a difference creates no revision. Changed
// limits apply to due times (the end of a ride, a vehicle's silence), which never
// move to before now. Errors: Invalid.
func (s *Service) UpdateSettingsTx(ctx context.Context, tx *db.Tx, organizationID string, c SettingsChange) (Settings, int64, error) {
	before, revision, err := s.LockSettingsTx(ctx, tx, organizationID)
	if err != nil {
		return Settings{}, 0, err
	}
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return Settings{}, 0, err
	}
	after := before
	c.Name.Into(&after.Name)
	c.TimeZone.Into(&after.TimeZone)
	c.DefaultLanguage.Into(&after.DefaultLanguage)
	c.LowBatteryPercent.Into(&after.LowBatteryPercent)
	c.BatteryReadyPercent.Into(&after.BatteryReadyPercent)
	c.MaxRideMinutes.Into(&after.MaxRideMinutes)
	c.CancelGraceSeconds.Into(&after.CancelGraceSeconds)
	c.CancelGraceMeters.Into(&after.CancelGraceMeters)
	c.ContactLostMinutes.Into(&after.ContactLostMinutes)
	c.MissingAfterHours.Into(&after.MissingAfterHours)
	c.TrackRetentionDays.Into(&after.TrackRetentionDays)
	c.OfflineRideHours.Into(&after.OfflineRideHours)
	c.AlertRetentionDays.Into(&after.AlertRetentionDays)
	var v problem.Validation
	after.check(&v)
	if after.MaxRideMinutes > before.MaxRideMinutes && !v.Has("max_ride_minutes") {
		if err := s.checkTariffs(ctx, tx, &v, organizationID, after.MaxRideMinutes); err != nil {
			return Settings{}, 0, err
		}
	}
	if err := v.Err(); err != nil {
		return Settings{}, 0, err
	}
	if after == before {
		return before, revision, nil
	}
	after.UpdatedAt = nextUpdatedAt(before.UpdatedAt, a.now)
	doc, err := encode(after)
	if err != nil {
		return Settings{}, 0, err
	}
	revision++
	if err := tx.Queue(ctx, "UPDATE settings SET revision = $2, stamp = $3, doc = $4 WHERE organization_id = $1", organizationID, revision, newStamp(), string(doc)); err != nil {
		return Settings{}, 0, fmt.Errorf("update the settings: %w", err)
	}
	s.notify(tx, organizationID, SettingsKind, "")
	if err := s.recordChange(ctx, tx, organizationID, SettingsUpdated, audit.Target{Type: "settings", Name: after.Name}, before, after); err != nil {
		return Settings{}, 0, err
	}
	return after, revision, s.rescheduleTimers(ctx, tx, a, before, after)
}

// lastSeen is the time of a vehicle's last report or sighting.
const lastSeen = "(CASE WHEN seen_at > last_reported_at THEN seen_at ELSE last_reported_at END)"

// rescheduleTimers moves due times by the changed settings. Times already due
// remain, even if not yet applied.
func (s *Service) rescheduleTimers(ctx context.Context, tx *db.Tx, a orgContext, before, after Settings) error {
	const due = "SET due_at = CASE WHEN %[1]s + $2 < $3 THEN $3 ELSE %[1]s + $2 END WHERE organization_id = $1 AND due_at > $3 AND %[2]s"
	move := func(table, since, which string, by time.Duration) error {
		_, err := tx.Exec(ctx, "UPDATE "+table+" "+fmt.Sprintf(due, since, which), a.id, by.Microseconds(), a.now.UnixMicro())
		if err != nil {
			return fmt.Errorf("reschedule %s: %w", table, err)
		}
		return nil
	}
	if after.MaxRideMinutes != before.MaxRideMinutes {
		if err := move("rides", "started_at", "status IN ('active', 'paused')", time.Duration(after.MaxRideMinutes)*time.Minute); err != nil {
			return err
		}
		if err := rescheduleLateRides(ctx, tx, a, &before, &after); err != nil {
			return err
		}
	}
	if after.ContactLostMinutes != before.ContactLostMinutes {
		if err := move("vehicles", lastSeen, "state IN ('available', 'reserved', 'on_trip', 'non_operational')", time.Duration(after.ContactLostMinutes)*time.Minute); err != nil {
			return err
		}
	}
	if after.MissingAfterHours != before.MissingAfterHours {
		return move("vehicles", lastSeen, "state = 'non_contactable'", time.Duration(after.MissingAfterHours)*time.Hour)
	}
	return nil
}

// rescheduleLateRides moves the due times of rides that apps have created late and that were longer than
// permitted before the change, which can be ended for a while by [Ride.due].
func rescheduleLateRides(ctx context.Context, tx *db.Tx, a orgContext, before, after *Settings) error {
	list, err := db.All(ctx, tx, func(row db.Row) (r Ride, err error) {
		var start time.Time
		if err := row.Scan(&r.ID, &r.Status, db.IntoTime(&start)); err != nil {
			return r, err
		}
		created, err := idTime(r.ID)
		r.StartedAt, r.CreatedAt = rfc3339.Time(start), rfc3339.Time(created)
		return r, err
	}, "SELECT id, status, started_at FROM rides WHERE organization_id = $1 AND id >= $2 AND status IN ('active', 'paused')", a.id, idsFrom(ridePrefix, a.now.Add(-offlineGrace)))
	if err != nil {
		return fmt.Errorf("list the last rides: %w", err)
	}
	for _, r := range list {
		if !r.backdated() || !r.due(before).Equal(r.CreatedAt.Std().Add(offlineGrace)) {
			continue
		}
		if err := tx.Queue(ctx, "UPDATE rides SET due_at = $3 WHERE organization_id = $1 AND id = $2 AND status IN ('active', 'paused')", a.id, r.ID, db.Time(r.due(after))); err != nil {
			return fmt.Errorf("reschedule a ride: %w", err)
		}
	}
	return nil
}

// check adds issues of the settings and normalizes them.
func (t *Settings) check(v *problem.Validation) {
	checkLine(v, "name", t.Name, maxName)
	checkTimeZone(v, "timezone", t.TimeZone)
	t.DefaultLanguage = normalLanguage(v, "default_language", t.DefaultLanguage)
	checkRange(v, "low_battery_percent", t.LowBatteryPercent, 0, 100)
	checkRange(v, "battery_ready_percent", t.BatteryReadyPercent, 0, 100)
	if t.BatteryReadyPercent < t.LowBatteryPercent && !v.Has("battery_ready_percent") && !v.Has("low_battery_percent") {
		v.AddCode("too_small", "battery_ready_percent", "must not be below low_battery_percent, %d", t.LowBatteryPercent)
	}
	checkRange(v, "max_ride_minutes", t.MaxRideMinutes, 1, 366*24*60)
	checkRange(v, "cancel_grace_seconds", t.CancelGraceSeconds, 0, 24*60*60)
	checkRange(v, "cancel_grace_meters", t.CancelGraceMeters, 0, 100_000)
	checkRange(v, "contact_lost_minutes", t.ContactLostMinutes, 1, 366*24*60)
	checkRange(v, "missing_after_hours", t.MissingAfterHours, 1, 366*24)
	checkRange(v, "track_retention_days", t.TrackRetentionDays, 1, 10*366)
	checkRange(v, "offline_ride_hours", t.OfflineRideHours, 0, maxOfflineRideHours)
	checkRange(v, "alert_retention_days", t.AlertRetentionDays, 1, 10*366)
	if t.MissingAfterHours*60 < t.ContactLostMinutes && !v.Has("missing_after_hours") && !v.Has("contact_lost_minutes") {
		v.AddCode("too_small", "missing_after_hours", "must not be shorter than contact_lost_minutes, %d", t.ContactLostMinutes)
	}
}
