-- One row that is written to see whether the database can be; package db.
CREATE TABLE heartbeat (
	id      BIGINT PRIMARY KEY CHECK (id = 1),
	beat_at BIGINT NOT NULL
) WITHOUT ROWID;
