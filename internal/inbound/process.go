package inbound

import (
	"context"
	"errors"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// process turns a stored event into its effect.
func (s *Service) process(ctx context.Context, j *queue.Job) error {
	e, err := s.load(ctx, j.ID)
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
	parsed, files, err := s.parse(ctx, a, e)
	if errors.Is(err, channel.ErrUnreadable) {
		return s.db.Write(ctx, func(tx *db.Tx) error {
			if err := e.end(ctx, tx, Rejected, nil, reason(err)); err != nil {
				return err
			}
			return j.Finish(ctx, tx)
		})
	}
	if err != nil {
		return err
	}
	if err := s.fetchMedia(ctx, a, e, parsed.Message, files, j.Attempt); err != nil {
		return err
	}
	in := desk.Inbound{
		OrganizationID: e.OrganizationID, ConnectionID: e.ConnectionID, Channel: a.Info().Medium,
		Event: parsed, Files: files, ReceivedAt: e.ReceivedAt,
	}
	thanks, err := s.acknowledgement(ctx, a, e)
	if err != nil {
		return err
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		var result any
		var err error
		if parsed.Payment != nil {
			result, err = s.billing.Intake(ctx, tx, parsed.Payment)
		} else {
			var r desk.Result
			if r, err = s.desk.Intake(ctx, tx, in); err == nil {
				result = r
				_, err = s.desk.Acknowledge(ctx, tx, e.OrganizationID, r, thanks)
			}
		}
		if err != nil {
			return err
		}
		if err := e.end(ctx, tx, Processed, result, ""); err != nil {
			return err
		}
		return j.Finish(ctx, tx)
	})
}

// acknowledgement returns what the first message of a new ticket is answered with,
// where that is a message of its own: the connection's setting auto_reply.
func (s *Service) acknowledgement(ctx context.Context, a channel.Adapter, e *Event) (string, error) {
	if _, letters := a.(channel.Correspondent); !letters || e.ConnectionID == "" {
		return "", nil
	}
	list, err := s.connections.At(ctx, a.Info().Medium, []string{e.Address})
	if err != nil {
		return "", fmt.Errorf("load connection: %w", err)
	}
	for _, c := range list {
		if c.ID == e.ConnectionID {
			return c.Settings[autoReply], nil
		}
	}
	return "", nil
}

// parse returns what the event means, with its files stored. The memory that
// large ones take is free again when it returns.
func (s *Service) parse(ctx context.Context, a channel.Adapter, e *Event) (parsed channel.Event, files []blob.Ref, err error) {
	if e.Size > largeBody {
		need := min(e.Size, maxParsing)
		if err := s.parsing.Acquire(ctx, need); err != nil {
			return parsed, nil, err
		}
		defer s.parsing.Release(need)
	}
	if err := s.unshelve(ctx, e); err != nil {
		return parsed, nil, err
	}
	parsed, err = a.Parse(e.request(), e.part())
	if errors.Is(err, channel.ErrUnreadable) {
		return parsed, nil, err
	}
	if err != nil {
		return parsed, nil, fmt.Errorf("parse: %w", err)
	}
	e.Body = nil
	if files, err = s.desk.Prepare(ctx, parsed.Message); err != nil {
		return parsed, nil, fmt.Errorf("store attachments: %w", err)
	}
	if m := parsed.Message; m != nil {
		for i := range m.Attachments {
			m.Attachments[i].Data = nil
		}
	}
	return parsed, files, nil
}

// end records what became of an event.
func (e *Event) end(ctx context.Context, tx *db.Tx, state State, result any, message string) error {
	var stored any
	if result != nil {
		stored = db.JSON(result)
	}
	_, err := tx.Exec(ctx, "UPDATE inbound_events SET state = $2, result = $3, error = $4, processed_at = $5 WHERE id = $1",
		e.ID, string(state), stored, db.Text(message), tx.Now.UnixMicro())
	if err != nil {
		return fmt.Errorf("record outcome: %w", err)
	}
	return nil
}

// bury sets an event aside that failed too often. Its bytes stay, so that it
// can be processed again.
func (s *Service) bury(ctx context.Context, tx *db.Tx, j *queue.Job, cause error) error {
	e := Event{ID: j.ID}
	return e.end(ctx, tx, Dead, nil, clean(cause.Error(), maxError))
}
