-- Saved lists of tickets; package desk.
CREATE TABLE ticket_views (
	id              TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	user_id         TEXT,             -- the member who alone sees it; NULL: shared
	name            TEXT NOT NULL,
	query           TEXT NOT NULL,    -- in the language of searches
	sort            TEXT NOT NULL,    -- the field
	descending      BOOLEAN NOT NULL,
	columns         TEXT NOT NULL,    -- JSON array
	position        BIGINT NOT NULL,  -- from 1, among the shared ones or those of the member
	created_at      BIGINT NOT NULL,
	updated_at      BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX ticket_views_user ON ticket_views (organization_id, user_id);
