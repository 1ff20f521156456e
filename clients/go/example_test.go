package kickstand_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"testing"

	kickstand "github.com/kickstand-dev/kickstand/clients/go"
	"github.com/kickstand-dev/kickstand/clients/go/webhooks"
)

func ExampleNull() {
	ctx, desk, id := context.Background(), &kickstand.Helpdesk{}, "tic-1"
	_, err := desk.Tickets.Update(ctx, id, kickstand.TicketUpdate{
		Priority:   kickstand.Some(kickstand.TicketPriorityHigh),
		AssigneeID: kickstand.Null[string](),
	})
	_ = err
}

func ExampleHelpdeskTicketsService_Modify() {
	ctx, desk, id := context.Background(), &kickstand.Helpdesk{}, "tic-1"
	ticket, err := desk.Tickets.Modify(ctx, id, func(t *kickstand.Ticket) (kickstand.TicketUpdate, error) {
		return kickstand.TicketUpdate{Tags: kickstand.Some(append(t.Tags, "lock"))}, nil
	})
	_, _ = ticket, err
}

func ExampleFleetRidesService_Export() {
	ctx, fleet := context.Background(), &kickstand.Fleet{}
	export := func() error {
		for ride, err := range fleet.Rides.Export(ctx, kickstand.RideListParams{Status: []kickstand.RideStatus{kickstand.RideStatusCompleted}}) {
			if err != nil {
				return err
			}
			fmt.Println(ride.ID)
		}
		return nil
	}
	_ = export
}

func ExampleProblem() {
	_, err := kickstand.NewHelpdesk(kickstand.Options{})
	var problem *kickstand.Problem
	if errors.As(err, &problem) && problem.Code == kickstand.CodeValidationFailed {
		for _, e := range problem.Errors {
			log.Printf("%s: %s", e.Pointer, e.Detail)
		}
	}
}

func receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		return
	}
	event, err := webhooks.Verify(body, r.Header, os.Getenv("WEBHOOK_SECRET"))
	if err != nil {
		http.Error(w, "not signed", http.StatusBadRequest)
		return
	}
	switch data := event.Data.(type) { // the same event may arrive again
	case *kickstand.EventTicketCreatedData:
		log.Println(event.ID, data.Ticket.Subject)
	}
}

func ExampleHelpdesk_webhooks() {
	http.HandleFunc("POST /hook", receive)
}

func receiveFleet(body []byte, header http.Header) error {
	v := webhooks.Verifier{Secrets: []string{os.Getenv("FLEET_WEBHOOK_SECRET")}, Source: kickstand.WebhookSourceFleet}
	event, err := v.Verify(body, header)
	if err != nil {
		return err
	}
	switch data := event.Data.(type) {
	case *kickstand.FleetEventRideCompletedData:
		log.Println(data.Ride.ID, data.Livemode)
	}
	return nil
}

func ExampleFleet_webhooks() {
	http.HandleFunc("POST /fleet", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err == nil && receiveFleet(body, r.Header) != nil {
			http.Error(w, "not signed", http.StatusBadRequest)
		}
	})
}

// The blocks of README.md after its first program are parts of this file.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	squeeze := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	parts := strings.Split(string(readme), "\n```go\n")
	if len(parts) < 5 {
		t.Fatalf("only %d blocks", len(parts)-1)
	}
	for _, part := range parts[2:] {
		block, _, _ := strings.Cut(part, "\n```\n")
		if !strings.Contains(squeeze(string(code)), squeeze(block)) {
			t.Errorf("example_test.go does not have this block of README.md:\n%s", block)
		}
	}
}
