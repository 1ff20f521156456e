-- Imports of history from other helpdesks; packages importer and desk.

-- Runs of an import. One of the same source and digest continues where the last one ended.
CREATE TABLE imports (
	id              TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	source          TEXT NOT NULL, -- mbox, csv, zendesk
	name            TEXT NOT NULL, -- of the file or folder
	digest          TEXT NOT NULL, -- of the content that was read
	state           TEXT NOT NULL, -- waiting, running, done, failed, undoing, undone
	dry             BOOLEAN NOT NULL,
	options         TEXT,          -- JSON
	file_key        TEXT,          -- the uploaded file; NULL: read by the command, or no longer needed
	file_size       BIGINT NOT NULL,
	position        BIGINT NOT NULL, -- tickets that are done, in the order of the source
	total           BIGINT NOT NULL, -- tickets of the source; 0 until it has been read
	counts          TEXT NOT NULL, -- JSON
	problems        TEXT NOT NULL, -- JSON, the first ones
	error           TEXT,          -- why the run ended early
	created_by      TEXT,          -- user; NULL: the operator
	created_at      BIGINT NOT NULL,
	updated_at      BIGINT NOT NULL,
	finished_at     BIGINT
) WITHOUT ROWID;
CREATE INDEX imports_organization ON imports (organization_id, id);

-- The records that imports have written, by their ids at the source. They are written in the
-- transaction of the record, so that no record is imported twice.
CREATE TABLE import_records (
	organization_id TEXT NOT NULL,
	source          TEXT NOT NULL,
	kind            TEXT NOT NULL,    -- customer, ticket, message, file
	external_id     TEXT NOT NULL,
	import_id       TEXT NOT NULL,    -- which wrote it
	record_id       TEXT NOT NULL,    -- ours
	incomplete      BOOLEAN NOT NULL, -- a file without content, which a further run fetches
	kept            BOOLEAN NOT NULL DEFAULT FALSE, -- stays after the import was undone
	PRIMARY KEY (organization_id, source, kind, external_id)
) WITHOUT ROWID;
CREATE INDEX import_records_import ON import_records (import_id, kind, record_id);
CREATE INDEX import_records_record ON import_records (record_id);

-- Whether an imported ticket is older than one with a smaller number. Until then the numbers of an
-- organization's tickets have the order of their creation.
ALTER TABLE ticket_numbers ADD COLUMN unordered BOOLEAN NOT NULL DEFAULT FALSE;
