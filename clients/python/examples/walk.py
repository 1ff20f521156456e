"""Does with the library all that docs/api/README.md and docs/api/fleet.md do with curl.

It needs a running demo: KICKSTAND_URL, KICKSTAND_KEY and KICKSTAND_FLEET_KEY, a key of the sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

from kickstand import Fleet, Helpdesk, ProblemError, ResponseInfo, attachment, codes


def refused(call: Callable[..., object], *args: Any, **arguments: Any) -> ProblemError:
    """Return the problem that a call raises."""
    try:
        call(*args, **arguments)
    except ProblemError as error:
        return error
    raise AssertionError("the call must be refused")


def tickets(client: Helpdesk) -> None:
    ticket = client.tickets.create(
        subject="The lock does not open",
        text="It beeps twice.",
        tags=["walk"],
        customer={"name": "Ada", "email": "ada@example.com"},
    )
    assert ticket.status == "open" and ticket.customer.email == "ada@example.com"
    print("create a ticket")

    error = refused(
        client.tickets.modify, ticket.id, lambda _: {"subjct": "typo", "priority": "asap"}
    )
    found = [(e.pointer, e.code) for e in error.errors]
    assert found == [("#/subjct", "unknown_field"), ("#/priority", "invalid_value")], found
    assert error.code == codes.VALIDATION_FAILED and error.request_id
    print("list all wrong fields")

    page = client.tickets.list(
        tags="walk",
        status=["open", "pending"],
        created_at_gte=datetime(2026, 1, 1, tzinfo=timezone.utc),
        sort="-created_at",
        limit=1,
        expand="customer",
    )
    assert page.data[0].id == ticket.id
    ids = [t.id for t in client.tickets.list(limit=2)]
    assert len(ids) == len(set(ids)) > 4 and ticket.id in ids
    print("list with filters and over several pages")

    text = client.tickets.export_csv(tags="walk").read().decode()
    assert "subject,status,priority" in text
    with client.tickets.export(tags="walk") as export:
        assert ticket.id in [t.id for t in export]
    print("export as CSV and NDJSON")

    changed = client.tickets.update(ticket.id, priority="high", metadata={"order": "1042"})
    assert changed.priority == "high" and changed.metadata == {"order": "1042"}
    error = refused(client.tickets.update, ticket.id, if_match='"an older one"', priority="low")
    assert error.code == codes.PRECONDITION_FAILED and error.status == 412
    changed = client.tickets.modify(ticket.id, lambda t: {"tags": [*t.tags, "lock"]})
    assert changed.tags == ["walk", "lock"]
    assert client.tickets.get(ticket.id, if_none_match=changed.etag) is None
    print("change a record, and read it unchanged")

    messages(client, ticket.id)


def messages(client: Helpdesk, ticket: str) -> None:
    seen: list[ResponseInfo] = []
    key = str(uuid4())
    for _ in range(2):
        client.messages.create(
            ticket,
            kind="note",
            text="A stone was in the lock.",
            idempotency_key=key,
            options={"on_response": seen.append},
        )
    assert [info.replayed for info in seen] == [False, True]
    error = refused(client.messages.create, ticket, kind="note", text="Other", idempotency_key=key)
    assert error.code == codes.IDEMPOTENCY_KEY_REUSED
    print("repeat a write")

    client.api_key.get(options={"on_response": seen.append})
    assert seen[-1].rate_limit and seen[-1].rate_limit.limit > seen[-1].rate_limit.remaining
    print("read the limit")

    file = attachment(b"from the walk", "walk.txt", "text/plain")
    reply = client.messages.create(ticket, kind="reply", text="It is repaired.", attachments=[file])
    assert reply.delivery is None
    assert client.messages.get_attachment(reply.attachments[0].id).read() == b"from the walk"
    print("reply, and read a file")


def rides(client: Fleet) -> None:
    began = datetime.now(timezone.utc)
    client.sandbox.reset()
    print("reset the sandbox")

    missing = client.vehicles.list(state="missing", sort="code")
    assert [v.code for v in missing] == ["B-0114", "F-0108"]
    near = client.vehicles.list(
        lat=52.52, lng=13.41, radius_meters=10000, state="available", limit=1
    )
    assert near.data[0].state == "available"
    print("find vehicles")

    like = client.vehicles.list(code="B-0101").data[0]
    vehicle = client.vehicles.create(
        subaccount_id=like.subaccount_id,
        code="TRIAL-1",
        vehicle_type_id=like.vehicle_type_id,
        state="available",
        battery_percent=80,
        odometer_meters=0,
        location={"lat": 52.5219, "lng": 13.4132},
    )
    assert vehicle.last_event == "provider_drop_off"
    print("create a vehicle")

    with client.customers.export(subaccount_id=like.subaccount_id, status="active") as riders:
        rider = next(c.id for c in riders if c.open_ride_id is None)
    key = str(uuid4())
    started = [
        client.rides.create(customer_id=rider, vehicle_code="TRIAL-1", idempotency_key=key).id
        for _ in range(2)
    ]
    assert started[0] == started[1]
    error = refused(client.rides.create, customer_id=rider, vehicle_code="TRIAL-1")
    assert error.status == 409 and error.code == codes.VEHICLE_UNAVAILABLE
    print("start a ride, once")

    client.sandbox.update_clock(now=began + timedelta(seconds=630))
    park = {"lat": 52.515, "lng": 13.355}
    error = refused(client.rides.update, started[0], status="completed", end_location=park)
    assert error.code == codes.OUT_OF_ZONE_FEE_REQUIRED, error
    assert error.raw["out_of_zone_amount"] == 1500 and error.raw["currency"] == "EUR"
    ended = client.rides.update(
        started[0],
        status="completed",
        distance_meters=1850,
        end_location={"lat": 52.5251, "lng": 13.3694},
    )
    assert ended.price and ended.price.total_amount == 375 and ended.payment_status == "due"
    print("end it outside and inside of the zones")

    reserved = client.rides.create(status="reserved", customer_id=rider, vehicle_code="TRIAL-1")
    client.sandbox.update_clock(now=began + timedelta(seconds=4200))
    ride = client.rides.get(reserved.id)
    assert (ride.status, ride.cancel_reason) == ("cancelled", "reservation_expired")
    assert ride.price and ride.price.total_amount == 150
    assert client.vehicles.get(vehicle.id).last_event == "comms_lost"
    print("let a reservation expire")

    until = began + timedelta(seconds=9000)
    revenue = client.analytics.revenue(from_=began, to=until, granularity="total")
    assert [t.total_amount for t in revenue.totals if t.currency == "EUR"] == [675]
    print("read the revenue")

    bulk(client, vehicle.id)


def bulk(client: Fleet, vehicle: str) -> None:
    with client.rides.export(vehicle_id=vehicle, sort="created_at") as export:
        assert [ride.status for ride in export] == ["completed", "cancelled"]
    with client.zones.export() as zones:
        imported = client.zones.import_(zones, on_conflict="update")
    assert imported.summary.unchanged == 8 and imported.summary.failed == 0
    assert imported.summary.skipped and imported.summary.skipped["created_at"] == 8
    results = list(client.vehicles.import_([{"code": "TRIAL-1"}, {"code": "TRIAL-2"}]))
    assert [(r.line, r.status) for r in results] == [(1, 422), (2, 422)]
    assert results[0].error and results[0].error.code == codes.VALIDATION_FAILED
    print("export and import")


with Helpdesk() as helpdesk:
    tickets(helpdesk)
with Fleet(os.environ["KICKSTAND_FLEET_KEY"]) as fleet:
    rides(fleet)
