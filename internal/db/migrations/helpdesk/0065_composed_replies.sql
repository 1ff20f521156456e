-- Replies by mail as agents compose them; package desk.
ALTER TABLE pending_replies ADD COLUMN bcc TEXT;                                -- JSON: see desk.Reply.Bcc
ALTER TABLE pending_replies ADD COLUMN dropped TEXT;                            -- JSON: see desk.Reply.Drop
ALTER TABLE pending_replies ADD COLUMN markdown BOOLEAN NOT NULL DEFAULT FALSE; -- html is body, rendered

-- The signatures of a mail, as they were when it was queued: as text, and rendered.
ALTER TABLE outbox ADD COLUMN signature TEXT;
ALTER TABLE outbox ADD COLUMN signature_html TEXT;
