-- Who people are; package account.
CREATE TABLE organizations (
	id               TEXT PRIMARY KEY,
	name             TEXT NOT NULL,
	slug             TEXT NOT NULL UNIQUE,
	plan             TEXT NOT NULL, -- free, pro, business
	pending_plan     TEXT,          -- wanted, until its checkout is paid
	fleet_rate_limit BIGINT,        -- requests a minute agreed with a business
	created_at       BIGINT NOT NULL,
	updated_at       BIGINT NOT NULL
) WITHOUT ROWID;

CREATE TABLE users (
	id              TEXT PRIMARY KEY,
	email           TEXT NOT NULL,        -- as given
	email_key       TEXT NOT NULL UNIQUE, -- lower-cased: what is compared
	name            TEXT NOT NULL,
	avatar_url      TEXT,
	password_hash   TEXT,                 -- PHC string
	preferences     TEXT NOT NULL,        -- JSON object
	organization_id TEXT REFERENCES organizations (id), -- none until sign-up is completed
	role            TEXT,                 -- admin, agent; with organization_id
	created_at      BIGINT NOT NULL,
	updated_at      BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX users_organization ON users (organization_id, role);

-- A session lives as long as its row.
CREATE TABLE sessions (
	id         TEXT PRIMARY KEY,
	user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
	ip         TEXT NOT NULL, -- of sign-in or the last refresh
	user_agent TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	used_at    BIGINT NOT NULL -- to the minute
) WITHOUT ROWID;
CREATE INDEX sessions_user ON sessions (user_id);
CREATE INDEX sessions_used ON sessions (used_at);

-- Tokens are kept as SHA-256 digests. A refresh token stays after its use, so
-- that a second use is noticed.
CREATE TABLE session_tokens (
	digest      BLOB PRIMARY KEY,
	session_id  TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
	kind        BIGINT NOT NULL, -- 0 access, 1 refresh
	issued_at   BIGINT NOT NULL,
	consumed_at BIGINT,          -- refresh: when it was used
	successor   BLOB             -- what it was exchanged for, readable only with the token itself
) WITHOUT ROWID;
CREATE INDEX session_tokens_session ON session_tokens (session_id);
CREATE INDEX session_tokens_age ON session_tokens (kind, issued_at);
CREATE INDEX session_tokens_successor ON session_tokens (consumed_at) WHERE successor IS NOT NULL;

CREATE TABLE login_links (
	digest     BLOB PRIMARY KEY, -- SHA-256 of the link's token
	intent     BLOB NOT NULL,    -- SHA-256 of the cookie of the browser that asked
	email      TEXT NOT NULL,    -- where the link was mailed to
	email_key  TEXT NOT NULL,
	redirect   TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	used_at    BIGINT,
	session_id TEXT,             -- made by the first opening
	owned      BOOLEAN NOT NULL  -- opened by the browser that asked: nobody may again
) WITHOUT ROWID;
CREATE INDEX login_links_age ON login_links (created_at);
