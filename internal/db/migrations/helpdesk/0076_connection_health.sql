-- Health of connections, in microseconds; package connection, health.go. They are recorded every few
-- seconds at most. received_at is of channels without inbound events.
ALTER TABLE connections ADD COLUMN received_at BIGINT;
ALTER TABLE connections ADD COLUMN sent_at BIGINT;
ALTER TABLE connections ADD COLUMN send_error TEXT;
ALTER TABLE connections ADD COLUMN send_error_at BIGINT;
