-- Reports; package desk.

-- IANA time zone of the organization's reports.
ALTER TABLE organizations ADD COLUMN time_zone TEXT NOT NULL DEFAULT 'UTC';

-- Facts of tickets, packed: of 2,048 numbers each, from first on. Derived from tickets.
CREATE TABLE report_chunks (
	organization_id TEXT NOT NULL,
	first           BIGINT NOT NULL, -- number
	first_at        BIGINT NOT NULL, -- earliest creation; in seconds, as is the next
	last_at         BIGINT NOT NULL, -- latest creation, resolution, reopening, or end of an SLA clock
	unresolved      BLOB NOT NULL,   -- facts of the tickets without a resolution
	facts           BLOB NOT NULL,   -- of all; last, since SQLite reads a row from its beginning
	PRIMARY KEY (organization_id, first)
);

-- Tickets that are gone or may differ from their packed facts. Triggers add the rows, also for a
-- previous version of the program; each change has its own row. A new ticket has none: its number is
-- beyond the last chunk.
CREATE TABLE report_changes (
	organization_id TEXT NOT NULL,
	id              TEXT NOT NULL, -- random
	number          BIGINT NOT NULL,
	PRIMARY KEY (organization_id, id)
) WITHOUT ROWID;

-- When resolved and closed tickets became active again, from this migration on. The end of a merge
-- is none.
CREATE TABLE ticket_reopenings (
	organization_id TEXT NOT NULL,
	number          BIGINT NOT NULL,
	reopened_at     BIGINT NOT NULL,
	PRIMARY KEY (organization_id, number, reopened_at)
) WITHOUT ROWID;

-- [sqlite]
CREATE TRIGGER tickets_reported AFTER UPDATE OF assignee_id, tags, first_responded_at, resolved_at, sla ON tickets
	WHEN NEW.assignee_id IS NOT OLD.assignee_id OR NEW.tags IS NOT OLD.tags OR NEW.first_responded_at IS NOT OLD.first_responded_at
		OR NEW.resolved_at IS NOT OLD.resolved_at OR NEW.sla IS NOT OLD.sla BEGIN
	INSERT INTO report_changes (organization_id, id, number) VALUES (NEW.organization_id, lower(hex(randomblob(16))), NEW.number);
END;
CREATE TRIGGER tickets_reopened AFTER UPDATE OF status ON tickets
	WHEN OLD.status IN ('resolved', 'closed') AND NEW.status NOT IN ('resolved', 'closed') AND OLD.merged_into_id IS NULL BEGIN
	INSERT INTO ticket_reopenings (organization_id, number, reopened_at) VALUES (NEW.organization_id, NEW.number, NEW.updated_at)
		ON CONFLICT DO NOTHING;
	INSERT INTO report_changes (organization_id, id, number) VALUES (NEW.organization_id, lower(hex(randomblob(16))), NEW.number);
END;
CREATE TRIGGER tickets_unreported AFTER DELETE ON tickets BEGIN
	DELETE FROM ticket_reopenings WHERE organization_id = OLD.organization_id AND number = OLD.number;
	INSERT INTO report_changes (organization_id, id, number) VALUES (OLD.organization_id, lower(hex(randomblob(16))), OLD.number);
END;
-- [postgres]
CREATE FUNCTION report_ticket_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO report_changes (organization_id, id, number) VALUES (OLD.organization_id, gen_random_uuid(), OLD.number);
	RETURN NULL;
END $$;
CREATE FUNCTION report_ticket_reopening() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ticket_reopenings (organization_id, number, reopened_at) VALUES (NEW.organization_id, NEW.number, NEW.updated_at)
		ON CONFLICT DO NOTHING;
	INSERT INTO report_changes (organization_id, id, number) VALUES (NEW.organization_id, gen_random_uuid(), NEW.number);
	RETURN NULL;
END $$;
CREATE FUNCTION report_ticket_deletion() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	DELETE FROM ticket_reopenings WHERE organization_id = OLD.organization_id AND number = OLD.number;
	INSERT INTO report_changes (organization_id, id, number) VALUES (OLD.organization_id, gen_random_uuid(), OLD.number);
	RETURN NULL;
END $$;
CREATE TRIGGER tickets_reported AFTER UPDATE OF assignee_id, tags, first_responded_at, resolved_at, sla ON tickets FOR EACH ROW
	WHEN (NEW.assignee_id IS DISTINCT FROM OLD.assignee_id OR NEW.tags IS DISTINCT FROM OLD.tags
		OR NEW.first_responded_at IS DISTINCT FROM OLD.first_responded_at OR NEW.resolved_at IS DISTINCT FROM OLD.resolved_at
		OR NEW.sla IS DISTINCT FROM OLD.sla)
	EXECUTE FUNCTION report_ticket_change();
CREATE TRIGGER tickets_reopened AFTER UPDATE OF status ON tickets FOR EACH ROW
	WHEN (OLD.status IN ('resolved', 'closed') AND NEW.status NOT IN ('resolved', 'closed') AND OLD.merged_into_id IS NULL)
	EXECUTE FUNCTION report_ticket_reopening();
CREATE TRIGGER tickets_unreported AFTER DELETE ON tickets FOR EACH ROW EXECUTE FUNCTION report_ticket_deletion();
-- [both]
