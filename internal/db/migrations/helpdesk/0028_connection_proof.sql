-- Whether a connection's address is proven to be its organization's; package
-- connection. Several organizations can claim an address, and one can have proven it.
CREATE TABLE proven_connections (
	id               TEXT PRIMARY KEY,
	organization_id  TEXT NOT NULL,
	channel          TEXT NOT NULL, -- the adapter: sms, email-raw
	medium           TEXT NOT NULL, -- what it carries: sms, email
	address          TEXT NOT NULL, -- as its adapter writes it
	name             TEXT NOT NULL,
	secrets          BLOB NOT NULL, -- sealed
	credentials      BLOB NOT NULL, -- sealed
	settings         TEXT NOT NULL,
	enabled          BOOLEAN NOT NULL,
	created_at       BIGINT NOT NULL,
	updated_at       BIGINT NOT NULL,
	notice           TEXT,
	notice_kind      TEXT,
	noticed_at       BIGINT,
	notice_mailed_at BIGINT,
	proof            TEXT NOT NULL, -- pending, proven
	proof_method     TEXT,          -- how it was proven
	proven_at        BIGINT,
	shares_secret    BOOLEAN NOT NULL DEFAULT FALSE, -- a secret of the deployment has verified a request to it
	UNIQUE (organization_id, medium, address)
);
-- What was connected before there were proofs stays connected.
INSERT INTO proven_connections (id, organization_id, channel, medium, address, name, secrets, credentials, settings, enabled,
		created_at, updated_at, notice, notice_kind, noticed_at, notice_mailed_at, proof, proof_method, proven_at, shares_secret)
	SELECT id, organization_id, channel, medium, address, name, secrets, credentials, settings, enabled,
		created_at, updated_at, notice, notice_kind, noticed_at, notice_mailed_at, 'proven', 'before_proofs', created_at, TRUE
	FROM connections;
DROP TABLE connections;
ALTER TABLE proven_connections RENAME TO connections;
CREATE INDEX connections_organization ON connections (organization_id, id);
CREATE INDEX connections_address ON connections (medium, address, id);
CREATE UNIQUE INDEX connections_proven ON connections (medium, address) WHERE proof = 'proven';

-- Challenges to prove an address. One is answered once, within its time, by the
-- message that comes back or by the code in it.
CREATE TABLE connection_challenges (
	id            TEXT PRIMARY KEY,
	connection_id TEXT NOT NULL,
	medium        TEXT NOT NULL,
	address       TEXT NOT NULL,
	way           TEXT NOT NULL,   -- mail, text, topic
	token         BLOB,            -- digest of the token that comes back; NULL: only the code answers it
	code          BLOB,            -- MAC of the code; NULL: only the token answers it
	tries         BIGINT NOT NULL, -- wrong codes
	sent_at       BIGINT NOT NULL,
	expires_at    BIGINT NOT NULL,
	ended_at      BIGINT           -- answered, used up or replaced
);
CREATE UNIQUE INDEX connection_challenges_token ON connection_challenges (token);
CREATE INDEX connection_challenges_connection ON connection_challenges (connection_id, id);
CREATE INDEX connection_challenges_address ON connection_challenges (medium, address, expires_at);
CREATE INDEX connection_challenges_expires ON connection_challenges (expires_at);

-- Attempts at proofs by window of time: of an organization, for an address, in all.
CREATE TABLE proof_limits (
	name    TEXT NOT NULL,
	ends_at BIGINT NOT NULL, -- of the window
	count   BIGINT NOT NULL,
	PRIMARY KEY (name, ends_at)
) WITHOUT ROWID;

-- Whether the address of a shop was once proven. Only then is its organization its
-- former owner.
ALTER TABLE shop_places ADD COLUMN proven BOOLEAN NOT NULL DEFAULT TRUE;
