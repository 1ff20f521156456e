-- Files that are fetched after their message; packages desk and inbound. While pending,
-- a job of kind media has the attachment's id.
ALTER TABLE attachments ADD COLUMN pending BOOLEAN NOT NULL DEFAULT FALSE;
