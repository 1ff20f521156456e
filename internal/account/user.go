package account

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/google/uuid"
)

// Role is a user's role in their organization.
type Role string

// The roles.
const (
	Admin Role = "admin"
	Agent Role = "agent"
)

// Check records an issue unless r is a role.
func (r Role) Check(v *problem.Validation, path string) {
	if r != Admin && r != Agent {
		v.Add(path, "must be admin or agent")
	}
}

// User is a person with an account.
type User struct {
	ID             string
	Email          string // as given
	Name           string
	AvatarURL      string          // empty: none
	OrganizationID string          // empty until sign-up is completed
	Role           Role            // empty until sign-up is completed
	Preferences    json.RawMessage // an object
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// userColumns are the columns of users u that [userFields] scans.
const userColumns = `u.id, u.email, u.name, u.avatar_url, u.organization_id, u.role, u.preferences, u.created_at, u.updated_at`

func userFields(u *User) []any {
	return []any{
		&u.ID, &u.Email, &u.Name, db.IntoText(&u.AvatarURL), db.IntoText(&u.OrganizationID),
		db.IntoText((*string)(&u.Role)), (*[]byte)(&u.Preferences), db.IntoTime(&u.CreatedAt), db.IntoTime(&u.UpdatedAt),
	}
}

func scanUser(row db.Row) (User, error) {
	var u User
	err := row.Scan(userFields(&u)...)
	return u, err
}

// User returns one user, or a [problem.NotFound].
func (s *Service) User(ctx context.Context, id string) (User, error) {
	u, err := db.One(ctx, s.db, scanUser, "SELECT "+userColumns+" FROM users u WHERE u.id = $1", id)
	if errors.Is(err, db.ErrNoRows) {
		return User{}, problem.New(problem.NotFound, "there is no such user")
	}
	return u, err
}

// lockUser returns the signed-in user for a change in tx. The lock leaves rows that refer
// to the user, such as new sessions, free: no key changes.
func lockUser(ctx context.Context, tx *db.Tx, id string) (User, error) {
	u, err := db.One(ctx, tx, scanUser, "SELECT "+userColumns+" FROM users u WHERE u.id = $1 FOR NO KEY UPDATE", id)
	if errors.Is(err, db.ErrNoRows) {
		return User{}, errNotSignedIn() // deleted concurrently
	}
	if err != nil {
		return User{}, fmt.Errorf("lock user: %w", err)
	}
	return u, nil
}

// NewUser describes a user to create.
type NewUser struct {
	Email        string
	Password     string // empty: sign-in by link only
	Name         string // empty: the local part of the address
	Organization string // a slug
	Role         Role
}

// Check implements [problem.Checker].
func (n NewUser) Check(v *problem.Validation) {
	checkEmail(v, "email", n.Email)
	if n.Password != "" {
		checkNewPassword(v, "password", n.Password, passwordOwner{email: n.Email, name: n.Name, organization: n.Organization})
	}
	v.Line("name", strings.TrimSpace(n.Name), 0, 255)
	n.Role.Check(v, "role")
}

// CreateUser creates a user in an organization. An address that has an account is a
// [problem.Conflict], an unknown organization a [problem.NotFound].
func (s *Service) CreateUser(ctx context.Context, n NewUser) (User, error) {
	if err := problem.Check(n); err != nil {
		return User{}, err
	}
	u := User{
		ID:          newID(),
		Email:       strings.TrimSpace(n.Email),
		Name:        strings.TrimSpace(n.Name),
		Role:        n.Role,
		Preferences: json.RawMessage("{}"),
	}
	if u.Name == "" {
		u.Name, _, _ = strings.Cut(u.Email, "@")
	}
	var hash string
	if n.Password != "" {
		var err error
		if hash, err = s.hash(ctx, "", n.Password); err != nil {
			return User{}, err
		}
	}
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		o, err := organizationBySlug(ctx, tx, n.Organization)
		if err != nil {
			return err
		}
		u.OrganizationID, u.CreatedAt, u.UpdatedAt = o.ID, tx.Now, tx.Now
		inserted, err := insertUser(ctx, tx, u, hash)
		if err == nil && !inserted {
			err = problem.New(problem.Conflict, "there is a user with this e-mail address already")
		}
		if err != nil {
			return err
		}
		return s.audit.RecordTx(ctx, tx, audit.Entry{
			OrganizationID: o.ID, Action: AuditUserCreated, Target: userTarget(u), Details: map[string]any{"role": u.Role, "password": hash != ""},
		})
	})
	if err != nil {
		return User{}, err
	}
	return u, nil
}

