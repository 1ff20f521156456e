package inbound

import (
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// FileColumns are the columns with bodies of requests.
var FileColumns = []db.FileColumn{{Table: "inbound_events", Key: "body_key", Size: fmt.Sprintf("body_size + %d", bodyHeader)}}

// CountedFiles is the query of the bodies that the use of an organization includes, for
// package quota.
const CountedFiles = "SELECT organization_id, body_size AS size FROM inbound_events WHERE counted"

// Invariants returns the rules of stored requests.
func Invariants() []db.Invariant {
	return []db.Invariant{
		{Name: "accepted events have jobs", Table: "inbound_events",
			Broken: "SELECT e.id FROM inbound_events e LEFT JOIN jobs j ON j.id = e.id WHERE e.state = 'accepted' AND j.id IS NULL"},
		{Name: "events are stored once", Table: "inbound_events",
			Broken: "SELECT min(id) FROM inbound_events GROUP BY fingerprint HAVING count(*) > 1"},
	}
}
