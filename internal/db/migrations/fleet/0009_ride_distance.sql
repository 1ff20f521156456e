-- How the distance of an ended ride was measured: given, odometer, track or line. NULL: not
-- measured, or by a version before this column; package fleet.
ALTER TABLE rides ADD COLUMN distance_source TEXT;

-- Ended rides with reports that came later, whose distances are to be measured again.
CREATE TABLE late_distances (
	organization_id TEXT NOT NULL,
	ride_id         TEXT NOT NULL,
	PRIMARY KEY (organization_id, ride_id)
) WITHOUT ROWID;
