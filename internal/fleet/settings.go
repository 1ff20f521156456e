package fleet

import (
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// Settings are those of a whole account (fleet-api.md 1.6). Plan and limit are
// the organization's, and not kept here.
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
	UpdatedAt           rfc3339.Time `json:"updated_at"`
}

// SettingsChange is what a PUT changes of them. What is absent stays.
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
}

// Organization is what the fleet is told of one.
type Organization struct {
	ID   string
	Name string
}
