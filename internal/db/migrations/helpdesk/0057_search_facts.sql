-- Facts of tickets (tags, files, the customer's name, addresses and numbers) that are about to be
-- indexed: of one ticket, or of all tickets of a customer after the last one. Now those of all.
CREATE TABLE facts_pending (
	id              TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	ticket_id       TEXT,
	customer_id     TEXT,
	last            BIGINT NOT NULL -- number of the customer's last ticket that is indexed
) WITHOUT ROWID;
INSERT INTO facts_pending (id, organization_id, ticket_id, customer_id, last) SELECT id, organization_id, NULL, id, 0 FROM customers;
