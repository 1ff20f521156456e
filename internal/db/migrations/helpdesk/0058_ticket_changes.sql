-- The changes of each ticket: who made them, when and by which surface; package desk. Changes from
-- before are not here, and neither is the creation of a ticket by a message: it follows from the ticket.
CREATE TABLE ticket_changes (
	ticket_id       TEXT NOT NULL,
	number          BIGINT NOT NULL, -- in the ticket, from 1; 0: its creation
	organization_id TEXT NOT NULL,
	changed_at      BIGINT NOT NULL,
	actor_type      TEXT NOT NULL,   -- user, key, customer, system
	actor_id        TEXT,
	surface         TEXT NOT NULL,
	action          TEXT NOT NULL,
	changes         TEXT NOT NULL,   -- JSON, by field; no names of people
	PRIMARY KEY (ticket_id, number)
) WITHOUT ROWID;
