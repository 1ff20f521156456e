-- What came in, as it came in; package inbound.
--
-- Rows are large, so the table keeps its row ids: without them SQLite would move
-- most of a row beyond a quarter of a page to pages of its own.
CREATE TABLE inbound_events (
	id              TEXT PRIMARY KEY,
	fingerprint     BLOB NOT NULL,   -- digest of channel, connection and external key
	organization_id TEXT,            -- NULL while unrouted
	connection_id   TEXT NOT NULL,   -- empty: nobody connected the address
	channel         TEXT NOT NULL,
	external_key    TEXT NOT NULL,   -- the provider's id of the event
	kind            TEXT NOT NULL,
	sender          TEXT NOT NULL,
	address         TEXT NOT NULL,
	verified_by     TEXT NOT NULL,   -- whose secret
	state           TEXT NOT NULL,   -- accepted, processed, unrouted, rejected, dead
	result          TEXT,            -- what processing did
	error           TEXT,
	received_at     BIGINT NOT NULL,
	processed_at    BIGINT,
	body_size       BIGINT NOT NULL,
	body_key        TEXT,            -- where the body is, if not here
	url             TEXT NOT NULL,   -- without credentials
	headers         TEXT NOT NULL,   -- without credentials
	body            BLOB
);
-- One event is stored once, however often it is sent. The digest keeps the index
-- small: its entries come in random order, so each dirties a page.
CREATE UNIQUE INDEX inbound_events_fingerprint ON inbound_events (fingerprint);
CREATE INDEX inbound_events_attention ON inbound_events (state, id) WHERE state IN ('unrouted', 'rejected', 'dead');
CREATE INDEX inbound_events_body ON inbound_events (body_key) WHERE body_key IS NOT NULL;

-- Who was greeted with a connection's automatic reply.
CREATE TABLE inbound_greetings (
	connection_id TEXT NOT NULL,
	sender        TEXT NOT NULL,
	greeted_at    BIGINT NOT NULL,
	PRIMARY KEY (connection_id, sender)
) WITHOUT ROWID;
