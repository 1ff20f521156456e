package fleet

import "github.com/kickstand-dev/kickstand/internal/db"

// Invariants returns the rules of the stored records of an environment.
func Invariants() []db.Invariant {
	const open = "status IN ('reserved', 'active', 'paused')"
	return []db.Invariant{
		{Name: "events are numbered up to their log", Table: "events",
			Broken: `SELECT e.id FROM events e LEFT JOIN event_logs l ON l.organization_id = e.organization_id WHERE l.sequence IS NULL OR e.sequence > l.sequence`},
		{Name: "vehicles have at most one open ride", Table: "rides",
			Broken: "SELECT vehicle_id FROM rides WHERE " + open + " GROUP BY organization_id, vehicle_id HAVING count(*) > 1"},
		{Name: "customers have at most one open ride", Table: "rides",
			Broken: "SELECT customer_id FROM rides WHERE " + open + " AND customer_id IS NOT NULL GROUP BY organization_id, customer_id HAVING count(*) > 1"},
		{Name: "open rides have vehicles", Table: "rides",
			Broken: `SELECT r.id FROM rides r LEFT JOIN vehicles v ON v.organization_id = r.organization_id AND v.id = r.vehicle_id
				WHERE r.` + open + ` AND v.id IS NULL`},
		{Name: "vehicles are in subaccounts", Table: "vehicles",
			Broken: "SELECT v.id FROM vehicles v LEFT JOIN subaccounts s ON s.organization_id = v.organization_id AND s.id = v.subaccount_id WHERE s.id IS NULL"},
		{Name: "rides are in subaccounts", Table: "rides",
			Broken: "SELECT r.id FROM rides r LEFT JOIN subaccounts s ON s.organization_id = r.organization_id AND s.id = r.subaccount_id WHERE s.id IS NULL"},
		{Name: "zones are in subaccounts", Table: "zones",
			Broken: "SELECT z.id FROM zones z LEFT JOIN subaccounts s ON s.organization_id = z.organization_id AND s.id = z.subaccount_id WHERE s.id IS NULL"},
		{Name: "alert rules are in subaccounts", Table: "alert_rules",
			Broken: "SELECT r.id FROM alert_rules r LEFT JOIN subaccounts s ON s.organization_id = r.organization_id AND s.id = r.subaccount_id WHERE s.id IS NULL"},
		{Name: "raised alerts have vehicles and enabled rules", Table: "alerts",
			Broken: `SELECT l.id FROM alerts l LEFT JOIN vehicles v ON v.organization_id = l.organization_id AND v.id = l.vehicle_id
				LEFT JOIN alert_rules r ON r.organization_id = l.organization_id AND r.id = l.rule_id AND r.enabled
				WHERE l.state = 'raised' AND (v.id IS NULL OR r.id IS NULL)`},
		{Name: "vehicles know their tasks", Table: "vehicles",
			Broken: `SELECT v.id FROM vehicles v WHERE v.out_tasks <> (SELECT count(*) FROM tasks t WHERE t.organization_id = v.organization_id AND t.vehicle_id = v.id AND t.out_of_service)`},
		{Name: "tasks are in subaccounts", Table: "tasks",
			Broken: "SELECT t.id FROM tasks t LEFT JOIN subaccounts s ON s.organization_id = t.organization_id AND s.id = t.subaccount_id WHERE s.id IS NULL"},
		{Name: "open tasks have vehicles", Table: "tasks",
			Broken: `SELECT t.id FROM tasks t LEFT JOIN vehicles v ON v.organization_id = t.organization_id AND v.id = t.vehicle_id
				WHERE t.state IN ('open', 'in_progress') AND v.id IS NULL`},
		{Name: "pictures belong to tasks", Table: "task_photos",
			Broken: "SELECT p.id FROM task_photos p LEFT JOIN tasks t ON t.organization_id = p.organization_id AND t.id = p.task_id WHERE t.id IS NULL"},
		{Name: "plans have their prices", Table: "plans",
			Broken: `SELECT p.id FROM plans p LEFT JOIN plan_versions v ON v.organization_id = p.organization_id AND v.plan_id = p.id AND v.version = p.version
				WHERE v.plan_id IS NULL`},
	}
}
