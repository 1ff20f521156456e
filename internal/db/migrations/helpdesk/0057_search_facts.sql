-- Tickets whose facts (tags, files, the customer's name, addresses and numbers) are about to be
-- indexed: now all of them.
CREATE TABLE facts_pending (
	id              TEXT PRIMARY KEY,
	ticket_id       TEXT NOT NULL,
	organization_id TEXT NOT NULL,
	number          BIGINT NOT NULL
) WITHOUT ROWID;
INSERT INTO facts_pending (id, ticket_id, organization_id, number) SELECT id, id, organization_id, number FROM tickets;
