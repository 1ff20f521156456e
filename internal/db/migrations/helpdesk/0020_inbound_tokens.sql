-- The tokens that signatures cover in place of the body, each with the request that
-- used it; package inbound. A signature is accepted with that request only.
CREATE TABLE inbound_tokens (
	channel       TEXT NOT NULL,
	connection_id TEXT NOT NULL,   -- whose key matched; empty: the deployment's
	token         BLOB NOT NULL,   -- digest
	request       BLOB NOT NULL,   -- digest of what the signature leaves out
	until         BIGINT NOT NULL, -- when the signature is too old to be accepted
	PRIMARY KEY (channel, connection_id, token)
) WITHOUT ROWID;
CREATE INDEX inbound_tokens_until ON inbound_tokens (until);
