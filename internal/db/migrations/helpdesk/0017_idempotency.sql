-- Answers that are kept so that a request can be sent again; package rest.
CREATE TABLE idempotency_keys (
	organization_id TEXT NOT NULL,
	key             TEXT NOT NULL,   -- of the header Idempotency-Key
	fingerprint     BLOB NOT NULL,   -- SHA-256 of method, path, query and body
	status          INTEGER NOT NULL, -- of the answer; 0: a claim, not yet answered
	body            BLOB NOT NULL,
	location        TEXT NOT NULL,
	etag            TEXT NOT NULL,
	expires_at      BIGINT NOT NULL, -- of a claim: when it is free again
	PRIMARY KEY (organization_id, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);
