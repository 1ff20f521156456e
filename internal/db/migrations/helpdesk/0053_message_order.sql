-- Messages of a ticket are shown in the order of seq, which the database assigns when a message is
-- inserted, also by a previous version of the program. Messages from before have 0, and precede the
-- others in the order of their ids: so no row is written here.
ALTER TABLE messages ADD COLUMN seq BIGINT NOT NULL DEFAULT 0;
-- [sqlite]
CREATE TABLE message_numbers (
	only BIGINT PRIMARY KEY CHECK (only = 1),
	last BIGINT NOT NULL
);
INSERT INTO message_numbers (only, last) VALUES (1, 0);
CREATE TRIGGER messages_number AFTER INSERT ON messages WHEN NEW.seq > 0 BEGIN
	UPDATE message_numbers SET last = max(last, NEW.seq);
END;
-- From a previous version of the program, and not from a copy of a database.
CREATE TRIGGER messages_unnumbered AFTER INSERT ON messages
	WHEN NEW.seq = 0 AND NOT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'unfinished_copy') BEGIN
	UPDATE message_numbers SET last = last + 1;
	UPDATE messages SET seq = (SELECT last FROM message_numbers) WHERE ticket_id = NEW.ticket_id AND id = NEW.id;
END;
-- [postgres]
CREATE SEQUENCE messages_seq;
ALTER TABLE messages ALTER COLUMN seq SET DEFAULT nextval('messages_seq');
-- [both]
