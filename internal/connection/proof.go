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
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Proof says whether an organization has proven that the address of a connection is its
// own. Until then nothing that rests on the deployment reaches the connection, and
// nothing leaves by the deployment's accounts.
type Proof struct {
	State  State     `json:"state"`
	Method Method    `json:"method,omitempty"` // of what is proven
	At     time.Time `json:"at,omitzero"`      // when it was proven
}

// State is how far a proof is.
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
	ByOperator   Method = "operator"      // the operator connected it, or said so
	ByAllowList  Method = "allowed"       // the operator's configuration says so
	ByDNS        Method = "dns"           // a record of the domain
	ByMail       Method = "mail"          // a message that came back, or its code
	ByText       Method = "text"          // the code of a text
	ByProvider   Method = "provider"      // the provider named the address for the connection's token
	ByTopic      Method = "topic"         // a message published on the topic
	BeforeProofs Method = "before_proofs" // connected before there were proofs
)

// rank orders methods by what they show. A proof of a higher rank takes the address
// from one of a lower rank.
func (m Method) rank() int {
	switch m {
	case ByOperator, ByAllowList:
		return 3
	case ByDNS: // whoever has the domain decides about its mailboxes
		return 2
	case ByMail, ByText, ByProvider, ByTopic:
		return 1
	}
	return 0
}

// Use is something that a connection can do only once its address is proven.
type Use string

// The uses.
const (
	ToReceive Use = "receive" // what the deployment's secret vouches for
	ToSend    Use = "send"    // by the deployment's accounts
)

// Proven reports whether the address is proven to be the organization's.
func (c *Connection) Proven() bool { return c.Proof.State == Proven }

// Receives reports whether a request reaches the connection. own says that a secret of
// the connection's own vouches for it, and otherwise the deployment's does.
func (c *Connection) Receives(own bool) bool { return own && !c.sharedKey || c.Proven() }

// Proofs is what proofs need from outside. Without a member, what needs it is not
// offered.
type Proofs struct {
	Mailer Mailer // sends challenges
	// Text sends a text by the deployment's account. A problem is about the number, and
	// shown to whoever asked; every other error is for the operator's log alone.
	Text func(ctx context.Context, number, text string) error
	// LookupTXT returns the TXT records of a name, which has no final dot; a
	// [net.DNSError] with IsNotFound where there are none.
	LookupTXT func(ctx context.Context, name string) ([]string, error)
	HTTP      http.RoundTripper // calls the providers' APIs at the operator's addresses
	Allowed   []Allowed
	// Slug returns an organization's, for Allowed.
	Slug func(ctx context.Context, q db.Querier, organizationID string) (string, error)
	// Shared are the channels for whose connections a secret of the deployment vouches.
	Shared map[string]bool
	// MailStays says that the deployment's mailer only keeps mail: sending needs no
	// proof.
	MailStays bool
	BaseURL   string // public address, without a trailing slash
	Logger    *slog.Logger
}

// UseProofs must be called before the service is used.
func (s *Service) UseProofs(p Proofs) { s.proofs = p }

