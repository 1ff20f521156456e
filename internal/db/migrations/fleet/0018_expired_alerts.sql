-- Cleared alerts by their last change, to delete those that expired; package fleet, alert_prune.go.
CREATE INDEX alerts_cleared ON alerts (organization_id, updated_at, id) WHERE state = 'cleared';
