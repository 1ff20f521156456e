-- Threads with several keys, tickets that go on in new ones, what the providers say
-- of connections; packages desk and connection.
ALTER TABLE tickets ADD COLUMN closed_at BIGINT; -- NULL: it is not closed, or was before this was kept

-- All keys of a thread move together.
CREATE INDEX contact_points_conversation ON contact_points (conversation_id) WHERE conversation_id IS NOT NULL;

ALTER TABLE outbox ADD COLUMN recipient_id TEXT; -- their id, where recipient is a number and both are known
ALTER TABLE outbox ADD COLUMN doubted_at BIGINT; -- the first handing over of which it is not known what became of it

-- What the provider said last of the connection itself.
ALTER TABLE connections ADD COLUMN notice TEXT;              -- in words; NULL: nothing
ALTER TABLE connections ADD COLUMN notice_kind TEXT;         -- disconnected, noticed
ALTER TABLE connections ADD COLUMN noticed_at BIGINT;
ALTER TABLE connections ADD COLUMN notice_mailed_at BIGINT;  -- when admins were told of one last

-- Who else has a file, before it is deleted.
CREATE INDEX attachments_blob ON attachments (blob_key) WHERE blob_key IS NOT NULL;

-- What somebody has to do with, before it is shown to them or forgotten. Of texts,
-- the conversation says it.
CREATE INDEX messages_author ON messages (author_id) WHERE author_type = 'customer' AND channel <> 'sms';
CREATE INDEX participants_email ON participants (email);

-- Events about a customer, and no ticket.
ALTER TABLE events ADD COLUMN customer_id TEXT;
-- [sqlite]
UPDATE events SET customer_id = json_extract(data, '$.customer.id') WHERE name IN ('customer.created', 'customer.updated');
-- [postgres]
UPDATE events SET customer_id = data::jsonb #>> '{customer,id}' WHERE name IN ('customer.created', 'customer.updated');
-- [both]
CREATE INDEX events_customer ON events (customer_id, id) WHERE customer_id IS NOT NULL;
