-- Alert rules, and the alerts that they raise for vehicles; package fleet, alert.go.
--
-- alert_stamp is a random one for each change of the enabled rules. NULL: none is enabled.
ALTER TABLE settings ADD COLUMN alert_stamp BIGINT;

-- alert_at is when time may raise or clear an alert next; 0: as soon as possible.
-- idle_from is JSON: since when and where the vehicle stands available. Both are written
-- only while the organization has enabled rules.
ALTER TABLE vehicles ADD COLUMN alert_at BIGINT;
ALTER TABLE vehicles ADD COLUMN idle_from TEXT;
CREATE INDEX vehicles_alert ON vehicles (organization_id, alert_at, id) WHERE alert_at IS NOT NULL;

CREATE TABLE alert_rules (
	organization_id TEXT NOT NULL,
	id              TEXT NOT NULL,
	subaccount_id   TEXT NOT NULL,
	revision        BIGINT NOT NULL,
	external_id     TEXT,
	enabled         BOOLEAN NOT NULL,
	doc             TEXT NOT NULL,
	PRIMARY KEY (organization_id, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX alert_rules_external ON alert_rules (organization_id, subaccount_id, external_id) WHERE external_id IS NOT NULL;

-- Those of deleted rules and vehicles stay.
CREATE TABLE alerts (
	organization_id TEXT NOT NULL,
	id              TEXT NOT NULL,
	subaccount_id   TEXT NOT NULL,
	revision        BIGINT NOT NULL,
	rule_id         TEXT NOT NULL,
	vehicle_id      TEXT NOT NULL,
	state           TEXT NOT NULL,
	updated_at      BIGINT NOT NULL,
	task_id         TEXT,             -- that its rule created
	relay           TEXT,             -- JSON: what the helpdesk has to do; NULL: nothing more
	doc             TEXT NOT NULL,
	PRIMARY KEY (organization_id, id)
);
-- One raised alert per rule and vehicle.
CREATE UNIQUE INDEX alerts_raised ON alerts (organization_id, vehicle_id, rule_id) WHERE state = 'raised';
CREATE INDEX alerts_vehicle ON alerts (organization_id, vehicle_id, id);
CREATE INDEX alerts_rule ON alerts (organization_id, rule_id, id);
CREATE INDEX alerts_state ON alerts (organization_id, state, id);
CREATE INDEX alerts_subaccount ON alerts (organization_id, subaccount_id, id);
CREATE INDEX alerts_relay ON alerts (organization_id, id) WHERE relay IS NOT NULL;
