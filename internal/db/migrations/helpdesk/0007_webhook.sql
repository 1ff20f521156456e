-- Outgoing webhooks, their deliveries and attempts; package webhook.
CREATE TABLE webhooks (
	id               TEXT PRIMARY KEY,
	organization_id  TEXT NOT NULL,
	url              TEXT NOT NULL,
	events           TEXT NOT NULL,            -- names or *, separated by spaces
	state            TEXT NOT NULL,            -- enabled, disabled (by hand), failed
	payload_form     TEXT NOT NULL,            -- a or b
	retry_schedule   TEXT NOT NULL,            -- one or two
	secret           BLOB,                     -- sealed
	old_secret       BLOB,                     -- sealed; the one replaced, still signing
	old_secret_until BIGINT,
	held             BIGINT NOT NULL DEFAULT 0, -- not enabled: deliveries waiting, as far as counted
	dropped          BIGINT NOT NULL DEFAULT 0,
	ordered_until    TEXT,                     -- up to this delivery, untried ones go one by one
	last_delivery_at BIGINT,
	last_error       TEXT,
	created_at       BIGINT NOT NULL,
	updated_at       BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX webhooks_organization ON webhooks (organization_id, id);

-- One event to one webhook. The id is also that of the job that sends it. The
-- newest attempt stands here: few deliveries have more than one.
CREATE TABLE deliveries (
	webhook_id    TEXT NOT NULL,
	id            TEXT NOT NULL,
	event_id      TEXT NOT NULL,
	event         TEXT NOT NULL,
	state         BIGINT NOT NULL, -- 0 untried, 1 retrying, 2 delivered, 3 failed, 4 dropped
	is_test       BIGINT NOT NULL DEFAULT 0,
	created_at    BIGINT NOT NULL,
	next_at       BIGINT,          -- retrying: when
	attempts      BIGINT NOT NULL DEFAULT 0,
	attempted_at  BIGINT,
	status        BIGINT,          -- NULL when there was no answer
	latency       BIGINT,          -- microseconds
	error         TEXT,
	response      TEXT,            -- the start of the answer's body
	PRIMARY KEY (webhook_id, id)
) WITHOUT ROWID;
CREATE INDEX deliveries_waiting ON deliveries (webhook_id, state, id) WHERE state < 2;

-- The attempts before the newest.
CREATE TABLE delivery_attempts (
	webhook_id   TEXT NOT NULL,
	delivery_id  TEXT NOT NULL,
	attempt      BIGINT NOT NULL, -- from 1
	attempted_at BIGINT NOT NULL,
	status       BIGINT,
	latency      BIGINT NOT NULL,
	error        TEXT,
	response     TEXT,
	PRIMARY KEY (webhook_id, delivery_id, attempt)
) WITHOUT ROWID;
