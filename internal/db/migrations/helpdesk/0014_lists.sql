-- Lists, searches and analytics of tickets; packages desk and event.
--
-- A ticket's created_at is not before that of any smaller number of its
-- organization: it is set together with the number, by one who holds the
-- organization's row of ticket_numbers. So lists in order of creation walk
-- numbers, which never change. Each filter has an index in that order, and what a
-- message changes is in one index only.
ALTER TABLE ticket_numbers ADD COLUMN last_at BIGINT NOT NULL DEFAULT 0; -- created_at of the ticket that has the number
UPDATE tickets SET created_at = r.at FROM (
		SELECT id AS ticket_id, max(created_at) OVER (PARTITION BY organization_id ORDER BY number) AS at FROM tickets
	) AS r WHERE r.ticket_id = tickets.id AND r.at > tickets.created_at;
UPDATE ticket_numbers SET last_at =
	coalesce((SELECT max(created_at) FROM tickets WHERE tickets.organization_id = ticket_numbers.organization_id), 0);

DROP INDEX tickets_assignee;
CREATE INDEX tickets_assignee ON tickets (organization_id, assignee_id, number);
CREATE INDEX tickets_customer ON tickets (customer_id, number);
CREATE INDEX tickets_channel ON tickets (organization_id, channel, number);
-- What comes in is of normal priority, and so are most tickets.
CREATE INDEX tickets_priority ON tickets (organization_id, priority, number) WHERE priority <> 'normal';
-- With what lists filter by, so that walking it reads no rows.
CREATE INDEX tickets_updated ON tickets (organization_id, updated_at, id, number, status, priority, channel, assignee_id);
-- Likewise the tickets that somebody has to do with still.
CREATE INDEX tickets_live ON tickets (organization_id, status, updated_at, id, number, priority, channel, assignee_id) WHERE status <> 'closed';
-- With what analytics count.
CREATE INDEX tickets_created ON tickets (organization_id, created_at, number, status, priority, channel, assignee_id, first_responded_at);
CREATE INDEX tickets_resolved ON tickets (organization_id, resolved_at, created_at, status, priority, channel, assignee_id) WHERE resolved_at IS NOT NULL;

-- tickets.tags, for filters.
CREATE TABLE ticket_tags (
	organization_id TEXT NOT NULL,
	tag             TEXT NOT NULL,
	number          BIGINT NOT NULL,
	ticket_id       TEXT NOT NULL,
	PRIMARY KEY (organization_id, tag, number)
) WITHOUT ROWID;
-- [sqlite]
INSERT INTO ticket_tags (organization_id, tag, number, ticket_id)
	SELECT t.organization_id, j.value, t.number, t.id FROM tickets t, json_each(t.tags) j WHERE t.tags IS NOT NULL
	ON CONFLICT DO NOTHING;
-- [postgres]
INSERT INTO ticket_tags (organization_id, tag, number, ticket_id)
	SELECT t.organization_id, j.value, t.number, t.id FROM tickets t, jsonb_array_elements_text(t.tags::jsonb) AS j(value) WHERE t.tags IS NOT NULL
	ON CONFLICT DO NOTHING;
-- [both]

CREATE INDEX customers_created ON customers (organization_id, created_at, id);
CREATE INDEX customers_updated ON customers (organization_id, updated_at, id);
CREATE INDEX customers_name ON customers (organization_id, (lower(name)), id);

-- The events that few are; the others are found where they are among all.
CREATE INDEX events_name ON events (organization_id, name, id) WHERE name NOT IN
	('customer.created', 'ticket.created', 'conversation.created', 'message.created', 'message.customer_reply');

-- What is to be indexed for searches. An entry is written with the change that
-- calls for it, and never changed: a later change has its own.
CREATE TABLE search_pending (
	id              TEXT PRIMARY KEY,
	ticket_id       TEXT NOT NULL,
	message_id      TEXT, -- NULL: the whole ticket, and then the others are set
	organization_id TEXT,
	number          BIGINT
) WITHOUT ROWID;
INSERT INTO search_pending (id, ticket_id, organization_id, number) SELECT id, id, organization_id, number FROM tickets;

-- Words of each organization begin with its code.
CREATE TABLE search_organizations (
	organization_id TEXT PRIMARY KEY,
	code            BIGINT NOT NULL
) WITHOUT ROWID;

-- The documents that are indexed, see package desk for their numbers.
-- [sqlite]
CREATE TABLE search_docs (doc INTEGER PRIMARY KEY);
CREATE VIRTUAL TABLE ticket_words USING fts5(words, content='', contentless_delete=1, tokenize='ascii', prefix='7');
-- [postgres]
CREATE TABLE search_docs (doc BIGINT PRIMARY KEY, words TSVECTOR NOT NULL);
CREATE INDEX search_docs_words ON search_docs USING gin (words) WITH (fastupdate = off);
-- [both]
