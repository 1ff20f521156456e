package inbound

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/telemetry"
)

// process runs the job of a stored event.
func (s *Service) process(ctx context.Context, j *queue.Job) error {
	e, ok := j.Prepared.(*StoredEvent)
	var err error
	if !ok {
		e, err = s.load(ctx, j.ID)
	}
	if errors.Is(err, db.ErrNoRows) {
		s.log.WarnContext(ctx, "an inbound event was removed before it was processed", "event", j.ID)
		return nil
	}
	if err != nil {
		return fmt.Errorf("load event: %w", err)
	}
	a, ok := s.byName[e.Channel]
	if !ok {
		return fmt.Errorf("channel %q is not part of this program", e.Channel)
	}
	w := &work{event: e, adapter: a, attempt: j.Attempt, origin: channel.Source{
		OrganizationID: e.OrganizationID, ConnectionID: e.ConnectionID, Channel: e.Channel, TicketChannel: a.Info().TicketChannel, ReceivedAt: e.ReceivedAt,
	}}
	err = s.prepare(ctx, w)
	if errors.Is(err, channel.ErrUnreadable) {
		return s.db.WriteGrouped(ctx, e.OrganizationID, func(tx *db.Tx) error {
			s.notifyProcessed(tx, e)
			if err := j.FinishTx(ctx, tx); err != nil {
				return err
			}
			return e.recordOutcome(ctx, tx, Rejected, nil, reason(err))
		})
	}
	if err != nil {
		return err
	}
	write := func(tx *db.Tx) error {
		s.notifyProcessed(tx, e)
		// First, so that the rows that others wait for, such as the last number of a ticket, are
		// locked for as few round trips as possible.
		if err := j.FinishTx(ctx, tx); err != nil {
			return err
		}
		result, err := s.apply(ctx, tx, w)
		if err != nil {
			return err
		}
		return e.recordOutcome(ctx, tx, Processed, result, "")
	}
	if w.isConversation() {
		return s.db.WriteGrouped(ctx, e.OrganizationID, write)
	}
	return s.db.Write(ctx, write) // it takes locks that others of its kind take too
}

// notifyProcessed calls Config.Processed after the commit.
func (s *Service) notifyProcessed(tx *db.Tx, e *StoredEvent) {
	if s.onProcessed != nil && e.OrganizationID != "" {
		tx.AfterCommit(func() { s.onProcessed(e.OrganizationID, e.ID) })
	}
}

// work is an event during processing.
type work struct {
	event   *StoredEvent
	adapter channel.Adapter
	attempt int // number of failed attempts
	origin  channel.Source

	connection *connection.Connection // nil if there is none or it was removed

	// The parsed event with all data except the files that are downloaded later.
	parsed       channel.Event
	files        []blob.Ref      // attachments of parsed
	fetches      []desk.FetchJob // attachments to be downloaded
	autoReply    string          // answer to the first message of a new ticket
	confirmation *confirmation
}

// attachments returns the attachments of the parsed event.
func (w *work) attachments() []channel.Attachment {
	switch e := &w.parsed; {
	case e.Message != nil:
		return e.Message.Attachments
	case e.Record != nil && e.Record.Message != nil:
		return e.Record.Message.Attachments
	}
	return nil
}

// isConversation reports whether the event concerns the desk only.
func (w *work) isConversation() bool {
	e := &w.parsed
	return e.Message != nil || e.Receipt != nil || e.Annotation != nil || e.IdentityChange != nil
}

// prepare does the slow work before the transaction: it parses the event and stores its files.
func (s *Service) prepare(ctx context.Context, w *work) (err error) {
	if w.event.ConnectionID != "" {
		if w.connection, err = s.connections.ByID(ctx, w.event.ConnectionID); err != nil {
			return fmt.Errorf("load connection: %w", err)
		}
	}
	if err := s.parse(ctx, w); err != nil {
		return err
	}
	if v := w.parsed.URLConfirmation; v != nil {
		if w.confirmation, err = s.confirmURL(ctx, v); err != nil {
			return err
		}
	}
	if _, letters := w.adapter.(channel.MailComposer); letters && w.connection != nil {
		w.autoReply = w.connection.Settings[autoReply]
	}
	return nil
}

