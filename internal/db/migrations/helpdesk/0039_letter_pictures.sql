-- Pictures that mails link to and somebody has loaded; packages desk and picture. A row
-- without a file and an error is being loaded.
CREATE TABLE letter_pictures (
	message_id   TEXT NOT NULL,
	digest       TEXT NOT NULL,   -- SHA-256 of the address, in hex
	claimed_at   BIGINT NOT NULL,
	blob_key     TEXT,
	content_type TEXT,            -- of the bytes
	size         BIGINT,
	error        TEXT,            -- why there never is a file
	PRIMARY KEY (message_id, digest)
);
CREATE INDEX letter_pictures_blob ON letter_pictures (blob_key) WHERE blob_key IS NOT NULL;
