-- Telephone calls, from however many legs; package call.
CREATE TABLE calls (
	id              TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	connection_id   TEXT NOT NULL, -- empty: the organization has none for the address
	channel         TEXT NOT NULL, -- the adapter's name
	medium          TEXT NOT NULL,
	phone           TEXT,          -- of who is not us, E.164
	ticket_id       TEXT,          -- the ticket that came of it
	facts           TEXT NOT NULL, -- JSON: all that is known
	version         BIGINT NOT NULL,
	created_at      BIGINT NOT NULL,
	updated_at      BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX calls_ticket ON calls (ticket_id) WHERE ticket_id IS NOT NULL;
CREATE INDEX calls_phone ON calls (organization_id, phone) WHERE phone IS NOT NULL;
CREATE INDEX calls_organization ON calls (organization_id, id);

-- By which ids of the provider's a call is known. The scope is the connection, or the
-- organization where there is none.
CREATE TABLE call_legs (
	scope   TEXT NOT NULL,
	leg     TEXT NOT NULL,
	call_id TEXT NOT NULL,
	PRIMARY KEY (scope, leg)
) WITHOUT ROWID;
CREATE INDEX call_legs_call ON call_legs (call_id);

-- Voicemails that one of two has told of lately, the telephone provider's mail or its
-- events, for the other to find; package desk.
CREATE TABLE voicemails (
	organization_id TEXT NOT NULL,
	phone           TEXT NOT NULL, -- the caller's, in the form that is compared
	message_id      TEXT NOT NULL,
	ticket_id       TEXT NOT NULL,
	by_mail         BOOLEAN NOT NULL,
	at              BIGINT NOT NULL,
	PRIMARY KEY (organization_id, phone, message_id)
) WITHOUT ROWID;

-- What is on its way, for the provider's news of it to find.
CREATE INDEX outbox_handed ON outbox (connection_id, recipient) WHERE handed_at IS NOT NULL;