// combinedResult is the result of an event that produced both a message and a domain result.
type combinedResult struct {
	desk.Result
	News any `json:"news"` // the domain result
}

// apply applies the event in the transaction that finishes its job and returns the result.
func (s *Service) apply(ctx context.Context, tx *db.Tx, w *work) (any, error) {
	switch e := w.parsed; {
	case e.Payment != nil:
		if s.billing == nil {
			return nil, errNoHandler("payments")
		}
		return s.billing.IngestPaymentTx(ctx, tx, e.Payment)
	case e.Call != nil:
		if s.calls == nil {
			return nil, errNoHandler("calls")
		}
		return s.calls.IngestCallTx(ctx, tx, w.origin, e.Call)
	case e.Record != nil:
		if s.shops == nil {
			return nil, errNoHandler("records of customers")
		}
		// The transaction may run again and must find the event unchanged.
		r := *e.Record
		if r.Message != nil {
			r.Message = new(*r.Message)
		}
		result, m, err := s.shops.IngestRecordTx(ctx, tx, w.origin, &r)
		if err != nil || m == nil {
			return result, err
		}
		placed, err := s.ingestMessage(ctx, tx, w, channel.Event{Message: m})
		return combinedResult{placed, result}, err
	case e.Privacy != nil:
		if s.shops == nil {
			return nil, errNoHandler("privacy requests")
		}
		return s.shops.IngestPrivacyRequestTx(ctx, tx, w.origin, e.Privacy)
	case e.ConnectionEvent != nil:
		if s.connectionEvents == nil {
			return nil, errNoHandler("connection events")
		}
		return s.connectionEvents.IngestConnectionEventTx(ctx, tx, w.origin, e.ConnectionEvent)
	case e.URLConfirmation != nil:
		return w.confirmation, nil
	}
	r, err := s.ingestMessage(ctx, tx, w, w.parsed)
	if err != nil {
		return nil, err
	}
	_, err = s.desk.AcknowledgeTx(ctx, tx, w.event.OrganizationID, r, w.autoReply)
	return r, err
}

// ingestMessage passes an event to the desk.
func (s *Service) ingestMessage(ctx context.Context, tx *db.Tx, w *work, e channel.Event) (desk.Result, error) {
	ctx, span := telemetry.Start(ctx, "ticket")
	r, err := s.desk.IngestTx(ctx, tx, desk.InboundEvent{
		OrganizationID: w.origin.OrganizationID, ConnectionID: w.origin.ConnectionID, Channel: w.origin.TicketChannel,
		Event: e, Files: w.files, FetchJobs: w.fetches, ReceivedAt: w.origin.ReceivedAt,
	})
	telemetry.End(span, err)
	return r, err
}

// IngestMessageTx passes a message that results from several requests to the desk, in the caller's
// transaction, and returns its ticket. Its attachments are downloaded afterwards.
func (s *Service) IngestMessageTx(ctx context.Context, tx *db.Tx, o channel.Source, m *channel.Message) (ticketID string, err error) {
	if s.byName[o.Channel] == nil {
		return "", fmt.Errorf("channel %q is not part of this program", o.Channel)
	}
	w := &work{origin: o}
	if w.fetches, err = s.fetchJobs(o, "", m.Attachments); err != nil {
		return "", err
	}
	r, err := s.ingestMessage(ctx, tx, w, channel.Event{Message: m})
	return r.TicketID, err
}

// AcceptTx passes an event that a client of ours sends, as an app does for its users, to the desk in
// the caller's transaction. The files of a message must have been stored by [desk.Service.StoreFiles];
// those behind links are downloaded afterwards.
func (s *Service) AcceptTx(ctx context.Context, tx *db.Tx, o channel.Source, e channel.Event, files []blob.Ref) (desk.Result, error) {
	w := &work{origin: o, files: files}
	var err error
	if e.Message != nil {
		if w.fetches, err = s.fetchJobs(o, "", e.Message.Attachments); err != nil {
			return desk.Result{}, err
		}
		if err := s.connections.RecordReceivedTx(ctx, tx, o.ConnectionID); err != nil {
			return desk.Result{}, err
		}
	}
	return s.ingestMessage(ctx, tx, w, e)
}

func errNoHandler(what string) error { return fmt.Errorf("there is no handler for %s", what) }

