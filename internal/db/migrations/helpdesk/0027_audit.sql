-- The audit log; package audit. Rows are added and never changed or deleted.
--
-- The entries of an organization, and those of the deployment itself under the
-- empty organization_id, form a chain: sequence counts from 1 without gaps, hash
-- is a keyed hash over all other columns, and previous is the hash of the entry
-- before. Entries from before there was a chain have a sequence up to 0 and no
-- hash of their own; previous of entry 1 covers them.
CREATE TABLE audit_entries (
	organization_id TEXT NOT NULL,
	sequence        BIGINT NOT NULL,
	id              TEXT NOT NULL,   -- UUIDv7
	at              BIGINT NOT NULL,
	action          TEXT NOT NULL,
	outcome         TEXT NOT NULL,   -- empty: done; refused
	service         TEXT NOT NULL,   -- helpdesk, fleet
	environment     TEXT NOT NULL,   -- live, test
	surface         TEXT NOT NULL,   -- web, rpc, rest, inbound, cli, system
	actor_type      TEXT NOT NULL,
	actor_id        TEXT NOT NULL,
	actor_email     TEXT NOT NULL,
	target_type     TEXT NOT NULL,
	target_id       TEXT NOT NULL,
	target_name     TEXT NOT NULL,
	partial_key     TEXT NOT NULL,   -- of API keys: the token's last 8 characters
	address         TEXT NOT NULL,
	user_agent      TEXT NOT NULL,
	request_id      TEXT NOT NULL,
	changes         TEXT NOT NULL,   -- JSON: member to {from, to}
	details         TEXT NOT NULL,   -- JSON
	key_id          TEXT NOT NULL,   -- of the key under which hash was made
	previous        BLOB NOT NULL,
	hash            BLOB NOT NULL,
	PRIMARY KEY (organization_id, sequence)
);
CREATE UNIQUE INDEX audit_entries_id ON audit_entries (organization_id, id);
CREATE INDEX audit_entries_service ON audit_entries (organization_id, service, environment, id);
CREATE INDEX audit_entries_target ON audit_entries (organization_id, target_id, id);
CREATE INDEX audit_entries_actor ON audit_entries (organization_id, actor_id, id);

-- The last entry of each chain, so that a chain that was cut short shows.
CREATE TABLE audit_heads (
	organization_id TEXT PRIMARY KEY,
	sequence        BIGINT NOT NULL,
	hash            BLOB NOT NULL,
	key_id          TEXT NOT NULL,
	mac             BLOB NOT NULL  -- keyed hash over the other columns
) WITHOUT ROWID;

-- What the log of API keys and of the fleet held.
-- [sqlite]
INSERT INTO audit_entries (organization_id, sequence, id, at, action, outcome, service, environment, surface,
	actor_type, actor_id, actor_email, target_type, target_id, target_name, partial_key, address, user_agent, request_id,
	changes, details, key_id, previous, hash)
SELECT organization_id, 1 - row_number() OVER (PARTITION BY organization_id ORDER BY id DESC), id, at, action, '', service, environment, '',
	coalesce(json_extract(actor, '$.type'), ''), coalesce(json_extract(actor, '$.id'), ''), coalesce(json_extract(actor, '$.email'), ''),
	coalesce(json_extract(target, '$.type'), ''), target_id, coalesce(json_extract(target, '$.name'), ''), coalesce(json_extract(target, '$.partial_key'), ''),
	ip, user_agent, request_id, changes, '{}', '', x'', x''
FROM audit_log;
-- [postgres]
INSERT INTO audit_entries (organization_id, sequence, id, at, action, outcome, service, environment, surface,
	actor_type, actor_id, actor_email, target_type, target_id, target_name, partial_key, address, user_agent, request_id,
	changes, details, key_id, previous, hash)
SELECT organization_id, 1 - row_number() OVER (PARTITION BY organization_id ORDER BY id DESC), id, at, action, '', service, environment, '',
	coalesce(actor::json->>'type', ''), coalesce(actor::json->>'id', ''), coalesce(actor::json->>'email', ''),
	coalesce(target::json->>'type', ''), target_id, coalesce(target::json->>'name', ''), coalesce(target::json->>'partial_key', ''),
	ip, user_agent, request_id, changes, '{}', '', ''::bytea, ''::bytea
FROM audit_log;
-- [both]
DROP TABLE audit_log;

-- How far the webhooks of the event audit.recorded have been sent each chain of
-- their organization.
CREATE TABLE audit_streams (
	webhook_id TEXT NOT NULL,
	ledger     TEXT NOT NULL,
	since      BIGINT NOT NULL, -- entries from then on are wanted
	sequence   BIGINT,          -- of the last that has a delivery; NULL: not looked for yet
	PRIMARY KEY (webhook_id, ledger)
) WITHOUT ROWID;
