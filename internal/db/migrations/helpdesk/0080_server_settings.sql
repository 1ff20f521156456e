-- Settings of the server that an operator changed on a page; package setting. A flag, a variable or
-- the configuration file overrides them.
CREATE TABLE server_settings (
	name       TEXT PRIMARY KEY, -- of the flag: sign-up
	value      BLOB NOT NULL,    -- sealed
	changed_at BIGINT NOT NULL
);
