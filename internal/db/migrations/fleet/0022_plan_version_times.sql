-- When each version came into force (µs), and whether rides could start with it: rides of apps that were
-- offline have the version of their start; package fleet, plan.go. NULL: a previous version of the program
-- stored it; it counts as if it had always been in force, and a replaced one as active.
ALTER TABLE plan_versions ADD COLUMN created_at BIGINT;
ALTER TABLE plan_versions ADD COLUMN active BOOLEAN NOT NULL DEFAULT TRUE;
UPDATE plan_versions SET active = FALSE WHERE EXISTS (SELECT 1 FROM plans p WHERE p.organization_id = plan_versions.organization_id
	AND p.id = plan_versions.plan_id AND p.version = plan_versions.version AND p.doc LIKE '%"active":false%');
