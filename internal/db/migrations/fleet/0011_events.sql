-- Events for webhooks and streams; package fleet.
--
-- An organization has a row here once events of its changes are recorded: while it has a webhook
-- of this environment, and for some time after a stream of its events was read.
CREATE TABLE event_logs (
	organization_id TEXT PRIMARY KEY,
	sequence        BIGINT NOT NULL, -- of the last event
	relayed         BIGINT NOT NULL, -- up to this event, webhooks have their deliveries
	webhooks        BOOLEAN NOT NULL,
	streams_until   BIGINT NOT NULL  -- real time
) WITHOUT ROWID;
CREATE INDEX event_logs_waiting ON event_logs (organization_id) WHERE sequence > relayed;

-- sequence counts from 1 without gaps, in the order of the commits.
CREATE TABLE events (
	organization_id TEXT NOT NULL,
	sequence        BIGINT NOT NULL,
	id              TEXT NOT NULL,
	name            TEXT NOT NULL,
	subject         TEXT NOT NULL,
	subaccount_id   TEXT NOT NULL,
	data            TEXT NOT NULL,
	at              BIGINT NOT NULL, -- by the organization's clock
	created_at      BIGINT NOT NULL, -- real time
	PRIMARY KEY (organization_id, sequence)
);
