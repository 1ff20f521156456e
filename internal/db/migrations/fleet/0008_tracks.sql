-- The reports of vehicles; package fleet.

-- The reports of a vehicle in a quarter of an hour; package internal/fleet/track.
CREATE TABLE tracks (
	organization_id TEXT NOT NULL,
	vehicle_id      TEXT NOT NULL,
	start_at        BIGINT NOT NULL,
	reports         BLOB NOT NULL,
	PRIMARY KEY (organization_id, vehicle_id, start_at)
);
CREATE INDEX tracks_start ON tracks (organization_id, start_at);

-- Trackers with wrong clocks, or that seem to have one.
CREATE TABLE tracker_clocks (
	organization_id TEXT NOT NULL,
	vehicle_id      TEXT NOT NULL,
	ahead           BIGINT NOT NULL, -- milliseconds that are subtracted from times of reports
	seen            BIGINT NOT NULL, -- the milliseconds ahead of the first report of a run of consistent ones
	seen_at         BIGINT NOT NULL, -- when that report came
	seen_count      BIGINT NOT NULL, -- calls of the run
	last_sent_at    BIGINT NOT NULL, -- time of the last report, by the tracker's clock
	PRIMARY KEY (organization_id, vehicle_id)
) WITHOUT ROWID;
