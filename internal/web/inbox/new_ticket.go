package inbox

import (
	"cmp"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// newTicketPath is the path of the new ticket's form; ?customer=ID selects a customer.
const newTicketPath = "/tickets/new"

// newTicket is the body of the form.
type newTicket struct {
	Customer *desk.Customer // nil: from the fields
	Cancel   string
	Once     string // idempotency key of the form
}

// showNewTicket renders the form of a new ticket.
func (p *pages) showNewTicket(w http.ResponseWriter, r *web.Request) error {
	c, err := p.knownCustomer(r)
	if err != nil {
		return err
	}
	fields, err := p.newTicketFields(r, c)
	if err != nil {
		return err
	}
	fields.Focus()
	return p.renderNewTicket(w, r, c, fields, 0)
}

func (p *pages) renderNewTicket(w http.ResponseWriter, r *web.Request, c *desk.Customer, fields web.Fields, status int) error {
	body := newTicket{c, "/inbox", rand.Text()}
	if c != nil {
		body.Cancel = "/customers/" + c.ID
	}
	return p.Render(w, r, "new", web.Page{Title: "New ticket", At: "/inbox", Status: status, Fields: fields, Body: body})
}

// knownCustomer returns the customer in the query; nil for none.
func (p *pages) knownCustomer(r *web.Request) (*desk.Customer, error) {
	id := r.URL.Query().Get("customer")
	if id == "" {
		return nil, nil
	}
	c, err := p.Desk.Customer(r.Context(), p.DB, r.OrganizationID, id)
	if err != nil {
		return nil, err
	}
	return &c, nil
}

// replyChannels returns the channels in which a new ticket can start, by the
// organization's connections.
func (p *pages) replyChannels(r *web.Request, c *desk.Customer) ([]web.Option, error) {
	options := []web.Option{{Value: desk.ChannelAPI, Label: "Don’t send: record a message from the customer"}}
	if p.Connections == nil {
		return options, nil
	}
	list, err := p.Connections.List(r.Context(), r.OrganizationID)
	if err != nil {
		return nil, err
	}
	for _, at := range list {
		ticketChannel, what := "", ""
		switch {
		case at.Channel == "sms" && (c == nil || len(c.Phones) > 0):
			ticketChannel, what = "sms", "SMS from "
		case sendsMail(at.Channel) && at.Channel != "email-delivery" && (c == nil || len(c.Emails) > 0):
			ticketChannel, what = "email", "E-mail from "
		}
		if ticketChannel != "" && at.Enabled {
			options = append(options, web.Option{Value: ticketChannel + " " + at.ID, Label: what + at.Address})
		}
	}
	return options, nil
}

func (p *pages) newTicketFields(r *web.Request, c *desk.Customer) (web.Fields, error) {
	channels, err := p.replyChannels(r, c)
	if err != nil {
		return nil, err
	}
	members, err := p.Accounts.Members(r.Context(), r.OrganizationID)
	if err != nil {
		return nil, err
	}
	var fields web.Fields
	if c == nil {
		fields = append(fields,
			web.Field{Name: "customer.name", Label: "Name", Type: "text", Optional: true, Most: 255},
			web.Field{Name: "customer.email", Label: "E-mail", Type: "email", Optional: true, Most: 254, Help: "An existing customer with this address or number is used."},
			web.Field{Name: "customer.phone", Label: "Phone", Type: "tel", Optional: true, Most: 40, Placeholder: "+4915112345678"},
		)
	}
	channel := web.Field{Name: "channel", Label: "Channel", Type: "select", Options: channels, Value: channels[len(channels)-1].Value}
	if len(channels) == 1 {
		channel.Help = "To send a message, connect an e-mail or SMS channel."
	}
	return append(fields, channel,
		web.Field{Name: "subject", Label: "Subject", Type: "text", Least: 1, Most: 500},
		web.Field{Name: "text", Label: "Message", Type: "textarea", Rows: 6, Optional: true, Most: 100_000},
		web.Field{Name: "priority", Label: "Priority", Type: "select", Value: string(desk.PriorityNormal), Options: selectable("", desk.Priorities[:], priorityLabel)[1:]},
		web.Field{Name: "assignee_id", Label: "Assignee", Type: "select", Value: r.UserID, Options: memberOptions(members)},
		web.Field{Name: "tags", Label: "Tags", Type: "text", Optional: true, Most: 500, Help: "Separated by commas."},
	), nil
}

// memberOptions returns the possible assignees, unassigned first.
func memberOptions(members []account.User) []web.Option {
	options := []web.Option{{Label: "Unassigned"}}
	for _, m := range members {
		options = append(options, web.Option{Value: m.ID, Label: cmp.Or(m.Name, m.Email)})
	}
	return options
}

// submitNewTicket creates the ticket of the form.
func (p *pages) submitNewTicket(w http.ResponseWriter, r *web.Request) error {
	// No files, but longer text than other forms.
	upload, ok := p.Upload(w, r, 0)
	if !ok {
		return nil
	}
	form := upload.Values
	c, err := p.knownCustomer(r)
	if err != nil {
		return err
	}
	key := submissionKey(r, form)
	if key != "" && !p.isFirst(key) {
		return p.Redirect(w, "/inbox", web.Notice{Text: "This ticket has already been created."})
	}
	t, err := p.createTicket(r, form, c)
	if err != nil {
		p.submitted.Delete(key)
	}
	if err == nil {
		return p.Redirect(w, "/tickets/"+strconv.FormatInt(t.Number, 10), web.Notice{Text: "Ticket " + strconv.FormatInt(t.Number, 10) + " created."})
	}
	fields, ferr := p.newTicketFields(r, c)
	if ferr != nil {
		return ferr
	}
	fields.Fill(form)
	if !refused(fields, err) {
		return err
	}
	return p.renderNewTicket(w, r, c, fields, http.StatusUnprocessableEntity)
}

func (p *pages) createTicket(r *web.Request, form url.Values, c *desk.Customer) (desk.Ticket, error) {
	says, err := p.Desk.Compose(r.Context(), r.OrganizationID, desk.Draft{Text: form.Get("text")})
	if err != nil {
		return desk.Ticket{}, err
	}
	n := desk.NewTicket{
		Subject: form.Get("subject"), Priority: desk.Priority(form.Get("priority")), AssigneeID: form.Get("assignee_id"), Tags: parseTags(form.Get("tags")),
		By: desk.Actor{ID: r.UserID, Name: cmp.Or(r.User.Name, r.User.Email)}, Content: says,
	}
	n.Channel, n.ConnectionID, _ = strings.Cut(form.Get("channel"), " ")
	if c != nil {
		n.CustomerID = c.ID
	} else {
		n.Customer = &desk.Person{
			Name: strings.TrimSpace(form.Get("customer.name")), Email: strings.TrimSpace(form.Get("customer.email")), Phone: strings.TrimSpace(form.Get("customer.phone")),
		}
	}
	var t desk.Ticket
	err = p.DB.Write(r.Context(), func(tx *db.Tx) (err error) {
		if t, err = p.Desk.CreateTicketTx(r.Context(), tx, r.OrganizationID, n); err != nil {
			return err
		}
		return p.Desk.MarkReadTx(r.Context(), tx, r.OrganizationID, r.UserID, t.ID)
	})
	return t, err
}

// refused is [web.Fields.Refused] for a form with list fields: an issue of "emails.2"
// belongs to "emails", and so does a conflict.
func refused(fields web.Fields, err error) bool {
	pr, ok := errors.AsType[*problem.Error](err)
	if !ok {
		return false
	}
	if member, _ := pr.Details["member"].(string); pr.Kind == problem.Conflict && fields.Field(member) != nil {
		fields.Mark([]problem.Issue{{Path: member, Message: "cannot be this: " + pr.Message}})
		fields.Focus()
		return true
	}
	shown := *pr
	if shown.Issues = nil; shown.Kind == problem.RateLimited { // a quota
		shown.Kind = problem.Precondition
	}
	for _, i := range pr.Issues {
		for name := i.Path; ; {
			if fields.Field(name) != nil {
				i.Path = name
				break
			}
			dot := strings.LastIndexByte(name, '.')
			if dot < 0 {
				break
			}
			name = name[:dot]
		}
		shown.Issues = append(shown.Issues, i)
	}
	return fields.Refused(&shown)
}
