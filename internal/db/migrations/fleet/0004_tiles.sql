-- The ride index by start position: the tables of package internal/fleet/rideindex.
-- They can be rebuilt from the rides at any time.

-- Pending rows: closed rides with a start position whose last change is not in a
-- segment yet. With the columns of all filters and sort keys.
CREATE TABLE untiled_rides (
	organization_id  TEXT NOT NULL,
	start_cell       BIGINT NOT NULL,
	id               TEXT NOT NULL,
	revision         BIGINT NOT NULL,
	subaccount_id    TEXT NOT NULL,
	status           TEXT NOT NULL,
	trip_type        TEXT NOT NULL,
	pricing_plan_id  TEXT,
	payment_status   TEXT NOT NULL,
	start_zone_id    TEXT,
	updated_at       BIGINT NOT NULL,
	started_at       BIGINT NOT NULL,
	ended_at         BIGINT NOT NULL,
	total_amount     BIGINT NOT NULL,
	duration_seconds BIGINT NOT NULL,
	PRIMARY KEY (organization_id, start_cell, id)
) WITHOUT ROWID;
INSERT INTO untiled_rides
SELECT organization_id, start_cell, id, revision, subaccount_id, status, trip_type, pricing_plan_id, payment_status, start_zone_id,
	updated_at, started_at, ended_at, total_amount, duration_seconds
FROM rides WHERE start_cell IS NOT NULL AND status NOT IN ('reserved', 'active', 'paused')
ORDER BY organization_id, start_cell, id;

-- Tiles that were made together. A layer is made, read and deleted, never changed.
CREATE TABLE ride_layers (
	organization_id TEXT NOT NULL,
	id              BIGINT NOT NULL, -- a random one
	home            BIGINT NOT NULL, -- 1: it has all rides from its first id to its last, but for those of younger layers
	rides           BIGINT NOT NULL,
	extents         BLOB NOT NULL,   -- of its tiles
	PRIMARY KEY (organization_id, id)
);
CREATE TABLE ride_tiles (
	organization_id TEXT NOT NULL,
	layer_id        BIGINT NOT NULL,
	n               BIGINT NOT NULL, -- from 0 on
	cells           BLOB NOT NULL,
	facts           BLOB NOT NULL,
	ids             BLOB NOT NULL,
	PRIMARY KEY (organization_id, layer_id, n)
);

-- The ride index replaces these.
DROP INDEX rides_cell;
DROP INDEX rides_region;

-- Open rides are few. With the columns of all filters.
CREATE INDEX rides_open_cell ON rides (organization_id, start_cell, id, subaccount_id, status, trip_type, pricing_plan_id, payment_status, start_zone_id,
	updated_at, started_at) WHERE status IN ('active', 'paused') AND start_cell IS NOT NULL;
CREATE INDEX rides_open_id ON rides (organization_id, id, start_cell, subaccount_id, status, trip_type, pricing_plan_id, payment_status, start_zone_id)
	WHERE status IN ('active', 'paused') AND start_cell IS NOT NULL;
CREATE INDEX rides_open_started ON rides (organization_id, started_at, id, start_cell, subaccount_id, status, trip_type, pricing_plan_id, payment_status, start_zone_id)
	WHERE status IN ('active', 'paused') AND start_cell IS NOT NULL;

-- The vehicles of a region by each filter, so that a search for the vehicles of one
-- city does not read all of another.
CREATE INDEX vehicles_region_type ON vehicles (organization_id, (cell >> 40), vehicle_type_id);
CREATE INDEX vehicles_region_form ON vehicles (organization_id, (cell >> 40), form_factor);
CREATE INDEX vehicles_region_subaccount ON vehicles (organization_id, (cell >> 40), subaccount_id);
CREATE INDEX vehicles_region_battery ON vehicles (organization_id, (cell >> 40), battery_percent);
-- Vehicles in other states than these are few in a region, and field staff search
-- for them. With the columns of the other filters.
CREATE INDEX vehicles_region_state ON vehicles (organization_id, (cell >> 40), state, id, cell, vehicle_type_id, form_factor, subaccount_id)
	WHERE cell IS NOT NULL AND state NOT IN ('available', 'reserved', 'on_trip');
-- With all that lists are filtered by.
DROP INDEX vehicles_region;
CREATE INDEX vehicles_region ON vehicles (organization_id, (cell >> 40), id, cell, state, vehicle_type_id, form_factor, subaccount_id, battery_percent)
	WHERE cell IS NOT NULL;