// insertUser stores u and reports whether its e-mail address was free.
func insertUser(ctx context.Context, tx *db.Tx, u User, hash string) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO users
			(id, email, email_key, name, avatar_url, password_hash, preferences, organization_id, role, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT (email_key) DO NOTHING`,
		u.ID, u.Email, emailKey(u.Email), u.Name, db.Text(u.AvatarURL), db.Text(hash), string(u.Preferences),
		db.Text(u.OrganizationID), db.Text(string(u.Role)), u.CreatedAt.UnixMicro(), u.UpdatedAt.UnixMicro())
	if err != nil {
		return false, fmt.Errorf("insert user: %w", err)
	}
	return n == 1, nil
}

// Agent returns a user of an organization; false if there is none.
func (s *Service) Agent(ctx context.Context, q db.Querier, organizationID, userID string) (event.Person, bool, error) {
	return optionalPerson(db.One(ctx, q, scanPerson,
		"SELECT id, name, email FROM users WHERE id = $1 AND organization_id = $2", userID, organizationID))
}

// AgentByEmail returns the user of an organization with an e-mail address; false if there
// is none.
func (s *Service) AgentByEmail(ctx context.Context, q db.Querier, organizationID, email string) (event.Person, bool, error) {
	return optionalPerson(db.One(ctx, q, scanPerson,
		"SELECT id, name, email FROM users WHERE email_key = $1 AND organization_id = $2", emailKey(email), organizationID))
}

// Agents returns the users of an organization, longest membership first.
func (s *Service) Agents(ctx context.Context, q db.Querier, organizationID string) ([]event.Person, error) {
	return db.All(ctx, q, scanPerson, "SELECT id, name, email FROM users WHERE organization_id = $1 ORDER BY id", organizationID)
}

// Preferences returns the preferences of users of an organization, by id. Other users are left
// out.
func (s *Service) Preferences(ctx context.Context, q db.Querier, organizationID string, userIDs []string) (map[string]json.RawMessage, error) {
	type stored struct {
		id          string
		preferences []byte
	}
	list, err := db.All(ctx, q, func(row db.Row) (u stored, err error) {
		err = row.Scan(&u.id, &u.preferences)
		return u, err
	}, "SELECT id, preferences FROM users WHERE id = ANY($1) AND organization_id = $2", userIDs, organizationID)
	if err != nil {
		return nil, err
	}
	found := make(map[string]json.RawMessage, len(list))
	for _, u := range list {
		found[u.id] = u.preferences
	}
	return found, nil
}

func scanPerson(row db.Row) (event.Person, error) {
	var p event.Person
	err := row.Scan(&p.ID, &p.Name, &p.Email)
	return p, err
}

func optionalPerson(p event.Person, err error) (event.Person, bool, error) {
	if errors.Is(err, db.ErrNoRows) {
		return event.Person{}, false, nil
	}
	return p, err == nil, err
}

// AdminEmails returns the e-mail addresses of an organization's admins, longest
// membership first.
func (s *Service) AdminEmails(ctx context.Context, q db.Querier, organizationID string) ([]string, error) {
	return db.All(ctx, q, func(row db.Row) (string, error) {
		var email string
		err := row.Scan(&email)
		return email, err
	}, "SELECT email FROM users WHERE organization_id = $1 AND role = $2 ORDER BY id", organizationID, string(Admin))
}

// newID returns a UUIDv7.
func newID() string { return uuid.Must(uuid.NewV7()).String() }
