package mailbox

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/emersion/go-imap/v2"
)

// folder is the position in a folder.
type folder struct {
	name        string
	source      string // the configured folder, which name was before it was renamed
	validity    uint32 // UIDVALIDITY
	last        uint32 // mails up to this UID are collected
	importUntil uint32 // up to this UID only mails since lease.importSince
}

// readAll collects the new mails of all folders.
func (r *reader) readAll(ctx context.Context, c *session) error {
	select {
	case <-c.arrived:
	default:
	}
	r.refusal = nil
	known, err := loadFolders(ctx, r.db, r.connectionID)
	if err != nil {
		return err
	}
	for _, name := range r.account.Folders {
		if known, err = r.readConfigured(ctx, c, name, known); err != nil {
			return err
		}
	}
	// The first one last, so that the server watches it.
	if len(r.account.Folders) > 1 {
		if _, _, err := c.choose(ctx, r.account.Folders[0]); err != nil {
			return err
		}
	}
	if r.refusal != nil {
		return r.refusal
	}
	r.collectSingly(false)
	r.checked.Store(r.db.Now().UnixMicro())
	return r.recover(ctx)
}

// readConfigured collects the new mails of a configured folder, and of those that had its name
// before they were renamed. It returns the present positions.
func (r *reader) readConfigured(ctx context.Context, c *session, name string, known []folder) ([]folder, error) {
	s, exists, err := c.choose(ctx, name)
	if err != nil {
		return known, err
	}
	at := slices.IndexFunc(known, func(f folder) bool { return f.name == name })
	void := at >= 0 && (!exists || s.validity != known[at].validity)
	if at >= 0 && !void {
		if void, err = c.restored(ctx, s, &known[at]); err != nil {
			return known, err
		}
	}
	if void {
		old := known[at]
		known = slices.Delete(known, at, at+1)
		if known, err = r.follow(ctx, c, old, known); err != nil {
			return known, err
		}
		at = -1
		if exists {
			if s, exists, err = c.choose(ctx, name); err != nil {
				return known, err
			}
		}
	}
	read := exists
	if exists {
		f := folder{name: name, source: name, validity: s.validity}
		if at >= 0 {
			f = known[at]
		} else if f, err = r.begin(ctx, c, f, s); err != nil {
			return known, err
		}
		if err := r.collect(ctx, c, &f); err != nil {
			return known, err
		}
	}
	for i, f := range slices.Clone(known) {
		if f.source != name || f.name == name {
			continue
		}
		s, exists, err := c.choose(ctx, f.name)
		if err != nil {
			return known, err
		}
		if !exists || s.validity != f.validity {
			if known, err = r.follow(ctx, c, f, slices.Delete(slices.Clone(known), i, i+1)); err != nil {
				return known, err
			}
			continue // read in the next turn
		}
		read = true
		if err := r.collect(ctx, c, &f); err != nil {
			return known, err
		}
	}
	if !read && !slices.ContainsFunc(known, func(f folder) bool { return f.source == name }) {
		return known, &Trouble{Kind: TroubleFolder, Text: fmt.Sprintf("the folder %s does not exist in the mailbox. Create it, or change the folders of the channel", name)}
	}
	return known, nil
}

// restored reports whether the selected folder is older than its position, as from a backup. Its next
// mails have UIDs that were in use before, and no new UIDVALIDITY says so.
func (c *session) restored(ctx context.Context, s selected, f *folder) (bool, error) {
	if s.next == 0 || s.next > max(f.last, f.importUntil) {
		return false, nil
	}
	later, err := c.search(ctx, s.next, 0, time.Time{})
	return len(later) == 0, err // else the next UID is wrong
}

// begin records the first position in a folder: mails that are there are collected if they
// arrived since the import's begin, unless they are known.
func (r *reader) begin(ctx context.Context, c *session, f folder, s selected) (folder, error) {
	next := s.next
	if next == 0 { // an old server
		all, err := c.search(ctx, 1, 0, time.Time{})
		if err != nil {
			return f, err
		}
		if len(all) > 0 {
			next = uint32(all[len(all)-1]) + 1
		}
	}
	if next > 0 {
		f.importUntil = next - 1
	}
	return f, r.saveFolder(ctx, f, "")
}

// follow looks for a folder that was renamed or moved, by its UIDVALIDITY and mails, and goes on
// there. If there is none, its position is void.
func (r *reader) follow(ctx context.Context, c *session, old folder, known []folder) ([]folder, error) {
	names, err := c.withValidity(ctx, old)
	if err != nil {
		return known, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return slices.Contains(r.account.Folders, name) || slices.ContainsFunc(known, func(f folder) bool { return f.name == name })
	})
	digests, err := latestMails(ctx, r.db, r.connectionID, old.validity)
	if err != nil {
		return known, err
	}
	if len(digests) > 0 {
		var same []string
		for _, name := range names {
			ok, err := r.hasMail(ctx, c, name, digests)
			if err != nil {
				return known, err
			}
			if ok {
				same = append(same, name)
			}
		}
		names = same
	}
	moved := old
	if len(names) == 1 {
		moved.name = names[0]
		known = append(known, moved)
		r.log.InfoContext(ctx, "a folder of a mailbox was renamed", "connection", r.connectionID)
	} else {
		moved.name = ""
		r.log.InfoContext(ctx, "a folder of a mailbox has a new UIDVALIDITY or is gone", "connection", r.connectionID)
	}
	return known, r.saveFolder(ctx, moved, old.name)
}

// maxListed bounds the folders among which a renamed one is looked for.
const maxListed = 500

// withValidity returns the folders that a folder may have become.
func (c *session) withValidity(ctx context.Context, old folder) (names []string, err error) {
	var list []*imap.ListData
	options := &imap.ListOptions{}
	status := &imap.StatusOptions{UIDValidity: true, UIDNext: true}
	if c.client.Caps().Has(imap.CapListStatus) {
		options.ReturnStatus = status
	}
	err = c.do(ctx, "list its folders", commandTime, commandBytes, func() (err error) {
		list, err = c.client.List("", "*", options).Collect()
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, l := range list[:min(len(list), maxListed)] {
		if l.Mailbox == old.name || !selectable(l) {
			continue
		}
		s := l.Status
		if s == nil {
			err = c.do(ctx, "examine the folder "+l.Mailbox, commandTime, commandBytes, func() (err error) {
				s, err = c.client.Status(l.Mailbox, status).Wait()
				if _, refused := err.(*imap.Error); refused {
					err = nil // deleted meanwhile, or forbidden
				}
				return err
			})
			if err != nil {
				return nil, err
			}
		}
		if s != nil && s.UIDValidity == old.validity && uint32(s.UIDNext) > old.last {
			names = append(names, l.Mailbox)
		}
	}
	return names, nil
}

// hasMail reports whether a folder has one of the mails with a digest at its UID.
func (r *reader) hasMail(ctx context.Context, c *session, name string, digests map[imap.UID]digest) (bool, error) {
	s, ok, err := c.choose(ctx, name)
	if err != nil || !ok || s.validity == 0 {
		return false, err
	}
	for uid, want := range digests {
		if ok, err := r.isMail(ctx, c, uid, want); err != nil || ok {
			return ok, err
		}
	}
	return false, nil
}

// digest identifies a mail.
type digest [16]byte

// digestOf returns the digest of a mail: of all its bytes, so that it covers the Message-ID.
func digestOf(raw []byte) digest {
	sum := sha256.Sum256(raw)
	return digest(sum[:16])
}
