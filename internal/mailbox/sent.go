package mailbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/mail"

	"github.com/emersion/go-imap/v2"
)

// findSent is the setting of a folder of sent mail that is found by its use.
const findSent = "auto"

// filingSender sends by SMTP, and files a copy in the mailbox's folder of sent mail.
type filingSender struct {
	*mail.SMTP
	service      *Service
	organization string // its id
	connectionID string
	account      *email.Account
}

// SendTracked implements [mail.TrackedSender]. The copy is filed after it returns, so that the
// result of the submission is recorded at once.
func (f *filingSender) SendTracked(ctx context.Context, m mail.Message, submitting func() error) (string, error) {
	id, err := f.SMTP.SendTracked(ctx, m, submitting)
	if err == nil {
		f.service.file(f, m)
	}
	return id, err
}

// Send implements [mail.Sender].
func (f *filingSender) Send(ctx context.Context, m mail.Message) error {
	_, err := f.SendTracked(ctx, m, func() error { return nil })
	return err
}

const (
	// maxFiling bounds the copies that are filed at the same time, and maxFilingEach those of an
	// organization: its server may be slow.
	maxFiling     = 8
	maxFilingEach = 2
	// maxUnfiled bounds the copies of an organization that wait.
	maxUnfiled = 100
	// filingTime bounds the filing of a copy, with the wait for its turn.
	filingTime = 2 * time.Minute
)

// file files a copy of a sent mail in the background. A failure is logged: the mail itself has been
// sent.
func (s *Service) file(f *filingSender, m mail.Message) {
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(s.life, filingTime)
		defer cancel()
		release, err := s.filing.Acquire(ctx, f.organization, 1, maxFilingEach)
		if err == nil {
			err = s.fileNow(ctx, f.connectionID, f.account, m)
			release()
		}
		if err != nil && s.life.Err() == nil {
			s.log.WarnContext(ctx, "a sent mail could not be filed", "connection", f.connectionID, "error", err)
		}
	})
}

func (s *Service) fileNow(ctx context.Context, connectionID string, a *email.Account, m mail.Message) error {
	raw, err := mail.Raw(m)
	if err != nil {
		return err
	}
	c, err := s.connect(ctx, connectionID, a)
	if err != nil {
		return err
	}
	defer c.close()
	folder, err := c.sentFolder(ctx)
	if err != nil {
		return err
	}
	found, err := c.hasMessageID(ctx, folder, m.MessageID)
	if err != nil || found { // by the provider
		return err
	}
	return c.do(ctx, "file a mail in "+folder, contentTime, commandBytes, func() error {
		command := c.client.Append(folder, int64(len(raw)), &imap.AppendOptions{Flags: []imap.Flag{imap.FlagSeen}})
		if _, err := command.Write(raw); err != nil {
			return err
		}
		if err := command.Close(); err != nil {
			return err
		}
		_, err := command.Wait()
		return err
	})
}

// sentFolder returns the configured folder of sent mail, or finds it by its use or its name.
func (c *session) sentFolder(ctx context.Context) (string, error) {
	if c.account.Sent != findSent {
		return c.account.Sent, nil
	}
	var list []*imap.ListData
	options := &imap.ListOptions{ReturnSpecialUse: c.client.Caps().Has(imap.CapSpecialUse)}
	err := c.do(ctx, "list its folders", commandTime, commandBytes, func() (err error) {
		list, err = c.client.List("", "*", options).Collect()
		return err
	})
	if err != nil {
		return "", err
	}
	named := ""
	for _, l := range list {
		if slices.Contains(l.Attrs, imap.MailboxAttrSent) {
			return l.Mailbox, nil
		}
		name := l.Mailbox[strings.LastIndexAny(l.Mailbox, "/.")+1:]
		if named == "" && (strings.EqualFold(name, "Sent") || strings.EqualFold(name, "Sent Items") || strings.EqualFold(name, "Sent Mail")) {
			named = l.Mailbox
		}
	}
	if named == "" {
		return "", &Trouble{Kind: TroubleFolder, Text: fmt.Sprintf("the IMAP server %s marks no folder for sent mail. Enter its name", c.account.IMAP.Host)}
	}
	return named, nil
}

// hasMessageID reports whether a folder has a mail with a Message-ID.
func (c *session) hasMessageID(ctx context.Context, folder, id string) (found bool, err error) {
	if _, ok, err := c.choose(ctx, folder); err != nil || !ok || id == "" {
		return false, err
	}
	err = c.do(ctx, "search for a mail", commandTime, commandBytes, func() error {
		data, err := c.client.UIDSearch(&imap.SearchCriteria{Header: []imap.SearchCriteriaHeaderField{{Key: "Message-ID", Value: id}}}, nil).Wait()
		if err == nil {
			set, _ := data.All.(imap.UIDSet)
			found = len(set) > 0
		}
		return err
	})
	return found, err
}
