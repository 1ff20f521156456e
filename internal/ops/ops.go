// Package ops backs up, restores, moves and verifies the program's databases and files.
//
// It knows tables and columns from the catalogue of the database, and nothing about their
// meaning: what must hold of records is stated by their package as [db.Invariant]. See
// docs/operations/backup.md and docs/adr/0044-backups.md.
package ops
