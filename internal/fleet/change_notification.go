package fleet

import "github.com/kickstand-dev/kickstand/internal/db"

// Kinds of records, as passed to [Config.Changed].
const (
	RideKind       = "ride"
	VehicleKind    = "vehicle"
	CustomerKind   = "customer"
	ZoneKind       = "zone"
	PlanKind       = "plan"
	SubaccountKind = "subaccount"
	SettingsKind   = "settings"
	// AlertRecordKind is the kind of alerts, and with an empty id of alert rules.
	AlertRecordKind = "alert"
	TaskKind        = "task"
)

// notify calls Config.Changed after the transaction commits.
func (s *Service) notify(tx *db.Tx, organizationID, kind, id string) {
	if s.changed != nil {
		tx.AfterCommit(func() { s.changed(organizationID, kind, id) })
	}
}
