-- The hold of outgoing work: at most one row; package queue.
CREATE TABLE outgoing_hold (
	id       BIGINT PRIMARY KEY, -- always 1
	reason   TEXT NOT NULL,
	since    BIGINT NOT NULL,
	restored BOOLEAN NOT NULL    -- by a restore
) WITHOUT ROWID;

-- The newest claim that handed the message over; packages desk and outbound.
ALTER TABLE outbox ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
