package inbound

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/shop"
)

var _ shop.Redactor = (*Service)(nil)

// redactPage is the number of events examined at a time.
const redactPage = 50

// redactedResult is the result of a redacted event.
type redactedResult struct {
	Outcome string `json:"outcome"`
}

// RedactPerson redacts a person's events: it deletes their content and keeps only that there was an
// event, and when. A repeated delivery is still a duplicate. An event is the person's if it led
// to a record of theirs or names them as its sender. A pending event of another sender that
// mentions the person is processed first; until then, RedactPerson returns an error.
func (s *Service) RedactPerson(ctx context.Context, p *shop.Person) error {
	known := slices.DeleteFunc(slices.Clone(p.Contacts), isAmbiguous)
	contacts, names := searchTerms(known), searchTerms(p.Names)
	err := s.redactWhere(ctx, "organization_id = $1", p.OrganizationID, func(e *StoredEvent) relation {
		result, sender := string(e.Result), strings.ToLower(e.Sender)
		for _, id := range append([]string{p.CustomerID}, p.TicketIDs...) {
			if id != "" && strings.Contains(result, `"`+id+`"`) {
				return owned
			}
		}
		here := contacts
		if slices.Contains(p.Places, placeOf(s, e)) {
			here = slices.Concat(contacts, names)
		}
		in := func(text string) bool {
			return slices.ContainsFunc(here, func(n string) bool { return mentions(text, n) })
		}
		switch {
		case in(sender):
			return owned
		case in(strings.ToLower(strings.Join([]string{e.Key, e.URL, headerText(e.Header), string(e.Body)}, "\n"))):
			return mentioned
		}
		return unrelated
	})
	if err != nil {
		return err
	}
	list, err := s.connections.List(ctx, p.OrganizationID)
	if err != nil {
		return fmt.Errorf("list connections: %w", err)
	}
	ids := make([]string, len(list))
	for i, c := range list {
		ids[i] = c.ID
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM inbound_greetings WHERE connection_id = ANY($1) AND sender = ANY($2)", ids, append([]string{}, p.Contacts...))
		return err
	})
}

// RedactPlace redacts all events received by a connection, or, without a connection, at a place
// as package shop defines it.
func (s *Service) RedactPlace(ctx context.Context, organizationID, place string) error {
	return s.redactWhere(ctx, "organization_id = $1", organizationID, func(e *StoredEvent) relation {
		if placeOf(s, e) == place {
			return owned
		}
		return unrelated
	})
}

// placeOf returns the scope of the ids in an event.
func placeOf(s *Service, e *StoredEvent) string {
	if e.ConnectionID != "" {
		return e.ConnectionID
	}
	if a, ok := s.byName[e.Channel]; ok {
		return e.OrganizationID + "/" + a.Info().TicketChannel
	}
	return ""
}

// relation is how an event relates to the redacted person.
type relation int

const (
	unrelated relation = iota
	mentioned
	owned
)

// errPending means that events of other senders that mention the person are not processed yet.
var errPending = errors.New("events of other senders that mention the customer are not processed yet")

// redactWhere redacts the events that match condition and relate, page by page. It returns
// [errPending] if pending events remain.
func (s *Service) redactWhere(ctx context.Context, condition, arg string, relate func(*StoredEvent) relation) error {
	var waiting error
	for after := ""; ; {
		page, err := db.All(ctx, s.db, scanEvent,
			"SELECT "+eventColumns+" FROM inbound_events WHERE "+condition+" AND id > $2 ORDER BY id LIMIT $3", arg, after, redactPage)
		if err != nil {
			return fmt.Errorf("read inbound events: %w", err)
		}
		for _, e := range page {
			after = e.ID
			if e.URL == "" || isPendingPrivacyRequest(e) {
				continue
			}
			switch err := s.redactEvent(ctx, e, relate); {
			case errors.Is(err, errPending):
				waiting = err
			case err != nil:
				return fmt.Errorf("redact inbound event %s: %w", e.ID, err)
			}
		}
		if len(page) < redactPage {
			return waiting
		}
	}
}

// redactEvent redacts an event if relate selects it. It holds a large body in memory only for
// that time.
func (s *Service) redactEvent(ctx context.Context, e *StoredEvent, relate func(*StoredEvent) relation) error {
	if e.Size > largeBody {
		need := min(e.Size, maxParsing)
		release, err := s.parsing.Acquire(ctx, "worker", need, 0)
		if err != nil {
			return err
		}
		defer release()
	}
	// A lost body is already redacted.
	if err := s.loadBody(ctx, e); err != nil && !errors.Is(err, blob.ErrNotFound) {
		return err
	}
	is := relate(e)
	e.Body = nil
	switch {
	case is == unrelated:
		return nil
	case is == mentioned && e.State == Accepted:
		return errPending
	}
	return s.clearContent(ctx, e)
}

// isPendingPrivacyRequest reports whether an event is a privacy request that is not recorded
// yet. The next one redacts it.
func isPendingPrivacyRequest(e *StoredEvent) bool {
	switch channel.PrivacyKind(e.Kind) {
	case channel.PrivacyDataRequest, channel.PrivacyRedactCustomer, channel.PrivacyRedactShop:
		return e.State == Accepted
	}
	return false
}

// clearContent deletes the content of an event and its pending job.
func (s *Service) clearContent(ctx context.Context, e *StoredEvent) error {
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		if err := s.queue.DeleteTx(ctx, tx, e.ID); err != nil {
			return err
		}
		if err := s.uncountBody(ctx, tx, e.ID); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE inbound_events SET external_key = '', sender = '', url = '', headers = '', body = NULL, body_key = NULL, body_size = 0,
			state = $2, result = $3, error = NULL, processed_at = coalesce(processed_at, $4) WHERE id = $1`,
			e.ID, string(Processed), db.JSON(redactedResult{"forgotten"}), tx.Now.UnixMicro())
		return err
	})
	if err != nil || e.bodyKey == "" {
		return err
	}
	return s.deleteUnusedBody(ctx, e.bodyKey)
}

// isAmbiguous reports whether an identifier is too short to be unique, such as the id of a
// customer in one shop.
func isAmbiguous(known string) bool { return len(known) < 9 && strings.Trim(known, "0123456789") == "" }

// searchTerms returns the forms in which identifiers may appear in an event: as they are,
// form-encoded, and numbers without their plus.
func searchTerms(known []string) []string {
	var list []string
	for _, k := range known {
		k = strings.ToLower(strings.TrimSpace(k))
		if len(k) < 4 {
			continue // too short to be specific
		}
		list = append(list, k, strings.ToLower(url.QueryEscape(k)))
		if digits, ok := strings.CutPrefix(k, "+"); ok {
			list = append(list, digits)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// mentions reports whether text contains the identifier as a whole word.
func mentions(text, known string) bool {
	for at := 0; ; {
		i := strings.Index(text[at:], known)
		if i < 0 {
			return false
		}
		i += at
		before, _ := utf8.DecodeLastRuneInString(text[:i])
		after, _ := utf8.DecodeRuneInString(text[i+len(known):])
		if !isWordRune(before) && !isWordRune(after) {
			return true
		}
		at = i + len(known)
	}
}

func isWordRune(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r))
}
