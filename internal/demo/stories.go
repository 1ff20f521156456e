package demo

// story is the course of one ticket. Texts have the placeholders of [fill].
type story struct {
	subject  string // of mails
	tags     []string
	priority string // empty: normal
	lines    []line // the first one is the customer's
	mail     bool   // by mail only; others go over any channel
	ride     bool   // it is about a ride of the customer
}

// line is one message of a story.
type line struct {
	from string // see below
	text string
}

// Authors of lines.
const (
	customer = "customer"
	agent    = "agent"
	note     = "note" // an agent's internal note
)

// stories are the tickets of a rental company, as they come in over 90 days. {vehicle}, {ride},
// {minutes}, {price}, {place} and {day} are those of a ride of the customer.
var stories = []story{
	{
		subject: "Charged after I had locked {vehicle}", tags: []string{"billing", "lock"}, ride: true,
		lines: []line{
			{customer, "Hello,\n\nI ended my ride on {vehicle} at {place} on {day} and the lock clicked, but the ride {ride} went on for a while. Could you correct the price?\n\nThanks,\n{first}"},
			{note, "Lock reported closed at the end of the ride, the end came late. Refund the last minutes."},
			{agent, "Hello {first},\n\nyou are right: the scooter reported the lock later than it closed. I have shortened the ride, and the difference goes back to your card within three to five days.\n\nSorry for the trouble,\n{agent}"},
			{customer, "That was quick. Thank you!"},
		},
	},
	{
		subject: "Brake of {vehicle} is loose", tags: []string{"damage", "safety"}, priority: "high", ride: true,
		lines: []line{
			{customer, "The rear brake of {vehicle} hardly works. I left it at {place}. Please take it off the street before somebody gets hurt."},
			{agent, "Thank you for telling us, {first}. {vehicle} is out of service now and goes to the workshop today. Are you all right?"},
			{customer, "Yes, I noticed it before the hill. All good."},
			{note, "Workshop: brake cable replaced, back in service."},
		},
	},
	{
		subject: "Refund for ride {ride}", tags: []string{"billing"}, ride: true,
		lines: []line{
			{customer, "Hi, ride {ride} cost {price} for {minutes} minutes, but {vehicle} stopped twice in the middle of the road. I would like my money back for this one."},
			{agent, "Hi {first}, I am sorry to hear that. The vehicle reported a low battery during your ride, so I have refunded half of the price. Is that fair?"},
			{customer, "Fair enough, thanks."},
		},
	},
	{
		tags: []string{"lock"}, ride: true, priority: "high",
		lines: []line{
			{customer, "{vehicle} won't unlock. App says \"connecting\" for 5 minutes now. I'm at {place}"},
			{agent, "Hi {first}, please switch Bluetooth off and on again and try once more. If it still does not unlock, take the scooter next to it: I have put the unlock fee on your account as credit."},
			{customer, "Worked with bluetooth on, thx"},
		},
	},
	{
		tags: []string{"lock"}, ride: true, priority: "urgent",
		lines: []line{
			{customer, "I can't end my ride!! {vehicle} is locked but the app keeps counting"},
			{agent, "I have ended the ride for you, {first}, at the time when the lock closed. You do not pay for the minutes after it."},
			{customer, "Phew. Thank you"},
		},
	},
	{
		subject: "Invoice for last month", tags: []string{"invoice"}, mail: true,
		lines: []line{
			{customer, "Good morning,\n\nI need one invoice for all my rides of last month for my employer, with VAT shown separately. The receipts in the app are not accepted.\n\nKind regards,\n{name}"},
			{agent, "Good morning {first},\n\nyou find it in the app under Account, Receipts, Monthly invoice. VAT is shown per line there. If your employer needs its address on it, send it to me and I add it.\n\nBest,\n{agent}"},
			{customer, "Found it, and it has everything. Thanks a lot."},
		},
	},
	{
		subject: "Company account for 12 people", tags: []string{"business", "sales"}, mail: true,
		lines: []line{
			{customer, "Hello,\n\nwe are an architecture office with 12 people and would like to pay our rides with one account. Is there a contract for companies, and can we see who rode when?\n\n{name}"},
			{agent, "Hello {first},\n\nyes: a business account has one monthly invoice, a limit per person if you want one, and a list of rides for the account's admin. There is no monthly fee up to 20 people. Shall I set it up? I need the company's name, its billing address and the mail addresses of your colleagues.\n\n{agent}"},
			{customer, "Great, the list follows tomorrow."},
			{note, "Waiting for the list of colleagues."},
		},
	},
	{
		subject: "Where may I park near the station?", tags: []string{"parking"},
		lines: []line{
			{customer, "The app did not let me end my ride in front of the main station. Where is the nearest place where it is allowed?"},
			{agent, "Hi {first}, the station square is a no-parking zone of the city. There are two marked areas: on the north side beside the bicycle racks, and in the side street behind the post office. They are shown with a P in the app when you zoom in."},
			{customer, "Ah, I see them now. Cheers"},
		},
	},
	{
		subject: "Fine for parking on the pavement", tags: []string{"parking", "billing"}, ride: true,
		lines: []line{
			{customer, "I was charged 15 for \"improper parking\" after ride {ride}. I parked next to other scooters at {place}, see the photo in the app. Please take it back."},
			{note, "Photo shows the scooter within the marked area. The report belongs to the next rider."},
			{agent, "Hello {first}, I have looked at your photo: you parked correctly, and the report was about a later ride. The charge is cancelled. Sorry that we did not look more closely in the first place."},
		},
	},
	{
		subject: "Delete my account", tags: []string{"privacy"}, mail: true,
		lines: []line{
			{customer, "Please delete my account and all data about me according to Art. 17 GDPR, and confirm it in writing.\n\n{name}"},
			{agent, "Hello {first},\n\nI have started the deletion. Your account, contact data and ride history are removed within 30 days. Invoices must be stored for ten years by law and are locked for all other uses. You get a confirmation by mail when it is done.\n\n{agent}"},
		},
	},
	{
		subject: "Copy of my data", tags: []string{"privacy"}, mail: true,
		lines: []line{
			{customer, "Hi, I would like a copy of the data you have stored about me, please."},
			{agent, "Hi {first}, the export is in preparation. You will get a link by mail; it is valid for seven days and asks for your password."},
			{customer, "Received, thank you."},
		},
	},
	{
		tags: []string{"lost-and-found"}, ride: true,
		lines: []line{
			{customer, "I forgot my backpack in the basket of {vehicle} this morning at {place}. Black, with a laptop inside. Did anyone hand it in?"},
			{note, "Asked the crew: they are there at 11."},
			{agent, "Hi {first}, our crew found it at the vehicle. You can pick it up at our garage today until 19:00 or tomorrow from 8:00. Please bring an ID."},
			{customer, "You are heroes! I'll be there at 6"},
		},
	},
	{
		tags: []string{"lost-and-found"}, ride: true,
		lines: []line{
			{customer, "Hey, did someone find a grey glove near {place}? Lost it when I parked {vehicle}"},
			{agent, "Hi {first}, nothing was handed in so far. I have left a note for the crew there and write to you if they find it."},
		},
	},
	{
		subject: "Battery empty after five minutes", tags: []string{"battery"}, ride: true,
		lines: []line{
			{customer, "{vehicle} showed 60 % when I started and was empty at {place}. I had to walk and paid {price}. Can I have a refund?"},
			{agent, "Hi {first}, this battery does not hold its charge any more. I have refunded the whole ride and the battery is replaced tonight. Thank you for the report."},
		},
	},
	{
		tags: []string{"battery"}, ride: true,
		lines: []line{
			{customer, "three scooters at {place} are all below 10%. is anybody charging them?"},
			{agent, "Hi {first}, thanks for the hint. The evening shift swaps batteries there at about 20:00, I have moved your corner to the top of its list."},
			{customer, "nice"},
		},
	},
	{
		subject: "Accident on {day}", tags: []string{"accident", "insurance"}, priority: "urgent", ride: true,
		lines: []line{
			{customer, "Hello, a car took my right of way while I rode {vehicle} near {place}. I have a sprained wrist and the scooter is damaged. The police took a report. What do I have to do now?\n\n{name}"},
			{note, "Sub-case for the insurer opened. Do not discuss liability by mail."},
			{agent, "Hello {first},\n\nfirst of all: I hope that you recover soon. Please send me the number of the police report, the other driver's plate and, when you have it, the doctor's note. You do not have to do anything about the scooter. Our insurer contacts you within two working days.\n\n{agent}"},
			{customer, "Report number is 2231/77. The doctor's note follows on Monday."},
			{agent, "Thank you, I have passed it on. Get well soon."},
		},
	},
	{
		subject: "Promo code does not work", tags: []string{"promotion"},
		lines: []line{
			{customer, "The code AUTUMN5 from your newsletter says \"not valid\". I have not used it before."},
			{agent, "Hi {first}, the code is valid for rides that start between 10:00 and 16:00. I have added the 5.00 as credit instead, so that you can use it whenever you like."},
			{customer, "Very kind, thank you!"},
		},
	},
	{
		subject: "Two accounts by mistake", tags: []string{"account"}, mail: true,
		lines: []line{
			{customer, "I signed up with my phone and later with my mail address, so my credit is on one account and my card on the other. Can you make one of them?"},
			{agent, "Done, {first}: both are one account now, with your card, your credit and all rides. Sign in with your phone number."},
		},
	},
	{
		subject: "Card declined", tags: []string{"payment"},
		lines: []line{
			{customer, "My card is refused since yesterday although my bank says everything is fine with it."},
			{agent, "Hi {first}, your bank asks for a confirmation (3-D Secure) that has expired. Please remove the card in the app and add it again: the bank's page opens and you confirm once."},
			{customer, "It works again"},
		},
	},
	{
		subject: "Payment failed, account blocked", tags: []string{"payment"}, priority: "high",
		lines: []line{
			{customer, "I can't start a ride because of an open payment, but I never got a message about it. I need to get to work."},
			{agent, "Hi {first}, two rides of last week could not be charged. I have unblocked you for today; please add another card or pay by the link in the app until tomorrow."},
			{customer, "Paid. Thanks for the quick help"},
		},
	},
	{
		tags: []string{"feedback"},
		lines: []line{
			{customer, "Just wanted to say that the new bikes are great. Much better saddle!"},
			{agent, "Thank you, {first}! I pass it on to the workshop, they were the ones who chose it."},
		},
	},
	{
		subject: "More vehicles in the north, please", tags: []string{"feedback", "area"}, mail: true,
		lines: []line{
			{customer, "Dear team,\n\nevery morning there is not a single bike north of the canal, while ten of them stand around the square. Could you move some in the evening?\n\n{name}"},
			{note, "Third mail of this kind this month. For the Monday meeting."},
			{agent, "Dear {first},\n\nyou are not the first to ask. From next week the evening shift takes eight bikes across the canal each day. Let me know if you notice a difference.\n\n{agent}"},
		},
	},
	{
		subject: "Ride {ride}: wrong end", tags: []string{"billing", "gps"}, ride: true,
		lines: []line{
			{customer, "According to the map my ride {ride} ended in the middle of the river. I parked at {place}, and was charged for leaving the area."},
			{agent, "Hello {first}, the position jumped between the high buildings there. I have corrected the end of the ride and taken the extra charge back. You could not have known."},
			{customer, "Thank you, I was not sure how to prove it :)"},
		},
	},
	{
		tags: []string{"app"},
		lines: []line{
			{customer, "App crashes when I scan the code, Android 14"},
			{agent, "Hi {first}, thank you. Which version of the app do you have? You find it under Account, About. Until it is fixed you can type the number below the code."},
			{customer, "8.4.1. Typing works"},
			{note, "Known: scanner of 8.4.1, fixed in 8.4.2."},
			{agent, "The fix is in 8.4.2, which is in the store since this morning."},
		},
	},
	{
		subject: "Driving licence check failed", tags: []string{"account", "licence"},
		lines: []line{
			{customer, "My licence was refused twice for the moped. It is valid until 2031. What is wrong with the photo?"},
			{agent, "Hi {first}, the back side was cut off on the right. Please photograph both sides on a dark table, with all four corners visible."},
			{customer, "Third try worked"},
		},
	},
	{
		subject: "How long is the pause?", tags: []string{"pricing"},
		lines: []line{
			{customer, "If I pause my ride to buy groceries, what does a minute cost, and can someone else take the bike?"},
			{agent, "Hi {first}, a pause costs less than half of the ride's minute price, and the bike stays locked for you for up to 30 minutes. After that, the ride ends by itself."},
		},
	},
	{
		subject: "Day pass", tags: []string{"pricing", "sales"},
		lines: []line{
			{customer, "We are four visitors for a weekend. Is there a day pass, and can one phone unlock four bikes?"},
			{agent, "Hello {first}, one phone can unlock up to five bikes: use Group ride in the app. A day pass per bike pays off from about three rides of half an hour."},
			{customer, "Perfect, see you on Saturday"},
		},
	},
	{
		subject: "Helmet", tags: []string{"equipment"}, ride: true,
		lines: []line{
			{customer, "The helmet box of {vehicle} does not open, so I rode without one. Not a good feeling."},
			{agent, "Hi {first}, thanks for the report: the box of {vehicle} is on today's repair list. Each other moped at {place} has two helmets."},
		},
	},
	{
		tags: []string{"damage"}, ride: true,
		lines: []line{
			{customer, "Someone threw {vehicle} into a bush at {place}. Looks fine but lies there"},
			{agent, "Thank you, {first}. The crew picks it up within the hour."},
			{customer, "They were here already, impressive"},
		},
	},
	{
		subject: "Flat tyre on {vehicle}", tags: []string{"damage"}, ride: true,
		lines: []line{
			{customer, "Front tyre of {vehicle} is flat. Ended the ride after 2 minutes at {place}."},
			{agent, "Thank you, {first}. The ride is free of charge and the vehicle is out of service."},
		},
	},
	{
		subject: "Blocked driveway", tags: []string{"parking", "complaint"}, priority: "high", mail: true,
		lines: []line{
			{customer, "There have been two of your scooters in front of my garage since this morning. If they are still there at noon, I call the city.\n\n{name}"},
			{agent, "Dear {first}, I apologise. Our crew moves them right now, and I have asked for a no-parking zone in front of your house, so that rides cannot end there any more."},
			{customer, "They are gone. The zone would be good, it happens every week."},
			{note, "Zone requested from the fleet team."},
			{agent, "The zone is active since today."},
		},
	},
	{
		subject: "Request of the district office: parking near the school", tags: []string{"city", "parking"}, priority: "high", mail: true,
		lines: []line{
			{customer, "Dear Sir or Madam,\n\nparents report vehicles on the pavement in front of the primary school between 7 and 8 in the morning. We ask you for a no-parking zone of 50 metres around the entrance on school days, and for a confirmation by the end of next week.\n\nKind regards,\n{name}, District office for roads"},
			{note, "Fleet team: zone drawn, starts on Monday."},
			{agent, "Dear {name},\n\nthe zone is active from Monday. Rides cannot end within 50 metres of the entrance from 6:30 to 17:00 on school days. Please tell us if you still see vehicles there.\n\n{agent}"},
		},
	},
	{
		subject: "Press request: numbers for a city report", tags: []string{"press"}, mail: true,
		lines: []line{
			{customer, "Hello, I write about shared mobility for the local paper. How many rides did you have in September, and how long was the average ride? I need an answer by Thursday.\n\n{name}"},
			{note, "For the management. Numbers only after approval."},
			{agent, "Hello {first}, thank you for asking. I have passed your questions on; you have the answer by Wednesday evening.\n\n{agent}"},
		},
	},
	{
		subject: "Stolen bike in our yard", tags: []string{"theft"}, priority: "high", mail: true,
		lines: []line{
			{customer, "One of your bikes has been in the cellar of our house for a week, with a second lock on it. House number 14, access by the yard.\n\n{name}"},
			{note, "Silent since last week, so this fits. Crew goes with bolt cutters, police informed."},
			{agent, "Hello {first}, we have picked it up. Thank you very much: as a small thanks there are three free rides on your account."},
		},
	},
	{
		tags: []string{"opening-hours"},
		lines: []line{
			{customer, "Are you open on Sunday?"},
			{agent, "Hi {first}, rides are possible day and night, every day. The garage is open from Monday to Saturday, 8:00 to 19:00."},
		},
	},
	{
		tags: []string{"parking"},
		lines: []line{
			{customer, "Can i leave the bike at the lake over the weekend without paying"},
			{agent, "Hi {first}, you can end the ride at the lake within the marked area and take any bike for the way back. A pause over the whole weekend would cost more than two rides."},
			{customer, "ok good to know"},
		},
	},
	{
		subject: "Order of a gift card", tags: []string{"shop", "order"}, mail: true,
		lines: []line{
			{customer, "I bought a gift card in your shop on {day} and have not received the code. The money is gone from my account.\n\n{name}"},
			{agent, "Hello {first},\n\nthe mail with the code came back because of a typing error in the address. I have sent it again to this one. Have fun with it!\n\n{agent}"},
			{customer, "It is here. Thank you"},
		},
	},
	{
		subject: "Exchange of phone holder", tags: []string{"shop", "return"}, mail: true,
		lines: []line{
			{customer, "The phone holder is too small for my phone. Can I exchange it for the large one?"},
			{agent, "Hi {first}, sure. Print the label that I have attached to your order and drop the parcel at any post office; the large one leaves as soon as it is scanned."},
		},
	},
	{
		subject: "Cancel my subscription", tags: []string{"subscription"},
		lines: []line{
			{customer, "I would like to cancel my monthly pass by the end of the month. Winter is coming :)"},
			{agent, "Hi {first}, it is cancelled; it remains valid until the end of the month. You can also pause it until March and keep your old price. Just answer \"pause\" if you prefer that."},
			{customer, "Pause please!"},
			{agent, "It is paused until 1 March. Enjoy the winter!"},
		},
	},
	{
		subject: "Student discount", tags: []string{"pricing"},
		lines: []line{
			{customer, "Do you have a discount for students?"},
			{agent, "Hi {first}, yes: 20 % off the monthly pass. Send us a photo of your student card in the app under Account, Discounts."},
		},
	},
	{
		subject: "Zahlung doppelt abgebucht", tags: []string{"billing", "german"}, mail: true,
		lines: []line{
			{customer, "Guten Tag,\n\ndie Fahrt {ride} über {price} wurde bei mir zweimal abgebucht. Bitte prüfen Sie das.\n\nViele Grüße\n{name}"},
			{agent, "Guten Tag {first},\n\neine der beiden Buchungen ist nur eine Vormerkung Ihrer Bank. Sie verfällt von selbst, spätestens am Freitag. Falls sie dann noch da ist, antworten Sie einfach auf diese Mail.\n\nViele Grüße\n{agent}"},
			{customer, "Hat sich erledigt, vielen Dank!"},
		},
		ride: true,
	},
	{
		tags: []string{"lock", "german"}, ride: true,
		lines: []line{
			{customer, "Hallo, {vehicle} lässt sich nicht abschließen, stehe an {place}"},
			{agent, "Hallo {first}, bitte einmal den Hebel ganz nach oben ziehen und dann schließen. Ich sehe das Fahrzeug und beende die Fahrt für Sie, falls es nicht klappt."},
			{customer, "Hat geklappt 👍"},
		},
	},
	{
		tags: []string{"pricing", "spanish"},
		lines: []line{
			{customer, "Hola, ¿cuánto cuesta una hora de bicicleta?"},
			{agent, "Hola {first}, desbloquear cuesta 1 € y cada minuto se paga aparte; el precio exacto se ve en la app antes de empezar. Con el pase de un día sale más barato."},
			{customer, "Gracias!"},
		},
	},
	{
		subject: "Facture pour mon employeur", tags: []string{"invoice", "french"}, mail: true,
		lines: []line{
			{customer, "Bonjour,\n\npourriez-vous m'envoyer une facture avec TVA pour mes trajets du mois dernier ?\n\nCordialement,\n{name}"},
			{agent, "Bonjour {first},\n\nvous la trouvez dans l'application, sous Compte, Reçus, Facture mensuelle. Dites-moi s'il manque quelque chose.\n\n{agent}"},
		},
	},
	{
		tags: []string{"gps"}, ride: true,
		lines: []line{
			{customer, "The map shows {vehicle} at {place} but there is nothing. Walked 10 minutes for it"},
			{agent, "Sorry, {first}. Its last position is from yesterday evening, so it may stand in a courtyard. I have hidden it from the map and put 2.00 on your account for the walk."},
		},
	},
	{
		tags: []string{"voicemail", "billing"},
		lines: []line{
			{customer, "Voicemail: Hello, it's about my bill from last week, please call me back this afternoon."},
			{note, "Called back, nobody there. Tried again at 16:00: settled, it was the deposit for the cargo bike."},
		},
	},
	{
		tags: []string{"cargo-bike", "reservation"},
		lines: []line{
			{customer, "Do you rent cargo bikes for a whole weekend? We are moving"},
			{agent, "Hi {first}, yes. Reserve one in the app up to seven days ahead: the weekend price runs from Friday 16:00 to Monday 9:00. There are straps in the box."},
			{customer, "Booked one. Thanks!!"},
		},
	},
	{
		subject: "Chargeback for ride {ride}", tags: []string{"payment", "dispute"}, priority: "high", ride: true, mail: true,
		lines: []line{
			{customer, "I do not recognise this payment of {price}. I was not in the city on {day}, and have asked my bank to take it back.\n\n{name}"},
			{note, "Ride {ride} was started with this account, from a phone that was new. Looks like a shared password."},
			{agent, "Hello {first},\n\nthe ride was started with your account from a phone that we had not seen before. I have signed out all devices; please set a new password. You do not have to pay for the ride, and your bank's case is closed from our side.\n\n{agent}"},
		},
	},
}
