package deskapi

import (
	"context"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

var customerRecord = &schema.Record{Name: "customer", Doc: "A person who contacts the organization.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("customer")},
	{Name: "organization_id", Type: schema.ID()},
	{Name: "name", Type: schema.String(0, 200), Access: schema.Writable, Nullable: true, Example: "Alex Rider"},
	{Name: "emails", Type: schema.Array(schema.String(1, 254), 20), Access: schema.Writable, Doc: "Replies go to the first. An address belongs to one customer.", Example: []string{"alex@example.com"}},
	{Name: "phones", Type: schema.Array(schema.String(1, 50), 20), Access: schema.Writable, Doc: "Any international spelling; answered as E.164.", Example: []string{"+4915112345678"}},
	{Name: "identities", Doc: "Identities on channels that use neither e-mail addresses nor phone numbers.", Type: schema.Array(schema.Nested(identityRecord), 1000)},
	{Name: "undeliverable", Type: schema.Array(schema.Text(), 1000), Doc: "Addresses and numbers of theirs that have failed for good."},
	{Name: "external_id", Type: schema.String(1, 128), Access: schema.Writable, Nullable: true, Doc: "Your own, unique among the organization's customers."},
	{Name: "metadata", Type: schema.Metadata(), Access: schema.Writable},
	{Name: "created_at", Type: schema.Timestamp()},
	{Name: "updated_at", Type: schema.Timestamp()},
}}

var identityRecord = &schema.Record{Name: "customer.identity", Members: []schema.Member{
	{Name: "channel", Type: schema.Text(), Example: "social-messenger"},
	{Name: "external_id", Type: schema.Text(), Example: "1029384756"},
}}

var customerMergeRecord = &schema.Record{Name: "customer_merge", Members: []schema.Member{
	{Name: "into", Type: schema.ID(), Access: schema.Required, Doc: "The surviving customer."},
}}

// wholeCustomerRecord is the complete customer, for the expansion of a ticket's customer.
var wholeCustomerRecord = func() *schema.Record {
	r := &schema.Record{Name: "ticket_customer", Doc: "A ticket's customer; with expand[]=customer in full."}
	for _, m := range customerRecord.Members {
		m.Sometimes = m.Name != "id" && m.Name != "name"
		r.Members = append(r.Members, m)
	}
	r.Members = append(r.Members,
		schema.Member{Name: "email", Type: schema.Text(), Nullable: true, Doc: "The first of emails."},
		schema.Member{Name: "phone", Type: schema.Text(), Nullable: true, Doc: "The first of phones."},
	)
	return r
}()

type customer struct {
	ID             string            `json:"id"`
	Object         string            `json:"object"`
	OrganizationID string            `json:"organization_id"`
	Name           *string           `json:"name"`
	Emails         []string          `json:"emails"`
	Phones         []string          `json:"phones"`
	Identities     []desk.Identity   `json:"identities"`
	Undeliverable  []string          `json:"undeliverable"`
	ExternalID     *string           `json:"external_id"`
	Metadata       map[string]string `json:"metadata"`
	CreatedAt      rfc3339.Time      `json:"created_at"`
	UpdatedAt      rfc3339.Time      `json:"updated_at"`
}

type wholeCustomer struct {
	customer
	Email *string `json:"email"`
	Phone *string `json:"phone"`
}

type customerBody struct {
	Name       optional.Value[string]            `json:"name"`
	Emails     optional.Value[[]string]          `json:"emails"`
	Phones     optional.Value[[]string]          `json:"phones"`
	ExternalID optional.Value[string]            `json:"external_id"`
	Metadata   optional.Value[map[string]string] `json:"metadata"`
}