// Needs returns what a connection cannot do before its address is proven; none for one
// that has proven it, or that rests on nothing of the deployment's.
func (s *Service) Needs(c *Connection) []Use {
	var uses []Use
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

// SendRefusal returns why nothing can leave by a connection yet, as a problem for
// whoever wrote it; nil if its proof is no obstacle. What leaves by an account of the
// connection's own needs no proof.
func (s *Service) SendRefusal(c *Connection) error {
	mailer, ok := s.adapters[c.Channel].(channel.OwnAccountSender)
	if c.Proven() || !ok || s.proofs.MailStays || mailer.UsesOwnAccount(c.Credentials()) {
		return nil
	}
	return problem.New(problem.Precondition,
		"%s is not proven to be yours yet, so nothing is sent in its name: an admin can prove it under Settings, Channels", c.Address)
}

// evidence is what shows that an address is an organization's.
type evidence struct {
	method  Method
	records []string // of DNS: all that the domain has
	yields  bool     // to whoever has proven the address, whatever their proof
}

// errContested says that another organization has proven the address as well as, or
// better than, the evidence does. Only who has shown evidence gets it.
var errContested = errors.New("another organization has proven the address")

// contestedProblem is errContested for people.
func contestedProblem(err error) error {
	if !errors.Is(err, errContested) {
		return err
	}
	return problem.New(problem.Precondition,
		"you have shown that the address is yours, and so has another organization before: the operator of this server has to decide").Because(err)
}

// prove records that an address is proven to be c's, and takes it from whoever has
// proven it with less. c is as it is then. The caller holds no locks of connections,
// and calls the watchers. Errors: NotFound, [errContested].
func (s *Service) prove(ctx context.Context, tx *db.Tx, c *Connection, e evidence) error {
	medium := s.adapters[c.Channel].Info().Medium
	if err := tx.Lock(ctx, "connection/"+medium+"/"+c.Address); err != nil {
		return err
	}
	rows, err := db.All(ctx, tx, s.scan, "SELECT "+columns+` FROM connections
		WHERE medium = $1 AND address = $2 AND (proof = 'proven' OR id = $3) ORDER BY id FOR UPDATE`, medium, c.Address, c.ID)
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
	if _, err := tx.Exec(ctx, "UPDATE connection_challenges SET ended_at = $2 WHERE connection_id = $1 AND ended_at IS NULL", c.ID, tx.Now.UnixMicro()); err != nil {
		return fmt.Errorf("end challenges: %w", err)
	}
	if err := s.update(ctx, tx, c); err != nil {
		return err
	}
	return s.recordProof(ctx, tx, c, AuditProven)
}

// overrides reports whether evidence takes the address from the connection that has
// proven it. Of two records of one domain the newer counts once the older is gone.
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

// displace takes the proof of a connection, and notifies its admins.
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

// proveByID is prove for a connection in a transaction of its own, with what belongs to
// it.
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

// ProveTx records the operator's word that a connection's address is its
// organization's. It takes the address from any other. Error: NotFound.
func (s *Service) ProveTx(ctx context.Context, tx *db.Tx, id string) (Connection, error) {
	return s.proveByID(ctx, tx, id, evidence{method: ByOperator})
}

// RevokeProofTx makes a connection's proof pending, on the operator's word. Error:
// NotFound.
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

// proveNew proves a connection that was just made, where the operator vouches for it.
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
	return nil // the operator said otherwise on the command line
}

// Endpoint is where below the public address the provider of a connection posts. Until
// the address is proven it names the connection, which is then reached whoever else
// claims the address.
func (s *Service) Endpoint(c *Connection) string {
	if path := s.Path(c.Channel); c.Proven() || path == "" {
		return path
	}
	return s.Path(c.Channel) + "?c=" + c.ID
}

// Counts are numbers of connections by their proofs.
type Counts struct {
	Proven       int // BeforeProofs included
	Pending      int
	BeforeProofs int // connected before there were proofs
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

// Status is all that an organization sees of a proof.
type Status struct {
	Proof
	Needed    []Use              // see [Service.Needs]
	Ways      []channel.ProofWay // in which the address can be proven here
	Record    *Record            // of DNS; nil where that is no way
	Challenge *Challenge         // that waits for its answer; nil: none
}

// ProofStatus returns the status of a connection's proof without its challenge.
func (s *Service) ProofStatus(c *Connection) Status {
	st := Status{Proof: c.Proof, Needed: s.Needs(c), Ways: s.ways(c)}
	if slices.Contains(st.Ways, channel.ProveByDNS) {
		st.Record = s.txtRecord(c.OrganizationID, c.Address)
	}
	return st
}

// FullProofStatus returns the status of a connection's proof.
func (s *Service) FullProofStatus(ctx context.Context, q db.Querier, c *Connection) (Status, error) {
	st := s.ProofStatus(c)
	var err error
	st.Challenge, err = s.openChallenge(ctx, q, c.ID, time.Now(), "")
	return st, err
}

// ways are those in which a connection's address can be proven, as far as this
// deployment can take them.
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
