package fleet

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// CustomerStatus says whether a customer may ride.
type CustomerStatus string

// Statuses of a customer.
const (
	CustomerActive     CustomerStatus = "active"
	CustomerBlocked    CustomerStatus = "blocked"
	CustomerAnonymised CustomerStatus = "anonymised" // final
)

// Customer is a person registered to ride (fleet-api.md 1.3).
type Customer struct {
	RecordHeader
	Name             NullString     `json:"name"`
	Email            NullString     `json:"email"`
	Phone            NullString     `json:"phone"`    // E.164
	Language         NullString     `json:"language"` // BCP 47
	Status           CustomerStatus `json:"status"`
	BlockReason      NullString     `json:"block_reason"`
	BirthDate        NullString     `json:"birth_date"`
	LicenseStatus    string         `json:"driver_license_status"`
	MarketingConsent bool           `json:"marketing_consent"`
	DefaultCurrency  string         `json:"default_currency"`
	RideCount        int64          `json:"ride_count"`   // completed rides
	LastRideAt       rfc3339.Time   `json:"last_ride_at"` // start of the latest ride
	OpenRideID       NullString     `json:"open_ride_id"`
	Timestamps

	revision int64
}

// NewCustomer has the fields of a customer to create.
type NewCustomer struct {
	SubaccountID     string            `json:"subaccount_id"`
	ExternalID       NullString        `json:"external_id"`
	Name             NullString        `json:"name"`
	Email            NullString        `json:"email"`
	Phone            NullString        `json:"phone"`
	Language         NullString        `json:"language"`
	Status           CustomerStatus    `json:"status"` // empty: active
	BlockReason      NullString        `json:"block_reason"`
	BirthDate        NullString        `json:"birth_date"`
	LicenseStatus    string            `json:"driver_license_status"` // empty: none
	MarketingConsent bool              `json:"marketing_consent"`
	Metadata         map[string]string `json:"metadata"`
}

// CustomerChange has the fields that a PUT sets. Absent fields remain.
type CustomerChange struct {
	ExternalID       optional.Value[NullString]        `json:"external_id"`
	Name             optional.Value[NullString]        `json:"name"`
	Email            optional.Value[NullString]        `json:"email"`
	Phone            optional.Value[NullString]        `json:"phone"`
	Language         optional.Value[NullString]        `json:"language"`
	Status           optional.Value[CustomerStatus]    `json:"status"`
	BlockReason      optional.Value[NullString]        `json:"block_reason"`
	BirthDate        optional.Value[NullString]        `json:"birth_date"`
	LicenseStatus    optional.Value[string]            `json:"driver_license_status"`
	MarketingConsent optional.Value[bool]              `json:"marketing_consent"`
	Metadata         optional.Value[map[string]string] `json:"metadata"` // the merged result
}

// Record returns the customer's stored form.
func (c *Customer) Record() (Record, error) {
	text, err := encode(c)
	return Record{ID: c.ID, SubaccountID: c.SubaccountID, Revision: c.revision, JSON: text, Distance: -1}, err
}

// Customer returns a customer. Error: NotFound.
func (s *Service) Customer(ctx context.Context, q db.Querier, organizationID, id string) (Customer, error) {
	return readCustomer(ctx, q, organizationID, id, "")
}

// LockCustomerTx is Customer with a lock, for an update in the same transaction. It
// first ends a ride of the customer that is due.
func (s *Service) LockCustomerTx(ctx context.Context, tx *db.Tx, organizationID, id string) (Customer, error) {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return Customer{}, err
	}
	if err := s.expireDueRides(ctx, tx, a, "", id); err != nil {
		return Customer{}, err
	}
	return readCustomer(ctx, tx, organizationID, id, " FOR UPDATE")
}

// readCustomer reads a customer. lock is empty or " FOR UPDATE".
func readCustomer(ctx context.Context, q db.Querier, organizationID, id, lock string) (Customer, error) {
	c, err := db.One(ctx, q, scanCustomer, "SELECT revision, doc FROM customers WHERE organization_id = $1 AND id = $2"+lock, organizationID, id)
	return c, wrapReadError(err, "customer")
}

func scanCustomer(row db.Row) (c Customer, err error) {
	return c, row.Scan(&c.revision, db.IntoJSON(&c))
}

