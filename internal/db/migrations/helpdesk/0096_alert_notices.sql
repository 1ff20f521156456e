-- Notices about alerts of the fleet; package desk, alert.go. They have no ticket: ticket_id is empty,
-- and the other members are set.
ALTER TABLE notices ADD COLUMN alert_id TEXT;
ALTER TABLE notices ADD COLUMN title TEXT; -- of the alert
ALTER TABLE notices ADD COLUMN path TEXT;  -- of its page, below the base URL
CREATE INDEX notices_alert ON notices (organization_id, alert_id) WHERE alert_id IS NOT NULL;
