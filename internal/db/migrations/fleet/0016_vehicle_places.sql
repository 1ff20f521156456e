-- Indexes of vehicles that a report leaves alone; package fleet, list_vehicle.go.
--
-- A cell changes with every report of a moving vehicle, and SQLite rewrites each index with a
-- column that is set. So most indexes have a place instead, a square of some 200 m as the prefix
-- of the cells in it, and a region, the prefix of the place. The program sets them when they
-- change. For a previous version, triggers do on PostgreSQL, and the next start on SQLite.
ALTER TABLE vehicles ADD COLUMN place BIGINT;  -- cell >> 22
ALTER TABLE vehicles ADD COLUMN region BIGINT; -- cell >> 40

DROP INDEX vehicles_region;
DROP INDEX vehicles_region_code;
DROP INDEX vehicles_region_type;
DROP INDEX vehicles_region_form;
DROP INDEX vehicles_region_subaccount;
DROP INDEX vehicles_region_battery;
DROP INDEX vehicles_region_state;
DROP INDEX vehicles_state;
DROP INDEX vehicles_battery;

UPDATE vehicles SET place = cell >> 22, region = cell >> 40 WHERE cell IS NOT NULL;

-- [sqlite]
-- Vehicles that a previous version moved. A trigger would cost a statement journal per report.
CREATE INDEX vehicles_misplaced ON vehicles (organization_id, id) WHERE place IS NOT (cell >> 22);
-- [postgres]
CREATE FUNCTION place_vehicle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	NEW.place := NEW.cell >> 22;
	NEW.region := NEW.cell >> 40;
	RETURN NEW;
END $$;
CREATE TRIGGER vehicles_moved BEFORE UPDATE OF cell ON vehicles FOR EACH ROW
	WHEN (NEW.place IS DISTINCT FROM NEW.cell >> 22) EXECUTE FUNCTION place_vehicle();
CREATE TRIGGER vehicles_placed BEFORE INSERT ON vehicles FOR EACH ROW
	WHEN (NEW.place IS DISTINCT FROM NEW.cell >> 22) EXECUTE FUNCTION place_vehicle();
-- [both]

CREATE INDEX vehicles_state ON vehicles (organization_id, state, id, place);
CREATE INDEX vehicles_battery ON vehicles (organization_id, battery_percent, id, place);
CREATE INDEX vehicles_region ON vehicles (organization_id, region, id, place, state, vehicle_type_id, form_factor, subaccount_id, battery_percent)
	WHERE region IS NOT NULL;
CREATE INDEX vehicles_region_code ON vehicles (organization_id, region, code, id, place) WHERE region IS NOT NULL;
CREATE INDEX vehicles_region_type ON vehicles (organization_id, region, vehicle_type_id);
CREATE INDEX vehicles_region_form ON vehicles (organization_id, region, form_factor);
CREATE INDEX vehicles_region_subaccount ON vehicles (organization_id, region, subaccount_id);
CREATE INDEX vehicles_region_battery ON vehicles (organization_id, region, battery_percent);
CREATE INDEX vehicles_region_state ON vehicles (organization_id, region, state, id, place, vehicle_type_id, form_factor, subaccount_id)
	WHERE region IS NOT NULL AND state NOT IN ('available', 'reserved', 'on_trip');
