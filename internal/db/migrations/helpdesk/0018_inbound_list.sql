-- What came in for an organization, newest first; package inbound.
CREATE INDEX inbound_events_organization ON inbound_events (organization_id, id);
