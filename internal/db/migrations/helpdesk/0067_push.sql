-- The deployment's key pair for Web Push (VAPID, RFC 8292); package push. Every subscription names
-- the public key, so the pair never changes.
CREATE TABLE push_keys (
	id          TEXT PRIMARY KEY, -- vapid
	public_key  TEXT NOT NULL,    -- base64url of the uncompressed point
	private_key BLOB NOT NULL,    -- sealed
	created_at  BIGINT NOT NULL
);

-- Browsers that get a member's notices by Web Push. A subscription ends with its session.
CREATE TABLE push_subscriptions (
	id              TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	user_id         TEXT NOT NULL,
	session_id      TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
	digest          BLOB NOT NULL, -- SHA-256 of the endpoint
	target          BLOB NOT NULL, -- sealed: endpoint and keys of the browser
	service         TEXT NOT NULL, -- host of the endpoint
	browser         TEXT NOT NULL, -- "Firefox on Linux"; empty: unknown
	created_at      BIGINT NOT NULL,
	sent_at         BIGINT         -- when the push service last accepted a notice; NULL: never
);
CREATE UNIQUE INDEX push_subscriptions_session ON push_subscriptions (session_id);
CREATE UNIQUE INDEX push_subscriptions_digest ON push_subscriptions (digest);
CREATE INDEX push_subscriptions_user ON push_subscriptions (user_id, organization_id);
