-- Jobs of a lane run in the order of seq, which the database assigns when a job is inserted, also
-- by a previous version of the program. fence is raised by each claim. A tenant's lanes are found
-- without reading those of others.
ALTER TABLE jobs ADD COLUMN seq BIGINT NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
UPDATE jobs SET seq = 1000000000 + numbered.n
	FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM jobs) AS numbered WHERE numbered.id = jobs.id;
-- [sqlite]
CREATE TABLE job_numbers (
	only BIGINT PRIMARY KEY CHECK (only = 1),
	last BIGINT NOT NULL
);
INSERT INTO job_numbers (only, last) SELECT 1, 1000000000 + count(*) FROM jobs;
CREATE TRIGGER jobs_number AFTER INSERT ON jobs WHEN NEW.seq = 0 BEGIN
	UPDATE job_numbers SET last = last + 1;
	UPDATE jobs SET seq = (SELECT last FROM job_numbers) WHERE id = NEW.id;
END;
-- [postgres]
CREATE SEQUENCE jobs_seq;
SELECT setval('jobs_seq', 1000000000 + (SELECT count(*) FROM jobs));
ALTER TABLE jobs ALTER COLUMN seq SET DEFAULT nextval('jobs_seq');
-- Leases are extended in place. Rows live for moments, so the table is vacuumed early and at full
-- speed.
ALTER TABLE jobs SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
	autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000);
-- [both]
-- One index answers the questions of a claim: a lane's first ready jobs, whether a scheduled one
-- precedes them, and how many are leased. Without the index that it replaces, a previous version
-- of the program sorts the jobs of a lane by id.
CREATE INDEX jobs_lane ON jobs (kind, state, lane, seq);
DROP INDEX jobs_walk;
CREATE INDEX jobs_tenant ON jobs (kind, tenant, lane) WHERE state = 0;
