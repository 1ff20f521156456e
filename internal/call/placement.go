package call

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// TranscriptionWait is the time that a voicemail waits for its transcription.
const TranscriptionWait = 5 * time.Minute

// The connection setting for missed calls, and its value for a ticket per call.
const (
	SettingMissedCalls = "missed_calls"
	MissedCallsTicket  = "ticket"
)

// pendingMessage is a message of a call that is not in a ticket yet.
type pendingMessage struct {
	message *channel.Message
	// optional leaves the message to the connection's settings.
	optional bool
	// markPlaced marks the message's parts as placed.
	markPlaced func(f *Facts)
}

// nextMessage returns the next message of a call at a time, nil if there is none.
// It is a pure function of the facts and the time.
func (c *Call) nextMessage(now time.Time) *pendingMessage {
	left := c.Inbound && !c.LeftAt.IsZero()
	switch {
	case left && !c.Placed.Voicemail && (c.Transcribed || !now.Before(c.LeftAt.Add(TranscriptionWait))):
		m := c.newMessage("voicemail", "Voicemail")
		m.Voicemail = true
		m.Text = c.Transcription
		if m.Text == "" {
			m.Text = "A voicemail" + c.durationSuffix() + ", without a transcription."
		}
		if c.Audio == nil {
			m.Text += "\n\n(The provider sent no link to the recording.)"
		} else {
			m.Attachments = []channel.Attachment{c.Audio.attachment()}
		}
		text, audio := c.Transcription != "", c.Audio != nil
		return &pendingMessage{message: m, markPlaced: func(f *Facts) {
			f.Placed.Voicemail = true
			f.Placed.Text, f.Placed.Audio = f.Placed.Text || text, f.Placed.Audio || audio
		}}
	case left && c.Placed.Voicemail && !c.Placed.Text && c.Transcription != "":
		m := c.newMessage("transcription", "Voicemail")
		m.Text = c.Transcription
		return &pendingMessage{message: m, markPlaced: func(f *Facts) { f.Placed.Text = true }}
	case left && c.Placed.Voicemail && !c.Placed.Audio && c.Audio != nil:
		m := c.newMessage("audio", "Voicemail")
		m.Text = "The recording of the voicemail" + c.durationSuffix() + "."
		m.Attachments = []channel.Attachment{c.Audio.attachment()}
		return &pendingMessage{message: m, markPlaced: func(f *Facts) { f.Placed.Audio = true }}
	case c.Missed && c.Inbound && !left && c.TicketID == "" && !c.Placed.Missed:
		m := c.newMessage("missed", "Missed call")
		m.Text = "Nobody answered this call."
		return &pendingMessage{message: m, optional: true, markPlaced: func(f *Facts) { f.Placed.Missed = true }}
	case c.TicketID != "":
		return c.recordingsMessage()
	}
	return nil
}

// recordingsMessage returns a message with the recordings of the conversation. It
// is outbound: neither the customer's words nor a reason to reopen the ticket.
func (c *Call) recordingsMessage() *pendingMessage {
	var files []channel.Attachment
	held := make(map[string]bool)
	for _, r := range c.Recordings {
		if !r.Placed {
			files = append(files, r.attachment())
			held[r.URL] = true
		}
	}
	if files == nil {
		return nil
	}
	m := c.newMessage("recording "+files[0].URL, "Call")
	m.Text = "The recording of the call" + c.durationSuffix() + "."
	m.Attachments = files
	m.Outbound = true
	m.To, m.From = []channel.Party{m.From}, channel.Party{Name: c.Target.Name, Phone: c.Target.Phone}
	return &pendingMessage{message: m, markPlaced: func(f *Facts) {
		for i := range f.Recordings {
			f.Recordings[i].Placed = f.Recordings[i].Placed || held[f.Recordings[i].URL]
		}
	}}
}

// dueAt returns the time of the call's next message: now, later, or zero if none is
// known.
func (c *Call) dueAt(now time.Time) time.Time {
	switch {
	case c.nextMessage(now) != nil:
		return now
	case c.Inbound && !c.LeftAt.IsZero() && !c.Placed.Voicemail:
		return c.LeftAt.Add(TranscriptionWait)
	}
	return time.Time{}
}

func (f *File) attachment() channel.Attachment {
	return channel.Attachment{Name: f.Name, ContentType: f.ContentType, URL: f.URL}
}

