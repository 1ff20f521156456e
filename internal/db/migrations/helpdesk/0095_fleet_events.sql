-- Events of the fleets for webhooks; packages event and webhook.
--
-- A copy of each event that a webhook subscribes to, written with its deliveries. It has no
-- personal data.
CREATE TABLE fleet_events (
	id              TEXT PRIMARY KEY, -- evt_ and a ULID of the time at which the change was made
	organization_id TEXT NOT NULL,
	source          TEXT NOT NULL,    -- fleet, sandbox
	name            TEXT NOT NULL,
	subject         TEXT NOT NULL,    -- the record within which events are in order: the vehicle of a ride
	data            TEXT NOT NULL,
	created_at      BIGINT NOT NULL   -- by the clock of the fleet
);

ALTER TABLE webhooks ADD COLUMN source TEXT; -- fleet, sandbox; NULL: the helpdesk
CREATE INDEX webhooks_fleet ON webhooks (source, organization_id) WHERE source IS NOT NULL;

-- Deliveries of one webhook with the same subject are sent one at a time, in order.
ALTER TABLE deliveries ADD COLUMN subject TEXT;
CREATE INDEX deliveries_subject ON deliveries (webhook_id, subject, id) WHERE state < 2 AND subject IS NOT NULL;
