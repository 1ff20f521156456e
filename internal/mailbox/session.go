package mailbox

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/email"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/emersion/go-sasl"
)

const (
	// commandTime bounds a command without content.
	commandTime = time.Minute
	// contentTime bounds a command with mails.
	contentTime = 5 * time.Minute
	// commandBytes bounds the response to a command without content. It is a list of 500,000 UIDs.
	commandBytes = 4 << 20
	// maxFound bounds the UIDs of a search.
	maxFound = 4_000_000
	// idleTime is how long the server may be silent until a look into the mailbox: a connection
	// may be dead without a sign.
	idleTime = 5 * time.Minute
	// pollTime is the interval of looking where the server cannot report new mails.
	pollTime = 30 * time.Second
)

// session is a connection to an IMAP server after the login. One goroutine uses it.
type session struct {
	account *email.Account // with the token as its password, if there is one
	client  *imapclient.Client
	conn    *limitedConn
	arrived chan struct{} // the server has reported mails
	canIdle bool
}

var (
	errTooMuch = errors.New("the server sends too much")
	errInvalid = errors.New("the server's answer is invalid")
)

// limitedConn limits the bytes that a server sends, since the client reads them into memory.
type limitedConn struct {
	net.Conn
	left atomic.Int64
}

// Read implements [net.Conn].
func (c *limitedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.left.Add(-int64(n)) < 0 {
		return 0, errTooMuch
	}
	return n, err
}

