-- Accounts: the absolute end of sessions, notices of new browsers, identities, the
-- provider policy, and the credentials of members that leave; packages account and
-- webhook.
CREATE INDEX sessions_created ON sessions (created_at);

ALTER TABLE users ADD COLUMN signed_in_at BIGINT; -- the first sign-in; NULL: none since this column was added

-- People at identity providers. The e-mail address is the one that linked them.
CREATE TABLE identities (
	issuer     TEXT NOT NULL,
	subject    TEXT NOT NULL,
	user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
	email      TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	used_at    BIGINT NOT NULL, -- the last sign-in
	PRIMARY KEY (issuer, subject),
	UNIQUE (user_id, issuer)
) WITHOUT ROWID;

-- Which members sign in by the identity provider only: all, or domain:a,b. NULL: nobody.
ALTER TABLE organizations ADD COLUMN provider_only TEXT;
-- Opened by the identity provider, or by a way in for emergencies.
ALTER TABLE sessions ADD COLUMN by_provider BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE pending_sign_ins ADD COLUMN by_provider BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE pending_sign_ins ADD COLUMN recovery_only BOOLEAN NOT NULL DEFAULT FALSE; -- no other second step completes it
ALTER TABLE login_links ADD COLUMN by_operator BOOLEAN NOT NULL DEFAULT FALSE;

-- The user that created a webhook; NULL: an API key, the operator, or before this column.
ALTER TABLE webhooks ADD COLUMN created_by TEXT;
CREATE INDEX webhooks_created_by ON webhooks (created_by) WHERE created_by IS NOT NULL;
