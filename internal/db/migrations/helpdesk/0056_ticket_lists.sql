-- Lists by priority walk this index, and test the filters within it; package desk.
DROP INDEX tickets_priority;
CREATE INDEX tickets_priority ON tickets (organization_id, priority, number, status, channel, assignee_id);
-- tickets_created has what it has, and tickets_live what is not closed.
DROP INDEX tickets_status;
