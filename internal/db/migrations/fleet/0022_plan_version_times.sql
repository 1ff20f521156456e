-- When each version came into force (µs), and whether rides could start with it: rides of apps that were
-- offline have the version of their start; package fleet, plan.go. NULL: a previous version of the program
-- stored it; it counts as in force since ever, and as active.
ALTER TABLE plan_versions ADD COLUMN created_at BIGINT;
ALTER TABLE plan_versions ADD COLUMN active BOOLEAN NOT NULL DEFAULT TRUE;
