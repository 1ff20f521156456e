-- What happened, written with the change it tells of; package event. Rows are
-- large, so the table keeps its row ids: a tree of ids alone splits cheaply.
CREATE TABLE events (
	id              TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	name            TEXT NOT NULL,
	ticket_id       TEXT,
	data            TEXT NOT NULL,
	created_at      BIGINT NOT NULL
);
CREATE INDEX events_organization ON events (organization_id, id);
