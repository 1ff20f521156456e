-- What the API writes: the caller's own ids and notes on records, and tickets
-- that are merged and split; package desk.
ALTER TABLE tickets ADD COLUMN external_id TEXT;    -- the API client's
ALTER TABLE tickets ADD COLUMN metadata TEXT;       -- JSON object of strings; NULL: empty
ALTER TABLE tickets ADD COLUMN merged_into_id TEXT; -- what was in it is there
ALTER TABLE tickets ADD COLUMN merged_at BIGINT;
ALTER TABLE tickets ADD COLUMN merged_status TEXT;  -- what it was before
ALTER TABLE tickets ADD COLUMN moved_at BIGINT;     -- when something last came from, or went to, another ticket
CREATE UNIQUE INDEX tickets_external ON tickets (organization_id, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX tickets_merged ON tickets (merged_into_id) WHERE merged_into_id IS NOT NULL;
CREATE INDEX tickets_linked ON tickets (linked_ticket_id, number) WHERE linked_ticket_id IS NOT NULL;

-- Rows of a merged ticket are moved to where they are shown, and remember whose
-- they are. NULL: the ticket's they are in. Messages of a conversation are its.
ALTER TABLE conversations ADD COLUMN home_id TEXT;
ALTER TABLE messages ADD COLUMN home_id TEXT; -- of what is in no conversation
ALTER TABLE participants ADD COLUMN home_id TEXT;

ALTER TABLE customers ADD COLUMN external_id TEXT;  -- the API client's
ALTER TABLE customers ADD COLUMN metadata TEXT;     -- JSON object of strings; NULL: empty
ALTER TABLE customers ADD COLUMN deleted_at BIGINT; -- nothing personal is left
CREATE UNIQUE INDEX customers_external ON customers (organization_id, external_id) WHERE external_id IS NOT NULL;
