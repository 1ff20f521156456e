-- Replies that leave later: held for a moment, so that their author can undo them, or scheduled.
-- A row goes when its reply becomes a message, or is deleted. Its files are in attachments.
CREATE TABLE pending_replies (
	message_id      TEXT PRIMARY KEY,     -- of the message that it becomes
	organization_id TEXT NOT NULL,
	ticket_id       TEXT NOT NULL,
	conversation_id TEXT NOT NULL,        -- empty: the first reply creates it
	channel         TEXT NOT NULL,
	state           TEXT NOT NULL,        -- held, scheduled or failed
	error           TEXT,                 -- why it has failed
	send_at         BIGINT NOT NULL,
	job_id          TEXT NOT NULL,        -- that sends it
	author_id       TEXT NOT NULL,
	author_name     TEXT NOT NULL,
	body            TEXT NOT NULL,
	html            TEXT,
	recipient       TEXT,                 -- selected; see desk.Reply.To
	cc              TEXT,                 -- JSON: selected; see desk.Reply.Cc
	place           BIGINT NOT NULL,      -- number of the ticket's newest message when it was written
	ordinal         BIGINT NOT NULL,      -- its place among the ticket's pending replies
	forced          BOOLEAN NOT NULL,     -- replies of others do not stop it
	created_at      BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX pending_replies_ticket ON pending_replies (ticket_id, send_at);

-- When a pending or held ticket opens again: microseconds, or -1 for the customer's answer.
ALTER TABLE tickets ADD COLUMN snoozed_until BIGINT;
