"""Tests of the verification of webhooks beyond the vectors."""

from __future__ import annotations

import json
import unittest
from email.message import Message
from typing import Any, cast

from kickstand import KickstandError, SignatureError, testing, webhooks
from kickstand.fleet.events import FleetCustomerCreatedEvent
from kickstand.helpdesk.events import (
    EVENTS,
    CustomerCreatedEvent,
    FlatEvent,
    TicketCreatedEvent,
    UnknownEvent,
)

SECRET = "sixteen letters!"


def event(name: str) -> bytes:
    body = {"id": "1", "event": name, "created_at": "2026-11-21T09:30:00.000Z", "data": {"a": 1}}
    return json.dumps(body).encode()


class WebhookTest(unittest.TestCase):
    def test_returns_the_class_of_an_event(self) -> None:
        for name, of in [*EVENTS.items(), ("added.later", UnknownEvent)]:
            body = event(name)
            got = webhooks.verify(body, testing.sign(body, SECRET), SECRET)
            self.assertIs(type(got), of)
            self.assertEqual((got.id, got.event), ("1", name))
            self.assertEqual(got.to_dict()["data"], {"a": 1})

    def test_events_are_typed(self) -> None:
        value = json.loads(event("ticket.created"))
        value["data"] = {"ticket": {"id": "tic-1", "customer": {"email": "ada@example.com"}}}
        body = json.dumps(value).encode()
        got = webhooks.verify(body, testing.sign(body, SECRET), SECRET)
        assert isinstance(got, TicketCreatedEvent) and got.data.ticket.customer
        self.assertEqual(got.data.ticket.customer.email, "ada@example.com")

    def test_events_of_the_fleet_are_typed(self) -> None:
        value = json.loads(event("customer.created"))
        value["data"] = {"livemode": True, "customer": {"id": "cus_1", "status": "active"}}
        body = json.dumps(value).encode()
        headers = testing.sign(body, SECRET)
        for got in (
            webhooks.verify(body, headers, SECRET, source="fleet"),
            webhooks.verify(body, headers, SECRET, source="sandbox"),
            webhooks.verify_body(body, headers, SECRET, "b", source="fleet"),
        ):
            assert isinstance(got, FleetCustomerCreatedEvent)
            self.assertEqual((got.data.livemode, got.data.customer.status), (True, "active"))
        for other in (
            webhooks.verify(body, headers, SECRET),
            webhooks.verify(body, headers, SECRET, source="helpdesk"),
        ):
            self.assertIs(type(other), CustomerCreatedEvent)

    def test_returns_an_event_of_form_a(self) -> None:
        body = b'{"event":"ticket.created","timestamp":"2026-11-21T09:30:00.000Z","data":{"a":1}}'
        headers = testing.sign(body, SECRET, id="evt", form="a")
        for got in (
            webhooks.verify(body, headers, SECRET),
            webhooks.verify_body(body, headers, SECRET, "a"),
        ):
            assert isinstance(got, FlatEvent)
            self.assertEqual((got.id, got.event, got.data), ("evt", "ticket.created", {"a": 1}))

    def test_accepts_the_headers_of_frameworks(self) -> None:
        body, headers = event("ticket.created"), Message()
        for name, value in testing.sign(body, SECRET).items():
            headers[name] = value
        self.assertEqual(webhooks.verify(bytearray(body), headers, [SECRET, "other"]).id, "1")

    def test_refuses_wrong_arguments(self) -> None:
        body = event("ticket.created")
        headers = testing.sign(body, SECRET)
        for secret in ("", [], ["x", ""], "whsec_", "whsec_=="):
            with self.subTest(secret), self.assertRaisesRegex(ValueError, "secret"):
                webhooks.verify(body, headers, secret)
        with self.assertRaisesRegex(TypeError, "bytes"):
            webhooks.verify(cast(Any, body.decode()), headers, SECRET)
        with self.assertRaisesRegex(ValueError, "form"):
            webhooks.verify_body(body, headers, SECRET, cast(Any, "c"))
        with self.assertRaisesRegex(ValueError, "source"):
            webhooks.verify(body, headers, SECRET, source=cast(Any, "Fleet"))

    def test_refuses_odd_signatures(self) -> None:
        body = event("ticket.created")
        for name, value in (
            ("Webhook-Signature", "v1,\ud800é"),
            ("Webhook-Signature", " "),
            ("Webhook-Id", "\ud800"),
            ("Webhook-Timestamp", "١٢٣"),
            ("Webhook-Timestamp", "-1"),
            ("Webhook-Timestamp", "9" * 5000),
        ):
            headers = {**testing.sign(body, SECRET), name: value}
            with self.subTest(value[:9]), self.assertRaises(SignatureError):
                webhooks.verify(body, headers, SECRET)

    def test_compares_whole_seconds(self) -> None:
        body = b'{"id":"1","event":"ticket.created","data":{}}'
        headers = testing.sign(body, "a secret of sixteen or more", timestamp=1000)
        secret = "a secret of sixteen or more"
        webhooks.verify(body, headers, secret, tolerance=0, now=1000.9)
        with self.assertRaises(SignatureError):
            webhooks.verify(body, headers, secret, tolerance=0, now=1001.0)

    def test_refuses_signed_bodies_that_are_no_events(self) -> None:
        for body in (b"", b"\xff", b"[]", b'{"event":1}', b"[" * 100_000):
            with self.subTest(body[:9]), self.assertRaisesRegex(KickstandError, "not an event"):
                webhooks.verify(body, testing.sign(body, SECRET), SECRET)


if __name__ == "__main__":
    unittest.main()
