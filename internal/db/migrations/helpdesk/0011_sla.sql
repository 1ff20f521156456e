-- Service-level agreements; package desk.

-- What an organization promises, by priority. A row never changes but to be
-- replaced: clocks go on by the row that they began with.
CREATE TABLE sla_policies (
	id              TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	priority        TEXT NOT NULL,
	first_response  BIGINT NOT NULL, -- minutes; 0: not promised
	resolution      BIGINT NOT NULL, -- likewise
	hours           TEXT,            -- JSON; NULL: day and night
	created_at      BIGINT NOT NULL, -- when the priority got its first
	updated_at      BIGINT NOT NULL, -- when this one was set
	replaced_at     BIGINT           -- NULL: it is in force
) WITHOUT ROWID;
CREATE UNIQUE INDEX sla_policies_in_force ON sla_policies (organization_id, priority) WHERE replaced_at IS NULL;

ALTER TABLE tickets ADD COLUMN sla TEXT; -- JSON: the ticket's clocks; NULL: none
