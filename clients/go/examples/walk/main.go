// Command walk repeats docs/api/README.md and docs/api/fleet.md of the repository, step by step,
// against a running demo. It prints a line per step, and fails at the first that differs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	kickstand "github.com/kickstand-dev/kickstand/clients/go"
)

func main() {
	ctx := context.Background()
	desk, err := kickstand.NewHelpdesk(kickstand.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fleet, err := kickstand.NewFleet(kickstand.Options{Key: os.Getenv("KICKSTAND_FLEET_KEY")})
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(walkDesk(ctx, desk), walkFleet(ctx, fleet)); err != nil {
		log.Fatal(err)
	}
}

// step prints a step, or returns its error.
func step(name string, ok bool, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !ok {
		return fmt.Errorf("%s: an unexpected answer", name)
	}
	fmt.Println(name)
	return nil
}

// refused reports whether an error is a problem with a code.
func refused(err error, code kickstand.Code) bool {
	var problem *kickstand.Problem
	return errors.As(err, &problem) && problem.Code == code
}

func walkDesk(ctx context.Context, desk *kickstand.Helpdesk) error {
	ticket, err := desk.Tickets.Create(ctx, kickstand.TicketCreate{
		Subject: "The lock does not open", Text: kickstand.Some("It beeps twice."), Tags: kickstand.Some([]string{"lock"}),
		Customer: kickstand.Some(kickstand.TicketCustomerInput{Name: kickstand.Some("Ada"), Email: kickstand.Some("ada@example.com")}),
	})
	if err := step("create a ticket", err == nil && ticket.Status == kickstand.TicketStatusOpen && *ticket.Customer.Name == "Ada", err); err != nil {
		return err
	}
	_, err = desk.Tickets.Create(ctx, kickstand.TicketCreate{Priority: kickstand.Some(kickstand.TicketPriority("asap"))})
	var problem *kickstand.Problem
	if err := step("read the errors of fields", errors.As(err, &problem) && problem.Code == kickstand.CodeValidationFailed && len(problem.Errors) == 2, nil); err != nil {
		return err
	}
	if err := walkTickets(ctx, desk, ticket); err != nil {
		return err
	}
	return walkMessages(ctx, desk, ticket)
}

func walkTickets(ctx context.Context, desk *kickstand.Helpdesk, ticket *kickstand.Ticket) error {
	filter := kickstand.TicketListParams{
		Tags: []string{"lock"}, CustomerID: []string{ticket.CustomerID}, Status: []kickstand.TicketStatus{kickstand.TicketStatusOpen, kickstand.TicketStatusPending},
		CreatedAtGte: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Sort: kickstand.TicketSortUpdatedAtDescending, Limit: 1,
	}
	page, err := desk.Tickets.List(ctx, filter)
	if err := step("list tickets", err == nil && len(page.Data) == 1 && !page.HasMore, err); err != nil {
		return err
	}
	csv, err := desk.Tickets.ExportCSV(ctx, kickstand.TicketListParams{Tags: []string{"lock"}})
	if err != nil {
		return err
	}
	text, err := io.ReadAll(csv)
	if err := step("export tickets as CSV", strings.Contains(string(text), "The lock does not open,open,normal"), errors.Join(err, csv.Close())); err != nil {
		return err
	}
	order := "1042"
	changed, err := desk.Tickets.Modify(ctx, ticket.ID, func(*kickstand.Ticket) (kickstand.TicketUpdate, error) {
		return kickstand.TicketUpdate{
			Priority: kickstand.Some(kickstand.TicketPriorityHigh), Metadata: kickstand.Some(map[string]*string{"order": &order}),
		}, nil
	})
	if err := step("change a ticket", err == nil && changed.Priority == kickstand.TicketPriorityHigh && changed.Metadata["order"] == order, err); err != nil {
		return err
	}
	_, err = desk.Tickets.Update(ctx, ticket.ID, kickstand.TicketUpdate{Priority: kickstand.Some(kickstand.TicketPriorityLow)}, kickstand.WithIfMatch(`"an older one"`))
	if err := step("refuse a change of an older ticket", refused(err, kickstand.CodePreconditionFailed), nil); err != nil {
		return err
	}
	var etag string
	_, err = desk.Tickets.Get(ctx, ticket.ID, kickstand.WithOnResponse(func(r *kickstand.Response) { etag = r.ETag }))
	if err != nil {
		return err
	}
	same, err := desk.Tickets.Get(ctx, ticket.ID, kickstand.WithIfNoneMatch(etag))
	return step("read a ticket if it has changed", same == nil, err)
}

func walkMessages(ctx context.Context, desk *kickstand.Helpdesk, ticket *kickstand.Ticket) error {
	note := kickstand.MessageCreate{
		Kind: kickstand.MessageKindNote, Text: kickstand.Some("A stone was in the lock."),
		Attachments: kickstand.Some([]kickstand.MessageAttachmentInput{kickstand.Attachment("stone.txt", "text/plain", []byte("grey\n"))}),
	}
	var replayed []bool
	var message *kickstand.Message
	for range 2 {
		var err error
		message, err = desk.Messages.Create(ctx, ticket.ID, note, kickstand.WithIdempotencyKey("note-"+ticket.ID),
			kickstand.WithOnResponse(func(r *kickstand.Response) { replayed = append(replayed, r.Replayed) }))
		if err != nil {
			return err
		}
	}
	if err := step("repeat a request", fmt.Sprint(replayed) == "[false true]", nil); err != nil {
		return err
	}
	file, err := desk.Messages.GetAttachment(ctx, message.Attachments[0].ID)
	if err != nil {
		return err
	}
	content, err := io.ReadAll(file)
	if err := step("read an attachment", string(content) == "grey\n", errors.Join(err, file.Close())); err != nil {
		return err
	}
	var limit kickstand.RateLimit
	_, err = desk.APIKey.Get(ctx, kickstand.WithOnResponse(func(r *kickstand.Response) { limit = r.RateLimit }))
	if err := step("read the rate limit", limit.Limit > 0 && limit.Remaining < limit.Limit, err); err != nil {
		return err
	}
	reply, err := desk.Messages.Create(ctx, ticket.ID, kickstand.MessageCreate{Kind: kickstand.MessageKindReply, Text: kickstand.Some("It is repaired.")})
	return step("reply", err == nil && reply.Kind == kickstand.MessageKindReply && reply.Delivery == nil, err)
}

func walkFleet(ctx context.Context, fleet *kickstand.Fleet) error {
	began := time.Now()
	if err := step("reset the sandbox", true, fleet.Sandbox.Reset(ctx)); err != nil {
		return err
	}
	var codes []string
	missing, err := fleet.Vehicles.List(ctx, kickstand.VehicleListParams{State: []kickstand.VehicleState{kickstand.VehicleStateMissing}, Sort: kickstand.VehicleSortCode})
	if err != nil {
		return err
	}
	for v, err := range missing.All(ctx) {
		if err != nil {
			return err
		}
		codes = append(codes, v.Code)
	}
	if err := step("list missing vehicles", fmt.Sprint(codes) == "[B-0114 F-0108]", nil); err != nil {
		return err
	}
	near, err := fleet.Vehicles.List(ctx, kickstand.VehicleListParams{
		Lat: kickstand.Some(52.52), Lng: kickstand.Some(13.41), RadiusMeters: kickstand.Some(10000.0),
		State: []kickstand.VehicleState{kickstand.VehicleStateAvailable}, Limit: 1,
	})
	if err := step("search around a point", err == nil && len(near.Data) == 1 && near.Data[0].DistanceMeters != nil, err); err != nil {
		return err
	}
	like, err := fleet.Vehicles.List(ctx, kickstand.VehicleListParams{Code: []string{"B-0101"}})
	if err != nil {
		return err
	}
	vehicle, err := fleet.Vehicles.Create(ctx, kickstand.VehicleCreate{
		SubaccountID: kickstand.Some(like.Data[0].SubaccountID), Code: "TRIAL-1", VehicleTypeID: like.Data[0].VehicleTypeID,
		State: kickstand.Some(kickstand.VehicleCreateStateAvailable), BatteryPercent: kickstand.Some[int64](80), OdometerMeters: kickstand.Some[int64](0),
		Location: kickstand.Some(kickstand.PositionInput{Lat: 52.5219, Lng: 13.4132}),
	})
	if err := step("add a vehicle", err == nil && vehicle.State == kickstand.VehicleStateAvailable, err); err != nil {
		return err
	}
	return walkRides(ctx, fleet, vehicle, began)
}

func walkRides(ctx context.Context, fleet *kickstand.Fleet, vehicle *kickstand.Vehicle, began time.Time) error {
	var rider string
	for c, err := range fleet.Customers.Export(ctx, kickstand.FleetCustomerListParams{
		SubaccountID: []string{vehicle.SubaccountID}, Status: []kickstand.FleetCustomerStatus{kickstand.FleetCustomerStatusActive},
	}) {
		if err != nil {
			return err
		}
		if c.OpenRideID == nil {
			rider = c.ID
			break
		}
	}
	start := kickstand.RideCreate{CustomerID: kickstand.Some(rider), VehicleCode: kickstand.Some("TRIAL-1")}
	ride, err := fleet.Rides.Create(ctx, start)
	if err := step("start a ride", err == nil && ride.Status == kickstand.RideStatusActive, err); err != nil {
		return err
	}
	_, err = fleet.Rides.Create(ctx, start)
	if err := step("refuse a second ride", refused(err, kickstand.CodeVehicleUnavailable), nil); err != nil {
		return err
	}
	clock, err := fleet.Sandbox.UpdateClock(ctx, kickstand.SandboxClockUpdate{Now: kickstand.Some(began.Add(630 * time.Second))})
	if err := step("advance the clock", err == nil && !clock.Now.Before(began.Add(629*time.Second)), err); err != nil {
		return err
	}
	end := kickstand.RideUpdate{
		Status: kickstand.Some(kickstand.RideUpdateStatusCompleted), EndLocation: kickstand.Some(kickstand.PositionInput{Lat: 52.515, Lng: 13.355}),
	}
	_, err = fleet.Rides.Update(ctx, ride.ID, end)
	if err := step("refuse an end outside the zone", refused(err, kickstand.CodeOutOfZoneFeeRequired), nil); err != nil {
		return err
	}
	end.EndLocation, end.DistanceMeters = kickstand.Some(kickstand.PositionInput{Lat: 52.5251, Lng: 13.3694}), kickstand.Some[int64](1850)
	ride, err = fleet.Rides.Update(ctx, ride.ID, end)
	if err := step("end a ride", err == nil && ride.Status == kickstand.RideStatusCompleted && ride.Price.TotalAmount == 375, err); err != nil {
		return err
	}
	start.Status = kickstand.Some(kickstand.RideCreateStatusReserved)
	reservation, err := fleet.Rides.Create(ctx, start)
	if err != nil {
		return err
	}
	if _, err := fleet.Sandbox.UpdateClock(ctx, kickstand.SandboxClockUpdate{Now: kickstand.Some(began.Add(4200 * time.Second))}); err != nil {
		return err
	}
	reservation, err = fleet.Rides.Get(ctx, reservation.ID)
	expired := err == nil && reservation.CancelReason != nil && *reservation.CancelReason == kickstand.RideCancelReasonReservationExpired
	if err := step("let a reservation expire", expired && reservation.Price.TotalAmount == 150, err); err != nil {
		return err
	}
	return walkTotals(ctx, fleet, vehicle, began)
}

func walkTotals(ctx context.Context, fleet *kickstand.Fleet, vehicle *kickstand.Vehicle, began time.Time) error {
	silent, err := fleet.Vehicles.Get(ctx, vehicle.ID)
	if err := step("see a vehicle without contact", err == nil && silent.State == kickstand.VehicleStateNonContactable, err); err != nil {
		return err
	}
	revenue, err := fleet.Analytics.Revenue(ctx, kickstand.FleetAnalyticsRevenueParams{
		From: began.Format(time.RFC3339), To: began.Add(9000 * time.Second).Format(time.RFC3339), Granularity: kickstand.FleetAnalyticsGranularityTotal,
	})
	if err := step("total the revenue", err == nil && len(revenue.Totals) == 2 && revenue.Totals[0].TotalAmount == 675, err); err != nil {
		return err
	}
	var statuses []kickstand.RideStatus
	for r, err := range fleet.Rides.Export(ctx, kickstand.RideListParams{VehicleID: []string{vehicle.ID}, Sort: kickstand.RideSortCreatedAt}) {
		if err != nil {
			return err
		}
		statuses = append(statuses, r.Status)
	}
	if err := step("export rides", fmt.Sprint(statuses) == "[completed cancelled]", nil); err != nil {
		return err
	}
	zones, err := fleet.Zones.ExportGeoJSON(ctx, kickstand.ZoneListParams{})
	if err != nil {
		return err
	}
	running, err := fleet.Zones.ImportFrom(ctx, "application/geo+json", zones, kickstand.ZoneImportParams{OnConflict: "update"})
	if err != nil {
		return err
	}
	for line, err := range running.Lines() {
		if err != nil {
			return err
		}
		if line.Problem != nil {
			return line.Problem
		}
	}
	return step("import the exported zones", *running.Summary().Unchanged == 8, nil)
}
