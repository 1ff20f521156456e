-- Broken promises, for analytics; package desk. Their events are deleted in time.
CREATE TABLE sla_breaches (
	event_id        TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	ticket_id       TEXT NOT NULL,
	breached_at     BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX sla_breaches_organization ON sla_breaches (organization_id, breached_at);
CREATE INDEX sla_breaches_ticket ON sla_breaches (ticket_id);
INSERT INTO sla_breaches (event_id, organization_id, ticket_id, breached_at)
	SELECT id, organization_id, ticket_id, created_at FROM events WHERE name = 'sla.breached' AND ticket_id IS NOT NULL;
