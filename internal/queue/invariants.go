package queue

import "github.com/kickstand-dev/kickstand/internal/db"

// Invariants returns the rules of stored jobs.
func Invariants() []db.Invariant {
	return []db.Invariant{
		{Name: "only leased jobs have leases", Table: "jobs",
			Broken: "SELECT id FROM jobs WHERE state < 0 OR state > 2 OR (state = 2) <> (lease IS NOT NULL AND lease_until IS NOT NULL)"},
	}
}
