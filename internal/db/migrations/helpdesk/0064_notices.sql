-- The members who follow a ticket; package desk.
CREATE TABLE ticket_followers (
	ticket_id       TEXT NOT NULL,
	user_id         TEXT NOT NULL,
	organization_id TEXT NOT NULL,
	followed_at     BIGINT NOT NULL,
	PRIMARY KEY (ticket_id, user_id)
) WITHOUT ROWID;
CREATE INDEX ticket_followers_user ON ticket_followers (user_id, organization_id);

-- Notices to members about tickets, the newest ones of each member.
CREATE TABLE notices (
	id              TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	user_id         TEXT NOT NULL,
	ticket_id       TEXT NOT NULL,
	kind            TEXT NOT NULL,
	message_id      TEXT,             -- the message that caused it
	page            BOOLEAN NOT NULL, -- the member wants it in the page
	mail            BOOLEAN NOT NULL, -- a mail with it is due
	created_at      BIGINT NOT NULL,
	seen_at         BIGINT            -- NULL: unread
) WITHOUT ROWID;
CREATE INDEX notices_user ON notices (user_id, organization_id, id);
CREATE INDEX notices_ticket ON notices (ticket_id, user_id);
