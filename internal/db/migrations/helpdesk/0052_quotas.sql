-- Use of organizations, and limits that the operator set for one; package quota. Organizations
-- that have no limit need no row.
CREATE TABLE quotas (
	organization_id TEXT PRIMARY KEY,
	storage         BIGINT NOT NULL, -- bytes of the files with counted set
	day             BIGINT NOT NULL, -- of messages: UTC, in days since 1970
	messages        BIGINT NOT NULL,
	max_storage     BIGINT,          -- NULL: the plan's; -1: unlimited
	max_messages    BIGINT,
	max_webhooks    BIGINT,
	notified_at     BIGINT,          -- of the last mail about storage
	notified_share  BIGINT           -- its percentage
) WITHOUT ROWID;

-- Whether the use of the organization includes the file. Files of organizations without a limit
-- are not counted until it gets one; those of a previous version of the program neither.
ALTER TABLE attachments ADD COLUMN counted BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE letter_pictures ADD COLUMN counted BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE inbound_events ADD COLUMN counted BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX attachments_uncounted ON attachments (organization_id) WHERE blob_key IS NOT NULL AND NOT counted;
CREATE INDEX inbound_events_uncounted ON inbound_events (organization_id) WHERE body_key IS NOT NULL AND NOT counted;
