-- The last requests of API keys of both services; package requestlog.
CREATE TABLE api_requests (
	id              TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	service         TEXT NOT NULL, -- of the key, like environment
	environment     TEXT NOT NULL,
	key_id          TEXT NOT NULL,
	failed          BOOLEAN NOT NULL, -- the status is 400 or higher
	request_id      TEXT NOT NULL,
	at              BIGINT NOT NULL,
	duration        BIGINT NOT NULL,  -- microseconds
	method          TEXT NOT NULL,
	path            TEXT NOT NULL,
	status          INTEGER NOT NULL,
	code            TEXT NOT NULL,    -- of the problem; empty: none
	address         TEXT NOT NULL,    -- of the client; empty: unknown
	rule            TEXT NOT NULL,    -- that refused it; empty: none
	needed          TEXT NOT NULL     -- by the rule
) WITHOUT ROWID;
CREATE INDEX api_requests_key ON api_requests (key_id, failed, id);
CREATE INDEX api_requests_organization ON api_requests (organization_id, service, environment, id);
CREATE INDEX api_requests_request ON api_requests (organization_id, request_id);
