-- Recovery of webhooks; package webhook. Enabling a webhook starts a new retry
-- schedule for everything that it has not delivered.
ALTER TABLE deliveries ADD COLUMN schedule_start BIGINT NOT NULL DEFAULT 0; -- attempts before the current schedule
ALTER TABLE deliveries ADD COLUMN exhausted BIGINT;                         -- 1: out of attempts since the webhook was last enabled
CREATE INDEX deliveries_exhausted ON deliveries (webhook_id, id) WHERE exhausted IS NOT NULL;
