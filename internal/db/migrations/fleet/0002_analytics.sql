-- Columns of rides for analytics, packed; package fleet, analytics_fact.go. They can be
-- rebuilt from the rides at any time. Stored columns agree with the rides.

-- The rides of a period. The periods of an organization and a basis follow one
-- another without gaps, up to the end of the last.
CREATE TABLE ride_facts (
	organization_id TEXT NOT NULL,
	basis           TEXT NOT NULL,   -- started_at or ended_at
	start_at        BIGINT NOT NULL,
	end_at          BIGINT NOT NULL, -- excluded
	stamp           BIGINT NOT NULL, -- a random one whenever the rides may have changed
	runs            BLOB,            -- NULL, as are the others: to be packed
	rides           BLOB,
	money           BLOB,
	times           BLOB,
	PRIMARY KEY (organization_id, basis, start_at)
);
CREATE INDEX ride_facts_unpacked ON ride_facts (organization_id, basis, start_at) WHERE runs IS NULL;

-- The numbers that stand for ids there, from 0 on for each kind.
CREATE TABLE ride_fact_names (
	organization_id TEXT NOT NULL,
	kind            TEXT NOT NULL,   -- customer, vehicle or group
	name            TEXT NOT NULL,
	n               BIGINT NOT NULL,
	PRIMARY KEY (organization_id, kind, name)
) WITHOUT ROWID;
CREATE UNIQUE INDEX ride_fact_names_n ON ride_fact_names (organization_id, kind, n);