func (a *API) customerRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/customers", ID: "listCustomers", Tag: "Customers", Summary: "List customers",
		Needs: needs("customers", apikey.Read),
		Query: []rest.Param{
			{Name: "q", Kind: rest.StringParam, Max: 200, Doc: "Words, each a part of the name, an address, a number or the external id, without regard to case and accents; phone numbers in any form. Finds at most 500 customers, beside those whose name begins with the text. New customers are found within a second."},
			{Name: "email", Kind: rest.StringsParam, Doc: "Any of the customer's addresses, case-insensitive."},
			{Name: "phone", Kind: rest.StringsParam, Doc: "Any of the customer's numbers, as E.164; the + is written %2B."},
			{Name: "external_id", Kind: rest.StringsParam},
			{Name: "created_at", Kind: rest.TimeRange},
			{Name: "updated_at", Kind: rest.TimeRange},
		},
		Sort:   []string{desk.ByCreatedAt, desk.ByUpdatedAt, desk.ByName},
		Export: true, Output: customerRecord, List: true, Handle: a.listCustomers,
	}, {
		Method: "POST", Path: "/customers", ID: "createCustomer", Tag: "Customers", Summary: "Create a customer",
		Needs: needs("customers", apikey.Create), Input: customerRecord, Output: customerRecord, Codes: []string{"already_exists"}, Handle: a.createCustomer,
	}, {
		Method: "GET", Path: "/customers/{id}", ID: "getCustomer", Tag: "Customers", Summary: "Read a customer",
		Doc:   "The id of a merged customer returns the one that it is merged into.",
		Needs: needs("customers", apikey.Read), Output: customerRecord, Handle: a.getCustomer,
	}, {
		Method: "PUT", Path: "/customers/{id}", ID: "updateCustomer", Tag: "Customers", Summary: "Change a customer",
		Doc:   "Lists of addresses are replaced as a whole. A message from a removed address creates a new customer.",
		Needs: needs("customers", apikey.Update), Input: customerRecord, Output: customerRecord, Codes: []string{"already_exists", "invalid_transition"}, Handle: a.updateCustomer,
	}, {
		Method: "DELETE", Path: "/customers/{id}", ID: "deleteCustomer", Tag: "Customers", Summary: "Delete a customer",
		Doc:   "Removes personal data from the record and everything that identifies the customer, also from the customers merged into it. Tickets stay, with a customer without a name, until they are deleted.",
		Needs: needs("customers", apikey.Delete), Codes: []string{"invalid_transition"}, Handle: a.deleteCustomer,
	}, {
		Method: "POST", Path: "/customers/{id}/merge", ID: "mergeCustomer", Tag: "Customers", Summary: "Merge a customer into another",
		Doc: "Moves the customer's addresses, identities, tickets, messages and orders, and all later ones, to the surviving customer, which is returned. " +
			"Fields that the survivor has stay; empty ones are filled. Until the merge is undone, reading the customer returns the survivor, and changing it is refused.\n\n" +
			"It emits customer.updated of both, with merged_into_id and merged_customer_id, and ticket.updated of each ticket. A customer with more than 1,000 tickets can only be the survivor.",
		Needs: needs("customers", apikey.Update), Input: customerMergeRecord, Output: customerRecord, Status: 200, Codes: []string{"invalid_transition"}, Handle: a.mergeCustomer,
	}, {
		Method: "POST", Path: "/customers/{id}/unmerge", ID: "unmergeCustomer", Tag: "Customers", Summary: "Undo a merge of customers",
		Doc: "Moves back what the customer had, and returns the customer. Tickets that the survivor got since stay there; " +
			"the next message from one of the customer's addresses is the customer's.",
		Needs: needs("customers", apikey.Update), Output: customerRecord, Status: 200, Codes: []string{"invalid_transition"}, Handle: a.unmergeCustomer,
	}}
}

// wireCustomer returns a customer in wire format.
func wireCustomer(c *desk.Customer) *customer {
	w := &customer{
		ID: c.ID, Object: "customer", OrganizationID: c.OrganizationID, Name: orNull(c.Name),
		Emails: c.Emails, Phones: c.Phones, Identities: c.Identities, Undeliverable: c.Undeliverable,
		ExternalID: orNull(c.ExternalID), Metadata: c.Metadata, CreatedAt: rfc3339.Time(c.CreatedAt), UpdatedAt: rfc3339.Time(c.UpdatedAt),
	}
	for _, list := range []*[]string{&w.Emails, &w.Phones, &w.Undeliverable} {
		if *list == nil {
			*list = []string{}
		}
	}
	if w.Identities == nil {
		w.Identities = []desk.Identity{}
	}
	if w.Metadata == nil {
		w.Metadata = map[string]string{}
	}
	return w
}

func wireCustomers(customers []desk.Customer) ([]*customer, error) {
	list := make([]*customer, len(customers))
	for i := range customers {
		list[i] = wireCustomer(&customers[i])
	}
	return list, nil
}

