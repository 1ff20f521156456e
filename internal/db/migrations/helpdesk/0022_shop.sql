-- What shops, marketplaces and payment providers say of customers and orders, and
-- what the law asks for; package shop.
--
-- A place is where a provider's ids have their meaning: a connection, or, where an
-- organization has none, its medium.
CREATE TABLE shop_places (
	place           TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	address         TEXT NOT NULL   -- the shop's; stays when the connection goes
) WITHOUT ROWID;
CREATE INDEX shop_places_address ON shop_places (address);

-- Who a provider's customer is at the desk. Guests, whom the provider has no record
-- of, stand by "guest:" and the desk's id.
CREATE TABLE shop_customers (
	place           TEXT NOT NULL,
	external_id     TEXT NOT NULL,
	organization_id TEXT NOT NULL,
	customer_id     TEXT NOT NULL,
	name            TEXT NOT NULL,  -- as the provider said last, like the next two
	email           TEXT NOT NULL,
	phone           TEXT NOT NULL,
	made            BOOLEAN NOT NULL, -- the desk did not know them before
	deleted         BOOLEAN NOT NULL, -- by the provider's word
	updated_at      BIGINT NOT NULL, -- by the provider's clock; 0: only orders told of them
	PRIMARY KEY (place, external_id)
) WITHOUT ROWID;
CREATE INDEX shop_customers_customer ON shop_customers (customer_id);

CREATE TABLE shop_orders (
	place           TEXT NOT NULL,
	external_id     TEXT NOT NULL,
	organization_id TEXT NOT NULL,
	customer_id     TEXT,           -- the desk's
	number          TEXT NOT NULL,
	status          TEXT NOT NULL,
	currency        TEXT NOT NULL,
	total           TEXT NOT NULL,
	url             TEXT NOT NULL,
	items           TEXT NOT NULL,  -- JSON
	placed_at       BIGINT,
	updated_at      BIGINT NOT NULL, -- by the provider's clock; 0: only returns told of it
	PRIMARY KEY (place, external_id)
) WITHOUT ROWID;
CREATE INDEX shop_orders_customer ON shop_orders (customer_id, placed_at) WHERE customer_id IS NOT NULL;

CREATE TABLE shop_returns (
	place       TEXT NOT NULL,
	order_id    TEXT NOT NULL,      -- the provider's
	external_id TEXT NOT NULL,
	status      TEXT NOT NULL,
	reason      TEXT NOT NULL,
	items       TEXT NOT NULL,      -- JSON
	updated_at  BIGINT NOT NULL,
	PRIMARY KEY (place, order_id, external_id)
) WITHOUT ROWID;

-- Whom, and what, a provider had us forget: news that is older is not taken any more.
CREATE TABLE shop_forgotten (
	digest BLOB PRIMARY KEY,        -- of the place and the provider's id
	at     BIGINT NOT NULL
) WITHOUT ROWID;

-- What the law asks for. Once somebody is forgotten, nothing in it says who it was.
CREATE TABLE privacy_requests (
	id              TEXT PRIMARY KEY,
	organization_id TEXT NOT NULL,
	place           TEXT NOT NULL,
	kind            TEXT NOT NULL,
	shop            TEXT NOT NULL,  -- its address
	request_key     TEXT NOT NULL,  -- the provider's id of the request, or our own
	subject         TEXT,           -- the provider's id of the customer
	details         TEXT,           -- JSON: who it is, until it is done
	received_at     BIGINT NOT NULL,
	due_at          BIGINT NOT NULL,
	completed_at    BIGINT,
	outcome         TEXT,           -- JSON: what was done
	attempts        BIGINT NOT NULL DEFAULT 0,
	error           TEXT            -- of the last attempt
) WITHOUT ROWID;
CREATE UNIQUE INDEX privacy_requests_key ON privacy_requests (place, kind, request_key);
CREATE INDEX privacy_requests_organization ON privacy_requests (organization_id, id);
CREATE INDEX privacy_requests_subject ON privacy_requests (place, subject) WHERE subject IS NOT NULL;

-- What was too large for a mail, for whoever has the link.
CREATE TABLE privacy_exports (
	digest          BLOB PRIMARY KEY, -- SHA-256 of the link's token
	request_id      TEXT NOT NULL,
	blob_key        TEXT NOT NULL,
	until           BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX privacy_exports_request ON privacy_exports (request_id);

-- The subscriptions at the shop of each connection.
CREATE TABLE shop_subscriptions (
	connection_id TEXT PRIMARY KEY,
	job_id        TEXT NOT NULL,    -- that looks after them
	checked_at    BIGINT,
	problem       TEXT              -- what is wrong with them, in plain words
) WITHOUT ROWID;
