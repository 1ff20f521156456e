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

// redactPage is how many events are looked at together when something is to be
// forgotten.
const redactPage = 50

// redactedResult is what becomes of an event whose content is forgotten.
type redactedResult struct {
	Outcome string `json:"outcome"`
}

// RedactPerson takes the content of every event of a person's out of what is stored, as
// it came in. What is left says that there was an event, and when; the same event
// sent again is still a duplicate. An event is the person's when it has come to
// something of theirs, or when they are named in it. One of somebody else, which only
// names them, is processed first: until then, there is an error.
func (s *Service) RedactPerson(ctx context.Context, p *shop.Person) error {
	known := slices.DeleteFunc(slices.Clone(p.Contacts), isAmbiguous)
	contacts, names := searchTerms(known), searchTerms(p.Names)
	err := s.redactWhere(ctx, "organization_id = $1", p.OrganizationID, func(e *Event) relation {
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

// RedactPlace takes the content of every event that came by a connection out of
// what is stored; in place of a connection stands what [shop] calls a place.
func (s *Service) RedactPlace(ctx context.Context, organizationID, place string) error {
	return s.redactWhere(ctx, "organization_id = $1", organizationID, func(e *Event) relation {
		if placeOf(s, e) == place {
			return owned
		}
		return unrelated
	})
}

// placeOf is where the ids in an event have their meaning.
func placeOf(s *Service, e *Event) string {
	if e.ConnectionID != "" {
		return e.ConnectionID
	}
	if a, ok := s.byName[e.Channel]; ok {
		return e.OrganizationID + "/" + a.Info().Medium
	}
	return ""
}

// relation says whose an event is, as to what is forgotten.
type relation int

const (
	unrelated relation = iota
	mentioned
	owned
)

// errPending says that what somebody else said, who mentions whom is forgotten, must
// be processed first.
var errPending = errors.New("events of others that mention the customer wait to be processed")

// redactWhere takes the content out of the events that a condition and whose choose,
// page by page. The error is [errPending] when that is all that is left to do.
func (s *Service) redactWhere(ctx context.Context, condition, arg string, whose func(*Event) relation) error {
	var waiting error
	for after := ""; ; {
		page, err := db.All(ctx, s.db, scanEvent,
			"SELECT "+eventColumns+" FROM inbound_events WHERE "+condition+" AND id > $2 ORDER BY id LIMIT $3", arg, after, redactPage)
		if err != nil {
			return fmt.Errorf("look through inbound events: %w", err)
		}
		for _, e := range page {
			after = e.ID
			if e.URL == "" || isPendingPrivacyRequest(e) {
				continue
			}
			switch err := s.redactEvent(ctx, e, whose); {
			case errors.Is(err, errPending):
				waiting = err
			case err != nil:
				return fmt.Errorf("forget inbound event %s: %w", e.ID, err)
			}
		}
		if len(page) < redactPage {
			return waiting
		}
	}
}

// redactEvent takes the content out of an event that whose chooses. A large one is in
// memory only meanwhile.
func (s *Service) redactEvent(ctx context.Context, e *Event, whose func(*Event) relation) error {
	if e.Size > largeBody {
		need := min(e.Size, maxParsing)
		release, err := s.parsing.Acquire(ctx, "worker", need, 0)
		if err != nil {
			return err
		}
		defer release()
	}
	// A body that is lost is forgotten already.
	if err := s.loadBody(ctx, e); err != nil && !errors.Is(err, blob.ErrNotFound) {
		return err
	}
	is := whose(e)
	e.Body = nil
	switch {
	case is == unrelated:
		return nil
	case is == mentioned && e.State == Accepted:
		return errPending
	}
	return s.clearContent(ctx, e)
}

// isPendingPrivacyRequest reports whether an event is a request of the law that is still to be
// written down: it goes with the next one.
func isPendingPrivacyRequest(e *Event) bool {
	switch channel.PrivacyKind(e.Kind) {
	case channel.PrivacyDataRequest, channel.PrivacyRedactCustomer, channel.PrivacyRedactShop:
		return e.State == Accepted
	}
	return false
}

// clearContent takes the content out of an event. One that waits is not processed any more.
func (s *Service) clearContent(ctx context.Context, e *Event) error {
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		if err := s.queue.Delete(ctx, tx, e.ID); err != nil {
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

// isAmbiguous reports whether what somebody is known by may stand anywhere for something
// else: a short number, which is an id in one shop.
func isAmbiguous(known string) bool { return len(known) < 9 && strings.Trim(known, "0123456789") == "" }

// searchTerms are the forms in which what somebody is known by may stand in an event:
// as it is, as in a form, and a number without its plus.
func searchTerms(known []string) []string {
	var list []string
	for _, k := range known {
		k = strings.ToLower(strings.TrimSpace(k))
		if len(k) < 4 {
			continue // it would be found everywhere
		}
		list = append(list, k, strings.ToLower(url.QueryEscape(k)))
		if digits, ok := strings.CutPrefix(k, "+"); ok {
			list = append(list, digits)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// mentions reports whether text has what somebody is known by, and not only within a
// longer word.
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

func isWordRune(r rune) bool { return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r)) }
