-- What the inbox shows and keeps for each of its readers; package desk.

-- When there was news of the customer's last: later than before each time, so that
-- whoever has read up to it has read all. NULL: when the ticket was made.
ALTER TABLE tickets ADD COLUMN heard_at BIGINT;

-- When the next promise falls due, or the oldest broken one fell due, that the
-- ticket's customer still waits for; NULL: there is none, or its clock stands still.
-- It follows from sla and status.
ALTER TABLE tickets ADD COLUMN due_at BIGINT;
-- [sqlite]
UPDATE tickets SET due_at = (
		SELECT min(CAST(json_extract(c.value, '$.due') AS INTEGER)) FROM json_each(tickets.sla) c
		WHERE coalesce(json_extract(c.value, '$.due'), 0) > 0 AND coalesce(json_extract(c.value, '$.met'), 0) = 0
			AND (coalesce(json_extract(c.value, '$.since'), 0) > 0 OR coalesce(json_extract(c.value, '$.breached'), 0) > 0)
	) WHERE sla IS NOT NULL AND status NOT IN ('resolved', 'closed');
-- [postgres]
UPDATE tickets SET due_at = (
		SELECT min((c.value ->> 'due')::bigint) FROM jsonb_array_elements(tickets.sla::jsonb) AS c(value)
		WHERE coalesce((c.value ->> 'due')::bigint, 0) > 0 AND coalesce((c.value ->> 'met')::bigint, 0) = 0
			AND (coalesce((c.value ->> 'since')::bigint, 0) > 0 OR coalesce((c.value ->> 'breached')::bigint, 0) > 0)
	) WHERE sla IS NOT NULL AND status NOT IN ('resolved', 'closed');
-- [both]
-- With what lists filter by, so that walking it reads no rows.
CREATE INDEX tickets_due ON tickets (organization_id, due_at, id, number, status, priority, channel, assignee_id) WHERE due_at IS NOT NULL;

-- What is counted of tickets that somebody has to do with still, in order. What a
-- message changes is not in it.
CREATE INDEX tickets_whose ON tickets (organization_id, status, assignee_id, channel, priority, number) WHERE status <> 'closed';

-- Up to when members have read a ticket: its heard_at as it was then.
CREATE TABLE ticket_reads (
	ticket_id TEXT NOT NULL,
	user_id   TEXT NOT NULL,
	read_at   BIGINT NOT NULL,
	PRIMARY KEY (ticket_id, user_id)
) WITHOUT ROWID;

-- What members have begun to write in a ticket.
CREATE TABLE ticket_drafts (
	ticket_id       TEXT NOT NULL,
	user_id         TEXT NOT NULL,
	kind            TEXT NOT NULL, -- reply, note
	organization_id TEXT NOT NULL,
	conversation_id TEXT,          -- in which the reply shall go; NULL: not chosen
	body            TEXT NOT NULL,
	updated_at      BIGINT NOT NULL,
	PRIMARY KEY (ticket_id, user_id, kind)
) WITHOUT ROWID;
CREATE INDEX ticket_drafts_user ON ticket_drafts (user_id, organization_id);
