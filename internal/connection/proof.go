package connection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Proof is the evidence that the organization owns the connection's address. While it is
// pending, the connection receives nothing by the deployment's secrets and sends nothing by the
// deployment's accounts.
type Proof struct {
	State  State     `json:"state"`
	Method Method    `json:"method,omitempty"` // empty while pending
	At     time.Time `json:"at,omitzero"`      // time of the proof
}

// State is the state of a proof.
type State string

// The states.
const (
	Pending State = "pending"
	Proven  State = "proven"
)

// Method is how an address was proven.
type Method string

// The methods.
const (
	ByOperator   Method = "operator"      // connected or confirmed by the operator
	ByAllowList  Method = "allowed"       // on the operator's allow list
	ByDNS        Method = "dns"           // TXT record of the domain
	ByMail       Method = "mail"          // returned message, or its code
	ByText       Method = "text"          // code in a text message
	ByProvider   Method = "provider"      // the provider names the address as owner of the connection's token
	ByTopic      Method = "topic"         // message published on the topic
	BeforeProofs Method = "before_proofs" // connected before proofs existed
)

// rank orders methods by strength. A stronger proof takes the address from a weaker one.
func (m Method) rank() int {
	switch m {
	case ByOperator, ByAllowList:
		return 3
	case ByDNS: // the owner of the domain controls its mailboxes
		return 2
	case ByMail, ByText, ByProvider, ByTopic:
		return 1
	}
	return 0
}

// Capability is an ability that requires a proven address.
type Capability string

// The uses.
const (
	ToReceive Capability = "receive" // requests verified by the deployment's secret
	ToSend    Capability = "send"    // by the deployment's accounts
)

// Proven reports whether the address is proven.
func (c *Connection) Proven() bool { return c.Proof.State == Proven }

// Receives reports whether a verified request reaches the connection. own means that the
// connection's own secret verified it, and not the deployment's.
func (c *Connection) Receives(own bool) bool { return own && !c.sharedKey || c.Proven() }

// Proofs configures proofs. A nil dependency disables the ways that need it.
type Proofs struct {
	Mailer mail.Enqueuer // sends challenges
	// Text sends a text message by the deployment's account. A problem concerns the number and
	// is shown to the member; other errors are only logged.
	Text func(ctx context.Context, number, text string) error
	// LookupTXT returns the TXT records of a name without a final dot, or a [net.DNSError] with
	// IsNotFound.
	LookupTXT func(ctx context.Context, name string) ([]string, error)
	HTTP      http.RoundTripper // calls providers' APIs at the operator's addresses
	Allowed   []Allowed
	// Slug returns an organization's slug, for Allowed.
	Slug func(ctx context.Context, q db.Querier, organizationID string) (string, error)
	// Shared are the channels with a deployment secret.
	Shared map[string]bool
	// MailStays means that the deployment's mailer only stores mail, so that sending needs no
	// proof.
	MailStays bool
	BaseURL   string // public address, without a trailing slash
	Logger    *slog.Logger
}

// UseProofs must be called before the service is used.
func (s *Service) UseProofs(p Proofs) { s.proofs = p }

// Needs returns the uses that wait for the proof of a connection. A connection without any
// dependency on the deployment needs none.
func (s *Service) Needs(c *Connection) []Capability {
	var uses []Capability
	if c.Proven() {
		return uses
	}
	if c.sharedKey || s.proofs.Shared[c.Channel] {
		uses = append(uses, ToReceive)
	}
	if s.SendRefusal(c) != nil {
		uses = append(uses, ToSend)
	}
	return uses
}

// SendRefusal returns the problem that an unproven connection cannot send, or nil. Sending by
// the connection's own account needs no proof.
func (s *Service) SendRefusal(c *Connection) error {
	mailer, ok := s.adapters[c.Channel].(channel.OwnAccountSender)
	if c.Proven() || !ok || s.proofs.MailStays || mailer.UsesOwnAccount(c.Credentials()) {
		return nil
	}
	return problem.New(problem.Precondition,
		"%s is not proven yet, so nothing can be sent from it: an admin can prove it under Settings, Channels", c.Address)
}

// evidence is a proof to be recorded.
type evidence struct {
	method  Method
	records []string // ByDNS only: all records of the domain
	yields  bool     // loses against any existing proof
}

// errContested means that another organization has proven the address at least as strongly. It
// is shown only with evidence.
var errContested = errors.New("another organization has proven the address")