// CreateCustomerTx creates a customer in the caller's transaction. Errors: Invalid;
// Conflict already_exists with the member external_id.
func (s *Service) CreateCustomerTx(ctx context.Context, tx *db.Tx, organizationID string, n NewCustomer) (Customer, error) {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return Customer{}, err
	}
	var v problem.Validation
	sub, err := s.subaccountForNew(ctx, tx, &v, organizationID, n.SubaccountID)
	if err != nil {
		return Customer{}, err
	}
	c := Customer{
		Name: n.Name, Email: n.Email, Phone: n.Phone, Language: n.Language, Status: n.Status, BlockReason: n.BlockReason,
		BirthDate: n.BirthDate, LicenseStatus: n.LicenseStatus, MarketingConsent: n.MarketingConsent, revision: 1,
	}
	c.RecordHeader, c.Timestamps = s.newRecord(customerPrefix, "customer", n.SubaccountID, a.now)
	c.ExternalID, c.Metadata = n.ExternalID, metadataOf(n.Metadata)
	if sub != nil {
		c.DefaultCurrency = sub.Currency
	}
	if c.Status == "" {
		c.Status = CustomerActive
	}
	if c.LicenseStatus == "" {
		c.LicenseStatus = "none"
	}
	c.check(&v, a)
	if err := v.Err(); err != nil {
		return Customer{}, err
	}
	doc, err := encode(c)
	if err != nil {
		return Customer{}, err
	}
	made, err := tx.Exec(ctx, `INSERT INTO customers (organization_id, id, subaccount_id, revision, external_id, status, email, phone, name, last_ride_at, updated_at, doc)
		VALUES ($1, $2, $3, 1, $4, $5, $6, $7, $8, NULL, $9, $10) ON CONFLICT DO NOTHING`,
		organizationID, c.ID, c.SubaccountID, db.Text(string(c.ExternalID)), string(c.Status), db.Text(strings.ToLower(string(c.Email))), db.Text(string(c.Phone)),
		db.Text(string(c.Name)), c.UpdatedAt.Std().UnixMicro(), string(doc))
	if err != nil {
		return Customer{}, fmt.Errorf("insert a customer: %w", err)
	}
	if made == 0 {
		return Customer{}, alreadyExistsError("external_id")
	}
	s.notify(tx, organizationID, CustomerKind, c.ID)
	return c, s.emitCustomer(ctx, tx, a, nil, &c)
}

// UpdateCustomerTx updates a customer that the caller's transaction has locked. An
// update without a difference creates no revision. Unblocking clears the reason.
// Errors: Invalid; Conflict already_exists with the member external_id;
// invalid_transition for an anonymised customer.
func (s *Service) UpdateCustomerTx(ctx context.Context, tx *db.Tx, organizationID string, c Customer, change CustomerChange) (Customer, error) {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return Customer{}, err
	}
	before, err := encode(c)
	if err != nil {
		return Customer{}, err
	}
	former := c
	change.ExternalID.Into(&c.ExternalID)
	change.Name.Into(&c.Name)
	change.Email.Into(&c.Email)
	change.Phone.Into(&c.Phone)
	change.Language.Into(&c.Language)
	change.Status.Into(&c.Status)
	change.BlockReason.Into(&c.BlockReason)
	change.BirthDate.Into(&c.BirthDate)
	change.LicenseStatus.Into(&c.LicenseStatus)
	change.MarketingConsent.Into(&c.MarketingConsent)
	if change.Metadata.Set {
		c.Metadata = metadataOf(change.Metadata.Value)
	}
	if former.Status == CustomerBlocked && c.Status == CustomerActive && c.BlockReason == former.BlockReason {
		c.BlockReason = ""
	}
	if former.Status == CustomerAnonymised {
		if doc, err := encode(c); err != nil || bytes.Equal(doc, before) {
			return former, err
		}
		e := conflict("invalid_transition", "an anonymised customer cannot be changed")
		e.Details = map[string]any{"from": former.Status, "to": c.Status, "allowed": []CustomerStatus{}}
		return Customer{}, e
	}
	var v problem.Validation
	c.check(&v, a)
	if err := v.Err(); err != nil {
		return Customer{}, err
	}
	if doc, err := encode(c); err != nil || bytes.Equal(doc, before) {
		return former, err
	}
	if c.ExternalID != former.ExternalID {
		err := checkUnique(ctx, tx, "external_id", "customers WHERE organization_id = $1 AND subaccount_id = $2 AND external_id = $3 AND id <> $4",
			organizationID, c.SubaccountID, string(c.ExternalID), c.ID)
		if err != nil {
			return Customer{}, err
		}
	}
	if err := s.recordCustomer(ctx, tx, organizationID, c.ID, former.Status, c.Status); err != nil {
		return Customer{}, err
	}
	return s.saveCustomer(ctx, tx, a, former, c)
}

