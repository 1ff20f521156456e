-- The events of one change share a row, in the order of their ids: members has their names, each
-- with the parts of data that it has ("ticket.created:t message.created:tm"). NULL: one event.
-- Programs of the previous version do not know such rows. So none are written before the database
-- refuses these programs.
ALTER TABLE events ADD COLUMN members TEXT;
