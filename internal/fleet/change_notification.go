package fleet

import "github.com/kickstand-dev/kickstand/internal/db"

// Kinds of records that [Config.Changed] tells of.
const (
	RideKind       = "ride"
	VehicleKind    = "vehicle"
	CustomerKind   = "customer"
	ZoneKind       = "zone"
	PlanKind       = "plan"
	SubaccountKind = "subaccount"
	SettingsKind   = "settings"
)

// notify tells whoever wants to know that a record has changed, once it has.
func (s *Service) notify(tx *db.Tx, organizationID, kind, id string) {
	if s.changed != nil {
		tx.AfterCommit(func() { s.changed(organizationID, kind, id) })
	}
}
