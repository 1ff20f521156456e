-- Indexes alone answer searches by place.
--
-- A cell is an exact position. It shows whether a record is in a box, so latitude
-- and longitude need no columns. The columns of rides stay, unused: dropping
-- columns of a large table rewrites all of it.

DROP INDEX vehicles_cell;
ALTER TABLE vehicles DROP COLUMN lat;
ALTER TABLE vehicles DROP COLUMN lng;
-- With all that a list is filtered and sorted by.
CREATE INDEX vehicles_cell ON vehicles (organization_id, cell, id, state, vehicle_type_id, form_factor, subaccount_id,
	battery_percent, last_reported_at, updated_at, code) WHERE cell IS NOT NULL;
-- Ids and codes in one region, a part of the earth about a degree wide, so that
-- those of other cities are not passed; and with the cell, so that a walk past
-- those elsewhere reads nothing else. Package geo, morton.go.
CREATE INDEX vehicles_region ON vehicles (organization_id, (cell >> 40), id, cell) WHERE cell IS NOT NULL;
CREATE INDEX vehicles_region_code ON vehicles (organization_id, (cell >> 40), code, id, cell) WHERE cell IS NOT NULL;
DROP INDEX vehicles_state;
DROP INDEX vehicles_battery;
DROP INDEX vehicles_reported;
DROP INDEX vehicles_updated;
CREATE INDEX vehicles_state ON vehicles (organization_id, state, id, cell);
CREATE INDEX vehicles_battery ON vehicles (organization_id, battery_percent, id, cell);
CREATE INDEX vehicles_reported ON vehicles (organization_id, last_reported_at, id, cell);
CREATE INDEX vehicles_updated ON vehicles (organization_id, updated_at, id, cell);

DROP INDEX rides_cell;
CREATE INDEX rides_cell ON rides (organization_id, start_cell, id) WHERE start_cell IS NOT NULL;
CREATE INDEX rides_region ON rides (organization_id, (start_cell >> 40), id, start_cell) WHERE start_cell IS NOT NULL;
DROP INDEX rides_status;
CREATE INDEX rides_status ON rides (organization_id, status, id, start_cell) WHERE status <> 'completed';
-- Nothing is due before the end, and most lists ask for what comes then.
DROP INDEX rides_payment;
CREATE INDEX rides_payment ON rides (organization_id, payment_status, id, start_cell) WHERE payment_status <> 'not_due';
