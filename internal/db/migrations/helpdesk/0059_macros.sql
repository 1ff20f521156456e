-- Saved replies with changes of the ticket; package desk.
CREATE TABLE macros (
	id              TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	owner_id        TEXT NOT NULL, -- the member who owns it; empty: shared with the organization
	name            TEXT NOT NULL,
	name_key        TEXT NOT NULL, -- the name in lower case
	body            TEXT NOT NULL, -- of the reply, with variables
	note            TEXT NOT NULL, -- likewise
	actions         TEXT NOT NULL, -- JSON
	uses            BIGINT NOT NULL,
	used_at         BIGINT,        -- NULL: never
	created_at      BIGINT NOT NULL,
	updated_at      BIGINT NOT NULL
);
CREATE UNIQUE INDEX macros_name ON macros (organization_id, owner_id, name_key);
CREATE INDEX macros_owner ON macros (owner_id) WHERE owner_id <> '';
