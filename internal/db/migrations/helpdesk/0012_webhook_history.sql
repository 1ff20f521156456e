-- What each attempt of a delivery sent, the search of deliveries, webhooks that
-- take one delivery at a time, and the rate at which a backlog goes out; package
-- webhook.
ALTER TABLE webhooks ADD COLUMN version BIGINT NOT NULL DEFAULT 1; -- of its row in webhook_versions
ALTER TABLE webhooks ADD COLUMN ordered BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE webhooks ADD COLUMN drain_rate BIGINT; -- of the backlog, a second; NULL: no limit
ALTER TABLE webhooks ADD COLUMN drain_at BIGINT;   -- when the next of the backlog may start; NULL: at once

-- What attempts sent that differs from one to the next is kept with each. The
-- rest is told by the webhook as it was, and that is here.
CREATE TABLE webhook_versions (
	webhook_id   TEXT NOT NULL,
	version      BIGINT NOT NULL,
	url          TEXT NOT NULL,
	payload_form TEXT NOT NULL,
	created_at   BIGINT NOT NULL,
	PRIMARY KEY (webhook_id, version)
) WITHOUT ROWID;
INSERT INTO webhook_versions (webhook_id, version, url, payload_form, created_at)
	SELECT id, 1, url, payload_form, updated_at FROM webhooks;

ALTER TABLE deliveries ADD COLUMN version BIGINT;  -- of the webhook; NULL when nothing was sent, or before this was kept
ALTER TABLE deliveries ADD COLUMN body_sum BIGINT; -- length, shifted by 32 bits, and CRC-32C of the body
ALTER TABLE deliveries ADD COLUMN signatures BLOB; -- the form's MAC, then one or two of Standard Webhooks; NULL when not signed
ALTER TABLE deliveries ADD COLUMN body BLOB;       -- of a test delivery; others are written from their event
ALTER TABLE delivery_attempts ADD COLUMN version BIGINT;
ALTER TABLE delivery_attempts ADD COLUMN body_sum BIGINT;
ALTER TABLE delivery_attempts ADD COLUMN signatures BLOB;

-- For the search. Most deliveries are delivered and in none of the partial ones.
CREATE INDEX deliveries_event ON deliveries (event_id, id);
CREATE INDEX deliveries_lost ON deliveries (webhook_id, state, id) WHERE state > 2;
UPDATE deliveries SET next_at = NULL WHERE state <> 1 AND next_at IS NOT NULL; -- of dropped ones
CREATE INDEX deliveries_retrying ON deliveries (webhook_id, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX events_ticket ON events (ticket_id, id) WHERE ticket_id IS NOT NULL;
