-- Which address belongs to which organization; package connection.
CREATE TABLE connections (
	id              TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	channel         TEXT NOT NULL, -- the adapter: sms, email-raw
	medium          TEXT NOT NULL, -- what it carries: sms, email
	address         TEXT NOT NULL, -- as its adapter writes it
	name            TEXT NOT NULL,
	secrets         BLOB NOT NULL, -- sealed
	credentials     BLOB NOT NULL, -- sealed
	settings        TEXT NOT NULL,
	enabled         BOOLEAN NOT NULL,
	created_at      BIGINT NOT NULL,
	updated_at      BIGINT NOT NULL,
	UNIQUE (medium, address)
);
CREATE INDEX connections_organization ON connections (organization_id, id);