// contestedProblem converts errContested to a problem.
func contestedProblem(err error) error {
	if !errors.Is(err, errContested) {
		return err
	}
	return problem.New(problem.Precondition,
		"another organization has already proven this address: the operator of this server must decide").Because(err)
}

// prove records the proof of c and revokes a weaker one of another connection. It updates c.
// The caller must hold no locks on connections, and notifies observers. Errors: NotFound,
// [errContested].
func (s *Service) prove(ctx context.Context, tx *db.Tx, c *Connection, e evidence) error {
	ticketChannel := s.adapters[c.Channel].Info().TicketChannel
	if err := tx.Lock(ctx, "connection/"+ticketChannel+"/"+c.Address); err != nil {
		return err
	}
	rows, err := db.All(ctx, tx, s.scan, "SELECT "+columns+` FROM connections
		WHERE medium = $1 AND address = $2 AND (proof = 'proven' OR id = $3) ORDER BY id FOR UPDATE`, ticketChannel, c.Address, c.ID)
	if err != nil {
		return fmt.Errorf("find connections of the address: %w", err)
	}
	var now, holder *Connection
	for i := range rows {
		if rows[i].ID == c.ID {
			now = &rows[i]
		} else {
			holder = &rows[i]
		}
	}
	if now == nil {
		return errNotFound()
	}
	*c = *now
	if c.Proven() && c.Proof.Method.rank() > e.method.rank() {
		return nil
	}
	if holder != nil {
		if !s.overrides(holder, e) {
			return errContested
		}
		if err := s.displace(ctx, tx, holder); err != nil {
			return err
		}
	}
	c.Proof = Proof{Proven, e.method, tx.Now}
	if c.Notice != nil && c.Notice.Text == displacedText {
		c.Notice, c.noticedAt = nil, tx.Now
	}
	if err := tx.Queue(ctx, "UPDATE connection_challenges SET ended_at = $2 WHERE connection_id = $1 AND ended_at IS NULL", c.ID, tx.Now.UnixMicro()); err != nil {
		return fmt.Errorf("end challenges: %w", err)
	}
	if err := s.update(ctx, tx, c); err != nil {
		return err
	}
	return s.recordProof(ctx, tx, c, AuditProven)
}

// overrides reports whether evidence revokes the holder's proof. Between two DNS proofs of one
// domain, the newer wins once the older record is gone.
func (s *Service) overrides(holder *Connection, e evidence) bool {
	held := holder.Proof.Method
	switch {
	case e.yields:
		return false
	case e.method == ByOperator:
		return true
	case e.method == ByDNS && held == ByDNS:
		return !s.hasRecord(e.records, holder.OrganizationID, holder.Address)
	}
	return e.method.rank() > held.rank()
}

const displacedText = "somebody else has proven that this address is theirs. What comes through the server's own accounts does not reach you any more, " +
	"and nothing is sent in its name; prove it again, or ask the operator of this server"

// displace revokes the proof of a connection and mails its admins.
func (s *Service) displace(ctx context.Context, tx *db.Tx, c *Connection) error {
	c.Proof = Proof{State: Pending}
	c.noticeMailedAt = time.Time{}
	if err := s.notice(ctx, tx, c, &Notice{channel.Noticed, displacedText, tx.Now}); err != nil {
		return err
	}
	if err := s.recordProof(ctx, tx, c, AuditProofLost); err != nil {
		return err
	}
	return s.notifyObservers(ctx, tx, c, false)
}

func (s *Service) recordProof(ctx context.Context, tx *db.Tx, c *Connection, action audit.Action) error {
	var details map[string]any
	if c.Proof.Method != "" {
		details = map[string]any{"method": string(c.Proof.Method)}
	}
	return s.recordTx(ctx, tx, action, c, nil, details)
}

// proveByID is prove by id, and notifies observers.
func (s *Service) proveByID(ctx context.Context, tx *db.Tx, id string, e evidence) (Connection, error) {
	c, err := db.One(ctx, tx, s.scan, "SELECT "+columns+" FROM connections WHERE id = $1", id)
	if errors.Is(err, db.ErrNoRows) {
		return c, errNotFound()
	}
	if err != nil {
		return c, fmt.Errorf("find connection: %w", err)
	}
	if _, ok := s.adapters[c.Channel]; !ok {
		return c, problem.New(problem.Precondition, "the channel %s is not part of this program", c.Channel)
	}
	if err := s.prove(ctx, tx, &c, e); err != nil {
		return c, err
	}
	return c, s.notifyObservers(ctx, tx, &c, false)
}

