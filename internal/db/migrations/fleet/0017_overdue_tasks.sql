-- What was sent when tasks became overdue; package fleet, task_overdue.go. A previous version
-- neither reads nor writes these columns.
ALTER TABLE tasks ADD COLUMN sent_due_at BIGINT;          -- the due time of the last task.overdue
ALTER TABLE tasks ADD COLUMN sent_odometer_meters BIGINT; -- the due odometer of the last one
ALTER TABLE tasks ADD COLUMN relay TEXT;                  -- JSON: the notice that the helpdesk writes; NULL: nothing more
CREATE INDEX tasks_relay ON tasks (organization_id, id) WHERE relay IS NOT NULL;
