package clientgen

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// readAPIs reads the documents of the repository.
func readAPIs(t *testing.T) []*API {
	t.Helper()
	var d Documents
	for name, text := range map[string]*[]byte{"helpdesk": &d.Helpdesk, "fleet": &d.Fleet, "sandbox": &d.Sandbox} {
		var err error
		if *text, err = os.ReadFile("../../docs/api/" + name + ".openapi.json"); err != nil {
			t.Fatal(err)
		}
	}
	apis, err := Read(d)
	if err != nil {
		t.Fatal(err)
	}
	return apis
}

// The generated files are those of the documents.
func TestGeneratedFiles(t *testing.T) {
	files, err := Generate(readAPIs(t), "")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no files")
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join("../../clients", filepath.FromSlash(f.Path)))
		if err != nil || !bytes.Equal(text, f.Content) {
			t.Errorf("clients/%s is out of date: run go run ./internal/clientgen/generate", f.Path)
		}
	}
}

func TestSnake(t *testing.T) {
	for in, want := range map[string]string{
		"listSLAPolicies": "list_sla_policies", "created_at[gte]": "created_at_gte", "analytics.tickets_row": "analytics_tickets_row",
		"API key": "api_key", "Inbound events": "inbound_events", "getURL": "get_url",
	} {
		if got := Snake(in); got != want {
			t.Errorf("Snake(%q) is %q, expected %q", in, got, want)
		}
	}
	if got := Camel("list_sla_policies"); got != "listSlaPolicies" {
		t.Errorf("Camel: %q", got)
	}
	if got := Pascal("sla_policy"); got != "SlaPolicy" {
		t.Errorf("Pascal: %q", got)
	}
}

func TestMethodNames(t *testing.T) {
	for _, c := range []struct{ id, group, want string }{
		{"listTickets", "tickets", "list"},
		{"getMessage", "messages", "get"},
		{"listConversations", "messages", "list_conversations"},
		{"mergeTicket", "tickets", "merge"},
		{"getTicketAnalytics", "analytics", "tickets"},
		{"getKey", "api_key", "get"},
		{"proveChannel", "channels", "prove"},
		{"rotateChannelSecret", "channels", "rotate_secret"},
		{"getRawInboundEvent", "inbound_events", "get_raw"},
		{"listPricingPlans", "pricing", "list"},
		{"getSettings", "settings", "get"},
		{"resetSandbox", "sandbox", "reset"},
		{"listSLAPolicies", "settings", "list_sla_policies"},
		{"listUpcomingDeliveries", "webhooks", "list_upcoming"},
	} {
		if got := methodName(c.id, c.group); got != c.want {
			t.Errorf("%s of %s is %q, expected %q", c.id, c.group, got, c.want)
		}
	}
}

func TestRead(t *testing.T) {
	apis := readAPIs(t)
	desk, fleet := apis[0], apis[1]
	list := desk.Operation("listTickets")
	if list == nil || !list.List || list.Answer.Record != "ticket" || list.Row.Record != "ticket" || len(list.Expand) == 0 || list.Permission != "tickets.read" {
		t.Errorf("listTickets: %+v", list)
	}
	create := desk.Operation("createTicket")
	if create == nil || !create.Idempotent || create.Status != 201 || create.Body.Record != "ticket_create" || !create.BodyRequired {
		t.Errorf("createTicket: %+v", create)
	}
	if !desk.RecordNamed("ticket_create").Input || desk.RecordNamed("ticket").Input {
		t.Error("bodies and answers are mixed")
	}
	if op := fleet.Operation("resetSandbox"); op == nil || !op.Sandbox {
		t.Errorf("resetSandbox: %+v", op)
	}
	if op := fleet.Operation("createVehicle"); op == nil || op.Sandbox || len(op.Imports) == 0 || !op.Subaccount {
		t.Errorf("createVehicle: %+v", op)
	}
	if op := desk.Operation("getAttachment"); op == nil || !op.File {
		t.Errorf("getAttachment: %+v", op)
	}
	for _, m := range desk.RecordNamed("ticket").Members {
		switch m.Name {
		case "status":
			if m.Type.EnumName != "ticket_status" || m.Nullable || !m.Required {
				t.Errorf("ticket.status: %+v", m)
			}
		case "assignee_id":
			if !m.Nullable {
				t.Errorf("ticket.assignee_id: %+v", m)
			}
		}
	}
	fleet.RecordNamed("fleet_customer") // panics without it
}

// A document with a name that both APIs have is refused, rather than renaming a published type.
func TestSharedNames(t *testing.T) {
	record := func(name string) []Record { return []Record{{Name: name}} }
	err := distinct(&API{Records: record("ticket")}, &API{Records: record("ticket")})
	if err == nil || !strings.Contains(err.Error(), "both APIs have the names ticket:") {
		t.Errorf("error %v", err)
	}
}
