-- Customers have documents in the index of searches, with numbers below 0; package desk.
CREATE TABLE customer_docs (
	customer_id TEXT PRIMARY KEY,
	doc         BIGINT NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX customer_docs_doc ON customer_docs (doc);

-- -1: of the customer alone, not of its tickets.
INSERT INTO facts_pending (id, organization_id, ticket_id, customer_id, last)
	SELECT id, organization_id, NULL, id, -1 FROM customers WHERE deleted_at IS NULL ON CONFLICT DO NOTHING;