func (a *API) listCustomers(ctx context.Context, r *rest.Request) (rest.Response, error) {
	q := desk.CustomerQuery{
		Text: r.String("q"), Email: r.Strings("email"), Phone: r.Strings("phone"), ExternalID: r.Strings("external_id"),
		CreatedAt: r.Range("created_at"), UpdatedAt: r.Range("updated_at"), Sort: r.Sort(),
	}
	for i, number := range q.Phone {
		// An unescaped + arrives as a space.
		if digits, ok := strings.CutPrefix(number, " "); ok {
			q.Phone[i] = "+" + digits
		}
	}
	if r.Exporting() {
		return rest.Export(inChunks(func(fn func(*desk.Customer) error) error {
			return a.Desk.EachCustomer(ctx, r.Key.OrganizationID, q, fn)
		}, wireCustomers)), nil
	}
	q.Limit = r.Limit()
	var err error
	if q.After, err = r.After(); err != nil {
		return rest.Response{}, err
	}
	customers, next, err := a.Desk.FindCustomers(ctx, a.DB, r.Key.OrganizationID, q)
	if err != nil {
		return rest.Response{}, rest.AsCursorError(err)
	}
	list, err := wireCustomers(customers)
	if err != nil {
		return rest.Response{}, err
	}
	return paged(list, next), nil
}

func (a *API) getCustomer(ctx context.Context, r *rest.Request) (rest.Response, error) {
	c, err := a.Desk.Customer(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(wireCustomer(&c)), nil
}

func (a *API) createCustomer(ctx context.Context, r *rest.Request) (rest.Response, error) {
	var in customerBody
	if err := r.Decode(&in); err != nil {
		return rest.Response{}, err
	}
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		c, err := a.Desk.CreateCustomerTx(ctx, tx, r.Key.OrganizationID, desk.NewCustomer{
			Name: in.Name.Value, Emails: in.Emails.Value, Phones: in.Phones.Value, ExternalID: in.ExternalID.Value, Metadata: changed(nil, in.Metadata),
		})
		if err != nil {
			return rest.Response{}, err
		}
		return rest.Created("/customers/"+c.ID, wireCustomer(&c)), nil
	})
}

func (a *API) updateCustomer(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		c, err := a.Desk.LockCustomerTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		var in customerBody
		if err := r.Update(wireCustomer(&c), &in); err != nil {
			return rest.Response{}, err
		}
		c, err = a.Desk.UpdateCustomerTx(ctx, tx, c.OrganizationID, c.ID, desk.CustomerUpdate{
			Name: in.Name.Pointer(), Emails: in.Emails.Pointer(), Phones: in.Phones.Pointer(),
			ExternalID: in.ExternalID.Pointer(), Metadata: changed(c.Metadata, in.Metadata),
		})
		if err != nil {
			return rest.Response{}, err
		}
		return rest.OK(wireCustomer(&c)), nil
	})
}

func (a *API) deleteCustomer(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		c, err := a.Desk.LockCustomerTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		if err := r.Match(wireCustomer(&c)); err != nil {
			return rest.Response{}, err
		}
		return rest.NoContent(), a.Desk.DeleteCustomerTx(ctx, tx, c.OrganizationID, c.ID)
	})
}

func (a *API) mergeCustomer(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		if _, err := a.Desk.Customer(ctx, tx, r.Key.OrganizationID, r.Path("id")); err != nil {
			return rest.Response{}, err
		}
		var in struct {
			Into string `json:"into"`
		}
		if err := r.Decode(&in); err != nil {
			return rest.Response{}, err
		}
		c, err := a.Desk.MergeCustomersTx(ctx, tx, r.Key.OrganizationID, r.Path("id"), in.Into)
		if err != nil {
			return rest.Response{}, err
		}
		return rest.OK(wireCustomer(&c)), nil
	})
}

func (a *API) unmergeCustomer(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		if _, err := a.Desk.Customer(ctx, tx, r.Key.OrganizationID, r.Path("id")); err != nil {
			return rest.Response{}, err
		}
		var in struct{}
		if err := r.Decode(&in); err != nil {
			return rest.Response{}, err
		}
		c, err := a.Desk.UnmergeCustomerTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		return rest.OK(wireCustomer(&c)), nil
	})
}
