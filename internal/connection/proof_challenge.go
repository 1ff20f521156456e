package connection

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/google/uuid"
)

// Challenge is a pending proof that waits for its token or code.
type Challenge struct {
	Way       channel.ProofWay
	SentAt    time.Time
	ExpiresAt time.Time
	TriesLeft int    // remaining attempts for the code; 0 without a code
	Publish   string // topics only: the text to publish

	id   string
	code []byte
}

const (
	mailLife = 24 * time.Hour // also for topics
	textLife = 15 * time.Minute
	maxTries = 5 // wrong codes per challenge

	tokenPurpose = "connection proof token"
	codePurpose  = "connection proof code"
	codeSize     = 16
	codeDigits   = 8
)

var tokenEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// tokenText returns the written form of a token.
func tokenText(mac []byte) string {
	return channel.ProofTokenPrefix + strings.ToLower(tokenEncoding.EncodeToString(mac[:16]))
}

// token returns the token of a challenge. It is seen only by the recipient of the message or
// the publisher on the topic.
func (s *Service) token(challengeID string) string {
	return tokenText(s.box.MAC(tokenPurpose, challengeID))
}

func digest(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

func newCode() string {
	n, err := rand.Int(rand.Reader, big.NewInt(100_000_000))
	if err != nil {
		panic(err) // the system's random source never fails
	}
	return fmt.Sprintf("%0*d", codeDigits, n)
}

// plainCode removes spaces and hyphens from a code.
func plainCode(code string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' || r == '\u00a0' {
			return -1
		}
		return r
	}, code)
}

const challengeColumns = "id, way, code, tries, sent_at, expires_at"

func (s *Service) scanChallenge(row db.Row) (Challenge, error) {
	var c Challenge
	var tries int
	if err := row.Scan(&c.id, &c.Way, &c.code, &tries, db.IntoTime(&c.SentAt), db.IntoTime(&c.ExpiresAt)); err != nil {
		return c, err
	}
	if c.code != nil {
		c.TriesLeft = maxTries - tries
	}
	if c.Way == channel.ProveByTopic {
		c.Publish = s.token(c.id)
	}
	return c, nil
}

// openChallenge returns the pending challenge of a connection, or nil.
func (s *Service) openChallenge(ctx context.Context, q db.Querier, connectionID string, now time.Time, suffix string) (*Challenge, error) {
	c, err := db.One(ctx, q, s.scanChallenge, "SELECT "+challengeColumns+` FROM connection_challenges
		WHERE connection_id = $1 AND ended_at IS NULL AND expires_at > $2 ORDER BY id DESC LIMIT 1`+suffix, connectionID, now.UnixMicro())
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find challenge: %w", err)
	}
	return &c, nil
}

// Prove starts the proof of a connection's address. For mail and text it sends a message and
// for topics it chooses a text; the challenge replaces any previous one. DNS and provider are
// checked at once. Errors: NotFound, Precondition, RateLimited, Unavailable. It must not be
// called in a transaction.
func (s *Service) Prove(ctx context.Context, organizationID, id string, way channel.ProofWay) (Connection, error) {
	c, err := s.FindOf(ctx, s.db, organizationID, id)
	if err != nil {
		return c, err
	}
	switch {
	case c.Proven() && c.Proof.Method != BeforeProofs:
		return c, problem.New(problem.Precondition, "this address is already proven")
	case !slices.Contains(s.ways(&c), way):
		return c, problem.New(problem.Precondition, "this address cannot be proven by %q here", way)
	}
	switch way {
	case channel.ProveByDNS:
		return s.proveByDNS(ctx, c)
	case channel.ProveByProvider:
		return s.proveByProvider(ctx, c)
	}
	code, err := s.challenge(ctx, c, way)
	if err == nil && way == channel.ProveByText {
		err = s.sendCode(ctx, &c, code)
	}
	return c, err
}

