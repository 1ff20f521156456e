-- Secrets in the addresses to which trackers report; package fleet.
CREATE TABLE trackers (
	digest          BLOB PRIMARY KEY, -- SHA-256 of the secret
	organization_id TEXT NOT NULL,
	vehicle_id      TEXT NOT NULL,
	created_at      BIGINT NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX trackers_vehicle ON trackers (organization_id, vehicle_id);
