"""Tests of the client beyond the vectors."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import tempfile
import traceback
import unittest
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast
from unittest import mock

import kickstand
from kickstand import NOT_GIVEN, Fleet, Helpdesk, attachment, codes
from kickstand.helpdesk import Member, Ticket

from .servers import KEY, helpdesk

MEMBER = {
    "id": "mem-1",
    "object": "member",
    "name": "Ada",
    "email": "ada@example.com",
    "role": "agent",
    "created_at": "2026-11-21T09:00:00.123456789+01:00",
    "added_later": [1],
}
LIST = {"data": [MEMBER], "has_more": False, "next_cursor": None}


class SecretTest(unittest.TestCase):
    def test_no_text_of_a_client_has_its_key(self) -> None:
        client, transport = helpdesk(LIST)
        client.members.list()
        for value in (client, client.members, client._core, transport.requests[0]):
            self.assertNotIn(KEY, repr(value))
        self.assertEqual(repr(client), "Helpdesk('https://kickstand.example/api/v1')")
        with self.assertRaises(TypeError):
            pickle.dumps(client)

    def test_no_error_has_the_key(self) -> None:
        client, transport = helpdesk(LIST)
        with mock.patch.object(transport, "send", side_effect=kickstand.APIConnectionError("x")):
            client = Helpdesk(KEY, base_url="https://a.example", transport=transport, max_retries=0)
            with self.assertRaises(kickstand.APIConnectionError) as caught:
                client.members.list()
        self.assertNotIn(KEY, "".join(traceback.format_exception(caught.exception)))

    def test_reads_the_environment(self) -> None:
        values = {"KICKSTAND_KEY": KEY, "KICKSTAND_URL": "https://kickstand.example/"}
        with mock.patch.dict(os.environ, values):
            self.assertEqual(repr(Fleet()), "Fleet('https://kickstand.example/v1')")
        with mock.patch.dict(os.environ, clear=True):
            with self.assertRaisesRegex(ValueError, "KICKSTAND_KEY"):
                Helpdesk()
            with self.assertRaisesRegex(ValueError, "KICKSTAND_URL"):
                Helpdesk(KEY)

    def test_the_repr_of_a_webhook_has_no_secret(self) -> None:
        client, _ = helpdesk({"id": "web-1", "generated_secret": "whsec_abc"})
        webhook = client.webhooks.get("web-1")
        self.assertEqual(webhook.generated_secret, "whsec_abc")
        self.assertNotIn("whsec_abc", repr(webhook))


class RequestTest(unittest.TestCase):
    def url(self, **arguments: Any) -> str:
        client, transport = helpdesk(LIST)
        client.tickets.list(**arguments)
        return transport.requests[0].url.partition("?")[2]

    def test_sends_values(self) -> None:
        berlin = timezone(timedelta(hours=1))
        at = datetime(2026, 11, 21, 10, 0, 0, 123999, berlin)
        self.assertEqual(
            self.url(created_at_gte=at), "created_at%5Bgte%5D=2026-11-21T09%3A00%3A00.123Z"
        )
        self.assertEqual(self.url(q="a,b c&d=é\n"), "q=a%2Cb%20c%26d%3D%C3%A9%0A")
        self.assertEqual(self.url(status="open"), "status=open")
        self.assertEqual(self.url(status=("open", "closed")), "status=open%2Cclosed")
        self.assertEqual(self.url(tags=[]), "")
        self.assertEqual(self.url(limit=10**30), "limit=1" + "0" * 30)

    def test_refuses_arguments(self) -> None:
        client, transport = helpdesk()
        tickets: Any = client.tickets
        calls: list[Callable[[], object]] = [
            lambda: tickets.list(created_at_gte=datetime(2026, 11, 21)),
            lambda: tickets.list(created_at_gte=datetime.max.replace(tzinfo=timezone.min)),
            lambda: tickets.list(tags="a,b"),
            lambda: tickets.list(tags=None),
            lambda: tickets.list(tags=7),
            lambda: tickets.list(tags=b"ab"),
            lambda: tickets.list(q=None),
            lambda: tickets.list(q=b"x"),
            lambda: tickets.list(q="\ud800"),
            lambda: tickets.list(unknown=1),
            lambda: tickets.list(limit=float("nan")),
            lambda: tickets.list(options={"timeut": 1}),
            lambda: tickets.list(options={"timeout": 0}),
            lambda: tickets.list(options={"timeout": float("inf")}),
            lambda: tickets.list(options={"request_id": "a\r\nX: b"}),
            lambda: tickets.get(7),
            lambda: tickets.get(None),
            lambda: tickets.get("\ud800"),
            lambda: tickets.create(subject="\ud800"),
            lambda: tickets.create(subject=float("inf")),
            lambda: tickets.create(subject=b"x"),
            lambda: tickets.create(subject="x", metadata={"a": NOT_GIVEN}),
            lambda: tickets.create(),
            lambda: tickets.update("1", if_match=""),
            lambda: tickets.update("1", if_match=None),
            lambda: tickets.update("1", if_match='"1"\r\n X: y'),
            lambda: tickets.update("1", idempotency_key="a b"),
            lambda: tickets.update("1", idempotency_key="k" * 256),
            lambda: attachment(b"x"),
        ]
        for call in calls:
            with self.assertRaises((ValueError, TypeError)):
                call()
        self.assertEqual(transport.requests, [])

    def test_null_differs_from_absent(self) -> None:
        client, transport = helpdesk({}, {})
        client.tickets.update("1", external_id=None)
        client.tickets.update("1")
        self.assertEqual([r.body for r in transport.requests], [b'{"external_id":null}', b"{}"])
        self.assertFalse(NOT_GIVEN)
        self.assertEqual(repr(NOT_GIVEN), "NOT_GIVEN")

    def test_refuses_an_import_that_is_too_large(self) -> None:
        transport = helpdesk()[1]
        fleet = Fleet(KEY, base_url="https://kickstand.example", transport=transport)
        endless = ({"code": "x" * 1000} for _ in iter(int, 1))
        with self.assertRaisesRegex(ValueError, "16 MiB"):
            fleet.vehicles.import_(endless)
        self.assertEqual(transport.requests, [])

    def test_attaches_files(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "lock.png")
            path.write_bytes(b"\x89PNG")
            want = {"name": "lock.png", "content": "iVBORw==", "content_type": "image/png"}
            self.assertEqual(attachment(path), want)
        self.assertEqual(
            attachment(b"", "a.unknown-type"), {"name": "a.unknown-type", "content": ""}
        )


class AnswerTest(unittest.TestCase):
    def test_records(self) -> None:
        client, _ = helpdesk(LIST)
        member = client.members.list().data[0]
        nine = datetime(2026, 11, 21, 9, 0, 0, 123456, timezone(timedelta(hours=1)))
        self.assertEqual(member.created_at, nine)
        self.assertEqual(member.to_dict(), MEMBER)
        with self.assertRaises(dataclasses.FrozenInstanceError):
            member.name = "Eve"  # type: ignore[misc]
        with self.assertRaisesRegex(kickstand.KickstandError, "no ETag"):
            member.etag

    def test_records_can_be_copied(self) -> None:
        client, _ = helpdesk({"id": "tic-1", "tags": ["a"], "more": 1})
        ticket = client.tickets.get("tic-1")
        for same in (copy.copy(ticket), copy.deepcopy(ticket), pickle.loads(pickle.dumps(ticket))):
            self.assertEqual(same, ticket)
            self.assertEqual(same.to_dict(), {"id": "tic-1", "tags": ["a"], "more": 1})
            self.assertEqual(same.etag, '"1"')
        changed = dataclasses.replace(ticket, subject="new")
        self.assertEqual(changed.to_dict()["subject"], "new")
        ticket.to_dict()["tags"].append("b")
        self.assertEqual(ticket.tags, ["a"])

    def test_members_of_another_type_stay_as_they_are(self) -> None:
        client, _ = helpdesk({"id": 7, "tags": None, "created_at": 1, "customer": "x"})
        ticket = cast(Any, client.tickets.get("1"))
        self.assertEqual((ticket.id, ticket.tags, ticket.created_at), (7, None, 1))
        self.assertEqual((ticket.customer, ticket.subject), ("x", None))

    def test_refuses_answers(self) -> None:
        for body, message in (
            (b"\xff{}", "not JSON"),
            (b'{"id": NaN}', "not JSON"),
            (b'{"id": 1' + b"0" * 5000 + b"}", "not JSON"),
            (b"[" * 100_000, "not JSON"),
            (b"[]", "not a Ticket"),
            (b"null", "not a Ticket"),
            (b'{"created_at":"yesterday"}', "not an RFC 3339 time"),
        ):
            client, _ = helpdesk(body)
            with self.subTest(body[:20]), self.assertRaisesRegex(kickstand.KickstandError, message):
                client.tickets.get("1")

    def test_refuses_lists_without_an_end(self) -> None:
        page = {"data": [MEMBER], "has_more": True, "next_cursor": "c"}
        client, _ = helpdesk(page, page, page)
        with self.assertRaisesRegex(kickstand.KickstandError, "no new cursor"):
            list(client.members.list())

    def test_errors_can_be_pickled(self) -> None:
        problem = kickstand.ProblemError(
            409,
            {"code": codes.ALREADY_EXISTS, "detail": "It exists."},
            request_id="r",
            retry_after=1,
        )
        same = pickle.loads(pickle.dumps(problem))
        self.assertEqual(str(same), "It exists. (already_exists, request r)")
        self.assertEqual((same.status, same.retry_after), (409, 1))
        signature = pickle.loads(pickle.dumps(kickstand.SignatureError("It is old.", "timestamp")))
        self.assertEqual((str(signature), signature.reason), ("It is old.", "timestamp"))

    def test_downloads(self) -> None:
        client, _ = helpdesk(b"abc", b"abc")
        self.assertEqual(client.messages.get_attachment("1").read(), b"abc")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "file")
            client.messages.get_attachment("1").save(path)
            self.assertEqual(path.read_bytes(), b"abc")

    def test_all_names_of_the_package_exist(self) -> None:
        for name in kickstand.__all__:
            self.assertIsNotNone(getattr(kickstand, name))
        with self.assertRaises(AttributeError):
            getattr(kickstand, "nothing")

    def test_records_are_typed(self) -> None:
        member: Member = helpdesk(LIST)[0].members.list().data[0]
        ticket: Ticket = helpdesk({"id": "1"})[0].tickets.get("1")
        changed: Ticket | None = helpdesk({"id": "1"})[0].tickets.get("1", if_none_match='"2"')
        self.assertEqual((member.id, ticket, changed), ("mem-1", changed, ticket))


if __name__ == "__main__":
    unittest.main()
