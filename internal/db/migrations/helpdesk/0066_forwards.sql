-- A conversation with somebody to whom an agent forwarded messages of the ticket, by mail; package
-- desk. Its messages have the kind forward.
ALTER TABLE conversations ADD COLUMN forwarded BOOLEAN NOT NULL DEFAULT FALSE;
