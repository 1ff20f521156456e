-- Finds a ticket's newest message. It has no rows yet, but PostgreSQL reads the table: in a
-- transaction of its own, so that others read it meanwhile.
CREATE INDEX messages_order ON messages (ticket_id, seq) WHERE seq > 0;
