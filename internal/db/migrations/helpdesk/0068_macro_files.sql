-- Files of macros; package desk. Replies that are sent with one refer to the same content.
CREATE TABLE macro_files (
	id              TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	macro_id        TEXT NOT NULL,
	name            TEXT NOT NULL,
	content_type    TEXT NOT NULL,
	size            BIGINT NOT NULL, -- bytes
	blob_key        TEXT NOT NULL,
	counted         BOOLEAN NOT NULL, -- in the organization's use of storage
	created_at      BIGINT NOT NULL
);
CREATE INDEX macro_files_macro ON macro_files (macro_id);
CREATE INDEX macro_files_organization ON macro_files (organization_id);
CREATE INDEX macro_files_blob ON macro_files (blob_key);
