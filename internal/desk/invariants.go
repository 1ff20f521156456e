package desk

import (
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// FileColumns are the columns with files of messages and macros.
var FileColumns = []db.FileColumn{
	{Table: "attachments", Key: "blob_key", Size: "size"},
	{Table: "letter_pictures", Key: "blob_key", Size: "size"},
	{Table: "macro_files", Key: "blob_key", Size: "size"},
}

// CountedFiles is the query of the files that the use of an organization includes, for
// package quota.
const CountedFiles = `SELECT organization_id, size FROM attachments WHERE counted
	UNION ALL SELECT organization_id, size FROM macro_files WHERE counted
	UNION ALL SELECT t.organization_id, p.size FROM letter_pictures p JOIN messages m ON m.id = p.message_id JOIN tickets t ON t.id = m.ticket_id WHERE p.counted`

// Invariants returns the rules of stored tickets. Tickets older than eventsSince may have lost
// their events to retention.
func Invariants(postgres bool, eventsSince time.Time) []db.Invariant {
	indexed := db.Invariant{
		Name: "words of the search index have documents", Table: "search_docs",
		Broken: "SELECT CAST(rowid AS TEXT) FROM ticket_words WHERE rowid NOT IN (SELECT doc FROM search_docs) UNION ALL SELECT CAST(doc AS TEXT) FROM search_docs WHERE doc NOT IN (SELECT rowid FROM ticket_words)",
	}
	list := []db.Invariant{
		{Name: "messages are in tickets", Table: "messages",
			Broken: "SELECT m.id FROM messages m LEFT JOIN tickets t ON t.id = m.ticket_id WHERE t.id IS NULL"},
		{Name: "messages are in conversations of their ticket", Table: "messages",
			Broken: "SELECT m.id FROM messages m LEFT JOIN conversations c ON c.ticket_id = m.ticket_id AND c.id = m.conversation_id WHERE m.conversation_id <> '' AND c.id IS NULL"},
		{Name: "messages of a ticket have numbers of their own", Table: "messages",
			Broken: "SELECT min(id) FROM messages WHERE seq > 0 GROUP BY ticket_id, seq HAVING count(*) > 1"},
		{Name: "conversations are in tickets", Table: "conversations",
			Broken: "SELECT c.id FROM conversations c LEFT JOIN tickets t ON t.id = c.ticket_id WHERE t.id IS NULL"},
		{Name: "tickets belong to organizations", Table: "tickets",
			Broken: "SELECT t.id FROM tickets t LEFT JOIN organizations o ON o.id = t.organization_id WHERE o.id IS NULL"},
		{Name: "tickets belong to customers of their organization", Table: "tickets",
			Broken: "SELECT t.id FROM tickets t LEFT JOIN customers c ON c.id = t.customer_id AND c.organization_id = t.organization_id WHERE c.id IS NULL"},
		{Name: "ticket numbers are unique and counted", Table: "tickets",
			Broken: `SELECT t.id FROM tickets t LEFT JOIN ticket_numbers n ON n.organization_id = t.organization_id WHERE n.last IS NULL OR t.number > n.last OR t.number < 1
				UNION ALL SELECT organization_id || ' ' || number FROM tickets GROUP BY organization_id, number HAVING count(*) > 1`},
		{Name: "tickets have their event", Table: "tickets",
			Broken: `SELECT t.id FROM tickets t WHERE t.created_at >= $1
				AND NOT EXISTS (SELECT 1 FROM import_records r WHERE r.record_id = t.id)
				AND NOT EXISTS (SELECT 1 FROM events e WHERE e.ticket_id = t.id AND (e.name = 'ticket.created' OR e.members LIKE '%ticket.created:%'))`, Args: []any{eventsSince.UnixMicro()}},
		{Name: "attachments are in messages", Table: "attachments",
			Broken: "SELECT a.id FROM attachments a LEFT JOIN messages m ON m.ticket_id = a.ticket_id AND m.id = a.message_id WHERE m.id IS NULL AND NOT EXISTS (SELECT 1 FROM pending_replies p WHERE p.ticket_id = a.ticket_id AND p.message_id = a.message_id)"},
		{Name: "pending replies are in tickets, and have their job", Table: "pending_replies",
			Broken: `SELECT p.message_id FROM pending_replies p LEFT JOIN tickets t ON t.id = p.ticket_id AND t.organization_id = p.organization_id
				WHERE t.id IS NULL OR p.state <> 'failed' AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = p.job_id)`},
		{Name: "message ids belong to messages", Table: "message_ids",
			Broken: "SELECT i.exact FROM message_ids i LEFT JOIN messages m ON m.ticket_id = i.ticket_id AND m.id = i.message_id WHERE m.id IS NULL"},
		{Name: "addresses belong to customers", Table: "contact_points",
			Broken: "SELECT p.scope || ' ' || p.kind FROM contact_points p LEFT JOIN customers c ON c.id = p.customer_id WHERE p.customer_id IS NOT NULL AND c.id IS NULL"},
		{Name: "threads belong to conversations", Table: "contact_points",
			Broken: "SELECT p.scope || ' ' || p.kind FROM contact_points p LEFT JOIN conversations c ON c.ticket_id = p.ticket_id AND c.id = p.conversation_id WHERE p.conversation_id IS NOT NULL AND c.id IS NULL"},
		{Name: "messages to send exist", Table: "outbox",
			Broken: "SELECT o.message_id FROM outbox o LEFT JOIN messages m ON m.ticket_id = o.ticket_id AND m.id = o.message_id WHERE m.id IS NULL"},
		{Name: "changes belong to tickets of their organization", Table: "ticket_changes",
			Broken: "SELECT c.ticket_id FROM ticket_changes c LEFT JOIN tickets t ON t.id = c.ticket_id AND t.organization_id = c.organization_id WHERE t.id IS NULL"},
		{Name: "followers and notices belong to tickets of their organization", Table: "notices",
			Broken: `SELECT n.id FROM notices n LEFT JOIN tickets t ON t.id = n.ticket_id AND t.organization_id = n.organization_id WHERE t.id IS NULL AND n.alert_id IS NULL
				UNION ALL SELECT f.ticket_id || ' ' || f.user_id FROM ticket_followers f LEFT JOIN tickets t ON t.id = f.ticket_id AND t.organization_id = f.organization_id WHERE t.id IS NULL`},
		{Name: "imported records belong to imports of their organization", Table: "import_records",
			Broken: `SELECT r.record_id FROM import_records r LEFT JOIN imports i ON i.id = r.import_id AND i.organization_id = r.organization_id WHERE i.id IS NULL`},
		{Name: "imports belong to organizations", Table: "imports",
			Broken: "SELECT i.id FROM imports i LEFT JOIN organizations o ON o.id = i.organization_id WHERE o.id IS NULL"},
		{Name: "files of macros belong to macros of their organization", Table: "macro_files",
			Broken: "SELECT f.id FROM macro_files f LEFT JOIN macros m ON m.id = f.macro_id AND m.organization_id = f.organization_id WHERE m.id IS NULL"},
		{Name: "tags belong to tickets", Table: "ticket_tags",
			Broken: "SELECT g.ticket_id FROM ticket_tags g LEFT JOIN tickets t ON t.id = g.ticket_id AND t.number = g.number WHERE t.id IS NULL"},
		{Name: "tickets are searchable, or about to be", Table: "tickets",
			Broken: fmt.Sprintf(`SELECT t.id FROM tickets t LEFT JOIN search_organizations o ON o.organization_id = t.organization_id
				WHERE (o.code IS NULL OR NOT EXISTS (SELECT 1 FROM search_docs d WHERE d.doc = (((o.code << %d) | t.number) << %d)))
				AND EXISTS (SELECT 1 FROM messages m WHERE m.ticket_id = t.id)
				AND NOT EXISTS (SELECT 1 FROM search_pending p WHERE p.ticket_id = t.id)`, numberBits, placeBits)},
	}
	if !postgres {
		list = append(list, indexed)
	}
	return list
}
