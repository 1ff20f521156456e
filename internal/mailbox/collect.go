package mailbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/db"

	"github.com/emersion/go-imap/v2"
)

const (
	// maxMail is the largest mail, in bytes, that is collected as a whole: the limit of inbound
	// mail. Of a larger one the beginning is collected.
	maxMail   = 35 << 20
	beginning = 256 << 10
	// A batch, which is stored in one transaction, has at most batchMails mails and about
	// batchBytes bytes; a larger mail has a batch of its own.
	batchMails = 50
	batchBytes = 2 << 20
	// listMails is the number of mails that are listed at a time.
	listMails = 500
)

// collect collects the new mails of the selected folder.
func (r *reader) collect(ctx context.Context, c *session, f *folder) error {
	if f.last < f.importUntil {
		uids, err := c.search(ctx, f.last+1, f.importUntil, r.importSince.AddDate(0, 0, -1)) // the server's days have a time zone
		if err != nil {
			return err
		}
		if err := r.collectThese(ctx, c, f, uids); err != nil {
			return err
		}
		if f.last < f.importUntil {
			f.last = f.importUntil
			if err := r.saveFolder(ctx, *f, f.name); err != nil {
				return err
			}
		}
	}
	uids, err := c.search(ctx, f.last+1, 0, time.Time{})
	if err != nil {
		return err
	}
	if err := r.collectThese(ctx, c, f, uids); err != nil {
		return err
	}
	err = r.mark(ctx, c, f)
	if t, ok := errors.AsType[*Trouble](err); ok && t.Kind == TroubleServer {
		r.refusal, err = t, nil // the other folders are collected first
	}
	return err
}

// collectThese collects mails by UID, which ascend.
func (r *reader) collectThese(ctx context.Context, c *session, f *folder, uids []imap.UID) error {
	for part := range slices.Chunk(uids, listMails) {
		mails, err := c.list(ctx, part)
		if err != nil {
			return err
		}
		mails = slices.DeleteFunc(mails, func(m listed) bool {
			return uint32(m.uid) <= f.importUntil && m.arrived.Before(r.importSince)
		})
		for len(mails) > 0 {
			n, size := 1, mails[0].size
			for !r.singly && n < len(mails) && n < batchMails && size+mails[n].size <= batchBytes {
				size += mails[n].size
				n++
			}
			if err := r.collectBatch(ctx, c, f, mails[:n], size); err != nil {
				return err
			}
			mails = mails[n:]
		}
	}
	return nil
}

// collectBatch collects mails in one transaction. size is the sum of their announced sizes.
func (r *reader) collectBatch(ctx context.Context, c *session, f *folder, mails []listed, size int64) error {
	uids := make([]imap.UID, len(mails))
	for i, m := range mails {
		uids[i] = m.uid
	}
	// Some servers estimate sizes.
	total, most := min(2*size+1<<20, maxMail+commandBytes), int64(0)
	switch {
	case size > maxMail:
		total, most = beginning+1<<20, beginning
	case r.singly:
		total, most = maxMail+commandBytes, maxMail
	}
	if total > 2*batchBytes+1<<20 {
		release, err := r.memory.Acquire(ctx, r.organizationID, total, maxMemoryEach)
		if err != nil {
			return err
		}
		defer release()
	}
	contents, withheld, err := c.fetch(ctx, uids, most, total)
	if err == nil && len(withheld) > 0 && !r.singly {
		err = &Trouble{Kind: TroubleServer, Text: fmt.Sprintf("the IMAP server %s lists %d mails that it does not deliver. They are fetched one by one", r.account.IMAP.Host, len(withheld))}
		r.collectSingly(true)
	}
	if errors.Is(err, errTooMuch) && !r.singly {
		r.collectSingly(true)
	}
	if err != nil {
		return err
	}
	for _, uid := range withheld {
		contents[uid] = nil // stored as unreadable
	}
	return r.store(ctx, f, mails, contents)
}

// store stores mails as inbound events, with the position behind them.
func (r *reader) store(ctx context.Context, f *folder, mails []listed, contents map[imap.UID][]byte) error {
	var requests []*channel.Request
	var collected []collectedMail
	now := r.db.Now()
	for _, m := range mails {
		raw, ok := contents[m.uid]
		if !ok {
			continue // deleted meanwhile
		}
		actual := max(m.size, int64(len(raw)))
		cut := m.size > maxMail && len(raw) >= beginning || len(raw) >= maxMail
		if cut {
			raw = raw[:beginning]
		}
		request := r.request(f, m, raw, now)
		if cut {
			request.Header.Set(email.MailboxSizeHeader, strconv.FormatInt(actual, 10))
		}
		one := collectedMail{uid: m.uid, digest: digestOf(raw)}
		if len(raw) == 0 {
			one.digest = digestOf([]byte(request.URL)) // stored as unreadable
		}
		requests, collected = append(requests, request), append(collected, one)
	}
	last := uint32(mails[len(mails)-1].uid)
	fresh := 0
	err := r.journal.Collect(ctx, r.connection, requests, func(ctx context.Context, tx *db.Tx) ([]bool, error) {
		wanted, err := r.recordTx(ctx, tx, f, last, collected)
		fresh = 0
		for _, w := range wanted {
			if w {
				fresh++
			}
		}
		return wanted, err
	})
	if err != nil {
		return err
	}
	f.last = last
	r.observe(fresh, len(collected)-fresh)
	return nil
}

