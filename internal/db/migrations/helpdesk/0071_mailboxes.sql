-- Mailboxes that are read by IMAP, one for each connection of the channel mailbox; package mailbox.
CREATE TABLE mailboxes (
	connection_id   TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	holder          TEXT NOT NULL,   -- the process with the lease; empty: none
	fence           BIGINT NOT NULL, -- grows with each lease
	lease_until     BIGINT NOT NULL,
	retry_at        BIGINT NOT NULL, -- nobody reads it before
	state           TEXT NOT NULL,   -- waiting, reading, failing or consent
	error           TEXT,            -- why it fails; NULL: it does not
	failing_since   BIGINT,          -- NULL: it does not fail
	failures        BIGINT NOT NULL, -- in a row
	checked_at      BIGINT,          -- when all its folders were last read to the end
	last_mail_at    BIGINT,          -- when the last mail was collected
	collected       BIGINT NOT NULL, -- number of mails
	import_since    BIGINT NOT NULL, -- mails that arrived before it was connected are collected from then on
	revision        BIGINT NOT NULL, -- of the connection's configuration
	tokens          BLOB             -- OAuth, encrypted; NULL: none
) WITHOUT ROWID;
CREATE INDEX mailboxes_due ON mailboxes (lease_until, retry_at);
CREATE INDEX mailboxes_organization ON mailboxes (organization_id);

-- How far a folder has been read.
CREATE TABLE mailbox_folders (
	connection_id   TEXT NOT NULL,
	folder          TEXT NOT NULL,
	organization_id TEXT NOT NULL,
	source          TEXT NOT NULL,   -- the configured folder, which folder was before it was renamed
	uid_validity    BIGINT NOT NULL,
	last_uid        BIGINT NOT NULL, -- mails up to it are collected
	import_until    BIGINT NOT NULL, -- up to it only mails since mailboxes.import_since
	PRIMARY KEY (connection_id, folder)
) WITHOUT ROWID;

-- The mails that were collected, so that none is collected twice under another UID.
CREATE TABLE mailbox_mails (
	connection_id   TEXT NOT NULL,
	digest          BLOB NOT NULL,    -- of the Message-ID and of all bytes
	organization_id TEXT NOT NULL,
	uid_validity    BIGINT NOT NULL,
	uid             BIGINT NOT NULL,
	collected_at    BIGINT NOT NULL,
	unmarked        BOOLEAN NOT NULL, -- it must be marked or moved in the mailbox
	PRIMARY KEY (connection_id, digest)
) WITHOUT ROWID;
CREATE INDEX mailbox_mails_unmarked ON mailbox_mails (connection_id, uid_validity, uid) WHERE unmarked;
