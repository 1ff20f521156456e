package webhook

import "github.com/kickstand-dev/kickstand/internal/db"

// Invariants returns the rules of stored deliveries. What remains of deleted webhooks is deleted
// in steps, and is not checked.
func Invariants() []db.Invariant {
	return []db.Invariant{
		{Name: "deliveries have events", Table: "deliveries",
			Broken: `SELECT d.id FROM deliveries d JOIN webhooks w ON w.id = d.webhook_id LEFT JOIN events e ON e.id = d.event_id
				WHERE d.is_test = 0 AND e.id IS NULL
				AND NOT EXISTS (SELECT 1 FROM events s WHERE s.id = substr(d.event_id, 1, 35) || '0' AND s.members IS NOT NULL)
				AND NOT EXISTS (SELECT 1 FROM fleet_events f WHERE f.id = d.event_id)`},
		{Name: "waiting deliveries have jobs", Table: "deliveries",
			Broken: `SELECT d.id FROM deliveries d JOIN webhooks w ON w.id = d.webhook_id LEFT JOIN jobs j ON j.id = d.id
				WHERE d.state < 2 AND d.is_test = 0 AND j.id IS NULL`},
		{Name: "attempts have deliveries", Table: "delivery_attempts",
			Broken: `SELECT a.delivery_id FROM delivery_attempts a JOIN webhooks w ON w.id = a.webhook_id
				LEFT JOIN deliveries d ON d.webhook_id = a.webhook_id AND d.id = a.delivery_id WHERE d.id IS NULL`},
		{Name: "webhooks belong to organizations", Table: "webhooks",
			Broken: "SELECT w.id FROM webhooks w LEFT JOIN organizations o ON o.id = w.organization_id WHERE o.id IS NULL"},
	}
}
