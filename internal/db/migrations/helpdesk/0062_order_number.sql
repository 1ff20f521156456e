-- Orders are found by their number.
CREATE INDEX shop_orders_number ON shop_orders (organization_id, number);
