// Command kill creates KICKSTAND_COUNT tickets, one after another, and prints their ids. The
// server may die meanwhile.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	kickstand "github.com/kickstand-dev/kickstand/clients/go"
)

func main() {
	count, err := strconv.Atoi(os.Getenv("KICKSTAND_COUNT"))
	if err != nil {
		log.Fatal(err)
	}
	desk, err := kickstand.NewHelpdesk(kickstand.Options{MaxRetries: 30})
	if err != nil {
		log.Fatal(err)
	}
	for i := range count {
		ticket, err := desk.Tickets.Create(context.Background(), kickstand.TicketCreate{
			Subject:  fmt.Sprintf("record %d", i),
			Customer: kickstand.Some(kickstand.TicketCustomerInput{Email: kickstand.Some("ada@example.com")}),
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ticket.ID)
	}
}
