-- The types of deleted vehicles, whose time counts in past figures; package fleet, vehicle_use.go. A
-- previous version does not write the column, and vehicles deleted before have none: then the type is
-- that of the last ride, if there was one.
ALTER TABLE deleted_vehicles ADD COLUMN vehicle_type_id TEXT;
UPDATE deleted_vehicles SET vehicle_type_id = (SELECT r.vehicle_type_id FROM rides r WHERE r.organization_id = deleted_vehicles.organization_id
	AND r.vehicle_id = deleted_vehicles.id ORDER BY r.id DESC LIMIT 1);
