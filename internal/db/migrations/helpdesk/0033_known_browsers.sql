-- Browsers in which a user has signed in before; package account. A row holds the
-- SHA-256 of a random token that the browser keeps in a cookie.
CREATE TABLE known_browsers (
	user_id       TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
	digest        BLOB NOT NULL,
	user_agent    TEXT NOT NULL,   -- at the last sign-in
	first_seen_at BIGINT NOT NULL, -- first sign-in
	last_seen_at  BIGINT NOT NULL, -- last sign-in
	PRIMARY KEY (user_id, digest)
) WITHOUT ROWID;
CREATE INDEX known_browsers_digest ON known_browsers (digest);
CREATE INDEX known_browsers_seen ON known_browsers (last_seen_at);

-- The browser in which a session was opened: a digest of known_browsers. NULL for
-- sessions older than this column.
ALTER TABLE sessions ADD COLUMN browser BLOB;
