-- The colour of an organization on the pages and mails of people outside of it; package account.
ALTER TABLE organizations ADD COLUMN accent TEXT NOT NULL DEFAULT ''; -- #5b21b6; empty: Kickstand's