// challenge stores a challenge in place of any previous one and enqueues its mail.
func (s *Service) challenge(ctx context.Context, c Connection, way channel.ProofWay) (code string, err error) {
	ticketChannel := s.adapters[c.Channel].Info().TicketChannel
	life := mailLife
	if way == channel.ProveByText {
		life = textLife
	}
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		code = ""
		if err := s.countAttempt(ctx, tx, challengeLimits(&c, ticketChannel, way)); err != nil {
			return err
		}
		now, err := s.FindOf(ctx, tx, c.OrganizationID, c.ID)
		if err != nil {
			return err
		}
		if err := tx.Queue(ctx, "UPDATE connection_challenges SET ended_at = $2 WHERE connection_id = $1 AND ended_at IS NULL", c.ID, tx.Now.UnixMicro()); err != nil {
			return fmt.Errorf("end challenges: %w", err)
		}
		id := uuid.Must(uuid.NewV7()).String()
		var token, mac []byte
		if way != channel.ProveByText {
			token = digest(s.token(id))
		}
		if way != channel.ProveByTopic {
			code = newCode()
			mac = s.box.MAC(codePurpose, id, code)[:codeSize]
		}
		if err := tx.Queue(ctx, `INSERT INTO connection_challenges (id, connection_id, medium, address, way, token, code, tries, sent_at, expires_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $8, $9)`,
			id, c.ID, ticketChannel, c.Address, string(way), token, mac, tx.Now.UnixMicro(), tx.Now.Add(life).UnixMicro()); err != nil {
			return fmt.Errorf("record challenge: %w", err)
		}
		if way == channel.ProveByMail {
			m, err := challengeMail(c.Address, s.proofs.BaseURL, s.token(id), code)
			if err != nil {
				return err
			}
			if err := s.proofs.Mailer.EnqueueMailTx(ctx, tx, m); err != nil {
				return fmt.Errorf("enqueue mail: %w", err)
			}
		}
		return s.recordTx(ctx, tx, AuditProofStarted, &now, nil, map[string]any{"way": string(way)})
	})
	return code, err
}

// challengeMail returns the mail to the reader of an address. It contains no text chosen by the
// organization except for the recipient address.
func challengeMail(to, baseURL, token, code string) (mail.Message, error) {
	l := mail.Notification{
		Unbranded: true,
		Subject:   "Connect this address to Kickstand? " + token,
		Before: []string{
			"Hello,",
			"An organization on the Kickstand server " + baseURL + " asks to connect this address as a support channel. " +
				"It would read the mail to this address, and answer in its name.",
			"If you asked for it, enter this code there, under Settings, Channels: " + code[:4] + " " + code[4:],
			"If mail to this address already goes to the channel, this message comes back there by itself, and you need no code.",
			"If you did not ask for it, ignore this message and share the code with nobody. Without it, nothing changes.",
		},
		After: []string{"Valid for 24 hours. Reference: " + token},
	}
	m, err := l.Message(mail.Address{}, mail.Address{Address: to})
	m.Headers = append(m.Headers, mail.Header{Name: channel.ProofHeader, Value: token})
	return m, err
}

// sendCode sends the code of a challenge and ends the challenge if that fails.
func (s *Service) sendCode(ctx context.Context, c *Connection, code string) error {
	err := s.proofs.Text(ctx, c.Address, channel.ProofText(code))
	if err == nil {
		return nil
	}
	ended := s.db.Write(context.WithoutCancel(ctx), func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE connection_challenges SET ended_at = $2 WHERE connection_id = $1 AND ended_at IS NULL", c.ID, tx.Now.UnixMicro())
		return err
	})
	reason := "the SMS account did not accept it; try again later, or ask the operator of this server"
	if p, ok := errors.AsType[*problem.Error](err); ok {
		reason = p.Message
	} else if s.proofs.Logger != nil {
		s.proofs.Logger.WarnContext(ctx, "a code of a proof was not texted", "connection", c.ID, "organization", c.OrganizationID, "error", err)
	}
	return problem.New(problem.Precondition, "the code could not be sent to %s: %s", c.Address, reason).Because(errors.Join(err, ended))
}

// errCode is the refusal of a code, the same for every reason.
func errCode(triesLeft int) error {
	var v problem.Validation
	switch triesLeft {
	case 0:
		v.Add("code", "is wrong or expired; request a new one")
	case 1:
		v.Add("code", "is wrong; you have 1 attempt left")
	default:
		v.Add("code", "is wrong; you have %d attempts left", triesLeft)
	}
	return v.Err()
}

// AnswerChallenge proves an address by the code sent to it. Errors: NotFound; Invalid for a
// wrong code, at most five per challenge; Precondition. It must not be called in a transaction,
// because it also records failed attempts.
func (s *Service) AnswerChallenge(ctx context.Context, organizationID, id, code string) (Connection, error) {
	code = plainCode(code)
	var c Connection
	var refusal error
	err := s.db.Write(ctx, func(tx *db.Tx) (err error) {
		refusal = nil
		if c, err = s.FindOf(ctx, tx, organizationID, id); err != nil {
			return err
		}
		ch, err := s.openChallenge(ctx, tx, id, tx.Now, " FOR UPDATE")
		if err != nil {
			return err
		}
		if ch == nil || ch.TriesLeft <= 0 {
			refusal = errCode(0)
			return nil
		}
		if !s.box.VerifyMAC(codePurpose, ch.code, codeSize, ch.id, code) {
			refusal = errCode(ch.TriesLeft - 1)
			_, err := tx.Exec(ctx, "UPDATE connection_challenges SET tries = tries + 1 WHERE id = $1", ch.id)
			return err
		}
		if err := tx.Queue(ctx, "UPDATE connection_challenges SET ended_at = $2 WHERE id = $1", ch.id, tx.Now.UnixMicro()); err != nil {
			return fmt.Errorf("end challenge: %w", err)
		}
		method := ByMail
		if ch.Way == channel.ProveByText {
			method = ByText
		}
		now, err := s.proveByID(ctx, tx, id, evidence{method: method})
		if errors.Is(err, errContested) {
			refusal = contestedProblem(err)
			return nil
		}
		c = now
		return err
	})
	if err == nil {
		err = refusal
	}
	return c, err
}

