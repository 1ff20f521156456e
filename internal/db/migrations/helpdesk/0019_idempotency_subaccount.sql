-- Which subaccounts a stored answer is about, separated by spaces; empty: none.
-- A retry gets the answer only if its key reaches them.
ALTER TABLE idempotency_keys ADD COLUMN subaccount_id TEXT NOT NULL DEFAULT '';
