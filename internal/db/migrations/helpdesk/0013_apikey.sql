-- API keys of both services, and what was done with them; package apikey.
CREATE TABLE api_keys (
	id              TEXT PRIMARY KEY,
	digest          BLOB,          -- SHA-256 of the token; NULL once deleted
	organization_id TEXT NOT NULL,
	service         TEXT NOT NULL, -- helpdesk, fleet
	environment     TEXT NOT NULL, -- live, test
	name            TEXT NOT NULL,
	partial_key     TEXT NOT NULL, -- the token's last 8 characters
	level           TEXT,          -- read_only, read_write, admin
	resources       TEXT,          -- JSON: "all", or resource to actions
	scope           TEXT NOT NULL, -- JSON
	allowed_ips     TEXT NOT NULL, -- JSON array; empty: any address
	rate_limit      BIGINT,        -- requests a minute; NULL: the plan's
	expires_at      BIGINT,
	expiry_noted    BOOLEAN NOT NULL DEFAULT FALSE, -- in the audit log
	created_by      TEXT NOT NULL, -- JSON
	created_at      BIGINT NOT NULL,
	updated_at      BIGINT NOT NULL,
	last_used_at    BIGINT,        -- to the minute
	last_used_ip    TEXT,
	revoked_at      BIGINT,
	revoked_by      TEXT,          -- JSON
	deleted_at      BIGINT,
	rotated_from    TEXT,
	replaced_by     TEXT,
	version         BIGINT NOT NULL -- of all but the last use
) WITHOUT ROWID;
CREATE UNIQUE INDEX api_keys_digest ON api_keys (digest);
CREATE UNIQUE INDEX api_keys_name ON api_keys (organization_id, service, environment, name) WHERE deleted_at IS NULL;
CREATE INDEX api_keys_organization ON api_keys (organization_id, id);
CREATE INDEX api_keys_expiry ON api_keys (expires_at)
	WHERE expires_at IS NOT NULL AND NOT expiry_noted AND revoked_at IS NULL AND deleted_at IS NULL;

-- Rows are added and never changed. They outlive what they are about.
CREATE TABLE audit_log (
	id              TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	service         TEXT NOT NULL,
	environment     TEXT NOT NULL,
	at              BIGINT NOT NULL,
	action          TEXT NOT NULL,
	actor           TEXT NOT NULL, -- JSON
	target_id       TEXT NOT NULL,
	target          TEXT NOT NULL, -- JSON
	ip              TEXT NOT NULL,
	user_agent      TEXT NOT NULL,
	request_id      TEXT NOT NULL,
	changes         TEXT NOT NULL  -- JSON
) WITHOUT ROWID;
CREATE INDEX audit_log_organization ON audit_log (organization_id, id);
CREATE INDEX audit_log_service ON audit_log (organization_id, service, id);
CREATE INDEX audit_log_target ON audit_log (target_id, id);
