-- Searches for customers by parts of names and numbers read this index, not the documents;
-- package fleet, customer_search.go.
CREATE INDEX customers_search ON customers (organization_id, id, name, email, phone, external_id);
