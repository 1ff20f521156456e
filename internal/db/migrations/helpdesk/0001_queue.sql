-- Durable work in lanes; package queue.
CREATE TABLE jobs (
	id          TEXT PRIMARY KEY,
	kind        TEXT NOT NULL,
	lane        TEXT NOT NULL,
	state       BIGINT NOT NULL,           -- 0 ready, 1 scheduled, 2 leased
	payload     BLOB NOT NULL,
	run_at      BIGINT NOT NULL,           -- scheduled: when it becomes ready
	attempt     BIGINT NOT NULL DEFAULT 0, -- failed attempts so far
	lease       TEXT,                      -- leased: whose, a token of that claim
	lease_until BIGINT,
	created_at  BIGINT NOT NULL
) WITHOUT ROWID;
-- One index answers all the questions of a claim: the lanes with ready jobs
-- (walked lane by lane), a lane's first ready jobs, and how many it has leased.
-- The few leased jobs are also looked through for leases that have ended, which
-- leaves lease_until without an index that every extension would have to move.
CREATE INDEX jobs_walk ON jobs (kind, state, lane, id);
CREATE INDEX jobs_due ON jobs (kind, run_at) WHERE state = 1;

-- Lanes that are held: their jobs stay where they are.
CREATE TABLE held_lanes (
	kind TEXT NOT NULL,
	lane TEXT NOT NULL,
	PRIMARY KEY (kind, lane)
) WITHOUT ROWID;
