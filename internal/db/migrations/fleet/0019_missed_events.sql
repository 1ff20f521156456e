-- Events of a ride while its vehicle was out of contact; package fleet, vehicle.go. A previous version
-- neither reads nor writes the column: what it leaves there is ignored, by the time of the last change.
ALTER TABLE vehicles ADD COLUMN missed TEXT; -- JSON; NULL: none
