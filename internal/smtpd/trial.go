package smtpd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/smtp"
	"net/textproto"
	"time"
)

// trialSender is the envelope sender of a test mail.
const trialSender = "test@example.com"

// trialJournal collects the copies of mails and stores nothing.
type trialJournal struct{ copies []Copy }

// Deliver implements [Journal].
func (j *trialJournal) Deliver(_ context.Context, copies []Copy) (fresh int, err error) {
	j.copies = append(j.copies, copies...)
	return len(copies), nil
}

// Refuse implements [Journal].
func (*trialJournal) Refuse(context.Context, netip.Addr, string) {}

// Try receives a test mail to an address over a connection in memory, and returns the copies that
// would be stored. It stores and counts nothing, and evaluates no SPF. An error is the reason why the
// mail is refused.
func (s *Service) Try(ctx context.Context, to string) ([]Copy, error) {
	journal := new(trialJournal)
	trial := Open(Config{
		DB: s.DB, Connections: s.Connections, Journal: journal, Hostname: s.Hostname, MaxSize: s.MaxSize, SpoolDir: s.SpoolDir, Logger: slog.New(slog.DiscardHandler),
	})
	near, far := net.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		trial.ServeConn(far)
	}()
	stop := context.AfterFunc(ctx, func() { near.Close() })
	defer stop()
	err := sendTrial(near, s.Hostname, to, s.DB.Now())
	near.Close()
	<-ended // the session refers to the journal
	if err != nil {
		if refused, ok := errors.AsType[*textproto.Error](err); ok {
			return nil, fmt.Errorf("the SMTP receiver refuses the address: %d %s", refused.Code, refused.Msg)
		}
		return nil, fmt.Errorf("the SMTP receiver does not take a mail: %w", err)
	}
	return journal.copies, nil
}

// sendTrial sends a test mail over a connection.
func sendTrial(conn net.Conn, host, to string, at time.Time) error {
	c, err := smtp.NewClient(conn, host)
	if err != nil {
		return err
	}
	if err := c.Hello("localhost"); err != nil {
		return err
	}
	if err := c.Mail(trialSender); err != nil {
		return err
	}
	if err := c.Rcpt(to); err != nil {
		return err
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "From: %s\r\nTo: %s\r\nSubject: Test\r\nDate: %s\r\nMessage-ID: <test.%d@%s>\r\n\r\nTest\r\n",
		trialSender, to, at.UTC().Format(time.RFC1123Z), at.UnixMicro(), host)
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return c.Quit()
}
