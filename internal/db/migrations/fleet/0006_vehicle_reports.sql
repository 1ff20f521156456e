-- When a vehicle was last seen otherwise than by a report, and when its odometer was
-- last reported; package fleet.
ALTER TABLE vehicles ADD COLUMN seen_at BIGINT;
ALTER TABLE vehicles ADD COLUMN odometer_at BIGINT;
UPDATE vehicles SET odometer_at = last_reported_at;
