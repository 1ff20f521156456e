-- Customers have documents in the index of searches, with numbers below 0; package desk.
CREATE TABLE customer_docs (
	customer_id TEXT PRIMARY KEY,
	doc         BIGINT NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX customer_docs_doc ON customer_docs (doc);

-- -1: of the customer alone, not of its tickets.
INSERT INTO facts_pending (id, organization_id, ticket_id, customer_id, last)
	SELECT id, organization_id, NULL, id, -1 FROM customers WHERE deleted_at IS NULL ON CONFLICT DO NOTHING;

-- Deleted tickets are among report_changes for themselves, so that their packed facts go soon.
ALTER TABLE report_changes ADD COLUMN gone BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE report_changes SET gone = TRUE WHERE NOT EXISTS (
	SELECT 1 FROM tickets t WHERE t.organization_id = report_changes.organization_id AND t.number = report_changes.number);
CREATE INDEX report_changes_gone ON report_changes (organization_id) WHERE gone;
-- [sqlite]
-- Beside the row of tickets_unreported.
CREATE TRIGGER tickets_gone AFTER DELETE ON tickets BEGIN
	INSERT INTO report_changes (organization_id, id, number, gone) VALUES (OLD.organization_id, lower(hex(randomblob(16))), OLD.number, TRUE);
END;
-- [postgres]
CREATE OR REPLACE FUNCTION report_ticket_deletion() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	DELETE FROM ticket_reopenings WHERE organization_id = OLD.organization_id AND number = OLD.number;
	INSERT INTO report_changes (organization_id, id, number, gone) VALUES (OLD.organization_id, gen_random_uuid(), OLD.number, TRUE);
	RETURN NULL;
END $$;
-- [both]
