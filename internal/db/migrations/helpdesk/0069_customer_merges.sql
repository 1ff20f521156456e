-- Merges of customers; package desk. A merged customer also has deleted_at, so that a previous version
-- of the program takes it for deleted. Rows that moved with it name it as their home.
ALTER TABLE customers ADD COLUMN merged_into_id TEXT; -- the customer that has its records
ALTER TABLE customers ADD COLUMN merged_fields TEXT;  -- JSON: fields that the other customer took over
ALTER TABLE customers ADD COLUMN merged_with TEXT;    -- JSON: ids of customers in undone merges, for redactions
CREATE INDEX customers_merged ON customers (merged_into_id) WHERE merged_into_id IS NOT NULL;

ALTER TABLE contact_points ADD COLUMN home_customer_id TEXT;
ALTER TABLE tickets ADD COLUMN home_customer_id TEXT;
ALTER TABLE conversations ADD COLUMN home_customer_id TEXT;
ALTER TABLE messages ADD COLUMN home_author_id TEXT;
ALTER TABLE shop_customers ADD COLUMN home_customer_id TEXT;
ALTER TABLE shop_orders ADD COLUMN home_customer_id TEXT;

CREATE INDEX contact_points_home ON contact_points (home_customer_id) WHERE home_customer_id IS NOT NULL;
CREATE INDEX tickets_home_customer ON tickets (home_customer_id) WHERE home_customer_id IS NOT NULL;
CREATE INDEX conversations_home_customer ON conversations (home_customer_id) WHERE home_customer_id IS NOT NULL;
CREATE INDEX messages_home_author ON messages (home_author_id) WHERE home_author_id IS NOT NULL;
CREATE INDEX shop_customers_home ON shop_customers (home_customer_id) WHERE home_customer_id IS NOT NULL;
CREATE INDEX shop_orders_home ON shop_orders (home_customer_id) WHERE home_customer_id IS NOT NULL;
