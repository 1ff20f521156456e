-- The W3C traceparent of the transaction that enqueued a job; NULL while traces are off.
ALTER TABLE jobs ADD COLUMN trace TEXT;
