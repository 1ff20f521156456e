-- Reads for agencies, by area and time; package fleet, mds.go. The time of a state
-- change is part of its id.
CREATE INDEX subaccounts_id ON subaccounts (id);
CREATE INDEX vehicle_events_time ON vehicle_events (organization_id, id);
