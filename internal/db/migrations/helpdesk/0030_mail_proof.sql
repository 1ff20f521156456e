-- An unconfirmed participant was named by a mail that does not prove it: they get no
-- copies of replies until an agent says so, or a proven mail does.
ALTER TABLE participants ADD COLUMN unconfirmed BOOLEAN NOT NULL DEFAULT FALSE;
