-- Logos of organizations, addressed by their content; package account. Former ones remain for the mails that show them.
CREATE TABLE organization_logos (
	organization_id TEXT NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
	name            TEXT NOT NULL, -- SHA-256 of the content and size in pixels: 9f86…-400x120
	content         BLOB NOT NULL, -- PNG
	created_at      BIGINT NOT NULL,
	PRIMARY KEY (organization_id, name)
);
CREATE INDEX organization_logos_name ON organization_logos (name);

ALTER TABLE organizations ADD COLUMN logo TEXT NOT NULL DEFAULT ''; -- the name of one of them; empty: none
ALTER TABLE organizations ADD COLUMN reply_logo BOOLEAN NOT NULL DEFAULT FALSE; -- replies by mail end with it