// saveCustomer writes a changed customer as a new revision.
func (s *Service) saveCustomer(ctx context.Context, tx *db.Tx, a orgContext, former, c Customer) (Customer, error) {
	c.UpdatedAt = nextUpdatedAt(c.UpdatedAt, a.now)
	c.revision++
	doc, err := encode(c)
	if err != nil {
		return Customer{}, err
	}
	_, err = tx.Exec(ctx, `UPDATE customers SET revision = $3, external_id = $4, status = $5, email = $6, phone = $7, name = $8, updated_at = $9, doc = $10
		WHERE organization_id = $1 AND id = $2`,
		a.id, c.ID, c.revision, db.Text(string(c.ExternalID)), string(c.Status), db.Text(strings.ToLower(string(c.Email))), db.Text(string(c.Phone)),
		db.Text(string(c.Name)), c.UpdatedAt.Std().UnixMicro(), string(doc))
	if db.IsUnique(err) { // by a concurrent transaction
		return Customer{}, alreadyExistsError("external_id")
	}
	if err != nil {
		return Customer{}, fmt.Errorf("update a customer: %w", err)
	}
	s.notify(tx, a.id, CustomerKind, c.ID)
	return c, s.emitCustomer(ctx, tx, a, &former, &c)
}

// AnonymiseCustomerTx permanently clears a customer's personal fields, external_id
// and metadata. Rides remain. It is idempotent. Errors: NotFound;
// customer_has_open_ride.
func (s *Service) AnonymiseCustomerTx(ctx context.Context, tx *db.Tx, organizationID, id string) (Customer, error) {
	a, err := s.orgContext(ctx, tx, tx.Now, organizationID)
	if err != nil {
		return Customer{}, err
	}
	c, err := s.LockCustomerTx(ctx, tx, organizationID, id)
	if err != nil || c.Status == CustomerAnonymised {
		return c, err
	}
	if c.OpenRideID != "" {
		return Customer{}, conflict("customer_has_open_ride", "the customer has an open ride, %s", c.OpenRideID)
	}
	former := c
	c.ExternalID, c.Name, c.Email, c.Phone, c.Language, c.BlockReason, c.BirthDate = "", "", "", "", "", "", ""
	if err := s.recordCustomer(ctx, tx, organizationID, c.ID, c.Status, CustomerAnonymised); err != nil {
		return Customer{}, err
	}
	c.Status, c.LicenseStatus, c.MarketingConsent, c.Metadata = CustomerAnonymised, "none", false, map[string]string{}
	return s.saveCustomer(ctx, tx, a, former, c)
}

// check adds issues of a customer that is not anonymised, and normalizes phone and
// language.
func (c *Customer) check(v *problem.Validation, a orgContext) {
	v.Line("name", string(c.Name), 0, maxName)
	if c.Email != "" {
		checkEmail(v, "email", string(c.Email))
	}
	c.Phone = normalPhone(v, "phone", c.Phone)
	if c.Language != "" {
		c.Language = NullString(normalLanguage(v, "language", string(c.Language)))
	}
	checkOneOf(v, "status", c.Status, CustomerActive, CustomerBlocked)
	v.Length("block_reason", string(c.BlockReason), 0, maxValue)
	if c.BlockReason != "" && c.Status == CustomerActive {
		v.AddCode("conflict", "block_reason", "must not be given unless status is blocked")
	}
	checkBirthDate(v, "birth_date", c.BirthDate, a.now)
	checkOneOf(v, "driver_license_status", c.LicenseStatus, "none", "pending", "verified", "rejected", "expired")
	checkCommon(v, c.ExternalID, c.Metadata)
}
