-- Further addresses of connections, and whole domains, which begin with @; package connection.
CREATE TABLE connection_aliases (
	connection_id   TEXT NOT NULL,
	address         TEXT NOT NULL,
	organization_id TEXT NOT NULL,
	medium          TEXT NOT NULL,
	PRIMARY KEY (connection_id, address)
) WITHOUT ROWID;
CREATE INDEX connection_aliases_address ON connection_aliases (organization_id, medium, address);
