-- By which way a message was handed over, when it is not known what became of it:
-- only there can that be found out, or is it harmless to hand it over again.
ALTER TABLE outbox ADD COLUMN handed_by TEXT; -- NULL: not handed over, or before this was kept