// request returns the stored form of a mail. Its URL is that of RFC 5092.
func (r *reader) request(f *folder, m listed, raw []byte, now time.Time) *channel.Request {
	header := http.Header{"Content-Type": {"message/rfc822"}, "X-Envelope-To": {r.account.Recipient(raw)}}
	if !m.arrived.IsZero() {
		header.Set(email.MailboxDateHeader, m.arrived.UTC().Format(time.RFC3339))
	}
	return &channel.Request{
		Method: http.MethodPost, Header: header, Body: raw, Received: now,
		URL: fmt.Sprintf("imap://%s/%s;UIDVALIDITY=%d/;UID=%d", r.account.IMAP.Host, url.PathEscape(f.name), f.validity, m.uid),
	}
}

// mark marks collected mails of the selected folder as seen, or moves them, as configured. What
// is not done when the process dies is done later.
func (r *reader) mark(ctx context.Context, c *session, f *folder) error {
	if !r.account.MarkSeen && r.account.MoveTo == "" {
		return nil
	}
	shared, err := r.sharesValidity(ctx, f)
	if err != nil {
		return err
	}
	for after := imap.UID(0); ; {
		mails, err := unmarkedMails(ctx, r.db, r.connectionID, f.validity, after)
		if err != nil || len(mails) == 0 {
			return err
		}
		after = mails[len(mails)-1].uid
		if shared {
			if mails, err = r.ownMails(ctx, c, mails); err != nil {
				return err
			}
		}
		if len(mails) == 0 {
			continue
		}
		var set imap.UIDSet
		for _, m := range mails {
			set.AddNum(m.uid)
		}
		if r.account.MarkSeen {
			err := c.do(ctx, "mark mails as seen", commandTime, commandBytes, func() error {
				return c.client.Store(set, &imap.StoreFlags{Op: imap.StoreFlagsAdd, Silent: true, Flags: []imap.Flag{imap.FlagSeen}}, nil).Close()
			})
			if err != nil {
				return err
			}
		}
		if r.account.MoveTo != "" {
			if err := r.move(ctx, c, set); err != nil {
				return err
			}
		}
		if err := r.recordMarked(ctx, mails); err != nil {
			return err
		}
	}
}

// ownMails returns those mails that are in the selected folder. Others are in a folder with the same
// UIDVALIDITY, which is unique within one folder only.
func (r *reader) ownMails(ctx context.Context, c *session, mails []collectedMail) (own []collectedMail, err error) {
	for _, m := range mails {
		ok, err := r.isMail(ctx, c, m.uid, m.digest)
		if err != nil {
			return nil, err
		}
		if ok {
			own = append(own, m)
		}
	}
	return own, nil
}

// isMail reports whether the selected folder has a mail with a digest at its UID.
func (r *reader) isMail(ctx context.Context, c *session, uid imap.UID, want digest) (bool, error) {
	const total = maxMail + commandBytes
	release, err := r.memory.Acquire(ctx, r.organizationID, total, maxMemoryEach)
	if err != nil {
		return false, err
	}
	defer release()
	mails, _, err := c.fetch(ctx, []imap.UID{uid}, maxMail, total)
	if err != nil {
		return false, err
	}
	raw, ok := mails[uid]
	return ok && (digestOf(raw) == want || len(raw) > beginning && digestOf(raw[:beginning]) == want), nil
}

// move moves mails of the selected folder.
func (r *reader) move(ctx context.Context, c *session, set imap.UIDSet) error {
	caps := c.client.Caps()
	if !caps.Has(imap.CapMove) && !caps.Has(imap.CapUIDPlus) && !caps.Has(imap.CapIMAP4rev2) {
		// Its EXPUNGE would also delete mails that others have marked.
		return &Trouble{Kind: TroubleServer, Text: fmt.Sprintf("the IMAP server %s cannot move mails: it has neither MOVE nor UIDPLUS. Remove the folder for collected mails", r.account.IMAP.Host)}
	}
	move := func() error {
		return c.do(ctx, "move mails to "+r.account.MoveTo, contentTime, commandBytes, func() error {
			_, err := c.client.Move(set, r.account.MoveTo).Wait()
			return err
		})
	}
	err := move()
	status, ok := errors.AsType[*imap.Error](err)
	if !ok || status.Code != imap.ResponseCodeTryCreate {
		return err
	}
	if err := c.do(ctx, "create the folder "+r.account.MoveTo, commandTime, commandBytes, func() error {
		return c.client.Create(r.account.MoveTo, nil).Wait()
	}); err != nil {
		return err
	}
	return move()
}