// ProveTx records a proof by the operator, which overrides any other. Error: NotFound.
func (s *Service) ProveTx(ctx context.Context, tx *db.Tx, id string) (Connection, error) {
	return s.proveByID(ctx, tx, id, evidence{method: ByOperator})
}

// RevokeProofTx resets a proof to pending, by the operator. Error: NotFound.
func (s *Service) RevokeProofTx(ctx context.Context, tx *db.Tx, id string) (Connection, error) {
	c, err := db.One(ctx, tx, s.scan, "SELECT "+columns+" FROM connections WHERE id = $1 FOR UPDATE", id)
	if errors.Is(err, db.ErrNoRows) {
		return c, errNotFound()
	}
	if err != nil {
		return c, fmt.Errorf("find connection: %w", err)
	}
	if !c.Proven() {
		return c, nil
	}
	c.Proof = Proof{State: Pending}
	if err := s.save(ctx, tx, &c); err != nil {
		return c, err
	}
	return c, s.recordProof(ctx, tx, &c, AuditProofLost)
}

// proveNew proves a new connection if the operator or the allow list confirms it.
func (s *Service) proveNew(ctx context.Context, tx *db.Tx, c *Connection, byOperator bool) error {
	if byOperator {
		err := s.prove(ctx, tx, c, evidence{method: ByOperator, yields: true})
		if errors.Is(err, errContested) {
			return errConnected(c.Address)
		}
		return err
	}
	allowed, err := s.isAllowed(ctx, tx, c)
	if err != nil || !allowed {
		return err
	}
	if err := s.prove(ctx, tx, c, evidence{method: ByAllowList}); !errors.Is(err, errContested) {
		return err
	}
	return nil // the operator has assigned the address to another organization
}

// Endpoint returns the endpoint path and query of a connection. Until the address is proven, it
// names the connection, so that competing claims do not matter.
func (s *Service) Endpoint(c *Connection) string {
	path := s.Path(c.Channel)
	if path == "" || c.Proven() && !s.adapters[c.Channel].Info().OwnName {
		return path
	}
	return path + "?c=" + c.ID
}

// Counts holds the number of connections by proof.
type Counts struct {
	Proven       int // BeforeProofs included
	Pending      int
	BeforeProofs int // connected before proofs existed
}

// CountProofs counts the connections of all organizations.
func CountProofs(ctx context.Context, q db.Querier) (c Counts, err error) {
	err = q.QueryRow(ctx, `SELECT count(CASE WHEN proof = 'proven' THEN 1 END), count(CASE WHEN proof = 'pending' THEN 1 END),
		count(CASE WHEN proof_method = 'before_proofs' THEN 1 END) FROM connections`).Scan(&c.Proven, &c.Pending, &c.BeforeProofs)
	if err != nil {
		return c, fmt.Errorf("count connections: %w", err)
	}
	return c, nil
}

// Status is the proof as shown to the organization.
type Status struct {
	Proof
	Needed    []Capability       // see [Service.Needs]
	Ways      []channel.ProofWay // available ways to prove the address
	Record    *Record            // for DNS; nil if DNS is not available
	Challenge *Challenge         // pending challenge, or nil
}

// ProofStatus returns the status without the challenge.
func (s *Service) ProofStatus(c *Connection) Status {
	st := Status{Proof: c.Proof, Needed: s.Needs(c), Ways: s.ways(c)}
	if slices.Contains(st.Ways, channel.ProveByDNS) {
		st.Record = s.txtRecord(c.OrganizationID, c.Address)
	}
	return st
}

// FullProofStatus returns the status with the challenge.
func (s *Service) FullProofStatus(ctx context.Context, q db.Querier, c *Connection) (Status, error) {
	st := s.ProofStatus(c)
	var err error
	st.Challenge, err = s.openChallenge(ctx, q, c.ID, s.db.Now(), "")
	return st, err
}

// ways returns the ways available to prove a connection's address in this deployment.
func (s *Service) ways(c *Connection) []channel.ProofWay {
	p, ok := s.adapters[c.Channel].(channel.Provable)
	if !ok {
		return nil
	}
	return slices.DeleteFunc(p.ProofWays(c.Address), func(w channel.ProofWay) bool {
		switch w {
		case channel.ProveByMail:
			return s.proofs.Mailer == nil
		case channel.ProveByText:
			return s.proofs.Text == nil
		case channel.ProveByDNS:
			return s.proofs.LookupTXT == nil
		case channel.ProveByProvider:
			return s.proofs.HTTP == nil
		}
		return false
	})
}
