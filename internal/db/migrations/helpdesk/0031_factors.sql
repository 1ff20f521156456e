-- Second factors and fresh proof; packages account and account/factor.

-- Members work only in sessions with two factors.
ALTER TABLE organizations ADD COLUMN second_factor_required BOOLEAN NOT NULL DEFAULT FALSE;

ALTER TABLE sessions ADD COLUMN second_factor BOOLEAN NOT NULL DEFAULT FALSE; -- a passkey, or two steps
ALTER TABLE sessions ADD COLUMN proven_at BIGINT NOT NULL DEFAULT 0;          -- sign-in, or the last proof of identity

-- The password was set in a session without a fresh proof of identity. It signs in, and proves nothing.
ALTER TABLE users ADD COLUMN password_unproven BOOLEAN NOT NULL DEFAULT FALSE;

-- A sign-in after its first step. It is no session: its token opens nothing.
CREATE TABLE pending_sign_ins (
	id         TEXT PRIMARY KEY,     -- of the session that it becomes
	digest     BLOB NOT NULL UNIQUE, -- SHA-256 of the token in the browser's cookie
	user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
	redirect   TEXT NOT NULL,
	created_at BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX pending_sign_ins_user ON pending_sign_ins (user_id);
CREATE INDEX pending_sign_ins_age ON pending_sign_ins (created_at);

CREATE TABLE passkeys (
	id            TEXT PRIMARY KEY,
	user_id       TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
	credential_id BLOB NOT NULL UNIQUE, -- the authenticator's
	credential    TEXT NOT NULL,        -- JSON: public key, signature counter, flags, transports
	name          TEXT NOT NULL,
	created_at    BIGINT NOT NULL,
	used_at       BIGINT                -- NULL: never
) WITHOUT ROWID;
CREATE INDEX passkeys_user ON passkeys (user_id);

-- Challenges that were answered. A second answer violates the key.
CREATE TABLE passkey_challenges (
	digest  BLOB PRIMARY KEY, -- SHA-256 of the challenge
	used_at BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX passkey_challenges_age ON passkey_challenges (used_at);

CREATE TABLE totp_secrets (
	user_id    TEXT PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
	secret     BLOB NOT NULL,   -- sealed
	last_step  BIGINT NOT NULL, -- the time step of the last accepted code: it and earlier ones are refused
	created_at BIGINT NOT NULL
) WITHOUT ROWID;

CREATE TABLE recovery_codes (
	user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
	digest     BLOB NOT NULL, -- SHA-256 of salt and code
	salt       BLOB NOT NULL,
	created_at BIGINT NOT NULL,
	used_at    BIGINT,        -- NULL: it works
	PRIMARY KEY (user_id, digest)
) WITHOUT ROWID;

-- Codes mailed as a proof of identity, one to a session.
CREATE TABLE proof_codes (
	session_id TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
	mac        BLOB NOT NULL,
	tries      BIGINT NOT NULL, -- wrong ones
	created_at BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX proof_codes_age ON proof_codes (created_at);
