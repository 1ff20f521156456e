-- Searches for customers by parts of names and numbers read this index, not the documents;
-- package fleet, customer_search.go. Its predicate holds for all customers and is part of these
-- queries only: others would scan it, since it has the columns of their filters.
CREATE INDEX customers_search ON customers (organization_id, id, name, email, phone, external_id) WHERE length(id) > 0;
