-- Where inbound events go that no connection claims; packages account and inbound.

-- How an organization came to be: operator (by command) or sign-up. Of those that exist
-- already it is not known, so they count as signed up.
ALTER TABLE organizations ADD COLUMN made_by TEXT NOT NULL DEFAULT 'sign-up';
CREATE INDEX organizations_operator ON organizations (created_at, id) WHERE made_by = 'operator';

-- The organization that the operator named as the default, one at most.
CREATE TABLE default_organization (
	id              BIGINT PRIMARY KEY CHECK (id = 1),
	organization_id TEXT NOT NULL REFERENCES organizations (id) ON DELETE CASCADE
) WITHOUT ROWID;

-- When the operator was last mailed about something, so that several processes send one mail.
CREATE TABLE operator_notices (
	kind    TEXT PRIMARY KEY,
	sent_at BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX inbound_events_unrouted ON inbound_events (received_at) WHERE state = 'unrouted';
