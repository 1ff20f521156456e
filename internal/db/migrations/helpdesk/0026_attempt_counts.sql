-- How many attempts went well, half hour by half hour: package webhook. A day of
-- a busy webhook has too many to be counted when somebody looks.
CREATE TABLE attempt_counts (
	webhook_id TEXT NOT NULL,
	at         BIGINT NOT NULL, -- start of the half hour
	delivered  BIGINT NOT NULL,
	retried    BIGINT NOT NULL,
	failed     BIGINT NOT NULL,
	PRIMARY KEY (webhook_id, at)
) WITHOUT ROWID;