// ChallengeResult is the result of a returned challenge.
type ChallengeResult struct {
	Outcome      string `json:"outcome"` // proven; or recognized, without a proof
	ConnectionID string `json:"connection_id,omitempty"`
}

// ApplyReturnedTokenTx applies a challenge token received at an address, in the caller's
// transaction. connectionID is the connection that the message reaches, or "". A mail proves
// the address only if that is the connection of the challenge. known is false if no challenge
// has the token: the message is then an ordinary one. It is idempotent.
func (s *Service) ApplyReturnedTokenTx(ctx context.Context, tx *db.Tx, ticketChannel, address, token, connectionID string) (r ChallengeResult, known bool, err error) {
	r.Outcome = "recognized"
	if token == channel.TextChallenge {
		// The answer must not depend on the code, which could otherwise be guessed without
		// limit.
		var n int
		err := tx.QueryRow(ctx, textChallenges, ticketChannel, address, tx.Now.UnixMicro()).Scan(&n)
		return r, n > 0, err
	}
	var id, owner string
	var way channel.ProofWay
	var ended, expires time.Time
	err = tx.QueryRow(ctx, "SELECT id, connection_id, way, ended_at, expires_at FROM connection_challenges WHERE token = $1 FOR UPDATE", digest(token)).
		Scan(&id, &owner, &way, db.IntoTime(&ended), db.IntoTime(&expires))
	if errors.Is(err, db.ErrNoRows) {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("find challenge: %w", err)
	}
	// A topic proves its publisher, whichever connection received the message; a mail only
	// proves where mail to the address is delivered.
	if !ended.IsZero() || !expires.After(tx.Now) || way == channel.ProveByMail && owner != connectionID {
		return r, true, nil
	}
	var claimed string
	err = tx.QueryRow(ctx, "SELECT address FROM connections WHERE id = $1", owner).Scan(&claimed)
	if errors.Is(err, db.ErrNoRows) || err == nil && way == channel.ProveByTopic && claimed != address {
		return r, true, nil
	}
	if err != nil {
		return r, true, fmt.Errorf("find connection: %w", err)
	}
	if err := tx.Queue(ctx, "UPDATE connection_challenges SET ended_at = $2 WHERE id = $1", id, tx.Now.UnixMicro()); err != nil {
		return r, true, fmt.Errorf("end challenge: %w", err)
	}
	method := ByMail
	if way == channel.ProveByTopic {
		method = ByTopic
	}
	if _, err := s.proveByID(ctx, tx, owner, evidence{method: method}); errors.Is(err, errContested) {
		return r, true, nil
	} else if err != nil {
		return r, true, err
	}
	return ChallengeResult{"proven", owner}, true, nil
}

// IsChallenge reports whether a token, or a text message, belongs to a challenge of an address.
func (s *Service) IsChallenge(ctx context.Context, ticketChannel, address, token string) (bool, error) {
	query, args := "SELECT count(*) FROM connection_challenges WHERE token = $1", []any{digest(token)}
	if token == channel.TextChallenge {
		query, args = textChallenges, []any{ticketChannel, address, s.db.Now().UnixMicro()}
	}
	var n int
	err := s.db.QueryRow(ctx, query, args...).Scan(&n)
	return n > 0, err
}

// textChallenges counts the pending text messages to a number.
const textChallenges = "SELECT count(*) FROM connection_challenges WHERE medium = $1 AND address = $2 AND way = 'text' AND expires_at > $3"

// PurgeProofs deletes expired challenges and limits.
func (s *Service) PurgeProofs(ctx context.Context) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Queue(ctx, "DELETE FROM connection_challenges WHERE expires_at < $1", tx.Now.Add(-challengeRetention).UnixMicro()); err != nil {
			return fmt.Errorf("delete challenges: %w", err)
		}
		_, err := tx.Exec(ctx, "DELETE FROM proof_limits WHERE ends_at < $1", tx.Now.UnixMicro())
		return err
	})
}

// challengeRetention is how long an expired challenge is still recognized: mail servers retry
// for five days.
const challengeRetention = 7 * 24 * time.Hour
