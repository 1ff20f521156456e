-- Tracks from before are deleted (µs); package fleet, tracks.go. A previous version does not write the
-- column, and the next deletion does.
ALTER TABLE settings ADD COLUMN tracks_deleted_before BIGINT NOT NULL DEFAULT 0;
