-- What is paid for; package billing.

ALTER TABLE organizations ADD COLUMN past_due BOOLEAN NOT NULL DEFAULT FALSE;

-- A subscription, as the payment provider's events tell of it.
CREATE TABLE billing_subscriptions (
	id              TEXT PRIMARY KEY, -- the provider's
	customer_id     TEXT,             -- the provider's
	organization_id TEXT,             -- named by an event, whether we know it or not
	facts           TEXT NOT NULL,    -- JSON: the newest of each kind
	created_at      BIGINT NOT NULL,  -- when its first event was processed
	updated_at      BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX billing_subscriptions_organization ON billing_subscriptions (organization_id);
CREATE INDEX billing_subscriptions_customer ON billing_subscriptions (customer_id);

-- Whose a customer of the provider is: for events that name no organization.
CREATE TABLE billing_customers (
	id              TEXT PRIMARY KEY, -- the provider's
	organization_id TEXT NOT NULL,
	linked_at       BIGINT NOT NULL   -- by the provider's clock: the newest link counts
) WITHOUT ROWID;
CREATE INDEX billing_customers_organization ON billing_customers (organization_id);

-- The plan for which an organization went to the checkout last. The row comes
-- before the organization that is being made.
CREATE TABLE billing_wishes (
	organization_id TEXT PRIMARY KEY,
	plan            TEXT NOT NULL,
	wanted_at       BIGINT NOT NULL
) WITHOUT ROWID;
