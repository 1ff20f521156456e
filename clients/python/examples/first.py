import json
import os
from kickstand import Fleet, Helpdesk, testing, webhooks

helpdesk, fleet = Helpdesk(), Fleet(os.environ["KICKSTAND_FLEET_KEY"])
ticket = helpdesk.tickets.create(subject="It does not open", customer={"email": "ada@example.com"})
helpdesk.messages.create(ticket.id, kind="reply", text="It is repaired.")
print([t.number for t in helpdesk.tickets.list(status=["open"], limit=2)])

scooter = fleet.vehicles.list(
    state="available", form_factor="scooter_standing", lat=52.52, lng=13.41, radius_meters=5000
).data[0]
riders = fleet.customers.list(status="active", subaccount_id=scooter.subaccount_id)
rider = next(c for c in riders if c.open_ride_id is None)
ride = fleet.rides.create(customer_id=rider.id, vehicle_id=scooter.id)
end = fleet.rides.update(ride.id, status="completed", end_location={"lat": 52.5251, "lng": 13.3694})
print(end.status, end.price and end.price.total_amount)

body, secret = json.dumps({"event": "ticket.created", "data": {}}).encode(), "sixteen letters!"
print(webhooks.verify(body, testing.sign(body, secret), secret).event)
