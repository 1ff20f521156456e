-- How people come in and whom they come to; package account.

-- Links that lead to a form for a new password.
CREATE TABLE password_resets (
	digest     BLOB PRIMARY KEY, -- SHA-256 of the link's token
	user_id    TEXT REFERENCES users (id) ON DELETE CASCADE, -- NULL: nobody has the address, and no link was mailed
	created_at BIGINT NOT NULL,
	used_at    BIGINT
) WITHOUT ROWID;
CREATE INDEX password_resets_user ON password_resets (user_id);
CREATE INDEX password_resets_age ON password_resets (created_at);

-- Browsers that are at the identity provider. A row goes when one comes back.
CREATE TABLE provider_logins (
	digest     BLOB PRIMARY KEY, -- SHA-256 of the state
	intent     BLOB NOT NULL,    -- SHA-256 of the cookie of the browser that asked
	redirect   TEXT NOT NULL,
	created_at BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX provider_logins_age ON provider_logins (created_at);

-- A row goes when the invitation is accepted, revoked or replaced.
CREATE TABLE invitations (
	id              TEXT PRIMARY KEY,
	digest          BLOB NOT NULL UNIQUE, -- SHA-256 of the link's token
	organization_id TEXT NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
	email           TEXT NOT NULL,        -- as given
	email_key       TEXT NOT NULL,        -- lower-cased: what is compared
	role            TEXT NOT NULL,        -- admin, agent
	invited_by      TEXT NOT NULL,        -- the name of who did
	inviter_id      TEXT NOT NULL,        -- and who it was
	created_at      BIGINT NOT NULL,
	UNIQUE (organization_id, email_key)
) WITHOUT ROWID;
CREATE INDEX invitations_age ON invitations (created_at);

-- What a person works on; package desk.
CREATE INDEX tickets_assignee ON tickets (assignee_id, organization_id) WHERE assignee_id IS NOT NULL;
