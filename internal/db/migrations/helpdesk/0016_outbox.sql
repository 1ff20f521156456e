-- Messages that wait for their turn to leave, or are on their way. A row goes
-- when its message is sent or has failed.
CREATE TABLE outbox (
	message_id      TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	ticket_id       TEXT NOT NULL,
	conversation_id TEXT NOT NULL,
	connection_id   TEXT NOT NULL,
	recipient       TEXT NOT NULL,             -- number or id; empty for mail
	attempts        BIGINT NOT NULL DEFAULT 0, -- that failed
	handed_at       BIGINT                     -- handed over, and what became of it is not known
) WITHOUT ROWID;
CREATE INDEX outbox_ticket ON outbox (ticket_id);

-- When somebody wrote lately, so that a flood is noticed.
CREATE TABLE mail_senders (
	organization_id TEXT NOT NULL,
	address         TEXT NOT NULL, -- lower-case
	times           TEXT NOT NULL, -- JSON: the last ones, in microseconds
	PRIMARY KEY (organization_id, address)
) WITHOUT ROWID;

-- Acknowledgements that went out by themselves.
CREATE TABLE acknowledgements (
	ticket_id       TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	address         TEXT NOT NULL, -- lower-case
	sent_at         BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX acknowledgements_address ON acknowledgements (organization_id, address, sent_at);
