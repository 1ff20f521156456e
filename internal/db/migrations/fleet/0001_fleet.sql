-- The fleet of many organizations in one environment; package fleet.
--
-- A record is a document: the JSON that answers show, in doc. Beside it are the
-- members that something is found, sorted or limited by, and what is not shown.
-- ids are prefixed ULIDs of the moment in created_at, so the order of ids is that
-- of creation. Times are microseconds, as that organization's clock has them.
--
-- Tables of many records with documents have rowids: a document does not fit into
-- a page of a key's tree, where each would have a page of its own beside it.

CREATE TABLE settings (
	organization_id TEXT PRIMARY KEY,
	revision        BIGINT NOT NULL,
	stamp           BIGINT NOT NULL, -- a random one for each change, by which copies in memory are known
	clock_offset    BIGINT NOT NULL, -- of the sandbox's clock, ahead of the real one
	doc             TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE subaccounts (
	organization_id TEXT NOT NULL,
	id              TEXT NOT NULL,
	revision        BIGINT NOT NULL,
	stamp           BIGINT NOT NULL, -- a random one for each change, of its zones too
	external_id     TEXT,
	system_id       TEXT,            -- of the public feed, when it is enabled
	doc             TEXT NOT NULL,
	PRIMARY KEY (organization_id, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX subaccounts_external ON subaccounts (organization_id, external_id) WHERE external_id IS NOT NULL;
CREATE UNIQUE INDEX subaccounts_system ON subaccounts (system_id) WHERE system_id IS NOT NULL;

CREATE TABLE plans (
	organization_id TEXT NOT NULL,
	id              TEXT NOT NULL,
	subaccount_id   TEXT NOT NULL,
	revision        BIGINT NOT NULL,
	stamp           BIGINT NOT NULL, -- a random one for each change
	version         BIGINT NOT NULL, -- the present one
	external_id     TEXT,
	doc             TEXT NOT NULL,
	PRIMARY KEY (organization_id, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX plans_external ON plans (organization_id, subaccount_id, external_id) WHERE external_id IS NOT NULL;

-- What a plan charged in each of its versions; never changed.
CREATE TABLE plan_versions (
	organization_id TEXT NOT NULL,
	plan_id         TEXT NOT NULL,
	version         BIGINT NOT NULL,
	tariff          TEXT NOT NULL, -- JSON
	PRIMARY KEY (organization_id, plan_id, version)
) WITHOUT ROWID;

CREATE TABLE customers (
	organization_id TEXT NOT NULL,
	id              TEXT NOT NULL,
	subaccount_id   TEXT NOT NULL,
	revision        BIGINT NOT NULL,
	external_id     TEXT,
	status          TEXT NOT NULL,
	email           TEXT,            -- in lower case
	phone           TEXT,
	name            TEXT,
	last_ride_at    BIGINT,
	updated_at      BIGINT NOT NULL,
	doc             TEXT NOT NULL,
	PRIMARY KEY (organization_id, id)
);
CREATE UNIQUE INDEX customers_external ON customers (organization_id, external_id, subaccount_id) WHERE external_id IS NOT NULL;
CREATE INDEX customers_subaccount ON customers (organization_id, subaccount_id, id);
CREATE INDEX customers_email ON customers (organization_id, email, id) WHERE email IS NOT NULL;
CREATE INDEX customers_phone ON customers (organization_id, phone, id) WHERE phone IS NOT NULL;
CREATE INDEX customers_name ON customers (organization_id, name, id);
CREATE INDEX customers_updated ON customers (organization_id, updated_at, id);
CREATE INDEX customers_last_ride ON customers (organization_id, last_ride_at, id);
CREATE INDEX customers_odd ON customers (organization_id, status, id) WHERE status <> 'active';

CREATE TABLE vehicles (
	organization_id  TEXT NOT NULL,
	id               TEXT NOT NULL,
	subaccount_id    TEXT NOT NULL,
	revision         BIGINT NOT NULL,
	external_id      TEXT,
	code             TEXT NOT NULL,   -- in lower case
	device_id        TEXT,
	vehicle_type_id  TEXT NOT NULL,
	form_factor      TEXT NOT NULL,
	state            TEXT NOT NULL,
	former_state     TEXT,            -- of one that is out of contact
	former_event     TEXT,            -- the last one then; stays when contact is back
	battery_percent  BIGINT,
	last_reported_at BIGINT,
	lat              BIGINT,          -- millionths of a degree
	lng              BIGINT,
	cell             BIGINT,          -- where that is, near things being near; package geo, morton.go
	due_at           BIGINT,          -- when time changes its state next
	updated_at       BIGINT NOT NULL,
	doc              TEXT NOT NULL,
	PRIMARY KEY (organization_id, id)
);
CREATE UNIQUE INDEX vehicles_code ON vehicles (organization_id, code);
CREATE UNIQUE INDEX vehicles_device ON vehicles (organization_id, device_id) WHERE device_id IS NOT NULL;
CREATE UNIQUE INDEX vehicles_external ON vehicles (organization_id, external_id, subaccount_id) WHERE external_id IS NOT NULL;
CREATE INDEX vehicles_subaccount ON vehicles (organization_id, subaccount_id, id);
CREATE INDEX vehicles_type ON vehicles (organization_id, vehicle_type_id, id);
CREATE INDEX vehicles_form ON vehicles (organization_id, form_factor, id);
CREATE INDEX vehicles_state ON vehicles (organization_id, state, id);
CREATE INDEX vehicles_cell ON vehicles (organization_id, cell, lat, lng, id) WHERE cell IS NOT NULL;
CREATE INDEX vehicles_battery ON vehicles (organization_id, battery_percent, id);
CREATE INDEX vehicles_reported ON vehicles (organization_id, last_reported_at, id);
CREATE INDEX vehicles_updated ON vehicles (organization_id, updated_at, id);
CREATE INDEX vehicles_due ON vehicles (organization_id, due_at, id) WHERE due_at IS NOT NULL;

-- What rides still name; the record itself is gone.
CREATE TABLE deleted_vehicles (
	organization_id TEXT NOT NULL,
	id              TEXT NOT NULL,
	subaccount_id   TEXT NOT NULL,
	code            TEXT NOT NULL,
	PRIMARY KEY (organization_id, id)
) WITHOUT ROWID;

-- Every change of a vehicle's state. That of a deleted one stays.
CREATE TABLE vehicle_events (
	organization_id TEXT NOT NULL,
	vehicle_id      TEXT NOT NULL,
	id              TEXT NOT NULL,
	doc             TEXT NOT NULL,
	PRIMARY KEY (organization_id, vehicle_id, id)
) WITHOUT ROWID;

CREATE TABLE rides (
	organization_id    TEXT NOT NULL,
	id                 TEXT NOT NULL,
	subaccount_id      TEXT NOT NULL,
	revision           BIGINT NOT NULL,
	external_id        TEXT,
	status             TEXT NOT NULL,
	trip_type          TEXT NOT NULL,
	customer_id        TEXT,
	vehicle_id         TEXT NOT NULL,
	vehicle_type_id    TEXT NOT NULL, -- of the vehicle, when it began
	pricing_plan_id    TEXT,
	payment_status     TEXT NOT NULL,
	start_zone_id      TEXT,
	start_lat          BIGINT,        -- millionths of a degree
	start_lng          BIGINT,
	start_cell         BIGINT,
	reserved_at        BIGINT,
	started_at         BIGINT,
	ended_at           BIGINT,
	paused_at          BIGINT,        -- when the pause began that it is in
	due_at             BIGINT,        -- when it expires, or has lasted too long
	start_odometer     BIGINT,        -- meters
	total_amount       BIGINT,        -- NULL while it is open
	duration_seconds   BIGINT,        -- NULL while it is open
	updated_at         BIGINT NOT NULL,
	doc                TEXT NOT NULL,
	PRIMARY KEY (organization_id, id)
);
CREATE UNIQUE INDEX rides_external ON rides (organization_id, external_id, subaccount_id) WHERE external_id IS NOT NULL;
-- One open ride per vehicle and per customer.
CREATE UNIQUE INDEX rides_open_vehicle ON rides (organization_id, vehicle_id) WHERE status IN ('reserved', 'active', 'paused');
CREATE UNIQUE INDEX rides_open_customer ON rides (organization_id, customer_id) WHERE status IN ('reserved', 'active', 'paused') AND customer_id IS NOT NULL;
CREATE INDEX rides_due ON rides (organization_id, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX rides_customer ON rides (organization_id, customer_id, id) WHERE customer_id IS NOT NULL;
CREATE INDEX rides_vehicle ON rides (organization_id, vehicle_id, id);
CREATE INDEX rides_subaccount ON rides (organization_id, subaccount_id, id);
CREATE INDEX rides_zone ON rides (organization_id, start_zone_id, id) WHERE start_zone_id IS NOT NULL;
CREATE INDEX rides_plan ON rides (organization_id, pricing_plan_id, id) WHERE pricing_plan_id IS NOT NULL;
CREATE INDEX rides_payment ON rides (organization_id, payment_status, id);
CREATE INDEX rides_status ON rides (organization_id, status, id) WHERE status <> 'completed';
CREATE INDEX rides_trip ON rides (organization_id, trip_type, id) WHERE trip_type <> 'rider';
CREATE INDEX rides_cell ON rides (organization_id, start_cell, start_lat, start_lng, id) WHERE start_cell IS NOT NULL;
-- What rides are sorted by; with where they began, so that a walk past those
-- elsewhere reads nothing else.
CREATE INDEX rides_updated ON rides (organization_id, updated_at, id, start_cell);
CREATE INDEX rides_started ON rides (organization_id, started_at, id, start_cell) WHERE started_at IS NOT NULL;
CREATE INDEX rides_never_started ON rides (organization_id, reserved_at, id) WHERE started_at IS NULL;
CREATE INDEX rides_ended ON rides (organization_id, ended_at, id, start_cell) WHERE ended_at IS NOT NULL;
CREATE INDEX rides_total ON rides (organization_id, total_amount, id, start_cell) WHERE total_amount IS NOT NULL;
CREATE INDEX rides_duration ON rides (organization_id, duration_seconds, id, start_cell) WHERE duration_seconds IS NOT NULL;

CREATE TABLE zones (
	organization_id TEXT NOT NULL,
	id              TEXT NOT NULL,
	subaccount_id   TEXT NOT NULL,
	revision        BIGINT NOT NULL,
	stamp           BIGINT NOT NULL, -- a random one for each change
	external_id     TEXT,
	type            TEXT NOT NULL,
	name            TEXT NOT NULL,
	priority        BIGINT NOT NULL,
	starts_at       BIGINT,
	ends_at         BIGINT,
	min_lng         DOUBLE PRECISION NOT NULL, -- its bounds
	min_lat         DOUBLE PRECISION NOT NULL,
	max_lng         DOUBLE PRECISION NOT NULL,
	max_lat         DOUBLE PRECISION NOT NULL,
	doc             TEXT NOT NULL,
	PRIMARY KEY (organization_id, id)
);
CREATE UNIQUE INDEX zones_external ON zones (organization_id, subaccount_id, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX zones_subaccount ON zones (organization_id, subaccount_id, min_lng, max_lng, min_lat, max_lat, id);
CREATE INDEX zones_stamp ON zones (organization_id, subaccount_id, id, stamp);
CREATE INDEX zones_priority ON zones (organization_id, priority, id);
CREATE INDEX zones_name ON zones (organization_id, name, id);

-- As in the helpdesk's database; package rest.
CREATE TABLE idempotency_keys (
	organization_id TEXT NOT NULL,
	key             TEXT NOT NULL,
	fingerprint     BLOB NOT NULL,
	status          INTEGER NOT NULL,
	body            BLOB NOT NULL,
	location        TEXT NOT NULL,
	etag            TEXT NOT NULL,
	expires_at      BIGINT NOT NULL,
	subaccount_id   TEXT NOT NULL DEFAULT '',
	PRIMARY KEY (organization_id, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);

-- What was done here, in the transaction that did it; package apikey.
CREATE TABLE audit_log (
	id              TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	service         TEXT NOT NULL,
	environment     TEXT NOT NULL,
	at              BIGINT NOT NULL,
	action          TEXT NOT NULL,
	actor           TEXT NOT NULL,
	target_id       TEXT NOT NULL,
	target          TEXT NOT NULL,
	ip              TEXT NOT NULL,
	user_agent      TEXT NOT NULL,
	request_id      TEXT NOT NULL,
	changes         TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX audit_log_organization ON audit_log (organization_id, id);
CREATE INDEX audit_log_service ON audit_log (organization_id, service, id);
CREATE INDEX audit_log_target ON audit_log (target_id, id);
