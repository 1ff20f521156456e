package demo

import "github.com/kickstand-dev/kickstand/internal/desk"

// Macros are the shared macros of the company, without an organization.
var Macros = []desk.Macro{
	{
		Name:    "Out of service",
		Text:    "Hi {{customer.first_name|there}},\n\nthank you for telling us. The vehicle is out of service now, and our crew picks it up today.\n\n{{agent.first_name}}",
		Note:    "Crew informed.",
		Actions: desk.MacroActions{Status: desk.StatusPending, AddTags: []string{"damage"}},
	},
	{
		Name:    "Refund",
		Text:    "Hi {{customer.first_name|there}},\n\nI have refunded your ride. The money is on your card within three to five days.\n\nSorry for the trouble,\n{{agent.first_name}}",
		Actions: desk.MacroActions{Status: desk.StatusResolved, AddTags: []string{"billing"}},
	},
	{
		Name:    "Lock: Bluetooth",
		Text:    "Hi {{customer.first_name|there}}, please switch Bluetooth off and on again and try once more. If it still does not unlock, take the vehicle next to it: we credit the unlock fee.",
		Actions: desk.MacroActions{Status: desk.StatusPending, AddTags: []string{"lock"}},
	},
	{
		Name:    "Monthly invoice",
		Text:    "Hi {{customer.first_name|there}},\n\nyou find it in the app under Account, Receipts, Monthly invoice. VAT is shown per line there.\n\n{{agent.first_name}}",
		Actions: desk.MacroActions{Status: desk.StatusResolved, AddTags: []string{"invoice"}},
	},
	{
		Name:    "No answer needed",
		Actions: desk.MacroActions{Status: desk.StatusResolved},
	},
}