// parse parses the event and stores its files. It releases the memory of large ones before it
// returns.
func (s *Service) parse(ctx context.Context, w *work) error {
	e := w.event
	release, err := s.openBody(ctx, e)
	if err != nil {
		return err
	}
	defer func() { release() }()
	asker, asks := w.adapter.(channel.Enricher)
	answers := s.newResponses()
	defer answers.release()
	if asks {
		if err := s.enrich(ctx, w, asker, answers); err != nil {
			return err
		}
	}
	req := e.request()
	req.Settings = w.settings()
	if p, ok := w.adapter.(channel.DNSVerifier); ok && s.txt != nil {
		if names := p.TXTNames(req, e.part(), answers.list); len(names) > 0 {
			if e.bodyKey != "" { // hold no memory during the lookup
				e.Body = nil
				release()
			}
			records := s.txt(ctx, names)
			if e.bodyKey != "" {
				if release, err = s.openBody(ctx, e); err != nil {
					return err
				}
			}
			req = e.request()
			req.TXT, req.Settings = records, w.settings()
		}
	}
	if asks {
		w.parsed, err = asker.ParseEnriched(req, e.part(), answers.list)
	} else {
		w.parsed, err = w.adapter.Parse(req, e.part())
	}
	if errors.Is(err, channel.ErrUnreadable) {
		return err
	}
	if err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	if m := w.parsed.Message; m != nil && m.Mail != nil && m.Mail.Proof.Temporary && w.attempt < maxProofRetries {
		return fmt.Errorf("%w: %s", errProofUnavailable, m.Mail.Proof.Reason)
	}
	e.Body = nil
	list := w.attachments()
	if w.files, err = s.desk.StoreFiles(ctx, &channel.Message{Attachments: list}); err != nil {
		return fmt.Errorf("store attachments: %w", err)
	}
	for i := range list {
		list[i].Data = nil
	}
	w.fetches, err = s.fetchJobs(w.origin, e.VerifiedBy, list)
	return err
}

// settings returns the settings of the connection; nil without one.
func (w *work) settings() map[string]string {
	if w.connection == nil {
		return nil
	}
	return w.connection.Settings
}

// maxProofRetries is how often a failing DNS lookup delays a mail; after that, the mail is
// processed unproven.
const maxProofRetries = 1

var errProofUnavailable = errors.New("the DNS lookup for the sender's proof failed")

// openBody loads the event's body and reserves memory for a large one. The caller calls release
// once.
func (s *Service) openBody(ctx context.Context, e *StoredEvent) (release func(), err error) {
	release = func() {}
	if e.Size > largeBody {
		need := min(e.Size, maxParsing)
		free, err := s.parsing.Acquire(ctx, "worker", need, 0)
		if err != nil {
			return release, err
		}
		release = sync.OnceFunc(free)
	}
	if err := s.loadBody(ctx, e); err != nil {
		release()
		return release, err
	}
	return release, nil
}

// recordOutcome stores the result of an event.
func (e *StoredEvent) recordOutcome(ctx context.Context, tx *db.Tx, state State, result any, message string) error {
	var stored any
	if result != nil {
		stored = db.JSON(result)
	}
	err := tx.Queue(ctx, "UPDATE inbound_events SET state = $2, result = $3, error = $4, processed_at = $5 WHERE id = $1",
		e.ID, string(state), stored, db.Text(message), tx.Now.UnixMicro())
	if err != nil {
		return fmt.Errorf("record outcome: %w", err)
	}
	return nil
}

// discard marks an event as dead after its last attempt. The body remains for a replay.
func (s *Service) discard(ctx context.Context, tx *db.Tx, j *queue.Job, cause error) error {
	e := StoredEvent{ID: j.ID}
	if err := e.recordOutcome(ctx, tx, Dead, nil, clean(cause.Error(), maxError)); err != nil {
		return err
	}
	err := tx.QueryRow(ctx, "SELECT organization_id FROM inbound_events WHERE id = $1", j.ID).Scan(db.IntoText(&e.OrganizationID))
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the organization of an event: %w", err)
	}
	s.notifyProcessed(tx, &e)
	return s.notifyDead(ctx, tx, e.OrganizationID)
}