// newMessage returns a message from the caller in the thread of the call, with
// metadata and without text. key distinguishes the messages of a call.
func (c *Call) newMessage(key, subject string) *channel.Message {
	m := &channel.Message{
		ExternalID: "call " + c.ID + " " + key,
		ThreadKey:  "call " + c.ID,
		From:       channel.Party{Name: c.Contact.Name, Phone: c.Contact.Phone, ID: c.Contact.ID},
		Subject:    subject + " from " + c.Contact.displayName("a withheld number"),
		SentAt:     c.StartedAt,
		Metadata:   map[string]string{"call": c.ID, "caller": c.Contact.displayName("a withheld number")},
	}
	if c.Target != (Party{}) {
		m.Metadata["called"] = c.Target.displayName("")
	}
	if !c.StartedAt.IsZero() {
		m.Metadata["started_at"] = c.StartedAt.Format(time.RFC3339)
	}
	if d := c.duration(); d > 0 {
		m.Metadata["duration_seconds"] = strconv.FormatInt(int64(d.Round(time.Second)/time.Second), 10)
	}
	return m
}

// displayName returns the party's name and number for people.
func (p Party) displayName(nobody string) string {
	number := cmp.Or(p.Phone, p.ID)
	switch {
	case p.Name != "" && number != "":
		return p.Name + " (" + number + ")"
	default:
		return cmp.Or(p.Name, number, nobody)
	}
}

// duration returns the length of the conversation; if unknown, that of the call
// with its ringing.
func (f *Facts) duration() time.Duration {
	if f.Duration > 0 || f.StartedAt.IsZero() {
		return f.Duration
	}
	return max(0, f.EndedAt.Sub(f.StartedAt))
}

// durationSuffix returns the duration in parentheses; empty if unknown.
func (f *Facts) durationSuffix() string {
	seconds := int64(f.duration().Round(time.Second) / time.Second)
	if seconds <= 0 {
		return ""
	}
	minutes, rest := seconds/60, strconv.FormatInt(seconds%60, 10)
	return " (" + strconv.FormatInt(minutes, 10) + ":" + strings.Repeat("0", 2-len(rest)) + rest + ")"
}

// placeNext places the next message of a call.
func (s *Service) placeNext(ctx context.Context, j *queue.Job) error {
	c, err := db.One(ctx, s.db, scan, "SELECT "+columns+" FROM calls WHERE id = $1", j.Lane)
	if errors.Is(err, db.ErrNoRows) {
		return nil // merged into another call, which has its own job
	}
	if err != nil {
		return fmt.Errorf("load call: %w", err)
	}
	d := c.nextMessage(s.db.Now())
	if d == nil {
		return s.db.Write(ctx, func(tx *db.Tx) error { return s.finishOrWait(ctx, tx, j) })
	}
	if d.optional {
		settings, err := s.settings(ctx, c.ConnectionID)
		if err != nil {
			return fmt.Errorf("load settings: %w", err)
		}
		if settings[SettingMissedCalls] != MissedCallsTicket {
			d.message = nil
		}
	}
	o := channel.Source{OrganizationID: c.OrganizationID, ConnectionID: c.ConnectionID, Channel: c.channel, TicketChannel: c.ticketChannel}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		now, err := lock(ctx, tx, c.ID)
		switch {
		case errors.Is(err, db.ErrNoRows):
			return j.FinishTx(ctx, tx)
		case err != nil:
			return err
		case now.version != c.version:
			// The next message may have changed.
			return j.RescheduleTx(ctx, tx, tx.Now)
		}
		if d.message != nil {
			ticketID, err := s.placer.IngestMessageTx(ctx, tx, o, d.message)
			if err != nil {
				return fmt.Errorf("place message of call: %w", err)
			}
			now.TicketID = cmp.Or(now.TicketID, ticketID)
		}
		d.markPlaced(&now.Facts)
		if err := s.schedule(ctx, tx, now); err != nil {
			return err
		}
		if err := now.save(ctx, tx); err != nil {
			return err
		}
		return j.FinishTx(ctx, tx)
	})
}

// finishOrWait ends a job without a message, or delays it until the next one is
// due.
func (s *Service) finishOrWait(ctx context.Context, tx *db.Tx, j *queue.Job) error {
	c, err := lock(ctx, tx, j.Lane)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return err
	}
	if err == nil {
		if at := c.dueAt(tx.Now); !at.IsZero() {
			return j.RescheduleTx(ctx, tx, at)
		}
	}
	return j.FinishTx(ctx, tx)
}

func lock(ctx context.Context, tx *db.Tx, id string) (*Call, error) {
	c, err := db.One(ctx, tx, scan, "SELECT "+columns+" FROM calls WHERE id = $1 FOR UPDATE", id)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return nil, fmt.Errorf("load call: %w", err)
	}
	return c, err
}
