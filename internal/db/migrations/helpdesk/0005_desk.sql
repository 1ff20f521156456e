-- Customers, tickets and what was said in them; package desk.
--
-- Ids are UUIDv7, so rows of a new ticket land at the end of every tree; the one
-- tree that grows in random places is contact_points. There are no foreign keys:
-- rows of one ticket are written and deleted together, by one package, and the
-- checks would cost more than the inserts.
CREATE TABLE customers (
	id              TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	name            TEXT NOT NULL,
	email           TEXT NOT NULL, -- the first of several, as given
	phone           TEXT NOT NULL, -- the first of several, E.164
	created_at      BIGINT NOT NULL,
	updated_at      BIGINT NOT NULL
) WITHOUT ROWID;

-- Under what somebody, or some thread, is known. The scope is the organization
-- for mail addresses and numbers; for what means nothing outside of its
-- connection it is the connection. A number and its thread are neighbours.
CREATE TABLE contact_points (
	value            TEXT NOT NULL, -- the form that is compared
	scope            TEXT NOT NULL,
	kind             TEXT NOT NULL, -- email, phone, thread, or the channel whose id it is
	display          TEXT,          -- as first given, where that differs
	customer_id      TEXT,          -- whose it is; NULL for what is only a thread
	ticket_id        TEXT,          -- the thread's, with conversation_id
	conversation_id  TEXT,
	undeliverable_at BIGINT,
	PRIMARY KEY (value, scope)
) WITHOUT ROWID;
CREATE INDEX contact_points_customer ON contact_points (customer_id) WHERE customer_id IS NOT NULL;

CREATE TABLE ticket_numbers (
	organization_id TEXT PRIMARY KEY,
	last            BIGINT NOT NULL
) WITHOUT ROWID;

CREATE TABLE tickets (
	id                 TEXT PRIMARY KEY,
	organization_id    TEXT NOT NULL,
	number             BIGINT NOT NULL,
	subject            TEXT NOT NULL,
	status             TEXT NOT NULL, -- open, pending, on_hold, resolved, closed
	priority           TEXT NOT NULL, -- low, normal, high, urgent
	channel            TEXT NOT NULL,
	customer_id        TEXT NOT NULL,
	assignee_id        TEXT,
	tags               TEXT,          -- JSON array
	linked_ticket_id   TEXT,          -- the ticket that this one points at
	link_reason        TEXT,          -- closed, ticket_tag
	created_at         BIGINT NOT NULL,
	updated_at         BIGINT NOT NULL,
	first_responded_at BIGINT,
	resolved_at        BIGINT
) WITHOUT ROWID;
CREATE UNIQUE INDEX tickets_number ON tickets (organization_id, number);
CREATE INDEX tickets_status ON tickets (organization_id, status, number);

CREATE TABLE conversations (
	ticket_id     TEXT NOT NULL,
	id            TEXT NOT NULL,
	connection_id TEXT NOT NULL, -- empty: the organization has none for it
	channel       TEXT NOT NULL,
	thread_key    TEXT,          -- a contact point's value; the root Message-ID for mail
	customer_id   TEXT NOT NULL,
	opted_out_at  BIGINT,
	created_at    BIGINT NOT NULL,
	PRIMARY KEY (ticket_id, id)
) WITHOUT ROWID;

-- With row ids, unlike the others: rows are large and must not be moved when a
-- tree is split.
CREATE TABLE messages (
	ticket_id       TEXT NOT NULL,
	id              TEXT NOT NULL,
	conversation_id TEXT NOT NULL,
	direction       TEXT NOT NULL, -- inbound, outbound
	author_type     TEXT NOT NULL, -- customer, agent, system
	author_id       TEXT,
	author_name     TEXT NOT NULL,
	channel         TEXT NOT NULL,
	kind            TEXT NOT NULL, -- reply, note
	body            TEXT NOT NULL,
	stripped        TEXT,          -- body without quoted mail, where that differs
	html            TEXT,
	external_id     TEXT,
	delivery_state  TEXT,
	delivery_error  TEXT,
	placed_by       TEXT NOT NULL, -- the threading rule
	details         TEXT,          -- JSON
	sent_at         BIGINT,        -- by the sender's clock
	created_at      BIGINT NOT NULL,
	PRIMARY KEY (ticket_id, id)
);
-- One message is written once.
CREATE UNIQUE INDEX messages_external ON messages (conversation_id, external_id) WHERE external_id IS NOT NULL;

-- Every id under which others may name a message: all Message-IDs of mails, and
-- of what went out each provider's id and our own. Scope as in contact_points.
CREATE TABLE message_ids (
	folded          TEXT NOT NULL, -- lower-case
	scope           TEXT NOT NULL,
	exact           TEXT NOT NULL,
	ticket_id       TEXT NOT NULL,
	conversation_id TEXT NOT NULL,
	message_id      TEXT NOT NULL,
	outbound        BOOLEAN NOT NULL,
	PRIMARY KEY (folded, scope, exact)
) WITHOUT ROWID;
CREATE INDEX message_ids_ticket ON message_ids (ticket_id);

-- Who takes part in a ticket beside its customer.
CREATE TABLE participants (
	ticket_id  TEXT NOT NULL,
	email      TEXT NOT NULL, -- lower-case
	name       TEXT NOT NULL,
	role       TEXT NOT NULL, -- sender, recipient
	created_at BIGINT NOT NULL,
	PRIMARY KEY (ticket_id, email)
) WITHOUT ROWID;

CREATE TABLE attachments (
	id              TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	ticket_id       TEXT NOT NULL,
	message_id      TEXT NOT NULL,
	name            TEXT NOT NULL,
	content_type    TEXT NOT NULL,
	content_id      TEXT,
	inline          BOOLEAN NOT NULL,
	size            BIGINT NOT NULL,
	blob_key        TEXT,          -- NULL: the content could not be had
	error           TEXT,          -- why
	created_at      BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX attachments_ticket ON attachments (ticket_id);