// open connects and signs in, with the token if it is not empty, else with the password. Failures
// are a [*Trouble].
func (s *Service) open(ctx context.Context, a *email.Account, token string) (_ *session, err error) {
	conn, err := s.guard.DialContext(ctx, "tcp", a.IMAP.Address())
	if err != nil {
		return nil, connectTrouble(a.IMAP, err)
	}
	account := *a
	if token != "" {
		account.Password = token
	}
	c := &session{account: &account, arrived: make(chan struct{}, 1)}
	if err := c.secure(ctx, conn, s.tlsConfig(a.IMAP)); err != nil {
		conn.Close()
		return nil, err
	}
	if err := c.login(ctx, token); err != nil {
		c.close()
		return nil, err
	}
	err = c.do(ctx, "list its capabilities", commandTime, commandBytes, func() error {
		c.canIdle = c.client.Caps().Has(imap.CapIdle)
		return nil
	})
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (s *Service) tlsConfig(server email.Server) *tls.Config {
	config := new(tls.Config)
	if s.tls != nil {
		config = s.tls.Clone()
	}
	config.ServerName = cmp.Or(config.ServerName, server.Host)
	return config
}

// secure starts TLS and the client on a new connection, which it leaves open on an error.
func (c *session) secure(ctx context.Context, conn net.Conn, config *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	options := &imapclient.Options{TLSConfig: config, UnilateralDataHandler: &imapclient.UnilateralDataHandler{
		Mailbox: func(data *imapclient.UnilateralDataMailbox) {
			if data.NumMessages != nil {
				select {
				case c.arrived <- struct{}{}:
				default:
				}
			}
		},
	}}
	if !c.account.IMAP.Implicit {
		c.conn = newLimitedConn(conn)
		client, err := imapclient.NewStartTLS(c.conn, options)
		if err != nil {
			return startTLSTrouble(c.account.IMAP, err)
		}
		c.client = client
		return nil
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return tlsTrouble(c.account.IMAP, err)
	}
	c.conn = newLimitedConn(secured)
	c.client = imapclient.New(c.conn, options)
	if err := c.client.WaitGreeting(); err != nil {
		c.client.Close()
		return sessionTrouble(c.account, "begin", err)
	}
	return nil
}

func newLimitedConn(conn net.Conn) *limitedConn {
	c := &limitedConn{Conn: conn}
	c.left.Store(commandBytes)
	return c
}

// login signs in by the best mechanism that the server offers.
func (c *session) login(ctx context.Context, token string) error {
	var refused error
	err := c.do(ctx, "sign in", commandTime, commandBytes, func() error {
		switch caps := c.client.Caps(); {
		case c.client.State() == imap.ConnStateAuthenticated: // the greeting said so
		case token != "":
			refused = c.client.Authenticate(xoauth2{c.account.User, token})
		case caps.Has(imap.AuthCap(sasl.Plain)):
			refused = c.client.Authenticate(sasl.NewPlainClient("", c.account.User, c.account.Password))
		case caps.Has(imap.CapLoginDisabled):
			refused = &imap.Error{Type: imap.StatusResponseTypeNo, Text: "it offers no login by password"}
		default:
			refused = c.client.Login(c.account.User, c.account.Password).Wait()
		}
		return nil
	})
	if err == nil && refused != nil {
		err = loginTrouble(c.account, refused)
	}
	return err
}

func (c *session) close() {
	c.client.Close()
}

// do runs a command within a time and a number of bytes of response, and describes its failure.
// what completes "the server refuses to".
func (c *session) do(ctx context.Context, what string, limit time.Duration, bytes int64, command func() error) error {
	c.conn.left.Store(bytes)
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := context.AfterFunc(timed, func() { c.client.Close() })
	err := command()
	if !stop() && err == nil {
		err = timed.Err() // the connection is closed
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case timed.Err() != nil:
		err = timed.Err()
	case c.conn.left.Load() < 0:
		err = errTooMuch
	}
	return sessionTrouble(c.account, what, err)
}

// selected is a selected folder.
type selected struct {
	validity uint32
	next     uint32 // the next UID; 0: unknown
	mails    uint32
}

// choose selects a folder. ok is false if it does not exist. A server that refuses a folder that it
// lists, such as an overloaded one, is an error: the position in the folder is still right.
func (c *session) choose(ctx context.Context, folder string) (s selected, ok bool, err error) {
	readOnly := !c.account.MarkSeen && c.account.MoveTo == ""
	var data *imap.SelectData
	var missing error
	err = c.do(ctx, "open the folder "+folder, commandTime, commandBytes, func() (err error) {
		data, err = c.client.Select(folder, &imap.SelectOptions{ReadOnly: readOnly}).Wait()
		if status, refused := errors.AsType[*imap.Error](err); refused && status.Type == imap.StatusResponseTypeNo {
			missing, err = err, nil
		}
		return err
	})
	switch status, _ := errors.AsType[*imap.Error](missing); {
	case err != nil:
		return s, false, err
	case missing == nil:
		return selected{data.UIDValidity, uint32(data.UIDNext), data.NumMessages}, true, nil
	case status.Code == imap.ResponseCodeNonExistent:
		return s, false, nil
	}
	there, err := c.lists(ctx, folder)
	if err == nil && there {
		err = sessionTrouble(c.account, "open the folder "+folder, missing)
	}
	return s, false, err
}

// lists reports whether the server lists a folder that can be selected.
func (c *session) lists(ctx context.Context, folder string) (there bool, err error) {
	err = c.do(ctx, "list its folders", commandTime, commandBytes, func() error {
		list, err := c.client.List("", folder, nil).Collect() // a name with wildcards has others, too
		there = slices.ContainsFunc(list, func(l *imap.ListData) bool {
			return (l.Mailbox == folder || strings.EqualFold(folder, "INBOX") && strings.EqualFold(l.Mailbox, folder)) && selectable(l)
		})
		return err
	})
	return there, err
}

// selectable reports whether a listed folder can be selected.
func selectable(l *imap.ListData) bool {
	return !slices.ContainsFunc(l.Attrs, func(a imap.MailboxAttr) bool {
		return strings.EqualFold(string(a), string(imap.MailboxAttrNoSelect)) || strings.EqualFold(string(a), string(imap.MailboxAttrNonExistent))
	})
}

// search returns the UIDs from low up to high, ascending; a high of 0 means no end. With a since
// they are of mails that arrived then or later, by days.
func (c *session) search(ctx context.Context, low, high uint32, since time.Time) ([]imap.UID, error) {
	var set imap.UIDSet
	set.AddRange(imap.UID(low), imap.UID(high))
	var found []imap.UID
	err := c.do(ctx, "search for new mails", commandTime, 4*commandBytes, func() error {
		data, err := c.client.UIDSearch(&imap.SearchCriteria{UID: []imap.UIDSet{set}, Since: since}, nil).Wait()
		if err != nil {
			return err
		}
		found, err = foundUIDs(data.All)
		return err
	})
	slices.Sort(found)
	// The range n:* always has the last mail.
	return slices.Compact(slices.DeleteFunc(found, func(uid imap.UID) bool { return uint32(uid) < low || high > 0 && uint32(uid) > high })), err
}

// foundUIDs returns the UIDs of the result of a search. The server may have sent ranges of any
// length, and 0, on which [imap.SearchData.AllUIDs] panics.
func foundUIDs(set imap.NumSet) ([]imap.UID, error) {
	if set == nil {
		return nil, nil
	}
	ranges, ok := set.(imap.UIDSet)
	if !ok {
		return nil, errInvalid
	}
	n := int64(0)
	for _, r := range ranges {
		if r.Start == 0 || r.Stop < r.Start {
			return nil, errInvalid
		}
		if n += int64(r.Stop-r.Start) + 1; n > maxFound {
			return nil, errTooMuch
		}
	}
	found, _ := ranges.Nums()
	return found, nil
}

// listed is a mail in a folder.
type listed struct {
	uid     imap.UID
	number  uint32 // in the folder, until mails are deleted
	size    int64  // as announced; some servers estimate it
	arrived time.Time
}

// list returns the sizes and times of mails. Deleted ones are missing.
func (c *session) list(ctx context.Context, uids []imap.UID) ([]listed, error) {
	var list []listed
	err := c.do(ctx, "list new mails", commandTime, commandBytes, func() error {
		found, err := c.client.Fetch(imap.UIDSetNum(uids...), &imap.FetchOptions{UID: true, RFC822Size: true, InternalDate: true}).Collect()
		for _, m := range found {
			if slices.Contains(uids, m.UID) {
				list = append(list, listed{m.UID, m.SeqNum, m.RFC822Size, m.InternalDate})
			}
		}
		return err
	})
	slices.SortFunc(list, func(a, b listed) int { return cmp.Compare(a.uid, b.uid) })
	return list, err
}

// fetch returns the contents of mails by UID, without marking them as seen. Deleted ones are
// missing; withheld are those that the server lists all the same. most bounds the bytes of each; 0:
// no bound. total bounds all of a response.
func (c *session) fetch(ctx context.Context, uids []imap.UID, most, total int64) (mails map[imap.UID][]byte, withheld []imap.UID, err error) {
	mails = make(map[imap.UID][]byte)
	if err := c.fetchInto(ctx, mails, imap.UIDSetNum(uids...), uids, most, total); err != nil {
		return nil, nil, err
	}
	absent := func(uid imap.UID) bool { _, ok := mails[uid]; return !ok }
	missing := slices.DeleteFunc(slices.Clone(uids), func(uid imap.UID) bool { return !absent(uid) })
	if len(missing) == 0 {
		return mails, nil, nil
	}
	there, err := c.list(ctx, missing)
	if err != nil || len(there) == 0 {
		return mails, nil, err
	}
	// The client recognizes a mail by its UID only if the server sends that before the content.
	var numbers imap.SeqSet
	for _, m := range there {
		numbers.AddNum(m.number)
	}
	if err := c.fetchInto(ctx, mails, numbers, missing, most, total); err != nil {
		return nil, nil, err
	}
	for _, m := range there {
		if absent(m.uid) {
			withheld = append(withheld, m.uid)
		}
	}
	return mails, withheld, nil
}

// fetchInto adds to mails the contents of those in set that are among uids.
func (c *session) fetchInto(ctx context.Context, mails map[imap.UID][]byte, set imap.NumSet, uids []imap.UID, most, total int64) error {
	section := &imap.FetchItemBodySection{Peek: true}
	if most > 0 {
		section.Partial = &imap.SectionPartial{Size: most}
	}
	return c.do(ctx, "fetch new mails", contentTime, total, func() error {
		found, err := c.client.Fetch(set, &imap.FetchOptions{UID: true, BodySection: []*imap.FetchItemBodySection{section}}).Collect()
		if err != nil {
			return err
		}
		for _, m := range found {
			if slices.Contains(uids, m.UID) && len(m.BodySection) > 0 {
				mails[m.UID] = m.BodySection[0].Bytes
			}
		}
		return nil
	})
}

// wait waits for new mails: until the server reports them, if it can and watches the only
// folder, else for a time.
func (c *session) wait(ctx context.Context, watched bool) error {
	if !c.canIdle {
		return c.pause(ctx, pollTime)
	}
	limit := idleTime
	if !watched {
		limit = pollTime
	}
	select {
	case <-c.arrived: // during a command
		return nil
	default:
	}
	var idle *imapclient.IdleCommand
	err := c.do(ctx, "watch the folder", commandTime, commandBytes, func() (err error) {
		idle, err = c.client.Idle()
		return err
	})
	if _, refused := errors.AsType[*imap.Error](err); refused { // although it is offered
		c.canIdle = false
		return c.pause(ctx, pollTime)
	}
	if err != nil {
		return err
	}
	if err := c.pause(ctx, limit); err != nil {
		return err
	}
	return c.do(ctx, "watch the folder", commandTime, commandBytes, func() error {
		if err := idle.Close(); err != nil {
			return err
		}
		return idle.Wait()
	})
}

// pause waits until a time has passed, the server has reported mails, or the connection or ctx has ended.
func (c *session) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.arrived:
	case <-timer.C:
	case <-c.client.Closed(): // the next command fails
	}
	return nil
}
